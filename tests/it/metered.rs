//! The metrics of a real router after some traffic: every documented name is there, and counters agree with what was sent.

use std::time::Duration;

use corelane::telemetry::names::METRICS;

use super::support::router::{Dir, Router, SinkProgram, message};
use super::support::wait::until;

const SOON: Duration = Duration::from_secs(30);

/// A sample's value, by its name and labels as written.
fn value(metrics: &str, sample: &str) -> Option<f64> {
    let line =
        metrics.lines().find(|line| line.strip_prefix(sample).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Samples that must be what was sent.
const WANT: [(&str, f64); 21] = [
    ("corelane_messages_submitted_total{pool=\"GOOD\"}", 40.0),
    ("corelane_messages_delivered_total{pool=\"GOOD\"}", 40.0),
    ("corelane_messages_failed_total{pool=\"GOOD\"}", 0.0),
    ("corelane_messages_transient_total{pool=\"GOOD\"}", 0.0),
    ("corelane_messages_failed_total{pool=\"BAD\"}", 5.0),
    ("corelane_messages_transient_total{pool=\"BAD\"}", 2.0),
    ("corelane_messages_delivered_total{pool=\"BAD\"}", 0.0),
    ("corelane_messages_rejected_total{pool=\"BAD\",reason=\"cascade\"}", 3.0),
    ("corelane_messages_delivered_total{pool=\"RATED\"}", 2.0),
    ("corelane_pool_rate_limit_per_minute{pool=\"RATED\"}", 2.0),
    ("corelane_pool_queued{pool=\"RATED\"}", 1.0),
    ("corelane_pool_groups{pool=\"RATED\"}", 1.0),
    ("corelane_default_pool_used_total", 3.0),
    ("corelane_messages_delivered_total{pool=\"DEFAULT-POOL\"}", 3.0),
    ("corelane_dead_letters_total{reason=\"REFUSED\"}", 5.0),
    ("corelane_dead_letters_total{reason=\"MALFORMED\"}", 0.0),
    ("corelane_dead_letters", 5.0),
    ("corelane_queue_acked_total{queue=\"default\"}", 50.0),
    ("corelane_inflight", 1.0),
    ("corelane_ready", 1.0),
    ("corelane_state{state=\"RUNNING\"}", 1.0),
];

#[test]
fn every_documented_metric_is_there_and_counts_what_was_sent() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let flags = ["--pool", "GOOD=8", "--pool", "BAD=8", "--pool", "RATED=8,2/min"];
    let router = Router::start(&dir, &flags);
    let (ok, later) = (sink.url("/ok"), sink.url("/status/429?retry_after=600"));
    let mut sent = Vec::new();
    for n in 0..40 {
        sent.push(message(&format!("g{n}"), &format!("g{}", n % 5), "GOOD", &ok));
    }
    for n in 0..5 {
        sent.push(message(&format!("r{n}"), &format!("r{n}"), "BAD", &sink.url("/status/404")));
    }
    // Two groups that fail at the head, with three followers in all.
    for (id, group, target) in
        [("x1", "x", &later), ("x2", "x", &ok), ("x3", "x", &ok), ("y1", "y", &later), ("y2", "y", &ok)]
    {
        sent.push(message(id, group, "BAD", target));
    }
    // One more than its rate: a lease is too short to hold any more of them.
    for n in 0..3 {
        sent.push(message(&format!("l{n}"), &format!("l{n}"), "RATED", &ok));
    }
    for n in 0..3 {
        sent.push(message(&format!("u{n}"), &format!("u{n}"), "NO-SUCH-POOL", &ok));
    }
    router.publish(&sent);
    let metrics = || router.get("/metrics").1;
    let off = || {
        let text = metrics();
        let wrong = WANT.iter().filter(|(sample, want)| value(&text, sample) != Some(*want));
        wrong.map(|(sample, want)| (*sample, *want, value(&text, sample))).collect::<Vec<_>>()
    };
    until(SOON, "the counters agree", || off().is_empty(), off);
    let text = metrics();
    assert_eq!(value(&text, "corelane_delivery_seconds_count{pool=\"GOOD\"}"), Some(40.0));
    let of_queue = |name: &str| {
        value(&text, &format!("corelane_queue_{name}_total{{queue=\"default\"}}")).unwrap_or(-1.0)
    };
    let (received, nacked) = (of_queue("received"), of_queue("nacked"));
    // What the rated pool could not hold went back too, more than once perhaps; nothing else may be left over.
    assert!((received - nacked - 51.0).abs() < 0.5 && nacked >= 5.0, "received {received}, nacked {nacked}");
    let limited = value(&text, "corelane_messages_rate_limited_total{pool=\"RATED\"}");
    assert!(limited >= Some(1.0), "{limited:?}");
    let calls = value(&text, &format!("corelane_target_calls_total{{target=\"http://{}\"}}", sink.address));
    assert_eq!(calls, Some(52.0), "40 good, 5 refused, 2 put off, 2 rated, 3 of the default pool");
    let documented = include_str!("../../docs/METRICS.md");
    for metric in &METRICS {
        let name = metric.name;
        assert!(documented.contains(&format!("`{name}`")), "{name} is not documented");
        assert!(text.contains(&format!("# TYPE {name} ")), "{name} has no type");
        let is_sample = |line: &str| {
            let rest = line.strip_prefix(name).unwrap_or_default();
            rest.starts_with([' ', '{']) || rest.starts_with("_count")
        };
        assert!(text.lines().any(is_sample), "{name} has no value:\n{text}");
    }
    assert_eq!(router.get("/_metrics").0, 200);
}
