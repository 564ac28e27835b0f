//! A breaker: stops calling a target that times out or can't be reached, and probes it until it is back.
//! Pure. Core: its shard's.
//!
//! - Q1: trips when of the last `window` calls at least `failures` failed to get any answer; answers never trip it.
//! - Q2: tripped, it admits none for `wait`; then one probe at a time.
//! - Q3: `probes` successful probes in a row admit all again; a failed one trips it anew.

use crate::clock::Moment;
use crate::meter::BreakerLook;
use crate::model::{Fault, Outcome, ShardTuning};

/// May a call be made?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// Yes.
    Yes,
    /// Yes, and its result decides whether others follow.
    Probe,
    /// Not before this moment; [`Moment::NEVER`] = not before the probe's result.
    No(Moment),
}

/// What a result changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// Tripped until then.
    Tripped(Moment),
    /// The probe went well: the next may go.
    NextProbe,
    /// All are admitted again.
    Admitting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Admitting { history: u32, calls: u8 },
    Tripped { until: Moment },
    Probing { under_way: bool, good: u8 },
}

/// One target's breaker.
#[derive(Clone, Copy, Debug)]
pub struct Breaker {
    state: State,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { state: State::Admitting { history: 0, calls: 0 } }
    }
}

impl Breaker {
    /// May a call be made now? Asking changes nothing.
    #[must_use]
    pub fn admit(&self, now: Moment) -> Admit {
        match self.state {
            State::Admitting { .. } => Admit::Yes,
            State::Tripped { until } if now < until => Admit::No(until),
            State::Tripped { .. } | State::Probing { under_way: false, .. } => Admit::Probe,
            State::Probing { under_way: true, .. } => Admit::No(Moment::NEVER),
        }
    }

    /// The admitted probe starts.
    pub fn on_probe_start(&mut self) {
        let good = match self.state {
            State::Probing { good, .. } => good,
            _ => 0,
        };
        self.state = State::Probing { under_way: true, good };
    }

    /// A call ended. `probe`: it was admitted as one.
    pub fn on_result(&mut self, now: Moment, outcome: Outcome, probe: bool, tuning: &ShardTuning) -> Change {
        let failed = match outcome.fault {
            Fault::Timeout | Fault::Network => true,
            // No verdict on the target: a kept connection ran out, or it asked for patience.
            Fault::Stale | Fault::NotYet | Fault::CircuitOpen => return self.on_neutral(probe),
            Fault::None | Fault::Http | Fault::RateLimited => false,
        };
        match self.state {
            State::Admitting { history, calls } => {
                let mask = (1_u32 << tuning.breaker_window) - 1;
                let history = (history << 1 | u32::from(failed)) & mask;
                let calls = (calls + 1).min(tuning.breaker_window);
                self.state = State::Admitting { history, calls };
                let bad = history.count_ones() >= u32::from(tuning.breaker_failures);
                if calls == tuning.breaker_window && bad { self.trip(now, tuning) } else { Change::None }
            }
            State::Probing { .. } if probe && failed => self.trip(now, tuning),
            State::Probing { good, .. } if probe => {
                if good + 1 >= tuning.breaker_probes {
                    *self = Self::default();
                    return Change::Admitting;
                }
                self.state = State::Probing { under_way: false, good: good + 1 };
                Change::NextProbe
            }
            // A call from before the trip says nothing new.
            State::Probing { .. } | State::Tripped { .. } => Change::None,
        }
    }

    /// True unless all calls are admitted.
    #[must_use]
    pub const fn is_tripped(&self) -> bool {
        !matches!(self.state, State::Admitting { .. })
    }

    /// Its state, for people.
    #[must_use]
    pub const fn look(&self) -> BreakerLook {
        match self.state {
            State::Admitting { .. } => BreakerLook::Admitting,
            State::Tripped { until } => BreakerLook::Tripped(until),
            State::Probing { .. } => BreakerLook::Probing,
        }
    }

    fn trip(&mut self, now: Moment, tuning: &ShardTuning) -> Change {
        let until = now + tuning.breaker_wait;
        self.state = State::Tripped { until };
        Change::Tripped(until)
    }

    fn on_neutral(&mut self, probe: bool) -> Change {
        match self.state {
            State::Probing { good, .. } if probe => {
                self.state = State::Probing { under_way: false, good };
                Change::NextProbe
            }
            _ => Change::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn run(breaker: &mut Breaker, outcomes: &[Outcome]) -> Change {
        let tuning = ShardTuning::default();
        outcomes
            .iter()
            .fold(Change::None, |_, &outcome| breaker.on_result(Moment::ZERO, outcome, false, &tuning))
    }

    const OK: Outcome = Outcome::success(200);
    const DOWN: Outcome = Outcome::network();
    const HTTP_500: Outcome = Outcome::failed(crate::model::Mediation::ErrorProcess, Fault::Http, 500, 0);

    #[test]
    fn five_failures_in_ten_calls_trip_it_and_nothing_less_does() {
        let until = Moment::ZERO + Duration::from_secs(5);
        let rows = [
            (vec![DOWN; 9], Change::None, "nine calls are too few to judge"),
            (vec![DOWN; 10], Change::Tripped(until), "all failed"),
            ([vec![OK; 6], vec![DOWN; 4]].concat(), Change::None, "40 %"),
            ([vec![OK; 5], vec![DOWN; 5]].concat(), Change::Tripped(until), "50 %"),
            ([vec![OK; 100], vec![DOWN; 5]].concat(), Change::Tripped(until), "only the last ten count"),
            (vec![HTTP_500; 50], Change::None, "Q1: an answer is no failure"),
            (vec![Outcome::stale(); 50], Change::None, "a kept connection that ran out"),
            (vec![Outcome::timeout(); 10], Change::Tripped(until), "a timeout is one"),
        ];
        for (outcomes, want, why) in rows {
            assert_eq!(run(&mut Breaker::default(), &outcomes), want, "{why}");
        }
    }

    #[test]
    fn it_probes_one_at_a_time_until_three_succeed() {
        let tuning = ShardTuning::default();
        let mut breaker = Breaker::default();
        let Change::Tripped(until) = run(&mut breaker, &[DOWN; 10]) else { panic!("trips") };
        assert_eq!(breaker.admit(Moment::ZERO), Admit::No(until), "Q2");
        assert_eq!(breaker.admit(until), Admit::Probe, "Q2");
        breaker.on_probe_start();
        assert_eq!(breaker.admit(until), Admit::No(Moment::NEVER), "Q2: one at a time");
        assert_eq!(breaker.on_result(until, OK, false, &tuning), Change::None, "not the probe");
        for _ in 0..2 {
            assert_eq!(breaker.on_result(until, OK, true, &tuning), Change::NextProbe);
            assert_eq!(breaker.admit(until), Admit::Probe);
            breaker.on_probe_start();
        }
        assert_eq!(breaker.on_result(until, OK, true, &tuning), Change::Admitting, "Q3");
        assert_eq!(breaker.admit(until), Admit::Yes);
    }

    #[test]
    fn a_failed_probe_trips_it_anew() {
        let tuning = ShardTuning::default();
        let mut breaker = Breaker::default();
        let Change::Tripped(until) = run(&mut breaker, &[DOWN; 10]) else { panic!("trips") };
        breaker.on_probe_start();
        let later = until + Duration::from_secs(5);
        assert_eq!(breaker.on_result(until, DOWN, true, &tuning), Change::Tripped(later), "Q3");
    }
}
