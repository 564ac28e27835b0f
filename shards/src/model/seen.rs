//! What a shard sees of a message or a group when it is asked: for people, not for the hot path.

use super::ids::{LaneKey, OriginId, ShardId, Ticket};
use crate::clock::Moment;

/// Which message: of this lane, the head or the one with this ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its lane.
    pub lane: LaneKey,
    /// `None` = whichever is at the head.
    pub ticket: Option<Ticket>,
}

/// What a message waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Its call is under way since then.
    Answer {
        /// The call's start.
        since: Moment,
        /// The target's place in the shard's table.
        origin: OriginId,
    },
    /// A pause between two calls of a delivery, or a failed head held in place, until then.
    Pause {
        /// Its end.
        until: Moment,
    },
    /// Its target's breaker.
    Breaker,
    /// A permit: as many calls are in flight as the pool allows.
    Permit,
    /// The pool's rate.
    Rate,
    /// Nothing: it starts in this turn or the next.
    Turn,
    /// Those before it in its group.
    Others,
}

/// A message as its shard sees it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Where.
    pub shard: ShardId,
    /// Its lane.
    pub lane: LaneKey,
    /// Messages in that lane.
    pub depth: u32,
    /// The message.
    pub ticket: Ticket,
    /// Its place in the lane, from 0.
    pub place: u32,
    /// The sender's id.
    pub id: String,
    /// Its group; empty if none.
    pub group: String,
    /// Its target.
    pub target: String,
    /// Deliveries that were tried.
    pub attempts: u16,
    /// What it waits for.
    pub wait: Wait,
}
