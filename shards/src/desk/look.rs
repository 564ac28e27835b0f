//! Answers what people ask of the desk: which messages and groups it holds. Each question walks all that
//! is held, so they are for people, not for the hot path.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::Desk;
use super::track::{Entry, Stage};
use crate::clock::Moment;
use crate::model::{LaneKey, NackReason, PoolId, SourceId, Ticket, Wanted};

impl Desk {
    /// The slot of the message with this sender's id.
    #[must_use]
    pub fn find(&self, id: &[u8]) -> Option<u32> {
        let sources = (0..self.sources.len()).filter_map(|at| u16::try_from(at).ok().map(SourceId));
        let mut ids = sources.map(|source| self.app_id_of(source, id));
        self.tracker
            .by_app_id(self.hasher.app_id(id))
            .or_else(|| ids.find_map(|id| self.tracker.by_app_id(id)))
    }

    /// The lanes of this group that have messages, one per pool that has any.
    #[must_use]
    pub fn lanes_of(&self, group: &[u8]) -> Vec<LaneKey> {
        let lanes = self.pools.iter().map(|(pool, _)| self.hasher.lane(pool, group));
        lanes.filter(|lane| self.groups.get(lane).is_some_and(|group| group.held > 0)).collect()
    }

    /// The groups with the most messages, and how many they have.
    #[must_use]
    pub fn deepest(&self, max: usize) -> Vec<(LaneKey, u32)> {
        let mut top: BinaryHeap<Reverse<(u32, LaneKey)>> = BinaryHeap::with_capacity(max + 1);
        for (&lane, group) in self.groups.iter().filter(|(_, group)| group.held > 0) {
            top.push(Reverse((group.held, lane)));
            if top.len() > max {
                top.pop();
            }
        }
        let mut top: Vec<_> = top.into_iter().map(|Reverse((held, lane))| (lane, held)).collect();
        top.sort_unstable_by_key(|&(lane, held)| (Reverse(held), lane));
        top
    }

    /// The messages that have been here longest, oldest first.
    #[must_use]
    pub fn oldest(&self, max: usize) -> Vec<u32> {
        self.tracker.oldest(max)
    }

    /// What to ask the message's shard for; `None` if no shard has it.
    #[must_use]
    pub fn wanted(&self, slot: u32) -> Option<Wanted> {
        let entry = self.tracker.at(slot);
        let with_shard = entry.stage == Stage::Out;
        with_shard.then(|| Wanted { lane: entry.lane, ticket: Some(self.tracker.ticket(slot)) })
    }

    /// A pool in use.
    #[must_use]
    pub fn pool(&self, id: PoolId) -> Option<&super::PoolDesk> {
        self.pools.get(id)
    }

    /// The message with this ticket, if it is still held.
    #[must_use]
    pub fn entry(&self, ticket: Ticket) -> Option<&Entry> {
        self.tracker.slot(ticket).map(|slot| self.tracker.at(slot))
    }

    /// Which shard a lane is on.
    #[must_use]
    pub const fn shard_for(&self, lane: LaneKey) -> crate::model::ShardId {
        self.shard_of(lane)
    }

    /// Time left of the lease that ends first among those that come up for extension next.
    #[must_use]
    pub fn lease_slack(&self, now: Moment) -> Option<Duration> {
        let sources = 0..u16::try_from(self.sources.len()).unwrap_or(u16::MAX);
        let firsts = sources.filter_map(|source| self.tracker.next_lease(crate::model::SourceId(source)));
        firsts.map(|slot| self.tracker.at(slot).lease_until.since(now)).min()
    }

    /// Messages whose pool was unknown or none.
    #[must_use]
    pub const fn default_used(&self) -> u64 {
        self.default_used
    }

    pub(super) fn count_nack(&mut self, pool: PoolId, reason: NackReason) {
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.nacked[reason as usize] += 1;
        }
    }
}
