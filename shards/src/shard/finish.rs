//! What follows from a call's end: repeat, settle, hold the head, or take followers along.

use super::breaker::Change;
use super::lane::State;
use super::retry::{Next, judge, judge_for_source};
use super::{Effects, Shard};
use crate::clock::Moment;
use crate::model::{
    DeadReason, Dispatch, Envelope, Fault, Flags, FromShard, Mediation, NackReason, Notice, Ordering,
    OriginId, Outcome, PoolId, Verdict,
};
use std::time::Duration;

/// How often one target's refusals are reported.
const NOTICE_EVERY: Duration = Duration::from_secs(1);

impl Shard {
    pub(super) fn finish(&mut self, lane: u32, outcome: Outcome, now: Moment, out: &mut Effects) {
        let state = self.lanes.get(lane);
        debug_assert_eq!(state.state, State::Running, "S1: a call that was started");
        let (origin, probe, calls, pool) = (state.origin, state.probe, state.calls, state.key.pool);
        self.running -= 1;
        match outcome.fault {
            Fault::Timeout => self.counts.timeouts += 1,
            Fault::Network | Fault::Stale => self.counts.unreachable += 1,
            _ => {}
        }
        self.origins.get_mut(origin).calls -= 1;
        let draining = {
            let pool = self.pool_mut(pool);
            pool.running -= 1;
            pool.spare += 1;
            pool.draining
        } || self.draining;
        self.put_in_hand(pool);
        self.tell_breaker(origin, outcome, probe, now, out);
        let next = if self.lanes.head(lane).flags.has(Flags::JUDGED_BY_SOURCE) {
            judge_for_source(outcome, calls, &self.tuning)
        } else {
            judge(outcome, calls, &self.tuning)
        };
        match next {
            Next::Again(pause) if !draining => {
                self.counts.retried += 1;
                self.repeat(lane, pause, now);
            }
            Next::Again(_) => self.on_failed(lane, 0, outcome, now, out),
            Next::Deliver => self.on_delivered(lane, out),
            Next::Refuse => self.on_refused(lane, outcome, now, out),
            Next::Answer => self.on_answered(lane, outcome, out),
            Next::Fail { delay_s } => self.on_failed(lane, delay_s, outcome, now, out),
        }
        self.activate(pool);
        if draining {
            self.drain_lane(lane, out);
            self.report_if_drained(pool, out);
        }
    }

    fn repeat(&mut self, lane: u32, pause: Duration, now: Moment) {
        if pause.is_zero() {
            self.resume(lane);
        } else {
            self.pause(lane, now + pause);
        }
    }

    fn tell_breaker(
        &mut self,
        origin: OriginId,
        outcome: Outcome,
        probe: bool,
        now: Moment,
        out: &mut Effects,
    ) {
        let change = self.origins.breaker_mut(origin).on_result(now, outcome, probe, &self.tuning);
        let (count, tripped) = match change {
            Change::None => return,
            Change::Tripped(_) => (0, Some(true)),
            Change::NextProbe => (1, None),
            Change::Admitting => (usize::MAX, Some(false)),
        };
        for guarded in self.origins.guarded_with(origin) {
            self.free_held(guarded, count);
        }
        if let Some(tripped) = tripped {
            self.counts.trips += u64::from(tripped);
            let origin = self.origin_name(origin);
            out.reports.push(FromShard::Noticed(Box::new(Notice::Breaker { origin, tripped })));
        }
    }

    /// Counts what a delivery came to, in the router document's terms.
    fn count_outcome(&mut self, lane: u32, result: Mediation, messages: u16) {
        let pool = self.lanes.get(lane).key.pool;
        let counts = &mut self.pool_mut(pool).counts;
        match result {
            Mediation::Success => counts.delivered += u64::from(messages),
            Mediation::ErrorConfig | Mediation::ErrorConnection => counts.failed += u64::from(messages),
            Mediation::ErrorProcess => counts.transient += u64::from(messages),
        }
    }

