//! How often messages that went back were tried. A broker counts every hand-over; only a tried delivery is
//! an attempt, so where attempts are limited the desk remembers its own count until the message is back.
//! Pure. Core: the ingress. Bounded: when full, the broker's count has to do.

use hashbrown::HashMap;

use crate::clock::Moment;
use crate::model::IdHash;

/// Attempts of messages that are at their source.
#[derive(Debug)]
pub(super) struct Tried {
    counts: HashMap<IdHash, (u16, Moment)>,
    max: usize,
}

impl Tried {
    /// Remembers at most `max` messages.
    pub(super) fn new(max: usize) -> Self {
        Self { counts: HashMap::new(), max }
    }

    /// A message goes back after so many attempts and is waited for until `expires`.
    pub(super) fn remember(&mut self, id: IdHash, attempts: u16, expires: Moment) {
        if self.counts.len() < self.max || self.counts.contains_key(&id) {
            self.counts.insert(id, (attempts, expires));
        }
    }

    /// Its attempts, if it went back from here.
    pub(super) fn get(&self, id: IdHash) -> Option<u16> {
        self.counts.get(&id).map(|&(attempts, _)| attempts)
    }

    /// Forgets those that were waited for long enough.
    pub(super) fn expire(&mut self, now: Moment) {
        self.counts.retain(|_, &mut (_, expires)| expires > now);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }
}
