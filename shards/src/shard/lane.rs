//! A lane: one group's queue on its shard, as a list of slots in a slab. It exists while it has
//! messages; an idle group costs nothing. Pure. Core: its shard's.
//!
//! - S3: inside a lane order never changes: in at the tail, out at the head.

use hashbrown::HashTable;

use crate::clock::Moment;
use crate::model::{BatchId, Envelope, LaneKey, OriginId};

/// No slot, no lane.
pub(super) const NONE: u32 = u32::MAX;

/// What a lane is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It has a place in its pool's ready list.
    Ready,
    /// Its head, and `span - 1` messages behind it, ride in a call.
    Running,
    /// Its head waits for a timer: a pause between calls, or a failed head held in place.
    Paused,
    /// Its head waits for its target's breaker.
    Held,
    /// It has no messages but remembers a failed batch whose rest is still to come.
    Empty,
}

/// One group's queue.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) key: LaneKey,
    head: u32,
    tail: u32,
    pub(super) len: u32,
    /// The target of the call under way.
    pub(super) origin: OriginId,
    /// Counts tenants of this place and timers of this tenant: an older timer is void.
    pub(super) era: u32,
    /// The batch whose head failed, and the delay its rest goes back with.
    pub(super) failed: Option<(BatchId, u32)>,
    /// Messages in the call under way.
    pub(super) span: u16,
    /// Messages that may ride together; halved when a request of several is refused.
    pub(super) span_max: u16,
    pub(super) state: State,
    /// Calls made in this delivery.
    pub(super) calls: u8,
    /// The call under way is a breaker's probe.
    pub(super) probe: bool,
    /// Running: since then. Paused: until then. Ready or held: since then.
    pub(super) at: Moment,
}

struct Slot {
    envelope: Option<Envelope>,
    next: u32,
}

/// All lanes of a shard and the slots of their messages.
pub(super) struct Lanes {
    table: HashTable<u32>,
    all: Vec<Lane>,
    free: Vec<u32>,
    slots: Vec<Slot>,
    free_slot: u32,
    queued: u32,
}

impl Lanes {
    pub(super) fn new() -> Self {
        Self {
            table: HashTable::new(),
            all: Vec::new(),
            free: Vec::new(),
            slots: Vec::new(),
            free_slot: NONE,
            queued: 0,
        }
    }

    /// Lanes that exist.
    pub(super) fn count(&self) -> usize {
        self.table.len()
    }

    /// Messages in all lanes.
    pub(super) const fn queued(&self) -> u32 {
        self.queued
    }

    pub(super) fn get(&self, lane: u32) -> &Lane {
        &self.all[lane as usize]
    }

    pub(super) fn get_mut(&mut self, lane: u32) -> &mut Lane {
        &mut self.all[lane as usize]
    }

    pub(super) fn find(&self, key: LaneKey) -> Option<u32> {
        self.table.find(key.hash, |&lane| self.all[lane as usize].key == key).copied()
    }

    /// The lane of `key`, and whether it was made just now.
    pub(super) fn find_or_make(&mut self, key: LaneKey) -> (u32, bool) {
        if let Some(lane) = self.find(key) {
            return (lane, false);
        }
        let lane = if let Some(lane) = self.free.pop() {
            let era = self.all[lane as usize].era.wrapping_add(1);
            self.all[lane as usize] = Lane::new(key, era);
            lane
        } else {
            self.all.push(Lane::new(key, 0));
            index(self.all.len() - 1)
        };
        let all = &self.all;
        self.table.insert_unique(key.hash, lane, |&lane| all[lane as usize].key.hash);
        (lane, true)
    }

    /// Forgets an empty lane.
    pub(super) fn remove(&mut self, lane: u32) {
        let key = self.all[lane as usize].key;
        debug_assert_eq!(self.all[lane as usize].len, 0, "S2: no message is forgotten");
        if let Ok(entry) = self.table.find_entry(key.hash, |&found| found == lane) {
            entry.remove();
            self.all[lane as usize].era = self.all[lane as usize].era.wrapping_add(1);
            self.free.push(lane);
        }
    }

