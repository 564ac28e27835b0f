//! Health: *live* is that the process answers and looks at itself; *ready* is that there is progress.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Serialize;

use super::port::Router;
use super::routes::{Api, now_unix_ms};
use crate::view::{State, View};

/// A view older than this means that the control thread or the ingress stands still.
const FRESH_MS: u64 = 30_000;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    status: &'static str,
    live: bool,
    ready: bool,
    state: State,
    version: &'a str,
    uptime_s: u64,
    reasons: Vec<String>,
}

pub(super) fn health<R: Router>(api: &Api<R>) -> Response {
    report(api, |report| report.live && report.ready)
}

pub(super) fn live<R: Router>(api: &Api<R>) -> Response {
    report(api, |report| report.live)
}

pub(super) fn ready<R: Router>(api: &Api<R>) -> Response {
    report(api, |report| report.live && report.ready)
}

fn report<R: Router>(api: &Api<R>, is_up: fn(&Report<'_>) -> bool) -> Response {
    let view = api.router.view();
    let mut report = look(&view, now_unix_ms());
    let up = is_up(&report);
    report.status = if up { "UP" } else { "DOWN" };
    let status = if up { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, axum::Json(report)).into_response()
}

fn look(view: &View, now_ms: u64) -> Report<'_> {
    let age_ms = now_ms.saturating_sub(view.at_unix_ms);
    // A router that ends looks at itself no more; it is not to be killed for that.
    let live = age_ms < FRESH_MS || view.state == State::Draining;
    let mut reasons = view.not_ready.clone();
    if !live {
        reasons
            .insert(0, format!("the view is {} s old: the router does not look at itself", age_ms / 1_000));
    }
    Report {
        status: "",
        live,
        ready: view.ready,
        state: view.state,
        version: &view.version,
        uptime_s: (now_ms / 1_000).saturating_sub(view.started_unix_s),
        reasons,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_view_is_not_live_and_says_so() {
        let view = View { at_unix_ms: 10_000, ready: true, ..View::default() };
        assert!(look(&view, 39_999).live);
        let report = look(&view, 40_000);
        assert!(!report.live && report.reasons[0].contains("30 s old"), "{:?}", report.reasons);
        let ending = View { state: State::Draining, ..view.clone() };
        assert!(look(&ending, 60_000).live, "a router that ends is not to be killed for it");
        assert!(look(&view, 9_000).live, "a clock that went back is no reason");
    }
}