    fn on_delivered(&mut self, lane: u32, out: &mut Effects) {
        let span = self.lanes.get(lane).span;
        self.count_outcome(lane, Mediation::Success, span);
        for left in (0..span).rev() {
            if let Some(mut envelope) = self.dequeue(lane) {
                envelope.attempts = envelope.attempts.saturating_add(1);
                // One call, one permit: the last message has it.
                if left > 0 {
                    envelope.flags = envelope.flags.without(Flags::HOLDS_PERMIT);
                } else if envelope.flags.has(Flags::HOLDS_PERMIT) {
                    let pool = self.pool_mut(envelope.lane.pool);
                    pool.spare -= 1;
                    pool.unkept += 1;
                }
                self.settle(envelope, Verdict::Ack, out);
            }
        }
        self.lanes.get_mut(lane).span_max = u16::MAX;
        self.go_on(lane);
    }

    /// Acks are kept: the permits that were held for them are in hand.
    pub(super) fn on_kept(&mut self, pool: PoolId, count: u32, out: &mut Effects) {
        let Some(state) = self.pools.get_mut(usize::from(pool.0)).and_then(Option::as_mut) else { return };
        debug_assert!(count <= state.unkept, "S4: {count} of {} permits come back", state.unkept);
        let count = count.min(state.unkept);
        state.unkept -= count;
        state.spare += count;
        self.put_in_hand(pool);
        self.activate(pool);
        self.report_if_drained(pool, out);
    }

    /// The source judges it.
    fn on_answered(&mut self, lane: u32, outcome: Outcome, out: &mut Effects) {
        let span = self.lanes.get(lane).span;
        self.count_outcome(lane, outcome.result, span);
        for _ in 0..span {
            if let Some(mut envelope) = self.dequeue(lane) {
                envelope.attempts = envelope.attempts.saturating_add(1);
                let Outcome { result, fault, status, .. } = outcome;
                self.settle(envelope, Verdict::Answered { result, fault, status }, out);
            }
        }
        self.go_on(lane);
    }

    /// 4xx, 501. Of several messages in one request any may be the bad one: try half of them.
    fn on_refused(&mut self, lane: u32, outcome: Outcome, now: Moment, out: &mut Effects) {
        let state = self.lanes.get_mut(lane);
        if state.span > 1 {
            state.span_max = state.span / 2;
            return self.make_ready(lane);
        }
        self.count_outcome(lane, Mediation::ErrorConfig, 1);
        self.notice_refusal(self.lanes.get(lane).origin, outcome, now, out);
        if let Some(mut envelope) = self.dequeue(lane) {
            envelope.attempts = envelope.attempts.saturating_add(1);
            let verdict = Verdict::DeadLetter { reason: DeadReason::Refused, status: outcome.status };
            self.settle(envelope, verdict, out);
        }
        self.go_on(lane);
    }

    /// The delivery failed: it counts as an attempt of every message in it.
    fn on_failed(&mut self, lane: u32, delay_s: u32, outcome: Outcome, now: Moment, out: &mut Effects) {
        let span = self.lanes.get(lane).span;
        let tried = outcome.fault != Fault::CircuitOpen;
        if tried {
            self.count_outcome(lane, outcome.result, span);
            self.lanes
                .for_first(lane, span, |envelope| envelope.attempts = envelope.attempts.saturating_add(1));
        }
        let span = span - self.set_aside_exhausted(lane, outcome, out);
        if span == 0 {
            return self.go_on(lane);
        }
        self.lanes.get_mut(lane).span = span;
        let draining = self.is_draining(lane);
        let head = self.lanes.head(lane);
        let verdict =
            Verdict::Nack { delay_s: if draining { 0 } else { delay_s }, reason: NackReason::Failed };
        match (head.ordering, head.dispatch) {
            (Ordering::Strict, Dispatch::BlockOnError) if !draining => {
                self.lanes.get_mut(lane).calls = 0;
                self.pause(lane, now + Duration::from_secs(u64::from(delay_s)));
            }
            // Followers that must not go back: the head stays too, because the broker would not hand it
            // over while they are here.
            (Ordering::Batch, Dispatch::BlockOnError)
                if !draining
                    && head.flags.has(Flags::NEAR_LIMIT)
                    && !head.flags.has(Flags::LAST_OF_BATCH) =>
            {
                self.lanes.get_mut(lane).calls = 0;
                self.pause(lane, now + Duration::from_secs(u64::from(delay_s)));
            }
            (Ordering::Batch, Dispatch::BlockOnError) => self.nack_batch(lane, verdict, out),
            _ => {
                for _ in 0..span {
                    if let Some(envelope) = self.dequeue(lane) {
                        self.settle(envelope, verdict, out);
                    }
                }
                self.go_on(lane);
            }
        }
    }

