//! The messages that are here and unsettled: with the desk, or given back and waiting to be handed over again. Pure.
//!
//! A broker takes a single message back only as a new one at the queue's end. So what the desk gives back stays here,
//! unsettled at the broker and in its place: if we go, it goes back with all else, in order.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use shards::clock::Moment;
use shards::model::IdHash;

use super::wire::Span;

/// Messages whose wait is remembered over connections; more than are here is not possible.
const WAITS_MAX: usize = 65_536;

/// A message that the broker handed over.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) id: IdHash,
    pub(super) frame: Bytes,
    /// Where its id stands in the frame.
    pub(super) id_span: Span,
    /// Its place among all that were handed over.
    pub(super) seq: u64,
    /// Deliveries that failed since.
    pub(super) failed: u16,
    /// Later ones of its group wait for it.
    pub(super) blocks: bool,
    /// Another one that is the same to the desk: a copy was made, and the original could not be acked.
    pub(super) also: Option<Box<Held>>,
}

impl Held {
    /// This one, and those that are the same.
    pub(super) fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |held| held.also.as_deref())
    }

    fn bytes(&self) -> usize {
        self.all().map(|held| held.frame.len()).sum()
    }
}

/// All of them, of one connection.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    /// With the desk, by the key of their receipt.
    out: HashMap<u64, Held>,
    /// Their keys.
    by_id: HashMap<IdHash, u64>,
    /// Given back, by their place, with the moment when they are due.
    back: BTreeMap<u64, (Moment, Held)>,
    /// Waits that outlive a connection.
    waits: HashMap<IdHash, Moment>,
    bytes: usize,
    keys: u64,
    seqs: u64,
}

impl Shelf {
    /// The next place.
    pub(super) const fn next_seq(&mut self) -> u64 {
        self.seqs += 1;
        self.seqs
    }

    /// The desk gets it; returns the key of its receipt, which no other ever has. The desk keeps one receipt of a message,
    /// the newest, so what it does to that one is done to an older one too.
    pub(super) fn hand_out(&mut self, mut held: Held) -> u64 {
        if let Some(older) = self.by_id.get(&held.id).copied().and_then(|key| self.take(key)) {
            let mut last = &mut held.also;
            while let Some(next) = last {
                last = &mut next.also;
            }
            *last = Some(Box::new(older));
        }
        self.keys += 1;
        self.bytes += held.bytes();
        self.by_id.insert(held.id, self.keys);
        self.out.insert(self.keys, held);
        self.keys
    }

    pub(super) fn get(&self, key: u64) -> Option<&Held> {
        self.out.get(&key)
    }

    /// The desk has it no more.
    pub(super) fn take(&mut self, key: u64) -> Option<Held> {
        let held = self.out.remove(&key)?;
        self.by_id.remove(&held.id);
        self.bytes -= held.bytes();
        Some(held)
    }

    /// Keeps it until it is due.
    pub(super) fn put_back(&mut self, held: Held, due: Moment) {
        self.bytes += held.bytes();
        self.back.insert(held.seq, (due, held));
    }

    /// The first that is due.
    pub(super) fn take_due(&mut self, now: Moment) -> Option<Held> {
        let seq = *self.back.iter().find(|(_, (due, _))| *due <= now)?.0;
        let (_, held) = self.back.remove(&seq)?;
        self.bytes -= held.bytes();
        Some(held)
    }

    /// When the next is due.
    pub(super) fn next_due(&self) -> Option<Moment> {
        self.back.values().map(|(due, _)| *due).min()
    }

    /// Messages here, and their bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.out.len() + self.back.len(), self.bytes)
    }

    /// Messages with the desk.
    pub(super) fn out_len(&self) -> usize {
        self.out.len()
    }

    /// Was it given back before the connection broke, and is not due yet?
    pub(super) fn wait_of(&mut self, id: IdHash, now: Moment) -> Option<Moment> {
        self.waits.remove(&id).filter(|due| *due > now)
    }

    /// The connection is gone, and the broker has all of it back. Waits are remembered.
    pub(super) fn clear(&mut self, now: Moment) {
        self.waits.retain(|_, due| *due > now);
        for (_, (due, held)) in std::mem::take(&mut self.back) {
            if due > now && self.waits.len() < WAITS_MAX {
                self.waits.insert(held.id, due);
            }
        }
        self.out.clear();
        self.by_id.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn held(shelf: &mut Shelf, id: u128) -> Held {
        let seq = shelf.next_seq();
        Held {
            id: IdHash(id),
            frame: Bytes::from_static(b"abc"),
            id_span: 0..1,
            seq,
            failed: 0,
            blocks: true,
            also: None,
        }
    }

    #[test]
    fn what_was_given_back_comes_again_in_its_old_order() {
        let (mut shelf, now) = (Shelf::default(), Moment::ZERO);
        let s = Duration::from_secs(1);
        let keys: Vec<u64> = (0..3)
            .map(|id| {
                let held = held(&mut shelf, id);
                shelf.hand_out(held)
            })
            .collect();
        for (key, delay) in [(keys[2], s), (keys[0], s), (keys[1], s * 5)] {
            let held = shelf.take(key).expect("it is out");
            shelf.put_back(held, now + delay);
        }
        assert!(shelf.take(keys[0]).is_none(), "a key is of no use a second time");
        assert_eq!((shelf.size(), shelf.out_len(), shelf.next_due()), ((3, 9), 0, Some(now + s)));
        assert!(shelf.take_due(now).is_none());
        let ids: Vec<_> = std::iter::from_fn(|| shelf.take_due(now + s)).map(|held| held.id.0).collect();
        assert_eq!((ids, shelf.size()), (vec![0, 2], (1, 3)));
    }

    #[test]
    fn a_message_and_its_copy_are_settled_together() {
        let (mut shelf, now) = (Shelf::default(), Moment::ZERO);
        let [first, copy, other] = [1, 1, 2].map(|id| held(&mut shelf, id));
        let old = shelf.hand_out(first);
        let key = shelf.hand_out(copy);
        let other = shelf.hand_out(other);
        assert!(shelf.get(old).is_none(), "the newest receipt counts");
        assert_eq!((shelf.out_len(), shelf.size()), (2, (2, 9)));
        let both = shelf.take(key).expect("it is out");
        assert_eq!(both.all().map(|held| held.seq).collect::<Vec<_>>(), [2, 1]);
        shelf.put_back(both, now);
        let both = shelf.take_due(now).expect("it is due");
        assert_eq!((both.all().count(), shelf.size()), (2, (1, 3)));
        assert!(shelf.take(other).is_some() && shelf.size() == (0, 0));
    }

    #[test]
    fn a_wait_outlives_the_connection_and_a_receipt_does_not() {
        let (mut shelf, now) = (Shelf::default(), Moment::ZERO);
        let (due, later) = (now + Duration::from_secs(5), now + Duration::from_secs(1));
        let waiting = held(&mut shelf, 1);
        shelf.put_back(waiting, due);
        let out = held(&mut shelf, 2);
        let key = shelf.hand_out(out);
        shelf.clear(now);
        assert_eq!((shelf.size(), shelf.get(key).is_none()), ((0, 0), true));
        assert_eq!(shelf.wait_of(IdHash(2), later), None);
        assert_eq!(shelf.wait_of(IdHash(1), later), Some(due));
        assert_eq!(shelf.wait_of(IdHash(1), later), None, "once");
        let out = held(&mut shelf, 3);
        assert_ne!(shelf.hand_out(out), key);
    }
}
