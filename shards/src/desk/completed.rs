//! Ids that were delivered and may come again, because the ack was lost or the broker repeats itself.
//! Pure. Core: the ingress. Bounded: the oldest make room.

use std::collections::VecDeque;

use hashbrown::HashTable;

use crate::clock::Moment;
use crate::model::IdHash;

/// Remembers ids until their time is up.
#[derive(Debug)]
pub struct Completed {
    order: VecDeque<(Moment, IdHash)>,
    table: HashTable<IdHash>,
    max: usize,
}

#[expect(clippy::cast_possible_truncation, reason = "half of a 128-bit hash is a 64-bit hash")]
const fn half(id: &IdHash) -> u64 {
    id.0 as u64
}

impl Completed {
    /// Remembers at most `max` ids.
    #[must_use]
    pub const fn new(max: usize) -> Self {
        Self { order: VecDeque::new(), table: HashTable::new(), max }
    }

    /// Remembers `id` until `until`. Moments must not go back by more than a lease's difference.
    pub fn remember(&mut self, id: IdHash, until: Moment) {
        if self.contains(id) || self.max == 0 {
            return;
        }
        if self.order.len() >= self.max {
            self.forget_oldest();
        }
        self.order.push_back((until, id));
        self.table.insert_unique(half(&id), id, half);
    }

    /// It was delivered.
    #[must_use]
    pub fn contains(&self, id: IdHash) -> bool {
        self.table.find(half(&id), |&other| other == id).is_some()
    }

    /// Forgets what is past its time.
    pub fn expire(&mut self, now: Moment) {
        while self.order.front().is_some_and(|&(until, _)| until <= now) {
            self.forget_oldest();
        }
    }

    /// Ids remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// None.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    fn forget_oldest(&mut self) {
        if let Some((_, id)) = self.order.pop_front()
            && let Ok(entry) = self.table.find_entry(half(&id), |&other| other == id)
        {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_id_is_remembered_until_its_time_or_until_there_is_no_room() {
        let at = |s| Moment::ZERO + Duration::from_secs(s);
        let mut completed = Completed::new(2);
        completed.remember(IdHash(1), at(10));
        completed.remember(IdHash(2), at(20));
        completed.expire(at(10));
        assert!(!completed.contains(IdHash(1)) && completed.contains(IdHash(2)));
        completed.remember(IdHash(3), at(30));
        completed.remember(IdHash(4), at(40));
        assert!(!completed.contains(IdHash(2)), "the oldest made room");
        assert!(completed.contains(IdHash(3)) && completed.contains(IdHash(4)));
    }
}
