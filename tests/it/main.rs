//! The binary and the engine over loopback: one module per feature.

#[path = "../support/mod.rs"]
mod support;

mod admin;
mod arithmetic;
mod changes;
mod config;
mod deadletter;
mod delivery;
mod drains;
mod fallback;
mod hostile;
mod kills;
mod limits;
mod queue;
mod queue_faults;
mod run;
mod sink;
mod soak;
mod sync;
mod talk;
