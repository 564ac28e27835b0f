//! Plain counters, one set per core. Never shared: a snapshot travels over the link.

use hdrhistogram::Histogram;

use crate::model::{PoolId, ShardId};

/// What a shard counted since it started, and what it holds now.
#[derive(Clone, Debug, Default)]
pub struct ShardSnapshot {
    /// Whose.
    pub shard: ShardId,
    /// Counters.
    pub counts: Counts,
    /// Call latency in microseconds.
    pub call_us: Option<Histogram<u64>>,
    /// Lanes with messages.
    pub lanes: u32,
    /// Messages that wait.
    pub queued: u32,
    /// Calls in flight.
    pub running: u32,
    /// Pools with messages here.
    pub pools: Vec<PoolSnapshot>,
    /// Targets whose breaker is tripped.
    pub tripped: Vec<String>,
    /// Connections open.
    pub connections: u32,
    /// CPU nanoseconds that the shard's thread has used.
    pub busy_ns: u64,
    /// Nanoseconds since the start.
    pub age_ns: u64,
}

/// A pool on one shard, now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSnapshot {
    /// Which.
    pub pool: PoolId,
    /// Messages that wait.
    pub queued: u32,
    /// Calls in flight.
    pub running: u32,
    /// Lanes with messages.
    pub lanes: u32,
}

/// Monotonic counters of one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Envelopes taken from the ring.
    pub taken: u64,
    /// Calls started.
    pub calls: u64,
    /// Calls that had no whole answer in time.
    pub timeouts: u64,
    /// Calls that found no connection, a broken one, or an answer that is not HTTP.
    pub unreachable: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Messages given back after a try.
    pub failed: u64,
    /// Messages given back without one.
    pub returned: u64,
    /// Messages set aside.
    pub dead: u64,
    /// Calls repeated inside a delivery.
    pub retried: u64,
    /// Times a pool had to wait for its rate.
    pub rate_waits: u64,
    /// Times a pool had to wait for a permit.
    pub permit_waits: u64,
    /// Breakers tripped.
    pub trips: u64,
    /// 2xx answers whose body could not be read.
    pub unreadable: u64,
    /// Turns of the loop.
    pub turns: u64,
}
