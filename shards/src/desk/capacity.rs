//! How much each pool may hold, and how fast it lets go. Pure. Core: the ingress.
//!
//! - N1: of one batch a pool takes all of its share or nothing, unless the share is larger than all the
//!   pool can ever hold: then a prefix, at least one message.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

use crate::clock::Moment;
use crate::model::{NackReason, PoolId, PoolSpec};
use crate::shard::PoolShared;

/// Where messages go whose pool is unknown.
pub const DEFAULT_POOL: &str = "DEFAULT-POOL";
/// Pools at most (the router document's hard cap).
pub const POOLS_MAX: usize = 10_000;
/// The longest a message waits at its source for room.
const ROOM_WAIT_MAX_S: u32 = 30;
/// The same where a rate makes it wait: a window may let several start at once, so look again soon.
const ROOM_WAIT_RATE_MAX_S: u32 = 10;
/// The same while the pool's pace is not known: short, because the pool may well be fast.
const ROOM_WAIT_UNKNOWN_S: u32 = 2;

/// While every permit is in use, less than this part of what may be here is not asked for.
const FEW: u32 = 4;

/// Permits that are free for so long while groups are here for all of them: those groups wait for something else.
const BLOCKED_AFTER: Duration = Duration::from_millis(250);

/// Shorter times are too short to measure a pace by.
const PACE_MIN: Duration = Duration::from_millis(10);

/// How fast a pool settles messages, measured second by second while it has any.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    since: Moment,
    count: u32,
    per_s: f32,
}

/// A pool as the desk sees it.
#[derive(Debug)]
pub struct PoolDesk {
    /// Its code.
    pub code: Box<[u8]>,
    /// Its settings.
    pub spec: PoolSpec,
    /// What its shards share.
    pub shared: Arc<PoolShared>,
    /// Messages held for it.
    pub held: u32,
    /// Groups that they are of: as many could run at once.
    pub(super) groups: u32,
    /// When a message last came or went.
    moved_at: Moment,
    /// Delivered ones whose acks are on their way: a crash would repeat them.
    pub unkept: u32,
    /// Shards that have not reported it drained yet; 0 = not draining.
    pub draining: u8,
    /// Added again while it drains: starts when that is done.
    pub successor: Option<PoolSpec>,
    /// Messages given back, by reason.
    pub nacked: [u64; NackReason::ALL.len()],
    pace: Pace,
}

impl PoolDesk {
    /// A pool that holds nothing.
    #[must_use]
    pub fn new(code: &[u8], spec: PoolSpec, shared: Arc<PoolShared>, now: Moment) -> Self {
        let pace = Pace { since: now, ..Pace::default() };
        Self {
            code: code.into(),
            spec,
            shared,
            held: 0,
            groups: 0,
            moved_at: now,
            unkept: 0,
            draining: 0,
            successor: None,
            nacked: Default::default(),
            pace,
        }
    }

    /// Messages it may hold: those that wait and those in flight; of a rate-limited pool no more than
    /// the rate can use in half a lease, so that none waits out its lease here.
    #[must_use]
    pub fn limit(&self, lease: Option<Duration>) -> u32 {
        let limit = self.spec.capacity() + u32::from(self.spec.concurrency.get());
        match (self.spec.rate_per_minute, lease) {
            (Some(rate), Some(lease)) => {
                let usable = u128::from(rate.get()) * lease.as_millis() / 120_000;
                limit.min(u32::try_from(usable).unwrap_or(u32::MAX)).max(1)
            }
            _ => limit,
        }
    }

    /// Room for so many more.
    #[must_use]
    pub fn free(&self, lease: Option<Duration>) -> u32 {
        if self.draining > 0 { 0 } else { self.limit(lease).saturating_sub(self.held) }
    }

    /// How many more are worth asking for: while every permit is in use, more than `prefetch` waiting
    /// messages per permit would only grow old here, with leases to extend and caches to fill; and a hundred pools that
    /// each began with all they may hold would fill the memory. A permit whose ack is on its way counts as in use:
    /// where acks are slower than calls, the source sets the pace, and a crash repeats no more than the pool may hold.
    /// And while enough waits here, a few are not worth a question: a hundred queues would ask for one message at a time.
    #[must_use]
    pub fn wants(&self, lease: Option<Duration>, prefetch: u32, now: Moment) -> u32 {
        let (used, limit) = self.shared.permits.usage();
        let free = self.free(lease);
        let is_free = u32::from(used) + self.unkept < u32::from(limit);
        // Groups that are here and have not started will use what is free, unless they wait for something else.
        let will_be_used = self.groups >= u32::from(limit) && now.since(self.moved_at) < BLOCKED_AFTER;
        if is_free && !will_be_used {
            // For all of them, and where groups keep them so, twice as many at each look.
            let unused = u32::from(limit.saturating_sub(used));
            return free.min(unused.max(self.held).max(PoolSpec::CAPACITY_MIN));
        }
        let enough = u32::from(limit).saturating_mul(prefetch.saturating_add(1)).max(PoolSpec::CAPACITY_MIN);
        let missing = free.min(enough.saturating_sub(self.held + self.unkept));
        let few = enough.min(self.limit(lease)) / FEW;
        if missing < few { 0 } else { missing }
    }

