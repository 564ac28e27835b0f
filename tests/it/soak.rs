//! The router under steady traffic for a while: memory, descriptors, threads and files stay as they are. `make soak`
//! runs `SOAK=180` seconds; the default is there to keep the test alive.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::support::faults::{QueueLook, count};
use super::support::publisher::{Load, Publisher};
use super::support::router::{Dir, Router, SinkProgram};
use super::support::wait::until;

/// Calls of the pool at once, and so connections that one shard may need at once.
const CONCURRENCY: u64 = 64;

/// What a look shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    second: u64,
    delivered: usize,
    resident_kib: u64,
    sockets: usize,
    other_descriptors: usize,
    threads: usize,
    file_kib: u64,
    log_kib: u64,
    depth: i64,
}

fn look(second: u64, dir: &Dir, router: &Router, sink: &SinkProgram, queue: &QueueLook) -> Look {
    let folder =
        |what: &str| std::fs::read_dir(format!("/proc/{}/{what}", router.pid())).expect("it runs").flatten();
    let is_socket = |target: &PathBuf| target.to_string_lossy().starts_with("socket:");
    let (sockets, others): (Vec<PathBuf>, Vec<PathBuf>) =
        folder("fd").filter_map(|it| std::fs::read_link(it.path()).ok()).partition(is_socket);
    let kib = |name: &str| std::fs::metadata(dir.join(name)).map_or(0, |data| data.len() >> 10);
    Look {
        second,
        delivered: usize::try_from(sink.stats().answers).expect("few"),
        resident_kib: router.resident_bytes() >> 10,
        sockets: sockets.len(),
        other_descriptors: others.len(),
        threads: folder("task").count(),
        file_kib: kib("corelane.db"),
        log_kib: kib("corelane.db-wal"),
        depth: queue.depth(),
    }
}

#[test]
fn under_steady_traffic_nothing_grows() {
    let seconds = count("SOAK", 6);
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let load = Load {
        messages: u64::MAX / 2,
        groups: 500,
        pause: Duration::from_millis(15),
        target: sink.url("/slow?ms=10"),
        pool: "SOAKED",
        ahead: 0,
    };
    let router = Router::start(&dir, &["--pool", &format!("SOAKED={CONCURRENCY}")]);
    let sender = Publisher::start(&dir, load);
    sender.wait_ahead();
    let (queue, start, mut looks) = (QueueLook::open(&dir), Instant::now(), Vec::new());
    println!("second delivered resident_KiB sockets other_descriptors threads file_KiB log_KiB depth");
    for second in 1..=seconds {
        let passed = || start.elapsed() >= Duration::from_secs(second);
        until(Duration::from_secs(60), "a second passes", passed, || ());
        let it = look(second, &dir, &router, &sink, &queue);
        if second % 10 == 0 || seconds < 10 {
            println!(
                "{} {} {} {} {} {} {} {} {}",
                it.second,
                it.delivered,
                it.resident_kib,
                it.sockets,
                it.other_descriptors,
                it.threads,
                it.file_kib,
                it.log_kib,
                it.depth
            );
        }
        looks.push(it);
    }
    sender.stop();
    assert_flat(&looks);
}

/// A figure of a look, and how much it may differ.
type Row = (&'static str, fn(&Look) -> u64, u64);

/// The first third warms up; the last third is held against the second.
fn assert_flat(looks: &[Look]) {
    let third = looks.len() / 3;
    let most = |part: &[Look], what: fn(&Look) -> u64| part.iter().map(what).max().expect("some looks");
    let (middle, end) = (&looks[third..third * 2], &looks[third * 2..]);
    let rows: [Row; 6] = [
        ("resident memory, KiB", |it| it.resident_kib, 4 << 10),
        // A pause of the machine lets calls pile up, each on a connection of its own that then stays for a while.
        ("sockets", |it| it.sockets as u64, CONCURRENCY),
        ("other descriptors", |it| it.other_descriptors as u64, 5),
        ("threads", |it| it.threads as u64, 1),
        ("the queue's file, KiB", |it| it.file_kib, 4 << 10),
        ("the queue's log, KiB", |it| it.log_kib, 64 << 10),
    ];
    for (name, what, slack) in rows {
        let (before, after) = (most(middle, what), most(end, what));
        println!("{name}: {before}, then {after}");
        assert!(after <= before + slack, "{name} grew from {before} to {after}");
    }
    let (first, last) = (looks[third], looks[looks.len() - 1]);
    assert!(last.delivered > first.delivered, "traffic went on: {first:?}, {last:?}");
}
