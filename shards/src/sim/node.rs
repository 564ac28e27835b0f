//! One shard's loop, in the order of `shards/src/drive.rs`: calls that ended, events, timers, starts, reports.

use std::time::Duration;

use super::faults::Fault;
use super::process::{Call, FULL_RING_LOOK, Node, SLEEP_MAX, number_of, put_back};
use super::world::{Event, World};
use crate::clock::Moment;
use crate::model::{CallId, FromShard, Outcome};

impl World {
    /// One turn of a shard's loop.
    pub(super) fn shard_turn(&mut self, shard: usize) {
        let Some(mut process) = self.process.take() else { return };
        let mut node = process.nodes.swap_remove(shard);
        if node.at > self.now && node.done.is_empty() {
            put_back(&mut process, node, shard);
            self.process = Some(process);
            return;
        }
        node.at = Moment::NEVER;
        let Node { shard: state, effects, done, events, backlog, .. } = &mut node;
        for (call, outcome) in done.drain(..) {
            state.on_done(call, outcome, self.now, effects);
        }
        if backlog.is_empty() {
            while let Some(event) = events.pop_front() {
                state.on_event(event, self.now, effects);
            }
        }
        state.on_time(self.now, effects);
        state.start_ready(self.now, effects);
        self.start_calls(&mut node, shard);
        let reported = self.report(&mut node);
        let wake = std::mem::take(&mut node.effects.wake);
        let pause = if node.backlog.is_empty() { SLEEP_MAX } else { FULL_RING_LOOK };
        let soon = self.now + Duration::from_micros(5);
        let due = node.shard.next_deadline().unwrap_or(Moment::NEVER).max(soon);
        let due = if node.shard.was_handed_permits() { soon } else { due };
        self.wake_shard(&mut node, shard, due.min(self.now + pause));
        put_back(&mut process, node, shard);
        for other in 0..process.nodes.len() {
            if wake >> other & 1 == 1 {
                let at = self.hop();
                self.wake_shard(&mut process.nodes[other], other, at);
            }
        }
        if reported {
            let at = self.hop();
            self.wake_desk(&mut process, at);
        }
        self.process = Some(process);
    }

    fn start_calls(&mut self, node: &mut Node, shard: usize) {
        for call in node.effects.calls.drain(..) {
            let first = node.shard.call(call).first;
            let messages: Vec<u32> =
                std::iter::once(first).chain(node.shard.riders(call)).map(number_of).collect();
            let ordered = self.oracle.is_ordered(&self.plan, messages[0]);
            self.oracle.on_call(&self.plan, &messages, ordered);
            self.note(u64::from(messages[0]) << 8 | 3);
            let target = usize::from(self.plan.drafts[messages[0] as usize].target);
            let (took, outcome) = self.targets.call(target, self.now, &mut self.faults, &mut self.rng);
            let at = call.0 as usize;
            if node.calls.len() <= at {
                node.calls.resize_with(at + 1, || None);
            }
            node.calls[at] = Some(Call { messages, ordered });
            self.schedule(self.now + took, Event::Done { life: self.life, shard, call, outcome });
        }
        for origin in node.effects.idle_origins.drain(..) {
            node.shard.forget_origin(origin);
        }
    }

    /// Sends reports to the desk as far as the ring has room. True if it got any.
    fn report(&mut self, node: &mut Node) -> bool {
        for report in node.effects.reports.drain(..) {
            if let FromShard::Settled(settlement) = &report {
                let envelope = &settlement.envelope;
                let message = number_of(&envelope.parcel);
                self.oracle.on_settled(
                    &self.plan,
                    message,
                    envelope.ticket,
                    settlement.verdict,
                    envelope.attempts,
                );
            }
            node.backlog.push_back(report);
        }
        let before = node.reports.len();
        while node.reports.len() < self.plan.ring_slots.1
            && let Some(report) = node.backlog.pop_front()
        {
            node.reports.push_back(report);
        }
        if !node.backlog.is_empty() {
            self.faults.count(Fault::RingFull);
        }
        node.reports.len() > before
    }

    /// A call ended.
    pub(super) fn on_done(&mut self, shard: usize, call: CallId, outcome: Outcome) {
        let Some(process) = self.process.as_mut() else { return };
        let node = &mut process.nodes[shard];
        let Some(Call { messages, ordered }) = node.calls[call.0 as usize].take() else { return };
        node.done.push((call, outcome));
        self.oracle.on_done(&self.plan, &messages, ordered, outcome);
        self.shard_turn(shard);
    }
}
