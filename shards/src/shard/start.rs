//! Which lane runs next: ready lists, breakers, tokens, permits.

use super::breaker::Admit;
use super::lane::State;
use super::pool::Grant;
use super::{Effects, Shard, Timer};
use crate::clock::Moment;
use crate::model::{CallId, Flags, NackReason, Ordering, OriginId, PoolId, Verdict};
use std::time::Duration;

/// Starts of one pool in a row before the next pool has its go.
const STARTS_PER_POOL: u32 = 64;
/// How often a target with waiting lanes is looked at while its breaker is not admitting.
const BREAKER_LOOK: Duration = Duration::from_secs(1);

impl Shard {
    /// Starts what may start, and releases what the turn did not use. Once a turn, last.
    pub fn start_ready(&mut self, now: Moment, out: &mut Effects) {
        let mut budget = self.tuning.starts_per_turn;
        while budget > 0
            && let Some(pool) = self.active.pop_front()
        {
            let quota = budget.min(STARTS_PER_POOL);
            let used = self.start_from(pool, quota, now, out);
            budget -= used;
            let Some(state) = self.pools[usize::from(pool.0)].as_mut() else { continue };
            state.active = false;
            if used == quota {
                self.activate(pool);
            }
        }
        while let Some(pool) = self.in_hand.pop() {
            if let Some(state) = self.pools[usize::from(pool.0)].as_mut() {
                state.in_hand = false;
                out.wake |= state.release_unused(self.id);
            }
        }
    }

    /// Starts up to `quota` lanes of one pool; fewer only if none is ready or something is lacking.
    fn start_from(&mut self, id: PoolId, quota: u32, now: Moment, out: &mut Effects) -> u32 {
        let mut used = 0;
        while used < quota {
            let Some(pool) = self.pools[usize::from(id.0)].as_mut() else { break };
            let Some(lane) = pool.ready.peek() else { break };
            let origin = self.origins.intern(self.lanes.head(lane).parcel.origin(), now);
            let admit = self.origins.breaker(origin).admit(now);
            if let Admit::No(until) = admit {
                pool.ready.pop();
                self.on_tripped(lane, origin, until, now, out);
                used += 1;
                continue;
            }
            let needs_token = self.lanes.get(lane).calls == 0;
            let grant = match pool.take(self.id, now, needs_token) {
                // Others waited for the permits in hand: pass them on, then queue up.
                Grant::WaitForPermit if pool.spare > 0 || pool.handed > 0 => {
                    out.wake |= pool.release_unused(self.id);
                    pool.take(self.id, now, needs_token)
                }
                grant => grant,
            };
            if needs_token && pool.has_tokens() && !pool.in_hand {
                pool.in_hand = true;
                self.in_hand.push(id);
            }
            match grant {
                Grant::Yes => {
                    pool.ready.pop();
                    pool.running += 1;
                    self.launch(lane, origin, admit == Admit::Probe, now, out);
                    used += 1;
                }
                Grant::WaitForPermit => {
                    self.wait_for_permit(id);
                    break;
                }
                Grant::WaitUntil(until) => {
                    if !pool.waits_for_rate {
                        pool.waits_for_rate = true;
                        self.counts.rate_waits += 1;
                        pool.counts.rate_limited += 1;
                        self.timers.insert(until, Timer::Rate(id));
                    }
                    break;
                }
            }
        }
        used
    }

    fn launch(&mut self, lane: u32, origin: OriginId, probe: bool, now: Moment, out: &mut Effects) {
        self.running += 1;
        self.counts.calls += 1;
        let target = self.origins.get_mut(origin);
        target.calls += 1;
        target.used = now;
        if probe {
            self.origins.breaker_mut(origin).on_probe_start();
        }
        let mut span = self.span(lane);
        let state = self.lanes.get(lane);
        if span > 1 && state.calls == 0 {
            let pool = state.key.pool;
            span = 1 + self.pool_mut(pool).take_tokens(now, span - 1);
        }
        let state = self.lanes.get_mut(lane);
        debug_assert_eq!(state.state, State::Ready, "S1: one call per lane");
        state.state = State::Running;
        state.at = now;
        state.calls += 1;
        state.origin = origin;
        state.probe = probe;
        state.span = span;
        out.calls.push(CallId(lane));
    }

    /// How many messages ride in the next call: those at the head with one target and one fate if it fails:
    /// one ordering, one dispatch mode and, where a failure takes followers with it, one batch.
    fn span(&self, lane: u32) -> u16 {
        let state = self.lanes.get(lane);
        if state.calls > 0 {
            return state.span; // A repeated call carries the same messages.
        }
        let spec =
            self.pools[usize::from(state.key.pool.0)].as_ref().map_or(1, |pool| pool.spec.batch_max.get());
        let max = spec.min(state.span_max);
        if max <= 1 {
            return 1;
        }
        let head = self.lanes.head(lane);
        let rides = self.lanes.iter(lane).take(usize::from(max)).take_while(|other| {
            other.parcel.target() == head.parcel.target()
                && (other.ordering, other.dispatch) == (head.ordering, head.dispatch)
                && (other.ordering != Ordering::Batch || other.batch == head.batch)
        });
        u16::try_from(rides.count()).unwrap_or(max)
    }

