//! Deterministic simulation: a real desk and real shards over simulated brokers, targets and time.
//! One seed decides everything, so that a failure can be replayed bit by bit. Feature `sim`.
//!
//! `plan` draws what a seed stands for, `world` runs it, `process` drives desk and shards as the real
//! loops do, `exchange` and `broker` are the other side, `faults` what goes wrong, `oracle` what must hold.

mod broker;
mod exchange;
mod faults;
mod life;
mod limits;
mod node;
mod oracle;
mod plan;
mod process;
mod rng;
mod target;
mod world;

pub use faults::{FAULTS, Fault, FaultCounts};
pub use oracle::{INVARIANTS, Violation};

use crate::desk::Traps;

/// How a run differs from the product.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Wrong behaviour of the desk.
    pub traps: Traps,
    /// Trap 12: the desk is told that brokers lock groups which do not.
    pub lie_about_locks: bool,
    /// Messages whose every step is printed.
    pub follow: Vec<u32>,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Messages published.
    pub messages: u64,
    /// Events in virtual time.
    pub events: u64,
    /// Hash of everything that happened.
    pub trace: u64,
    /// How often each fault fired.
    pub faults: FaultCounts,
    /// How often each invariant was evaluated.
    pub checks: [u64; INVARIANTS],
    /// What must never happen, and did.
    pub violation: Option<Violation>,
}

/// Runs one seed.
#[must_use]
pub fn run(seed: u64, options: &Options) -> Report {
    world::World::new(seed, options.clone()).run()
}
