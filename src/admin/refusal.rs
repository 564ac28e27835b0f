//! What is answered instead of what was asked for: `{"error":{"code","message","field"}}`.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::json;

use super::port::RouterError;

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) field: Option<String>,
    pub(super) retry_after: Option<Duration>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), field: None, retry_after: None }
    }

    /// A field's value is wrong.
    pub(super) fn field(field: impl Into<String>, problem: impl AsRef<str>) -> Self {
        let field = field.into();
        let message = format!("{field} {}", problem.as_ref());
        Self { field: Some(field), ..Self::new(StatusCode::BAD_REQUEST, "INVALID", message) }
    }

    pub(super) fn too_large(bytes_max: usize) -> Self {
        let message = format!("the body is larger than the {bytes_max} bytes that this path takes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", message)
    }
}

impl From<RouterError> for Refusal {
    fn from(error: RouterError) -> Self {
        let message = error.to_string();
        let plain = |status, code| Self::new(status, code, message.clone());
        match error {
            RouterError::PoolUnknown(_) => {
                Self { field: Some("code".into()), ..plain(StatusCode::NOT_FOUND, "POOL_UNKNOWN") }
            }
            RouterError::QueueUnknown(_) => {
                Self { field: Some("queue".into()), ..plain(StatusCode::NOT_FOUND, "QUEUE_UNKNOWN") }
            }
            RouterError::Unknown(_) => {
                Self { field: Some("what".into()), ..plain(StatusCode::NOT_FOUND, "UNKNOWN") }
            }
            RouterError::DeadLetterUnknown(_) => {
                Self { field: Some("number".into()), ..plain(StatusCode::NOT_FOUND, "DEAD_LETTER_UNKNOWN") }
            }
            RouterError::Invalid { field, .. } => {
                Self { field: Some(field), ..plain(StatusCode::BAD_REQUEST, "INVALID") }
            }
            RouterError::NotPossible(_) => plain(StatusCode::CONFLICT, "NOT_POSSIBLE"),
            RouterError::Busy { after, .. } => {
                Self { retry_after: Some(after), ..plain(StatusCode::SERVICE_UNAVAILABLE, "BUSY") }
            }
            RouterError::Failed(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, "FAILED"),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(field) = self.field {
            error["field"] = field.into();
        }
        let mut response = (self.status, axum::Json(json!({ "error": error }))).into_response();
        let headers = response.headers_mut();
        if let Some(after) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
