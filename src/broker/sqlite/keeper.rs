//! The queue keeper: one unpinned thread per open file and process. It owns the connection that writes, gathers
//! what is asked of it, does all of it in one transaction, and answers after the commit.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, Transaction, TransactionBehavior};
use shards::clock::{Clock, Moment};

use super::books::{self, Books, Now, Sweep};
use super::checkpoint::Checkpoints;
use super::claims::{ClaimId, Consumer};
use super::file::Gauges;
use super::inode::Inode;
use super::owner::{self, Owner};
use super::request::{Placed, Receive, Reply, Request, Settle, Taken, Told, Work};
use super::table::Table;

/// A transaction with so many messages does not wait for more.
const GATHER_MIN: usize = 500;
/// Time from the start of one transaction to the next while many messages flow.
const GATHER_WAIT: Duration = Duration::from_millis(5);
/// Time from the end of one transaction to the next while many messages flow: those who were answered ask for
/// more, and the next transaction serves all of them instead of the first.
const ASK_WAIT: Duration = Duration::from_millis(1);
/// Messages in the last transaction from which on more are waited for: a lone request never waits.
const GATHER_FROM: usize = 64;
/// Messages that one transaction takes in at most.
const GATHER_MAX: usize = 20_000;
/// How often another process's messages are looked for while a receive waits: from, to.
const LOOK: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));
/// Pause after a failed transaction.
const FAILED_PAUSE: Duration = Duration::from_millis(100);
/// How often it is looked whether other owners live.
const OWNERS_LOOK: Duration = Duration::from_millis(50);
/// How often dedup ids are forgotten.
const FORGET_EVERY: Duration = Duration::from_secs(30);

struct Waiting {
    receive: Receive,
    until: Moment,
}

/// The thread's state.
pub(super) struct Keeper {
    path: PathBuf,
    inode: Inode,
    conn: Connection,
    owner: Owner,
    books: Books,
    requests: flume::Receiver<Request>,
    waiting: VecDeque<Waiting>,
    /// What was told in a transaction that failed, or handed out to no one: it goes back.
    back: Vec<(Consumer, u64, Told)>,
    checkpoints: Checkpoints,
    gauges: Arc<Gauges>,
    look: Duration,
    looked_at: Moment,
    owners_at: Moment,
    forget_at: Moment,
    last_start: Moment,
    last_end: Moment,
    last_count: usize,
    failed: bool,
}

/// What a transaction has to say.
#[derive(Default)]
struct Done {
    published: Vec<Vec<u64>>,
    put_back: Vec<Vec<Placed>>,
    settled: Vec<Vec<bool>>,
    taken: Vec<Vec<Taken>>,
}

impl Keeper {
    /// A keeper over an open file.
    pub(super) fn new(
        path: &Path,
        mut conn: Connection,
        requests: flume::Receiver<Request>,
        gauges: Arc<Gauges>,
    ) -> io::Result<Self> {
        let owner = Owner::new(path)?;
        owner::bury_all(path, &owner.host);
        let checkpoints = Checkpoints::start(path, &mut conn, Arc::clone(&gauges))?;
        let file_id = Table(&conn).file_id().map_err(io::Error::other)?;
        let books = Books::new(owner.id, owner.host.clone(), file_id);
        let now = Clock.now();
        Ok(Self {
            path: path.to_owned(),
            inode: Inode::of(path)?,
            conn,
            owner,
            books,
            requests,
            waiting: VecDeque::new(),
            back: Vec::new(),
            checkpoints,
            gauges,
            look: LOOK.0,
            looked_at: Moment::ZERO,
            owners_at: Moment::ZERO,
            forget_at: now + FORGET_EVERY,
            last_start: Moment::ZERO,
            last_end: Moment::ZERO,
            last_count: 0,
            failed: false,
        })
    }

    /// Runs until the last user is gone.
    pub(super) fn run(mut self) {
        loop {
            let mut work = Work::default();
            let ended = self.gather(&mut work);
            self.turn(work);
            if ended {
                break;
            }
        }
        for Waiting { receive, .. } in self.waiting.drain(..) {
            let _ = receive.reply.send(Ok(Vec::new()));
        }
        self.end();
    }

    /// Waits for work, and for more of it where much is coming. True: there will be no more.
    fn gather(&mut self, work: &mut Work) -> bool {
        match self.requests.recv_timeout(self.wait()) {
            Ok(request) => self.take(request, work),
            Err(flume::RecvTimeoutError::Timeout) => return false,
            Err(flume::RecvTimeoutError::Disconnected) => return true,
        }
        self.look = LOOK.0;
        loop {
            while work.count < GATHER_MAX
                && let Ok(request) = self.requests.try_recv()
            {
                self.take(request, work);
            }
            let asked = self.last_end + ASK_WAIT;
            let until =
                if work.count < GATHER_MIN { asked.max(self.last_start + GATHER_WAIT) } else { asked };
            let left = until.since(Clock.now());
            if work.end || self.last_count < GATHER_FROM || left.is_zero() {
                return work.end;
            }
            if let Ok(request) = self.requests.recv_timeout(left) {
                self.take(request, work);
            }
        }
    }

