//! A pool's limits over two shards of the real program: calls in flight, starts per minute, messages and bytes held.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::support::faults::{QueueLook, count, let_work};
use super::support::publisher::{Load, Publisher};
use super::support::router::{Dir, Router, SinkProgram, message};
use super::support::wait::until;

const SOON: Duration = Duration::from_secs(60);
const LIMIT: u64 = 12;
const POOL: &str = "LIMITED=12";

#[test]
fn calls_in_flight_reach_the_limit_and_never_pass_it_on_two_shards() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let router = Router::start(&dir, &["--shards", "2", "--pool", POOL]);
    let target = sink.url("/slow?ms=15");
    let all: Vec<Value> =
        (0..600).map(|n| message(&format!("m{n}"), &format!("g{}", n % 150), "LIMITED", &target)).collect();
    router.publish(&all);
    until(SOON, "all answered", || sink.stats().answers == 600, || sink.stats());
    assert_eq!(sink.stats().in_flight_max, LIMIT);
    let calls: Vec<u64> = shard_calls(&router);
    assert!(calls.len() == 2 && calls.iter().all(|&calls| calls > 0), "both shards called: {calls:?}");
}

fn shard_calls(router: &Router) -> Vec<u64> {
    let read = || {
        let view = router.json("/api/view");
        let shards = view["shards"].as_array().expect("the shards").clone();
        shards.iter().filter_map(|shard| shard["callsTotal"].as_u64()).collect::<Vec<u64>>()
    };
    until(SOON, "the view shows every call", || read().iter().sum::<u64>() >= 600, read);
    read()
}

#[test]
fn one_shard_alone_can_use_all_of_a_pool() {
    let dir = Dir::new();
    let (probe, sink) = (SinkProgram::start(&dir), SinkProgram::start(&dir));
    let router = Router::start(&dir, &["--shards", "2", "--pool", POOL, "--pool", "WIDE=200"]);
    let group = |n: usize| format!("g{n}");
    // A group's shard depends on a key drawn at the start, and on nothing but its name.
    let asked: Vec<Value> = (0..80)
        .map(|n| message(&format!("p{n}"), &group(n), "LIMITED", &probe.url("/slow?ms=400")))
        .collect();
    router.publish(&asked);
    let mut shards: BTreeMap<String, u64> = BTreeMap::new();
    let look = |shards: &mut BTreeMap<String, u64>| {
        let groups = router.json("/api/groups?limit=100");
        for group in groups.as_array().or_else(|| groups["groups"].as_array()).expect("groups") {
            let name = group["group"].as_str().expect("a name").to_owned();
            shards.insert(name, group["shard"].as_u64().expect("a shard"));
        }
        shards.values().filter(|&&shard| shard == 1).count() as u64
    };
    until(
        SOON,
        "enough groups of one shard",
        || look(&mut shards) >= LIMIT + 4,
        || router.get("/api/groups"),
    );
    until(SOON, "the probes are over", || probe.stats().answers == 80, || probe.stats());
    let ours: Vec<&String> = shards.iter().filter(|(_, shard)| **shard == 1).map(|(name, _)| name).collect();
    let target = sink.url("/slow?ms=15");
    let mut all = Vec::new();
    for n in 0..300 {
        all.push(message(&format!("m{n}"), ours[n % ours.len()], "LIMITED", &target));
    }
    router.publish(&all);
    until(SOON, "all answered", || sink.stats().answers == 300, || sink.stats());
    assert_eq!(sink.stats().in_flight_max, LIMIT);
}

