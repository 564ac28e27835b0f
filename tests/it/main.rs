//! The binary and the engine over loopback: one module per feature.

#[path = "../support/mod.rs"]
mod support;

mod admin;
mod changes;
mod deadletter;
mod config;
mod delivery;
mod fallback;
mod hostile;
mod queue;
mod queue_faults;
mod sink;
mod talk;
mod sync;
