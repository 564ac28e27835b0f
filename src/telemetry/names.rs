//! The table of metrics: name, kind, meaning, labels, and where the value is read. The one place for all of
//! it; `docs/METRICS.md` is made from it.

use std::fmt::Write;

use super::metrics::{Facts, Samples};
use crate::view::{BreakerState, PoolView, QueueView, ShardView, State, TargetView};

/// What kind of metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts per bucket, in seconds.
    Histogram,
}

/// A metric.
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it tells.
    pub help: &'static str,
    pub(super) read: fn(&Facts<'_>, &mut Samples),
}

type Read = fn(&Facts<'_>, &mut Samples);

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    read: Read,
) -> Metric {
    Metric { name, kind: Kind::Counter, labels, help, read }
}

const fn gauge(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    read: Read,
) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, help, read }
}

const fn histogram(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    read: Read,
) -> Metric {
    Metric { name, kind: Kind::Histogram, labels, help, read }
}

const NONE: &[&str] = &[];
const POOL: &[&str] = &["pool"];
const POOL_REASON: &[&str] = &["pool", "reason"];
const QUEUE: &[&str] = &["queue"];
const REASON: &[&str] = &["reason"];
const SHARD: &[&str] = &["shard"];
const TARGET: &[&str] = &["target"];

