//! Practice targets: what seeded messages are posted to, and how often each was called. What fails does so
//! in a fixed pattern, so that a run can be repeated.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::json;
use tokio::sync::Semaphore;

use super::ask::{Answer, Ask, json as answer_json};
use super::refusal::Refusal;
use super::routes::Job;
use super::seed::scramble;

/// Slow answers that wait at once; more are told to come later, so that health still gets a connection.
const WAITING_MAX: usize = 512;
/// Longest wait of a slow answer, in milliseconds.
const SLOW_MS_MAX: u64 = 30_000;
/// How a slow answer waits unless asked otherwise.
const SLOW_MS: u64 = 250;
/// What is posted is read and dropped.
const BODY_BYTES_MAX: usize = 1 << 20;

/// The counts.
#[derive(Debug)]
pub(super) struct Practice {
    fast: AtomicU64,
    slow: AtomicU64,
    faulty: AtomicU64,
    fail: AtomicU64,
    throttled: AtomicU64,
    waiting: Semaphore,
}

impl Practice {
    pub(super) fn new() -> Self {
        Self {
            fast: AtomicU64::new(0),
            slow: AtomicU64::new(0),
            faulty: AtomicU64::new(0),
            fail: AtomicU64::new(0),
            throttled: AtomicU64::new(0),
            waiting: Semaphore::new(WAITING_MAX),
        }
    }

    /// Plays the target that `job` names.
    pub(super) async fn answer(&self, job: Job, ask: Ask) -> Answer {
        let mut query = ask.query()?;
        let ms = query.whole("ms", 0..=SLOW_MS_MAX)?.unwrap_or(SLOW_MS);
        ask.bytes(BODY_BYTES_MAX).await?;
        match job {
            Job::Slow => {
                self.slow.fetch_add(1, Ordering::Relaxed);
                let Ok(_waiting) = self.waiting.try_acquire() else { return busy() };
                tokio::time::sleep(Duration::from_millis(ms)).await;
                Ok(acked())
            }
            Job::Faulty => {
                let number = self.faulty.fetch_add(1, Ordering::Relaxed);
                Ok(if scramble(number) % 10 < 3 { failed() } else { acked() })
            }
            Job::Fail => {
                self.fail.fetch_add(1, Ordering::Relaxed);
                Ok(failed())
            }
            Job::Throttled => {
                self.throttled.fetch_add(1, Ordering::Relaxed);
                let answer = json!({ "ack": false, "message": "throttled on request" });
                let headers = [(header::RETRY_AFTER, "1")];
                Ok((StatusCode::TOO_MANY_REQUESTS, headers, axum::Json(answer)).into_response())
            }
            _ => {
                self.fast.fetch_add(1, Ordering::Relaxed);
                Ok(acked())
            }
        }
    }

    pub(super) fn hits(&self) -> Response {
        let count = |hits: &AtomicU64| hits.load(Ordering::Relaxed);
        answer_json(&json!({
            "fast": count(&self.fast),
            "slow": count(&self.slow),
            "faulty": count(&self.faulty),
            "fail": count(&self.fail),
            "throttled": count(&self.throttled),
        }))
    }
}

fn acked() -> Response {
    answer_json(&json!({ "ack": true }))
}

fn failed() -> Response {
    let answer = json!({ "ack": false, "message": "failed on request" });
    (StatusCode::INTERNAL_SERVER_ERROR, axum::Json(answer)).into_response()
}

fn busy() -> Answer {
    let message = format!("{WAITING_MAX} slow answers wait already: come again");
    let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "BUSY", message);
    Err(Refusal { retry_after: Some(Duration::from_secs(1)), ..refusal })
}
