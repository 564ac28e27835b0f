//! The simulated world: events in virtual time, one at a time, in an order that the seed decides.
//!
//! - V1: nothing but the seed decides what happens: no clock, no thread, no map order.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

use super::broker::{Broker, Handed};
use super::faults::{Fault, Faults};
use super::oracle::Oracle;
use super::plan::{Kind, Plan};
use super::process::{Answer, Process};
use super::rng::{Rng, mix};
use super::target::Targets;
use super::{Options, Report};
use crate::clock::Moment;
use crate::desk::{LEASE_ASSUMED, Receipt, Tell};
use crate::model::{CallId, Outcome, SourceId};

/// More events than any run needs: one that gets there turns in circles.
const EVENTS_MAX: u64 = 2_000_000;
/// After the last message is finished, the process has this long to forget it.
const SETTLE_TIME: Duration = Duration::from_secs(90);

pub(super) enum Event {
    Publish {
        from: usize,
    },
    Desk {
        life: u32,
    },
    Shard {
        life: u32,
        shard: usize,
    },
    Done {
        life: u32,
        shard: usize,
        call: CallId,
        outcome: Outcome,
    },
    /// A receive is at the broker.
    Receive {
        life: u32,
        source: usize,
        max: usize,
        until: Moment,
    },
    /// What it led to is at the process.
    Batch {
        life: u32,
        source: usize,
        epoch: u32,
        batch: Vec<Handed>,
    },
    /// Tells are at the broker.
    Tells {
        life: u32,
        source: usize,
        sent: Moment,
        tells: Vec<(Receipt, Tell)>,
    },
    /// Answers are at the process.
    Answers {
        life: u32,
        source: usize,
        answers: Vec<Answer>,
    },
    /// The process learns that the connection is a new one.
    Epoch {
        life: u32,
        source: usize,
    },
    /// The process learns that an answer was lost; what was in it was handed over until then.
    Unheard {
        life: u32,
        source: usize,
        until: Moment,
    },
    Crash,
    Stop,
    Start {
        unclean: bool,
    },
    LoseConnection {
        source: usize,
    },
    Reconfigure,
    KillTarget,
    Calm,
    Look,
}

struct Scheduled {
    at: Moment,
    seq: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.seq == other.seq
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.seq).cmp(&(other.at, other.seq))
    }
}

pub(super) struct World {
    pub(super) now: Moment,
    pub(super) rng: Rng,
    pub(super) plan: Plan,
    pub(super) options: Options,
    pub(super) faults: Faults,
    pub(super) targets: Targets,
    pub(super) brokers: Vec<Broker>,
    pub(super) oracle: Oracle,
    pub(super) process: Option<Process>,
    /// Counts processes: what belongs to an older one is void.
    pub(super) life: u32,
    /// Pools that are configured now.
    pub(super) configured: Vec<bool>,
    events: BinaryHeap<Reverse<Scheduled>>,
    seq: u64,
    count: u64,
    trace: u64,
    deadline: Moment,
    ended: bool,
}

impl World {
    pub(super) fn new(seed: u64, options: Options) -> Self {
        let mut rng = Rng::new(seed);
        let mut plan = Plan::draw(&mut rng);
        let faults = Faults::draw(&mut rng);
        let groups = plan.groups as usize * plan.sources.len();
        let brokers =
            plan.sources.iter().map(|source| Broker::new(source, plan.drafts.len(), groups)).collect();
        if options.lie_about_locks {
            plan.pretend_locks();
        }
        let oracle = Oracle::new(&plan, options.follow.clone());
        let leases = plan.sources.iter().filter_map(|source| source.spec.lease);
        let lease_max = leases.max().unwrap_or(LEASE_ASSUMED);
        let targets = Targets::new(plan.targets, plan.call_us, lease_max);
        let configured = plan.pools.iter().map(|pool| !pool.absent).collect();
        let mut world = Self {
            now: Moment::ZERO,
            rng,
            plan,
            options,
            faults,
            targets,
            brokers,
            oracle,
            process: None,
            life: 0,
            configured,
            events: BinaryHeap::new(),
            seq: 0,
            count: 0,
            trace: mix(seed),
            deadline: Moment::NEVER,
            ended: false,
        };
        world.schedule_faults();
        world
    }

