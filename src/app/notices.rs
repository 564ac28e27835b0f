//! What the engine noticed → warnings, in the router document's codes. Pure: one decision table.

use shards::desk::Warning;
use shards::model::{Notice, SourceId};

use super::audit::Finding;
use crate::telemetry::warnings::{Severity, WarningCode};

/// A warning before it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// Its code.
    pub(super) code: WarningCode,
    /// How bad.
    pub(super) severity: Severity,
    /// Who says so.
    pub(super) source: String,
    /// In words.
    pub(super) message: String,
}

fn said(code: WarningCode, severity: Severity, source: &str, message: String) -> Said {
    Said { code, severity, source: source.to_owned(), message }
}

/// What the desk warned of. `queue` names a source's queue.
#[must_use]
pub(super) fn of_desk(warning: &Warning, queue: impl Fn(SourceId) -> String) -> Said {
    use {Severity::*, WarningCode::*};
    match warning {
        Warning::Routing { code } => said(
            Routing,
            Warn,
            "router",
            format!("no pool has the code {code:?}: its messages go to DEFAULT-POOL"),
        ),
        Warning::QueueFull { code, .. } => said(
            QueueFull,
            Warn,
            code,
            format!("pool {code} is full: its share of a batch went back to the queue"),
        ),
        Warning::PoolLimit => {
            said(PoolLimit, Critical, "router", "there are too many pools: one was not made".into())
        }
        Warning::OwedExpired { .. } => said(
            OwedExpired,
            Warn,
            "router",
            "messages that went back did not come again within two leases: their groups go on without them"
                .into(),
        ),
        Warning::LeaseLost { source } => {
            let queue = queue(*source);
            said(
                LeaseLost,
                Error,
                &queue,
                format!("a lease of queue {queue} could not be kept: its message may be delivered twice"),
            )
        }
        Warning::NearLimit { source } => {
            let queue = queue(*source);
            said(
                NearLimit,
                Warn,
                &queue,
                format!(
                    "queue {queue} would soon drop a message by its own count of deliveries: it is held instead of given back"
                ),
            )
        }
    }
}

/// What a shard noticed; `None` where it is good news. `pool` names a pool.
#[must_use]
pub(super) fn of_shard(notice: &Notice, pool: impl Fn(shards::model::PoolId) -> String) -> Option<Said> {
    use {Severity::*, WarningCode::*};
    Some(match notice {
        Notice::Refused { origin, outcome } => {
            let severity = if outcome.status == 501 { Critical } else { Error };
            let message = format!("{origin} answered {}: the message was set aside", outcome.status);
            said(Configuration, severity, origin, message)
        }
        Notice::Breaker { origin, tripped: true } => said(
            BreakerTripped,
            Warn,
            origin,
            format!("{origin} gives no answers: calls to it wait until a probe succeeds"),
        ),
        Notice::Breaker { tripped: false, .. } => return None,
        Notice::StillAbove { pool: id } => {
            let code = pool(*id);
            said(
                PoolStillAbove,
                Warn,
                &code,
                format!(
                    "pool {code} has more calls in flight than its new concurrency, 60 s after the change"
                ),
            )
        }
        Notice::LanesStuck { pool: id, count } => {
            let code = pool(*id);
            said(
                GroupThreadExitWithMessages,
                Warn,
                &code,
                format!("{count} groups of pool {code} had messages and nothing to wait for"),
            )
        }
        Notice::LanesRestarted { pool: id, count } => {
            let code = pool(*id);
            said(
                GroupThreadRestart,
                Warn,
                &code,
                format!("{count} groups of pool {code} were made ready again"),
            )
        }
        Notice::NoOutcome { pool: id, origin } => {
            let code = pool(*id);
            said(
                MediatorNullResult,
                Critical,
                &code,
                format!("a call of pool {code} to {origin} had no outcome 5 s after its timeout"),
            )
        }
    })
}

