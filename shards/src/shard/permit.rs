//! A pool's permits, shared by all shards in one atomic word: calls in flight, their limit, and a bit
//! for each shard that waits. Core: any; lock-free.
//!
//! - K1: `used ≤ limit` at every take; a lowered limit stops takes at once and ends no call.
//! - K2: work-conserving: a permit is refused only while `used ≥ limit`, and then the refused shard's bit is set.
//! - K3: while a bit is set, a release hands the permit to a waiting shard, round-robin, so none starves.

use crossbeam_utils::CachePadded;

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::model::ShardId;

/// Shards that can share a pool: one bit each.
pub const SHARDS_MAX: usize = 32;

/// What a release led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The permit is back in the pool.
    Free,
    /// It was handed to this shard, which must be woken.
    HandedTo(ShardId),
    /// Only the caller was waiting: it still has the permit.
    Kept,
}

/// The word: waiting bits (32), limit (16), used (16).
#[derive(Clone, Copy)]
struct Word(u64);

impl Word {
    const fn used(self) -> u16 {
        (self.0 & 0xffff) as u16
    }
    const fn limit(self) -> u16 {
        (self.0 >> 16 & 0xffff) as u16
    }
    const fn waiting(self) -> u32 {
        (self.0 >> 32) as u32
    }
    const fn with_used(self, used: u16) -> Self {
        Self(self.0 & !0xffff | used as u64)
    }
    const fn with_limit(self, limit: u16) -> Self {
        Self(self.0 & !0xffff_0000 | (limit as u64) << 16)
    }
    const fn with_waiting(self, waiting: u32) -> Self {
        Self(self.0 & 0xffff_ffff | (waiting as u64) << 32)
    }
}

/// The permits of one pool.
#[derive(Debug)]
pub struct Permits {
    word: CachePadded<AtomicU64>,
    /// Permits handed to a shard that it has not picked up yet.
    handed: Box<[CachePadded<AtomicU32>]>,
}

impl Permits {
    /// `limit` permits for `shards` shards.
    #[must_use]
    pub fn new(limit: u16, shards: usize) -> Self {
        assert!((1..=SHARDS_MAX).contains(&shards), "a pool spans 1 to 32 shards");
        Self {
            word: CachePadded::new(AtomicU64::new(Word(0).with_limit(limit).0)),
            handed: (0..shards).map(|_| CachePadded::new(AtomicU32::new(0))).collect(),
        }
    }

    /// Takes a permit. False: none is free, and `shard` will be handed one.
    pub fn try_take(&self, shard: ShardId) -> bool {
        let bit = 1_u32 << shard.0;
        self.update(|word| {
            if word.used() < word.limit() {
                (word.with_used(word.used() + 1).with_waiting(word.waiting() & !bit), true)
            } else {
                (word.with_waiting(word.waiting() | bit), false)
            }
        })
    }

    /// Gives a permit back, to a waiting shard if there is one.
    pub fn release(&self, shard: ShardId) -> Release {
        let release = self.update(|word| {
            debug_assert!(word.used() > 0, "K1: a permit that was taken");
            if word.waiting() == 0 || word.used() > word.limit() {
                return (word.with_used(word.used() - 1), Release::Free);
            }
            let next = next_bit(word.waiting(), shard);
            let word = word.with_waiting(word.waiting() & !(1 << next.0));
            (word, if next == shard { Release::Kept } else { Release::HandedTo(next) })
        });
        if let Release::HandedTo(next) = release {
            self.handed[usize::from(next.0)].fetch_add(1, Ordering::Release);
        }
        release
    }

    /// Picks up what was handed to `shard`.
    pub fn take_handed(&self, shard: ShardId) -> u32 {
        let handed = &self.handed[usize::from(shard.0)];
        if handed.load(Ordering::Relaxed) == 0 { 0 } else { handed.swap(0, Ordering::Acquire) }
    }

    /// True if something handed to `shard` is waiting to be picked up.
    pub fn was_handed(&self, shard: ShardId) -> bool {
        self.handed[usize::from(shard.0)].load(Ordering::Relaxed) > 0
    }

    /// True if a shard other than `shard` waits for a permit.
    #[inline]
    pub fn others_wait(&self, shard: ShardId) -> bool {
        Word(self.word.load(Ordering::Relaxed)).waiting() & !(1 << shard.0) != 0
    }

    /// Changes the limit. Shards that wait must be told to look again.
    pub fn set_limit(&self, limit: u16) {
        self.update(|word| (word.with_limit(limit), ()));
    }

    /// Permits in use and the limit.
    #[must_use]
    pub fn usage(&self) -> (u16, u16) {
        let word = Word(self.word.load(Ordering::Relaxed));
        (word.used(), word.limit())
    }

    /// True if a call in flight must end before the limit holds again.
    #[inline]
    pub fn is_above_limit(&self) -> bool {
        let (used, limit) = self.usage();
        used > limit
    }

    fn update<R>(&self, change: impl Fn(Word) -> (Word, R)) -> R {
        let mut current = self.word.load(Ordering::Relaxed);
        loop {
            let (next, result) = change(Word(current));
            if next.0 == current {
                return result;
            }
            match self.word.compare_exchange_weak(current, next.0, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return result,
                Err(seen) => current = seen,
            }
        }
    }
}

/// The first waiting shard after `shard`, round-robin; `shard` itself comes last.
fn next_bit(waiting: u32, shard: ShardId) -> ShardId {
    let after = waiting.rotate_right(u32::from(shard.0) + 1);
    let place = (after.trailing_zeros() + u32::from(shard.0) + 1) % 32;
    ShardId(u8::try_from(place).expect("below 32"))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const A: ShardId = ShardId(0);
    const B: ShardId = ShardId(1);
    const C: ShardId = ShardId(31);

    #[test]
    fn one_shard_can_have_all_permits_and_no_more() {
        let permits = Permits::new(3, 2);
        assert_eq!([(); 4].map(|()| permits.try_take(A)), [true, true, true, false], "K1, K2");
        assert_eq!(permits.release(A), Release::Kept, "only A waits");
        assert_eq!(permits.usage(), (3, 3));
        assert_eq!(permits.release(A), Release::Free);
        assert_eq!(permits.usage(), (2, 3));
    }

    #[test]
    fn a_release_goes_round_the_waiting_shards() {
        let permits = Permits::new(1, 32);
        assert!(permits.try_take(A));
        for shard in [A, B, C] {
            assert!(!permits.try_take(shard));
        }
        assert_eq!(permits.release(A), Release::HandedTo(B), "K3");
        assert_eq!(permits.take_handed(B), 1);
        assert_eq!(permits.release(B), Release::HandedTo(C), "K3");
        assert_eq!(permits.take_handed(C), 1);
        assert_eq!(permits.release(C), Release::HandedTo(A), "K3");
        assert_eq!(permits.take_handed(A), 1);
        assert_eq!(permits.release(A), Release::Free);
        assert_eq!(permits.usage(), (0, 1));
    }

    #[test]
    fn a_lowered_limit_applies_to_new_starts_at_once() {
        let permits = Permits::new(2, 2);
        assert!(permits.try_take(A) && permits.try_take(A));
        permits.set_limit(1);
        assert!(permits.is_above_limit());
        assert!(!permits.try_take(B));
        assert_eq!(permits.release(A), Release::Free, "not handed on while above the limit");
        assert_eq!(permits.release(A), Release::HandedTo(B));
        assert_eq!(permits.usage(), (1, 1));
    }
}
