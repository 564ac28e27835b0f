//! Hand-overs that led to no try: the broker counts them, we do not. Pure. Core: the ingress. Bounded and
//! forgotten after a while; a forgotten one counts as a try again.
//!
//! - A1: a message's attempts are the broker's hand-overs before this one, less those that led to no try.

use std::time::Duration;

use hashbrown::HashMap;

use crate::clock::Moment;
use crate::model::IdHash;

/// A message that was not seen for this long is forgotten.
const UNTRIED_AGE_MAX: Duration = Duration::from_secs(3_600);

/// Counts hand-overs without a try.
#[derive(Debug)]
pub struct Untried {
    counts: HashMap<IdHash, (u16, Moment)>,
    max: usize,
}

impl Untried {
    /// Counts for at most `max` messages.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { counts: HashMap::new(), max }
    }

    /// A message went back without a try.
    pub fn note(&mut self, id: IdHash, now: Moment) {
        if self.counts.len() >= self.max && !self.counts.contains_key(&id) {
            return;
        }
        let count = self.counts.entry(id).or_insert((0, now));
        *count = (count.0.saturating_add(1), now);
    }

    /// Deliveries that were tried before, of a message that was handed over `deliveries` times by now.
    #[must_use]
    pub fn attempts(&self, id: IdHash, deliveries: u16) -> u16 {
        if deliveries <= 1 {
            return 0;
        }
        let untried = self.counts.get(&id).map_or(0, |&(count, _)| count);
        (deliveries - 1).saturating_sub(untried)
    }

    /// The message is done with.
    pub fn forget(&mut self, id: IdHash) {
        if !self.counts.is_empty() {
            self.counts.remove(&id);
        }
    }

    /// Forgets what was not seen for a while.
    pub fn expire(&mut self, now: Moment) {
        if !self.counts.is_empty() {
            self.counts.retain(|_, &mut (_, seen)| now.since(seen) < UNTRIED_AGE_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tried_hand_overs_are_attempts() {
        let mut untried = Untried::new(1);
        let (id, other) = (IdHash(1), IdHash(2));
        assert_eq!(untried.attempts(id, 0), 0, "the broker does not count");
        assert_eq!(untried.attempts(id, 1), 0, "the first hand-over");
        assert_eq!(untried.attempts(id, 4), 3, "A1: three before, all tried");
        untried.note(id, Moment::ZERO);
        untried.note(id, Moment::ZERO);
        untried.note(other, Moment::ZERO);
        assert_eq!(untried.attempts(id, 4), 1, "A1: two led to no try");
        assert_eq!(untried.attempts(other, 2), 1, "no room to remember: counted");
        untried.expire(Moment::ZERO + UNTRIED_AGE_MAX);
        assert_eq!(untried.attempts(id, 4), 3);
    }
}
