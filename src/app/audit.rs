//! The scheduled checks of the router document, as pure functions over looks at the engine.

use std::collections::BTreeMap;
use std::time::Duration;

use shards::clock::Moment;

use crate::ingress::IngressSnapshot;
use crate::view::{PoolView, View};

/// A pool with messages that finished none for so long stands still.
const STALLED_AFTER: Duration = Duration::from_secs(60);
/// The same for a pool with a rate: it may rightly wait for a whole window.
const STALLED_AFTER_RATE: Duration = Duration::from_secs(125);
/// Looks in a row at which permits and calls must disagree before it counts: looks are not atomic.
const MISMATCHES_MIN: u32 = 5;
/// Fewest messages that count as a leak.
const TRACKED_MIN: u64 = 50;

/// The leak rule: more messages are tracked than all pools can hold.
#[must_use]
pub(super) fn leak(look: &IngressSnapshot) -> Option<Finding> {
    let room = |pool: &crate::ingress::PoolLook| {
        u64::from(pool.spec.capacity()) + u64::from(pool.spec.concurrency.get())
    };
    let room = look.pools.iter().map(room).sum::<u64>().max(TRACKED_MIN);
    let tracked = look.held.saturating_sub(look.twins) as u64;
    (tracked > room).then_some(Finding::Leak { tracked, room })
}

/// Notices pools that stand still, and permits that nobody holds.
#[derive(Debug, Default)]
pub(super) struct Auditor {
    pools: BTreeMap<String, Watched>,
}

#[derive(Debug)]
struct Watched {
    finished: u64,
    since: Moment,
    mismatches: u32,
    told: bool,
}

/// What an audit found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// The pool has messages and finished none for so long.
    Stalled {
        /// Which.
        pool: String,
        /// For how long.
        seconds: u64,
    },
    /// More messages are tracked than all pools can hold.
    Leak {
        /// Messages tracked.
        tracked: u64,
        /// What all pools can hold.
        room: u64,
    },
    /// Permits are in use though no call is in flight.
    Permits {
        /// Which pool.
        pool: String,
        /// How many.
        count: u16,
    },
}

impl Auditor {
    /// Looks at every pool. Each finding is returned once, until the pool moves again.
    pub(super) fn look(&mut self, view: &View, look: &IngressSnapshot, now: Moment) -> Vec<Finding> {
        self.pools.retain(|code, _| view.pools.iter().any(|pool| pool.code == *code));
        let mut findings = Vec::new();
        for pool in &view.pools {
            let finished = pool.delivered_total + pool.failed_total + pool.transient_total;
            let fresh = || Watched { finished, since: now, mismatches: 0, told: false };
            let watched = self.pools.entry(pool.code.clone()).or_insert_with(fresh);
            let idle = pool.queued + pool.active == 0;
            if idle || finished != watched.finished {
                let mismatches = watched.mismatches;
                *watched = Watched { mismatches, ..fresh() };
            }
            if !watched.told && now.since(watched.since) >= patience(pool) {
                watched.told = true;
                let seconds = now.since(watched.since).as_secs();
                findings.push(Finding::Stalled { pool: pool.code.clone(), seconds });
            }
            let used =
                look.pools.iter().find(|other| other.code == pool.code).map_or(0, |it| it.permits_used);
            watched.mismatches = if idle && used > 0 { watched.mismatches + 1 } else { 0 };
            if watched.mismatches == MISMATCHES_MIN {
                findings.push(Finding::Permits { pool: pool.code.clone(), count: used });
            }
        }
        findings
    }

    /// Pools that stand still now: the router is not ready while there are any.
    pub(super) fn stalled(&self) -> impl Iterator<Item = &str> {
        self.pools.iter().filter(|(_, watched)| watched.told).map(|(code, _)| code.as_str())
    }
}

const fn patience(pool: &PoolView) -> Duration {
    if pool.rate_limit_per_minute.is_some() { STALLED_AFTER_RATE } else { STALLED_AFTER }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingress::PoolLook;
    use shards::model::{PoolId, PoolSpec};
    use std::num::NonZeroU16;

    fn at(s: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(s)
    }

    fn pool(queued: u64, delivered: u64, rate: Option<u32>) -> View {
        let pool = PoolView {
            code: "P".into(),
            queued,
            delivered_total: delivered,
            rate_limit_per_minute: rate,
            ..PoolView::default()
        };
        View { pools: vec![pool], ..View::default() }
    }

    fn look(held: usize, permits: u16) -> IngressSnapshot {
        let spec = PoolSpec::new(NonZeroU16::new(10).expect("not zero"));
        let pool = PoolLook {
            id: PoolId(0),
            code: "P".into(),
            spec,
            held: 0,
            draining: false,
            permits_used: permits,
            nacked: Default::default(),
        };
        IngressSnapshot { pools: vec![pool], held, ..IngressSnapshot::default() }
    }

    #[test]
    fn a_leak_is_more_than_capacity_and_concurrency_twins_excluded() {
        assert_eq!(leak(&look(210, 0)), None, "10 × 20 waiting and 10 in flight");
        assert_eq!(leak(&look(211, 0)), Some(Finding::Leak { tracked: 211, room: 210 }));
        assert_eq!(leak(&IngressSnapshot { twins: 5, ..look(213, 0) }), None);
        assert_eq!(
            leak(&IngressSnapshot { held: 50, ..IngressSnapshot::default() }),
            None,
            "the floor of 50"
        );
        assert_eq!(
            leak(&IngressSnapshot { held: 51, ..IngressSnapshot::default() }),
            Some(Finding::Leak { tracked: 51, room: 50 })
        );
    }

    #[test]
    fn a_pool_with_messages_that_finishes_none_for_a_minute_stands_still() {
        let mut auditor = Auditor::default();
        assert_eq!(auditor.look(&pool(5, 7, None), &look(5, 0), at(0)), []);
        assert_eq!(auditor.look(&pool(5, 7, None), &look(5, 0), at(59)), []);
        let stalled = [Finding::Stalled { pool: "P".into(), seconds: 60 }];
        assert_eq!(auditor.look(&pool(5, 7, None), &look(5, 0), at(60)), stalled);
        assert_eq!(auditor.look(&pool(5, 7, None), &look(5, 0), at(61)), [], "told once");
        assert_eq!(auditor.stalled().collect::<Vec<_>>(), ["P"], "and not ready all the while");
        assert_eq!(auditor.look(&pool(5, 8, None), &look(5, 0), at(62)), []);
        assert_eq!(auditor.stalled().count(), 0, "it moves again");
        assert_eq!(auditor.look(&pool(0, 8, None), &look(0, 0), at(500)), [], "idle is not stalled");
        assert_eq!(auditor.look(&pool(5, 8, Some(1)), &look(5, 0), at(500)), []);
        assert_eq!(
            auditor.look(&pool(5, 8, Some(1)), &look(5, 0), at(600)),
            [],
            "its rate allows one a minute"
        );
        assert_eq!(auditor.look(&pool(5, 8, Some(1)), &look(5, 0), at(625)).len(), 1);
    }

    #[test]
    fn permits_without_calls_are_found_after_some_looks() {
        let mut auditor = Auditor::default();
        for second in 0..4 {
            assert_eq!(auditor.look(&pool(0, 7, None), &look(0, 2), at(second)), []);
        }
        let found = [Finding::Permits { pool: "P".into(), count: 2 }];
        assert_eq!(auditor.look(&pool(0, 7, None), &look(0, 2), at(4)), found);
    }
}
