//! Which message is which. RabbitMQ gives its messages no id, so a message that is handed over for the first time gets
//! one here, and one that comes again after it went back or its connection was lost is known by its content. Pure.
//!
//! - M1: a message gets a fresh id or that of one message with the same content, never that of another.
//! - M2: of several with the same content, those that were not acked are recalled first: an ack may have been lost, but
//!   what was not acked must come again.
//! - M3: bounded in number and time.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use shards::clock::Moment;
use shards::model::IdHash;

/// How long an acked message is remembered: as long as the desk remembers that it was delivered (two leases of 30 s).
/// A server that crashes forgets acks that it had taken.
const ACKED_KEPT: Duration = Duration::from_secs(60);
/// As many as come in a few seconds at full speed: an ack is on the server's disk by then.
const ACKED_MAX: usize = 65_536;
/// How long a message that went back is waited for. Later it gets a fresh id, and may be delivered twice.
const AWAY_KEPT: Duration = Duration::from_secs(15 * 60);
/// All that went back: more than one connection can hold, and what was acked lately.
const AWAY_MAX: usize = 4 * 65_536;

/// A hash of what stays the same when a message is handed over again.
pub(super) type Content = u128;

/// What became of a message before it went back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Not acked: the server hands it over again.
    Open,
    /// Acked, and the server may have lost that.
    Acked,
}

#[derive(Clone, Copy, Debug)]
struct Away {
    id: IdHash,
    fate: Fate,
    until: Moment,
    /// Tells it from an earlier stay of the same message.
    number: u64,
}

/// All that may come again.
#[derive(Debug, Default)]
pub(super) struct Memory {
    away: HashMap<Content, VecDeque<Away>>,
    /// In the order in which they are forgotten.
    order: VecDeque<(Moment, Content, u64)>,
    next: u64,
    acked: VecDeque<(Moment, Content, IdHash)>,
}

impl Memory {
    /// A message was acked over a connection that still lives.
    pub(super) fn on_acked(&mut self, content: Content, id: IdHash, now: Moment) {
        while self.acked.len() >= ACKED_MAX
            || self.acked.front().is_some_and(|&(at, ..)| now.since(at) > ACKED_KEPT)
        {
            self.acked.pop_front();
        }
        self.acked.push_back((now, content, id));
    }

    /// A message went back, or its connection was lost before it was acked.
    pub(super) fn on_away(&mut self, content: Content, id: IdHash, now: Moment) {
        self.put(content, id, Fate::Open, now + AWAY_KEPT);
    }

    /// The connection is lost, and with it perhaps acks.
    pub(super) fn on_lost(&mut self, now: Moment) {
        self.expire(now);
        for (at, content, id) in std::mem::take(&mut self.acked) {
            if now.since(at) <= ACKED_KEPT {
                self.put(content, id, Fate::Acked, now + ACKED_KEPT);
            }
        }
    }

    /// A message with this content comes: the id that it had, if it was here before.
    pub(super) fn recall(&mut self, content: Content, now: Moment) -> Option<IdHash> {
        if self.away.is_empty() {
            return None;
        }
        self.expire(now);
        let same = self.away.get_mut(&content)?;
        same.retain(|away| away.until > now);
        let at = same.iter().position(|away| away.fate == Fate::Open).unwrap_or(0);
        let found = same.remove(at);
        if same.is_empty() {
            self.away.remove(&content);
        }
        found.map(|away| away.id)
    }

    fn put(&mut self, content: Content, id: IdHash, fate: Fate, until: Moment) {
        if self.order.len() >= AWAY_MAX {
            self.forget_first();
        }
        self.next += 1;
        let number = self.next;
        self.away.entry(content).or_default().push_back(Away { id, fate, until, number });
        self.order.push_back((until, content, number));
    }

    fn expire(&mut self, now: Moment) {
        while self.order.front().is_some_and(|&(until, ..)| until <= now) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        let Some((_, content, number)) = self.order.pop_front() else { return };
        let Some(same) = self.away.get_mut(&content) else { return };
        same.retain(|away| away.number != number);
        if same.is_empty() {
            self.away.remove(&content);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Moment {
        Moment::ZERO + S * seconds
    }

    #[test]
    fn a_message_that_comes_again_has_the_id_it_had_once() {
        let mut memory = Memory::default();
        memory.on_away(7, IdHash(1), at(0));
        assert_eq!(memory.recall(8, at(1)), None, "M1: another message");
        assert_eq!(memory.recall(7, at(1)), Some(IdHash(1)));
        assert_eq!(memory.recall(7, at(1)), None, "M1: the next one is another");
    }

    #[test]
    fn of_several_alike_those_not_acked_come_first_and_in_order() {
        let mut memory = Memory::default();
        memory.on_acked(7, IdHash(1), at(0));
        memory.on_away(7, IdHash(2), at(0));
        memory.on_away(7, IdHash(3), at(0));
        assert_eq!(memory.recall(7, at(0)), Some(IdHash(2)), "acks count as lost only with their connection");
        memory.on_away(7, IdHash(2), at(0));
        memory.on_lost(at(1));
        let recalled: Vec<_> = (0..4).map(|_| memory.recall(7, at(2)).map(|id| id.0)).collect();
        assert_eq!(recalled, [Some(3), Some(2), Some(1), None], "M2");
    }

    #[test]
    fn what_does_not_come_is_forgotten() {
        let mut memory = Memory::default();
        for number in 0..10 {
            memory.on_acked(number, IdHash(number), at(u32::try_from(number).expect("small")));
        }
        memory.on_away(100, IdHash(100), at(10));
        memory.on_lost(at(65));
        assert_eq!(memory.recall(4, at(65)), None, "acked more than a minute before the loss");
        assert_eq!(memory.recall(5, at(65)), Some(IdHash(5)));
        assert_eq!(memory.recall(6, at(126)), None, "a minute after the loss");
        assert_eq!(memory.recall(100, at(126)), Some(IdHash(100)), "it is waited for longer");
        memory.on_away(100, IdHash(100), at(10));
        assert_eq!(memory.recall(100, at(10) + AWAY_KEPT), None);
        for number in 0..2 * AWAY_MAX as u128 {
            memory.on_away(number, IdHash(number), at(0));
            memory.on_acked(number, IdHash(number), at(0));
        }
        assert!(memory.away.len() <= AWAY_MAX && memory.order.len() <= AWAY_MAX, "M3");
        assert!(memory.acked.len() <= ACKED_MAX, "M3");
    }
}
