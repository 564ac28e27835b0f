//! What becomes of a message that a shard is done with.

use super::track::Stage;
use super::{Desk, DeskEffects, Tell};
use crate::clock::Moment;
use crate::model::{Envelope, Flags, LaneKey, NackReason, Outcome, Settlement, Ticket, ToShard, Verdict};

impl Desk {
    /// A shard is done with a message: tell its source, and make room.
    pub fn on_settled(&mut self, settlement: Settlement, now: Moment, out: &mut DeskEffects) {
        let Settlement { envelope, verdict } = settlement;
        let holds_permit = verdict == Verdict::Ack && envelope.flags.has(Flags::HOLDS_PERMIT);
        let Some(slot) = self.tracker.slot(envelope.ticket) else {
            if holds_permit {
                self.free_permit(envelope.lane, out);
            }
            return;
        };
        self.tracker.at_mut(slot).holds_permit = holds_permit;
        self.make_room(slot, now);
        let entry = self.tracker.at(slot);
        let (source, id) = (entry.source, entry.broker_id);
        if entry.giving_back && !matches!(verdict, Verdict::Nack { .. }) {
            let lane = entry.lane;
            self.forget_owed(lane, id, out);
        }
        match verdict {
            Verdict::Ack => {
                let ticket = Some(envelope.ticket);
                self.close(slot, Tell::Ack { ticket }, now, out);
            }
            Verdict::DeadLetter { reason, status } => {
                let Envelope { parcel, ticket, attempts, dispatch, flags, .. } = envelope;
                let high_priority = flags.has(Flags::HIGH_PRIORITY);
                self.remember_tries(source, id, attempts, 0, now);
                let tell =
                    Tell::DeadLetter { ticket, parcel, reason, status, attempts, dispatch, high_priority };
                self.close(slot, tell, now, out);
            }
            Verdict::Answered { result, fault, status } => {
                self.answer_slot(slot, Outcome::failed(result, fault, status, 0), now, out);
            }
            Verdict::Nack { delay_s, reason } => {
                self.remember_tries(source, id, envelope.attempts, delay_s, now);
                self.nack_slot(slot, delay_s, reason, now, out);
            }
        }
    }

    fn make_room(&mut self, slot: u32, now: Moment) {
        let entry = self.tracker.at(slot);
        let lane = entry.lane;
        self.bytes -= entry.bytes as usize;
        let mut was_last = false;
        if let Some(group) = self.groups.get_mut(&lane) {
            group.held -= 1;
            was_last = group.held == 0;
            if was_last {
                self.groups.remove(&lane);
            }
        }
        if let Some(pool) = self.pools.get_mut(lane.pool) {
            pool.on_settled(was_last, now);
        }
    }

    /// Delivered or set aside: tell the source, and keep the entry until it confirms.
    fn close(&mut self, slot: u32, tell: Tell, now: Moment, out: &mut DeskEffects) {
        let entry = self.tracker.at(slot);
        let (source, receipt) = (entry.source, entry.receipt);
        let delivered = matches!(tell, Tell::Ack { .. });
        while let Some(twin) = self.tracker.take_twin(slot) {
            if delivered {
                let ticket = Some(self.tracker.ticket(twin));
                self.close(twin, Tell::Ack { ticket }, now, out);
            } else {
                self.nack_slot(twin, 0, NackReason::Twin, now, out);
            }
        }
        if delivered {
            let entry = self.tracker.at_mut(slot);
            entry.stage = Stage::Closing;
            if let Some(pool) = self.pools.get_mut(entry.lane.pool).filter(|_| !entry.holds_permit) {
                pool.unkept += 1;
            }
            self.tracker.unlease(slot);
        } else {
            self.tracker.at_mut(slot).stage = Stage::SettingAside;
        }
        // A dead letter is written whatever the receipt; an ack of another epoch is not sent: the broker
        // hands the message over again, and then it is acked without a call.
        if self.is_live(source, receipt) || !delivered {
            out.tells.push((source, receipt, tell));
        } else {
            let ticket = self.tracker.ticket(slot);
            self.on_closed(ticket, false, now, out);
        }
    }