    fn schedule_faults(&mut self) {
        self.schedule(Moment::ZERO, Event::Start { unclean: false });
        self.schedule(Moment::ZERO, Event::Publish { from: 0 });
        self.schedule(self.plan.calm_from, Event::Calm);
        let twins = (0..).zip(&self.plan.drafts).filter(|&(at, draft)| draft.app != at).count();
        for _ in 0..twins {
            self.faults.count(Fault::Twin);
        }
        for _ in 0..self.rng.pick(&[0, 2, 4, 6]) {
            let at = self.before_calm();
            let event = if self.rng.chance(400_000) { Event::Crash } else { Event::Stop };
            self.schedule(at, event);
        }
        for _ in 0..self.rng.pick(&[0, 1, 4, 8]) {
            let at = self.before_calm();
            self.schedule(at, Event::Reconfigure);
        }
        for _ in 0..self.rng.pick(&[0, 1, 3]) {
            let at = self.before_calm();
            self.schedule(at, Event::KillTarget);
        }
        for source in 0..self.plan.sources.len() {
            if self.plan.sources[source].kind == Kind::Connected {
                for _ in 0..self.rng.pick(&[0, 4, 12]) {
                    let at = self.before_calm();
                    self.schedule(at, Event::LoseConnection { source });
                }
            }
        }
    }

    fn before_calm(&mut self) -> Moment {
        Moment::from_nanos(self.rng.below(self.plan.calm_from.nanos()))
    }

    pub(super) fn schedule(&mut self, at: Moment, event: Event) {
        self.seq += 1;
        self.events.push(Reverse(Scheduled { at, seq: self.seq, event }));
    }

    /// Adds to the trace, by which two runs are compared.
    pub(super) const fn note(&mut self, what: u64) {
        self.trace = mix(self.trace ^ what);
    }

    /// Runs until everything is finished, or something that must never happen does.
    pub(super) fn run(mut self) -> Report {
        while !self.ended && self.oracle.violation.is_none() {
            let Some(Reverse(Scheduled { at, event, .. })) = self.events.pop() else { break };
            self.now = at;
            self.oracle.set_now(at);
            self.count += 1;
            self.note(at.nanos());
            self.on_event(event);
            let goes_on = (self.now <= self.deadline || self.oracle.open == 0) && self.count < EVENTS_MAX;
            let what = if goes_on { String::new() } else { self.stuck() };
            self.oracle.check(10, goes_on, || what);
        }
        Report {
            messages: self.plan.drafts.len() as u64,
            events: self.count,
            trace: self.trace,
            faults: self.faults.counts,
            checks: self.oracle.checks,
            violation: self.oracle.violation,
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Desk { life } if life == self.life => self.desk_turn(),
            Event::Shard { life, shard } if life == self.life => self.shard_turn(shard),
            Event::Done { life, shard, call, outcome } if life == self.life => {
                self.on_done(shard, call, outcome);
            }
            Event::Receive { life, source, max, until } => self.on_receive(life, source, max, until),
            Event::Batch { life, source, epoch, batch } if life == self.life => {
                self.on_batch(source, epoch, &batch);
            }
            Event::Tells { life, source, sent, tells } => self.on_tells(life, source, sent, tells),
            Event::Answers { life, source, answers } if life == self.life => {
                self.on_answers(source, answers);
            }
            Event::Epoch { life, source } if life == self.life => self.on_epoch(source),
            Event::Unheard { life, source, until } if life == self.life => self.on_unheard(source, until),
            Event::Publish { from } => self.publish(from),
            Event::Crash => self.crash(),
            Event::Stop => self.stop(),
            Event::Start { unclean } => self.start(unclean),
            Event::LoseConnection { source } => self.lose_connection(source),
            Event::Reconfigure => self.reconfigure(),
            Event::KillTarget => self.kill_target(),
            Event::Calm => self.become_calm(),
            Event::Look => self.look(),
            _ => {} // It belonged to a process that is no more.
        }
    }

    fn publish(&mut self, from: usize) {
        let mut next = from;
        while let Some(draft) = self.plan.drafts.get(next) {
            if draft.at > self.now {
                self.schedule(draft.at, Event::Publish { from: next });
                return;
            }
            let message = u32::try_from(next).unwrap_or(u32::MAX);
            self.brokers[usize::from(draft.source)].publish(message, draft.group);
            next += 1;
        }
    }

