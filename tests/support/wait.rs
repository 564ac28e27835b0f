//! Waiting for a condition, with a deadline: the only place in the tests that lets time pass.

use std::time::{Duration, Instant};

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// Waits until `is_so`, or fails with what was waited for and what `shown` says of the state.
pub(crate) fn until<S: std::fmt::Debug>(
    max: Duration,
    what: &str,
    mut is_so: impl FnMut() -> bool,
    shown: impl Fn() -> S,
) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < max, "{what}: not within {max:?}: {:?}", shown());
        std::thread::sleep(LOOK);
    }
}
