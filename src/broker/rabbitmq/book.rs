//! What a channel has handed over and is not settled: by delivery tag, each as the desk knows it. Pure.
//!
//! - K1: a key is used for one hand-over by the server, in one channel. A tag of another channel has no key here.
//! - K2: what the desk gives back stays here, unsettled at the server, until its delay is over. Then it is handed over
//!   again from here: RabbitMQ has no delay, and a quorum queue without a delivery limit would put it behind newer
//!   messages of its group.
//! - K3: what is kept for that is bounded in bytes; the rest goes back to the server.

use std::collections::{BTreeMap, BTreeSet};

use shards::clock::Moment;
use shards::model::IdHash;

use super::bus::Note;
use super::memory::Content;

/// Bytes of bodies that are kept for a second hand-over.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// A message that was handed over.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) id: IdHash,
    pub(super) content: Content,
    /// When the server handed it over.
    pub(super) since: Moment,
    /// How often it did; 0 = it does not say.
    pub(super) deliveries: u16,
    /// What its header says of its group.
    pub(super) group: Option<String>,
    pub(super) body: Vec<u8>,
    /// What the event bus must know of it.
    pub(super) note: Option<Note>,
}

/// Where an item is.
#[derive(Debug)]
enum Place {
    /// At the desk.
    Out,
    /// Here until its delay is over.
    Returned(Moment),
}

#[derive(Debug)]
struct Entry {
    item: Item,
    place: Place,
    /// Its body is not kept: it can't be handed over again from here.
    bare: bool,
}

/// What to do with a message that was given back.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GivenBack {
    /// It waits here.
    Kept,
    /// There is no such message any more: its channel is gone.
    Unknown,
}

/// A returned message whose delay is over.
#[derive(Debug)]
pub(super) enum Due {
    /// Hand it over again.
    Again(u64),
    /// Its body is not here: give it back to the server.
    Bare(u64, Item),
}

/// The unsettled messages of a channel.
#[derive(Debug)]
pub(super) struct Book {
    /// Keys are tags counted from here.
    base: u64,
    entries: BTreeMap<u64, Entry>,
    returned: BTreeSet<(Moment, u64)>,
    kept_bytes: usize,
    last_tag: u64,
}

