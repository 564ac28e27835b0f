//! Time as the data plane sees it: a [`Moment`] handed in by whoever drives a state machine.
//! Core: any. Owns: nothing. Only [`Clock`] reads a real clock, and only the drive loops hold one.

use std::ops::{Add, Sub};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A point in time, in nanoseconds since an arbitrary start. Monotonic; real or virtual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The start of time.
    pub const ZERO: Self = Self(0);
    /// Later than any moment that occurs.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment `nanos` after [`Moment::ZERO`].
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since [`Moment::ZERO`].
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Whole milliseconds since [`Moment::ZERO`].
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Time passed since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    /// Saturates: a wait too long to express never ends.
    fn add(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    /// Saturates at [`Moment::ZERO`].
    fn sub(self, wait: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// The machine's clock. `CLOCK_BOOTTIME`: it goes on while the host sleeps, as brokers' leases do,
/// and no one can set it back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock;

impl Clock {
    /// Now.
    #[must_use]
    pub fn now(self) -> Moment {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        Moment(seconds * 1_000_000_000 + nanos)
    }

    /// The wall clock: seconds since 1970. Someone may set it back; only for dates that peers name.
    #[must_use]
    pub fn unix_s(self) -> u64 {
        u64::try_from(clock_gettime(ClockId::Realtime).tv_sec).unwrap_or(0)
    }
}

/// CPU time that the calling thread has used.
#[must_use]
pub fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_never_wraps() {
        assert_eq!(Moment::NEVER + Duration::from_secs(1), Moment::NEVER);
        assert_eq!(Moment::ZERO - Duration::from_secs(1), Moment::ZERO);
        assert_eq!(Moment::ZERO.since(Moment::NEVER), Duration::ZERO);
    }

    #[test]
    fn the_clock_goes_forward() {
        let first = Clock.now();
        assert!(Clock.now() >= first);
    }
}
