//! What happens to a batch: dedupe, find each message's pool, find room, send it to its shard.

use super::capacity::DEFAULT_POOL;
use super::owed::Claim;
use super::track::{Newcomer, Stage};
use super::{Arrival, Desk, DeskEffects, RECENT_POOLS, Receipt, Tell, Warning};
use crate::clock::Moment;
use crate::model::{
    BatchId, Dispatch, Envelope, Flags, IdHash, LaneKey, NackReason, Ordering, PoolId, PoolSpec, SourceId,
    ToShard,
};
use std::time::Duration;

/// A broker that counts hand-overs must not be brought within this many of its limit without a try.
const LIMIT_MARGIN: u16 = 2;

/// How long a message waits at its source when there can be no pool for it.
const NO_POOL_WAIT_S: u32 = 30;
/// How long a message waits at its source for an older one that is overdue.
const OWED_WAIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// How long a message waits at its source for a pool that is being replaced.
const DRAIN_WAIT_S: u32 = 30;

/// A new message whose pool and group are known.
struct Candidate {
    arrival: Arrival,
    app_id: IdHash,
    lane: LaneKey,
    /// Giving it back once more could make its broker drop it.
    near: bool,
}

/// A pool's part of a batch.
struct Share {
    pool: PoolId,
    count: u32,
    admitted: u32,
    turned_away: u32,
}

impl Desk {
    /// A source handed over a batch.
    pub fn on_batch(
        &mut self,
        source: SourceId,
        arrivals: impl IntoIterator<Item = Arrival>,
        now: Moment,
        out: &mut DeskEffects,
    ) {
        self.batch = BatchId(self.batch.0.wrapping_add(1));
        let mut shares: Vec<Share> = Vec::new();
        let mut candidates = Vec::new();
        for arrival in arrivals {
            if let Some(candidate) = self.dedupe(source, arrival, now, out) {
                match shares.iter_mut().find(|share| share.pool == candidate.lane.pool) {
                    Some(share) => share.count += 1,
                    None => shares.push(Share {
                        pool: candidate.lane.pool,
                        count: 1,
                        admitted: 0,
                        turned_away: 0,
                    }),
                }
                candidates.push(candidate);
            }
        }
        self.hold_with_near(source, &mut candidates);
        let lease = self.sources[usize::from(source.0)].spec.lease;
        for share in &mut shares {
            let pool = self.pools.get(share.pool);
            share.admitted = pool.map_or(0, |pool| pool.admits(share.count, lease));
            self.note_recent(source, share.pool);
        }
        let first_run = out.runs.len();
        for candidate in candidates {
            self.admit(source, candidate, &mut shares, now, out);
        }
        self.mark_last(first_run, out);
        for share in shares {
            if share.turned_away > 0
                && let Some(pool) = self.pools.get(share.pool)
            {
                let code = String::from_utf8_lossy(&pool.code).into_owned();
                out.warnings.push(Warning::QueueFull { code, count: share.turned_away });
            }
        }
    }

    /// Where the broker locks groups, what goes back takes what follows it in its batch along: if one of
    /// them must not go back, none of that group may.
    fn hold_with_near(&self, source: SourceId, candidates: &mut [Candidate]) {
        let spec = &self.sources[usize::from(source.0)].spec;
        if spec.ordering != Ordering::Batch || spec.deliveries_max.is_none() {
            return;
        }
        let lanes: Vec<LaneKey> = candidates.iter().filter(|it| it.near).map(|it| it.lane).collect();
        for candidate in candidates.iter_mut().filter(|it| lanes.contains(&it.lane)) {
            candidate.near = true;
        }
    }

    fn note_recent(&mut self, source: SourceId, pool: PoolId) {
        let recent = &mut self.sources[usize::from(source.0)].recent;
        if recent.front() == Some(&pool) {
            return;
        }
        recent.retain(|&other| other != pool);
        recent.push_front(pool);
        recent.truncate(RECENT_POOLS);
    }

