//! The words that cores share, in every interleaving of two threads. `make loom`.
//!
//! Each model was seen to fail when the code it guards is broken:
//!
//! - `no_wake_is_lost`: without the fence in `Flag::try_sleep`, or the one in `Flag::must_wake`: deadlock (B1).
//! - `permits_are_never_above_their_limit_and_none_is_lost`: with `used() <= limit()` in `Permits::try_take`: two
//!   calls run (K1); without setting the waiting bit: deadlock (K2).
//! - `a_shard_that_sleeps_is_woken_for_the_permit_it_was_handed`: without the fence in `Flag::must_wake`: deadlock (K3).
//! - `a_lowered_limit_holds_for_the_next_take`: with a plain load and store in `Permits::update`: a permit is lost (K1).
//! - `a_window_gives_out_no_more_than_its_limit`: with a load and store in `Rate::borrow`: too many tokens (R1).
//! - `tokens_of_an_ended_window_do_not_come_back`: without the window check in `Rate::give_back`: too many tokens (R2).
#![cfg(loom)]

use std::time::Duration;

use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use loom::sync::{Arc, Notify};
use loom::thread;
use shards_loom::bell::Flag;
use shards_loom::clock::Moment;
use shards_loom::limit::{Borrow, Rate, Tokens, WINDOW};
use shards_loom::model::ShardId;
use shards_loom::permit::{Permits, Release};

const A: ShardId = ShardId(0);
const B: ShardId = ShardId(1);

/// A flag with what stands for its eventfd: a ring before the wait is kept.
struct Bell {
    flag: Flag,
    descriptor: Notify,
}

impl Bell {
    fn new() -> Self {
        Self { flag: Flag::default(), descriptor: Notify::new() }
    }

    fn ring_if_asleep(&self) {
        if self.flag.must_wake() {
            self.descriptor.notify();
        }
    }

    /// One turn of a thread's loop: sleeps unless there is work. loom reports a deadlock if no one rings.
    fn sleep_unless(&self, has_work: impl FnOnce() -> bool) {
        if self.flag.try_sleep(has_work) {
            self.descriptor.wait();
            self.flag.wake();
        }
    }
}

#[test]
fn no_wake_is_lost() {
    loom::model(|| {
        let bell = Arc::new(Bell::new());
        // As a ring's index: published by the pusher, read by the sleeper.
        let pushed = Arc::new(AtomicUsize::new(0));
        let pusher = {
            let (bell, pushed) = (Arc::clone(&bell), Arc::clone(&pushed));
            thread::spawn(move || {
                for count in 1..=2 {
                    pushed.store(count, Ordering::Release);
                    bell.ring_if_asleep();
                }
            })
        };
        let mut popped = 0;
        while popped < 2 {
            bell.sleep_unless(|| pushed.load(Ordering::Acquire) > popped);
            popped = pushed.load(Ordering::Acquire);
        }
        pusher.join().expect("the pusher ends");
    });
}

/// Permits of one pool, what uses them, and a bell for each of two shards.
struct Pool {
    permits: Permits,
    in_use: AtomicUsize,
    bells: [Bell; 2],
}

impl Pool {
    fn new(limit: u16) -> Arc<Self> {
        let bells = [Bell::new(), Bell::new()];
        Arc::new(Self { permits: Permits::new(limit, 2), in_use: AtomicUsize::new(0), bells })
    }

    /// Takes a permit, or waits to be handed one.
    fn take(&self, shard: ShardId, wait: impl Fn(&Self)) {
        if !self.permits.try_take(shard) {
            while self.permits.take_handed(shard) == 0 {
                wait(self);
            }
        }
    }

    fn call(&self, limit: usize) {
        assert!(self.in_use.fetch_add(1, Ordering::AcqRel) < limit, "K1: more calls than permits");
        self.in_use.fetch_sub(1, Ordering::AcqRel);
    }

    fn release(&self, shard: ShardId, wake: impl Fn(&Bell)) {
        if let Release::HandedTo(next) = self.permits.release(shard) {
            wake(&self.bells[usize::from(next.0)]);
        }
    }
}

