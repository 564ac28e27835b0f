//! The retry policy: what follows from a call's outcome. Pure, one table.

use std::time::Duration;

use crate::model::{Fault, Mediation, Outcome, ShardTuning};

/// What follows from a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Call again after this pause; still the same delivery.
    Again(Duration),
    /// The delivery succeeded.
    Deliver,
    /// It failed; the message may be tried again after so many seconds.
    Fail {
        /// Seconds.
        delay_s: u32,
    },
    /// It will never succeed.
    Refuse,
    /// It failed, and its source says what becomes of it.
    Answer,
}

/// The whole policy: `calls` were made in this delivery, the last one ended in `outcome`.
#[must_use]
pub fn judge(outcome: Outcome, calls: u8, tuning: &ShardTuning) -> Next {
    match outcome.result {
        Mediation::Success => Next::Deliver,
        Mediation::ErrorConfig => Next::Refuse,
        Mediation::ErrorProcess | Mediation::ErrorConnection => {
            if is_retryable(outcome) && calls < tuning.calls_max {
                Next::Again(pause(outcome, calls, tuning))
            } else {
                Next::Fail { delay_s: outcome.effective_delay_s() }
            }
        }
    }
}

/// The policy where the source judges: any 2xx is a delivery whatever its body says, one call is one delivery, but
/// for a kept connection that turned out to be closed.
#[must_use]
pub(super) fn judge_for_source(outcome: Outcome, calls: u8, tuning: &ShardTuning) -> Next {
    match outcome.fault {
        Fault::None => Next::Deliver,
        Fault::NotYet if matches!(outcome.status, 200..=299) => Next::Deliver,
        Fault::Stale if calls < tuning.calls_max => Next::Again(Duration::ZERO),
        // Not called: no attempt is spent.
        Fault::CircuitOpen => Next::Fail { delay_s: outcome.effective_delay_s() },
        _ => Next::Answer,
    }
}

#[rustfmt::skip]
const fn is_retryable(outcome: Outcome) -> bool {
    match outcome.fault {
        Fault::Timeout     => true,
        Fault::Network     => true,
        Fault::Stale       => true,
        Fault::Http        => outcome.status >= 500, // A redirect stays one.
        Fault::RateLimited => false,                 // It said when to come back.
        Fault::NotYet      => false,                 // So did `ack: false`.
        Fault::CircuitOpen => false,
        Fault::None        => false,
    }
}

/// 1 s after the first call, 2 s after the second; none after a kept connection ran out, because the
/// target is most likely there and a fresh connection will tell.
fn pause(outcome: Outcome, calls: u8, tuning: &ShardTuning) -> Duration {
    match outcome.fault {
        Fault::Stale => Duration::ZERO,
        _ => tuning.retry_pause * u32::from(calls),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Mediation::{ErrorConfig, ErrorConnection, ErrorProcess};

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn every_outcome_leads_where_the_router_document_says() {
        let tuning = ShardTuning::default();
        let failed = Outcome::failed;
        let rows = [
            // outcome                                              calls  next                         why
            (Outcome::success(200), 1, Next::Deliver, "2xx"),
            (
                failed(ErrorProcess, Fault::NotYet, 200, 7),
                1,
                Next::Fail { delay_s: 7 },
                "ack:false with delay",
            ),
            (failed(ErrorProcess, Fault::NotYet, 200, 0), 1, Next::Fail { delay_s: 30 }, "ack:false without"),
            (failed(ErrorConfig, Fault::Http, 404, 0), 1, Next::Refuse, "4xx is final"),
            (failed(ErrorConfig, Fault::Http, 501, 0), 1, Next::Refuse, "501 is final"),
            (failed(ErrorProcess, Fault::RateLimited, 429, 9), 1, Next::Fail { delay_s: 9 }, "429 says when"),
            (failed(ErrorProcess, Fault::Http, 302, 0), 1, Next::Fail { delay_s: 30 }, "3xx is not repeated"),
            (failed(ErrorProcess, Fault::Http, 503, 0), 1, Next::Again(S), "5xx, first pause"),
            (failed(ErrorProcess, Fault::Http, 503, 0), 2, Next::Again(S * 2), "5xx, second pause"),
            (
                failed(ErrorProcess, Fault::Http, 503, 0),
                3,
                Next::Fail { delay_s: 30 },
                "5xx, three calls made",
            ),
            (Outcome::timeout(), 1, Next::Again(S), "timeout"),
            (Outcome::timeout(), 3, Next::Fail { delay_s: 30 }, "timeout, three calls made"),
            (Outcome::network(), 2, Next::Again(S * 2), "I/O error"),
            (Outcome::stale(), 1, Next::Again(Duration::ZERO), "stale connection: at once"),
            (Outcome::stale(), 3, Next::Fail { delay_s: 30 }, "but not without end"),
            (failed(ErrorConnection, Fault::CircuitOpen, 0, 5), 1, Next::Fail { delay_s: 5 }, "breaker"),
        ];
        for (outcome, calls, want, why) in rows {
            assert_eq!(judge(outcome, calls, &tuning), want, "{why}: {outcome:?}");
        }
    }

    #[test]
    fn where_the_source_judges_one_call_is_one_delivery() {
        let tuning = ShardTuning::default();
        let failed = Outcome::failed;
        let rows = [
            (Outcome::success(204), Next::Deliver, "2xx"),
            (failed(ErrorProcess, Fault::NotYet, 200, 7), Next::Deliver, "2xx, whatever its body says"),
            (failed(ErrorConfig, Fault::Http, 404, 0), Next::Answer, "4xx"),
            (failed(ErrorProcess, Fault::Http, 503, 0), Next::Answer, "5xx is not repeated here"),
            (failed(ErrorProcess, Fault::RateLimited, 425, 0), Next::Answer, "425"),
            (Outcome::timeout(), Next::Answer, "timeout"),
            (Outcome::network(), Next::Answer, "I/O error"),
            (Outcome::stale(), Next::Again(Duration::ZERO), "it may not have arrived"),
            (failed(ErrorConnection, Fault::CircuitOpen, 0, 5), Next::Fail { delay_s: 5 }, "not called"),
        ];
        for (outcome, want, why) in rows {
            assert_eq!(judge_for_source(outcome, 1, &tuning), want, "{why}: {outcome:?}");
        }
        assert_eq!(judge_for_source(Outcome::stale(), tuning.calls_max, &tuning), Next::Answer);
    }
}