/// What an audit found.
#[must_use]
pub(super) fn of_audit(finding: &Finding) -> Said {
    use {Severity::*, WarningCode::*};
    match finding {
        Finding::Stalled { pool, seconds } => said(
            StalledPool,
            Error,
            pool,
            format!(
                "pool {pool} has messages and finished none for {seconds} s: `corelane explain` one of its groups"
            ),
        ),
        Finding::Leak { tracked, room } => said(
            PipelineMapLeak,
            Warn,
            "router",
            format!("{tracked} messages are tracked, more than the {room} that all pools can hold"),
        ),
        Finding::Permits { pool, count } => said(
            SemaphoreReleaseFailed,
            Critical,
            pool,
            format!(
                "{count} permits of pool {pool} are in use and no call is in flight: restart to free them"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shards::model::{Fault, Mediation, Outcome, PoolId};

    /// One row per warning of the router document's table that the engine itself can raise.
    #[test]
    fn every_warning_has_the_router_documents_code_and_severity() {
        let refused = |status| Notice::Refused {
            origin: "http://t".into(),
            outcome: Outcome::failed(Mediation::ErrorConfig, Fault::Http, status, 0),
        };
        let rows = [
            (of_desk(&Warning::Routing { code: "X".into() }, |_| String::new()), "ROUTING", Severity::Warn),
            (
                of_desk(&Warning::QueueFull { code: "P".into(), count: 3 }, |_| String::new()),
                "QUEUE_FULL",
                Severity::Warn,
            ),
            (of_desk(&Warning::PoolLimit, |_| String::new()), "POOL_LIMIT", Severity::Critical),
            (
                of_desk(&Warning::LeaseLost { source: SourceId(0) }, |_| "q".into()),
                "LEASE_LOST",
                Severity::Error,
            ),
            (
                of_desk(&Warning::NearLimit { source: SourceId(0) }, |_| "q".into()),
                "NEAR_LIMIT",
                Severity::Warn,
            ),
            (of_desk(&Warning::OwedExpired { count: 1 }, |_| "q".into()), "OWED_EXPIRED", Severity::Warn),
            (shard(&refused(400)), "CONFIGURATION", Severity::Error),
            (shard(&refused(404)), "CONFIGURATION", Severity::Error),
            (shard(&refused(451)), "CONFIGURATION", Severity::Error),
            (shard(&refused(501)), "CONFIGURATION", Severity::Critical),
            (
                shard(&Notice::Breaker { origin: "http://t".into(), tripped: true }),
                "BREAKER_TRIPPED",
                Severity::Warn,
            ),
            (
                shard(&Notice::LanesStuck { pool: PoolId(0), count: 1 }),
                "GROUP_THREAD_EXIT_WITH_MESSAGES",
                Severity::Warn,
            ),
            (
                shard(&Notice::LanesRestarted { pool: PoolId(0), count: 1 }),
                "GROUP_THREAD_RESTART",
                Severity::Warn,
            ),
            (
                shard(&Notice::NoOutcome { pool: PoolId(0), origin: "http://t".into() }),
                "MEDIATOR_NULL_RESULT",
                Severity::Critical,
            ),
            (shard(&Notice::StillAbove { pool: PoolId(0) }), "POOL_STILL_ABOVE", Severity::Warn),
            (
                of_audit(&Finding::Permits { pool: "P".into(), count: 1 }),
                "SEMAPHORE_RELEASE_FAILED",
                Severity::Critical,
            ),
            (of_audit(&Finding::Leak { tracked: 51, room: 50 }), "PIPELINE_MAP_LEAK", Severity::Warn),
            (of_audit(&Finding::Stalled { pool: "P".into(), seconds: 60 }), "STALLED_POOL", Severity::Error),
        ];
        for (said, code, severity) in rows {
            assert_eq!((said.code.name(), said.severity), (code, severity), "{said:?}");
        }
        assert_eq!(
            of_shard(&Notice::Breaker { origin: "http://t".into(), tripped: false }, |_| String::new()),
            None
        );
    }

    fn shard(notice: &Notice) -> Said {
        of_shard(notice, |_| "P".into()).expect("bad news")
    }
}
