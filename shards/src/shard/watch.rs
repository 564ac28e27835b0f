//! The watchdog: looks for lanes that nothing would make go on, and for calls that never end. Neither
//! should ever be found; if one is, its messages go on and a person is told.

use std::time::Duration;

use super::lane::State;
use super::{Effects, Shard};
use crate::clock::Moment;
use crate::model::{FromShard, Notice, PoolId};

/// How often lanes are looked at.
pub(super) const WATCH_EVERY: Duration = Duration::from_secs(5);
/// Lanes looked at in one go: bounds the pause that this makes (about a millisecond).
const LANES_MAX: usize = 16_384;
/// A pause that is over for so long will not end by itself.
const LATE_MAX: Duration = Duration::from_secs(5);

impl Shard {
    /// One look. A shard with more lanes than can be looked at in one go is looked at in part.
    pub(super) fn watch(&mut self, now: Moment, out: &mut Effects) {
        self.watch_pools(out);
        let lanes = self.lanes.some(self.watched, LANES_MAX);
        self.watched = lanes.last().map_or(0, |&last| last + 1);
        if lanes.len() < LANES_MAX {
            self.watched = 0;
        }
        for lane in lanes {
            let state = self.lanes.get(lane);
            let (pool, at) = (state.key.pool, state.at);
            match state.state {
                State::Paused if at + LATE_MAX < now => {
                    report_restart(pool, 1, out);
                    self.resume(lane);
                }
                State::Running if at + self.tuning.call_max < now => {
                    let origin = state.origin;
                    self.lanes.get_mut(lane).at = now; // Said once per timeout.
                    let origin = self.origin_name(origin);
                    out.reports.push(FromShard::Noticed(Box::new(Notice::NoOutcome { pool, origin })));
                }
                _ => {}
            }
        }
    }

    /// A pool with ready lanes must be in the list to start from, or wait for a permit or its rate.
    fn watch_pools(&mut self, out: &mut Effects) {
        for at in 0..self.pools.len() {
            let Some(pool) = self.pools[at].as_ref() else { continue };
            let waits = pool.active || pool.waits_for_permit || pool.waits_for_rate || pool.draining;
            let ready = pool.ready.len();
            if ready > 0 && !waits && !self.draining {
                let id = PoolId(u16::try_from(at).unwrap_or(u16::MAX));
                report_restart(id, u32::try_from(ready).unwrap_or(u32::MAX), out);
                self.activate(id);
            }
        }
    }
}

fn report_restart(pool: PoolId, count: u32, out: &mut Effects) {
    out.reports.push(FromShard::Noticed(Box::new(Notice::LanesStuck { pool, count })));
    out.reports.push(FromShard::Noticed(Box::new(Notice::LanesRestarted { pool, count })));
}
