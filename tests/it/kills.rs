//! The router killed under load, on the SQLite queue, in the middle of whatever else can go wrong. Every run is
//! judged by a program of its own from the publisher's and the sink's logs. `make faults` runs the full counts.

use std::time::Duration;

use super::support::faults::{Chance, QueueLook, count, let_work};
use super::support::publisher::{Load, Publisher, judge};
use super::support::router::{Dir, Router, SinkProgram};
use super::support::wait::until;

/// Calls in flight at most, and so what one kill can double: a call's permit is in use until its ack is in the file (ADR
/// 0013).
const CONCURRENCY: u64 = 16;
/// Retries are quick and many, so that a run under faults is not a run of waits.
const FLAGS: [&str; 8] = [
    "--pool",
    "KILLED=16",
    "--set",
    "mediator.retry-pause=20ms",
    "--set",
    "mediator.calls-max=10",
    "--set",
    "breaker.wait=200ms",
];
/// Bounds what is left to deliver after the last kill.
const MESSAGES_PER_KILL: u64 = 600;
const DONE_MAX: Duration = Duration::from_secs(120);

/// What goes on while routers are killed.
struct Scene {
    /// The sink's script.
    path: &'static str,
    /// Groups that messages are spread over.
    groups: u64,
    /// Routers on the one file; the first is killed.
    routers: usize,
    /// Messages in the queue before the first start.
    backlog: u64,
    /// The sink is away around each kill.
    sink_fails: bool,
}

/// Calls so long that the router can't keep up with the publisher: whenever it is killed, it is busy.
const CALM: Scene = Scene { path: "/slow?ms=25", groups: 40, routers: 1, backlog: 500, sink_fails: false };

/// With a lease that outlasts the test, what a killed router had comes back only because its death is noticed.
const CONFIG: &str = "[[queue]]\nname = \"default\"\nuri = \"sqlite:corelane.db\"\nvisibility = \"10m\"\n";

/// Kills, restarts, lets all be delivered, and has it judged.
fn play(scene: &Scene) {
    let (kills, mut chance) = (count("KILLS", 3), Chance::new());
    let dir = Dir::new();
    std::fs::write(dir.join("corelane.toml"), CONFIG).expect("the config is written");
    let mut sink = SinkProgram::start(&dir);
    let load = Load {
        messages: scene.backlog + MESSAGES_PER_KILL * kills,
        groups: scene.groups,
        pause: Duration::from_millis(15),
        target: sink.url(scene.path),
        pool: "KILLED",
        ahead: scene.backlog,
    };
    let sender = Publisher::start(&dir, load);
    sender.wait_ahead();
    let mut routers: Vec<Router> = (0..scene.routers).map(|_| Router::start(&dir, &FLAGS)).collect();
    let (queue, mut owners) = (QueueLook::open(&dir), 0);
    for kill in 1..=kills {
        // What a tripped breaker gave back stays hidden for a second.
        let_work(chance.millis(if scene.sink_fails { 1_200 } else { 50 }, 450));
        // Before the router, which then has given its messages back; or after it, which then had some.
        if scene.sink_fails && chance.below(2) == 0 {
            sink.leave();
            let_work(chance.millis(0, 200));
        }
        routers.remove(0).kill();
        owners += queue.owners();
        if scene.sink_fails {
            sink.leave();
        }
        routers.push(Router::spawn(&dir, &FLAGS, &[]));
        if scene.sink_fails {
            let_work(Duration::from_millis(500));
            sink = SinkProgram::at(&dir, &sink.address.to_string());
        }
        println!("kill {kill} of {kills}: {} delivered", sink.answered_at().len());
    }
    let log = sender.log.clone();
    let published = sender.stop();
    until(
        DONE_MAX,
        "every message is delivered",
        || queue.is_empty(),
        || (published, sink.answered_at().len(), queue.depth(), routers[0].get("/api/queues")),
    );
    // A sink that dies may have noted an answer that never left.
    let deaths = kills * if scene.sink_fails { 2 } else { 1 };
    let verdict = judge(&log, &sink.log, usize::try_from(CONCURRENCY * deaths).expect("few"));
    println!("{kills} kills, {owners} owners of messages at that moment: {verdict}");
    assert_eq!(verdict["kept"], published);
    // One now and then may hit a router that just started.
    let busy = if scene.sink_fails { 0 } else { kills * scene.routers as u64 };
    assert!(owners * 2 >= busy, "the routers were idle when killed: {owners} had messages, not {busy}");
    for router in routers {
        assert_eq!(router.stop().0.code(), Some(0));
    }
}

#[test]
fn kill_9_at_random_moments_loses_and_overtakes_nothing() {
    play(&CALM);
}

#[test]
fn kill_9_while_calls_fail_loses_and_overtakes_nothing() {
    play(&Scene { path: "/fail?every=7&status=503&ms=25", ..CALM });
}

#[test]
fn kill_9_while_the_target_is_away_loses_and_overtakes_nothing() {
    play(&Scene { sink_fails: true, ..CALM });
}

#[test]
fn kill_9_of_one_of_two_routers_on_a_file_loses_and_overtakes_nothing() {
    play(&Scene { path: "/slow?ms=50", groups: 120, routers: 2, ..CALM });
}

#[test]
fn kill_9_before_a_backlog_that_fills_the_log_loses_and_overtakes_nothing() {
    play(&Scene { backlog: count("BACKLOG", 4_000), path: "/slow?ms=10", groups: 400, ..CALM });
}
