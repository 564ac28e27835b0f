//! What travels over a link: envelopes and controls to a shard, settlements and reports back.
//! Every slot of a ring is at most 64 bytes.

use std::sync::Arc;

use super::ids::{BatchId, LaneKey, PoolId, Ticket};
use super::outcome::{Outcome, Verdict};
use super::parcel::Parcel;
use super::pool::PoolSpec;
use super::seen::{Seen, Wanted};
use crate::meter::ShardSnapshot;
use crate::shard::PoolShared;

/// How a source's groups are kept in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ordering {
    /// The broker locks groups: a failed message takes its batch's followers with it.
    Batch,
    /// The broker does not: a failed head stays at the head of its lane and is retried in place.
    Strict,
    /// Every message is its own lane.
    None,
}

/// What a failed message does to those behind it in its group. Carried by the message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dispatch {
    /// It waits for no other message and none waits for it.
    Immediate,
    /// In order, but the next one goes on when it fails.
    NextOnError,
    /// In order, and a failure stops the group.
    #[default]
    BlockOnError,
}

/// Small facts about a message, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u8);

impl Flags {
    /// Its group goes before others while it is at the head.
    pub const HIGH_PRIORITY: Self = Self(1);
    /// No more of its batch and group follow.
    pub const LAST_OF_BATCH: Self = Self(2);
    /// The broker would soon drop it: hold it rather than give it back without a try.
    pub const NEAR_LIMIT: Self = Self(4);
    /// Its source judges a failed call: one call is one delivery.
    pub const JUDGED_BY_SOURCE: Self = Self(8);
    /// The permit of the call that delivers it is in use until its ack is kept.
    pub const HOLDS_PERMIT: Self = Self(16);

    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Without `other`'s.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// `other`'s bits are all set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A message in flight between desk and shard.
#[derive(Debug)]
pub struct Envelope {
    /// Its bytes.
    pub parcel: Parcel,
    /// The desk's name for it.
    pub ticket: Ticket,
    /// Its group.
    pub lane: LaneKey,
    /// The batch it came in.
    pub batch: BatchId,
    /// Deliveries that were tried before, here and, where the broker counts, elsewhere.
    pub attempts: u16,
    /// At this many attempts it is set aside; 0 = never.
    pub attempts_max: u16,
    /// What keeps its group in order.
    pub ordering: Ordering,
    /// What its failure does to its group.
    pub dispatch: Dispatch,
    /// The rest.
    pub flags: Flags,
}

/// A message that a shard is done with.
#[derive(Debug)]
pub struct Settlement {
    /// The message, its `attempts` brought up to date.
    pub envelope: Envelope,
    /// What becomes of it.
    pub verdict: Verdict,
}

/// To a shard.
#[derive(Debug)]
pub enum ToShard {
    /// Deliver this.
    Run(Envelope),
    /// Change something. Rare, so boxed.
    Control(Box<Control>),
    /// Acks of messages that held permits are kept: the permits are free.
    Kept {
        /// Whose permits.
        pool: PoolId,
        /// How many.
        count: u32,
    },
}

/// Commands to a shard. They keep their place in the ring, so that a pool is known before its messages.
#[derive(Debug)]
pub enum Control {
    /// A new pool.
    PoolAdd {
        /// Its id; not in use.
        pool: PoolId,
        /// Its settings.
        spec: PoolSpec,
        /// Permits and rate, shared by all shards.
        shared: Arc<PoolShared>,
    },
    /// The pool's settings and shared limits changed: look again.
    PoolChanged {
        /// Which.
        pool: PoolId,
        /// Its new settings.
        spec: PoolSpec,
    },
    /// Give back what has not started, let the rest finish, then report [`FromShard::PoolDrained`].
    PoolDrain {
        /// Which.
        pool: PoolId,
    },
    /// Give back this message, if it has not started, and what waits behind it in its lane.
    GiveBack {
        /// Its lane.
        lane: LaneKey,
        /// Which.
        ticket: Ticket,
    },
    /// Give back everything that has not started and start no more.
    Drain,
    /// Report [`FromShard::Snapshot`].
    Snapshot,
    /// Report [`FromShard::Seen`].
    Look(Vec<Wanted>),
    /// End the shard's thread. What is still running is abandoned.
    Stop,
}

/// From a shard.
#[derive(Debug)]
pub enum FromShard {
    /// Done with a message.
    Settled(Settlement),
    /// Nothing of this pool is left here.
    PoolDrained(PoolId),
    /// A look at the counters.
    Snapshot(Box<ShardSnapshot>),
    /// What was found of what was asked for, in that order.
    Seen(Box<Vec<Seen>>),
    /// Something an operator should know. Rare and rate-limited, so boxed.
    Noticed(Box<Notice>),
}

/// What a shard noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A target refused a message for good (`CONFIGURATION` warning; critical on 501).
    Refused {
        /// The target.
        origin: String,
        /// What happened.
        outcome: Outcome,
    },
    /// A target's breaker changed.
    Breaker {
        /// The target.
        origin: String,
        /// Tripped, or admitting again.
        tripped: bool,
    },
    /// A lowered concurrency is still exceeded after 60 s.
    StillAbove {
        /// Which pool.
        pool: PoolId,
    },
    /// Lanes had messages and nothing that would make them go on (`GROUP_THREAD_EXIT_WITH_MESSAGES`).
    LanesStuck {
        /// Their pool.
        pool: PoolId,
        /// How many.
        count: u32,
    },
    /// They were made ready again (`GROUP_THREAD_RESTART`).
    LanesRestarted {
        /// Their pool.
        pool: PoolId,
        /// How many.
        count: u32,
    },
    /// A call had no outcome long after its timeout (`MEDIATOR_NULL_RESULT`).
    NoOutcome {
        /// Its pool.
        pool: PoolId,
        /// Its target.
        origin: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_slot_is_at_most_a_cache_line() {
        assert!(size_of::<ToShard>() <= 64, "{}", size_of::<ToShard>());
        assert!(size_of::<FromShard>() <= 64, "{}", size_of::<FromShard>());
    }
}
