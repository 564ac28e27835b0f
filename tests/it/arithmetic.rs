//! The group document's arithmetic with the real program: so many messages of so many groups, 100 ms each, take so
//! long. `make arithmetic` runs every row.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::support::faults::{QueueLook, count};
use super::support::publisher::{Load, Publisher};
use super::support::router::{Dir, Router, SinkProgram};
use super::support::wait::until;

const CALL: Duration = Duration::from_millis(100);
/// What start, polling and other work may add.
const EXTRA: Duration = Duration::from_millis(300);

/// Messages, groups, concurrency, and how long that takes by arithmetic, in milliseconds.
struct Row {
    messages: u64,
    groups: u64,
    concurrency: u64,
    expected_ms: u64,
    /// Arithmetic takes no account of the cores: at 50,000/s the queue's file and the sink need theirs. Shown,
    /// and measured without the publisher.
    flood: bool,
}

const fn row(messages: u64, groups: u64, concurrency: u64, expected_ms: u64) -> Row {
    Row { messages, groups, concurrency, expected_ms, flood: false }
}

const SHORT: [Row; 2] = [row(30, 1, 10, 3_000), row(100, 10, 10, 1_000)];
const FULL: [Row; 6] = [
    row(100, 1, 10, 10_000),
    row(100, 5, 10, 2_000),
    row(100, 10, 10, 1_000),
    row(100, 100, 10, 1_000),
    row(1_000, 100, 100, 1_000),
    Row { flood: true, ..row(50_000, 10_000, 5_000, 1_000) },
];

/// Delivers a row's messages: from the first one's publishing to the last answer, or from the first call if all
/// were published before.
fn measure(row: &Row) -> Duration {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let load = Load {
        messages: row.messages,
        groups: row.groups,
        pause: Duration::ZERO,
        target: sink.url(&format!("/slow?ms={}", CALL.as_millis())),
        pool: "COUNTED",
        ahead: row.messages,
    };
    let pool = format!("COUNTED={}", row.concurrency);
    let flags = ["--pool", pool.as_str()];
    let early = (!row.flood).then(|| Router::start(&dir, &flags));
    let published = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let sender = Publisher::start(&dir, load);
    sender.wait_ahead();
    let router = early.unwrap_or_else(|| Router::start(&dir, &flags));
    let queue = QueueLook::open(&dir);
    until(Duration::from_secs(60), "all delivered", || queue.is_empty(), || queue.depth());
    assert_eq!(sink.stats().in_flight_max.max(row.concurrency), row.concurrency, "the limit holds");
    let at = sink.answered_at();
    assert_eq!(at.len() as u64, row.messages, "each once");
    sender.stop();
    drop(router);
    let start = if row.flood { at[0].saturating_sub(CALL) } else { published };
    at.last().expect("some").saturating_sub(start)
}

#[test]
fn messages_over_groups_and_concurrency_take_as_long_as_arithmetic_says() {
    // Beside other tests a core is not there at once when it is needed.
    let (rows, slower_max): (&[Row], f64) =
        if count("ARITHMETIC", 0) == 1 { (&FULL, 1.15) } else { (&SHORT, 2.0) };
    println!("| messages | groups | concurrency | expected | measured | |\n|---|---|---|---|---|---|");
    let mut off = 0;
    for row in rows {
        let took = measure(row);
        let expected = Duration::from_millis(row.expected_ms);
        let good = took >= expected.mul_f64(0.99) && took <= expected.mul_f64(slower_max) + EXTRA;
        off += usize::from(!good && !row.flood);
        println!(
            "| {} | {} | {} | {:.1} s | {:.2} s | {} |",
            row.messages,
            row.groups,
            row.concurrency,
            expected.as_secs_f64(),
            took.as_secs_f64(),
            match (good, row.flood) {
                (true, _) => "met".to_owned(),
                (false, true) => format!("{}/s", u128::from(row.messages) * 1_000 / took.as_millis().max(1)),
                (false, false) => "**off**".to_owned(),
            }
        );
    }
    assert_eq!(off, 0, "rows that are off");
}