    /// How many of a share of `share` messages it takes (N1).
    #[must_use]
    pub fn admits(&self, share: u32, lease: Option<Duration>) -> u32 {
        let free = self.free(lease);
        if share <= free {
            share
        } else if share > self.limit(lease) {
            free
        } else {
            0
        }
    }

    /// A message was admitted, perhaps the first of its group. The pace of an idle pool says nothing: it is measured
    /// anew.
    pub fn on_admitted(&mut self, is_first: bool, now: Moment) {
        self.groups += u32::from(is_first);
        self.moved_at = now;
        if self.held == 0 {
            self.pace.since = now;
            self.pace.count = 0;
        }
        self.held += 1;
    }

    /// A message was settled, perhaps the last of its group.
    #[expect(clippy::cast_precision_loss, reason = "a pace is an estimate")]
    pub fn on_settled(&mut self, was_last: bool, now: Moment) {
        self.groups -= u32::from(was_last);
        self.moved_at = now;
        self.held -= 1;
        self.pace.count += 1;
        let passed = now.since(self.pace.since);
        if passed >= Duration::from_secs(1) || self.held == 0 {
            self.pace.per_s = self.pace.count as f32 / passed.max(PACE_MIN).as_secs_f32();
            self.pace.count = 0;
            self.pace.since = now;
        }
    }

    /// Seconds until there is room for `share` messages, at the pool's measured pace.
    #[must_use]
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a pace is an estimate")]
    #[expect(clippy::cast_sign_loss, reason = "a pace is not negative")]
    pub fn room_wait_s(&self, share: u32) -> u32 {
        // A rate says how fast it can be at best, whatever was measured.
        let rate = self.spec.rate_per_minute.map(|rate| rate.get() as f32 / 60.0);
        let per_s = match rate {
            Some(rate) if self.pace.per_s <= 0.0 => rate,
            Some(rate) => rate.min(self.pace.per_s),
            None => self.pace.per_s,
        };
        if per_s <= 0.0 {
            return ROOM_WAIT_UNKNOWN_S;
        }
        let max = if rate.is_some() { ROOM_WAIT_RATE_MAX_S } else { ROOM_WAIT_MAX_S };
        ((share as f32 / per_s).ceil() as u32).clamp(1, max)
    }
}

/// All pools, by id and code.
#[derive(Debug, Default)]
pub(super) struct Pools {
    pools: Vec<Option<PoolDesk>>,
    codes: HashMap<Box<[u8]>, PoolId>,
}

impl Pools {
    /// The pool with this code, also one that is draining.
    #[must_use]
    pub(super) fn find(&self, code: &[u8]) -> Option<PoolId> {
        self.codes.get(code).copied()
    }

    /// A pool in use.
    #[must_use]
    pub(super) fn get(&self, id: PoolId) -> Option<&PoolDesk> {
        self.pools.get(usize::from(id.0))?.as_ref()
    }

    /// A pool in use.
    pub(super) fn get_mut(&mut self, id: PoolId) -> Option<&mut PoolDesk> {
        self.pools.get_mut(usize::from(id.0))?.as_mut()
    }

    /// Adds a pool; `None` if there are too many.
    pub(super) fn add(&mut self, pool: PoolDesk) -> Option<PoolId> {
        if self.codes.len() >= POOLS_MAX {
            return None;
        }
        let at = self.pools.iter().position(Option::is_none).unwrap_or(self.pools.len());
        let id = PoolId(u16::try_from(at).ok()?);
        self.codes.insert(pool.code.clone(), id);
        if at == self.pools.len() {
            self.pools.push(Some(pool));
        } else {
            self.pools[at] = Some(pool);
        }
        Some(id)
    }

    /// Forgets a pool that holds nothing.
    pub(super) fn remove(&mut self, id: PoolId) -> Option<PoolDesk> {
        let pool = self.pools.get_mut(usize::from(id.0))?.take()?;
        self.codes.remove(&pool.code);
        Some(pool)
    }

