//! What the keeper knows of the queue, and how each request changes it: in the file and in memory, side by
//! side, inside one transaction. If the transaction fails, [`Books::reload`] starts again from the file.
//!
//! - Q3: a message is acked, nacked or extended only by the consumer whose claim it is in.
//! - Q4: what memory says is checked against the file before a message is handed out, so that several
//!   processes on one file never hand out the same message or two of a group.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use rusqlite::Result;
use shards::clock::Moment;

use super::claims::{Change, ClaimId, Claims, Consumer, Elsewhere};
use super::handout::runs;
use super::request::{NewMessage, Told};
use super::table::{Counters, Table};
use super::window::{GroupKey, Pick, Window};

/// Messages looked at ahead, as SQS FIFO does: a group further back than this waits until those before it
/// are gone.
const WINDOW_MAX: usize = 120_000;
/// How long a dedup id counts, as in SQS FIFO.
const DEDUP_MS: u64 = 5 * 60 * 1_000;
/// How long a put-back is remembered. Only a retry that was interrupted asks for it.
const PUT_BACK_MS: u64 = 30 * 24 * 3_600 * 1_000;
/// How long after another process wrote it counts as looking on.
const OTHERS_LOOK: Duration = Duration::from_secs(10);

/// The two clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// Milliseconds since 1970: for what must survive a reboot.
    pub(super) wall: u64,
    /// For leases.
    pub(super) moment: Moment,
}

/// The keeper's books.
pub(super) struct Books {
    pub(super) owner: i64,
    pub(super) host: String,
    pub(super) file_id: i64,
    pub(super) window: Window,
    pub(super) claims: Claims,
    pub(super) elsewhere: Elsewhere,
    pub(super) counters: Counters,
    /// Every row up to here is in the window, or out.
    pub(super) cursor: u64,
    /// As of the last look; `None` = memory is not to be trusted.
    data_version: Option<i64>,
    others_at: Option<Moment>,
}

/// What one transaction does to rows and claims once all requests are read.
#[derive(Default)]
pub(super) struct Sweep {
    deletes: Vec<u64>,
    touched: BTreeSet<ClaimId>,
}

impl Books {
    pub(super) fn new(owner: i64, host: String, file_id: i64) -> Self {
        Self {
            owner,
            host,
            file_id,
            window: Window::default(),
            claims: Claims::default(),
            elsewhere: Elsewhere::default(),
            counters: Counters::default(),
            cursor: 0,
            data_version: None,
            others_at: None,
        }
    }

    /// A message may be handed out, or might be found.
    pub(super) fn may_pick(&self) -> bool {
        self.window.is_ready() || self.may_scan()
    }

    pub(super) fn may_scan(&self) -> bool {
        self.cursor + 1 < self.counters.next_seq && self.window.len() < WINDOW_MAX
    }

    /// Messages that wait.
    pub(super) fn depth(&self) -> u64 {
        let out = self.claims.out() + self.elsewhere.out();
        self.counters.messages.saturating_sub(out as u64)
    }

