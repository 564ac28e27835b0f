//! A shard: the lane of every group hashed to this core, and what is in flight for each.
//! Core: its own. Owns: lanes, ready lists, breakers, timers. No I/O, no clock: events and `now` come
//! in, [`Effects`] go out, so that the simulator can drive it.
//!
//! - S1: a lane has at most one call in flight, so its order holds.
//! - S2: every envelope that came in is settled exactly once.
//! - S3: inside a lane order never changes (`lane.rs`).
//! - S4: a call is in flight only with a permit; a permit is held only by a call, for an ack that is not kept yet, or,
//!   within a turn, in hand.
//! - S5: only a tried message's attempts go up.

mod breaker;
mod drain;
mod finish;
mod lane;
mod limit;
mod look;
mod origin;
mod permit;
mod pool;
mod retry;
mod start;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::VecDeque;
use std::time::Duration;

pub use breaker::{Admit, Breaker, Change};
pub use limit::{Borrow, Rate, Tokens, WINDOW};
pub use origin::ORIGIN_IDLE_MAX;
pub use permit::{Permits, Release, SHARDS_MAX};
pub use pool::PoolShared;
pub use retry::{Next, judge};

use crate::clock::Moment;
use crate::meter::{Counts, PoolSnapshot, ShardSnapshot};
use crate::model::{
    CallId, Control, Envelope, Fault, FromShard, Notice, OriginId, Outcome, Parcel, PoolId, Settlement,
    ShardId, ShardTuning, ToShard, Verdict,
};
use crate::timer::Wheel;
use lane::{Lanes, State};
use origin::Origins;
use pool::Pool;

/// How often unused targets are looked for.
const REAP_EVERY: Duration = Duration::from_secs(60);
/// The router document's patience with a lowered concurrency.
const LOWERED_PATIENCE: Duration = Duration::from_secs(60);

/// What a shard wants done. Reused from turn to turn.
#[derive(Debug, Default)]
pub struct Effects {
    /// Calls to start; each comes back by [`Shard::on_done`].
    pub calls: Vec<CallId>,
    /// To be sent to the desk, in this order.
    pub reports: Vec<FromShard>,
    /// Shards to wake, as bits: each was handed a permit.
    pub wake: u32,
    /// Targets that nothing uses: forget their connections, then call [`Shard::forget_origin`].
    pub idle_origins: Vec<OriginId>,
}

#[derive(Clone, Copy, Debug)]
enum Timer {
    Lane { lane: u32, era: u32 },
    Rate(PoolId),
    Breaker(OriginId),
    Lowered(PoolId),
    Reap,
    Watch,
}

/// A call's request, for the courier.
pub struct CallView<'a> {
    /// The target's place in this shard's table.
    pub origin: OriginId,
    /// The first message; see [`Shard::riders`] for those that ride with it.
    pub first: &'a Parcel,
    /// Which delivery of the first message this is, from 1.
    pub attempt: u16,
}

/// One core's state machine.
pub struct Shard {
    id: ShardId,
    tuning: ShardTuning,
    lanes: Lanes,
    origins: Origins,
    pools: Vec<Option<Pool>>,
    /// Pools with ready lanes that nothing keeps from starting.
    active: VecDeque<PoolId>,
    /// Pools that wait to be handed a permit.
    waiting: Vec<PoolId>,
    /// Pools that may have permits or tokens in hand.
    in_hand: Vec<PoolId>,
    timers: Wheel<Timer>,
    due: Vec<Timer>,
    counts: Counts,
    running: u32,
    draining: bool,
    stopped: bool,
    /// Where the watchdog goes on looking.
    watched: u32,
}

impl Shard {
    /// An empty shard.
    #[must_use]
    pub fn new(id: ShardId, tuning: ShardTuning, now: Moment) -> Self {
        let mut timers = Wheel::new(now);
        timers.insert(now + REAP_EVERY, Timer::Reap);
        timers.insert(now + watch::WATCH_EVERY, Timer::Watch);
        Self {
            id,
            tuning,
            lanes: Lanes::new(),
            origins: Origins::new(tuning.breaker_scope),
            pools: Vec::new(),
            active: VecDeque::new(),
            waiting: Vec::new(),
            in_hand: Vec::new(),
            timers,
            due: Vec::new(),
            counts: Counts::default(),
            running: 0,
            draining: false,
            stopped: false,
            watched: 0,
        }
    }

