//! Names for things, one newtype each, so that two of them can't be swapped.

use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;

/// A pool, by its place in the desk's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u16);

/// A source (one broker queue), by its place in the desk's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u16);

/// A shard, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u8);

/// A target origin (scheme, host, port), by its place in one shard's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OriginId(pub u32);

/// One HTTP call under way, by its place in one shard's table. Unique while the call is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u32);

/// One batch handed over by a source. Wraps; only equality among live batches matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u32);

/// A message the desk holds: the slot and which tenant of that slot. Never names another message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    /// Slot in the desk's table.
    pub slot: u32,
    /// Counts the slot's tenants.
    pub tenant: u32,
}

/// A group of one pool. Two groups with the same hash share a lane, which costs parallelism
/// and never order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneKey {
    /// Hash of pool and group.
    pub hash: u64,
    /// The pool: never merged by a collision, because permits belong to it.
    pub pool: PoolId,
}

/// A message id as 128 keyed bits. Wide enough that two ids never meet (2⁻⁶⁴ after 2³² messages).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdHash(pub u128);

/// Makes [`IdHash`]es and lane hashes. Keyed (`DeskTuning::hash_key`), so that a sender who does
/// not know the key can't aim for a collision.
#[derive(Clone, Copy, Debug)]
pub struct IdHasher {
    key: (u64, u64),
}

impl IdHasher {
    /// A hasher with its own key.
    #[must_use]
    pub const fn new(key: (u64, u64)) -> Self {
        Self { key }
    }

    /// The id of a message as its source knows it: scoped to the source.
    #[must_use]
    pub fn broker_id(self, source: SourceId, id: &[u8]) -> IdHash {
        self.hash(0x100_0000 | u32::from(source.0), id)
    }

    /// The id of a message as its sender knows it: the same on every source.
    #[must_use]
    pub fn app_id(self, id: &[u8]) -> IdHash {
        self.hash(0x200_0000, id)
    }

    /// The lane of a group.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "half of a 128-bit hash is a 64-bit hash")]
    pub fn lane(self, pool: PoolId, group: &[u8]) -> LaneKey {
        LaneKey { hash: self.hash(0x300_0000 | u32::from(pool.0), group).0 as u64, pool }
    }

    /// A lane of its own for a message that need not wait for any other.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "half of a 128-bit hash is a 64-bit hash")]
    pub fn lane_of_one(self, pool: PoolId, id: IdHash) -> LaneKey {
        LaneKey { hash: (id.0 >> 64) as u64 ^ id.0 as u64, pool }
    }

    fn hash(self, domain: u32, bytes: &[u8]) -> IdHash {
        let mut hasher = SipHasher13::new_with_keys(self.key.0, self.key.1 ^ u64::from(domain));
        hasher.write(bytes);
        IdHash(hasher.finish128().as_u128())
    }
}