    /// A source answered an ack, or a dead letter was written and acked. Not done: the ack was lost, so
    /// the id is remembered and acked again when the message comes back.
    pub fn on_closed(&mut self, ticket: Ticket, done: bool, now: Moment, out: &mut DeskEffects) {
        let Some(slot) = self.tracker.slot(ticket) else { return };
        let entry = self.tracker.at(slot);
        let (source, receipt) = (entry.source, entry.receipt);
        if !done && entry.stage == Stage::SettingAside && self.is_live(source, receipt) {
            // Written, but not forgotten: it may have been handed over again meanwhile. Ack the newest.
            self.tracker.at_mut(slot).stage = Stage::SetAside;
            out.tells.push((source, receipt, Tell::Ack { ticket: Some(ticket) }));
            return;
        }
        let repeats = self.sources[usize::from(source.0)].spec.repeats;
        let until = now + self.lease_of(source) * 2;
        let entry = self.tracker.release(slot);
        if entry.holds_permit {
            self.free_permit(entry.lane, out);
        // The pool may have been removed meanwhile, and another may have its number.
        } else if let Some(pool) =
            self.pools.get_mut(entry.lane.pool).filter(|_| entry.stage == Stage::Closing)
        {
            pool.unkept = pool.unkept.saturating_sub(1);
        }
        if !done || repeats || !self.is_live(source, entry.receipt) {
            self.completed.remember(entry.broker_id, until);
        }
    }

    /// An ack is kept, or lost for good: the permit that its shard holds for it is free. A pool is not gone before.
    fn free_permit(&self, lane: LaneKey, out: &mut DeskEffects) {
        let shard = self.shard_of(lane);
        for (to, run) in out.runs.iter_mut().rev() {
            let ToShard::Kept { pool, count } = run else { break };
            if *to == shard && *pool == lane.pool {
                *count += 1;
                return;
            }
        }
        out.runs.push((shard, ToShard::Kept { pool: lane.pool, count: 1 }));
    }

    /// The dead-letter store could not take a message: back to its source, not dropped.
    pub fn on_dead_letter_failed(
        &mut self,
        ticket: Ticket,
        delay_s: u32,
        now: Moment,
        out: &mut DeskEffects,
    ) {
        let Some(slot) = self.tracker.slot(ticket) else { return };
        self.nack_slot(slot, delay_s, NackReason::Failed, now, out);
    }

    fn nack_slot(&mut self, slot: u32, delay_s: u32, reason: NackReason, now: Moment, out: &mut DeskEffects) {
        while let Some(twin) = self.tracker.take_twin(slot) {
            self.nack_slot(twin, delay_s, NackReason::Twin, now, out);
        }
        let entry = self.tracker.release(slot);
        self.count_nack(entry.lane.pool, reason);
        if reason == NackReason::Twin {
            let tries = self.tries_of(entry.broker_id, entry.deliveries);
            self.remember_tries(entry.source, entry.broker_id, tries, delay_s, now);
        }
        if entry.blocks {
            self.owe(entry.source, entry.lane, entry.broker_id, entry.seq, delay_s, now);
        }
        if self.is_live(entry.source, entry.receipt) {
            out.tells.push((entry.source, entry.receipt, Tell::Nack { delay_s, reason }));
        }
    }

    /// The source judges: for the desk the message is gone. It comes back as another one, if at all.
    fn answer_slot(&mut self, slot: u32, outcome: Outcome, now: Moment, out: &mut DeskEffects) {
        while let Some(twin) = self.tracker.take_twin(slot) {
            self.nack_slot(twin, 0, NackReason::Twin, now, out);
        }
        let entry = self.tracker.release(slot);
        self.count_nack(entry.lane.pool, NackReason::Failed);
        if self.is_live(entry.source, entry.receipt) {
            out.tells.push((entry.source, entry.receipt, Tell::Answered { outcome }));
        }
    }

    /// Gives back messages that were parked, in order of arrival. They stay owed.
    pub(super) fn give_back_parked(&mut self, parked: &[Envelope], now: Moment, out: &mut DeskEffects) {
        let slots = parked.iter().filter_map(|envelope| self.tracker.slot(envelope.ticket));
        let mut slots: Vec<u32> = slots.collect();
        slots.sort_unstable_by_key(|&slot| self.tracker.at(slot).seq);
        for slot in slots {
            let entry = self.tracker.at(slot);
            let (source, id) = (entry.source, entry.broker_id);
            self.remember_tries(source, id, self.tries_of(id, entry.deliveries), 0, now);
            self.make_room(slot, now);
            self.nack_slot(slot, 0, NackReason::GivenBack, now, out);
        }
    }

    /// Gives back all that is left, oldest first: the process ends now, whatever is still running.
    pub fn give_back_rest(&mut self, out: &mut DeskEffects) {
        self.gave_back = true;
        for slot in self.tracker.in_order() {
            let entry = self.tracker.at(slot);
            let closing = matches!(entry.stage, Stage::Closing | Stage::SettingAside | Stage::SetAside);
            if !closing && self.is_live(entry.source, entry.receipt) {
                let tell = Tell::Nack { delay_s: 0, reason: NackReason::GivenBack };
                out.tells.push((entry.source, entry.receipt, tell));
            }
        }
    }
}