    /// Something came over the link.
    #[inline]
    pub fn on_event(&mut self, event: ToShard, now: Moment, out: &mut Effects) {
        match event {
            ToShard::Run(envelope) => self.on_envelope(envelope, out),
            ToShard::Control(control) => self.on_control(*control, now, out),
            ToShard::Kept { pool, count } => self.on_kept(pool, count, out),
        }
    }

    fn on_envelope(&mut self, envelope: Envelope, out: &mut Effects) {
        self.counts.taken += 1;
        let key = envelope.lane;
        let Some(pool) = self.pools.get_mut(usize::from(key.pool.0)).and_then(Option::as_mut) else {
            return self.give_back(envelope, out);
        };
        pool.counts.submitted += 1;
        if pool.draining || self.draining {
            // A strict lane whose head is still running gives all back together, in order.
            match self.lanes.find(key) {
                Some(lane) if self.waits_for_running_head(lane) => self.enqueue(lane, envelope),
                _ => self.give_back(envelope, out),
            }
            return;
        }
        let (lane, new) = self.lanes.find_or_make(key);
        if new {
            pool.lanes += 1;
        } else if let Some(delay_s) = self.belongs_to_failed_batch(lane, &envelope) {
            return self.cascade_late(lane, envelope, delay_s, out);
        }
        self.enqueue(lane, envelope);
        if self.lanes.get(lane).state == State::Empty {
            self.make_ready(lane);
        }
    }

    fn enqueue(&mut self, lane: u32, envelope: Envelope) {
        self.pool_mut(envelope.lane.pool).queued += 1;
        self.lanes.push(lane, envelope);
    }

    fn dequeue(&mut self, lane: u32) -> Option<Envelope> {
        let envelope = self.lanes.pop(lane)?;
        self.pool_mut(envelope.lane.pool).queued -= 1;
        Some(envelope)
    }

    fn on_control(&mut self, control: Control, now: Moment, out: &mut Effects) {
        match control {
            Control::PoolAdd { pool, spec, shared } => {
                let at = usize::from(pool.0);
                if self.pools.len() <= at {
                    self.pools.resize_with(at + 1, || None);
                }
                debug_assert!(self.pools[at].is_none(), "the desk reuses no pool id in use");
                self.pools[at] = Some(Pool::new(spec, shared));
            }
            Control::PoolChanged { pool, spec } => {
                if let Some(state) = self.pools[usize::from(pool.0)].as_mut() {
                    state.spec = spec;
                    self.timers.insert(now + LOWERED_PATIENCE, Timer::Lowered(pool));
                    self.activate(pool);
                }
            }
            Control::PoolDrain { pool } => self.drain_pool(pool, out),
            Control::GiveBack { lane, ticket } => self.give_back_from(lane, ticket, out),
            Control::Drain => self.drain_all(out),
            Control::Snapshot => out.reports.push(FromShard::Snapshot(Box::new(self.snapshot()))),
            Control::Look(wanted) => out.reports.push(FromShard::Seen(Box::new(self.look(&wanted)))),
            Control::Stop => self.stopped = true,
        }
    }

    /// Lets timers fire and picks up permits that other shards handed over. Once a turn.
    pub fn on_time(&mut self, now: Moment, out: &mut Effects) {
        self.counts.turns += 1;
        self.pick_up_handed();
        let mut due = std::mem::take(&mut self.due);
        let mut watch = false;
        self.timers.advance(now, |timer| due.push(timer));
        for timer in due.drain(..) {
            match timer {
                Timer::Lane { lane, era } => self.on_pause_end(lane, era),
                Timer::Rate(pool) => {
                    if let Some(state) = self.pools[usize::from(pool.0)].as_mut() {
                        state.waits_for_rate = false;
                        self.activate(pool);
                    }
                }
                Timer::Breaker(origin) => self.on_breaker_timer(origin, now),
                Timer::Lowered(pool) => self.report_if_above(pool, out),
                Timer::Reap => {
                    self.timers.insert(now + REAP_EVERY, Timer::Reap);
                    out.idle_origins.extend(self.origins.idle(now));
                }
                Timer::Watch => watch = true,
            }
        }
        self.due = due;
        // After all other timers: a process that was stopped for a while has many that are late.
        if watch {
            self.timers.insert(now + watch::WATCH_EVERY, Timer::Watch);
            self.watch(now, out);
        }
    }