    /// In at the tail.
    pub(super) fn push(&mut self, lane: u32, envelope: Envelope) {
        let slot = Slot { envelope: Some(envelope), next: NONE };
        let at = if self.free_slot == NONE {
            self.slots.push(slot);
            index(self.slots.len() - 1)
        } else {
            let at = self.free_slot;
            self.free_slot = self.slots[at as usize].next;
            self.slots[at as usize] = slot;
            at
        };
        let lane = &mut self.all[lane as usize];
        if lane.len == 0 {
            lane.head = at;
        } else {
            self.slots[lane.tail as usize].next = at;
        }
        lane.tail = at;
        lane.len += 1;
        self.queued += 1;
    }

    /// Out at the head.
    pub(super) fn pop(&mut self, lane: u32) -> Option<Envelope> {
        let lane = &mut self.all[lane as usize];
        if lane.len == 0 {
            return None;
        }
        let at = lane.head;
        let slot = &mut self.slots[at as usize];
        lane.head = slot.next;
        lane.len -= 1;
        self.queued -= 1;
        slot.next = self.free_slot;
        self.free_slot = at;
        slot.envelope.take()
    }

    /// The head, which every lane in a list or call has.
    pub(super) fn head(&self, lane: u32) -> &Envelope {
        self.iter(lane).next().expect("S1: a lane that is not empty has a head")
    }

    /// The messages of a lane, head first.
    pub(super) fn iter(&self, lane: u32) -> impl Iterator<Item = &Envelope> {
        let lane = &self.all[lane as usize];
        let mut at = lane.head;
        (0..lane.len).map_while(move |_| {
            let slot = self.slots.get(at as usize)?;
            at = slot.next;
            slot.envelope.as_ref()
        })
    }

    /// Changes the first `count` messages in place.
    pub(super) fn for_first(&mut self, lane: u32, count: u16, mut change: impl FnMut(&mut Envelope)) {
        let mut at = self.all[lane as usize].head;
        for _ in 0..count {
            let Some(slot) = self.slots.get_mut(at as usize) else { return };
            if let Some(envelope) = slot.envelope.as_mut() {
                change(envelope);
            }
            at = slot.next;
        }
    }

    /// Takes everything behind the first `keep` messages, in order.
    pub(super) fn split_off(&mut self, lane: u32, keep: u32, mut take: impl FnMut(Envelope)) {
        let mut kept = Vec::new();
        while let Some(envelope) = self.pop(lane) {
            if index(kept.len()) < keep {
                kept.push(envelope);
            } else {
                take(envelope);
            }
        }
        for envelope in kept {
            self.push(lane, envelope);
        }
    }

    /// Up to `max` places of lanes that exist, from place `from` on.
    pub(super) fn some(&self, from: u32, max: usize) -> Vec<u32> {
        let all = (from..).zip(self.all.iter().skip(from as usize));
        all.filter(|(_, lane)| lane.len > 0).map(|(at, _)| at).take(max).collect()
    }

    /// Places of all lanes that exist, in a stable order.
    pub(super) fn all(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.table.iter().copied().collect();
        all.sort_unstable();
        all
    }
}

impl Lane {
    const fn new(key: LaneKey, era: u32) -> Self {
        Self {
            key,
            head: NONE,
            tail: NONE,
            len: 0,
            origin: OriginId(NONE),
            era,
            failed: None,
            span: 0,
            span_max: u16::MAX,
            state: State::Empty,
            calls: 0,
            probe: false,
            at: Moment::ZERO,
        }
    }
}

/// Slabs stay below `u32::MAX` entries: pool capacities and the byte budget bound them.
fn index(at: usize) -> u32 {
    u32::try_from(at).expect("bounded by capacity")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_costs_little() {
        assert!(size_of::<Lane>() <= 64, "{}", size_of::<Lane>());
        assert!(size_of::<Slot>() <= 64, "{}", size_of::<Slot>());
    }
}
