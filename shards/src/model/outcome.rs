//! What happened to a call ([`Outcome`]) and what becomes of its message ([`Verdict`]).

/// The four results of a call, by the names of the router document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mediation {
    /// `SUCCESS`: the target took the message.
    Success,
    /// `ERROR_PROCESS`: it may take it later.
    ErrorProcess,
    /// `ERROR_CONFIG`: it never will; the same bytes would fail again.
    ErrorConfig,
    /// `ERROR_CONNECTION`: it could not be reached.
    ErrorConnection,
}

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// It did not.
    None,
    /// No complete answer within the request timeout.
    Timeout,
    /// Not sent: the target's breaker is tripped.
    CircuitOpen,
    /// The status says so.
    Http,
    /// No connection, a broken one, or an answer that is not HTTP.
    Network,
    /// A kept connection was closed by the target before it answered: the call may not have arrived.
    Stale,
    /// 408, 425, 429: alive, later.
    RateLimited,
    /// `ack: false`.
    NotYet,
}

/// What happened to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// The result.
    pub result: Mediation,
    /// Why, if it failed.
    pub fault: Fault,
    /// HTTP status, 0 if none was received.
    pub status: u16,
    /// Delay that the target asked for, in seconds; 0 if it did not.
    pub delay_s: u32,
}

impl Outcome {
    /// Longest delay a broker can be asked for (SQS).
    pub const DELAY_S_MAX: u32 = 43_200;
    /// Delay where none was asked for.
    pub const DELAY_S_DEFAULT: u32 = 30;

    /// The target took it.
    #[must_use]
    pub const fn success(status: u16) -> Self {
        Self { result: Mediation::Success, fault: Fault::None, status, delay_s: 0 }
    }

    /// It failed in `result`'s way, for `fault`'s reason.
    #[must_use]
    pub const fn failed(result: Mediation, fault: Fault, status: u16, delay_s: u32) -> Self {
        Self { result, fault, status, delay_s }
    }

    /// The request timed out.
    #[must_use]
    pub const fn timeout() -> Self {
        Self::failed(Mediation::ErrorProcess, Fault::Timeout, 0, 0)
    }

    /// No connection, or it broke.
    #[must_use]
    pub const fn network() -> Self {
        Self::failed(Mediation::ErrorConnection, Fault::Network, 0, 0)
    }

    /// A kept connection turned out to be closed.
    #[must_use]
    pub const fn stale() -> Self {
        Self::failed(Mediation::ErrorConnection, Fault::Stale, 0, 0)
    }

    /// The delay to ask the broker for: what the target said within `[1, 43200]`, else 30.
    #[must_use]
    pub const fn effective_delay_s(self) -> u32 {
        match self.delay_s {
            0 => Self::DELAY_S_DEFAULT,
            asked if asked > Self::DELAY_S_MAX => Self::DELAY_S_MAX,
            asked => asked,
        }
    }
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Delivered: tell the source to forget it.
    Ack,
    /// Not delivered: the source brings it back after `delay_s`.
    Nack {
        /// Seconds; 0 = at once.
        delay_s: u32,
        /// Why.
        reason: NackReason,
    },
    /// Not delivered, and its source has rules of its own for that (the event bus).
    Answered {
        /// How the call ended; the delay that the target asked for aside, so that a settlement fits its slot.
        result: Mediation,
        /// Why.
        fault: Fault,
        /// HTTP status, 0 if none was received.
        status: u16,
    },
    /// Never deliverable: into the dead-letter store, then forget it.
    DeadLetter {
        /// Why.
        reason: DeadReason,
        /// The last status, 0 if none.
        status: u16,
    },
}

/// Why a message went back to its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NackReason {
    /// It was tried and failed: counts as an attempt.
    Failed,
    /// An earlier message of its batch and group failed.
    Cascade,
    /// The target's breaker is tripped.
    BreakerTripped,
    /// The pool, the group or the process has no room for it.
    NoRoom,
    /// The pool or the process is draining, or the lease can't be kept.
    GivenBack,
    /// An older message of its group is still at the source.
    Owed,
    /// The message it is a twin of was not delivered.
    Twin,
}

impl NackReason {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Failed,
        Self::Cascade,
        Self::BreakerTripped,
        Self::NoRoom,
        Self::GivenBack,
        Self::Owed,
        Self::Twin,
    ];

    /// For metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Cascade => "cascade",
            Self::BreakerTripped => "breaker",
            Self::NoRoom => "no_room",
            Self::GivenBack => "given_back",
            Self::Owed => "owed",
            Self::Twin => "twin",
        }
    }

    /// True if the message was tried: only then is an attempt counted.
    #[must_use]
    pub const fn is_attempt(self) -> bool {
        matches!(self, Self::Failed)
    }
}

/// Why a message was set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeadReason {
    /// 4xx or 501.
    Refused,
    /// `attempts_max` reached.
    Exhausted,
    /// It could not be read.
    Malformed,
}

impl DeadReason {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Refused, Self::Exhausted, Self::Malformed];

    /// For people and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "REFUSED",
            Self::Exhausted => "EXHAUSTED",
            Self::Malformed => "MALFORMED",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_is_clamped_as_the_router_document_says() {
        let rows = [(0, 30), (1, 1), (30, 30), (43_200, 43_200), (43_201, 43_200), (u32::MAX, 43_200)];
        for (asked, want) in rows {
            let outcome = Outcome::failed(Mediation::ErrorProcess, Fault::Http, 503, asked);
            assert_eq!(outcome.effective_delay_s(), want, "{asked}");
        }
    }
}
