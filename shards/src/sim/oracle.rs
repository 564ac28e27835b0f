//! The oracle: knows what every message went through and what must never happen.
//!
//! - I1: a message is acked only after success (its own or, for a twin, its first's) or after it was
//!   parked; at the end of a healed run every message is delivered or parked.
//! - I2: per (source, pool, group) blocking messages first succeed in publish order. Rejected ones (refused
//!   or out of attempts: the group goes on, even if the dead-letter store then fails), those that did not
//!   come back within two leases after they were due (SPEC gives up on them) and twins whose id was
//!   delivered are skipped. When a pool code starts to lead to another pool (removed, added), what was handed over and not finished by then is *moved*: it is skipped too, because the
//!   promise is per pool. Everything handed over later is checked again.
//! - I3: at most one call in flight per (pool, group), where messages are ordered.
//! - I4: in one life of the process a message is called again only after a failed call, and never within
//!   two leases after a success; no nack is sent while its call is under way, unless the process ends.
//! - I5: no lease runs out while the message is held, unless an extension was made to fail.
//! - I6: no call starts above the pool's concurrency, no delivery starts above its rate. Of a source that says so, a
//!   delivery counts as a call until its ack is answered.
//! - I7: nothing is taken in beyond the byte budget, but for one message and for what is near its broker's limit.
//! - I8: attempts count only tried deliveries and hand-overs that the process could not know of; a nack
//!   without a try never comes within two of the broker's limit.
//! - I9: at idle nothing is held. I10: a healed run ends in bounded time.
//! - I11: no receipt of another epoch is used, and none is nacked after it was acked.

use std::time::Duration;

use hashbrown::{HashMap, HashSet};

use super::limits::{Unkept, Watched};
use super::plan::{NONE, Plan};
use crate::clock::Moment;
use crate::desk::{LEASE_ASSUMED, Receipt, Tell};
use crate::model::{LaneKey, Mediation, NackReason, Outcome, PoolId, SourceId, Ticket, Verdict};
use crate::shard::{Next, WINDOW, judge};

/// Numbers of invariants.
pub const INVARIANTS: usize = 11;

/// What must never happen, and did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant's number; 0 = a panic.
    pub invariant: usize,
    /// What happened.
    pub what: String,
    /// When, in virtual time.
    pub at: Moment,
}

/// What a message went through.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not a state")]
pub(super) struct Fate {
    pub(super) handed: bool,
    pub(super) succeeded: bool,
    pub(super) parked: bool,
    pub(super) acked: bool,
    /// Dropped by its broker after it was tried.
    pub(super) dropped: bool,
    /// It did not come back within two leases after it was due: its group goes on without it (SPEC).
    given_up: bool,
    give_up_at: Moment,
    running: bool,
    /// When it last succeeded in this life.
    success_at: Option<Moment>,
    /// Calls of the delivery under way.
    calls: u8,
    /// Deliveries tried in this life; hand-overs that this life can't know of.
    tries: u16,
    unknown: u16,
    /// Given back by a drain, because its lease could not be kept, or with the message it is a twin of.
    given_back: u16,
    /// As it was sent to its shard: its pool, its attempts, the tries since then.
    pub(super) pool: PoolId,
    attempts: u16,
    tries_since: u16,
    /// An extension was made to fail, or its newest receipt was lost: its lease may run out.
    pub(super) lease_excused: bool,
}

#[derive(Debug)]
pub(super) struct Oracle {
    pub(super) checks: [u64; INVARIANTS],
    pub(super) violation: Option<Violation>,
    pub(super) fates: Vec<Fate>,
    delivered: Vec<bool>,
    /// By sender's id: one of that id was refused for good, so its twins go back and need not be waited for.
    refused: Vec<bool>,
    /// By sender's id: one of that id was moved to another pool, and its twins follow it.
    moved: Vec<bool>,
    cursors: Vec<usize>,
    lanes: HashMap<(PoolId, u32), u32>,
    pub(super) pools: Vec<Option<Watched>>,
    pub(super) unkept: Vec<Unkept>,
    acked: HashSet<(SourceId, Receipt)>,
    /// Messages that have not found their end.
    pub(super) open: usize,
    /// Messages whose every step is printed.
    follow: Vec<u32>,
    pub(super) now: Moment,
}

/// The lowest rate that a plan gives a pool.
const RATE_MIN: u32 = 300;