    /// The target's breaker is tripped: hold the lane, or give its batch back where the broker locks groups.
    fn on_tripped(&mut self, lane: u32, origin: OriginId, until: Moment, now: Moment, out: &mut Effects) {
        let head = self.lanes.head(lane);
        let holds = head.ordering != Ordering::Batch || head.flags.has(Flags::NEAR_LIMIT);
        if holds {
            let state = self.lanes.get_mut(lane);
            state.state = State::Held;
            state.at = now;
            self.hold(lane, origin, until, now);
            return;
        }
        let wait = if until == Moment::NEVER { Duration::ZERO } else { until.since(now) };
        let wait = wait.max(self.tuning.breaker_wait);
        let delay_s = u32::try_from(wait.as_nanos().div_ceil(1_000_000_000)).unwrap_or(u32::MAX);
        self.nack_batch(lane, Verdict::Nack { delay_s, reason: NackReason::BreakerTripped }, out);
    }

    fn hold(&mut self, lane: u32, origin: OriginId, until: Moment, now: Moment) {
        let target = self.origins.get_mut(origin);
        target.held.push_back(lane);
        if target.held.len() == 1 {
            let look = if until == Moment::NEVER { now + BREAKER_LOOK } else { until };
            self.timers.insert(look, Timer::Breaker(origin));
        }
    }

    /// Looks after held lanes for as long as there are any, so that none depends on another's fate.
    pub(super) fn on_breaker_timer(&mut self, origin: OriginId, now: Moment) {
        match self.origins.breaker(origin).admit(now) {
            Admit::Yes => self.free_held(origin, usize::MAX),
            Admit::Probe => self.free_held(origin, 1),
            Admit::No(_) => {}
        }
        if !self.origins.get(origin).held.is_empty() {
            self.timers.insert(now + BREAKER_LOOK, Timer::Breaker(origin));
        }
    }

    pub(super) fn free_held(&mut self, origin: OriginId, count: usize) {
        for _ in 0..count {
            let Some(lane) = self.origins.get_mut(origin).held.pop_front() else { return };
            self.resume(lane);
        }
    }

    /// The lane's next message may start a delivery.
    pub(super) fn make_ready(&mut self, lane: u32) {
        let urgent = self.lanes.head(lane).flags.has(Flags::HIGH_PRIORITY);
        let state = self.lanes.get_mut(lane);
        state.state = State::Ready;
        state.calls = 0;
        let pool = state.key.pool;
        self.pool_mut(pool).ready.push(lane, urgent);
        self.activate(pool);
    }

    /// The lane's head goes on where it was: in the middle of a delivery, or at the start of one.
    pub(super) fn resume(&mut self, lane: u32) {
        if self.lanes.get(lane).calls == 0 {
            return self.make_ready(lane);
        }
        let state = self.lanes.get_mut(lane);
        state.state = State::Ready;
        let pool = state.key.pool;
        self.pool_mut(pool).ready.push_resumed(lane);
        self.activate(pool);
    }

    pub(super) fn on_pause_end(&mut self, lane: u32, era: u32) {
        let state = self.lanes.get(lane);
        if state.era == era && state.state == State::Paused {
            self.resume(lane);
        }
    }

    pub(super) fn pause(&mut self, lane: u32, until: Moment) {
        let state = self.lanes.get_mut(lane);
        state.state = State::Paused;
        state.at = until;
        state.era = state.era.wrapping_add(1);
        let era = state.era;
        self.timers.insert(until, Timer::Lane { lane, era });
    }

    pub(super) fn activate(&mut self, id: PoolId) {
        let Some(pool) = self.pools[usize::from(id.0)].as_mut() else { return };
        if !pool.active && !pool.ready.is_empty() {
            pool.active = true;
            self.active.push_back(id);
        }
    }

    fn wait_for_permit(&mut self, id: PoolId) {
        let pool = self.pool_mut(id);
        if !pool.waits_for_permit {
            pool.waits_for_permit = true;
            self.counts.permit_waits += 1;
            self.waiting.push(id);
        }
    }

    /// Takes what other shards handed over while this one waited.
    pub(super) fn pick_up_handed(&mut self) {
        let mut at = 0;
        while at < self.waiting.len() {
            let id = self.waiting[at];
            let Some(pool) = self.pools[usize::from(id.0)].as_mut() else {
                self.waiting.swap_remove(at);
                continue;
            };
            let handed = pool.shared.permits.take_handed(self.id);
            if handed == 0 {
                at += 1;
                continue;
            }
            pool.handed += handed;
            pool.waits_for_permit = false;
            self.waiting.swap_remove(at);
            self.put_in_hand(id);
            self.activate(id);
        }
    }

    /// Remembers that this pool has permits to use or release by the end of the turn.
    pub(super) fn put_in_hand(&mut self, id: PoolId) {
        let pool = self.pool_mut(id);
        if !pool.in_hand {
            pool.in_hand = true;
            self.in_hand.push(id);
        }
    }

    /// True if another shard handed this one a permit that it has not picked up: do not sleep.
    #[must_use]
    pub fn was_handed_permits(&self) -> bool {
        self.waiting.iter().any(|pool| {
            let pool = self.pools[usize::from(pool.0)].as_ref();
            pool.is_some_and(|pool| pool.shared.permits.was_handed(self.id))
        })
    }
}
