//! Messages that later ones of their group must wait for, and those that wait here because their broker
//! would drop them if they went back once more. Core: the ingress.

use super::track::Stage;
use super::{Arrival, Desk, DeskEffects, LEASE_ASSUMED, Warning};
use crate::clock::Moment;
use crate::model::{IdHash, LaneKey, SourceId, ToShard};
use std::time::Duration;

impl Desk {
    /// A twin of a parked message is back. If the twin's place in its group is the older one, the parked
    /// message takes it: the two are one delivery, and others wait for the older place.
    pub(super) fn take_place(
        &mut self,
        parked: u32,
        lane: LaneKey,
        twin: IdHash,
        now: Moment,
        out: &mut DeskEffects,
    ) {
        let Some(seq) = self.owed.seq(lane, twin) else { return };
        self.owed.cancel(lane, twin);
        let entry = self.tracker.at_mut(parked);
        if entry.lane == lane && seq < entry.seq {
            entry.seq = seq;
            let known = (entry.source, entry.broker_id);
            self.owed.cancel(lane, known.1);
            self.owed.owe(lane, known, seq, [now, now, Moment::NEVER]);
        }
        self.unpark_first(lane, out);
    }

    /// A message that was waited for is back but does not run.
    pub(super) fn forget_owed(&mut self, lane: LaneKey, id: IdHash, out: &mut DeskEffects) {
        if self.owed.cancel(lane, id) {
            self.unpark_first(lane, out);
        }
    }

    /// Keeps a message here until the older ones of its group are back.
    pub(super) fn park(
        &mut self,
        source: SourceId,
        arrival: Arrival,
        app_id: IdHash,
        lane: LaneKey,
        now: Moment,
        out: &mut DeskEffects,
    ) {
        out.warnings.push(Warning::NearLimit { source });
        let broker_id = arrival.broker_id;
        let envelope = self.take_in(source, arrival, app_id, lane, true, now);
        if let Some(slot) = self.tracker.slot(envelope.ticket) {
            let seq = self.owed.seq(lane, broker_id).unwrap_or(self.tracker.at(slot).seq);
            let entry = self.tracker.at_mut(slot);
            entry.stage = Stage::Parked;
            entry.seq = seq;
            // It keeps its place among the owed ones; only the wait for its return is without end.
            self.owed.owe(lane, (source, broker_id), seq, [now, now, Moment::NEVER]);
        }
        self.parked.insert(broker_id, envelope);
    }

    /// The oldest owed message is back: those parked right behind it may go too.
    pub(super) fn unpark_next(&mut self, lane: LaneKey, out: &mut DeskEffects) {
        let mut next = self.owed.pay(lane);
        while let Some(id) = next {
            if !self.unpark(lane, id, out) {
                return;
            }
            next = self.owed.pay(lane);
        }
    }

    /// Lets a parked message of this lane go. False if it is not parked here: its pool's code may lead to
    /// another pool by now, so that it is parked in that one's lane and this entry is a leftover.
    fn unpark(&mut self, lane: LaneKey, id: IdHash, out: &mut DeskEffects) -> bool {
        if self.parked.get(&id).is_none_or(|envelope| envelope.lane != lane) {
            return false;
        }
        let Some(envelope) = self.parked.remove(&id) else { return false };
        if let Some(slot) = self.tracker.slot(envelope.ticket) {
            self.tracker.at_mut(slot).stage = Stage::Out;
        }
        out.runs.push((self.shard_of(lane), ToShard::Run(envelope)));
        true
    }

    /// A shard is asked to give a message back: from now on later ones of its group wait for it, because
    /// they could reach the shard after it has left.
    pub(super) fn owe_ahead(&mut self, slot: u32, now: Moment) {
        let entry = self.tracker.at_mut(slot);
        if entry.blocks && !entry.giving_back {
            entry.giving_back = true;
            let (lane, known, seq) = (entry.lane, (entry.source, entry.broker_id), entry.seq);
            self.owed.owe(lane, known, seq, [now, now, Moment::NEVER]);
        }
    }

    /// After older ones were given up: a parked message may be the oldest now.
    pub(super) fn unpark_first(&mut self, lane: LaneKey, out: &mut DeskEffects) {
        if let Some(id) = self.owed.oldest(lane)
            && self.unpark(lane, id, out)
        {
            self.unpark_next(lane, out);
        }
    }

    /// Remembers that a message went back, so that later ones of its group wait for it.
    pub(super) fn owe(
        &mut self,
        source: SourceId,
        lane: LaneKey,
        id: IdHash,
        seq: u64,
        delay_s: u32,
        now: Moment,
    ) {
        let due = now + Duration::from_secs(u64::from(delay_s));
        let lease = self.sources[usize::from(source.0)].spec.lease.unwrap_or(LEASE_ASSUMED);
        self.owed.owe(lane, (source, id), seq, [now, due, due + lease * 2]);
    }
}
