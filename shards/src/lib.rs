//! corelane's data plane: the desk (ingress brain), the shards (core brains), the courier (HTTP as
//! byte machines), the wires (that move bytes) and the engine that pins them to cores.
//!
//! `model, clock, meter, timer ← link, desk, shard, courier ← wire, drive ← engine`. Nothing points back.

pub mod clock;
pub mod courier;
pub mod desk;
pub mod drive;
pub mod engine;
pub mod link;
pub mod meter;
pub mod model;
pub mod placement;
pub mod resolve;
pub mod shard;
#[cfg(feature = "sim")]
pub mod sim;
pub mod timer;
pub mod wire;
