//! The brokers under test.

pub(crate) mod sqlite;
pub(crate) mod sqs;

use super::broker::Broker;

/// A kind of broker: its name, and how to start one.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) start: fn() -> Box<dyn Broker>,
}

/// All of them, in the order of the table.
pub(crate) const KINDS: &[Kind] = &[
    Kind { name: "sqlite", start: sqlite::start },
    Kind { name: "sqs", start: sqs::start },
    Kind { name: "sqs-standard", start: sqs::start_standard },
];
