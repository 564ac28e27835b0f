//! What becomes of a message after a call: the bus document's status table. Pure.

use std::time::Duration;

use shards::model::{Fault, Outcome};

/// Retries after which a failure sends a message to the DLQ.
pub(super) const RETRIES_MAX: u32 = 10;
/// A message that came too early waits so long: the least, and what chance adds at most.
const REQUEUE_WAIT_MS: (u64, u64) = (1_000, 4_000);
/// 425: the message asks for a later time.
const TOO_EARLY: u16 = 425;

/// What to do with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Forget it.
    Ack,
    /// Reject it: the broker brings it back by the retry queue, and counts.
    Retry,
    /// Put it back into its queue after a wait; nothing is counted.
    Requeue(Duration),
    /// Move it to the DLQ, then forget it.
    DeadLetter,
}

/// The whole table. `retries`: how often it was brought back before this call. `chance`: any number, for the wait.
#[rustfmt::skip]
pub(super) fn judge(outcome: Outcome, retries: u32, chance: u64) -> Verdict {
    match (outcome.status, outcome.fault) {
        // Not called: that is no failure of the message, whatever its count.
        (_, Fault::CircuitOpen)            => Verdict::Requeue(requeue_wait(chance)),
        (200..=299, Fault::None | Fault::NotYet) => Verdict::Ack,
        // "Any", as the document says: the count is looked at after the call, and before its status.
        _ if retries >= RETRIES_MAX        => Verdict::DeadLetter,
        (TOO_EARLY, _)                     => Verdict::Requeue(requeue_wait(chance)),
        // 429, 409, 5xx, other 4xx, a redirect, no answer: one way back.
        _                                  => Verdict::Retry,
    }
}

/// 1 to 5 s.
pub(super) const fn requeue_wait(chance: u64) -> Duration {
    let (least, more) = REQUEUE_WAIT_MS;
    Duration::from_millis(least + chance % (more + 1))
}

/// What went wrong, where there was no status to say it.
pub(super) const fn error_of(outcome: Outcome) -> Option<&'static str> {
    match outcome.fault {
        Fault::Timeout => Some("no complete answer within the request timeout"),
        Fault::Network => Some("no connection, a broken one, or an answer that is not HTTP"),
        Fault::Stale => Some("the target closed the connection before it answered"),
        Fault::CircuitOpen => Some("the target's breaker is tripped"),
        Fault::None | Fault::Http | Fault::RateLimited | Fault::NotYet => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shards::model::Mediation::{ErrorConfig, ErrorConnection, ErrorProcess};

    const fn http(status: u16) -> Outcome {
        Outcome::failed(ErrorProcess, Fault::Http, status, 0)
    }

    #[test]
    fn every_row_of_the_status_table() {
        let open = Outcome::failed(ErrorConnection, Fault::CircuitOpen, 0, 5);
        let wait = Verdict::Requeue(Duration::from_secs(1));
        let rows = [
            // outcome                                             retries  verdict              why
            (Outcome::success(200), 0, Verdict::Ack, "2xx"),
            (Outcome::success(204), 10, Verdict::Ack, "2xx, whatever the count"),
            (Outcome::failed(ErrorProcess, Fault::NotYet, 200, 7), 0, Verdict::Ack, "2xx, whatever its body"),
            (Outcome::failed(ErrorProcess, Fault::RateLimited, 429, 0), 0, Verdict::Retry, "429"),
            (Outcome::failed(ErrorConfig, Fault::Http, 409, 0), 0, Verdict::Retry, "409"),
            (Outcome::failed(ErrorProcess, Fault::RateLimited, 425, 60), 9, wait, "425, its own wait"),
            (http(500), 9, Verdict::Retry, "5xx, the tenth retry"),
            (http(503), 0, Verdict::Retry, "5xx"),
            (Outcome::failed(ErrorConfig, Fault::Http, 501, 0), 0, Verdict::Retry, "501 is a 5xx here"),
            (Outcome::failed(ErrorConfig, Fault::Http, 404, 0), 0, Verdict::Retry, "other 4xx"),
            (
                Outcome::failed(ErrorProcess, Fault::RateLimited, 408, 0),
                0,
                Verdict::Retry,
                "408 is another 4xx",
            ),
            (http(302), 0, Verdict::Retry, "a redirect is not followed"),
            (Outcome::timeout(), 0, Verdict::Retry, "exception: timeout"),
            (Outcome::network(), 0, Verdict::Retry, "exception: no connection"),
            (Outcome::stale(), 0, Verdict::Retry, "exception: it closed"),
            (http(500), 10, Verdict::DeadLetter, "retry >= 10"),
            (Outcome::failed(ErrorConfig, Fault::Http, 404, 0), 10, Verdict::DeadLetter, "retry >= 10, 4xx"),
            (
                Outcome::failed(ErrorProcess, Fault::RateLimited, 425, 0),
                10,
                Verdict::DeadLetter,
                "retry >= 10, any",
            ),
            (Outcome::network(), 11, Verdict::DeadLetter, "retry >= 10, exception"),
            (open, 0, wait, "not called"),
            (open, 10, wait, "not called, no attempt"),
        ];
        for (outcome, retries, want, why) in rows {
            assert_eq!(judge(outcome, retries, 0), want, "{why}: {outcome:?} after {retries}");
        }
    }

    #[test]
    fn a_wait_is_between_one_and_five_seconds() {
        for chance in [0, 1, 3_999, 4_000, 4_001, u64::MAX] {
            let wait = requeue_wait(chance).as_millis();
            assert!((1_000..=5_000).contains(&wait), "{chance}: {wait}");
        }
        assert_eq!(requeue_wait(4_000).as_millis(), 5_000, "both ends can be met");
    }

    #[test]
    fn only_what_had_no_status_is_an_error() {
        assert_eq!(error_of(http(503)), None);
        for outcome in [Outcome::timeout(), Outcome::network(), Outcome::stale()] {
            assert!(error_of(outcome).is_some(), "{outcome:?}");
        }
    }
}
