//! Waking up: by the bell (B1), by time, or not sleeping at all.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use shards::clock::{Clock, Moment};
use shards::wire::{Patience, Wire};

use super::rig::Rig;

/// Far beyond what any step takes: a sleep that long was a lost wake.
const LOST: Duration = Duration::from_secs(20);

pub(crate) async fn a_bell_wakes_a_sleeping_wire<W: Wire>(mut rig: Rig<W>) {
    const RINGS: usize = 21;
    let bell = Arc::clone(&rig.bell);
    let sleeper = rustix::thread::gettid().as_raw_nonzero();
    let rung_at = Arc::new(AtomicU64::new(0));
    let (ready, is_ready) = mpsc::channel();
    let ringer = thread::spawn({
        let rung_at = Arc::clone(&rung_at);
        move || {
            for () in is_ready {
                while !is_asleep(sleeper.get()) {
                    thread::yield_now();
                }
                rung_at.store(Clock.now().nanos(), Ordering::SeqCst);
                bell.ring();
            }
        }
    });
    rig.linger().await;
    let mut delays = Vec::new();
    for _ in 0..RINGS {
        rung_at.store(0, Ordering::SeqCst);
        ready.send(()).expect("the ringer listens");
        let deadline = Clock.now() + LOST;
        while rung_at.load(Ordering::SeqCst) == 0 {
            rig.wire.wait(Patience::Until(deadline)).await;
            assert!(Clock.now() < deadline, "B1 broken: slept through a ring");
            rig.take();
        }
        delays.push(Clock.now().since(Moment::from_nanos(rung_at.load(Ordering::SeqCst))));
    }
    drop(ready);
    ringer.join().expect("the ringer does not panic");
    delays.sort_unstable();
    assert!(delays[RINGS / 2] < Duration::from_millis(50), "woken late: {delays:?}");
}

/// Sleeping in the kernel, not just about to.
fn is_asleep(thread: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).expect("the thread lives");
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
}

pub(crate) async fn no_ring_is_lost<W: Wire>(mut rig: Rig<W>) {
    const RINGS: u64 = 10_000;
    let counter = Arc::new(AtomicU64::new(0));
    let bell = Arc::clone(&rig.bell);
    let ringer = thread::spawn({
        let counter = Arc::clone(&counter);
        move || {
            for _ in 0..RINGS {
                counter.fetch_add(1, Ordering::Relaxed);
                bell.ring_if_asleep();
                thread::yield_now();
            }
        }
    });
    let mut seen = 0;
    while seen < RINGS {
        let asleep = rig.bell.flag().try_sleep(|| counter.load(Ordering::Relaxed) > seen);
        let deadline = Clock.now() + LOST;
        rig.wire.wait(if asleep { Patience::Until(deadline) } else { Patience::None }).await;
        assert!(Clock.now() < deadline, "B1 broken: asleep after {seen} of {RINGS} rings");
        rig.bell.flag().wake();
        rig.take();
        seen = counter.load(Ordering::Relaxed);
    }
    ringer.join().expect("the ringer does not panic");
    assert!(rig.seen.is_empty(), "a bell is no event");
}

pub(crate) async fn a_wait_ends_near_its_deadline<W: Wire>(mut rig: Rig<W>) {
    const WAIT: Duration = Duration::from_millis(50);
    const TURNS_MAX: usize = 10;
    rig.linger().await;
    let deadline = Clock.now() + WAIT;
    let mut turns = 0;
    while Clock.now() < deadline {
        rig.wire.wait(Patience::Until(deadline)).await;
        rig.take();
        turns += 1;
    }
    let late = Clock.now().since(deadline);
    assert!(late < Duration::from_millis(500), "woke {late:?} late");
    assert!(turns <= TURNS_MAX, "woke {turns} times for nothing");
}

pub(crate) async fn no_patience_means_no_waiting<W: Wire>(mut rig: Rig<W>) {
    const TURNS: u32 = 1_000;
    let start = Clock.now();
    for _ in 0..TURNS {
        rig.wire.wait(Patience::None).await;
        rig.take();
    }
    rig.wire.wait(Patience::Until(Moment::ZERO)).await;
    let each = Clock.now().since(start) / TURNS;
    assert!(each < Duration::from_millis(5), "{each:?} a turn");
}
