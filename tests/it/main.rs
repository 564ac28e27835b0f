//! The binary and the engine over loopback: one module per feature.

#[path = "../support/mod.rs"]
mod support;

mod activemq;
mod admin;
mod arithmetic;
mod bad_input;
mod calls;
mod changes;
mod config;
mod constants;
mod deadletter;
mod delivery;
mod drains;
mod fallback;
mod fifo;
mod hostile;
mod kills;
mod limits;
mod live;
mod metered;
mod nats;
mod outcomes;
mod pauses;
mod queue;
mod queue_faults;
mod rabbitmq;
mod replies;
mod run;
mod sink;
mod soak;
mod sync;
mod talk;
mod warned;