impl Oracle {
    pub(super) fn new(plan: &Plan, follow: Vec<u32>) -> Self {
        let fate = Fate {
            handed: false,
            succeeded: false,
            parked: false,
            acked: false,
            dropped: false,
            given_up: false,
            give_up_at: Moment::NEVER,
            running: false,
            success_at: None,
            calls: 0,
            tries: 0,
            unknown: 0,
            given_back: 0,
            pool: PoolId(0),
            attempts: 0,
            tries_since: 0,
            lease_excused: false,
        };
        Self {
            checks: [0; INVARIANTS],
            violation: None,
            fates: vec![fate; plan.drafts.len()],
            delivered: vec![false; plan.drafts.len()],
            refused: vec![false; plan.drafts.len()],
            moved: vec![false; plan.drafts.len()],
            cursors: vec![0; plan.tracks.len()],
            lanes: HashMap::new(),
            pools: Vec::new(),
            unkept: Vec::new(),
            acked: HashSet::new(),
            open: plan.drafts.len(),
            follow,
            now: Moment::ZERO,
        }
    }

    pub(super) const fn set_now(&mut self, now: Moment) {
        self.now = now;
    }

    /// Prints a step of a message that is followed.
    pub(super) fn step(&self, message: u32, what: impl FnOnce() -> String) {
        if self.follow.contains(&message) {
            println!("{:>14} us  {message:>5}  {}", self.now.nanos() / 1_000, what());
        }
    }

    /// Prints what concerns every message.
    pub(super) fn follow_all(&self, what: impl FnOnce() -> String) {
        if let Some(&first) = self.follow.first() {
            self.step(first, what);
        }
    }

    /// Counts an evaluation; the first failure is kept.
    pub(super) fn check(&mut self, invariant: usize, holds: bool, what: impl FnOnce() -> String) {
        self.checks[invariant - 1] += 1;
        if !holds && self.violation.is_none() {
            self.violation = Some(Violation { invariant, what: what(), at: self.now });
        }
    }

    /// A new process: it knows nothing of what was before.
    pub(super) fn on_life(&mut self, counts: impl Fn(u32) -> u16) {
        for (message, fate) in (0..).zip(&mut self.fates) {
            fate.running = false;
            fate.success_at = None;
            fate.calls = 0;
            fate.tries = 0;
            fate.unknown = counts(message);
            fate.lease_excused = false;
            fate.given_up = false;
            fate.give_up_at = Moment::NEVER;
        }
        self.lanes.clear();
        self.pools.clear();
        self.unkept.clear();
        self.acked.clear();
    }

    /// The broker handed it over.
    pub(super) fn on_handed(&mut self, message: u32) {
        let fate = &mut self.fates[message as usize];
        fate.handed = true;
        fate.lease_excused = false;
    }

    /// It is at the process: waited for until now.
    pub(super) fn on_arrived(&mut self, message: u32) {
        let fate = &mut self.fates[message as usize];
        fate.given_up |= self.now >= fate.give_up_at;
        fate.give_up_at = Moment::NEVER;
    }

    /// The broker handed it over in a way that the process may not notice.
    pub(super) fn on_unknown_hand_over(&mut self, message: u32) {
        let fate = &mut self.fates[message as usize];
        fate.unknown = fate.unknown.saturating_add(1);
    }

    /// A pool code leads to another pool from now on.
    pub(super) fn on_moved(&mut self, plan: &Plan, pool: u16) {
        for (fate, draft) in self.fates.iter().zip(&plan.drafts) {
            if draft.pool == pool && fate.handed && !fate.succeeded && !fate.parked {
                self.moved[draft.app as usize] = true;
            }
        }
    }

    /// The desk sent a message to its shard.
    pub(super) fn on_run(&mut self, message: u32, lane: LaneKey, attempts: u16, attempts_max: u16) {
        self.step(message, || format!("goes to its shard, pool {}, {attempts} attempts", lane.pool.0));
        let fate = &mut self.fates[message as usize];
        fate.pool = lane.pool;
        fate.attempts = attempts;
        fate.tries_since = 0;
        fate.calls = 0;
        let (tries, unknown) = (fate.tries, fate.unknown);
        // Where attempts are not limited, the broker's count of hand-overs is good enough.
        self.check(8, attempts_max == 0 || attempts <= tries.saturating_add(unknown), || {
            format!("message {message} arrives with {attempts} attempts, but {tries} were tried ({unknown} unknown)")
        });
    }

