//! The brokers under test.

pub(crate) mod nats;
pub(crate) mod sqlite;

use super::broker::Broker;

/// A kind of broker: its name, and how to start one.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) start: fn() -> Box<dyn Broker>,
}

/// All of them, in the order of the table.
pub(crate) const KINDS: &[Kind] =
    &[Kind { name: "sqlite", start: sqlite::start }, Kind { name: "nats", start: nats::start }];