    /// Physical redeliveries, delivered ids and twins end here; others go on.
    fn dedupe(
        &mut self,
        source: SourceId,
        arrival: Arrival,
        now: Moment,
        out: &mut DeskEffects,
    ) -> Option<Candidate> {
        let receipt = arrival.receipt;
        if let Some(slot) = self.tracker.by_broker_id(arrival.broker_id) {
            let closing =
                matches!(self.tracker.at(slot).stage, Stage::Closing | Stage::SettingAside | Stage::SetAside);
            if self.gave_back && !closing {
                // It went back, and a receive that was under way brought it again: nobody will settle it.
                self.tell(source, receipt, Tell::Nack { delay_s: 0, reason: NackReason::GivenBack }, out);
                return None;
            }
            self.adopt(source, slot, receipt, arrival.deliveries, now, out);
            self.block_behind_adopted(source, slot);
            return None;
        }
        if self.draining {
            // The last receive came in late: straight back, in order.
            self.tell(source, receipt, Tell::Nack { delay_s: 0, reason: NackReason::GivenBack }, out);
            return None;
        }
        if self.completed.contains(arrival.broker_id) {
            if !self.owed.is_empty()
                && let Some(pool) = self.pool_for(arrival.parcel.pool(), now, out)
            {
                self.forget_owed(self.lane_for(source, pool, &arrival), arrival.broker_id, out);
            }
            self.tell(source, receipt, Tell::Ack { ticket: None }, out);
            return None;
        }
        let app_id = self.app_id_of(source, arrival.parcel.id());
        let Some(pool) = self.pool_for(arrival.parcel.pool(), now, out) else {
            // Not even the default pool can be made: the source keeps it until an operator removes pools.
            let tell = Tell::Nack { delay_s: NO_POOL_WAIT_S, reason: NackReason::NoRoom };
            out.tells.push((source, receipt, tell));
            return None;
        };
        let lane = self.lane_for(source, pool, &arrival);
        if let Some(first) = self.first_with(source, app_id) {
            self.chain(source, first, &arrival, app_id, lane, now, out);
            return None;
        }
        let near = self.is_near_limit(source, arrival.deliveries);
        Some(Candidate { arrival, app_id, lane, near })
    }

    /// Where the broker locks groups it hands a group out only when nothing of it is held; if it hands out what
    /// is held here, a lease ran out. What follows in that batch must not run: if the held one fails, its
    /// followers of this batch would not be taken along, and would overtake it.
    fn block_behind_adopted(&mut self, source: SourceId, slot: u32) {
        if self.sources[usize::from(source.0)].spec.ordering == Ordering::Batch {
            let (lane, batch) = (self.tracker.at(slot).lane, self.batch);
            self.groups.entry(lane).or_default().blocked_in = batch;
        }
    }

    /// The same message again: its lease ran out, or the connection was lost. The newest receipt is the
    /// only good one; nothing is sent, because a nack would make it visible while it is being delivered.
    fn adopt(
        &mut self,
        source: SourceId,
        slot: u32,
        receipt: Receipt,
        deliveries: u16,
        now: Moment,
        out: &mut DeskEffects,
    ) {
        #[cfg(feature = "sim")]
        if self.traps.nack_redelivered {
            out.tells.push((source, receipt, Tell::Nack { delay_s: 30, reason: NackReason::Failed }));
            return;
        }
        // A queue's new consumer may bring what the old one handed over: its receipt is told to it.
        if self.tracker.at(slot).source != source {
            self.tracker.unlease(slot);
        }
        let entry = self.tracker.at_mut(slot);
        entry.source = source;
        entry.receipt = receipt;
        entry.deliveries = entry.deliveries.max(deliveries);
        entry.extensions_failed = 0;
        let closing = matches!(entry.stage, Stage::Closing | Stage::SetAside);
        self.start_lease(slot, now);
        if closing {
            let ticket = Some(self.tracker.ticket(slot));
            self.tell(source, receipt, Tell::Ack { ticket }, out);
        }
    }

    /// Another message with the same sender's id: its fate is the first one's.
    #[expect(clippy::too_many_arguments, reason = "all that is known of a twin")]
    fn chain(
        &mut self,
        source: SourceId,
        first: u32,
        arrival: &Arrival,
        app_id: IdHash,
        lane: LaneKey,
        now: Moment,
        out: &mut DeskEffects,
    ) {
        let stage = self.tracker.at(first).stage;
        if matches!(stage, Stage::SettingAside | Stage::SetAside) {
            return self.turn_away(source, arrival, lane, 1, NackReason::Twin, now, out);
        }
        if stage == Stage::Parked {
            self.take_place(first, lane, arrival.broker_id, now, out);
        } else {
            self.forget_owed(lane, arrival.broker_id, out);
        }
        let delivered = stage == Stage::Closing;
        if self.tuning.ack_requeued || delivered {
            self.tell(source, arrival.receipt, Tell::Ack { ticket: None }, out);
            return;
        }
        let slot = self.tracker.hold(
            Newcomer {
                broker_id: arrival.broker_id,
                app_id,
                receipt: arrival.receipt,
                lane,
                source,
                bytes: 0,
                deliveries: arrival.deliveries,
                blocks: self.blocks(source, arrival.dispatch),
            },
            Some(first),
            now,
        );
        self.start_lease(slot, now);
    }

    fn blocks(&self, source: SourceId, dispatch: Dispatch) -> bool {
        let ordering = self.sources[usize::from(source.0)].spec.ordering;
        ordering == Ordering::Strict && dispatch == Dispatch::BlockOnError
    }