    /// A call starts that carries these messages.
    pub(super) fn on_call(&mut self, plan: &Plan, messages: &[u32], lane_ordered: bool) {
        let first = messages[0];
        let pool = self.fates[first as usize].pool;
        for &message in messages {
            self.step(message, || format!("is called with {messages:?}"));
            let fate = self.fates[message as usize];
            let source = &plan.sources[usize::from(plan.drafts[message as usize].source)];
            let memory = source.spec.lease.unwrap_or(LEASE_ASSUMED) * 2;
            let fresh = fate.success_at.is_some_and(|at| self.now < at + memory);
            self.check(4, !fresh && !fate.running, || {
                let why = if fate.running { "while a call is under way" } else { "after it succeeded" };
                format!("message {message} is called again {why}")
            });
            let starts = fate.calls == 0;
            let fate = &mut self.fates[message as usize];
            fate.running = true;
            fate.calls += 1;
            if message == first {
                self.check_limits(pool, starts);
            }
        }
        if lane_ordered {
            let group = plan.drafts[first as usize].group;
            let other = self.lanes.insert((pool, group), first);
            self.check(3, other.is_none(), || {
                format!("messages {other:?} and {first} of pool {} group {group} run at once", pool.0)
            });
        }
    }

    /// A call ended.
    pub(super) fn on_done(&mut self, plan: &Plan, messages: &[u32], lane_ordered: bool, outcome: Outcome) {
        let first = messages[0];
        let pool = self.fates[first as usize].pool;
        if let Some(Some(watched)) = self.pools.get_mut(usize::from(pool.0)) {
            watched.running -= 1;
        }
        if outcome.result == Mediation::Success {
            self.on_delivered(plan, pool, messages);
        }
        if lane_ordered {
            self.lanes.remove(&(pool, plan.drafts[first as usize].group));
        }
        for &message in messages {
            self.step(message, || format!("{outcome:?}"));
            let fate = &mut self.fates[message as usize];
            fate.running = false;
            if !matches!(judge(outcome, fate.calls, &plan.shard), Next::Again(_)) {
                fate.calls = 0;
                fate.tries = fate.tries.saturating_add(1);
                fate.tries_since += 1;
            }
            if outcome.result == Mediation::Success {
                fate.success_at = Some(self.now);
                self.on_success(plan, message);
            }
        }
    }

    fn on_success(&mut self, plan: &Plan, message: u32) {
        let draft = &plan.drafts[message as usize];
        let fate = &mut self.fates[message as usize];
        if std::mem::replace(&mut fate.succeeded, true) {
            return;
        }
        let app = draft.app as usize;
        let (moved, delivered) = (self.moved[app] || self.refused[app], self.delivered[app]);
        self.delivered[draft.app as usize] = true;
        if draft.track == NONE || moved || delivered {
            return;
        }
        // The first success of an id stands for its oldest message: twins are one delivery.
        let place = draft.app;
        let track = &plan.tracks[draft.track as usize];
        let cursor = &mut self.cursors[draft.track as usize];
        while track.get(*cursor).is_some_and(|&at| {
            let mut fate = self.fates[at as usize];
            fate.given_up |= self.now >= fate.give_up_at;
            let app = plan.drafts[at as usize].app;
            let app = app as usize;
            let skipped = self.refused[app] || self.moved[app] || fate.dropped || fate.given_up;
            at < place && (fate.succeeded || skipped || self.delivered[app])
        }) {
            *cursor += 1;
        }
        let next = track.get(*cursor).copied().unwrap_or(place);
        self.check(2, next >= place, || {
            format!("message {message} of group {} succeeded before message {next}", draft.group)
        });
    }

    /// A shard is done with a message.
    pub(super) fn on_settled(
        &mut self,
        plan: &Plan,
        message: u32,
        ticket: Ticket,
        verdict: Verdict,
        attempts: u16,
    ) {
        self.on_ticket(message, ticket);
        let draft = &plan.drafts[message as usize];
        let (app, attempts_max) = (draft.app, plan.sources[usize::from(draft.source)].spec.attempts_max);
        self.step(message, || format!("is settled: {verdict:?}"));
        let fate = &mut self.fates[message as usize];
        // A delivery that a drain cut short between two calls was tried.
        if fate.calls > 0 {
            fate.calls = 0;
            fate.tries = fate.tries.saturating_add(1);
            fate.tries_since += 1;
        }
        let (before, since) = (fate.attempts, fate.tries_since);
        self.refused[app as usize] |= matches!(verdict, Verdict::DeadLetter { .. });
        self.check(8, attempts <= before.saturating_add(since), || {
            format!("message {message} had {before} attempts and was tried {since} times: now {attempts} ({verdict:?})")
        });
        if let Verdict::DeadLetter { reason: crate::model::DeadReason::Exhausted, .. } = verdict {
            self.check(8, attempts >= attempts_max, || {
                format!("message {message} is set aside after {attempts} of {attempts_max} attempts")
            });
        }
    }

