//! The process under test: a real desk and real shards, joined by bounded rings and driven in the order
//! of the real loops (`src/ingress/drive.rs`, `shards/src/drive.rs`).

use std::collections::VecDeque;
use std::time::Duration;

use super::faults::Fault;
use super::plan::{NONE, Plan};
use super::world::{Event, World};
use crate::clock::Moment;
use crate::desk::{Arrival, Desk, DeskEffects, Receipt, Tell};
use crate::model::{
    CallId, Control, FromShard, Notice, Outcome, Parcel, Parts, ShardId, SourceId, Ticket, ToShard,
};
use crate::shard::{Effects, Shard};

/// Longest sleep of a loop.
pub(super) const SLEEP_MAX: Duration = Duration::from_secs(1);
/// How soon a loop looks again while a ring is full.
pub(super) const FULL_RING_LOOK: Duration = Duration::from_micros(200);

/// A source's answer to a [`Tell`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Closed { ticket: Ticket, done: bool },
    Extended { ticket: Ticket, done: bool, sent: Moment },
    NotSetAside { ticket: Ticket },
}

/// Between the desk and one source.
#[derive(Debug, Default)]
pub(super) struct Port {
    pub(super) receiving: bool,
    /// Parts of the last tells that are not answered yet.
    pub(super) settling: usize,
    pub(super) inbox: Vec<Vec<Arrival>>,
    pub(super) outbox: Vec<(Receipt, Tell)>,
    pub(super) answers: Vec<Answer>,
    /// The connection epoch that the desk knows.
    pub(super) epoch: u32,
}

impl Port {
    const fn is_quiet(&self) -> bool {
        let waiting = self.inbox.is_empty() && self.outbox.is_empty() && self.answers.is_empty();
        waiting && !self.receiving && self.settling == 0
    }
}

/// A call under way.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) messages: Vec<u32>,
    pub(super) ordered: bool,
}

/// One shard and its rings.
pub(super) struct Node {
    pub(super) shard: Shard,
    pub(super) events: VecDeque<ToShard>,
    pub(super) spill: VecDeque<ToShard>,
    pub(super) reports: VecDeque<FromShard>,
    pub(super) backlog: VecDeque<FromShard>,
    pub(super) effects: Effects,
    pub(super) calls: Vec<Option<Call>>,
    pub(super) done: Vec<(CallId, Outcome)>,
    pub(super) at: Moment,
}

pub(super) struct Process {
    pub(super) desk: Desk,
    pub(super) nodes: Vec<Node>,
    pub(super) ports: Vec<Port>,
    pub(super) out: DeskEffects,
    at: Moment,
    born: Moment,
    /// Set while it drains: calls may go on until then.
    pub(super) ends: Option<Moment>,
    gave_back: bool,
    /// A nack was lost while it ended: what it gave back may still be hidden.
    pub(super) untold: bool,
    /// Bytes held when that was last looked at.
    bytes_before: usize,
}

impl Process {
    pub(super) fn new(plan: &Plan, now: Moment) -> Self {
        let node = |id| Node {
            shard: Shard::new(ShardId(id), plan.shard, now),
            events: VecDeque::new(),
            spill: VecDeque::new(),
            reports: VecDeque::new(),
            backlog: VecDeque::new(),
            effects: Effects::default(),
            calls: Vec::new(),
            done: Vec::new(),
            at: Moment::NEVER,
        };
        Self {
            desk: Desk::new(plan.desk, plan.shards),
            nodes: (0..plan.shards).map(node).collect(),
            ports: plan.sources.iter().map(|_| Port::default()).collect(),
            out: DeskEffects::default(),
            at: Moment::NEVER,
            born: now,
            ends: None,
            gave_back: false,
            untold: false,
            bytes_before: 0,
        }
    }

    fn is_quiet(&self) -> bool {
        self.ports.iter().all(Port::is_quiet)
    }

    /// Drained: nothing is held, or all went back, and every source knows; or time is up for that too.
    fn is_ended(&self, now: Moment) -> bool {
        let Some(until) = self.ends else { return false };
        ((self.desk.held() == 0 || self.gave_back) && self.is_quiet())
            || now >= until + Duration::from_secs(5)
    }

    /// Nothing that it gave back is hidden.
    fn is_clean(&self, now: Moment) -> bool {
        self.is_quiet() && !self.untold && self.desk.is_clean(now)
    }
}

/// The number that a simulated message carries in its body.
pub(super) fn number_of(parcel: &Parcel) -> u32 {
    parcel.body().first_chunk().map_or(NONE, |bytes| u32::from_le_bytes(*bytes))
}

