//! Warnings over HTTP: list, acknowledge, clear.

use axum::response::Response;
use http::StatusCode;
use serde_json::json;

use super::ask::{Answer, Ask, json as answer_json};
use super::port::Router;
use super::refusal::Refusal;
use super::routes::{Api, now_unix_ms};

pub(super) fn list<R: Router>(api: &Api<R>) -> Response {
    let list = api.router.warnings().list(now_unix_ms());
    let open = list.iter().filter(|warning| !warning.acknowledged).count();
    answer_json(&json!({ "unacknowledged": open, "warnings": list }))
}

pub(super) fn acknowledge<R: Router>(api: &Api<R>, ask: &Ask) -> Answer {
    let id = ask.number("id")?;
    if !api.router.warnings().acknowledge(id) {
        return Err(unknown(id));
    }
    Ok(answer_json(&json!({ "acknowledged": id })))
}

pub(super) fn clear<R: Router>(api: &Api<R>, ask: &Ask) -> Answer {
    let id = ask.number("id")?;
    if !api.router.warnings().clear(id) {
        return Err(unknown(id));
    }
    Ok(answer_json(&json!({ "cleared": 1 })))
}

pub(super) fn clear_all<R: Router>(api: &Api<R>) -> Response {
    answer_json(&json!({ "cleared": api.router.warnings().clear_all() }))
}

fn unknown(id: u64) -> Refusal {
    let message = format!("there is no warning {id}: it may have expired or been cleared");
    Refusal { field: Some("id".into()), ..Refusal::new(StatusCode::NOT_FOUND, "WARNING_UNKNOWN", message) }
}