impl Book {
    /// An empty one. `base`: above all keys of earlier ones.
    pub(super) const fn new(base: u64) -> Self {
        Self { base, entries: BTreeMap::new(), returned: BTreeSet::new(), kept_bytes: 0, last_tag: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Messages at the desk.
    pub(super) fn out_count(&self) -> usize {
        self.entries.len() - self.returned.len()
    }

    /// A message goes to the desk for the first time; returns its key.
    pub(super) fn hand_over(&mut self, tag: u64, mut item: Item) -> u64 {
        // One alone always fits, or it could never go anywhere.
        let bare = self.kept_bytes > 0 && self.kept_bytes + item.body.len() > KEPT_BYTES_MAX;
        if bare {
            item.body = Vec::new();
        }
        self.kept_bytes += item.body.len();
        self.last_tag = self.last_tag.max(tag);
        self.entries.insert(tag, Entry { item, place: Place::Out, bare });
        self.base + tag
    }

    /// The delivery tag of a key, if it is of this channel and not settled.
    fn tag(&self, key: u64) -> Option<u64> {
        let tag = key.checked_sub(self.base)?;
        self.entries.contains_key(&tag).then_some(tag)
    }

    /// The message with this tag is not settled.
    pub(super) fn has(&self, tag: u64) -> bool {
        self.entries.contains_key(&tag)
    }

    /// A message is settled: its tag, and what it was.
    pub(super) fn settle(&mut self, key: u64) -> Option<(u64, Item)> {
        let tag = self.tag(key)?;
        Some((tag, self.remove(tag)?))
    }

    fn remove(&mut self, tag: u64) -> Option<Item> {
        let entry = self.entries.remove(&tag)?;
        if let Place::Returned(due) = entry.place {
            self.returned.remove(&(due, tag));
        }
        self.kept_bytes -= entry.item.body.len();
        Some(entry.item)
    }

    /// The desk gives a message back until `due`.
    pub(super) fn give_back(&mut self, key: u64, due: Moment) -> GivenBack {
        let Some(tag) = self.tag(key) else { return GivenBack::Unknown };
        if let Some(entry) = self.entries.get_mut(&tag) {
            if let Place::Returned(old) = entry.place {
                self.returned.remove(&(old, tag));
            }
            entry.place = Place::Returned(due);
            self.returned.insert((due, tag));
        }
        GivenBack::Kept
    }

    /// When the next returned message is due.
    pub(super) fn next_due(&self) -> Option<Moment> {
        self.returned.first().map(|&(due, _)| due)
    }

    /// Takes up to `max` returned messages that are due, oldest of the queue first.
    pub(super) fn take_due(&mut self, now: Moment, max: usize) -> Vec<Due> {
        let mut tags = Vec::new();
        while let Some(&(due, tag)) = self.returned.first()
            && due <= now
        {
            self.returned.pop_first();
            tags.push((tag, due));
        }
        tags.sort_unstable();
        // What does not fit stays due.
        for &(tag, due) in tags.iter().skip(max) {
            self.returned.insert((due, tag));
        }
        tags.truncate(max);
        tags.into_iter().filter_map(|(tag, _)| self.again(tag)).collect()
    }

    fn again(&mut self, tag: u64) -> Option<Due> {
        let entry = self.entries.get_mut(&tag)?;
        entry.place = Place::Out;
        if entry.bare {
            return Some(Due::Bare(tag, self.remove(tag)?));
        }
        Some(Due::Again(self.base + tag))
    }

    /// A message that is here.
    pub(super) fn get(&self, key: u64) -> Option<&Item> {
        self.entries.get(&key.checked_sub(self.base)?).map(|entry| &entry.item)
    }

    /// Takes all that was returned, oldest of the queue first.
    pub(super) fn take_returned(&mut self) -> Vec<(u64, Item)> {
        self.take_returned_by(Moment::NEVER)
    }

    /// Takes what was returned and is due, oldest of the queue first: it will not be handed over again from here.
    pub(super) fn take_returned_by(&mut self, now: Moment) -> Vec<(u64, Item)> {
        let mut tags = Vec::new();
        while let Some(&(due, tag)) = self.returned.first()
            && due <= now
        {
            self.returned.pop_first();
            tags.push(tag);
        }
        tags.sort_unstable();
        tags.into_iter().filter_map(|tag| Some((tag, self.remove(tag)?))).collect()
    }

    /// Since when the oldest has been unsettled.
    pub(super) fn oldest(&self) -> Option<Moment> {
        self.entries.first_key_value().map(|(_, entry)| entry.item.since)
    }

    /// The channel is gone: all that it had, oldest of the queue first; and the last key that it used.
    pub(super) fn take_all(&mut self) -> (Vec<Item>, u64) {
        self.returned.clear();
        self.kept_bytes = 0;
        let items = std::mem::take(&mut self.entries).into_values().map(|entry| entry.item).collect();
        (items, self.base + self.last_tag)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn item(id: u128, bytes: usize) -> Item {
        let body = vec![b'x'; bytes];
        Item {
            id: IdHash(id),
            content: id,
            since: Moment::ZERO,
            deliveries: 0,
            group: None,
            body,
            note: None,
        }
    }

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_key_settles_once_and_in_its_own_channel() {
        let (mut old, mut new) = (Book::new(1_000), Book::new(2_000));
        let stale = old.hand_over(7, item(1, 1));
        let fresh = new.hand_over(7, item(2, 1));
        assert!(new.settle(stale).is_none(), "K1: tag 7 is another message now");
        assert_eq!(new.settle(fresh).map(|(tag, item)| (tag, item.id)), Some((7, IdHash(2))));
        assert!(new.settle(fresh).is_none(), "told twice");
        assert_eq!((new.len(), new.kept_bytes), (0, 0));
    }

    #[test]
    fn what_was_given_back_is_handed_over_again_when_it_is_due_in_the_queues_order() {
        let mut book = Book::new(0);
        let keys: Vec<u64> = (1..=4).map(|tag| book.hand_over(tag, item(tag.into(), 1))).collect();
        assert_eq!(book.give_back(keys[2], at(1)), GivenBack::Kept);
        book.give_back(keys[1], at(2));
        book.give_back(keys[0], at(9));
        assert_eq!((book.out_count(), book.next_due()), (1, Some(at(1))));
        let due = book.take_due(at(3), 1);
        assert!(matches!(due[..], [Due::Again(key)] if key == keys[1]), "the older one: {due:?}");
        let due = book.take_due(at(3), 9);
        assert!(matches!(due[..], [Due::Again(key)] if key == keys[2]), "what did not fit: {due:?}");
        assert_eq!((book.len(), book.out_count()), (4, 3), "K2: all of it is unsettled");
        assert!(book.settle(keys[1]).is_some() && book.give_back(keys[1], at(1)) == GivenBack::Unknown);
        assert!(book.settle(keys[0]).is_some(), "returned and acked all the same");
        assert_eq!(book.next_due(), None);
    }

    #[test]
    fn large_bodies_are_not_kept_beyond_a_bound() {
        let mut book = Book::new(0);
        let fits = book.hand_over(1, item(1, KEPT_BYTES_MAX));
        let bare = book.hand_over(2, item(2, 1));
        for key in [fits, bare] {
            book.give_back(key, at(0));
        }
        let due = book.take_due(at(0), 9);
        assert!(matches!(due[..], [Due::Again(_), Due::Bare(2, _)]), "K3: {due:?}");
        assert_eq!(book.take_all().0.len(), 1);
        assert_eq!((book.len(), book.kept_bytes), (0, 0));
    }
}