/// Every metric, in the order in which it is written.
#[rustfmt::skip]
pub const METRICS: [Metric; 55] = [
    gauge("corelane_build_info", &["version", "io"], "Always 1; the labels say what runs.",
        |facts, out| out.whole(&[("version", &facts.view.version), ("io", &facts.view.io)], 1)),
    gauge("corelane_state", &["state"], "1 for the state the router is in: STARTING, RUNNING, DISABLED or DRAINING.", states),
    gauge("corelane_ready", NONE, "1 if it may be sent traffic.", |facts, out| out.whole(&[], facts.view.ready.into())),

    counter("corelane_messages_submitted_total", POOL, "Messages taken in.", |facts, out| pools(facts, out, |pool| pool.submitted_total)),
    counter("corelane_messages_delivered_total", POOL, "Messages delivered.", |facts, out| pools(facts, out, |pool| pool.delivered_total)),
    counter("corelane_messages_failed_total", POOL, "Messages that failed for good or found no target (ERROR_CONFIG, ERROR_CONNECTION).", |facts, out| pools(facts, out, |pool| pool.failed_total)),
    counter("corelane_messages_transient_total", POOL, "Messages that will be tried again (ERROR_PROCESS).", |facts, out| pools(facts, out, |pool| pool.transient_total)),
    counter("corelane_messages_rate_limited_total", POOL, "Times that the pool had to wait for its rate.", |facts, out| pools(facts, out, |pool| pool.rate_limited_total)),
    counter("corelane_messages_rejected_total", POOL_REASON, "Messages given back untried.", rejected),
    counter("corelane_default_pool_used_total", NONE, "Messages whose pool was unknown.", |facts, out| out.whole(&[], facts.view.default_pool_used_total)),

    gauge("corelane_pool_queued", POOL, "Messages that wait.", |facts, out| pools(facts, out, |pool| pool.queued)),
    gauge("corelane_pool_active", POOL, "Calls in flight.", |facts, out| pools(facts, out, |pool| pool.active)),
    gauge("corelane_pool_groups", POOL, "Groups with messages.", |facts, out| pools(facts, out, |pool| pool.groups)),
    gauge("corelane_pool_concurrency", POOL, "Calls in flight at most.", |facts, out| pools(facts, out, |pool| pool.concurrency.into())),
    gauge("corelane_pool_capacity", POOL, "Messages that may wait.", |facts, out| pools(facts, out, |pool| pool.capacity.into())),
    gauge("corelane_pool_rate_limit_per_minute", POOL, "Messages per minute at most; absent where there is no limit.", rates),
    gauge("corelane_pool_draining", POOL, "1 while the pool is being removed.", |facts, out| pools(facts, out, |pool| pool.draining.into())),
    histogram("corelane_delivery_seconds", POOL, "How long calls took.", |facts, out| {
        for pool in &facts.pools {
            out.seconds(&[("pool", &pool.code)], &pool.latency);
        }
    }),

    gauge("corelane_shard_busy_ratio", SHARD, "Share of its core in the last second, 0 to 1.", |facts, out| {
        for shard in &facts.view.shards {
            out.real(&[("shard", &shard.shard.to_string())], shard.busy_ratio);
        }
    }),
    gauge("corelane_ring_depth", SHARD, "Envelopes in the ring to the shard.", |facts, out| shards(facts, out, |shard| shard.ring_depth)),
    gauge("corelane_shard_groups", SHARD, "Groups with messages.", |facts, out| shards(facts, out, |shard| shard.groups)),
    gauge("corelane_shard_queued", SHARD, "Messages that wait.", |facts, out| shards(facts, out, |shard| shard.queued)),
    gauge("corelane_shard_active", SHARD, "Calls in flight.", |facts, out| shards(facts, out, |shard| shard.active)),
    gauge("corelane_shard_connections", SHARD, "Open connections.", |facts, out| shards(facts, out, |shard| shard.connections)),
    counter("corelane_shard_calls_total", SHARD, "Calls started.", |facts, out| shards(facts, out, |shard| shard.calls_total)),
    counter("corelane_shard_retried_total", SHARD, "Calls repeated inside a delivery.", |facts, out| shards(facts, out, |shard| shard.retried_total)),
    counter("corelane_shard_timeouts_total", SHARD, "Calls without a whole answer in time.", |facts, out| shards(facts, out, |shard| shard.timeouts_total)),
    counter("corelane_shard_unreachable_total", SHARD, "Calls that found no working connection.", |facts, out| shards(facts, out, |shard| shard.unreachable_total)),
    counter("corelane_shard_unreadable_total", SHARD, "2xx answers whose body could not be read.", |facts, out| shards(facts, out, |shard| shard.unreadable_total)),

    gauge("corelane_lease_slack_seconds", NONE, "Least time left of any lease held; absent if nothing with a lease is held.", |facts, out| {
        if let Some(slack) = facts.view.lease_slack_s {
            out.real(&[], slack);
        }
    }),
    gauge("corelane_inflight", NONE, "Messages held.", |facts, out| out.whole(&[], facts.view.inflight)),
    gauge("corelane_inflight_bytes", NONE, "Bytes of the messages held.", |facts, out| out.whole(&[], facts.view.inflight_bytes)),
    gauge("corelane_memory_budget_bytes", NONE, "Bytes of messages that may be held.", |facts, out| out.whole(&[], facts.view.memory_budget)),
    gauge("corelane_owed", NONE, "Messages that sources owe: they went back and must come again first.", |facts, out| out.whole(&[], facts.view.owed)),
    counter("corelane_dead_letters_total", REASON, "Messages set aside since the start.", |facts, out| {
        for (reason, count) in &facts.view.dead_letters_total {
            out.whole(&[("reason", reason)], *count);
        }
    }),
    gauge("corelane_dead_letters", NONE, "Messages in the dead-letter store.", |facts, out| out.whole(&[], facts.view.dead_letters)),
    gauge("corelane_warnings", NONE, "Warnings not acknowledged.", |facts, out| out.whole(&[], facts.view.warnings)),

    gauge("corelane_target_breaker", TARGET, "The target's breaker: 0 admitting, 1 probing, 2 tripped.", |facts, out| targets(facts, out, breaker)),
    gauge("corelane_target_connections", TARGET, "Open connections.", |facts, out| targets(facts, out, |target| target.connections)),
    gauge("corelane_target_active", TARGET, "Calls in flight.", |facts, out| targets(facts, out, |target| target.active)),
    counter("corelane_target_calls_total", TARGET, "Calls that ended.", |facts, out| targets(facts, out, |target| target.calls_total)),
    counter("corelane_target_failures_total", TARGET, "Calls that ended without an answer.", |facts, out| targets(facts, out, |target| target.failures_total)),
    histogram("corelane_target_seconds", TARGET, "How long calls took.", |facts, out| {
        for target in &facts.targets {
            out.seconds(&[("target", &target.origin)], &target.latency);
        }
    }),

    gauge("corelane_queue_depth", QUEUE, "Messages that wait at the broker; absent where the broker does not tell.", depths),
    gauge("corelane_queue_healthy", QUEUE, "1 if it was polled in the last 60 s or is paused by us.", |facts, out| queues(facts, out, |queue| queue.healthy.into())),
    gauge("corelane_queue_paused", QUEUE, "1 if it is not polled because there is no room.", |facts, out| queues(facts, out, |queue| queue.paused.into())),
    counter("corelane_queue_received_total", QUEUE, "Messages received.", |facts, out| queues(facts, out, |queue| queue.received_total)),
    counter("corelane_queue_acked_total", QUEUE, "Messages acked.", |facts, out| queues(facts, out, |queue| queue.acked_total)),
    counter("corelane_queue_nacked_total", QUEUE, "Messages given back.", |facts, out| queues(facts, out, |queue| queue.nacked_total)),
    counter("corelane_queue_extended_total", QUEUE, "Leases extended.", |facts, out| queues(facts, out, |queue| queue.extended_total)),
    counter("corelane_queue_acks_failed_total", QUEUE, "Acks that the broker did not take: it hands those messages over again.", |facts, out| queues(facts, out, |queue| queue.acks_failed_total)),
    counter("corelane_queue_unreadable_total", QUEUE, "Messages that could not be read.", |facts, out| queues(facts, out, |queue| queue.unreadable_total)),

    gauge("process_resident_memory_bytes", NONE, "Resident memory.", |facts, out| out.whole(&[], facts.usage.resident_bytes)),
    counter("process_cpu_seconds_total", NONE, "CPU time, user and system.", |facts, out| out.real(&[], facts.usage.cpu_s)),
    gauge("process_start_time_seconds", NONE, "When the process started, in seconds since 1970.", |facts, out| out.whole(&[], facts.view.started_unix_s)),
];

