//! A filled-in example of every body, from which the OpenAPI document takes its schemas: they follow the types
//! without being written twice.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::port::{DeadLetters, Explanation, Fact, Publish, Published};
use super::routes::Job;
use super::seed::Seeded;
use crate::telemetry::warnings::{Severity, Warning, WarningCode};
use crate::view::{
    Buckets, DeadLetterView, GroupView, MessageView, PoolView, QueueView, Sample, ShardView, TargetView, View,
};

/// What a body looks like.
pub(super) enum Shape {
    /// Not JSON: the media type.
    Text(&'static str),
    /// JSON like this.
    Json(Value),
}

/// What a job answers with when it does what was asked.
pub(super) fn answered(job: Job) -> Shape {
    match job {
        Job::Page => Shape::Text("text/html"),
        Job::Script | Job::Charts | Job::Parts => Shape::Text("text/javascript"),
        Job::Style => Shape::Text("text/css"),
        Job::Metrics => Shape::Text("text/plain"),
        Job::Health | Job::Live | Job::Ready => Shape::Json(json!({
            "status": "UP", "live": true, "ready": true, "state": "RUNNING", "version": "", "uptimeS": 1, "reasons": [""],
        })),
        Job::OpenApi | Job::Config => Shape::Json(json!({})),
        Job::View => Shape::Json(like(view())),
        Job::Pools => Shape::Json(json!({ "pools": [like(pool())] })),
        Job::PoolReplace | Job::PoolChange => {
            Shape::Json(json!({ "code": "", "concurrency": 1, "rateLimitPerMinute": 1 }))
        }
        Job::Queues => Shape::Json(json!({ "queues": [like(queue())] })),
        Job::Targets => Shape::Json(json!({ "targets": [like(target())] })),
        Job::Groups => Shape::Json(json!({ "groups": [like(group())] })),
        Job::Inflight => Shape::Json(json!({ "total": 1, "messages": [like(message())] })),
        Job::Explain => Shape::Json(like(explanation())),
        Job::Warnings => Shape::Json(json!({ "unacknowledged": 1, "warnings": [like(warning())] })),
        Job::WarningAcknowledge => Shape::Json(json!({ "acknowledged": 1 })),
        Job::WarningClear | Job::WarningsClear => Shape::Json(json!({ "cleared": 1 })),
        Job::DeadLetters => Shape::Json(like(DeadLetters { total: 1, items: vec![dead_letter(None)] })),
        Job::DeadLetter => Shape::Json(like(dead_letter(Some(String::new())))),
        Job::DeadLettersRetry => Shape::Json(json!({ "retried": 1 })),
        Job::DeadLettersPurge => Shape::Json(json!({ "purged": 1 })),
        Job::Publish => Shape::Json(like(Published::default())),
        Job::Seed => Shape::Json(like(Seeded::default())),
        Job::Fast | Job::Slow | Job::Faulty | Job::Fail | Job::Throttled => {
            Shape::Json(json!({ "ack": true, "message": "" }))
        }
        Job::Hits => Shape::Json(json!({ "fast": 1, "slow": 1, "faulty": 1, "fail": 1, "throttled": 1 })),
    }
}

/// What a job wants as its body.
pub(super) fn wanted(job: Job) -> Option<Value> {
    match job {
        Job::PoolReplace | Job::PoolChange => Some(json!({ "concurrency": 1, "rateLimitPerMinute": 1 })),
        Job::DeadLettersRetry => Some(json!({
            "all": true, "numbers": [1], "id": "", "queue": "", "pool": "", "group": "", "target": "",
            "reason": "", "status": 1, "after": 1, "before": 1,
        })),
        Job::Publish => Some(json!([like(Publish {
            pool_code: Some(String::new()),
            message_group_id: Some(String::new()),
            auth_token: Some(String::new()),
            mediation_type: Some(String::new()),
            high_priority: Some(true),
            dispatch_mode: Some(String::new()),
            ..Publish::default()
        })])),
        _ => None,
    }
}

fn like(value: impl Serialize) -> Value {
    serde_json::to_value(value).expect("plain data with text keys is JSON")
}

fn counts() -> BTreeMap<String, u64> {
    BTreeMap::from([(String::from("REASON"), 1)])
}

fn buckets() -> Buckets {
    Buckets { counts: vec![1], sum_us: 1 }
}

fn view() -> View {
    View {
        not_ready: vec![String::new()],
        lease_slack_s: Some(1.5),
        dead_letters_total: counts(),
        shards: vec![ShardView::default()],
        pools: vec![pool()],
        queues: vec![queue()],
        targets: vec![target()],
        history: vec![Sample::default()],
        ..View::default()
    }
}

fn pool() -> PoolView {
    PoolView {
        rate_limit_per_minute: Some(1),
        rejected_total: counts(),
        latency: buckets(),
        ..PoolView::default()
    }
}

fn queue() -> QueueView {
    QueueView { error: Some(String::new()), depth: Some(1), ..QueueView::default() }
}

fn target() -> TargetView {
    TargetView { retry_in_ms: Some(1), latency: buckets(), ..TargetView::default() }
}

fn group() -> GroupView {
    GroupView { resumes_in_s: Some(1.5), ..GroupView::default() }
}

fn message() -> MessageView {
    MessageView { lease_left_s: Some(1.5), resumes_in_s: Some(1.5), ..MessageView::default() }
}

fn dead_letter(body: Option<String>) -> DeadLetterView {
    DeadLetterView { body, ..DeadLetterView::default() }
}

fn explanation() -> Explanation {
    Explanation {
        facts: vec![Fact::default()],
        messages: vec![message()],
        groups: vec![group()],
        targets: vec![target()],
        dead_letters: vec![dead_letter(Some(String::new()))],
        ..Explanation::default()
    }
}

fn warning() -> Warning {
    Warning {
        id: 1,
        code: WarningCode::Routing,
        severity: Severity::Warn,
        source: String::new(),
        message: String::new(),
        count: 1,
        first_unix_ms: 1,
        last_unix_ms: 1,
        acknowledged: true,
    }
}
