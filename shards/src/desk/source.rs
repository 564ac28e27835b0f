//! What passes between the desk and a source: what the desk knows of it, what it hands over, what it is told.

use std::time::Duration;

use super::Receipt;
use crate::model::{DeadReason, Dispatch, IdHash, NackReason, Ordering, Outcome, Parcel, Ticket};

/// The longest a message that went back stays hidden: a nack's default of 30 s, and one that
/// waits for an owed one goes back for up to two seconds longer.
pub(super) const HIDDEN_MAX: Duration = Duration::from_secs(32);

/// The longest a broker without leases holds what it handed to a connection that is gone.
const GONE_MAX: Duration = Duration::from_secs(60);

/// What the desk knows of a source.
#[derive(Clone, Copy, Debug)]
pub struct SourceSpec {
    /// How its groups are kept in order. Not `auto`: the adapter has decided.
    pub ordering: Ordering,
    /// How long a message stays ours without an extension; `None` = as long as the connection.
    pub lease: Option<Duration>,
    /// How long a receive whose caller is gone may still take messages from the queue.
    pub unheard_max: Duration,
    /// Deliveries after which a message is set aside; 0 = never.
    pub attempts_max: u16,
    /// Hand-overs after which the broker itself drops or sets aside a message.
    pub deliveries_max: Option<u16>,
    /// It may hand over a message again although the ack was confirmed (SQS standard queues).
    pub repeats: bool,
    /// It judges failed calls by rules of its own (the event bus): it is told [`Tell::Answered`], and a delivery
    /// is one call.
    pub judges: bool,
    /// A delivered message counts as a call in flight until its ack is kept. For a source that keeps acks in less time
    /// than a call takes: then a crash repeats no more than the calls in flight.
    pub holds_permits: bool,
    /// Messages asked for at once at most.
    pub batch_max: usize,
}

impl SourceSpec {
    /// How long after its end a process's messages may stay hidden; `None`: the broker has them back at once.
    pub(super) fn hidden_max(&self) -> Option<Duration> {
        self.lease.map(|lease| self.unheard_max + lease.max(HIDDEN_MAX))
    }

    /// How long what was handed over and never came may stay hidden.
    pub(super) fn unheard_hidden(&self) -> Duration {
        self.lease.unwrap_or(GONE_MAX)
    }
}

/// A message as a source hands it over.
#[derive(Debug)]
pub struct Arrival {
    /// Its bytes, checked.
    pub parcel: Parcel,
    /// The source's id for it.
    pub broker_id: IdHash,
    /// The handle to tell the source about it.
    pub receipt: Receipt,
    /// Times the broker has handed it over, this one included; 0 = it does not say.
    pub deliveries: u16,
    /// What its failure does to its group.
    pub dispatch: Dispatch,
    /// Goes before others.
    pub high_priority: bool,
}

/// What to tell a source.
#[derive(Debug)]
pub enum Tell {
    /// Forget it. Confirm with [`super::Desk::on_closed`].
    Ack {
        /// Names the message in the confirmation; `None` = nothing to confirm.
        ticket: Option<Ticket>,
    },
    /// Show it again.
    Nack {
        /// After so many seconds.
        delay_s: u32,
        /// Why, for the counters.
        reason: NackReason,
    },
    /// The call failed, and what becomes of the message is the source's to say. Only where [`SourceSpec::judges`].
    Answered {
        /// How it ended.
        outcome: Outcome,
    },
    /// Keep it hidden for another lease. Confirm with [`super::Desk::on_extended`].
    Extend {
        /// Names the message in the confirmation.
        ticket: Ticket,
    },
    /// Write it to the dead-letter store, then forget it. Confirm with [`super::Desk::on_closed`].
    DeadLetter {
        /// Names the message in the confirmation.
        ticket: Ticket,
        /// The message.
        parcel: Parcel,
        /// Why.
        reason: DeadReason,
        /// The last status.
        status: u16,
        /// Deliveries tried.
        attempts: u16,
        /// What its failure did to its group.
        dispatch: Dispatch,
        /// Went before others.
        high_priority: bool,
    },
}
