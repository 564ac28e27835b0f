//! The router document's constants: one row each, with where its number lives here. Those that the running program shows
//! are asked of it.

use std::num::NonZeroU16;
use std::time::Duration;

use corelane::app::{CALLS_WAIT_MAX, GRACE_KEPT};
use corelane::config::Settings;
use corelane::ingress::DEFAULT_GROUP;
use corelane::telemetry::warnings::KEPT_MS;
use serde_json::json;
use shards::desk::DEFAULT_POOL;
use shards::model::{Outcome, PoolSpec};

use super::support::router::{Dir, Router, SinkProgram, message};
use super::support::wait::until;

/// Constants of the router document that have no counterpart here, and why.
const VOID: [(&str, &str); 4] = [
    ("IDLE_TIMEOUT_MINUTES", "a group without messages has no thread to end: its lane goes at once"),
    ("Rate limit wait poll interval", "a pool that waits for its rate is woken by a timer"),
    ("Gauge update interval", "figures are read when they are looked at, every second"),
    ("Shutdown consumer wait", "consumers stop beside the calls, within the calls' 30 s and the grace"),
];

#[test]
fn every_constant_has_the_router_documents_value() {
    let settings = Settings::default();
    let capacity = |concurrency| PoolSpec::new(NonZeroU16::new(concurrency).expect("not 0")).capacity();
    let s = |duration: Duration| duration.as_secs();
    let rows = [
        ("QUEUE_CAPACITY_MULTIPLIER", u64::from(PoolSpec::CAPACITY_FACTOR), 20),
        ("MIN_QUEUE_CAPACITY", u64::from(PoolSpec::CAPACITY_MIN), 50),
        ("capacity of 1", capacity(1).into(), 50),
        ("capacity of 2", capacity(2).into(), 50),
        ("capacity of 3", capacity(3).into(), 60),
        ("capacity of 500", capacity(500).into(), 10_000),
        ("Connect timeout", s(settings.courier.connect_timeout), 30),
        ("mediator.http.timeout.ms", s(settings.courier.request_timeout), 900),
        ("NACK default visibility", u64::from(Outcome::DELAY_S_DEFAULT), 30),
        ("Fast-fail visibility", u64::from(settings.shard.cascade_delay_s), 10),
        ("Max delay (SQS limit)", u64::from(Outcome::DELAY_S_MAX), 43_200),
        ("Shutdown pool drain wait", s(CALLS_WAIT_MAX), 30),
        ("the whole end", s(settings.grace), s(CALLS_WAIT_MAX + GRACE_KEPT)),
        ("Consumer health timeout", s(settings.health.poll_age_max), 60),
        ("Consumer health check", s(settings.health.interval), 60),
        ("Warning auto-expire", KEPT_MS, 8 * 3_600_000),
        ("Warning auto-expire, as set", s(settings.warnings_expire), 8 * 3_600),
        ("attempts of a delivery", settings.shard.calls_max.into(), 3),
        ("backoff", s(settings.shard.retry_pause), 1),
        ("requestVolumeThreshold", settings.shard.breaker_window.into(), 10),
        ("failureRatio: of those", settings.shard.breaker_failures.into(), 5),
        ("breaker delay", s(settings.shard.breaker_wait), 5),
        ("successThreshold", settings.shard.breaker_probes.into(), 3),
        ("sync-interval", s(settings.sync.interval), 300),
        ("sync attempts", settings.sync.attempts.into(), 12),
        ("sync retry pause", s(settings.sync.pause), 5),
        ("first sync", s(settings.sync.first_delay), 2),
        ("max-pools", settings.pools_max as u64, 10_000),
        ("pool-warning-threshold", settings.pools_warn_at as u64, 5_000),
        ("sqs.max-messages-per-poll", settings.sqs.messages_per_poll.into(), 10),
        ("sqs.wait-time-seconds", s(settings.sqs.wait), 20),
    ];
    for (name, ours, theirs) in rows {
        assert_eq!(ours, theirs, "{name}");
    }
    assert_eq!((DEFAULT_POOL, DEFAULT_GROUP), ("DEFAULT-POOL", "__DEFAULT__"));
    assert!(VOID.iter().all(|(name, why)| rows.iter().all(|row| row.0 != *name) && !why.is_empty()));
}

#[test]
fn the_running_program_has_them_too() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let router = Router::start(&dir, &["--pool", "TINY=1", "--pool", "BIG=30"]);
    router.publish(&[message("m", "", "NO-SUCH-POOL", &sink.url("/slow?ms=60000"))]);
    let waits = || router.json("/api/groups?by=depth");
    let soon = Duration::from_secs(20);
    until(soon, "it runs", || waits().to_string().contains("__DEFAULT__"), waits);
    until(
        soon,
        "its pool is seen",
        || router.pool("DEFAULT-POOL") != json!(null),
        || router.get("/api/pools"),
    );
    for (code, concurrency, capacity) in [("TINY", 1, 50), ("BIG", 30, 600), ("DEFAULT-POOL", 20, 400)] {
        let pool = router.pool(code);
        assert_eq!(
            (&pool["concurrency"], &pool["capacity"]),
            (&json!(concurrency), &json!(capacity)),
            "{pool}"
        );
    }
    let config = router.json("/api/config").to_string();
    for (key, value) in [("mediator.http.connect-timeout", "30s"), ("warnings.expire", "8h")] {
        assert!(config.contains(key) && config.contains(value), "{key} {value}: {config}");
    }
}
