//! Groups whose older messages went back to a source that does not lock groups: until the oldest is
//! back, later ones must not run. Pure. Core: the ingress. Bounded: when full, polling stops.
//!
//! - O1: of an owed group only the oldest owed message may run.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashMap;

use crate::clock::Moment;
use crate::model::{IdHash, LaneKey, PoolId, SourceId};

/// A message that went back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owed {
    /// Order of arrival.
    seq: u64,
    id: IdHash,
    source: SourceId,
    /// It went back then.
    since: Moment,
    /// The source shows it again then, at the earliest.
    due: Moment,
    /// We stop waiting for it then.
    expires: Moment,
}

/// What to do with an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Its group is owed nothing: run it.
    Free,
    /// It is the one that was waited for: run it.
    Oldest,
    /// An older one is still out, and due then.
    Wait(Moment),
}

/// All owed messages.
#[derive(Debug, Default)]
pub struct OwedGroups {
    groups: HashMap<LaneKey, VecDeque<Owed>>,
    count: usize,
}

impl OwedGroups {
    /// Messages owed.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// None.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// A message of `lane` went back at `since`; it arrived as number `seq`.
    pub fn owe(
        &mut self,
        lane: LaneKey,
        (source, id): (SourceId, IdHash),
        seq: u64,
        [since, due, expires]: [Moment; 3],
    ) {
        let group = self.groups.entry(lane).or_default();
        if let Some(known) = group.iter_mut().find(|owed| owed.id == id) {
            known.since = since;
            known.due = due;
            known.expires = expires;
            return;
        }
        let at = group.iter().rposition(|owed| owed.seq < seq).map_or(0, |at| at + 1);
        group.insert(at, Owed { seq, id, source, since, due, expires });
        self.count += 1;
    }

    /// May this arrival run?
    #[must_use]
    pub fn claim(&self, lane: LaneKey, id: IdHash) -> Claim {
        match self.groups.get(&lane).and_then(VecDeque::front) {
            None => Claim::Free,
            Some(oldest) if oldest.id == id => Claim::Oldest,
            Some(oldest) => Claim::Wait(oldest.due),
        }
    }

    /// The oldest is back. Returns the id that is the oldest now, if any.
    pub fn pay(&mut self, lane: LaneKey) -> Option<IdHash> {
        let group = self.groups.get_mut(&lane)?;
        if group.pop_front().is_some() {
            self.count -= 1;
        }
        let next = group.front().map(|owed| owed.id);
        if next.is_none() {
            self.groups.remove(&lane);
        }
        next
    }

    /// A message will not run though it is back: it is a twin, or known as delivered. True if the group has
    /// another oldest one now.
    pub fn cancel(&mut self, lane: LaneKey, id: IdHash) -> bool {
        let Some(group) = self.groups.get_mut(&lane) else { return false };
        let Some(at) = group.iter().position(|owed| owed.id == id) else { return false };
        group.remove(at);
        self.count -= 1;
        if group.is_empty() {
            self.groups.remove(&lane);
            return false;
        }
        at == 0
    }

    /// The oldest owed message of a group.
    #[must_use]
    pub fn oldest(&self, lane: LaneKey) -> Option<IdHash> {
        self.groups.get(&lane)?.front().map(|owed| owed.id)
    }

    /// A message of this group is kept here until the oldest is back.
    #[must_use]
    pub fn has_parked(&self, lane: LaneKey) -> bool {
        self.groups.get(&lane).is_some_and(|group| group.iter().any(|owed| owed.expires == Moment::NEVER))
    }

    /// The place in the order of arrival that an owed message had.
    #[must_use]
    pub fn seq(&self, lane: LaneKey, id: IdHash) -> Option<u64> {
        self.groups.get(&lane)?.iter().find(|owed| owed.id == id).map(|owed| owed.seq)
    }

    /// True if each of them went back after `start` and was due by `now`.
    #[must_use]
    pub fn are_all_due(&self, start: Moment, now: Moment) -> bool {
        self.groups.values().flatten().all(|owed| owed.since >= start && owed.due <= now)
    }

    /// A pool is gone, and its lanes with it. True if any of its messages were owed.
    pub fn forget_pool(&mut self, pool: PoolId) -> bool {
        let before = self.groups.len();
        self.groups.retain(|lane, _| lane.pool != pool);
        self.count = self.groups.values().map(VecDeque::len).sum();
        self.groups.len() < before
    }

    /// Gives up on those that did not come back in time. Returns their groups, in order of arrival. While
    /// a source is not asked, the time of its messages does not run: `paused` says for how long.
    pub fn expire(&mut self, now: Moment, paused: impl Fn(SourceId) -> Duration) -> Vec<LaneKey> {
        let mut gone = Vec::new();
        self.groups.retain(|&lane, group| {
            group.retain_mut(|owed| {
                owed.expires = owed.expires + paused(owed.source);
                let keep = owed.expires > now;
                if !keep {
                    gone.push((owed.seq, lane));
                }
                keep
            });
            !group.is_empty()
        });
        self.count -= gone.len();
        gone.sort_unstable();
        gone.into_iter().map(|(_, lane)| lane).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_oldest_owed_message_may_run() {
        let at = |s| Moment::ZERO + Duration::from_secs(s);
        let lane = LaneKey { hash: 1, pool: PoolId(0) };
        let mut owed = OwedGroups::default();
        assert_eq!(owed.claim(lane, IdHash(2)), Claim::Free);
        owed.owe(lane, (SourceId(0), IdHash(2)), 2, [at(0), at(5), at(60)]);
        owed.owe(lane, (SourceId(0), IdHash(1)), 1, [at(0), at(9), at(60)]);
        assert_eq!(owed.claim(lane, IdHash(2)), Claim::Wait(at(9)), "O1: the older one went back later");
        assert_eq!(owed.claim(lane, IdHash(1)), Claim::Oldest);
        assert_eq!(owed.pay(lane), Some(IdHash(2)));
        assert_eq!(owed.claim(lane, IdHash(2)), Claim::Oldest);
        assert!(owed.expire(at(60), |_| Duration::from_secs(1)).is_empty(), "its source was not asked");
        assert_eq!(owed.expire(at(61), |_| Duration::ZERO), [lane]);
        assert!(owed.is_empty());
        owed.owe(lane, (SourceId(0), IdHash(1)), 1, [at(0), at(9), at(60)]);
        owed.owe(lane, (SourceId(0), IdHash(2)), 2, [at(0), at(9), at(60)]);
        assert!(!owed.cancel(lane, IdHash(2)) && !owed.cancel(lane, IdHash(1)) && owed.is_empty());
    }
}
