//! What an outcome does to its message, to the followers in its batch, and to the pool's counters, through the real
//! program and the SQLite queue. One group per row; the third message of each is fine and shows what the others did to it.

use std::time::Duration;

use serde_json::{Value, json};

use super::support::router::{Dir, Router, SinkProgram, message};
use super::support::shelf::{self, Waiting};
use super::support::wait::until;

const SOON: Duration = Duration::from_secs(30);
/// What may pass between a message's going back and our look at the file.
const LOOK_MS: i64 = 6_000;

/// A batch of three messages of one group, by the scripts of their targets.
struct Row {
    name: &'static str,
    scripts: [&'static str; 3],
    /// Delay of each that is back in the queue, in seconds; `None`: it left the queue.
    delays: [Option<i64>; 3],
    /// Calls that each got.
    calls: [usize; 3],
    /// Delivered, failed, transient.
    counted: [u64; 3],
    /// Given back as followers.
    cascaded: u64,
}

const DOWN: &str = "closed port";

const ROWS: [Row; 9] = [
    Row {
        name: "SUCCESS",
        scripts: ["/ok", "/ok", "/ok"],
        delays: [None, None, None],
        calls: [1, 1, 1],
        counted: [3, 0, 0],
        cascaded: 0,
    },
    Row {
        name: "ERROR_CONFIG stops nobody",
        scripts: ["/status/404", "/status/501", "/ok"],
        delays: [None, None, None],
        calls: [1, 1, 1],
        counted: [1, 2, 0],
        cascaded: 0,
    },
    Row {
        name: "ERROR_PROCESS without a delay",
        scripts: ["/ok?body={%22ack%22:false}", "/ok", "/ok"],
        delays: [Some(30), Some(30), Some(30)],
        calls: [1, 0, 0],
        counted: [0, 0, 1],
        cascaded: 2,
    },
    Row {
        name: "ERROR_PROCESS with a longer delay takes followers along for as long",
        scripts: ["/status/429?retry_after=300", "/ok", "/ok"],
        delays: [Some(300), Some(300), Some(300)],
        calls: [1, 0, 0],
        counted: [0, 0, 1],
        cascaded: 2,
    },
    Row {
        name: "ERROR_PROCESS in the middle",
        scripts: ["/ok", "/status/425?retry_after=60", "/ok"],
        delays: [None, Some(60), Some(60)],
        calls: [1, 1, 0],
        counted: [1, 0, 1],
        cascaded: 1,
    },
    Row {
        name: "ERROR_PROCESS at the end",
        scripts: ["/ok", "/ok", "/status/503"],
        delays: [None, None, Some(30)],
        calls: [1, 1, 3],
        counted: [2, 0, 1],
        cascaded: 0,
    },
    Row {
        name: "ERROR_CONFIG before ERROR_PROCESS",
        scripts: ["/status/400", "/status/408", "/ok"],
        delays: [None, Some(30), Some(30)],
        calls: [1, 1, 0],
        counted: [0, 1, 1],
        cascaded: 1,
    },
    Row {
        name: "ERROR_CONNECTION",
        scripts: [DOWN, "/ok", "/ok"],
        delays: [Some(30), Some(30), Some(30)],
        calls: [0, 0, 0],
        counted: [0, 1, 0],
        cascaded: 2,
    },
    Row {
        name: "ERROR_CONNECTION in the middle",
        scripts: ["/ok", "/rst", "/ok"],
        delays: [None, Some(30), Some(30)],
        calls: [1, 0, 0],
        counted: [1, 1, 0],
        cascaded: 1,
    },
];

fn id(row: usize, place: usize) -> String {
    format!("r{row}-{place}")
}

/// Waits until `id` left the queue or is back in it; how long it stays there.
fn see(file: &[Waiting], seen: &mut Option<i64>, id: &str, want: Option<i64>) -> bool {
    let found = file.iter().find(|waiting| waiting.id == id);
    match (found, want) {
        (None, want) => want.is_none(),
        (Some(found), Some(_)) => {
            if seen.is_none() && found.delay_ms > 0 {
                *seen = Some(found.delay_ms);
            }
            seen.is_some()
        }
        (Some(_), None) => false,
    }
}

#[test]
fn every_outcome_does_to_its_batch_what_the_router_document_says() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let closed = SinkProgram::start(&dir);
    let down = closed.url("/ok");
    drop(closed);
    let pools: Vec<String> = (0..ROWS.len()).map(|row| format!("P{row}=5")).collect();
    let flags: Vec<&str> = pools.iter().flat_map(|pool| ["--pool", pool.as_str()]).collect();
    let router = Router::start(&dir, &flags);
    let mut sent = Vec::new();
    for (number, row) in ROWS.iter().enumerate() {
        for (place, script) in row.scripts.iter().enumerate() {
            let target = if *script == DOWN { down.clone() } else { sink.url(script) };
            sent.push(message(&id(number, place), &format!("g{number}"), &format!("P{number}"), &target));
        }
    }
    router.publish(&sent);
    let file = dir.join("corelane.db");
    let mut delays = [[None; 3]; ROWS.len()];
    for (number, row) in ROWS.iter().enumerate() {
        for place in 0..3 {
            let is_so = || {
                let file = shelf::waiting(&file);
                for (other, row) in ROWS.iter().enumerate() {
                    for (at, delay) in delays[other].iter_mut().enumerate() {
                        see(&file, delay, &id(other, at), row.delays[at]);
                    }
                }
                see(&file, &mut delays[number][place], &id(number, place), row.delays[place])
            };
            let name = format!("{}: message {place}", row.name);
            until(SOON, &name, is_so, || (shelf::waiting(&file), sink.answers()));
        }
    }
    let log = sink.calls();
    for (number, row) in ROWS.iter().enumerate() {
        let Row { name, counted, cascaded, .. } = row;
        for (place, seen) in delays[number].iter().enumerate() {
            let calls = log.iter().filter(|call| call.id == id(number, place) && call.attempt == 1).count();
            assert_eq!(calls, row.calls[place], "{name}: calls of message {place}");
            let Some(want) = row.delays[place].map(|seconds| seconds * 1_000) else { continue };
            let seen = seen.unwrap_or_default();
            assert!((want - LOOK_MS..=want).contains(&seen), "{name}: message {place} is back in {seen} ms");
        }
        let code = format!("P{number}");
        let totals = || {
            let pool = router.pool(&code);
            let counter = |counter: &str| pool[counter].as_u64().unwrap_or_default();
            let rejected = pool["rejectedTotal"]["cascade"].as_u64().unwrap_or_default();
            ([counter("deliveredTotal"), counter("failedTotal"), counter("transientTotal")], rejected)
        };
        until(SOON, &format!("{name}: counted"), || totals() == (*counted, *cascaded), totals);
    }
}

