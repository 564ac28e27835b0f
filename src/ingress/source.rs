//! What the ingress asks of a broker's adapter. The trait is the ingress's; adapters implement it.

use std::io;
use std::num::NonZeroUsize;

use shards::clock::Moment;
use shards::desk::{Arrival, Receipt, SourceSpec, Tell};
use shards::model::{IdHasher, SourceId, Ticket};
use thiserror::Error;

/// An inbound queue. `receive` and `settle` run side by side on the ingress thread.
#[expect(async_fn_in_trait, reason = "a source never leaves its core: no Send bound")]
pub trait Source {
    /// What the desk must know of it.
    fn spec(&self) -> SourceSpec;

    /// Called once, on the ingress thread, before anything else.
    ///
    /// # Errors
    /// The source can't be used; the ingress does not start.
    fn open(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Waits for up to `max` messages; empty when a long poll ran out. Never cancelled once begun:
    /// what a broker hands to an abandoned call stays hidden for a whole lease.
    async fn receive(
        &self,
        id: SourceId,
        hasher: IdHasher,
        max: NonZeroUsize,
    ) -> Result<Vec<Arrival>, ReceiveError>;

    /// Says what became of messages, and answers for those that the desk wants confirmed. Repeating a
    /// receipt is harmless.
    async fn settle(&self, tells: Vec<(Receipt, Tell)>) -> Vec<Answer>;
}

/// A source's answer to a [`Tell`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// The source connected anew: receipts of other epochs are void. Comes before any arrival with the
    /// new epoch.
    Reconnected {
        /// The new epoch.
        epoch: u32,
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
