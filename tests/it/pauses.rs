//! The router stopped in its tracks for longer than its leases, as a paused host does, and let go on.

use std::time::Duration;

use super::support::faults::{Chance, QueueLook, count, let_work};
use super::support::publisher::{Load, Publisher, judge};
use super::support::router::{Dir, Router, SinkProgram};
use super::support::wait::until;

const LEASE: Duration = Duration::from_secs(4);
const CONCURRENCY: usize = 16;
const CONFIG: &str = "[[queue]]\nname = \"default\"\nuri = \"sqlite:corelane.db\"\nvisibility = \"4s\"\n";
const DONE_MAX: Duration = Duration::from_secs(120);

#[test]
fn a_pause_longer_than_the_lease_loses_and_overtakes_nothing() {
    let (pauses, mut chance) = (count("PAUSES", 3), Chance::new());
    let dir = Dir::new();
    std::fs::write(dir.join("corelane.toml"), CONFIG).expect("the config is written");
    let sink = SinkProgram::start(&dir);
    let target = sink.url("/fail?every=7&status=503&ms=10");
    let load = Load {
        messages: 500 * (pauses + 1),
        groups: 40,
        pause: Duration::from_millis(20),
        target,
        pool: "PAUSED",
        ahead: 500,
    };
    let sender = Publisher::start(&dir, load);
    sender.wait_ahead();
    let router = Router::start(&dir, &["--pool", "PAUSED=16", "--set", "mediator.retry-pause=20ms"]);
    for _ in 0..pauses {
        let_work(chance.millis(200, 300));
        router.freeze();
        let_work(LEASE + Duration::from_secs(1));
        router.thaw();
    }
    let log = sender.log.clone();
    let published = sender.stop();
    let queue = QueueLook::open(&dir);
    until(DONE_MAX, "every message is delivered", || queue.is_empty(), || (queue.depth(), router.log()));
    let verdict = judge(&log, &sink.log, CONCURRENCY * usize::try_from(pauses).expect("few"));
    println!("{pauses} pauses: {verdict}");
    assert_eq!(verdict["kept"], published);
    assert_eq!(router.stop().0.code(), Some(0));
}
