//! What a broker is told: every command of a connection, numbered, as frames.

use std::cell::Cell;

use super::basic::Writer;
use super::ids::{VERSION_WITH_TEXT_IDS, kind};
use super::message::{Copy, Message, write_question};

/// A connection has one session, and in it one producer.
pub(super) const SESSION: i64 = 1;
pub(super) const PRODUCER: i64 = 1;
/// Ack this one message, not all up to it.
const INDIVIDUAL: u8 = 4;
/// No word on which messages were worked on: a closed consumer's messages count as never handed over.
const NOTHING_DELIVERED: i64 = -1;
const ADD: u8 = 0;
const REMOVE: u8 = 1;
/// Where the byte stands that asks for an answer: after the length, the type and the number.
const ASKS_AT: usize = 9;

/// A command on its way.
#[derive(Debug)]
pub(in super::super) struct Told {
    /// Its answer carries it.
    pub(in super::super) number: i32,
    pub(in super::super) frame: Vec<u8>,
}

impl Told {
    /// Asks for an answer after all.
    pub(in super::super) fn asking(mut self) -> Self {
        self.frame[ASKS_AT] = 1;
        self
    }
}

/// Writes one connection's commands.
#[derive(Debug)]
pub(in super::super) struct Scribe {
    connection: String,
    version: i32,
    commands: Cell<i32>,
    messages: Cell<i64>,
}

impl Scribe {
    pub(in super::super) const fn new(connection: String, version: i32) -> Self {
        Self { connection, version, commands: Cell::new(0), messages: Cell::new(0) }
    }

    pub(in super::super) const fn version(&self) -> i32 {
        self.version
    }

    fn tell(&self, kind: u8, asks: bool, rest: impl FnOnce(&mut Writer)) -> Told {
        let number = self.commands.get().wrapping_add(1);
        self.commands.set(number);
        let mut out = Writer::default();
        out.i32(0);
        out.u8(kind);
        out.i32(number);
        out.bool(asks);
        rest(&mut out);
        Told { number, frame: super::close_frame(out) }
    }

    fn next_message(&self) -> i64 {
        self.messages.set(self.messages.get() + 1);
        self.messages.get()
    }

    /// Who we are.
    pub(in super::super) fn connection(&self, client: &str, user: Option<(&str, &str)>) -> Told {
        self.tell(kind::CONNECTION_INFO, true, |out| {
            out.connection_id(&self.connection);
            out.text(Some(client));
            out.text(user.map(|(_, password)| password));
            out.text(user.map(|(name, _)| name));
            out.bool(false); // Brokers on its way.
            out.bool(false); // A broker's own.
            out.bool(true); // Shown to who manages the broker.
            out.bool(true); // A client's.
            out.bool(false); // Fault tolerant.
            out.bool(false); // One that was broken.
            out.text(None); // Our address.
        })
    }

    pub(in super::super) fn session(&self) -> Told {
        self.tell(kind::SESSION_INFO, false, |out| out.session_id(&self.connection, SESSION))
    }

    pub(in super::super) fn producer(&self) -> Told {
        self.tell(kind::PRODUCER_INFO, false, |out| {
            out.producer_id(&self.connection, SESSION, PRODUCER);
            out.absent(); // Any destination.
            out.bool(false); // Brokers on its way.
            out.bool(false); // Its messages are handed over at once.
            out.i32(0); // No window.
        })
    }

    /// A consumer that may have `window` messages unsettled.
    pub(in super::super) fn consumer(&self, number: i64, from: Place<'_>, window: u16) -> Told {
        self.tell(kind::CONSUMER_INFO, true, |out| {
            out.consumer_id(&self.connection, SESSION, number);
            out.bool(false); // Takes, does not only look.
            from.write(out);
            out.i32(i32::from(window));
            out.i32(0); // No limit of those that wait: that is for topics.
            out.bool(true); // A slow consumer does not hold up others.
            out.text(None); // Selector.
            if self.version >= VERSION_WITH_TEXT_IDS {
                out.text(None); // Client.
            }
            out.text(None); // Subscription.
            out.bool(false); // Our own messages too.
            out.bool(false); // Not the only consumer.
            out.bool(false); // Not retroactive.
            out.u8(0); // Priority.
            out.bool(false); // Brokers on its way.
            out.absent(); // Predicate.
            out.bool(false); // Not another broker's.
            out.bool(false); // Acks are not gathered.
            out.bool(true); // And name one message each.
            out.bool(false); // Other brokers' consumers.
        })
    }

