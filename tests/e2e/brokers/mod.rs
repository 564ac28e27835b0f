//! The brokers under test.

pub(crate) mod activemq;
pub(crate) mod nats;
pub(crate) mod sqlite;
pub(crate) mod sqs;

use super::broker::Broker;

/// A kind of broker: its name, and how to start one.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) start: fn() -> Box<dyn Broker>,
}

/// All of them, in the order of the table. Two run at once: the slowest come first.
pub(crate) const KINDS: &[Kind] = &[
    Kind { name: "sqs-standard", start: sqs::start_standard },
    Kind { name: "sqs", start: sqs::start },
    Kind { name: "activemq", start: activemq::start },
    Kind { name: "nats", start: nats::start },
    Kind { name: "sqlite", start: sqlite::start },
];
