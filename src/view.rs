//! What a person can see of a running router: plain data, made by the control thread a few times a second
//! from the engine's snapshots, read by the admin API, the metrics, the dashboard and `corelane status`.
//! Names in JSON are camelCase. No secret is in any of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use shards::meter::LATENCY_BOUNDS_US;

/// Everything at a glance.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// Program version.
    pub version: String,
    /// When it started, in seconds since 1970.
    pub started_unix_s: u64,
    /// When this was looked at, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// What it is doing.
    pub state: State,
    /// It may be sent traffic.
    pub ready: bool,
    /// If not: why, in words.
    pub not_ready: Vec<String>,
    /// How bytes are moved: `uring`, `glommio` or `epoll`.
    pub io: String,
    /// Messages delivered in the last second.
    pub delivered_per_s: f64,
    /// Messages held.
    pub inflight: u64,
    /// Their bytes.
    pub inflight_bytes: u64,
    /// Bytes that may be held.
    pub memory_budget: u64,
    /// Messages that sources owe.
    pub owed: u64,
    /// Least time left of any lease held, in seconds; none if nothing with a lease is held.
    pub lease_slack_s: Option<f64>,
    /// Messages whose pool was unknown.
    pub default_pool_used_total: u64,
    /// Messages set aside, by reason.
    pub dead_letters_total: BTreeMap<String, u64>,
    /// Messages in the dead-letter store now.
    pub dead_letters: u64,
    /// Warnings not acknowledged.
    pub warnings: u64,
    /// Call latency in the last seconds.
    pub latency: Percentiles,
    /// Shards.
    pub shards: Vec<ShardView>,
    /// Pools, by code.
    pub pools: Vec<PoolView>,
    /// Queues, by name.
    pub queues: Vec<QueueView>,
    /// Targets, busiest first; at most as many as label values are allowed.
    pub targets: Vec<TargetView>,
    /// The last minutes, a second apart, oldest first.
    pub history: Vec<Sample>,
}

/// What the router is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum State {
    /// Before the first config sync.
    #[default]
    Starting,
    /// Delivering.
    Running,
    /// `message-router.enabled = false`.
    Disabled,
    /// Ending.
    Draining,
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Percentiles {
    /// Half are faster.
    pub p50_us: u64,
    /// 95 in 100 are faster.
    pub p95_us: u64,
    /// 99 in 100 are faster.
    pub p99_us: u64,
    /// 999 in 1,000 are faster.
    pub p999_us: u64,
}

/// A second of the past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// When.
    pub unix_s: u64,
    /// Messages delivered in it.
    pub delivered_per_s: f64,
    /// Messages given back after a try in it.
    pub failed_per_s: f64,
    /// Messages held at its end.
    pub inflight: u64,
    /// Half of its calls were faster.
    pub p50_us: u64,
    /// 99 in 100 of its calls were faster.
    pub p99_us: u64,
}

/// A shard.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShardView {
    /// Its number.
    pub shard: u8,
    /// Its core.
    pub core: usize,
    /// Share of its core in the last second, 0 to 1.
    pub busy_ratio: f64,
    /// Envelopes in the ring to it.
    pub ring_depth: u64,
    /// Groups with messages.
    pub groups: u64,
    /// Messages that wait.
    pub queued: u64,
    /// Calls in flight.
    pub active: u64,
    /// Open connections.
    pub connections: u64,
    /// Calls started.
    pub calls_total: u64,
    /// Calls repeated inside a delivery.
    pub retried_total: u64,
    /// Calls without a whole answer in time.
    pub timeouts_total: u64,
    /// Calls that found no working connection.
    pub unreachable_total: u64,
    /// 2xx answers whose body could not be read.
    pub unreadable_total: u64,
}

/// A latency histogram: counts per bucket of [`LATENCY_BOUNDS_US`], the last one without a bound.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Buckets {
    /// Calls per bucket, not cumulative.
    pub counts: Vec<u64>,
    /// Sum of all, in microseconds.
    pub sum_us: u64,
}

/// A pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolView {
    /// Its code.
    pub code: String,
    /// Calls in flight at most.
    pub concurrency: u16,
    /// Messages per minute at most.
    pub rate_limit_per_minute: Option<u32>,
    /// Messages that may wait.
    pub capacity: u32,
    /// Messages that wait.
    pub queued: u64,
    /// Calls in flight.
    pub active: u64,
    /// Groups with messages.
    pub groups: u64,
    /// It is being removed.
    pub draining: bool,
    /// Messages delivered in the last second.
    pub delivered_per_s: f64,
    /// Messages taken in.
    pub submitted_total: u64,
    /// Messages delivered.
    pub delivered_total: u64,
    /// Messages that failed for good or found no target (`ERROR_CONFIG`, `ERROR_CONNECTION`).
    pub failed_total: u64,
    /// Messages that will be tried again (`ERROR_PROCESS`).
    pub transient_total: u64,
    /// Times that the pool had to wait for its rate.
    pub rate_limited_total: u64,
    /// Messages given back untried, by reason.
    pub rejected_total: BTreeMap<String, u64>,
    /// Call latency since the start.
    pub latency: Buckets,
}

