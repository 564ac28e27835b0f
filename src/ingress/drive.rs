//! The ingress loop: joins sources, desk and links. Core: the ingress. One bell per shard and turn.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use shards::clock::{Clock, Moment};
use shards::desk::{Desk, DeskEffects, PoolDesk, Warning};
use shards::engine::{RING_SLOTS, ShardLink};
use shards::link::Bell;
use shards::meter::ShardSnapshot;
use shards::model::{Control, FromShard, Notice, Ordering, PoolId, Seen, ShardId, SourceId, ToShard};
use tokio::sync::Notify;

use super::aside::SetAside;
use super::ask::{Asked, Found, Names, Question};
use super::command::{Command, Ended, IngressSnapshot, PoolLook, SourceCounts};
use super::doorbell::Doorbell;
use super::port::Port;
use super::source::{Answer, Scope, Source};

/// Reports taken from one shard in a turn.
const TURN_REPORTS_MAX: usize = 2_048;
/// How soon to look again while a ring is full.
const FULL_RING_LOOK: Duration = Duration::from_millis(1);
/// Turns of the runtime between two looks at its sockets while spinning.
const SPIN_EVENT_INTERVAL: u32 = 4;
/// Longest sleep: bounds the harm of any wake that was missed.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// How long sources may take to hear of the last messages.
const TELL_WAIT_MAX: Duration = Duration::from_secs(5);
/// Warnings and notices kept for the control thread.
const NEWS_MAX: usize = 1_024;

struct Pending {
    reply: flume::Sender<IngressSnapshot>,
    shards: Vec<ShardSnapshot>,
}

/// The ingress thread's state, over sources `S` and a dead-letter store `A`.
pub struct Ingress<S, A> {
    desk: Desk,
    links: Vec<ShardLink>,
    /// What found a ring full, per shard. While there is any, nothing is received.
    spill: Vec<VecDeque<ToShard>>,
    bell: Arc<Bell>,
    commands: flume::Receiver<Command<S>>,
    aside: Rc<A>,
    out: DeskEffects,
    /// By source id; `None` = retired and gone.
    ports: Vec<Option<Rc<Port>>>,
    /// What sources that are gone have counted, by queue.
    gone: BTreeMap<String, SourceCounts>,
    /// Until when a broker may have handed over what never came, by the place of its queue.
    unheard: BTreeMap<String, Moment>,
    changed: Rc<Notify>,
    pending: Vec<Pending>,
    /// Questions under way, oldest first.
    asked: Vec<Asked>,
    /// It is time to look for retired sources that can go.
    may_let_go: bool,
    warnings: VecDeque<Warning>,
    notices: VecDeque<Notice>,
    /// Calls may go on until then; set while draining.
    drain_until: Option<Moment>,
    /// What was still running at that time went back too.
    gave_back: bool,
    /// How long to look for work before sleeping.
    spin: Duration,
    last_work: Moment,
}

impl<S: Source + 'static, A: SetAside + 'static> Ingress<S, A> {
    /// An ingress over these links.
    #[must_use]
    pub fn new(
        desk: Desk,
        links: Vec<ShardLink>,
        bell: Arc<Bell>,
        commands: flume::Receiver<Command<S>>,
        aside: A,
    ) -> Self {
        let spill = links.iter().map(|_| VecDeque::new()).collect();
        Self {
            desk,
            links,
            spill,
            bell,
            commands,
            aside: Rc::new(aside),
            out: DeskEffects::default(),
            ports: Vec::new(),
            gone: BTreeMap::new(),
            unheard: BTreeMap::new(),
            changed: Rc::new(Notify::new()),
            pending: Vec::new(),
            asked: Vec::new(),
            may_let_go: false,
            warnings: VecDeque::new(),
            notices: VecDeque::new(),
            drain_until: None,
            gave_back: false,
            spin: Duration::ZERO,
            last_work: Moment::ZERO,
        }
    }

    /// Looks for work for so long before sleeping: lower latency for a core of its own.
    #[must_use]
    pub const fn with_spin(mut self, spin: Duration) -> Self {
        self.spin = spin;
        self
    }

