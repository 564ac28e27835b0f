//! Changes while traffic flows: concurrency, rate, a pool removed and added again; and the end, with much in hand.
//!
//! Seen to fail with: a drained lane given back tail first in `give_back_behind` (the end), a limit that `Desk::set_pool`
//! does not pass on (lowered concurrency), owed groups forgotten when a drained pool has a successor (order), one token
//! too many in `Rate::borrow` (rate).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use corelane::ingress::Command;
use shards::model::{NackReason, Ordering};
use shards::wire::probe::Io;

use super::support::queue::{Message, Queue, Told};
use super::support::rig::{POOL, Parts, Rig, WIRES, pool};
use super::support::sink::{Target, assert_in_order};
use super::support::wait::until;

const GROUPS: u64 = 100;

fn messages(url: &str, count: u64, groups: u64) -> impl Iterator<Item = Message> {
    let url = url.to_owned();
    (0..count).map(move |number| Message {
        group: (number % groups).to_string(),
        pool: POOL.into(),
        target: url.clone(),
    })
}

fn change_while_it_flows(io: Io, shards: usize) {
    const MESSAGES: usize = 6_000;
    let (target, queue) = (Target::start(), Queue::new(Ordering::Strict));
    queue.publish(messages(&target.url("/slow?ms=2"), MESSAGES as u64, GROUPS));
    let rig = Rig::start(&Parts::new(io, shards), &queue, pool(50, None));
    let reach = |count: usize| {
        let shown = || (io, shards, queue.acked(), queue.out());
        until(Duration::from_secs(60), "deliveries go on", || queue.acked() >= count, shown);
    };
    reach(500);
    rig.set_pool(POOL, pool(5, None));
    // A request may be on its way that the sink has not counted yet, so the shards are asked.
    let running = || rig.snapshot().shards.iter().map(|shard| shard.running).sum::<u32>();
    until(Duration::from_secs(5), "a lowered concurrency holds", || running() <= 5, running);
    assert!(queue.acked() < 2_500, "K1: it fell only as traffic ended, after {}", queue.acked());
    for _ in 0..200 {
        let stats = target.sink.stats();
        assert!(stats.in_flight <= 5, "K1: above the lowered limit: {stats:?}");
        rig.snapshot();
    }
    rig.set_pool(POOL, pool(50, None));
    let raised = || target.sink.stats().in_flight > 20;
    until(Duration::from_secs(5), "a raised concurrency is used", raised, || target.sink.stats());
    rig.set_pool(POOL, pool(50, Some(1)));
    rig.snapshot();
    until(Duration::from_secs(5), "a used-up rate stops", || running() == 0, running);
    let stopped = queue.acked();
    for _ in 0..100 {
        rig.snapshot();
    }
    assert!(queue.acked() <= stopped + 60, "R1: only answers under way came in after {stopped}");
    rig.set_pool(POOL, pool(50, None));
    reach(3_000);
    rig.send(Command::RemovePool { code: POOL.into() });
    rig.set_pool(POOL, pool(50, None));
    reach(MESSAGES);
    rig.drain(Duration::from_secs(5));
    let answered = target.answered();
    assert_eq!(answered.len(), MESSAGES, "each message was called once on {io}");
    assert_in_order(&answered, |number| number % GROUPS);
    assert_eq!(queue.faults(), Vec::<String>::new());
    let back = queue.told().iter().filter(|told| matches!(told, Told::Nacked(..))).count();
    assert!(back > 0, "the removed pool gave some back");
}

#[test]
fn changes_under_traffic_lose_nothing_and_keep_order() {
    for io in WIRES {
        for shards in [1, 2] {
            change_while_it_flows(io, shards);
        }
    }
}

#[test]
fn the_end_hands_a_hundred_thousand_messages_back_in_order() {
    const MESSAGES: u64 = 100_000;
    let (target, queue) = (Target::start(), Queue::new(Ordering::Strict));
    queue.keep_nacked();
    queue.publish(messages(&target.url("/slow?ms=300"), MESSAGES, GROUPS));
    let mut parts = Parts::new(Io::Epoll, 2);
    parts.desk.group_buffer_max = Some(u32::MAX);
    let rig = Rig::start(&parts, &queue, pool(6_000, None));
    // All but those that were delivered meanwhile, at most a hundred per 300 ms.
    let held = || rig.snapshot().held;
    until(
        Duration::from_secs(30),
        "all are held",
        || queue.out() + queue.acked() == 100_000 && held() > 90_000,
        || (queue.out(), queue.acked()),
    );
    let start = Instant::now();
    rig.drain(Duration::from_secs(20));
    let took = start.elapsed();
    let told = queue.told();
    assert_eq!(told.len(), 100_000, "S2: each was acked or given back");
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    for told in &told {
        let (Told::Acked(number) | Told::Nacked(number, 0, NackReason::GivenBack)) = told else {
            panic!("{told:?}: neither delivered nor given back")
        };
        if let Some(before) = last.insert(number % GROUPS, *number) {
            assert!(before < *number, "{number} went back after {before}");
        }
    }
    assert_eq!(queue.faults(), Vec::<String>::new());
    // The budget of 2 s is the release build's, on a quiet machine (`compare --only drain`).
    let max = Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 2 });
    assert!(took <= max, "{took:?}");
}

#[test]
fn a_rate_is_kept_in_every_window() {
    const RATE: usize = 600;
    const WINDOW: Duration = Duration::from_secs(60);
    /// A log line's time is not quite the call's start.
    const SLACK: Duration = Duration::from_secs(1);
    let (target, queue) = (Target::start(), Queue::new(Ordering::Strict));
    queue.publish(messages(&target.url("/ok"), 700, GROUPS));
    let start = Instant::now();
    let rig = Rig::start(&Parts::new(Io::Epoll, 2), &queue, pool(50, Some(600)));
    until(Duration::from_secs(10), "a window's worth", || queue.acked() == RATE, || queue.acked());
    // Not one more before the next window, whose start is at most as late as this test's view of it.
    let next = || {
        assert!(queue.acked() == RATE || start.elapsed() >= WINDOW, "R1: {} in a window", queue.acked());
        queue.acked() == 700
    };
    until(Duration::from_secs(75), "the next window", next, || queue.acked());
    let answered = target.answered();
    let gap = answered[RATE].at_ns - answered[0].at_ns;
    assert!(gap + SLACK.as_nanos() >= WINDOW.as_nanos(), "R1: the 601st came {gap} ns after the first");
    rig.drain(Duration::from_secs(2));
}
