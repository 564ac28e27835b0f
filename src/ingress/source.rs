//! What the ingress asks of a broker's adapter. The trait is the ingress's; adapters implement it.

use std::io;
use std::num::NonZeroUsize;
use std::time::Duration;

use shards::clock::Moment;
use shards::desk::{Arrival, Receipt, SourceSpec, Tell};
use shards::model::{IdHash, IdHasher, SourceId, Ticket};
use thiserror::Error;

/// Makes the ids by which the desk knows a queue's messages. The same for every consumer of one queue, so
/// that a message which a new consumer receives again is known to be the one that the old one holds.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    hasher: IdHasher,
    queue: SourceId,
}

impl Scope {
    /// The scope of a queue, named by its first consumer.
    #[must_use]
    pub const fn new(hasher: IdHasher, queue: SourceId) -> Self {
        Self { hasher, queue }
    }

    /// The id of a message as its broker knows it.
    #[must_use]
    pub fn broker_id(self, id: &[u8]) -> IdHash {
        self.hasher.broker_id(self.queue, id)
    }
}

/// A connection to the broker, as the desk must know it.
#[derive(Clone, Debug)]
pub struct Connected {
    /// Receipts of other epochs are void.
    pub epoch: u32,
    /// What the broker said of the queue: its lease, its limit of hand-overs.
    pub spec: SourceSpec,
}

/// Fewer tells than `count` wait for more, at most so long.
#[derive(Clone, Copy, Debug)]
pub struct Linger {
    /// As many as one request can carry.
    pub count: usize,
    /// Longest wait.
    pub wait: Duration,
}

/// What one receive brought.
#[derive(Debug, Default)]
pub struct Batch {
    /// The source connected, for the first time or anew. Then the batch has no messages: how many may be asked for
    /// depends on what was learnt.
    pub connected: Option<Connected>,
    /// Messages, in the broker's order.
    pub arrivals: Vec<Arrival>,
    /// What could not be read. The ingress sets it aside and acks it.
    pub unreadable: Vec<Unreadable>,
}

impl Batch {
    /// Nothing came.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.arrivals.is_empty() && self.unreadable.is_empty()
    }
}

/// A message that can't be read.
#[derive(Debug)]
pub struct Unreadable {
    /// The handle to ack it by.
    pub receipt: Receipt,
    /// Its group, if the broker says.
    pub group: String,
    /// What was received.
    pub body: Vec<u8>,
    /// What is wrong with it.
    pub detail: String,
}

/// An inbound queue. `receive` and `settle` run side by side on the ingress thread.
#[expect(async_fn_in_trait, reason = "a source never leaves its core: no Send bound")]
pub trait Source {
    /// What the desk must know of it, as far as that is known before it connects.
    fn spec(&self) -> SourceSpec;

    /// Messages at the broker that wait, where it can say: read every few seconds, for the metrics.
    async fn depth(&self) -> Option<u64> {
        None
    }

    /// Called once, on the ingress thread, before anything else. Does not wait for a broker: `receive` connects.
    /// `unclean`: the process before ended without giving back what it held. A source without leases waits until its
    /// broker has that back (the desk waits where there are leases).
    ///
    /// # Errors
    /// The source can't be used; the ingress does not start.
    fn open(&mut self, unclean: bool) -> io::Result<()> {
        let _ = unclean;
        Ok(())
    }

    /// Waits for up to `max` messages; empty when a long poll ran out. Never cancelled once begun:
    /// what a broker hands to an abandoned call stays hidden for a whole lease.
    ///
    /// Messages come in the queue's order, also those that came back while no one received: the desk keeps the order of
    /// what it has seen, and knows nothing of what was before it.
    async fn receive(&self, scope: Scope, max: NonZeroUsize) -> Result<Batch, ReceiveError>;

    /// Says what became of messages, and answers for those that the desk wants confirmed. Repeating a
    /// receipt is harmless. Never told [`Tell::DeadLetter`]: the port sets such a message aside and then
    /// tells [`Tell::Ack`].
    async fn settle(&self, tells: Vec<(Receipt, Tell)>) -> Vec<Answer>;

    /// Calls of `settle` that may be under way at once; they begin in order. More than one where a confirmation takes
    /// long and what is to be told next should not wait for it.
    fn settles_at_once(&self) -> usize {
        1
    }

    /// How long a few tells wait for more, where a request carries several.
    fn linger(&self) -> Option<Linger> {
        None
    }

    /// `receive` will not be called any more: gives back, in order, what the broker handed over and `receive`
    /// has not returned. `settle` goes on until all that it did return is settled. The queue's next consumer
    /// receives nothing before this ends.
    ///
    /// What could not be given back, because its connection was lost, stays hidden for a lease. `Some`: it was handed over
    /// until then, and nobody knows whether there is any.
    async fn stop(&self) -> Option<Moment> {
        None
    }
}

/// A source's answer to a [`Tell`].
#[derive(Clone, Debug)]
pub enum Answer {
    /// The ack was confirmed, or lost.
    Closed {
        /// Which message.
        ticket: Ticket,
        /// Confirmed.
        done: bool,
    },
    /// The lease was extended, or not.
    Extended {
        /// Which message.
        ticket: Ticket,
        /// Extended.
        done: bool,
        /// When it was asked for.
        sent: Moment,
    },
    /// The source connected anew. Comes before any arrival with the new epoch.
    Connected(Connected),
    /// The source has stopped. What its broker handed over until then may never have come here, or not have gone back.
    Unheard {
        /// The last of it.
        until: Moment,
    },
    /// The dead-letter store could not take it.
    NotSetAside {
        /// Which message.
        ticket: Ticket,
    },
}

/// Why a source gave nothing.
#[derive(Debug, Error)]
pub enum ReceiveError {
    /// Away or busy. Waiting mends it: the ingress backs off.
    #[error("reach the broker")]
    Unreachable(#[source] io::Error),
    /// Wrong credentials or queue. An operator mends it: the source stops.
    #[error("open queue {queue}")]
    Denied {
        /// Which.
        queue: String,
    },
    /// There will never be more: the source is done.
    #[error("no more messages")]
    Ended,
}
