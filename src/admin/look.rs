//! Reading: parts of the view, and what only the data plane knows (groups, messages, explanations).

use axum::response::{IntoResponse, Response};
use http::header;
use serde_json::json;

use super::ask::{Answer, Ask, json};
use super::port::{GroupsBy, InflightFilter, Router};
use super::refusal::Refusal;
use super::routes::Api;
use crate::report::process;
use crate::telemetry::metrics::{Usage, render};
use crate::view::View;

/// Rows of a list at most: what the data plane is asked for at once.
const ROWS_MAX: u64 = 1_000;

pub(super) fn view<R: Router>(api: &Api<R>, ask: &Ask) -> Answer {
    let mut query = ask.query()?;
    let since = query.whole("since", 0..=u64::MAX)?;
    query.end()?;
    let view = api.router.view();
    match since {
        None => Ok(json(&*view)),
        Some(since) => {
            let history = view.history.iter().filter(|sample| sample.unix_s > since).copied().collect();
            Ok(json(&View { history, ..View::clone(&view) }))
        }
    }
}

pub(super) fn config<R: Router>(api: &Api<R>) -> Response {
    json(&api.router.config())
}

pub(super) fn pools<R: Router>(api: &Api<R>) -> Response {
    json(&json!({ "pools": api.router.view().pools }))
}

pub(super) fn queues<R: Router>(api: &Api<R>) -> Response {
    json(&json!({ "queues": api.router.view().queues }))
}

pub(super) fn targets<R: Router>(api: &Api<R>) -> Response {
    json(&json!({ "targets": api.router.view().targets }))
}

pub(super) fn metrics<R: Router>(api: &Api<R>) -> Response {
    let usage = Usage {
        resident_bytes: process::rss_own().map_or(0, |rss| rss.now_bytes),
        cpu_s: process::cpu_own().as_secs_f64(),
    };
    let text = render(&api.router.view(), usage, api.label_values_max);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

pub(super) async fn groups<R: Router>(api: &Api<R>, ask: Ask) -> Answer {
    let mut query = ask.query()?;
    let by = match query.text("by")?.as_deref() {
        None | Some("depth") => GroupsBy::Depth,
        Some("age") => GroupsBy::Age,
        Some(other) => return Err(Refusal::field("by", format!("is {other:?}: write depth or age"))),
    };
    let limit = query.whole("limit", 1..=ROWS_MAX)?.unwrap_or(20);
    query.end()?;
    let groups = api.router.groups(by, rows(limit)).await?;
    Ok(json(&json!({ "groups": groups })))
}

pub(super) async fn inflight<R: Router>(api: &Api<R>, ask: Ask) -> Answer {
    let mut query = ask.query()?;
    let filter = InflightFilter {
        id: query.text("id")?,
        queue: query.text("queue")?,
        pool: query.text("pool")?,
        group: query.text("group")?,
        target: query.text("target")?,
    };
    let limit = query.whole("limit", 1..=ROWS_MAX)?.unwrap_or(100);
    query.end()?;
    let messages = api.router.inflight(filter, rows(limit)).await?;
    Ok(json(&json!({ "total": api.router.view().inflight, "messages": messages })))
}

pub(super) async fn explain<R: Router>(api: &Api<R>, ask: Ask) -> Answer {
    let mut query = ask.query()?;
    let what = query.text("what")?;
    query.end()?;
    let what =
        what.ok_or_else(|| Refusal::field("what", "is missing: write a message's id, a group or a target"))?;
    Ok(json(&api.router.explain(&what).await?))
}

fn rows(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}