    fn take(&mut self, request: Request, work: &mut Work) {
        if let Some(receive) = work.add(request) {
            let until = Clock.now() + receive.poll;
            self.waiting.push_back(Waiting { receive, until });
        }
    }

    /// How long there is nothing to do by itself.
    fn wait(&self) -> Duration {
        if self.failed {
            return FAILED_PAUSE;
        }
        if !self.back.is_empty() {
            return Duration::ZERO;
        }
        let now = now();
        let lease = self.books.claims.next_due().map(|at| at.since(now.moment));
        let forget = self.forget_at.since(now.moment);
        let mut wait = lease.map_or(forget, |lease| lease.min(forget));
        if let Some(first) = self.waiting.iter().map(|waiting| waiting.until).min() {
            if self.books.may_pick() {
                return Duration::ZERO;
            }
            wait = wait.min(first.since(now.moment)).min(self.look);
            if let Some(at) = self.books.next_at() {
                wait = wait.min(Duration::from_millis(at.saturating_sub(now.wall)));
            }
        }
        wait
    }

    /// One turn: a transaction if there is anything to write or to hand out.
    fn turn(&mut self, mut work: Work) {
        let now = now();
        // Every turn, because it costs next to nothing beside a commit, and what is written to a file without
        // a name is lost.
        if let Err(error) = self.inode.check(&self.path) {
            return self.fail(work, &error);
        }
        self.books.wake(now);
        let mut settles = std::mem::take(&mut self.back);
        let dead = match self.look_around(&work, now) {
            Ok(dead) => dead,
            Err(error) => {
                self.back = settles;
                return self.fail(work, &error);
            }
        };
        let ends = !dead.is_empty()
            || self.books.claims.next_due().is_some_and(|at| at <= now.moment)
            || (!self.waiting.is_empty()
                && self.books.elsewhere.next_due().is_some_and(|at| at <= now.moment));
        let hands_out = !self.waiting.is_empty() && self.books.may_pick();
        if work.writes() || ends || hands_out || !settles.is_empty() || self.forget_at <= now.moment {
            self.last_start = now.moment;
            self.last_count = work.count;
            // Looked up before the transaction takes it away in memory, in case that fails.
            let left = self.had_by(&work.leaves);
            match self.transact(&work, &settles, &dead) {
                Ok(done) => {
                    self.failed = false;
                    self.books.claims.on_commit();
                    self.last_count += done.taken.iter().map(Vec::len).sum::<usize>();
                    self.answer(&mut work, done);
                    self.bury(&dead);
                }
                Err(error) => {
                    settles.extend(left);
                    self.back = settles;
                    work.leaves.clear();
                    return self.fail(work, &error);
                }
            }
            self.gauges.turn(Clock.now().since(now.moment));
            self.checkpoints.after_commit(&self.conn);
            self.last_end = Clock.now();
        }
        for reply in work.depths {
            let _ = reply.send(Ok(self.books.depth()));
        }
        self.end_polls();
    }

    /// Looks what other processes did where someone waits for it, and which of them died.
    fn look_around(&mut self, work: &Work, now: Now) -> rusqlite::Result<Vec<ClaimId>> {
        let due = now.moment.since(self.looked_at) >= self.look;
        if !work.writes() && ((!self.waiting.is_empty() && due) || !work.depths.is_empty()) {
            self.looked_at = now.moment;
            if self.books.is_stale(Table(&self.conn))? {
                let read = Transaction::new_unchecked(&self.conn, TransactionBehavior::Deferred)?;
                self.books.refresh(Table(&read), now)?;
                read.commit()?;
                self.look = LOOK.0;
            } else {
                self.look = (self.look * 2).min(LOOK.1);
            }
        }
        let blocked = !self.waiting.is_empty() && !self.books.elsewhere.is_empty();
        if !blocked || now.moment < self.owners_at {
            return Ok(Vec::new());
        }
        self.owners_at = now.moment + OWNERS_LOOK;
        let owners = self.books.elsewhere.owners().into_iter();
        let dead = owners.filter(|((id, host), _)| owner::is_dead(&self.path, *id, host, &self.owner.host));
        Ok(dead.flat_map(|(_, claims)| claims).collect())
    }

