//! The router killed and ended under load, on the SQLite queue. `KILLS=60` and `STOPS=20` for the full counts.

use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::support::publisher::{Load, Publisher, judge};
use super::support::router::{Dir, Router, SinkProgram};
use super::support::wait::until;

/// Calls in flight at most: bounds what a kill can double.
const CONCURRENCY: usize = 16;
const POOL: &str = "KILLED=16";
const DONE_MAX: Duration = Duration::from_secs(120);

fn count(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A number that differs from run to run, printed so that a failure can be looked at.
fn seed() -> u64 {
    std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| u64::from(now.subsec_nanos()) | 1)
    })
}

fn next(state: &mut u64, below: u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state % below
}

/// Lets the router work for so long: what is waited for is time itself.
fn let_work(time: Duration) {
    let start = Instant::now();
    until(time * 2 + Duration::from_secs(5), "time passes", || start.elapsed() >= time, || ());
}

fn depth(dir: &Dir) -> i64 {
    let file = Connection::open(dir.join("corelane.db")).expect("the queue's file");
    file.query_row("SELECT count(*) FROM queue_messages", [], |row| row.get(0)).unwrap_or(-1)
}

#[test]
fn kill_9_at_random_moments_loses_and_overtakes_nothing() {
    let (kills, mut state) = (count("KILLS", 3), seed());
    println!("SEED={state} KILLS={kills}");
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let mut router = Router::start(&dir, &["--pool", POOL]);
    let load = Load {
        messages: 2_000 * kills.max(3),
        groups: 40,
        pause: Duration::from_millis(15),
        target: sink.url("/slow?ms=3"),
        pool: "KILLED",
    };
    let sender = Publisher::start(&dir, load);
    let mut killed = 0;
    while killed < kills {
        let_work(Duration::from_millis(100 + next(&mut state, 700)));
        router.kill();
        killed += 1;
        router = Router::spawn(&dir, &["--pool", POOL], &[]);
        println!("kill {killed} of {kills}: {} delivered", sink.delivered().len());
        if sender.is_done() {
            println!("all is published");
        }
    }
    let log = sender.log.clone();
    let published = sender.stop();
    router.wait_ready();
    let all = usize::try_from(published).expect("few");
    until(
        DONE_MAX,
        "every message is delivered",
        || sink.delivered().len() >= all && depth(&dir) == 0,
        || (published, sink.delivered().len(), depth(&dir), router.get("/api/queues")),
    );
    let in_flight = CONCURRENCY * usize::try_from(kills).expect("few");
    let verdict = judge(&log, &sink.log, in_flight);
    println!("{verdict}");
    assert_eq!(verdict["kept"], published);
    assert_eq!(router.stop().0.code(), Some(0));
}

#[test]
fn a_drain_under_load_leaves_nothing_leased() {
    let (stops, mut state) = (count("STOPS", 3), seed());
    println!("SEED={state} STOPS={stops}");
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let load = Load {
        messages: u64::MAX / 2,
        groups: 40,
        pause: Duration::from_millis(5),
        target: sink.url("/slow?ms=20"),
        pool: "KILLED",
    };
    let sender = Publisher::start(&dir, load);
    for stop in 1..=stops {
        let router = Router::start(&dir, &["--pool", POOL]);
        let_work(Duration::from_millis(200 + next(&mut state, 500)));
        let (status, took) = router.stop();
        assert_eq!(status.code(), Some(0), "stop {stop}: {}", router_log(&dir));
        assert!(took < Duration::from_secs(5), "stop {stop} took {took:?}");
        let file = Connection::open(dir.join("corelane.db")).expect("the queue's file");
        let claimed: i64 =
            file.query_row("SELECT count(*) FROM claims", [], |row| row.get(0)).expect("claims");
        assert_eq!(claimed, 0, "stop {stop}: something is still leased");
        let hidden: i64 = file
            .query_row(
                "SELECT count(*) FROM queue_messages WHERE visible_at > (unixepoch('subsec') + 1) * 1000",
                [],
                |row| row.get(0),
            )
            .expect("messages");
        assert_eq!(hidden, 0, "stop {stop}: something is hidden for more than a second");
        println!("stop {stop} of {stops}: {took:?}");
    }
    let log = sender.log.clone();
    let published = usize::try_from(sender.stop()).expect("few");
    let router = Router::start(&dir, &["--pool", "KILLED=200"]);
    until(
        DONE_MAX,
        "all delivered",
        || sink.delivered().len() >= published,
        || (published, sink.delivered().len()),
    );
    let verdict = judge(&log, &sink.log, 0);
    println!("{verdict}");
    drop(router);
}

fn router_log(dir: &Dir) -> String {
    let logs = std::fs::read_dir(dir.path()).expect("its directory");
    let text = |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(entry.ok()?.path()).ok();
    logs.filter_map(text).collect()
}