/// A queue.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueView {
    /// Its name.
    pub name: String,
    /// Where it is, without user and password.
    pub uri: String,
    /// `sqlite`, `sqs`, …
    pub broker: String,
    /// `BATCH`, `STRICT` or `NONE`.
    pub ordering: String,
    /// It was polled in the last 60 s, or is paused by us.
    pub healthy: bool,
    /// Not polled just now: there is no room.
    pub paused: bool,
    /// Consumers that still settle what they handed over before they go.
    pub draining: u64,
    /// Seconds since the last answered poll.
    pub since_poll_s: f64,
    /// What went wrong last.
    pub error: Option<String>,
    /// Messages that wait at the broker.
    pub depth: Option<u64>,
    /// Messages received.
    pub received_total: u64,
    /// Messages acked.
    pub acked_total: u64,
    /// Messages given back.
    pub nacked_total: u64,
    /// Leases extended.
    pub extended_total: u64,
    /// Acks that the broker did not take.
    pub acks_failed_total: u64,
    /// Messages that could not be read.
    pub unreadable_total: u64,
}

/// A target.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TargetView {
    /// `scheme://host:port`.
    pub origin: String,
    /// Its breaker, the worst over all shards.
    pub breaker: BreakerState,
    /// Milliseconds until the breaker lets a probe through.
    pub retry_in_ms: Option<u64>,
    /// Open connections.
    pub connections: u64,
    /// Calls in flight.
    pub active: u64,
    /// Calls that ended.
    pub calls_total: u64,
    /// Of those, without an answer.
    pub failures_total: u64,
    /// Call latency since the start.
    pub latency: Buckets,
}

/// A breaker's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum BreakerState {
    /// Lets calls through.
    #[default]
    Admitting,
    /// Lets a few through, to see.
    Probing,
    /// Lets none through.
    Tripped,
}

/// A group with messages.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupView {
    /// Its pool.
    pub pool: String,
    /// Its name; `__DEFAULT__` for messages without one.
    pub group: String,
    /// Its shard.
    pub shard: u8,
    /// Messages held.
    pub depth: u64,
    /// Seconds since its oldest message came in.
    pub age_s: f64,
    /// The id of the message at its head.
    pub head: String,
    /// Deliveries of the head that were tried.
    pub attempts: u16,
    /// What it waits for, in words.
    pub waits_for: String,
    /// Seconds until it goes on by itself, where that is known.
    pub resumes_in_s: Option<f64>,
}

/// A message that is held.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageView {
    /// The sender's id.
    pub id: String,
    /// Its queue.
    pub queue: String,
    /// Its pool.
    pub pool: String,
    /// Its group.
    pub group: String,
    /// Its target.
    pub target: String,
    /// Its shard.
    pub shard: u8,
    /// Its place in its group, from 0.
    pub place: u64,
    /// Deliveries that were tried.
    pub attempts: u16,
    /// Times the broker handed it over.
    pub deliveries: u16,
    /// Seconds since it came in.
    pub age_s: f64,
    /// Seconds until its lease ends, where it has one.
    pub lease_left_s: Option<f64>,
    /// What it waits for, in words.
    pub waits_for: String,
    /// Seconds until it goes on by itself, where that is known.
    pub resumes_in_s: Option<f64>,
}

/// A message in the dead-letter store. Its token is never shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterView {
    /// Its number in the store.
    pub number: i64,
    /// The sender's id; empty if it could not be read.
    pub id: String,
    /// The queue it came from.
    pub queue: String,
    /// Its pool.
    pub pool: String,
    /// Its group.
    pub group: String,
    /// Its target.
    pub target: String,
    /// `REFUSED`, `EXHAUSTED` or `MALFORMED`.
    pub reason: String,
    /// The same in words.
    pub detail: String,
    /// The target's last status; 0 if none.
    pub status: u16,
    /// Deliveries tried.
    pub attempts: u16,
    /// When it was set aside, in seconds since 1970.
    pub at_unix_s: u64,
    /// What was to be posted, or what was received; only where one message is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// Which dead letters. An empty filter means all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DeadLetterFilter {
    /// These numbers.
    pub numbers: Vec<i64>,
    /// The sender's id.
    pub id: Option<String>,
    /// The queue.
    pub queue: Option<String>,
    /// The pool.
    pub pool: Option<String>,
    /// The group.
    pub group: Option<String>,
    /// What the target's URL starts with.
    pub target: Option<String>,
    /// The reason.
    pub reason: Option<String>,
    /// The status.
    pub status: Option<u16>,
    /// Set aside at or after this, in seconds since 1970.
    pub after: Option<u64>,
    /// Set aside before this, in seconds since 1970.
    pub before: Option<u64>,
}
