//! The binary and the engine over loopback: one module per feature.

#[path = "../support/mod.rs"]
mod support;

mod admin;
mod bad_input;
mod calls;
mod changes;
mod config;
mod constants;
mod deadletter;
mod delivery;
mod fallback;
mod fifo;
mod hostile;
mod kills;
mod live;
mod metered;
mod outcomes;
mod queue;
mod queue_faults;
mod replies;
mod run;
mod sink;
mod sync;
mod talk;
mod warned;
