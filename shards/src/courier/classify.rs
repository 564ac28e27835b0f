//! From an answer to an [`Outcome`]: the router document's table. Pure.
//! Core: any. Owns: nothing.
//!
//! - K1: every status has exactly one row; a redirect is never followed.
//! - K2: a delay in an outcome is 0 (none asked for) or within `[1, 43200]`.

use super::ack::{self, Ack};
use super::date;
use crate::model::{AckMode, Fault, Mediation, Outcome};

/// An answer, as far as it matters.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// Status, 200 and above.
    pub status: u16,
    /// `Retry-After`, as sent.
    pub retry_after: Option<&'a [u8]>,
    /// The body, or as much of it as was read.
    pub body: &'a [u8],
}

/// An outcome, and whether a 2xx body said neither `ack: true` nor `ack: false`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// What happened.
    pub outcome: Outcome,
    /// To be counted and sampled.
    pub unreadable: bool,
}

/// The whole table. `wall_now_s` is Unix time, for a `Retry-After` that names a date.
#[must_use]
#[rustfmt::skip]
pub fn classify(reply: Reply<'_>, mode: AckMode, wall_now_s: u64, scratch: &mut Vec<u8>) -> Judged {
    use {Fault::*, Mediation::*};
    let status = reply.status;
    let failed = |result, fault, delay_s| Outcome::failed(result, fault, status, delay_s);
    let outcome = match status {
        200..=299 => return acknowledged(ack::read(reply.body, scratch), status, mode),
        408 | 425 | 429 => failed(ErrorProcess, RateLimited, retry_after(reply.retry_after, wall_now_s)),
        400..=499 | 501 => failed(ErrorConfig,  Http, 0), // The same bytes would fail again.
        _               => failed(ErrorProcess, Http, 0), // 3xx, 5xx and what no one has defined.
    };
    Judged { outcome, unreadable: false }
}

#[rustfmt::skip]
fn acknowledged(ack: Ack, status: u16, mode: AckMode) -> Judged {
    let not_yet = |delay_s| Outcome::failed(Mediation::ErrorProcess, Fault::NotYet, status, delay_s);
    let (outcome, unreadable) = match (ack, mode) {
        (Ack::Yes,         _)                => (Outcome::success(status), false),
        (Ack::No(delay_s), _)                => (not_yet(delay_s),         false),
        (Ack::Unreadable,  AckMode::Lenient) => (Outcome::success(status), true), // As the router document says.
        (Ack::Unreadable,  AckMode::Strict)  => (not_yet(0),               true), // A proxy's page takes no message.
    };
    Judged { outcome, unreadable }
}

/// Seconds or a date; 30 where there is neither, or no time is left to wait.
fn retry_after(value: Option<&[u8]>, wall_now_s: u64) -> u32 {
    let asked = value.map(<[u8]>::trim_ascii).and_then(|text| {
        if !text.is_empty() && text.iter().all(u8::is_ascii_digit) {
            // More digits than fit mean "very long", which is clamped anyway.
            Some(std::str::from_utf8(text).ok()?.parse().unwrap_or(u64::MAX))
        } else {
            date::parse(text, wall_now_s).map(|at_s| at_s.saturating_sub(wall_now_s))
        }
    });
    match asked {
        None | Some(0) => Outcome::DELAY_S_DEFAULT,
        Some(seconds) => u32::try_from(seconds).map_or(Outcome::DELAY_S_MAX, |s| s.min(Outcome::DELAY_S_MAX)),
    }
}

#[cfg(test)]
mod tests;
