//! Which messages the process holds: one entry each, found by the broker's id, by the sender's id and
//! by ticket, and in the order in which their leases must be extended. Pure. Core: the ingress.
//!
//! - D1: a broker id is held at most once; a sender's id has at most one entry that is not a twin.
//! - D2: every held message with a lease is in its source's lease list, soonest first.

use hashbrown::HashTable;

use crate::clock::Moment;
use crate::model::{IdHash, LaneKey, SourceId, Ticket};

const NONE: u32 = u32::MAX;

/// A source's name for one hand-over of a message. Valid only in the connection epoch it came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Receipt {
    /// The adapter's key for the broker's handle.
    pub key: u64,
    /// The connection epoch.
    pub epoch: u32,
}

/// Where a held message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// With a shard.
    Out,
    /// Kept here until an older one of its group is back.
    Parked,
    /// Chained to the entry with the same sender's id, in this slot.
    TwinOf(u32),
    /// Delivered; its source has been told and has not confirmed yet.
    Closing,
    /// Being written to the dead-letter store; not acked before that is done.
    SettingAside,
    /// Written there; its source has been told again and has not confirmed yet.
    SetAside,
}

/// A held message.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not a state")]
pub struct Entry {
    /// As the source knows it.
    pub broker_id: IdHash,
    /// As the sender knows it.
    pub app_id: IdHash,
    /// The newest.
    pub receipt: Receipt,
    /// Its group.
    pub lane: LaneKey,
    /// First handed over at.
    pub first_at: Moment,
    /// The lease runs until then, as far as we know.
    pub lease_until: Moment,
    /// Extend it then.
    pub extend_at: Moment,
    /// Order of arrival, over all sources.
    pub seq: u64,
    /// Counted against the byte budget.
    pub bytes: u32,
    /// Where it came from.
    pub source: SourceId,
    /// Times the broker handed it over.
    pub deliveries: u16,
    /// Where it is.
    pub stage: Stage,
    /// Later ones of its group must wait while it is at its source.
    pub blocks: bool,
    /// Its shard was asked to give it back.
    pub giving_back: bool,
    /// It was delivered, and its shard holds the call's permit for it.
    pub holds_permit: bool,
    /// Extensions that failed in a row.
    pub extensions_failed: u8,
    /// First of the twins chained to it.
    twin: u32,
    next_twin: u32,
    tenant: u32,
    lease_prev: u32,
    lease_next: u32,
    leased: bool,
}

/// What is known of a newcomer.
#[derive(Clone, Copy, Debug)]
pub struct Newcomer {
    /// As the source knows it.
    pub broker_id: IdHash,
    /// As the sender knows it.
    pub app_id: IdHash,
    /// Its receipt.
    pub receipt: Receipt,
    /// Its group.
    pub lane: LaneKey,
    /// Its source.
    pub source: SourceId,
    /// Counted against the byte budget.
    pub bytes: u32,
    /// Times the broker handed it over.
    pub deliveries: u16,
    /// Later ones of its group must wait while it is at its source.
    pub blocks: bool,
}

#[derive(Clone, Copy, Debug)]
struct LeaseList {
    head: u32,
    tail: u32,
}

/// All held messages.
#[derive(Debug)]
pub struct Tracker {
    entries: Vec<Option<Entry>>,
    tenants: Vec<u32>,
    free: Vec<u32>,
    by_broker: HashTable<u32>,
    by_app: HashTable<u32>,
    leases: Vec<LeaseList>,
    seq: u64,
    count: usize,
}

impl Default for Tracker {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "half of a 128-bit hash is a 64-bit hash")]
const fn half(id: IdHash) -> u64 {
    id.0 as u64
}

