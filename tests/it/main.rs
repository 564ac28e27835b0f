//! The binary and the engine over loopback: one module per feature.

#[path = "../support/mod.rs"]
mod support;

mod admin;
mod changes;
mod delivery;
mod fallback;
mod hostile;
mod sink;
mod talk;
