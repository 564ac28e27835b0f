//! placeholder for the shard
/// Shared.
#[derive(Debug)]
pub struct PoolShared;