    /// All pools in use, by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = (PoolId, &PoolDesk)> {
        (0..).zip(&self.pools).filter_map(|(at, pool)| Some((PoolId(at), pool.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::{NonZeroU16, NonZeroU32};

    fn pool(concurrency: u16, rate: Option<u32>) -> PoolDesk {
        let mut spec = PoolSpec::new(NonZeroU16::new(concurrency).expect("not zero"));
        spec.rate_per_minute = rate.and_then(NonZeroU32::new);
        PoolDesk::new(b"P", spec, Arc::new(PoolShared::new(&spec, 1, Moment::ZERO)), Moment::ZERO)
    }

    #[test]
    fn a_share_is_taken_whole_or_not_at_all() {
        let lease = Some(Duration::from_secs(30));
        let rows = [
            // concurrency, rate, held, share, taken, why
            (1, None, 0, 51, 51, "max(1 × 20, 50) waiting and 1 in flight"),
            (1, None, 2, 50, 0, "one too many: none"),
            (1, None, 2, 49, 49, "all fit"),
            (1, None, 2, 52, 49, "more than it can ever hold: a prefix"),
            (10, None, 0, 210, 210, "10 × 20 waiting and 10 in flight"),
            (10, Some(60), 0, 15, 15, "half a lease of 30 s at one a second"),
            (10, Some(60), 1, 15, 0, "one too many for the rate"),
            (10, Some(1), 0, 3, 1, "at least one"),
        ];
        for (concurrency, rate, held, share, taken, why) in rows {
            let mut pool = pool(concurrency, rate);
            pool.held = held;
            assert_eq!(pool.admits(share, lease), taken, "N1: {why}");
        }
    }

    #[test]
    fn a_busy_pool_is_given_no_more_than_it_will_need_soon() {
        let mut pool = pool(10, None);
        pool.held = 30;
        assert_eq!(pool.wants(None, 2, Moment::ZERO), 50, "permits are free: another group may use them");
        pool.held = 100;
        assert_eq!(pool.wants(None, 2, Moment::ZERO), 100, "still free: twice as many");
        pool.held = 150;
        assert_eq!(pool.wants(None, 2, Moment::ZERO), 60, "up to all that it may hold");
        pool.held = 30;
        for _ in 0..10 {
            assert!(pool.shared.permits.try_take(crate::model::ShardId(0)));
        }
        assert_eq!(pool.wants(None, 2, Moment::ZERO), 20, "all in use: up to the floor of 50");
        pool.held = 50;
        assert_eq!(pool.wants(None, 2, Moment::ZERO), 0);
        assert_eq!(pool.wants(None, 20, Moment::ZERO), 160, "the router document's whole capacity");
        pool.held = 39;
        assert_eq!(pool.wants(None, 2, Moment::ZERO), 0, "a few: they can wait, for others wait here");
        pool.held = 38;
        assert_eq!(pool.wants(None, 2, Moment::ZERO), 12, "a quarter of 50");
    }

    #[test]
    fn groups_that_are_about_to_start_count_as_calls_in_flight() {
        let mut pool = pool(64, None);
        for _ in 0..192 {
            pool.on_admitted(true, Moment::ZERO);
        }
        assert_eq!(pool.wants(None, 2, Moment::ZERO), 0, "its shard has not started them yet, but will");
        let later = Moment::ZERO + BLOCKED_AFTER;
        assert_eq!(pool.wants(None, 2, later), 192, "they wait for something else: others may run");
        let mut few = super::tests::pool(64, None);
        for n in 0..192 {
            few.on_admitted(n < 63, Moment::ZERO);
        }
        assert_eq!(few.wants(None, 2, Moment::ZERO), 192, "one permit more than groups");
    }

    #[test]
    fn acks_on_their_way_count_as_calls_in_flight() {
        let mut pool = pool(10, None);
        (pool.held, pool.unkept) = (20, 9);
        assert_eq!(pool.wants(None, 2, Moment::ZERO), 50, "a permit is free");
        pool.unkept = 10;
        assert_eq!(
            pool.wants(None, 2, Moment::ZERO),
            20,
            "none is: up to the floor of 50, what is unkept included"
        );
        pool.unkept = 30;
        assert_eq!(pool.wants(None, 2, Moment::ZERO), 0, "the source must keep some first");
    }

    #[test]
    fn the_wait_for_room_follows_the_pools_pace() {
        let mut pool = pool(10, None);
        assert_eq!(pool.room_wait_s(10), 2, "nothing measured yet");
        pool.held = 100;
        for n in 0..=20 {
            pool.on_settled(false, Moment::ZERO + Duration::from_millis(n * 100));
        }
        assert_eq!(pool.room_wait_s(10), 1);
        assert_eq!(pool.room_wait_s(50), 5, "ten a second");
        assert_eq!(pool.room_wait_s(5000), 30, "bounded");
        let slow = super::tests::pool(10, Some(2));
        assert_eq!(slow.room_wait_s(1), 10, "two a minute: one in half a minute, and a look before");
        assert_eq!(super::tests::pool(10, Some(600)).room_wait_s(50), 5);
    }
}