    fn transact(
        &mut self,
        work: &Work,
        back: &[(Consumer, u64, Told)],
        dead: &[ClaimId],
    ) -> rusqlite::Result<Done> {
        let tx = Transaction::new_unchecked(&self.conn, TransactionBehavior::Immediate)?;
        // Read after the wait for other writers: a beat that is seen now stands still from now on only.
        let now = now();
        let (table, books) = (Table(&tx), &mut self.books);
        books.refresh(table, now)?;
        let before = books.counters();
        let (mut done, mut sweep) = (Done::default(), Sweep::default());
        for &(consumer, seq, told) in back {
            books.settle(table, consumer, &[(seq, told)], &mut sweep, now)?;
        }
        for Settle { consumer, tells, .. } in &work.settles {
            done.settled.push(books.settle(table, *consumer, tells, &mut sweep, now)?);
        }
        books.sweep(table, sweep, now)?;
        for consumer in &work.leaves {
            books.leave(table, *consumer, now)?;
        }
        books.end_claims(table, dead, now)?;
        for (letters, _) in &work.put_backs {
            done.put_back.push(books.put_back(table, letters, now)?);
        }
        for (messages, _) in &work.publishes {
            done.published.push(books.publish(table, messages, now)?);
        }
        for Waiting { receive: Receive { consumer, max, lease, .. }, .. } in &self.waiting {
            let taken = books.claim(table, *consumer, *max, *lease, now)?;
            if taken.is_empty() {
                break;
            }
            done.taken.push(taken);
        }
        if self.forget_at <= now.moment {
            self.forget_at = now.moment + FORGET_EVERY;
            books::forget(table, now)?;
        }
        books.write_counters(table, before)?;
        tx.commit()?;
        Ok(done)
    }

    fn answer(&mut self, work: &mut Work, done: Done) {
        for ((_, reply), seqs) in work.publishes.drain(..).zip(done.published) {
            let _ = reply.send(Ok(seqs));
        }
        for ((_, reply), placed) in work.put_backs.drain(..).zip(done.put_back) {
            let _ = reply.send(Ok(placed));
        }
        for (settle, answers) in work.settles.drain(..).zip(done.settled) {
            let _ = settle.reply.send(Ok(answers));
        }
        for taken in done.taken {
            let Some(Waiting { receive, .. }) = self.waiting.pop_front() else { return };
            if let Err(flume::SendError(Ok(unwanted))) = receive.reply.send(Ok(taken)) {
                let back =
                    unwanted.into_iter().map(|taken| (receive.consumer, taken.identity.seq, GIVE_BACK));
                self.back.extend(back);
            }
        }
    }

    /// A transaction failed: everyone hears of it. What a consumer told is lost to it, so that the messages go
    /// back as soon as the file can be written again.
    fn fail(&mut self, work: Work, error: &dyn Display) {
        self.failed = true;
        self.books.distrust();
        let said = format!("{}: {error}", self.path.display());
        for (_, reply) in work.publishes {
            refuse(&reply, &said);
        }
        for (_, reply) in work.put_backs {
            refuse(&reply, &said);
        }
        for reply in work.depths {
            refuse(&reply, &said);
        }
        for Settle { consumer, tells, reply } in work.settles {
            refuse(&reply, &said);
            let back = tells.into_iter().filter_map(|(seq, told)| match told {
                Told::Ack => Some((consumer, seq, GIVE_BACK)),
                Told::Nack { .. } => Some((consumer, seq, told)),
                Told::Extend => None,
            });
            self.back.extend(back);
        }
        for Waiting { receive, .. } in self.waiting.drain(..) {
            refuse(&receive.reply, &said);
        }
        let left = self.had_by(&work.leaves);
        self.back.extend(left);
    }

    /// What consumers that leave have, as something to give back.
    fn had_by(&self, leaves: &[Consumer]) -> Vec<(Consumer, u64, Told)> {
        let had = |&consumer: &Consumer| {
            let out = self.books.claims.all_of(consumer).into_iter();
            out.map(move |seq| (consumer, seq, GIVE_BACK))
        };
        leaves.iter().flat_map(had).collect()
    }

    /// Ends receives that waited long enough.
    fn end_polls(&mut self) {
        let now = Clock.now();
        self.waiting.retain(|Waiting { receive, until }| {
            if *until <= now {
                let _ = receive.reply.send(Ok(Vec::new()));
            }
            *until > now
        });
    }

    fn bury(&mut self, dead: &[ClaimId]) {
        if !dead.is_empty() {
            owner::bury_all(&self.path, &self.owner.host);
        }
    }

    /// Gives back all that is still out.
    fn end(mut self) {
        let ids = self.books.claims.ids();
        if !ids.is_empty() || !self.back.is_empty() {
            let leaves = self.books.claims.consumers();
            self.turn(Work { leaves, ..Work::default() });
        }
        self.checkpoints.end(&self.conn);
    }
}

const GIVE_BACK: Told = Told::Nack { delay_s: 0, tried: false };

fn refuse<T>(reply: &Reply<T>, said: &str) {
    let _ = reply.send(Err(io::Error::other(said.to_owned())));
}

/// Both clocks.
pub(super) fn now() -> Now {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { wall: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX), moment: Clock.now() }
}
