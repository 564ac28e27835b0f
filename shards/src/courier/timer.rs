//! Deadlines, kept lazily: a connection has one entry however many calls it carries, and the entry is
//! looked at when it comes due, not when a deadline moves. A call costs no timer work.
//! Core: its shard's. Owns: the heap.
//!
//! - T1: an armed entry is never later than the deadline it stands for.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::clock::Moment;
use crate::model::OriginId;
use crate::wire::ConnId;

/// Whose deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whose {
    Conn(ConnId),
    Origin(OriginId),
}

/// All entries of a courier, earliest first.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Moment, Whose)>>,
}

impl Timers {
    /// Makes sure that `whose` comes due by `deadline`. `armed` is the entry it has.
    pub(super) fn arm(&mut self, armed: &mut Moment, deadline: Moment, whose: Whose) {
        if deadline < *armed {
            *armed = deadline;
            self.heap.push(Reverse((deadline, whose)));
        }
    }

    /// The next entry that is due. It may be an old one: its owner compares it with what it armed.
    pub(super) fn pop(&mut self, now: Moment) -> Option<(Moment, Whose)> {
        match self.heap.peek() {
            Some(Reverse((at, _))) if *at <= now => self.heap.pop().map(|Reverse(entry)| entry),
            _ => None,
        }
    }

    pub(super) fn next(&self) -> Option<Moment> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }
}