    /// Another window for the consumer.
    pub(in super::super) fn window(&self, number: i64, queue: &str, window: u16) -> Told {
        self.tell(kind::CONSUMER_CONTROL, false, |out| {
            Place::Queue(queue).write(out);
            out.bool(false); // Close.
            out.consumer_id(&self.connection, SESSION, number);
            out.i32(i32::from(window));
            out.bool(false); // Flush.
            out.bool(false); // Start.
            out.bool(false); // Stop.
        })
    }

    /// Forget a message. `id`: its id as a structure.
    pub(in super::super) fn ack(&self, number: i64, from: Place<'_>, id: &[u8]) -> Told {
        self.tell(kind::ACK, false, |out| {
            from.write(out);
            out.absent(); // Transaction.
            out.consumer_id(&self.connection, SESSION, number);
            out.u8(INDIVIDUAL);
            out.raw(id);
            out.raw(id);
            out.i32(1);
            out.bool(false); // It was no poison.
        })
    }

    /// Closes a consumer: the broker takes back all that is unsettled, in order.
    pub(in super::super) fn close_consumer(&self, number: i64) -> Told {
        self.tell(kind::REMOVE, true, |out| {
            out.consumer_id(&self.connection, SESSION, number);
            out.i64(NOTHING_DELIVERED);
        })
    }

    /// Sends a copy of `message`, which stands in `frame`.
    pub(in super::super) fn copy(
        &self,
        message: &Message<'_>,
        frame: &[u8],
        queue: &str,
        properties: &[u8],
    ) -> Told {
        let copy = Copy { connection: &self.connection, number: self.next_message(), queue, properties };
        self.tell(message.kind, true, |out| message.write_copy(frame, &copy, self.version, out))
    }

    /// Sends a message without a body that is of no use after `expiration`.
    pub(in super::super) fn question(&self, queue: &str, reply_to: &str, times: [i64; 2]) -> Told {
        let (sender, places) = ((self.connection.as_str(), self.next_message()), (queue, reply_to));
        self.tell(kind::MESSAGE, true, |out| write_question(sender, places, times, self.version, out))
    }

    /// Makes a queue that lives as long as the connection.
    pub(in super::super) fn temporary_queue(&self, name: &str) -> Told {
        self.destination(Place::Temporary(name), ADD)
    }

    /// Deletes a queue, if nobody consumes from it.
    pub(in super::super) fn delete_queue(&self, name: &str) -> Told {
        self.destination(Place::Queue(name), REMOVE)
    }

    fn destination(&self, place: Place<'_>, what: u8) -> Told {
        self.tell(kind::DESTINATION_INFO, true, |out| {
            out.connection_id(&self.connection);
            place.write(out);
            out.u8(what);
            out.i64(0); // Not by force.
            out.bool(false); // Brokers on its way.
        })
    }

    /// Says that we are there; `asks` whether the broker is.
    pub(in super::super) fn alive(&self, asks: bool) -> Told {
        self.tell(kind::KEEP_ALIVE, asks, |_| {})
    }

    /// The last word.
    pub(in super::super) fn shutdown(&self) -> Told {
        self.tell(kind::SHUTDOWN, false, |_| {})
    }
}

/// A queue.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Place<'a> {
    Queue(&'a str),
    /// One that lives as long as its connection.
    Temporary(&'a str),
}

impl Place<'_> {
    fn write(self, out: &mut Writer) {
        match self {
            Self::Queue(name) => out.destination(kind::QUEUE, name),
            Self::Temporary(name) => out.destination(kind::TEMP_QUEUE, name),
        }
    }
}