    fn kill_target(&mut self) {
        let target = usize::try_from(self.rng.below(u64::from(self.plan.targets))).unwrap_or(0);
        let until = self.now + Duration::from_secs(self.rng.range(2, 40));
        if !self.faults.is_calm() {
            self.targets.kill(target, until);
        }
    }

    fn become_calm(&mut self) {
        self.faults.calm();
        self.targets.heal();
        self.deadline = self.now + self.oracle.patience(&self.plan, self.targets.call_max()) + SETTLE_TIME;
        self.schedule(self.now + SETTLE_TIME, Event::Look);
    }

    /// Everything is finished: is anything still held?
    fn look(&mut self) {
        if self.oracle.open > 0 {
            self.schedule(self.now + SETTLE_TIME, Event::Look);
            return;
        }
        self.ended = true;
        let Some(process) = self.process.as_ref() else { return };
        let (held, bytes) = (process.desk.held(), process.desk.bytes());
        let idle = process.nodes.iter().all(|node| node.shard.is_idle());
        let pools =
            process.desk.pools().all(|(_, pool)| pool.held == 0 && pool.shared.permits.usage().0 == 0);
        self.oracle.check(9, held == 0 && bytes == 0 && idle && pools, || {
            let first = process.desk.tracker().in_order().first().map(|&slot| process.desk.tracker().at(slot).clone());
            format!("at idle {held} messages and {bytes} bytes are held; shards idle {idle}, pools {pools}: {first:?}")
        });
        let lost = self.oracle.fates.iter().position(|fate| !fate.acked && !fate.dropped);
        self.oracle.check(1, lost.is_none(), || format!("message {lost:?} is lost"));
    }

    /// What keeps sources from being asked and shards from starting calls.
    fn rooms(&self) -> String {
        let Some(process) = self.process.as_ref() else { return "no process".to_owned() };
        let rooms: Vec<_> = (0..process.ports.len())
            .map(|at| {
                (process.desk.room(super::process::source_id(at), self.now), process.ports[at].receiving)
            })
            .collect();
        let slots = process.desk.tracker().in_order();
        let parked =
            slots.iter().filter(|&&slot| process.desk.tracker().at(slot).stage == crate::desk::Stage::Parked);
        let shards: Vec<_> = process.nodes.iter().map(|node| node.shard.snapshot()).collect();
        let shards: Vec<_> =
            shards.iter().map(|it| (it.queued, it.running, it.lanes, it.targets.len())).collect();
        let bytes = (process.desk.bytes(), self.plan.desk.memory_budget);
        format!("rooms {rooms:?}, parked {}, bytes {bytes:?}, shards {shards:?}", parked.count())
    }

    /// Where the first unfinished messages of a group are held.
    fn stages_of(&self, group: u32) -> Vec<(usize, crate::desk::Stage, u64)> {
        let Some(process) = self.process.as_ref() else { return Vec::new() };
        let (hasher, tracker) = (process.desk.hasher(), process.desk.tracker());
        let drafts = self.plan.drafts.iter().enumerate().filter(|(_, draft)| draft.group == group);
        let slots = drafts.filter_map(|(message, draft)| {
            let number = u32::try_from(message).unwrap_or(0);
            let slot =
                tracker.by_broker_id(hasher.broker_id(SourceId(draft.source), &number.to_le_bytes()))?;
            Some((message, tracker.at(slot).stage, tracker.at(slot).seq))
        });
        slots.take(5).collect()
    }

    fn stuck(&self) -> String {
        let open = self.oracle.fates.iter().position(|fate| !fate.acked && !fate.dropped);
        let Some(message) = open else { return "the run does not end".to_owned() };
        let draft = &self.plan.drafts[message];
        let place = self.brokers[usize::from(draft.source)].place(u32::try_from(message).unwrap_or(0));
        let held = self.process.as_ref().map(|process| (process.desk.held(), process.desk.owed()));
        let held = format!("{held:?}, of its group {:?}; {}", self.stages_of(draft.group), self.rooms());
        let (open, count) = (self.oracle.open, self.count);
        format!(
            "{open} messages are not finished after {count} events: message {message} is {place:?} ({draft:?}); held and owed: {held}"
        )
    }
}
