//! The binary and the engine over loopback: one module per feature.

#[path = "../support/mod.rs"]
mod support;

mod changes;
mod config;
mod delivery;
mod fallback;
mod hostile;
mod sink;
mod sync;