    fn pool_for(&mut self, code: &[u8], now: Moment, out: &mut DeskEffects) -> Option<PoolId> {
        if let Some(id) = self.pools.find(code) {
            let leaving =
                self.pools.get(id).is_some_and(|pool| pool.draining > 0 && pool.successor.is_none());
            if !leaving {
                return Some(id);
            }
        }
        self.default_used += 1;
        if !code.is_empty() {
            out.warnings.push(Warning::Routing { code: String::from_utf8_lossy(code).into_owned() });
        }
        let fallback = DEFAULT_POOL.as_bytes();
        if self.pools.find(fallback).is_none() {
            self.set_pool(fallback, PoolSpec::new(PoolSpec::DEFAULT_CONCURRENCY), now, out);
        }
        self.pools.find(fallback)
    }

    fn lane_for(&self, source: SourceId, pool: PoolId, arrival: &Arrival) -> LaneKey {
        let ordering = self.sources[usize::from(source.0)].spec.ordering;
        let group = arrival.parcel.group();
        let parallel = self.pools.get(pool).is_some_and(|pool| pool.spec.ungrouped_parallel);
        let alone = ordering == Ordering::None
            || arrival.dispatch == Dispatch::Immediate
            || (group.is_empty() && parallel);
        if alone { self.hasher.lane_of_one(pool, arrival.broker_id) } else { self.hasher.lane(pool, group) }
    }

