//! The brokers under test.

pub(crate) mod activemq;
pub(crate) mod embedded;
pub(crate) mod nats;
pub(crate) mod rabbitmq;

pub(crate) mod sqs;

use super::broker::Broker;

/// A kind of broker: its name, and how to start one.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) start: fn() -> Box<dyn Broker>,
    /// How to start one to measure: with what most people run, not what the suite's kills need.
    pub(crate) measured: fn() -> Box<dyn Broker>,
}

/// All of them, in the order of the table. Some run at once: the slowest come first.
pub(crate) const KINDS: &[Kind] = &[
    Kind { name: "sqs-standard", start: sqs::start_standard, measured: sqs::start_standard_fast },
    Kind { name: "nats", start: nats::start, measured: nats::start_unsynced },
    Kind { name: "activemq", start: activemq::start, measured: activemq::start },
    Kind { name: "sqs", start: sqs::start, measured: sqs::start_fast },
    Kind { name: "rabbitmq", start: rabbitmq::start_classic, measured: rabbitmq::start_classic },
    Kind { name: "rabbitmq-quorum", start: rabbitmq::start_quorum, measured: rabbitmq::start_quorum },
    Kind { name: "sqlite", start: embedded::start, measured: embedded::start },
    Kind { name: "memory", start: embedded::start_in_memory, measured: embedded::start_in_memory },
];