    fn report_if_above(&self, pool: PoolId, out: &mut Effects) {
        let above =
            self.pools[usize::from(pool.0)].as_ref().is_some_and(|p| p.shared.permits.is_above_limit());
        if above && self.id == ShardId(0) {
            out.reports.push(FromShard::Noticed(Box::new(Notice::StillAbove { pool })));
        }
    }

    /// When [`Shard::on_time`] must be called next, if nothing else happens.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Moment> {
        if self.active.is_empty() { self.timers.next() } else { Some(Moment::ZERO) }
    }

    /// The request of a call that was put into [`Effects::calls`].
    #[must_use]
    pub fn call(&self, call: CallId) -> CallView<'_> {
        let first = self.lanes.head(call.0);
        CallView {
            origin: self.lanes.get(call.0).origin,
            first: &first.parcel,
            attempt: first.attempts.saturating_add(1),
        }
    }

    /// The messages that ride with a call's first one.
    pub fn riders(&self, call: CallId) -> impl Iterator<Item = &Parcel> {
        let span = usize::from(self.lanes.get(call.0).span);
        self.lanes.iter(call.0).take(span).skip(1).map(|envelope| &envelope.parcel)
    }

    /// A call ended.
    pub fn on_done(&mut self, call: CallId, outcome: Outcome, now: Moment, out: &mut Effects) {
        self.finish(call.0, outcome, now, out);
    }

    /// A target's connections were given up: its id may name another from now on.
    pub fn forget_origin(&mut self, origin: OriginId) {
        self.origins.forget(origin);
    }

    /// Calls in flight.
    #[must_use]
    pub const fn running(&self) -> u32 {
        self.running
    }

    /// Messages that are here, those of calls in flight included.
    #[must_use]
    pub const fn queued(&self) -> u32 {
        self.lanes.queued()
    }

    /// It was told to end its thread.
    #[must_use]
    pub const fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// No message is here.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.lanes.queued() == 0
    }

    /// Counters and sizes, now.
    #[must_use]
    pub fn snapshot(&self) -> ShardSnapshot {
        let pools = self.pools.iter().enumerate().filter_map(|(at, pool)| {
            let pool = pool.as_ref()?;
            Some(PoolSnapshot {
                pool: PoolId(u16::try_from(at).ok()?),
                queued: pool.queued - pool.running.min(pool.queued),
                running: pool.running,
                lanes: pool.lanes,
                counts: pool.counts,
                latency: pool.latency,
            })
        });
        ShardSnapshot {
            shard: self.id,
            counts: self.counts,
            lanes: u32::try_from(self.lanes.count()).unwrap_or(u32::MAX),
            queued: self.lanes.queued(),
            running: self.running,
            pools: pools.collect(),
            targets: self.origins.look(),
            ..ShardSnapshot::default()
        }
    }

    /// Counts how long a call took, before its end is told by [`Shard::on_done`].
    pub fn count_latency(&mut self, call: CallId, us: u64, outcome: Outcome) {
        let lane = self.lanes.get(call.0);
        let (pool, origin) = (lane.key.pool, lane.origin);
        self.pool_mut(pool).latency.record(us);
        let target = self.origins.get_mut(origin);
        target.latency.record(us);
        target.ended += 1;
        let unanswered = matches!(outcome.fault, Fault::Timeout | Fault::Network | Fault::Stale);
        target.failures += u64::from(unanswered);
    }

    /// Counts an answer that could not be read.
    pub fn count_unreadable(&mut self) {
        self.counts.unreadable += 1;
    }

    fn pool_mut(&mut self, pool: PoolId) -> &mut Pool {
        self.pools[usize::from(pool.0)].as_mut().expect("a pool stays while it has messages")
    }

    fn settle(&mut self, envelope: Envelope, verdict: Verdict, out: &mut Effects) {
        match verdict {
            Verdict::Ack => self.counts.delivered += 1,
            Verdict::Nack { reason, .. } if reason.is_attempt() => self.counts.failed += 1,
            Verdict::Answered { .. } => self.counts.failed += 1,
            Verdict::Nack { .. } => self.counts.returned += 1,
            Verdict::DeadLetter { .. } => self.counts.dead += 1,
        }
        out.reports.push(FromShard::Settled(Settlement { envelope, verdict }));
    }
}