#[test]
fn permits_are_never_above_their_limit_and_none_is_lost() {
    loom::model(|| {
        let pool = Pool::new(1);
        let run = |pool: &Pool, shard: ShardId| {
            pool.take(shard, |pool| pool.bells[usize::from(shard.0)].descriptor.wait());
            pool.call(1);
            pool.release(shard, |bell| bell.descriptor.notify());
        };
        let other = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || run(&pool, B))
        };
        run(&pool, A);
        other.join().expect("the other shard ends");
        assert_eq!(pool.permits.usage(), (0, 1), "every permit is back");
        assert_eq!(pool.permits.take_handed(A) + pool.permits.take_handed(B), 0, "none was handed to no one");
    });
}

#[test]
fn a_shard_that_sleeps_is_woken_for_the_permit_it_was_handed() {
    loom::model(|| {
        let pool = Pool::new(1);
        assert!(pool.permits.try_take(A));
        let waiter = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                pool.take(B, |pool| pool.bells[1].sleep_unless(|| pool.permits.was_handed(B)));
                pool.call(1);
                pool.release(B, Bell::ring_if_asleep);
            })
        };
        pool.release(A, Bell::ring_if_asleep);
        waiter.join().expect("the waiting shard ends");
        assert_eq!(pool.permits.usage(), (0, 1));
    });
}

#[test]
fn a_lowered_limit_holds_for_the_next_take() {
    loom::model(|| {
        let pool = Pool::new(2);
        assert!(pool.permits.try_take(A));
        let other = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.permits.try_take(B))
        };
        pool.permits.set_limit(1);
        assert!(!pool.permits.try_take(A), "K1: one of one is in use already");
        let taken = other.join().expect("the other shard ends");
        assert_eq!(pool.permits.usage(), (1 + u16::from(taken), 1));
        // Both wait unless they have one: a release above the limit is handed to no one.
        if taken {
            assert_eq!(pool.permits.release(B), Release::Free);
        }
        assert!(matches!(pool.permits.release(A), Release::Kept | Release::HandedTo(B)));
    });
}

/// Borrows, tells the tally, and gives back `unused` of it. Returns what it kept.
fn spend(rate: &Rate, out: &AtomicU32, want: u32, unused: u32, limit: u32) -> u32 {
    let Borrow::Granted(tokens) = rate.borrow(Moment::ZERO, want) else { return 0 };
    let before = out.fetch_add(tokens.count, Ordering::AcqRel);
    assert!(before + tokens.count <= limit, "R1: {} of {limit} tokens are out", before + tokens.count);
    let unused = unused.min(tokens.count);
    out.fetch_sub(unused, Ordering::AcqRel);
    rate.give_back(Tokens { count: unused, ..tokens });
    tokens.count - unused
}

#[test]
fn a_window_gives_out_no_more_than_its_limit() {
    const LIMIT: u32 = 3;
    loom::model(|| {
        let shared = Arc::new((Rate::new(Some(LIMIT), Moment::ZERO), AtomicU32::new(0)));
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || spend(&shared.0, &shared.1, 2, 1, LIMIT))
        };
        let mine = spend(&shared.0, &shared.1, 2, 0, LIMIT);
        let theirs = other.join().expect("the other shard ends");
        let rest = match shared.0.borrow(Moment::ZERO, 10) {
            Borrow::Granted(tokens) => tokens.count,
            Borrow::WaitUntil(_) => 0,
            Borrow::Unlimited => panic!("there is a limit"),
        };
        assert_eq!(mine + theirs + rest, LIMIT, "R1, R3: neither too many nor lost");
    });
}

#[test]
fn tokens_of_an_ended_window_do_not_come_back() {
    loom::model(|| {
        let rate = Arc::new(Rate::new(Some(2), Moment::ZERO));
        let Borrow::Granted(old) = rate.borrow(Moment::ZERO, 2) else { panic!("tokens are left") };
        let next = Moment::ZERO + WINDOW + Duration::from_secs(1);
        let other = {
            let rate = Arc::clone(&rate);
            thread::spawn(move || rate.give_back(old))
        };
        let Borrow::Granted(tokens) = rate.borrow(next, 2) else { panic!("a new window is full") };
        assert_eq!(tokens.count, 2);
        other.join().expect("the other shard ends");
        assert!(matches!(rate.borrow(next, 1), Borrow::WaitUntil(_)), "R2: 2 of 2 are out");
    });
}
