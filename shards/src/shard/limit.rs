//! A pool's rate, shared by all shards: so many message starts per fixed one-minute window from the
//! pool's start. Shards borrow tokens in small chunks and give back what they did not use.
//! Core: any; lock-free.
//!
//! - R1: at most `limit` tokens are out per window, over all shards.
//! - R2: a borrowed token dies with its window.
//! - R3: work-conserving: unused tokens return at the end of the borrower's turn.

use std::time::Duration;

use crossbeam_utils::CachePadded;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::clock::Moment;

/// The router document's refresh period.
pub const WINDOW: Duration = Duration::from_secs(60);

/// Tokens of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// The window they may be used in.
    pub window: u32,
    /// How many.
    pub count: u32,
}

/// What borrowing led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Borrow {
    /// There is no limit.
    Unlimited,
    /// At least one token.
    Granted(Tokens),
    /// The window is used up: the next one starts then.
    WaitUntil(Moment),
}

/// The rate of one pool.
#[derive(Debug)]
pub struct Rate {
    /// Window (32), used (32).
    word: CachePadded<AtomicU64>,
    /// Tokens per window; 0 = no limit.
    limit: AtomicU32,
    start: Moment,
}

impl Rate {
    /// `limit` starts per window, from `start`.
    #[must_use]
    pub fn new(limit: Option<u32>, start: Moment) -> Self {
        Self { word: CachePadded::new(AtomicU64::new(0)), limit: AtomicU32::new(limit.unwrap_or(0)), start }
    }

    /// Changes the limit; it counts at once, also against what was used in this window.
    pub fn set_limit(&self, limit: Option<u32>) {
        self.limit.store(limit.unwrap_or(0), Ordering::Relaxed);
    }

    /// Starts per window, if limited.
    #[must_use]
    pub fn limit(&self) -> Option<u32> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|&limit| limit > 0)
    }

    /// The window `now` is in.
    #[must_use]
    pub fn window(&self, now: Moment) -> u32 {
        u32::try_from(now.since(self.start).as_nanos() / WINDOW.as_nanos()).unwrap_or(u32::MAX)
    }

    /// Borrows up to `want` tokens.
    pub fn borrow(&self, now: Moment, want: u32) -> Borrow {
        let Some(limit) = self.limit() else { return Borrow::Unlimited };
        let mut current = self.word.load(Ordering::Relaxed);
        loop {
            let (seen, seen_used) = split(current);
            // Another shard's clock may be a turn ahead: its window is the true one.
            let window = seen.max(self.window(now));
            let used = if seen == window { seen_used } else { 0 };
            let count = want.min(limit.saturating_sub(used));
            if count == 0 {
                return Borrow::WaitUntil(self.start + WINDOW * (window + 1));
            }
            match self.word.compare_exchange_weak(
                current,
                join(window, used + count),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Borrow::Granted(Tokens { window, count }),
                Err(seen) => current = seen,
            }
        }
    }

    /// Gives unused tokens back. Those of an ended window are gone.
    pub fn give_back(&self, tokens: Tokens) {
        let mut current = self.word.load(Ordering::Relaxed);
        loop {
            let (window, used) = split(current);
            if window != tokens.window || tokens.count == 0 {
                return;
            }
            debug_assert!(used >= tokens.count, "R1: tokens that were borrowed");
            match self.word.compare_exchange_weak(
                current,
                join(window, used - tokens.count),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(seen) => current = seen,
            }
        }
    }
}

const fn split(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, (word & 0xffff_ffff) as u32)
}

const fn join(window: u32, used: u32) -> u64 {
    (window as u64) << 32 | used as u64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_window_gives_out_its_limit_and_the_next_one_starts_anew() {
        let rate = Rate::new(Some(10), at(5));
        assert_eq!(rate.borrow(at(5), 7), Borrow::Granted(Tokens { window: 0, count: 7 }));
        assert_eq!(rate.borrow(at(64), 7), Borrow::Granted(Tokens { window: 0, count: 3 }));
        assert_eq!(rate.borrow(at(64), 1), Borrow::WaitUntil(at(65)), "R1");
        assert_eq!(rate.borrow(at(65), 7), Borrow::Granted(Tokens { window: 1, count: 7 }));
    }

    #[test]
    fn unused_tokens_return_within_their_window_only() {
        let rate = Rate::new(Some(10), at(0));
        let Borrow::Granted(tokens) = rate.borrow(at(1), 10) else { panic!("tokens are left") };
        rate.give_back(Tokens { count: 4, ..tokens });
        assert_eq!(rate.borrow(at(2), 10), Borrow::Granted(Tokens { window: 0, count: 4 }), "R3");
        assert_eq!(rate.borrow(at(61), 10), Borrow::Granted(Tokens { window: 1, count: 10 }));
        rate.give_back(tokens);
        assert_eq!(rate.borrow(at(62), 1), Borrow::WaitUntil(at(120)), "R2");
    }

    #[test]
    fn a_changed_limit_counts_at_once() {
        let rate = Rate::new(Some(10), at(0));
        assert_eq!(rate.borrow(at(1), 6), Borrow::Granted(Tokens { window: 0, count: 6 }));
        rate.set_limit(Some(5));
        assert_eq!(rate.borrow(at(1), 1), Borrow::WaitUntil(at(60)));
        rate.set_limit(Some(8));
        assert_eq!(rate.borrow(at(1), 9), Borrow::Granted(Tokens { window: 0, count: 2 }));
        rate.set_limit(None);
        assert_eq!(rate.borrow(at(1), 9), Borrow::Unlimited);
    }

    #[test]
    fn a_shard_whose_clock_lags_stays_in_the_newest_window() {
        let rate = Rate::new(Some(3), at(0));
        assert_eq!(rate.borrow(at(60), 2), Borrow::Granted(Tokens { window: 1, count: 2 }));
        assert_eq!(rate.borrow(at(59), 2), Borrow::Granted(Tokens { window: 1, count: 1 }), "R1");
    }
}
