//! Plain counters, one set per core. Never shared: a snapshot travels over the link.

use hdrhistogram::Histogram;

use crate::clock::Moment;
use crate::model::{PoolId, ShardId};

/// Bounds of latency buckets, in microseconds; one more bucket has none.
pub const LATENCY_BOUNDS_US: [u64; 17] = [
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
];

/// A small histogram: kept per pool and per target, where a fine one would cost too much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Calls per bucket of [`LATENCY_BOUNDS_US`], not cumulative; the last has no bound.
    pub counts: [u64; LATENCY_BOUNDS_US.len() + 1],
    /// Sum of all, in microseconds.
    pub sum_us: u64,
}

impl Latency {
    /// Counts a call.
    pub fn record(&mut self, us: u64) {
        self.counts[LATENCY_BOUNDS_US.partition_point(|&bound| bound < us)] += 1;
        self.sum_us = self.sum_us.wrapping_add(us);
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum += count;
        }
        self.sum_us = self.sum_us.wrapping_add(other.sum_us);
    }
}

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
    /// Targets known here.
    pub targets: Vec<TargetSnapshot>,
    /// Connections open.
    pub connections: u32,
    /// CPU nanoseconds that the shard's thread has used.
    pub busy_ns: u64,
    /// Nanoseconds since the start.
    pub age_ns: u64,
}

/// A pool on one shard, now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSnapshot {
    /// Which.
    pub pool: PoolId,
    /// Messages that wait.
    pub queued: u32,
    /// Calls in flight.
    pub running: u32,
    /// Lanes with messages.
    pub lanes: u32,
    /// Counters since the pool was added here.
    pub counts: PoolCounts,
    /// Calls.
    pub latency: Latency,
}

/// Monotonic counters of one pool on one shard, in the router document's terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Messages taken in.
    pub submitted: u64,
    /// `SUCCESS`.
    pub delivered: u64,
    /// `ERROR_CONFIG` and `ERROR_CONNECTION`.
    pub failed: u64,
    /// `ERROR_PROCESS`.
    pub transient: u64,
    /// Times it had to wait for its rate.
    pub rate_limited: u64,
}

impl PoolCounts {
    /// Adds another's counts.
    pub const fn add(&mut self, other: &Self) {
        self.submitted += other.submitted;
        self.delivered += other.delivered;
        self.failed += other.failed;
        self.transient += other.transient;
        self.rate_limited += other.rate_limited;
    }
}

/// A breaker's state, mildest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum BreakerLook {
    /// Lets calls through.
    #[default]
    Admitting,
    /// Lets one through at a time, to see.
    Probing,
    /// Lets none through until then.
    Tripped(Moment),
}

/// A target on one shard, now.
#[derive(Clone, Debug)]
pub struct TargetSnapshot {
    /// Its place in the shard's table.
    pub id: crate::model::OriginId,
    /// `scheme://host:port`.
    pub origin: String,
    /// Its breaker.
    pub breaker: BreakerLook,
    /// Calls in flight.
    pub active: u32,
    /// Lanes that wait for the breaker.
    pub held: u32,
    /// Calls that ended.
    pub calls: u64,
    /// Of those, without an answer.
    pub failures: u64,
    /// Open connections.
    pub connections: u32,
    /// Calls.
    pub latency: Latency,
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
