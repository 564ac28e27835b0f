//! corelane's data plane: the desk (ingress brain), the shards (core brains), the courier (HTTP as
//! byte machines), the wires (that move bytes) and the engine that pins them to cores.
//!
//! `model, clock, meter ← link, desk, shard, courier ← wire, drive ← engine`. Nothing points back.

pub mod clock;
pub mod courier;
pub mod link;
pub mod meter;
pub mod model;
pub mod shard;
pub mod wire;