    /// The desk tells a source something.
    pub(super) fn on_tell(
        &mut self,
        plan: &Plan,
        source: SourceId,
        receipt: Receipt,
        tell: &Tell,
        epoch: u32,
        ending: bool,
    ) {
        let message = super::broker::Broker::message_of(receipt);
        self.step(message, || format!("hand-over {}: {tell:?}", receipt.key & 0xffff));
        let parks = matches!(tell, Tell::DeadLetter { .. });
        self.check(11, receipt.epoch == epoch || parks, || {
            format!("message {message}: {tell:?} with a receipt of epoch {}, now {epoch}", receipt.epoch)
        });
        match *tell {
            Tell::Ack { .. } => {
                self.acked.insert((source, receipt));
            }
            Tell::Nack { reason, delay_s } => {
                let lease = plan.sources[usize::from(source.0)].spec.lease.unwrap_or(LEASE_ASSUMED);
                let due = self.now + Duration::from_secs(u64::from(delay_s));
                self.fates[message as usize].give_up_at = due + lease * 2;
                let acked = self.acked.contains(&(source, receipt));
                self.check(11, !acked, || format!("message {message} is nacked after its ack"));
                let running = self.fates[message as usize].running && !ending;
                self.check(4, !running, || {
                    format!("message {message} is nacked while its call is under way")
                });
                // A twin shares its first's fate. What a drain gives back would come back anyway.
                let wasted = !matches!(reason, NackReason::Failed | NackReason::GivenBack | NackReason::Twin);
                if matches!(reason, NackReason::GivenBack | NackReason::Twin) {
                    self.fates[message as usize].given_back += 1;
                }
                let max = plan.sources[usize::from(source.0)].spec.deliveries_max;
                if let (true, Some(max)) = (wasted, max) {
                    let count = receipt.key & 0xffff;
                    self.check(8, count + 2 < u64::from(max), || {
                        format!("message {message} is nacked ({reason:?}) at hand-over {count} of {max}")
                    });
                }
            }
            Tell::Extend { .. } | Tell::Answered { .. } | Tell::DeadLetter { .. } => {}
        }
    }

    /// The broker forgot a message.
    pub(super) fn on_ack_applied(&mut self, plan: &Plan, message: u32) {
        self.step(message, || "is forgotten by its broker".to_owned());
        let fate = &mut self.fates[message as usize];
        self.open -= usize::from(!fate.acked && !fate.dropped);
        fate.acked = true;
        let good =
            fate.succeeded || fate.parked || self.delivered[plan.drafts[message as usize].app as usize];
        self.check(1, good, || format!("message {message} is acked without success"));
    }

    /// The broker set a message aside by itself.
    pub(super) fn on_dropped(&mut self, message: u32) {
        let fate = &mut self.fates[message as usize];
        self.open -= usize::from(!fate.acked && !fate.dropped);
        fate.dropped = true;
        let good = fate.tries > 0 || fate.succeeded || fate.unknown + fate.given_back >= 2;
        self.check(8, good, || format!("message {message} is dropped by its broker without a try"));
    }

    /// A lease ran out. `held`: the process has the message and has not closed it.
    pub(super) fn on_lease_expired(&mut self, message: u32, held: bool) {
        self.step(message, || format!("loses its lease, held {held}"));
        let excused = self.fates[message as usize].lease_excused;
        self.on_unknown_hand_over(message);
        self.check(5, !held || excused, || {
            format!("the lease of message {message} ran out while it was held")
        });
    }

    /// How long a healed run may take: 1.2 × the work, and what is hidden at brokers meanwhile.
    pub(super) fn patience(&self, plan: &Plan, call_max: Duration) -> Duration {
        let left = u32::try_from(self.open).unwrap_or(u32::MAX);
        // At worst all that is left is one group of one pool: one call, a few hops and a poll each.
        // A group with a small buffer waits a second or two whenever that is full.
        let refill = Duration::from_secs(2) / plan.desk.group_buffer_max.unwrap_or(25);
        let serial = (call_max + Duration::from_millis(60) + refill) * left;
        let rated = WINDOW * (left / RATE_MIN + 1);
        let leases = plan.sources.iter().map(|source| source.spec.lease.unwrap_or(LEASE_ASSUMED));
        serial.max(rated).mul_f32(1.2) + leases.max().unwrap_or(LEASE_ASSUMED) * 6 + Duration::from_secs(180)
    }
}