    /// Sets aside the heads that have no attempt left. Returns how many.
    fn set_aside_exhausted(&mut self, lane: u32, outcome: Outcome, out: &mut Effects) -> u16 {
        let mut count = 0;
        while count < self.lanes.get(lane).span {
            let head = self.lanes.head(lane);
            if head.attempts_max == 0 || head.attempts < head.attempts_max {
                break;
            }
            count += 1;
            if let Some(envelope) = self.dequeue(lane) {
                let verdict = Verdict::DeadLetter { reason: DeadReason::Exhausted, status: outcome.status };
                self.settle(envelope, verdict, out);
            }
        }
        count
    }

    /// Gives the head back with `verdict` and what follows it of its batch behind it, then goes on.
    /// The broker locks the group until all of them are back, so that its order holds.
    pub(super) fn nack_batch(&mut self, lane: u32, verdict: Verdict, out: &mut Effects) {
        let delay_s = match verdict {
            Verdict::Nack { delay_s, .. } => delay_s.max(self.tuning.cascade_delay_s),
            Verdict::Ack | Verdict::Answered { .. } | Verdict::DeadLetter { .. } => {
                self.tuning.cascade_delay_s
            }
        };
        let reason = if self.is_draining(lane) { NackReason::GivenBack } else { NackReason::Cascade };
        let follow = Verdict::Nack { delay_s, reason };
        let Some(head) = self.dequeue(lane) else { return };
        let (batch, cascades) = (head.batch, head.dispatch == Dispatch::BlockOnError);
        let mut complete = head.flags.has(Flags::LAST_OF_BATCH);
        self.settle(head, verdict, out);
        if cascades {
            while !complete && self.lanes.get(lane).len > 0 && self.lanes.head(lane).batch == batch {
                let Some(envelope) = self.dequeue(lane) else { break };
                complete = envelope.flags.has(Flags::LAST_OF_BATCH);
                self.settle(envelope, follow, out);
            }
            if !complete {
                self.lanes.get_mut(lane).failed = Some((batch, delay_s));
            }
        }
        self.go_on(lane);
    }

    /// The delay with which a newcomer goes back at once, because its batch has failed here.
    pub(super) fn belongs_to_failed_batch(&self, lane: u32, envelope: &Envelope) -> Option<u32> {
        let (batch, delay_s) = self.lanes.get(lane).failed?;
        (batch == envelope.batch).then_some(delay_s)
    }

    /// The rest of a failed batch, coming late.
    pub(super) fn cascade_late(&mut self, lane: u32, envelope: Envelope, delay_s: u32, out: &mut Effects) {
        let complete = envelope.flags.has(Flags::LAST_OF_BATCH);
        self.settle(envelope, Verdict::Nack { delay_s, reason: NackReason::Cascade }, out);
        if complete {
            self.lanes.get_mut(lane).failed = None;
            if self.lanes.get(lane).state == State::Empty {
                self.forget_lane(lane);
            }
        }
    }

    /// The lane's next message, or the lane's end.
    pub(super) fn go_on(&mut self, lane: u32) {
        let state = self.lanes.get_mut(lane);
        if state.len > 0 {
            return self.make_ready(lane);
        }
        state.state = State::Empty;
        state.calls = 0;
        if state.failed.is_none() {
            self.forget_lane(lane);
        }
    }

    pub(super) fn forget_lane(&mut self, lane: u32) {
        let pool = self.lanes.get(lane).key.pool;
        self.pool_mut(pool).lanes -= 1;
        self.lanes.remove(lane);
    }

    /// One notice per target, second and severity: a target that refuses everything must not flood the desk,
    /// and a 501 must not go unheard because of a 404 before it.
    fn notice_refusal(&mut self, id: OriginId, outcome: Outcome, now: Moment, out: &mut Effects) {
        let noticed = &mut self.origins.get_mut(id).noticed[usize::from(outcome.status == 501)];
        if noticed.is_some_and(|at| now.since(at) < NOTICE_EVERY) {
            return;
        }
        *noticed = Some(now);
        let origin = self.origin_name(id);
        out.reports.push(FromShard::Noticed(Box::new(Notice::Refused { origin, outcome })));
    }

    pub(super) fn origin_name(&self, origin: OriginId) -> String {
        String::from_utf8_lossy(&self.origins.get(origin).bytes).into_owned()
    }
}
