//! The dashboard: a page, its style and its script in three parts, compiled in. They hold no data: the script asks the API for it.

use axum::response::{IntoResponse, Response};
use http::header;

pub(super) fn page() -> Response {
    file("text/html; charset=utf-8", include_str!("dashboard/index.html"))
}

pub(super) fn script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("dashboard/app.js"))
}

pub(super) fn charts() -> Response {
    file("text/javascript; charset=utf-8", include_str!("dashboard/chart.js"))
}

pub(super) fn parts() -> Response {
    file("text/javascript; charset=utf-8", include_str!("dashboard/parts.js"))
}

pub(super) fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("dashboard/style.css"))
}

fn file(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}
