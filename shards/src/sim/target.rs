//! Simulated targets: how long a call takes and how it ends.

use std::time::Duration;

use super::faults::{Fault, Faults};
use super::rng::Rng;
use crate::clock::Moment;
use crate::model::{self, Mediation, Outcome};

/// The longest delay a simulated target asks for, in seconds.
pub(super) const DELAY_S_MAX: u64 = 20;

#[derive(Debug)]
pub(super) struct Targets {
    dead_until: Vec<Moment>,
    call_us: (u64, u64),
    /// The longest lease of any source.
    lease_max: Duration,
}

impl Targets {
    pub(super) fn new(count: u8, call_us: (u64, u64), lease_max: Duration) -> Self {
        Self { dead_until: vec![Moment::ZERO; usize::from(count)], call_us, lease_max }
    }

    /// A target can't be reached until then.
    pub(super) fn kill(&mut self, target: usize, until: Moment) {
        if let Some(dead) = self.dead_until.get_mut(target) {
            *dead = until;
        }
    }

    pub(super) fn heal(&mut self) {
        self.dead_until.fill(Moment::ZERO);
    }

    /// The longest a call takes when nothing is wrong.
    pub(super) const fn call_max(&self) -> Duration {
        Duration::from_micros(self.call_us.1)
    }

    /// How a call that starts now ends, and when.
    pub(super) fn call(
        &self,
        target: usize,
        now: Moment,
        faults: &mut Faults,
        rng: &mut Rng,
    ) -> (Duration, Outcome) {
        let usual = rng.micros(self.call_us.0, self.call_us.1);
        if self.dead_until[target] > now {
            faults.count(Fault::DeadTarget);
            return (rng.micros(100, 2_000), Outcome::network());
        }
        let asked = u32::try_from(rng.range(1, DELAY_S_MAX)).unwrap_or(1);
        let failed = |fault, status, delay_s| {
            (usual, Outcome::failed(Mediation::ErrorProcess, fault, status, delay_s))
        };
        if faults.strikes(Fault::SlowTarget, rng) {
            let slow = self.lease_max + rng.micros(1_000_000, 30_000_000);
            return (slow, Outcome::success(200));
        }
        if faults.strikes(Fault::Refused, rng) {
            return (usual, Outcome::failed(Mediation::ErrorConfig, model::Fault::Http, 404, 0));
        }
        if faults.strikes(Fault::Throttled, rng) {
            return failed(model::Fault::RateLimited, 429, asked);
        }
        if faults.strikes(Fault::ServerError, rng) {
            return failed(model::Fault::Http, 503, if rng.chance(500_000) { 0 } else { asked });
        }
        if faults.strikes(Fault::NotYet, rng) {
            return failed(model::Fault::NotYet, 200, asked);
        }
        if faults.strikes(Fault::Timeout, rng) {
            return (Duration::from_secs(rng.range(1, 15)), Outcome::timeout());
        }
        if faults.strikes(Fault::StaleConnection, rng) {
            return (rng.micros(10, 200), Outcome::stale());
        }
        (usual, Outcome::success(200))
    }
}