    fn admit(
        &mut self,
        source: SourceId,
        candidate: Candidate,
        shares: &mut [Share],
        now: Moment,
        out: &mut DeskEffects,
    ) {
        let Candidate { arrival, app_id, lane, near } = candidate;
        // The same hand-over twice in one batch: the first is held by now.
        if let Some(slot) = self.tracker.by_broker_id(arrival.broker_id) {
            return self.adopt(source, slot, arrival.receipt, arrival.deliveries, now, out);
        }
        // A second one in the same batch: the first is held by now.
        if let Some(first) = self.first_with(source, app_id) {
            return self.chain(source, first, &arrival, app_id, lane, now, out);
        }
        let spec = self.sources[usize::from(source.0)].spec;
        let claim = if self.blocks(source, arrival.dispatch) {
            self.owed.claim(lane, arrival.broker_id)
        } else {
            Claim::Free
        };
        let Some(share) = shares.iter_mut().find(|share| share.pool == lane.pool) else { return };
        if self.pools.get(lane.pool).is_some_and(|pool| pool.draining > 0) {
            // Its successor is not there yet, and the shards give back whatever comes.
            return self.turn_away(source, &arrival, lane, DRAIN_WAIT_S, NackReason::GivenBack, now, out);
        }
        if let Claim::Wait(due) = claim {
            if near {
                return self.park(source, arrival, app_id, lane, now, out);
            }
            // One that is overdue is waited for ever longer: each look costs the later ones a hand-over.
            let overdue = now.since(due).clamp(OWED_WAIT.0, OWED_WAIT.1);
            let wait = due.since(now).max(overdue);
            let delay_s = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX).saturating_add(1);
            return self.turn_away(source, &arrival, lane, delay_s, NackReason::Owed, now, out);
        }
        let blocked = self.groups.get(&lane).is_some_and(|group| group.blocked_in == self.batch);
        let full = share.admitted == 0;
        let fits = !full && !blocked && self.has_room(&arrival, lane);
        // The one that parked messages wait for comes in, because they hold room until it does.
        let unparks = claim == Claim::Oldest && !self.parked.is_empty() && self.owed.has_parked(lane);
        if !fits && !near && !unparks {
            share.turned_away += 1;
            let delay_s = match self.pools.get(lane.pool) {
                Some(pool) if full => pool.room_wait_s(share.count),
                // The group has its fill, not the pool. A lock keeps it at the broker until that is done.
                _ if spec.ordering == Ordering::Batch => 0,
                _ => 1,
            };
            return self.turn_away(source, &arrival, lane, delay_s, NackReason::NoRoom, now, out);
        }
        if near && !fits {
            out.warnings.push(Warning::NearLimit { source });
        }
        share.admitted = share.admitted.saturating_sub(1);
        let seq = self.owed.seq(lane, arrival.broker_id);
        let envelope = self.take_in(source, arrival, app_id, lane, near, now);
        if let Some(seq) = seq
            && let Some(slot) = self.tracker.slot(envelope.ticket)
        {
            self.tracker.at_mut(slot).seq = seq;
        }
        out.runs.push((self.shard_of(lane), ToShard::Run(envelope)));
        if claim == Claim::Oldest {
            self.unpark_next(lane, out);
        }
    }

    /// Room in the process and in the group. A single message always finds room in an empty process.
    fn has_room(&self, arrival: &Arrival, lane: LaneKey) -> bool {
        let bytes = self.bytes + arrival.parcel.bytes();
        if bytes > self.tuning.memory_budget && self.bytes > 0 {
            return false;
        }
        let Some(group) = self.groups.get(&lane) else { return true };
        let max = self
            .tuning
            .group_buffer_max
            .unwrap_or_else(|| self.pools.get(lane.pool).map_or(1, |pool| (pool.spec.capacity() / 2).max(1)));
        group.held < max
    }

    /// True if giving the message back once more could make its broker drop it.
    pub(super) fn is_near_limit(&self, source: SourceId, deliveries: u16) -> bool {
        #[cfg(feature = "sim")]
        if self.traps.nack_as_backpressure {
            return false;
        }
        let max = self.sources[usize::from(source.0)].spec.deliveries_max;
        max.is_some_and(|max| deliveries.saturating_add(LIMIT_MARGIN) >= max)
    }

    #[expect(clippy::too_many_arguments, reason = "all that a give-back needs")]
    fn turn_away(
        &mut self,
        source: SourceId,
        arrival: &Arrival,
        lane: LaneKey,
        delay_s: u32,
        reason: NackReason,
        now: Moment,
        out: &mut DeskEffects,
    ) {
        let spec = self.sources[usize::from(source.0)].spec;
        match spec.ordering {
            Ordering::Strict if arrival.dispatch == Dispatch::BlockOnError => {
                self.tracker.count_arrival();
                let seq = self.tracker.seq();
                self.owe(source, lane, arrival.broker_id, seq, delay_s, now);
            }
            // What follows of this group in the batch must not overtake it.
            Ordering::Batch => {
                let group = self.groups.entry(lane).or_default();
                group.blocked_in = self.batch;
            }
            _ => {}
        }
        let attempts = self.tries_of(arrival.broker_id, arrival.deliveries);
        self.remember_tries(source, arrival.broker_id, attempts, delay_s, now);
        self.count_nack(lane.pool, reason);
        self.tell(source, arrival.receipt, Tell::Nack { delay_s, reason }, out);
    }

    /// Tells a source, unless the receipt is of a connection that is gone (D4): then the broker has the
    /// message back, and hands it over again.
    fn tell(&self, source: SourceId, receipt: Receipt, tell: Tell, out: &mut DeskEffects) {
        if self.is_live(source, receipt) {
            out.tells.push((source, receipt, tell));
        }
    }

    /// Holds a new message and makes its envelope.
    pub(super) fn take_in(
        &mut self,
        source: SourceId,
        arrival: Arrival,
        app_id: IdHash,
        lane: LaneKey,
        near: bool,
        now: Moment,
    ) -> Envelope {
        let bytes = arrival.parcel.bytes();
        let spec = self.sources[usize::from(source.0)].spec;
        let slot = self.tracker.hold(
            Newcomer {
                broker_id: arrival.broker_id,
                app_id,
                receipt: arrival.receipt,
                lane,
                source,
                bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
                deliveries: arrival.deliveries,
                blocks: self.blocks(source, arrival.dispatch),
            },
            None,
            now,
        );
        self.start_lease(slot, now);
        self.bytes += bytes;
        let group = self.groups.entry(lane).or_default();
        group.held += 1;
        let is_first = group.held == 1;
        if let Some(pool) = self.pools.get_mut(lane.pool) {
            pool.on_admitted(is_first, now);
        }
        let mut flags = Flags::default();
        if arrival.high_priority {
            flags = flags.with(Flags::HIGH_PRIORITY);
        }
        if near {
            flags = flags.with(Flags::NEAR_LIMIT);
        }
        if spec.judges {
            flags = flags.with(Flags::JUDGED_BY_SOURCE);
        }
        if spec.holds_permits {
            flags = flags.with(Flags::HOLDS_PERMIT);
        }
        Envelope {
            parcel: arrival.parcel,
            ticket: self.tracker.ticket(slot),
            lane,
            batch: self.batch,
            attempts: self.tries_of(arrival.broker_id, arrival.deliveries),
            attempts_max: spec.attempts_max,
            ordering: spec.ordering,
            dispatch: arrival.dispatch,
            flags,
        }
    }

    /// Marks the last message of each group in this batch, so that a shard knows when a failed batch is complete.
    fn mark_last(&mut self, first_run: usize, out: &mut DeskEffects) {
        for (_, run) in out.runs[first_run..].iter_mut().rev() {
            let ToShard::Run(envelope) = run else { continue };
            if envelope.ordering != Ordering::Batch {
                continue;
            }
            if let Some(group) = self.groups.get_mut(&envelope.lane)
                && group.last_of != self.batch
            {
                group.last_of = self.batch;
                envelope.flags = envelope.flags.with(Flags::LAST_OF_BATCH);
            }
        }
        // Groups that were only turned away left a note for this batch and nothing else.
        if self.groups.len() > self.tracker.len() {
            self.groups.retain(|_, group| group.held > 0);
        }
    }
}