    /// Runs until drained. Blocks the calling thread, which becomes the ingress thread.
    ///
    /// # Errors
    /// The runtime could not be built or the bell not watched.
    pub fn run(self) -> std::io::Result<Ended> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        if !self.spin.is_zero() {
            // A loop that never sleeps must still see what its sources' sockets say.
            builder.event_interval(SPIN_EVENT_INTERVAL);
        }
        let runtime = builder.enable_all().build()?;
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, self.drive())
    }

    async fn drive(mut self) -> std::io::Result<Ended> {
        let bell = Doorbell::new(Arc::clone(&self.bell))?;
        while !self.is_done() {
            let now = Clock.now();
            let more = self.turn(now);
            if more || now.since(self.last_work) < self.spin {
                // Let the sources' tasks run, then go on.
                tokio::task::yield_now().await;
            } else {
                self.sleep(&bell, now).await;
            }
        }
        for link in &mut self.links {
            let _ = link.tx.push(ToShard::Control(Box::new(Control::Stop)));
            link.tx.ring_if_dirty();
        }
        let left = if self.gave_back { self.desk.held() } else { 0 };
        // One that still receives may be handed over what nobody will hear of.
        let mut strict = self.ports.iter().flatten().filter(|port| port.ordering == Ordering::Strict);
        let told = strict.all(|port| port.is_quiet());
        Ok(Ended { clean: told && self.desk.held() == 0 && self.desk.is_clean(Clock.now()), left })
    }

    fn add_source(
        &mut self,
        [queue, place]: [String; 2],
        source: S,
        unclean: bool,
        now: Moment,
    ) -> std::io::Result<SourceId> {
        if self.ports.len() >= usize::from(u16::MAX) {
            return Err(std::io::Error::other(
                "too many consumers were made since the start: restart corelane",
            ));
        }
        let id = self.desk.add_source(source.spec(), unclean, now);
        if let Some(&until) = self.unheard.get(&place) {
            self.desk.on_unheard(id, until);
        }
        let mut known = self.ports.iter().flatten().filter(|port| port.queue == queue && port.place == place);
        let before = known.next_back().cloned();
        let scope =
            before.as_ref().map_or_else(|| Scope::new(self.desk.hasher(), id), |before| before.scope());
        let ordering = source.spec().ordering;
        let before = before.filter(|_| ordering == Ordering::Strict);
        let port = Rc::new(Port::new((id, queue, place), ordering, scope, Rc::clone(&self.changed), now));
        let source = Rc::new(source);
        tokio::task::spawn_local(Rc::clone(&port).pull(Rc::clone(&source), Rc::clone(&self.aside), before));
        tokio::task::spawn_local(Rc::clone(&port).push(Rc::clone(&source), Rc::clone(&self.aside)));
        tokio::task::spawn_local(Rc::clone(&port).measure(source));
        self.ports.push(Some(port));
        Ok(id)
    }

    /// One turn. True if there is more to do at once.
    fn turn(&mut self, now: Moment) -> bool {
        let mut more = self.take_reports(now);
        while let Ok(command) = self.commands.try_recv() {
            self.on_command(command, now);
        }
        for at in 0..self.ports.len() {
            let Some(port) = self.ports[at].clone() else { continue };
            for answer in port.take_answers() {
                self.on_answer(port.id, answer, now);
            }
            for batch in port.take_batches() {
                more |= !batch.is_empty();
                self.last_work = now;
                self.desk.on_batch(port.id, batch, now, &mut self.out);
            }
        }
        if self.desk.next_deadline().is_some_and(|at| at <= now) {
            self.desk.on_time(now, &mut self.out);
        }
        if !self.gave_back && self.drain_until.is_some_and(|until| now >= until) {
            self.gave_back = true;
            self.desk.give_back_rest(&mut self.out);
        }
        self.flush();
        // After the flush: a tell on its way to a retired source must find its port.
        if std::mem::take(&mut self.may_let_go) {
            self.let_go();
        }
        let full = self.spill.iter().any(|spill| !spill.is_empty());
        for port in self.ports.iter().flatten() {
            port.flush();
            port.set_room(if full { 0 } else { self.desk.room(port.id, now) }, now);
        }
        more
    }

    fn take_reports(&mut self, now: Moment) -> bool {
        let mut more = false;
        for at in 0..self.links.len() {
            for taken in 0..TURN_REPORTS_MAX {
                let Some(report) = self.links[at].rx.pop() else { break };
                self.last_work = now;
                more |= taken + 1 == TURN_REPORTS_MAX;
                match report {
                    FromShard::Settled(settlement) => self.desk.on_settled(settlement, now, &mut self.out),
                    FromShard::PoolDrained(pool) => self.desk.on_pool_drained(pool, now, &mut self.out),
                    FromShard::Snapshot(snapshot) => self.on_snapshot(*snapshot),
                    FromShard::Seen(seen) => self.on_seen(at, *seen, now),
                    FromShard::Noticed(notice) => keep(&mut self.notices, *notice),
                }
            }
        }
        more
    }

    fn on_answer(&mut self, source: SourceId, answer: Answer, now: Moment) {
        match answer {
            Answer::Connected(new) => self.desk.on_connected(source, new.epoch, new.spec),
            Answer::Closed { ticket, done } => self.desk.on_closed(ticket, done, now, &mut self.out),
            Answer::Extended { ticket, done, sent } => {
                self.desk.on_extended(ticket, done, sent, &mut self.out);
            }
            Answer::Unheard { until } => self.on_unheard(source, until),
            Answer::NotSetAside { ticket } => self.desk.on_dead_letter_failed(ticket, 30, now, &mut self.out),
        }
    }

    /// What never came to one consumer of a queue is hidden from all of them, those to come included.
    fn on_unheard(&mut self, source: SourceId, until: Moment) {
        let Some(Some(port)) = self.ports.get(usize::from(source.0)) else { return };
        let place = port.place.clone();
        for port in self.ports.iter().flatten().filter(|port| port.place == place) {
            self.desk.on_unheard(port.id, until);
        }
        let known = self.unheard.entry(place).or_insert(until);
        *known = until.max(*known);
    }

    fn on_command(&mut self, command: Command<S>, now: Moment) {
        match command {
            Command::SetPool { code, spec } => {
                self.desk.set_pool(code.as_bytes(), spec, now, &mut self.out);
            }
            Command::RemovePool { code } => self.desk.remove_pool(code.as_bytes(), now, &mut self.out),
            Command::AddSource { queue, place, make, unclean, reply } => {
                let opened = make().and_then(|mut source| source.open(unclean).map(|()| source));
                let added = opened.and_then(|source| self.add_source([queue, place], source, unclean, now));
                let _ = reply.send(added);
            }
            Command::RetireSource { source } => {
                self.desk.retire_source(source);
                if let Some(Some(port)) = self.ports.get(usize::from(source.0)) {
                    port.retire();
                }
            }
            Command::Snapshot(reply) => {
                self.may_let_go = true;
                for shard in 0..self.links.len() {
                    let shard = ShardId(u8::try_from(shard).unwrap_or(u8::MAX));
                    self.out.runs.push((shard, ToShard::Control(Box::new(Control::Snapshot))));
                }
                self.pending.push(Pending { reply, shards: Vec::new() });
            }
            Command::Ask(question, reply) => self.ask(&question, reply, now),
            Command::Drain { calls_wait } => {
                self.drain_until = Some(now + calls_wait);
                self.desk.drain(now, &mut self.out);
                self.ports.iter().flatten().for_each(|port| port.retire());
            }
        }
    }

    fn ask(&mut self, question: &Question, reply: flume::Sender<Found>, now: Moment) {
        let queue = queue_of(&self.ports);
        let (asked, asks) = Asked::new(question, reply, &self.desk, &Names { queue: &queue }, now);
        if asks.is_empty() {
            return asked.finish(&self.desk, &Names { queue: &queue }, now);
        }
        drop(queue);
        for (shard, wanted) in asks {
            self.out.runs.push((shard, ToShard::Control(Box::new(Control::Look(wanted)))));
        }
        self.asked.push(asked);
    }

    /// A shard's answer belongs to the oldest question that waits for it: links keep their order.
    fn on_seen(&mut self, shard: usize, seen: Vec<Seen>, now: Moment) {
        let shard = ShardId(u8::try_from(shard).unwrap_or(u8::MAX));
        let Some(at) = self.asked.iter().position(|asked| asked.waits_for.contains(&shard)) else { return };
        if self.asked[at].on_seen(shard, seen) {
            let asked = self.asked.remove(at);
            let queue = queue_of(&self.ports);
            asked.finish(&self.desk, &Names { queue: &queue }, now);
        }
    }

    /// A shard's look: complete when every shard has sent one for the oldest question.
    fn on_snapshot(&mut self, snapshot: ShardSnapshot) {
        let shard = snapshot.shard;
        let waiting = self.pending.iter_mut().find(|p| p.shards.iter().all(|seen| seen.shard != shard));
        let Some(pending) = waiting else { return };
        pending.shards.push(snapshot);
        if pending.shards.len() == self.links.len() {
            let Pending { reply, mut shards } = self.pending.remove(0);
            shards.sort_by_key(|snapshot| snapshot.shard);
            let now = Clock.now();
            let snapshot = IngressSnapshot {
                shards,
                pools: self.desk.pools().map(|(id, pool)| look_at(id, pool)).collect(),
                sources: self.ports.iter().flatten().map(|port| port.look(now)).collect(),
                gone: self.gone.clone(),
                held: self.desk.held(),
                twins: self.desk.tracker().twins(),
                bytes: self.desk.bytes(),
                owed: self.desk.owed(),
                default_used: self.desk.default_used(),
                lease_slack: self.desk.lease_slack(now),
                rings: self.links.iter().map(|link| RING_SLOTS.saturating_sub(link.tx.free())).collect(),
                warnings: self.warnings.drain(..).collect(),
                notices: self.notices.drain(..).collect(),
            };
            let _ = reply.send(snapshot);
        }
    }

    /// Pushes envelopes to shards and tells to ports. A full ring spills; the spill is bounded because
    /// nothing is received while there is one.
    fn flush(&mut self) {
        for (link, spill) in self.links.iter_mut().zip(&mut self.spill) {
            while let Some(run) = spill.pop_front() {
                if let Err(run) = link.tx.push(run) {
                    spill.push_front(run);
                    break;
                }
            }
        }
        for (shard, run) in self.out.runs.drain(..) {
            let at = usize::from(shard.0);
            if !self.spill[at].is_empty() {
                self.spill[at].push_back(run);
            } else if let Err(run) = self.links[at].tx.push(run) {
                self.spill[at].push_back(run);
            }
        }
        for link in &mut self.links {
            link.tx.ring_if_dirty();
        }
        for (source, receipt, tell) in self.out.tells.drain(..) {
            if let Some(port) = &self.ports[usize::from(source.0)] {
                port.tell(receipt, tell);
            }
        }
        for warning in self.out.warnings.drain(..) {
            keep(&mut self.warnings, warning);
        }
    }

    async fn sleep(&self, bell: &Doorbell, now: Moment) {
        let spilled = self.spill.iter().any(|spill| !spill.is_empty());
        let mut wait = self.desk.next_deadline().map_or(SLEEP_MAX, |at| at.since(now).min(SLEEP_MAX));
        if let Some(until) = self.drain_until {
            wait = wait.min(until.since(now)).min(FULL_RING_LOOK * 10);
        }
        if spilled {
            wait = wait.min(FULL_RING_LOOK);
        }
        let has_work = || self.links.iter().any(|link| !link.rx.is_empty()) || !self.commands.is_empty();
        if !self.bell.flag().try_sleep(has_work) {
            tokio::task::yield_now().await;
            return;
        }
        tokio::select! {
            biased;
            () = bell.rung() => {}
            () = self.changed.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
        self.bell.flag().wake();
    }

    /// Lets retired sources go that nothing is left to be told to.
    fn let_go(&mut self) {
        for slot in &mut self.ports {
            let done = slot.as_ref().is_some_and(|port| {
                port.is_retired() && port.is_quiet() && self.desk.tracker().held_by(port.id) == 0
            });
            if done && let Some(port) = slot.take() {
                self.gone.entry(port.queue.clone()).or_default().add(&port.counts());
                port.close();
            }
        }
    }

    /// Drained: nothing is held, or all went back, and every source knows; or time is up for that too.
    fn is_done(&self) -> bool {
        let Some(until) = self.drain_until else { return false };
        let quiet = self.ports.iter().flatten().all(|port| port.is_quiet());
        ((self.desk.held() == 0 || self.gave_back) && quiet) || Clock.now() >= until + TELL_WAIT_MAX
    }
}

fn queue_of(ports: &[Option<Rc<Port>>]) -> impl Fn(SourceId) -> String + '_ {
    |source| {
        let port = ports.get(usize::from(source.0)).and_then(Option::as_ref);
        port.map(|port| port.queue.clone()).unwrap_or_default()
    }
}

fn look_at(id: PoolId, pool: &PoolDesk) -> PoolLook {
    PoolLook {
        id,
        code: String::from_utf8_lossy(&pool.code).into_owned(),
        spec: pool.spec,
        held: pool.held,
        draining: pool.draining > 0,
        permits_used: pool.shared.permits.usage().0,
        nacked: pool.nacked,
    }
}

fn keep<T>(news: &mut VecDeque<T>, item: T) {
    if news.len() == NEWS_MAX {
        news.pop_front();
    }
    news.push_back(item);
}
