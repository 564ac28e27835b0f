//! Which message is which. RabbitMQ gives its messages no id, so a message that is handed over for the first time gets
//! one here, and one that comes again after it went back or its connection was lost is known by its content. Pure.
//!
//! The server marks what it has handed over before as redelivered, and what is not marked is new. Only a server that
//! crashed may have forgotten that too: for a while after it was away, marks are not looked at.
//!
//! - M1: a message gets a fresh id or that of one message with the same content, never that of another.
//! - M2: of several with the same content, those that were not acked are recalled first: an ack may have been lost, but
//!   what was not acked must come again.
//! - M3: bounded in number and time.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use shards::clock::Moment;
use shards::model::IdHash;

/// How long an acked message is remembered. A server that crashes forgets acks that it had taken: a busy classic queue
/// writes them to its disk only after some ten thousand, or when it has nothing else to do.
const ACKED_KEPT: Duration = Duration::from_secs(5 * 60);
/// More than a classic queue keeps in its memory (32,768 publishings, hand-overs and acks).
const ACKED_MAX: usize = 65_536;
/// Acks that were sent so shortly before may be lost with a connection alone: they had not arrived, or a quorum queue's
/// channel had not passed them on. Older ones are lost only in a crash.
const FRESH: Duration = Duration::from_secs(5);
/// How long after a server was away its marks are not looked at. What it had handed over comes first, so at once.
const UNMARKED_FOR: Duration = Duration::from_secs(60);
/// How long a message that went back is waited for. Later it gets a fresh id, and may be delivered twice.
const AWAY_KEPT: Duration = Duration::from_secs(15 * 60);
/// All that went back: more than one connection can hold, and what was acked lately.
const AWAY_MAX: usize = 4 * 65_536;

/// A hash of what stays the same when a message is handed over again.
pub(super) type Content = u128;

/// What became of a message before it went back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
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
    /// It was acked just before the connection was lost.
    fresh: bool,
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
    /// Marks are not looked at until then.
    unmarked_until: Moment,
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
        self.put(content, id, Fate::Open, now + AWAY_KEPT, false);
    }

    /// The connection is lost, and with it perhaps acks.
    pub(super) fn on_lost(&mut self, now: Moment) {
        self.expire(now);
        for (at, content, id) in std::mem::take(&mut self.acked) {
            if now.since(at) <= ACKED_KEPT {
                self.put(content, id, Fate::Acked, now + AWAY_KEPT, now.since(at) <= FRESH);
            }
        }
    }

    /// The server was away, and may have crashed.
    pub(super) fn on_back(&mut self, now: Moment) {
        self.unmarked_until = now + UNMARKED_FOR;
    }

    /// A message with this content comes, marked as redelivered or not: the id that it had and what became of it, if
    /// it was here before.
    pub(super) fn recall(&mut self, content: Content, marked: bool, now: Moment) -> Option<(IdHash, Fate)> {
        let crashed = now < self.unmarked_until;
        if self.away.is_empty() || !(marked || crashed) {
            return None;
        }
        self.expire(now);
        let same = self.away.get_mut(&content)?;
        same.retain(|away| away.until > now);
        let open = same.iter().position(|away| away.fate == Fate::Open);
        let at = open.or_else(|| same.iter().position(|away| away.fresh || crashed))?;
        let found = same.remove(at);
        if same.is_empty() {
            self.away.remove(&content);
        }
        found.map(|away| (away.id, away.fate))
    }

    fn put(&mut self, content: Content, id: IdHash, fate: Fate, until: Moment, fresh: bool) {
        if self.order.len() >= AWAY_MAX {
            self.forget_first();
        }
        self.next += 1;
        let number = self.next;
        self.away.entry(content).or_default().push_back(Away { id, fate, until, fresh, number });
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
    use super::Fate::{Acked, Open};
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Moment {
        Moment::ZERO + S * seconds
    }

    #[test]
    fn a_message_that_comes_again_has_the_id_it_had_once() {
        let mut memory = Memory::default();
        memory.on_away(7, IdHash(1), at(0));
        assert_eq!(memory.recall(8, true, at(1)), None, "M1: another message");
        assert_eq!(memory.recall(7, true, at(1)), Some((IdHash(1), Open)));
        assert_eq!(memory.recall(7, true, at(1)), None, "M1: the next one is another");
    }

    #[test]
    fn of_several_alike_those_not_acked_come_first_and_in_order() {
        let mut memory = Memory::default();
        memory.on_acked(7, IdHash(1), at(0));
        memory.on_away(7, IdHash(2), at(0));
        memory.on_away(7, IdHash(3), at(0));
        let first = memory.recall(7, true, at(0));
        assert_eq!(first, Some((IdHash(2), Open)), "acks count as lost only with their connection");
        memory.on_away(7, IdHash(2), at(0));
        memory.on_acked(7, IdHash(4), at(9));
        memory.on_lost(at(10));
        let recalled: Vec<_> = std::iter::from_fn(|| memory.recall(7, true, at(11))).collect();
        let want = [(IdHash(3), Open), (IdHash(2), Open), (IdHash(4), Acked)];
        assert_eq!(recalled, want, "M2; an ack of ten seconds ago is not lost with a connection");
        memory.on_back(at(11));
        assert_eq!(memory.recall(7, true, at(12)), Some((IdHash(1), Acked)), "but in a crash");
    }

    #[test]
    fn a_message_that_is_not_marked_is_new_unless_the_server_was_away() {
        let mut memory = Memory::default();
        memory.on_away(7, IdHash(1), at(0));
        memory.on_acked(8, IdHash(2), at(0));
        memory.on_lost(at(1));
        assert_eq!(memory.recall(7, false, at(2)), None, "another one with the same content");
        memory.on_back(at(2));
        assert_eq!(memory.recall(7, false, at(3)), Some((IdHash(1), Open)));
        assert_eq!(memory.recall(8, false, at(3)), Some((IdHash(2), Acked)), "its ack was lost in the crash");
        memory.on_away(7, IdHash(1), at(3));
        assert_eq!(memory.recall(7, false, at(62)), None, "that was long ago");
        assert_eq!(memory.recall(7, true, at(62)), Some((IdHash(1), Open)));
    }

    #[test]
    fn what_does_not_come_is_forgotten() {
        let mut memory = Memory::default();
        for number in 0..10 {
            memory.on_acked(number, IdHash(number), at(u32::try_from(number).expect("small")));
        }
        memory.on_away(100, IdHash(100), at(10));
        memory.on_lost(at(305));
        memory.on_back(at(305));
        assert_eq!(memory.recall(4, true, at(305)), None, "acked more than five minutes before the loss");
        assert_eq!(memory.recall(5, true, at(305)), Some((IdHash(5), Acked)));
        assert_eq!(memory.recall(6, true, at(305) + AWAY_KEPT), None, "long after the loss");
        for number in 0..2 * AWAY_MAX as u128 {
            memory.on_away(number, IdHash(number), at(0));
            memory.on_acked(number, IdHash(number), at(0));
        }
        assert!(memory.away.len() <= AWAY_MAX && memory.order.len() <= AWAY_MAX, "M3");
        assert!(memory.acked.len() <= ACKED_MAX, "M3");
    }
}