/// The bytes of a message.
pub(super) fn parcel_of(plan: &Plan, message: u32) -> Parcel {
    let draft = &plan.drafts[message as usize];
    let mut body = message.to_le_bytes().to_vec();
    body.resize(usize::from(draft.body_bytes), 0);
    let id = draft.app.to_string();
    let group = if draft.group == NONE { String::new() } else { draft.group.to_string() };
    let parts = Parts {
        id: &id,
        group: &group,
        pool: &plan.pools[usize::from(draft.pool)].code,
        target: TARGETS[usize::from(draft.target)],
        body: &body,
        ..Parts::default()
    };
    Parcel::new(&parts).expect("simulated messages are well-formed")
}

const TARGETS: [&str; 4] = ["http://t0/x", "http://t1/x", "http://t2/x", "http://t3/x"];

impl World {
    pub(super) fn hop(&mut self) -> Moment {
        let slow = self.faults.strikes(Fault::SlowHop, &mut self.rng);
        self.now + if slow { self.rng.micros(5_000, 50_000) } else { self.rng.micros(2, 60) }
    }

    pub(super) fn wake_desk(&mut self, process: &mut Process, at: Moment) {
        if at < process.at {
            process.at = at;
            self.schedule(at, Event::Desk { life: self.life });
        }
    }

    pub(super) fn wake_shard(&mut self, node: &mut Node, shard: usize, at: Moment) {
        if at < node.at {
            node.at = at;
            self.schedule(at, Event::Shard { life: self.life, shard });
        }
    }

    /// One turn of the ingress loop.
    pub(super) fn desk_turn(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        if process.at > self.now {
            self.process = Some(process);
            return;
        }
        process.at = Moment::NEVER;
        self.take_reports(&mut process);
        self.take_in(&mut process);
        let Process { desk, out, .. } = &mut process;
        if desk.next_deadline().is_some_and(|at| at <= self.now) {
            desk.on_time(self.now, out);
        }
        if !process.gave_back && process.ends.is_some_and(|until| self.now >= until) {
            process.gave_back = true;
            if process.desk.held() > 0 {
                self.faults.count(Fault::DrainTimeout);
            }
            process.desk.give_back_rest(&mut process.out);
        }
        self.flush(&mut process);
        if process.is_ended(self.now) {
            let clean = process.is_clean(self.now);
            self.end(clean);
            return;
        }
        self.ask_sources(&mut process);
        self.check_budget(&mut process);
        let spilled = process.nodes.iter().any(|node| !node.spill.is_empty());
        let pause = if spilled { FULL_RING_LOOK * 5 } else { SLEEP_MAX };
        let pause = if process.ends.is_some() { pause.min(Duration::from_millis(10)) } else { pause };
        let soon = self.now + Duration::from_micros(1);
        let deadline = process.desk.next_deadline().unwrap_or(Moment::NEVER).max(soon);
        self.wake_desk(&mut process, deadline.min(self.now + pause));
        self.process = Some(process);
    }

    fn take_reports(&mut self, process: &mut Process) {
        for node in &mut process.nodes {
            while let Some(report) = node.reports.pop_front() {
                match report {
                    FromShard::Settled(settlement) => {
                        let envelope = &settlement.envelope;
                        let message = number_of(&envelope.parcel);
                        self.note(u64::from(message) << 8 | 1);
                        process.desk.on_settled(settlement, self.now, &mut process.out);
                    }
                    FromShard::PoolDrained(pool) => {
                        process.desk.on_pool_drained(pool, self.now, &mut process.out);
                    }
                    FromShard::Noticed(notice) => {
                        // The watchdog finds nothing to mend.
                        let fine = !matches!(*notice, Notice::LanesStuck { .. } | Notice::NoOutcome { .. });
                        self.oracle.check(10, fine, || format!("{notice:?}"));
                    }
                    FromShard::Snapshot(_) | FromShard::Seen(_) => {}
                }
            }
        }
    }

    fn take_in(&mut self, process: &mut Process) {
        let Process { desk, ports, out, .. } = process;
        for (at, port) in ports.iter_mut().enumerate() {
            let source = source_id(at);
            for answer in port.answers.drain(..) {
                match answer {
                    Answer::Closed { ticket, done } => desk.on_closed(ticket, done, self.now, out),
                    Answer::Extended { ticket, done, sent } => desk.on_extended(ticket, done, sent, out),
                    Answer::NotSetAside { ticket } => desk.on_dead_letter_failed(ticket, 30, self.now, out),
                }
            }
            for batch in port.inbox.drain(..) {
                desk.on_batch(source, batch, self.now, out);
            }
        }
    }

