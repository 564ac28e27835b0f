//! `link/bell.rs`, `shard/permit.rs` and `shard/limit.rs` of `shards`, compiled on loom's atomics so that a model
//! checker can run them in every interleaving. Empty without `--cfg loom`.

#[cfg(loom)]
#[path = "../../src/clock.rs"]
pub mod clock;

#[cfg(loom)]
#[path = "../../src/link/bell.rs"]
pub mod bell;

#[cfg(loom)]
#[path = "../../src/shard/permit.rs"]
pub mod permit;

#[cfg(loom)]
#[path = "../../src/shard/limit.rs"]
pub mod limit;

/// What the three files use of `shards::model`.
#[cfg(loom)]
#[path = "../../src/model/ids.rs"]
pub mod model;
