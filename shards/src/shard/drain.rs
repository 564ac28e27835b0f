//! Giving back what has not started: a pool that is removed, a message whose lease can't be kept, the end.

use super::lane::State;
use super::{Effects, Shard};
use crate::model::{Envelope, FromShard, LaneKey, NackReason, Ordering, PoolId, Ticket, Verdict};

/// Back at once, and not an attempt.
const BACK: Verdict = Verdict::Nack { delay_s: 0, reason: NackReason::GivenBack };

impl Shard {
    pub(super) fn give_back(&mut self, envelope: Envelope, out: &mut Effects) {
        self.settle(envelope, BACK, out);
    }

    pub(super) fn drain_pool(&mut self, id: PoolId, out: &mut Effects) {
        let Some(pool) = self.pools[usize::from(id.0)].as_mut() else { return };
        pool.draining = true;
        pool.ready.clear();
        for lane in self.lanes.all() {
            if self.lanes.get(lane).key.pool == id {
                self.drain_lane(lane, out);
            }
        }
        self.report_if_drained(id, out);
    }

    pub(super) fn drain_all(&mut self, out: &mut Effects) {
        self.draining = true;
        for pool in self.pools.iter_mut().flatten() {
            pool.ready.clear();
        }
        for lane in self.lanes.all() {
            self.drain_lane(lane, out);
        }
    }

    /// Gives back what has not started of a lane, in order.
    pub(super) fn drain_lane(&mut self, lane: u32, out: &mut Effects) {
        if self.lanes.find(self.lanes.get(lane).key) != Some(lane) || self.waits_for_running_head(lane) {
            return;
        }
        let state = self.lanes.get(lane);
        let keep = if state.state == State::Running { u32::from(state.span) } else { 0 };
        self.take_out(lane);
        self.give_back_behind(lane, keep, out);
        if self.lanes.get(lane).len == 0 {
            self.lanes.get_mut(lane).failed = None;
            self.forget_lane(lane);
        }
    }

    /// Where the broker does not lock groups, followers must not be back before their head's fate is
    /// known: if the call fails, head and followers go back together, in order.
    pub(super) fn waits_for_running_head(&self, lane: u32) -> bool {
        self.lanes.get(lane).state == State::Running && self.lanes.head(lane).ordering == Ordering::Strict
    }

    /// Gives back one message that has not started, and all behind it in its lane.
    pub(super) fn give_back_from(&mut self, key: LaneKey, ticket: Ticket, out: &mut Effects) {
        let Some(lane) = self.lanes.find(key) else { return };
        let Some(at) = self.lanes.iter(lane).position(|envelope| envelope.ticket == ticket) else { return };
        let state = self.lanes.get(lane);
        if state.state == State::Running && at < usize::from(state.span) {
            return; // Started: its call will settle it.
        }
        let keep = u32::try_from(at).unwrap_or(u32::MAX);
        if keep == 0 {
            self.take_out(lane);
        }
        self.give_back_behind(lane, keep, out);
        if self.lanes.get(lane).len == 0 {
            self.go_on(lane);
        }
    }

    fn give_back_behind(&mut self, lane: u32, keep: u32, out: &mut Effects) {
        let mut back = Vec::new();
        self.lanes.split_off(lane, keep, |envelope| back.push(envelope));
        for envelope in back {
            self.pool_mut(envelope.lane.pool).queued -= 1;
            self.settle(envelope, BACK, out);
        }
    }

    /// Takes a lane that is not running out of every list.
    fn take_out(&mut self, lane: u32) {
        let state = self.lanes.get_mut(lane);
        match state.state {
            State::Running | State::Empty => return,
            State::Ready => {
                let pool = state.key.pool;
                state.state = State::Empty;
                self.pool_mut(pool).ready.remove(lane);
            }
            State::Held => {
                state.state = State::Empty;
                let held: Vec<_> = self.origins.iter().map(|(id, _)| id).collect();
                for origin in held {
                    self.origins.get_mut(origin).held.retain(|&other| other != lane);
                }
            }
            State::Paused => {
                // The timer finds another era and does nothing.
                state.era = state.era.wrapping_add(1);
                state.state = State::Empty;
            }
        }
        self.lanes.get_mut(lane).calls = 0;
    }

    pub(super) fn is_draining(&self, lane: u32) -> bool {
        let pool = self.lanes.get(lane).key.pool;
        self.draining || self.pools[usize::from(pool.0)].as_ref().is_some_and(|pool| pool.draining)
    }

    pub(super) fn report_if_drained(&mut self, id: PoolId, out: &mut Effects) {
        let Some(pool) = self.pools[usize::from(id.0)].as_mut() else { return };
        if pool.draining && pool.lanes == 0 && pool.running == 0 && pool.unkept == 0 {
            out.wake |= pool.release_unused(self.id);
            self.pools[usize::from(id.0)] = None;
            out.reports.push(FromShard::PoolDrained(id));
        }
    }
}
