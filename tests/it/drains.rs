//! The router told to end: under load, with a call that will not end, and told twice. `make faults` runs `STOPS=20`.

use std::time::{Duration, Instant};

use super::support::faults::{Chance, QueueLook, count, let_work};
use super::support::publisher::{Load, Publisher, judge};
use super::support::router::{Dir, Router, SinkProgram, message};
use super::support::wait::until;

const SOON: Duration = Duration::from_secs(30);
const DONE_MAX: Duration = Duration::from_secs(120);
/// The shortest grace that leaves calls some time: all but five seconds of it.
const GRACE: &str = "6s";
const CALLS_WAIT: Duration = Duration::from_secs(1);

#[test]
fn a_drain_under_load_leaves_nothing_leased() {
    let (stops, mut chance) = (count("STOPS", 3), Chance::new());
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let load = Load {
        messages: u64::MAX / 2,
        groups: 40,
        pause: Duration::from_millis(5),
        target: sink.url("/slow?ms=20"),
        pool: "ENDED",
        ahead: 0,
    };
    let sender = Publisher::start(&dir, load);
    sender.wait_ahead();
    let queue = QueueLook::open(&dir);
    for stop in 1..=stops {
        let router = Router::start(&dir, &["--pool", "ENDED=16"]);
        let_work(chance.millis(200, 500));
        let (status, took) = router.stop();
        assert_eq!(status.code(), Some(0), "stop {stop}: {}", dir.logs());
        assert!(took < Duration::from_secs(5), "stop {stop} took {took:?}");
        assert_eq!(queue.claims(), 0, "stop {stop}: something is still leased");
        assert_eq!(queue.hidden(), 0, "stop {stop}: something is hidden for more than a second");
        println!("stop {stop} of {stops}: {took:?}");
    }
    let log = sender.log.clone();
    let published = sender.stop();
    let _router = Router::start(&dir, &["--pool", "ENDED=200"]);
    until(DONE_MAX, "all delivered", || queue.is_empty(), || (published, queue.depth()));
    let verdict = judge(&log, &sink.log, 0);
    println!("{verdict}");
    assert_eq!(verdict["kept"], published);
}

/// A router with a call of `ms` under way and 20 messages that wait behind it, one group.
fn with_a_long_call(dir: &Dir, sink: &SinkProgram, ms: u32) -> Router {
    let router = Router::start(dir, &["--grace", GRACE]);
    let mut all = vec![message("long", "g", "", &sink.url(&format!("/slow?ms={ms}")))];
    all.extend((0..20).map(|n| message(&format!("m{n:02}"), "g", "", &sink.url("/ok"))));
    router.publish(&all);
    until(SOON, "the call is under way", || sink.stats().in_flight == 1, || sink.stats());
    router
}

/// After a restart all of it is delivered, in order.
fn assert_all_comes_back(dir: &Dir, sink: &SinkProgram) {
    let queue = QueueLook::open(dir);
    let router = Router::start(dir, &[]);
    until(SOON, "all is delivered", || queue.is_empty(), || (queue.depth(), router.get("/api/groups")));
    let delivered = sink.delivered();
    let mut firsts: Vec<&str> = Vec::new();
    for id in &delivered {
        if !firsts.contains(&id.as_str()) {
            firsts.push(id);
        }
    }
    assert_eq!(firsts.len(), 21, "{delivered:?}");
    assert!(firsts.is_sorted(), "the order in which they were published: {firsts:?}");
}

#[test]
fn a_call_that_outlasts_the_grace_is_cut_short_said_and_delivered_again() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let router = with_a_long_call(&dir, &sink, 4_000);
    let (status, took) = router.stop();
    let logs = dir.logs();
    assert_eq!(status.code(), Some(3), "{logs}");
    assert!(took >= CALLS_WAIT, "the call had its time: {took:?}");
    assert!(took < CALLS_WAIT + Duration::from_secs(2), "{took:?} with a grace of {GRACE}");
    assert!(logs.contains("SHUTDOWN_CLEANUP_ERRORS"), "{logs}");
    let queue = QueueLook::open(&dir);
    assert_eq!((queue.claims(), queue.hidden(), queue.depth()), (0, 0, 21));
    assert_all_comes_back(&dir, &sink);
    assert_eq!(sink.stats().requests, 22, "the long one was sent twice, the others once");
}

#[test]
fn a_second_signal_ends_it_at_once_and_all_comes_back() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let mut router = with_a_long_call(&dir, &sink, 3_000);
    router.terminate();
    until(SOON, "it is ending", || router.log().contains("once more ends at once"), || router.log());
    let start = Instant::now();
    router.terminate();
    let status = router.wait_end(SOON);
    assert_eq!(status.code(), Some(130), "{}", router.log());
    assert!(start.elapsed() < CALLS_WAIT, "at once: {:?}", start.elapsed());
    drop(router);
    assert_all_comes_back(&dir, &sink);
}
