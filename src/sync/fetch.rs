//! Gets the platform's document: so many tries, so far apart, each bounded in time and size.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use thiserror::Error;

use super::document::{self, Document, DocumentError};
use crate::config::SyncSettings;
use crate::http::{Client, HttpError, Limits};
use crate::secret::Secret;

/// A document that was fetched and read.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// What it says.
    pub document: Document,
    /// When, in seconds since 1970.
    pub fetched_unix_s: u64,
}

/// Why a try failed.
#[derive(Debug, Error)]
pub enum FetchError {
    /// No answer.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// An answer that is no document.
    #[error("the platform answered {status}{}", hint(*.status))]
    Status {
        /// Its status.
        status: StatusCode,
    },
    /// A document that is not whole.
    #[error(transparent)]
    Document(#[from] DocumentError),
}

fn hint(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "; check sync.token",
        StatusCode::NOT_FOUND => "; check message-router.config-url",
        _ => "",
    }
}

/// A try that failed.
#[derive(Debug)]
pub struct FailedTry<'a> {
    /// Which, from 1.
    pub number: u32,
    /// Of how many.
    pub of: u32,
    /// Why.
    pub error: &'a FetchError,
    /// How long until the next one; none = it was the last.
    pub pause: Option<Duration>,
}

/// Tries until a document is read, `sync.attempts` times at most. Each failed try is reported. Cancel safe.
///
/// # Errors
/// The last try's, when all failed.
pub async fn fetch(
    sync: &SyncSettings,
    url: &Secret,
    mut report: impl FnMut(FailedTry<'_>),
) -> Result<Fetched, FetchError> {
    let of = sync.attempts.max(1);
    let mut number = 1;
    loop {
        match fetch_once(sync, url).await {
            Ok(fetched) => return Ok(fetched),
            Err(error) => {
                let pause = (number < of).then_some(sync.pause);
                report(FailedTry { number, of, error: &error, pause });
                let Some(pause) = pause else { return Err(error) };
                tokio::time::sleep(pause).await;
                number += 1;
            }
        }
    }
}

/// One try.
///
/// # Errors
/// Why there is no document.
pub async fn fetch_once(sync: &SyncSettings, url: &Secret) -> Result<Fetched, FetchError> {
    let bounds = Limits { connect: sync.timeout, total: sync.timeout, body_bytes_max: sync.body_bytes_max };
    let answer = Client::new(bounds, sync.token.clone()).get(url.reveal()).await?;
    if answer.status != StatusCode::OK {
        return Err(FetchError::Status { status: answer.status });
    }
    let document = document::read(&answer.body)?;
    let fetched_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Ok(Fetched { document, fetched_unix_s })
}