fn pools(facts: &Facts<'_>, out: &mut Samples, value: fn(&PoolView) -> u64) {
    for pool in &facts.pools {
        out.whole(&[("pool", &pool.code)], value(pool));
    }
}

fn queues(facts: &Facts<'_>, out: &mut Samples, value: fn(&QueueView) -> u64) {
    for queue in &facts.queues {
        out.whole(&[("queue", &queue.name)], value(queue));
    }
}

fn targets(facts: &Facts<'_>, out: &mut Samples, value: fn(&TargetView) -> u64) {
    for target in &facts.targets {
        out.whole(&[("target", &target.origin)], value(target));
    }
}

fn shards(facts: &Facts<'_>, out: &mut Samples, value: fn(&ShardView) -> u64) {
    for shard in &facts.view.shards {
        out.whole(&[("shard", &shard.shard.to_string())], value(shard));
    }
}

fn states(facts: &Facts<'_>, out: &mut Samples) {
    let rows = [
        ("STARTING", State::Starting),
        ("RUNNING", State::Running),
        ("DISABLED", State::Disabled),
        ("DRAINING", State::Draining),
    ];
    for (name, state) in rows {
        out.whole(&[("state", name)], (facts.view.state == state).into());
    }
}

fn rejected(facts: &Facts<'_>, out: &mut Samples) {
    for pool in &facts.pools {
        for (reason, count) in &pool.rejected_total {
            out.whole(&[("pool", &pool.code), ("reason", reason)], *count);
        }
    }
}

fn rates(facts: &Facts<'_>, out: &mut Samples) {
    for pool in &facts.pools {
        if let Some(rate) = pool.rate_limit_per_minute {
            out.whole(&[("pool", &pool.code)], rate.into());
        }
    }
}

fn depths(facts: &Facts<'_>, out: &mut Samples) {
    for queue in &facts.queues {
        if let Some(depth) = queue.depth {
            out.whole(&[("queue", &queue.name)], depth);
        }
    }
}

const fn breaker(target: &TargetView) -> u64 {
    match target.breaker {
        BreakerState::Admitting => 0,
        BreakerState::Probing => 1,
        BreakerState::Tripped => 2,
    }
}

/// `docs/METRICS.md`.
#[must_use]
pub fn document() -> String {
    let mut text = String::from(
        "# Metrics\n\n\
         `GET /metrics` (and `/_metrics`) answers in Prometheus text format. This page is made from the table in\n\
         `src/telemetry/names.rs`; a test keeps the two in step.\n\n\
         Pools, queues and targets beyond `label_values_max` are summed into the label value `__other__`: counters and\n\
         gauges are added, a breaker is the worst one, `healthy` holds only if all are. A figure that does not exist is\n\
         absent, not 0.\n\n\
         | name | kind | labels | tells |\n|---|---|---|---|\n",
    );
    for metric in &METRICS {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let labels = metric.labels.join(", ");
        let _ = writeln!(text, "| `{}` | {kind} | {labels} | {} |", metric.name, metric.help);
    }
    text
}