    /// Wall clock at which the next delayed message is due.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.window.next_at()
    }

    /// Delayed messages whose time has come.
    pub(super) fn wake(&mut self, now: Now) {
        self.window.wake(now.wall);
    }

    /// Memory is not to be trusted: the next [`Books::refresh`] reads everything again.
    pub(super) fn distrust(&mut self) {
        self.data_version = None;
    }

    /// Another process has written since the last look.
    pub(super) fn is_stale(&self, table: Table<'_>) -> Result<bool> {
        Ok(self.data_version != Some(table.data_version()?))
    }

    /// Sees what other processes wrote.
    pub(super) fn refresh(&mut self, table: Table<'_>, now: Now) -> Result<()> {
        let version = table.data_version()?;
        if self.data_version == Some(version) {
            return Ok(());
        }
        let mine = table.claims_of(self.owner)?;
        let counters = table.counters()?;
        let mut again = counters.put_backs != self.counters.put_backs;
        if self.data_version.is_some() {
            self.others_at = Some(now.moment);
            let kept: HashSet<ClaimId> = mine.iter().map(|(id, _)| *id).collect();
            for id in self.claims.ids().into_iter().filter(|id| !kept.contains(id)) {
                self.claims.close(id);
                again = true;
            }
        } else {
            self.reload(table, mine, now)?;
            again = true;
        }
        self.counters = counters;
        self.elsewhere.update(table.claims_but_of(self.owner)?, now.moment);
        self.window.set_elsewhere(self.elsewhere.groups(), now.wall);
        if again {
            self.window.clear();
            self.cursor = 0;
            for pick in self.claims.all() {
                self.window.hold(pick.group);
            }
        }
        self.data_version = Some(version);
        Ok(())
    }

    /// Our claims as the file has them.
    fn reload(&mut self, table: Table<'_>, rows: Vec<(ClaimId, Vec<Pick>)>, now: Now) -> Result<()> {
        let mut mine = Vec::with_capacity(rows.len());
        for (id, listed) in rows {
            let mut out = Vec::with_capacity(listed.len());
            for pick in listed {
                if table.exists(pick.seq)? {
                    out.push(pick);
                }
            }
            mine.push((id, out));
        }
        self.claims.reload(mine, now.moment);
        Ok(())
    }

    /// Ends claims: ours and others' whose lease ran out, and `dead` ones. What they had waits again.
    pub(super) fn end_claims(&mut self, table: Table<'_>, dead: &[ClaimId], now: Now) -> Result<()> {
        for id in self.claims.due(now.moment) {
            self.end_own(table, id, now)?;
        }
        let due: BTreeSet<ClaimId> =
            self.elsewhere.due(now.moment).into_iter().chain(dead.iter().copied()).collect();
        let any = !due.is_empty();
        for id in due {
            let Some(beat) = self.elsewhere.beat(id) else { continue };
            if table.delete_claim(id, Some(beat))? {
                for pick in self.elsewhere.close(id) {
                    table.show_again(pick.seq, 0, true)?;
                }
            }
        }
        if any {
            self.window.set_elsewhere(self.elsewhere.groups(), now.wall);
        }
        Ok(())
    }

    /// A consumer is gone: what it had waits again.
    pub(super) fn leave(&mut self, table: Table<'_>, consumer: Consumer, now: Now) -> Result<()> {
        for id in self.claims.of(consumer) {
            self.end_own(table, id, now)?;
        }
        Ok(())
    }

    fn end_own(&mut self, table: Table<'_>, id: ClaimId, now: Now) -> Result<()> {
        table.delete_claim(id, None)?;
        for pick in self.claims.close(id) {
            if table.show_again(pick.seq, 0, true)? {
                self.window.give_back(pick, 0, now.wall);
            } else {
                self.window.done(pick.group, now.wall);
            }
        }
        Ok(())
    }

    /// Takes in what a consumer says of its messages. True per message: so it is.
    pub(super) fn settle(
        &mut self,
        table: Table<'_>,
        consumer: Consumer,
        tells: &[(u64, Told)],
        sweep: &mut Sweep,
        now: Now,
    ) -> Result<Vec<bool>> {
        let mut answers = Vec::with_capacity(tells.len());
        let mut beats: BTreeSet<ClaimId> = BTreeSet::new();
        for &(seq, told) in tells {
            answers.push(match told {
                Told::Ack => self.ack(table, consumer, seq, sweep, now)?,
                Told::Nack { delay_s, tried } => {
                    self.nack(table, consumer, seq, (delay_s, tried), sweep, now)?
                }
                Told::Extend => match self.claims.find(seq, consumer) {
                    Some(id) => !beats.insert(id) || table.beat(id, self.owner)?,
                    None => false,
                },
            });
        }
        for id in beats {
            self.claims.extend(id, now.moment);
        }
        Ok(answers)
    }

    fn ack(
        &mut self,
        table: Table<'_>,
        consumer: Consumer,
        seq: u64,
        sweep: &mut Sweep,
        now: Now,
    ) -> Result<bool> {
        let Some((id, group)) = self.claims.take(seq, consumer, false) else {
            // Gone already: a repeated ack. Still there: it was given to someone else meanwhile.
            return Ok(sweep.deletes.contains(&seq) || !table.exists(seq)?);
        };
        sweep.touched.insert(id);
        sweep.deletes.push(seq);
        self.window.done(group, now.wall);
        Ok(true)
    }

    fn nack(
        &mut self,
        table: Table<'_>,
        consumer: Consumer,
        seq: u64,
        (delay_s, tried): (u32, bool),
        sweep: &mut Sweep,
        now: Now,
    ) -> Result<bool> {
        let Some((id, group)) = self.claims.take(seq, consumer, true) else { return Ok(false) };
        sweep.touched.insert(id);
        let visible_at = if delay_s == 0 { 0 } else { now.wall + u64::from(delay_s) * 1_000 };
        if delay_s > 0 || tried {
            table.show_again(seq, visible_at, tried)?;
        }
        self.window.give_back(Pick { seq, group }, visible_at, now.wall);
        Ok(true)
    }

    /// Does to rows and claims what the settled messages ask for: a statement per run of numbers.
    pub(super) fn sweep(&mut self, table: Table<'_>, mut sweep: Sweep, now: Now) -> Result<()> {
        sweep.deletes.sort_unstable();
        for (from, to) in runs(&sweep.deletes) {
            self.counters.messages = self.counters.messages.saturating_sub(table.delete(from, to)? as u64);
        }
        let others = self.others_at.is_some_and(|at| now.moment.since(at) < OTHERS_LOOK);
        for id in sweep.touched {
            match self.claims.change(id, others || !self.elsewhere.is_empty()) {
                Some(Change::Delete) => drop(table.delete_claim(id, None)?),
                Some(Change::Write(out)) => table.write_claim(id, &out)?,
                None => {}
            }
        }
        Ok(())
    }

    /// Publishes messages; a repeated dedup id is dropped and gets the first one's number.
    pub(super) fn publish(
        &mut self,
        table: Table<'_>,
        messages: &[NewMessage],
        now: Now,
    ) -> Result<Vec<u64>> {
        let mut seqs = Vec::with_capacity(messages.len());
        for message in messages {
            let dedup = message.dedup.as_deref();
            if let Some(id) = dedup
                && let Some(first) = table.duplicate_of(id, now.wall)?
            {
                seqs.push(first);
                continue;
            }
            let delay = u64::try_from(message.delay.as_millis()).unwrap_or(u64::MAX);
            let visible_at = if delay == 0 { 0 } else { now.wall.saturating_add(delay) };
            let group = message.group.as_deref().unwrap_or_default();
            let seq = self.append(table, group, visible_at, &message.body, now)?;
            if let Some(id) = dedup {
                table.remember(id, seq, now.wall + DEDUP_MS)?;
            }
            seqs.push(seq);
        }
        Ok(seqs)
    }

    pub(super) fn append(
        &mut self,
        table: Table<'_>,
        group: &str,
        visible_at: u64,
        body: &[u8],
        now: Now,
    ) -> Result<u64> {
        let seq = self.counters.next_seq;
        self.counters.next_seq += 1;
        self.counters.messages += 1;
        table.insert((seq, 0), group, visible_at, now.wall, body)?;
        if self.cursor + 1 == seq && self.window.len() < WINDOW_MAX {
            self.cursor = seq;
            self.window.add(Pick { seq, group: GroupKey::of(group) }, visible_at, now.wall);
        }
        Ok(seq)
    }

    /// Writes the counters if they are not as before.
    pub(super) fn write_counters(&self, table: Table<'_>, before: Counters) -> Result<()> {
        if self.counters == before { Ok(()) } else { table.set_counters(self.counters) }
    }

    pub(super) const fn counters(&self) -> Counters {
        self.counters
    }
}

/// Forgets what is past its time.
pub(super) fn forget(table: Table<'_>, now: Now) -> Result<()> {
    table.forget(now.wall, now.wall.saturating_sub(PUT_BACK_MS))
}
