//! Metrics: every promised name, the text format, the bound on label values, the document.

use std::collections::{BTreeMap, BTreeSet};

use super::super::names::document;
use super::*;
use crate::view::{BreakerState, ShardView};

/// The names that the specification promises.
const PROMISED: [&str; 20] = [
    "corelane_messages_submitted_total",
    "corelane_messages_delivered_total",
    "corelane_messages_failed_total",
    "corelane_messages_transient_total",
    "corelane_messages_rate_limited_total",
    "corelane_messages_rejected_total",
    "corelane_default_pool_used_total",
    "corelane_pool_queued",
    "corelane_pool_active",
    "corelane_pool_groups",
    "corelane_delivery_seconds",
    "corelane_shard_busy_ratio",
    "corelane_ring_depth",
    "corelane_lease_slack_seconds",
    "corelane_target_breaker",
    "corelane_queue_depth",
    "corelane_inflight",
    "corelane_dead_letters_total",
    "corelane_build_info",
    "process_resident_memory_bytes",
];

fn view() -> View {
    let pool = |code: &str, delivered_total| PoolView {
        code: code.into(),
        concurrency: 4,
        rate_limit_per_minute: Some(60),
        delivered_total,
        rejected_total: BTreeMap::from([("POOL_FULL".into(), 2)]),
        latency: Buckets {
            counts: vec![1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            sum_us: 1_500_000,
        },
        ..PoolView::default()
    };
    View {
        version: "1".into(),
        lease_slack_s: Some(12.5),
        dead_letters_total: BTreeMap::from([("REFUSED".into(), 3)]),
        shards: vec![ShardView { busy_ratio: 0.25, ..ShardView::default() }],
        pools: vec![pool("A", 1), pool("B", 10), pool("C", 100)],
        queues: vec![QueueView { name: "q\"\\\n".into(), depth: Some(7), ..QueueView::default() }],
        targets: vec![TargetView {
            origin: "http://h".into(),
            breaker: BreakerState::Tripped,
            ..TargetView::default()
        }],
        ..View::default()
    }
}

/// Name and labels → value. Fails on a line that is not of the format.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("a sample: {line}"));
        let value = value.replace("+Inf", "inf").parse().unwrap_or_else(|_| panic!("a number: {line}"));
        assert_eq!(found.insert(name.to_owned(), value), None, "twice: {name}");
    }
    found
}

#[test]
fn every_promised_name_is_there_with_help_and_type() {
    let text = render(&view(), Usage { resident_bytes: 1, cpu_s: 0.5 }, 10);
    for name in PROMISED {
        assert!(text.contains(&format!("# HELP {name} ")), "{name}: help");
        assert!(text.contains(&format!("# TYPE {name} ")), "{name}: type");
        let sample = [format!("\n{name} "), format!("\n{name}{{"), format!("\n{name}_count{{")];
        assert!(sample.iter().any(|start| text.contains(start)), "{name}: a sample");
    }
}

#[test]
fn the_table_names_each_metric_once_and_as_prometheus_wants_it() {
    let mut seen = BTreeSet::new();
    for metric in &METRICS {
        assert!(seen.insert(metric.name), "{}: twice", metric.name);
        assert_eq!(metric.kind == Kind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
        assert!(metric.help.ends_with('.'), "{}: a sentence", metric.name);
        assert!(metric.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{}", metric.name);
    }
}

#[test]
fn each_sample_has_just_the_labels_that_the_table_says() {
    let text = render(&view(), Usage::default(), 10);
    for name in samples(&text).keys() {
        let (plain, labels) = name.split_once('{').unwrap_or((name, ""));
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| plain.strip_suffix(end));
        let metric = METRICS.iter().find(|one| one.name == plain || Some(one.name) == base);
        let metric = metric.unwrap_or_else(|| panic!("{name} is not in the table"));
        for label in metric.labels {
            assert!(labels.contains(&format!("{label}=\"")), "{name}: {label}");
        }
    }
}

#[test]
fn a_histogram_is_cumulative_and_in_seconds() {
    let samples = samples(&render(&view(), Usage::default(), 10));
    let rows = [
        ("corelane_delivery_seconds_bucket{pool=\"A\",le=\"0.0005\"}", 1.0),
        ("corelane_delivery_seconds_bucket{pool=\"A\",le=\"0.0025\"}", 3.0),
        ("corelane_delivery_seconds_bucket{pool=\"A\",le=\"300\"}", 3.0),
        ("corelane_delivery_seconds_bucket{pool=\"A\",le=\"+Inf\"}", 4.0),
        ("corelane_delivery_seconds_sum{pool=\"A\"}", 1.5),
        ("corelane_delivery_seconds_count{pool=\"A\"}", 4.0),
    ];
    for (name, value) in rows {
        assert_eq!(samples.get(name), Some(&value), "{name}");
    }
}

#[test]
fn names_beyond_the_bound_are_summed_into_one() {
    let samples = samples(&render(&view(), Usage::default(), 1));
    let rows = [
        ("corelane_messages_delivered_total{pool=\"A\"}", Some(1.0)),
        ("corelane_messages_delivered_total{pool=\"B\"}", None),
        ("corelane_messages_delivered_total{pool=\"__other__\"}", Some(110.0)),
        ("corelane_messages_rejected_total{pool=\"__other__\",reason=\"POOL_FULL\"}", Some(4.0)),
        ("corelane_pool_concurrency{pool=\"__other__\"}", Some(8.0)),
        ("corelane_delivery_seconds_count{pool=\"__other__\"}", Some(8.0)),
        ("corelane_target_breaker{target=\"http://h\"}", Some(2.0)),
    ];
    for (name, value) in rows {
        assert_eq!(samples.get(name).copied(), value, "{name}");
    }
}

#[test]
fn a_label_value_from_outside_cannot_break_the_text() {
    let text = render(&view(), Usage::default(), 10);
    assert!(text.contains(r#"corelane_queue_depth{queue="q\"\\\n"} 7"#), "{text}");
}

#[test]
fn the_document_lists_what_the_table_has() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/METRICS.md");
    if std::env::var_os("CORELANE_WRITE_DOCS").is_some() {
        std::fs::write(&path, document()).expect("docs can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == document(),
        "docs/METRICS.md is behind: CORELANE_WRITE_DOCS=1 cargo test --lib metrics"
    );
}