    /// Pushes envelopes to shards and tells to ports; what finds a ring full spills.
    fn flush(&mut self, process: &mut Process) {
        self.oracle.on_desk_turn(|ticket| process.desk.tracker().slot(ticket).is_some());
        let slots = self.plan.ring_slots.0;
        let mut runs = std::mem::take(&mut process.out.runs);
        for (_, run) in &runs {
            match run {
                ToShard::Run(envelope) => {
                    let message = number_of(&envelope.parcel);
                    self.oracle.on_run(message, envelope.lane, envelope.attempts, envelope.attempts_max);
                }
                ToShard::Control(control) => {
                    self.oracle.on_control(control);
                    // A pool that was added while its namesake drained starts only now.
                    if let Control::PoolAdd { pool, .. } = &**control
                        && self.now > process.born
                    {
                        let code = process.desk.pools().find(|(id, _)| id == pool).map(|(_, it)| &*it.code);
                        let is = |plan: &super::plan::PoolPlan| Some(plan.code.as_bytes()) == code;
                        if let Some(at) = self.plan.pools.iter().position(is) {
                            self.oracle.on_moved(&self.plan, u16::try_from(at).unwrap_or(0));
                        }
                    }
                }
                ToShard::Kept { .. } => {}
            }
        }
        for (shard, run) in runs.drain(..) {
            process.nodes[usize::from(shard.0)].spill.push_back(run);
        }
        process.out.runs = runs;
        for (at, node) in process.nodes.iter_mut().enumerate() {
            let before = node.events.len();
            while node.events.len() < slots
                && let Some(run) = node.spill.pop_front()
            {
                node.events.push_back(run);
            }
            if !node.spill.is_empty() {
                self.faults.count(Fault::RingFull);
            }
            if node.events.len() > before {
                let at_moment = self.hop();
                self.wake_shard(node, at, at_moment);
            }
        }
        let ending = process.gave_back;
        for (source, receipt, tell) in process.out.tells.drain(..) {
            let port = &mut process.ports[usize::from(source.0)];
            self.oracle.on_tell(&self.plan, source, receipt, &tell, port.epoch, ending);
            self.note(receipt.key << 8 | 2);
            port.outbox.push((receipt, tell));
        }
        process.out.warnings.clear();
    }

    /// What came in because of a message near its broker's limit may still be here when that one is gone: so only what
    /// grows is held against the budget.
    fn check_budget(&mut self, process: &mut Process) {
        let (bytes, budget) = (process.desk.bytes(), self.plan.desk.memory_budget);
        let grew = bytes > std::mem::replace(&mut process.bytes_before, bytes);
        let near = if grew && bytes > budget { self.bytes_near_limit(process) } else { 0 };
        self.oracle.check(7, !grew || bytes <= budget + near + BYTES_MAX, || {
            format!("{bytes} bytes are held, budget {budget}, {near} of them near their broker's limit")
        });
    }

    /// Bytes of held messages that must not go back, and of what must be here with them: their groups.
    fn bytes_near_limit(&self, process: &Process) -> usize {
        let tracker = process.desk.tracker();
        let held: Vec<_> = tracker.in_order().into_iter().map(|slot| tracker.at(slot)).collect();
        let near = held.iter().filter(|entry| {
            let max = self.plan.sources[usize::from(entry.source.0)].spec.deliveries_max;
            max.is_some_and(|max| entry.deliveries + 2 >= max)
        });
        let lanes: hashbrown::HashSet<_> = near.map(|entry| entry.lane).collect();
        held.iter().filter(|entry| lanes.contains(&entry.lane)).map(|entry| entry.bytes as usize).sum()
    }

    fn ask_sources(&mut self, process: &mut Process) {
        let full = process.nodes.iter().any(|node| !node.spill.is_empty());
        for (at, port) in process.ports.iter_mut().enumerate() {
            self.send_tells(at, port);
            if full || port.receiving || !port.inbox.is_empty() {
                continue;
            }
            let max = process.desk.room(source_id(at), self.now);
            if max > 0 {
                port.receiving = true;
                self.send_receive(at, max);
            }
        }
    }
}

/// The largest simulated message, as the budget counts it.
const BYTES_MAX: usize = 4_200;

pub(super) fn source_id(at: usize) -> SourceId {
    SourceId(u16::try_from(at).unwrap_or(u16::MAX))
}

pub(super) fn put_back(process: &mut Process, node: Node, shard: usize) {
    process.nodes.push(node);
    let last = process.nodes.len() - 1;
    process.nodes.swap(shard, last);
}