impl Tracker {
    /// Holds nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            entries: Vec::new(),
            tenants: Vec::new(),
            free: Vec::new(),
            by_broker: HashTable::new(),
            by_app: HashTable::new(),
            leases: Vec::new(),
            seq: 0,
            count: 0,
        }
    }

    /// Messages held, twins and closing ones included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// None.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The entry in a slot in use.
    #[must_use]
    pub fn at(&self, slot: u32) -> &Entry {
        self.entries[slot as usize].as_ref().expect("a slot in use")
    }

    /// The entry in a slot in use.
    pub fn at_mut(&mut self, slot: u32) -> &mut Entry {
        self.entries[slot as usize].as_mut().expect("a slot in use")
    }

    /// The slot of a ticket that is still held.
    #[must_use]
    pub fn slot(&self, ticket: Ticket) -> Option<u32> {
        let entry = self.entries.get(ticket.slot as usize)?.as_ref()?;
        (entry.tenant == ticket.tenant).then_some(ticket.slot)
    }

    /// The ticket of a slot in use.
    #[must_use]
    pub fn ticket(&self, slot: u32) -> Ticket {
        Ticket { slot, tenant: self.at(slot).tenant }
    }

    /// By the source's id.
    #[must_use]
    pub fn by_broker_id(&self, id: IdHash) -> Option<u32> {
        self.by_broker.find(half(id), |&slot| self.at(slot).broker_id == id).copied()
    }

    /// By the sender's id; never a twin.
    #[must_use]
    pub fn by_app_id(&self, id: IdHash) -> Option<u32> {
        self.by_app.find(half(id), |&slot| self.at(slot).app_id == id).copied()
    }

    /// Holds a newcomer, chained to `first` if it is a twin.
    pub fn hold(&mut self, new: Newcomer, first: Option<u32>, now: Moment) -> u32 {
        self.seq += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.tenants.push(0);
            u32::try_from(self.entries.len() - 1).expect("bounded by capacity")
        });
        let (stage, next_twin) = match first {
            None => (Stage::Out, NONE),
            Some(first) => {
                let chain = &mut self.at_mut(first).twin;
                (Stage::TwinOf(first), std::mem::replace(chain, slot))
            }
        };
        self.entries[slot as usize] = Some(Entry {
            broker_id: new.broker_id,
            app_id: new.app_id,
            receipt: new.receipt,
            lane: new.lane,
            first_at: now,
            lease_until: Moment::NEVER,
            extend_at: Moment::NEVER,
            seq: self.seq,
            bytes: new.bytes,
            source: new.source,
            deliveries: new.deliveries,
            stage,
            blocks: new.blocks,
            giving_back: false,
            holds_permit: false,
            extensions_failed: 0,
            twin: NONE,
            next_twin,
            tenant: self.tenants[slot as usize],
            lease_prev: NONE,
            lease_next: NONE,
            leased: false,
        });
        self.count += 1;
        let entries = &self.entries;
        let broker = |&slot: &u32| entries[slot as usize].as_ref().map_or(0, |entry| half(entry.broker_id));
        self.by_broker.insert_unique(half(new.broker_id), slot, broker);
        if first.is_none() {
            let app = |&slot: &u32| entries[slot as usize].as_ref().map_or(0, |entry| half(entry.app_id));
            self.by_app.insert_unique(half(new.app_id), slot, app);
        }
        slot
    }

    /// Lets go of a message. Its twins must have been taken off.
    pub fn release(&mut self, slot: u32) -> Entry {
        self.unlease(slot);
        let entry = self.entries[slot as usize].take().expect("a slot in use");
        debug_assert_eq!(entry.twin, NONE, "D1: no twin loses its first");
        if let Ok(found) = self.by_broker.find_entry(half(entry.broker_id), |&other| other == slot) {
            found.remove();
        }
        if let Ok(found) = self.by_app.find_entry(half(entry.app_id), |&other| other == slot) {
            found.remove();
        }
        self.tenants[slot as usize] = self.tenants[slot as usize].wrapping_add(1);
        self.free.push(slot);
        self.count -= 1;
        entry
    }

    /// Takes the next twin off an entry.
    pub fn take_twin(&mut self, slot: u32) -> Option<u32> {
        let twin = self.at(slot).twin;
        if twin == NONE {
            return None;
        }
        self.at_mut(slot).twin = self.at(twin).next_twin;
        Some(twin)
    }

    /// A lease of `source` starts or was extended: it comes up again at `extend_at`, which must not be
    /// earlier than any other of that source (all leases of a source are equally long).
    pub fn lease(&mut self, slot: u32, extend_at: Moment, until: Moment) {
        self.unlease(slot);
        let source = usize::from(self.at(slot).source.0);
        if self.leases.len() <= source {
            self.leases.resize(source + 1, LeaseList { head: NONE, tail: NONE });
        }
        let tail = self.leases[source].tail;
        let entry = self.at_mut(slot);
        entry.lease_until = until;
        entry.extend_at = extend_at;
        entry.leased = true;
        entry.lease_prev = tail;
        entry.lease_next = NONE;
        if tail == NONE {
            self.leases[source].head = slot;
        } else {
            self.at_mut(tail).lease_next = slot;
        }
        self.leases[source].tail = slot;
    }

    /// Its lease need not be kept any more.
    pub fn unlease(&mut self, slot: u32) {
        let entry = self.at_mut(slot);
        if !entry.leased {
            return;
        }
        entry.leased = false;
        let (prev, next, source) = (entry.lease_prev, entry.lease_next, usize::from(entry.source.0));
        match prev {
            NONE => self.leases[source].head = next,
            prev => self.at_mut(prev).lease_next = next,
        }
        match next {
            NONE => self.leases[source].tail = prev,
            next => self.at_mut(next).lease_prev = prev,
        }
    }

    /// The message of `source` whose lease comes up first.
    #[must_use]
    pub fn next_lease(&self, source: SourceId) -> Option<u32> {
        self.leases.get(usize::from(source.0)).map(|list| list.head).filter(|&head| head != NONE)
    }

    /// Gives the next place in the order of arrival to a message that is not held.
    pub const fn count_arrival(&mut self) {
        self.seq += 1;
    }

    /// The newest place in the order of arrival.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        self.seq
    }

    /// Messages held that came from `source`. Looks at every slot.
    #[must_use]
    pub fn held_by(&self, source: SourceId) -> usize {
        self.entries.iter().flatten().filter(|entry| entry.source == source).count()
    }

    /// Messages held that are chained to another. Looks at every slot.
    #[must_use]
    pub fn twins(&self) -> usize {
        self.entries.iter().flatten().filter(|entry| matches!(entry.stage, Stage::TwinOf(_))).count()
    }

    /// Up to `max` slots in use, oldest arrival first.
    #[must_use]
    pub fn oldest(&self, max: usize) -> Vec<u32> {
        let mut first = std::collections::BinaryHeap::with_capacity(max + 1);
        for (slot, entry) in (0_u32..).zip(&self.entries) {
            let Some(entry) = entry else { continue };
            first.push((entry.seq, slot));
            if first.len() > max {
                first.pop();
            }
        }
        first.into_sorted_vec().into_iter().map(|(_, slot)| slot).collect()
    }

    /// Slots in use, oldest arrival first.
    #[must_use]
    pub fn in_order(&self) -> Vec<u32> {
        let mut slots: Vec<u32> =
            (0..).zip(&self.entries).filter(|(_, entry)| entry.is_some()).map(|(slot, _)| slot).collect();
        slots.sort_unstable_by_key(|&slot| self.at(slot).seq);
        slots
    }
}
