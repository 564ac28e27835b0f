//! Ids that were delivered and may come again, because the ack was lost or the broker repeats itself.
//! Pure. Core: the ingress. Bounded: the oldest make room.
//!
//! Two sets: ids go into the younger one, and when the first of those is past its time, or the set is full, it becomes the
//! older one and the set before it is forgotten. An id is kept for its time or a little longer, without a list of who
//! goes when: a quarter of the memory (ADR 0009).

use std::mem;

use hashbrown::HashTable;

use crate::clock::Moment;
use crate::model::IdHash;

/// Remembers ids until their time is up.
#[derive(Debug)]
pub struct Completed {
    younger: Set,
    older: Set,
    /// Ids of one set at most: a table of a power of two is then as full as it may be.
    set_max: usize,
}

/// Ids that are forgotten together.
#[derive(Debug)]
struct Set {
    table: HashTable<IdHash>,
    /// The time of the first is up then, and that of all.
    times: (Moment, Moment),
}

impl Default for Set {
    fn default() -> Self {
        Self { table: HashTable::new(), times: (Moment::NEVER, Moment::ZERO) }
    }
}

impl Set {
    fn contains(&self, id: IdHash) -> bool {
        self.table.find(half(&id), |&other| other == id).is_some()
    }

    fn is_over(&self, now: Moment) -> bool {
        self.times.1 <= now
    }
}

#[expect(clippy::cast_possible_truncation, reason = "half of a 128-bit hash is a 64-bit hash")]
const fn half(id: &IdHash) -> u64 {
    id.0 as u64
}

impl Completed {
    /// Remembers at most `max` ids.
    #[must_use]
    pub fn new(max: usize) -> Self {
        let set_max = if max < 16 { max / 2 } else { max / 16 * 7 };
        Self { younger: Set::default(), older: Set::default(), set_max }
    }

    /// Remembers `id` until `until`, or a little longer.
    pub fn remember(&mut self, id: IdHash, until: Moment) {
        if self.contains(id) || self.set_max == 0 {
            return;
        }
        if self.younger.table.len() >= self.set_max {
            // The table of the older one is used again: a full memory allocates nothing.
            mem::swap(&mut self.younger, &mut self.older);
            self.younger.table.clear();
            self.younger.times = Set::default().times;
        }
        let Set { table, times: (first, last) } = &mut self.younger;
        (*first, *last) = (until.min(*first), until.max(*last));
        table.insert_unique(half(&id), id, half);
    }

    /// It was delivered.
    #[must_use]
    pub fn contains(&self, id: IdHash) -> bool {
        self.younger.contains(id) || self.older.contains(id)
    }

    /// Forgets what is past its time.
    pub fn expire(&mut self, now: Moment) {
        if self.older.is_over(now) && !self.older.table.is_empty() {
            self.older = Set::default();
        }
        if self.younger.times.0 <= now && self.older.table.is_empty() {
            self.older = mem::take(&mut self.younger);
            self.expire(now);
        }
    }

    /// Ids remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.younger.table.len() + self.older.table.len()
    }

    /// None.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(s: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(s)
    }

    #[test]
    fn an_id_is_remembered_until_its_time_or_until_there_is_no_room() {
        let mut completed = Completed::new(4);
        completed.remember(IdHash(1), at(10));
        completed.remember(IdHash(2), at(20));
        completed.expire(at(10));
        assert!(completed.contains(IdHash(2)), "its time is not up");
        completed.remember(IdHash(3), at(30));
        completed.expire(at(20));
        assert!(
            !completed.contains(IdHash(1)) && !completed.contains(IdHash(2)) && completed.contains(IdHash(3))
        );
        for id in 4..=6 {
            completed.remember(IdHash(id), at(40));
        }
        assert_eq!(completed.len(), 4, "full");
        completed.remember(IdHash(7), at(40));
        assert!(!completed.contains(IdHash(3)) && !completed.contains(IdHash(4)), "the oldest made room");
        assert!((5..=7).all(|id| completed.contains(IdHash(id))));
        completed.expire(at(40));
        assert!(completed.is_empty());
    }

    #[test]
    fn none_is_forgotten_before_its_time_while_there_is_room_and_none_long_after() {
        let mut completed = Completed::new(1 << 16);
        for now in 0..200 {
            completed.expire(at(now));
            // Two sources, with leases of their own.
            completed.remember(IdHash(u128::from(now) << 1), at(now + 10));
            completed.remember(IdHash(u128::from(now) << 1 | 1), at(now + 30));
            for (bit, kept) in [(0, 10), (1, 30)] {
                let known = |since: u64| completed.contains(IdHash(u128::from(since) << 1 | bit));
                assert!((now.saturating_sub(kept - 1)..=now).all(known), "{now}");
            }
            assert!(completed.len() <= 2 * 100, "{now}: {}", completed.len());
        }
        assert_eq!(Completed::new(0).set_max, 0);
        assert_eq!(
            Completed::new(1 << 20).set_max,
            (1 << 19) / 8 * 7,
            "as many as half a million slots hold"
        );
    }
}