/// The rate's window is a minute from the pool's start. `MINUTES=3` waits for as many further windows.
#[test]
fn a_rate_is_exact_in_each_window_on_two_shards() {
    const RATE: usize = 120;
    let minutes = usize::try_from(count("MINUTES", 0)).expect("few");
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let router = Router::start(&dir, &["--shards", "2", "--pool", "RATED=50,120/min"]);
    let all: Vec<Value> = (0..RATE * (minutes + 2))
        .map(|n| message(&format!("m{n}"), &format!("g{}", n % 40), "RATED", &sink.url("/ok")))
        .collect();
    router.publish(&all);
    until(SOON, "the first window", || sink.answered_at().len() >= RATE, || sink.stats());
    let_work(Duration::from_secs(3));
    assert_eq!(sink.answered_at().len(), RATE, "no more in the first window, however much waits");
    for window in 2..=minutes + 1 {
        let max = Duration::from_secs(70);
        until(max, "the next window", || sink.answered_at().len() >= RATE * window, || sink.stats());
        let_work(Duration::from_secs(3));
        let at = sink.answered_at();
        assert_eq!(at.len(), RATE * window, "window {window}");
        println!(
            "window {window}: {RATE} starts, {:?} after the first one's",
            at[RATE * (window - 1)].saturating_sub(at[0])
        );
    }
    let groups = router.get("/api/groups").1;
    assert!(groups.contains("rate"), "a group says that it waits for the rate: {groups}");
}

#[test]
fn a_hot_group_holds_no_more_than_its_share_while_others_flow() {
    const CAP: u64 = 30;
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let flags = ["--shards", "2", "--pool", POOL, "--set", "memory.group-buffer-max=30"];
    let router = Router::start(&dir, &flags);
    let (hot, cold) = (sink.url("/slow?ms=20"), sink.url("/slow?ms=5"));
    let mut all: Vec<Value> = (0..1_500).map(|n| message(&format!("h{n}"), "hot", "LIMITED", &hot)).collect();
    all.extend((0..400).map(|n| message(&format!("c{n}"), &format!("g{}", n % 50), "LIMITED", &cold)));
    router.publish(&all);
    let (mut most, mut before) = (0, 0);
    let mut look = || {
        let groups = router.json("/api/groups?by=depth");
        let list = groups.as_array().or_else(|| groups["groups"].as_array()).expect("groups").clone();
        let depth = list.iter().filter(|it| it["group"] == "hot").filter_map(|it| it["depth"].as_u64()).max();
        most = most.max(depth.unwrap_or(0));
        let delivered = sink.delivered();
        before = delivered.iter().filter(|id| id.starts_with('h')).count();
        delivered.iter().filter(|id| id.starts_with('c')).count() == 400
    };
    until(SOON, "the others are delivered", &mut look, || router.get("/api/groups?by=depth"));
    assert!(before < 1_000, "the others did not wait for the hot group, of which {before} came before them");
    assert!((2..=CAP).contains(&most), "it held {most} of at most {CAP}");
}

/// `QUEUED=200000` in `make faults`.
#[test]
fn memory_stays_within_its_budget_whatever_is_queued() {
    const BUDGET: u64 = 1 << 20;
    /// SQLite's page cache, the buffers of I/O and what the allocator keeps.
    const REST_MAX: u64 = 90 << 20;
    let queued = count("QUEUED", 8_000);
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let long = "x".repeat(1_500);
    let load = Load {
        messages: queued,
        groups: 5_000,
        pause: Duration::ZERO,
        // So slow that the budget is full for seconds, and the view, refreshed once a second, shows it.
        target: sink.url(&format!("/slow?ms=200&long={long}")),
        pool: "WIDE",
        ahead: queued,
    };
    let sender = Publisher::start(&dir, load);
    sender.wait_ahead();
    let queue = QueueLook::open(&dir);
    // A pool that could hold 20,000: only the budget stands in its way.
    let router = Router::start(
        &dir,
        &["--pool", "WIDE=1000", "--set", "memory.budget=1MiB", "--set", "memory.prefetch=20"],
    );
    let (mut held_max, mut resident_max) = (0, 0);
    let mut look = || {
        held_max = held_max.max(router.json("/api/view")["inflightBytes"].as_u64().expect("bytes held"));
        resident_max = resident_max.max(router.resident_bytes());
        queue.is_empty()
    };
    until(Duration::from_secs(240), "all delivered", &mut look, || queue.depth());
    println!("{queued} queued: at most {held_max} bytes held, {} MiB resident", resident_max >> 20);
    assert!(held_max > 0 && held_max <= BUDGET, "{held_max} bytes held of {BUDGET}");
    assert!(resident_max < REST_MAX, "{} MiB resident", resident_max >> 20);
    assert_eq!(sender.stop(), queued);
}