#[test]
fn followers_of_a_short_delay_wait_ten_seconds_and_come_back_in_order() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let router = Router::start(&dir, &[]);
    // The first call of the head fails, later ones do not.
    let head = sink.url("/status/429?retry_after=4");
    router.publish(&[
        message("head", "g", "", &head),
        message("second", "g", "", &sink.url("/ok")),
        message("other", "h", "", &sink.url("/ok")),
        message("third", "g", "", &sink.url("/ok")),
    ]);
    let file = dir.join("corelane.db");
    let delay = |id: &str| {
        let found = shelf::waiting(&file).into_iter().find(|waiting| waiting.id == id);
        found.map_or(0, |found| found.delay_ms)
    };
    until(SOON, "the followers are back", || delay("third") > 0, || sink.answers());
    let (head, second, third) = (delay("head"), delay("second"), delay("third"));
    assert!(head <= 4_000, "the head comes back first: {head}");
    assert!((5_000..=10_000).contains(&second) && (5_000..=10_000).contains(&third), "{second} {third}");
    let heads = || sink.answers().iter().filter(|(id, _)| id == "head").count();
    until(SOON, "the head is tried again", || heads() >= 2, || sink.answers());
    until(SOON, "the other group went on", || sink.delivered() == ["other"], || sink.answers());
    let tried = shelf::waiting(&file).into_iter().find(|waiting| waiting.id == "third");
    assert_eq!(tried.map(|third| third.receives), Some(0), "a follower was not tried");
}

#[test]
fn a_message_without_attempts_left_is_set_aside_and_its_followers_run() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let config = "[[queue]]\nname = \"q\"\nuri = \"sqlite:corelane.db\"\nattempts-max = 2\n\
                  [[pool]]\ncode = \"P\"\nconcurrency = 5\n";
    std::fs::write(dir.join("corelane.toml"), config).expect("the directory is ours");
    let router = Router::start(&dir, &["--set", "message-router.cascade-delay-seconds=0"]);
    router.publish(&[
        message("head", "g", "P", &sink.url("/status/429?retry_after=1")),
        message("next", "g", "P", &sink.url("/ok")),
    ]);
    let letters = || router.json("/api/dead-letters");
    until(SOON, "set aside", || letters()["total"] == json!(1), || (letters(), sink.answers()));
    let letter: Value = letters()["items"][0].clone();
    assert_eq!((&letter["id"], &letter["reason"]), (&json!("head"), &json!("EXHAUSTED")), "{letter}");
    assert_eq!((&letter["status"], &letter["attempts"]), (&json!(429), &json!(2)), "{letter}");
    until(SOON, "the follower runs", || sink.delivered() == ["next"], || sink.answers());
    let tries: Vec<u16> =
        sink.calls().iter().filter(|call| call.id == "head").map(|call| call.attempt).collect();
    assert_eq!(tries, [1, 2], "each delivery carries its number");
    let counted = || (router.pool("P")["transientTotal"].clone(), router.pool("P")["deliveredTotal"].clone());
    until(SOON, "counted", || counted() == (json!(2), json!(1)), counted);
}
