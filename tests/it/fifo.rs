//! The group document's scenarios through the real program and the SQLite queue: what runs in order, what beside it.

use std::time::Duration;

use serde_json::Value;

use super::support::router::{Dir, Router, SinkProgram, message, request};
use super::support::shelf;
use super::support::wait::until;

const SOON: Duration = Duration::from_secs(40);
const LATER: &str = "/status/429?retry_after=600";

/// A batch and what comes of it. A message is its group, `!` if it fails, and its place.
struct Row {
    name: &'static str,
    batch: &'static [&'static str],
    delivered: &'static [&'static str],
}

const ROWS: [Row; 5] = [
    Row {
        name: "a mixed batch: a failure stops its group and no other",
        batch: &["a1", "a2!", "b1", "a3", "b2", "c1!", "a4", "c2"],
        delivered: &["a1", "b1", "b2"],
    },
    Row {
        name: "all one group, the head fails: nobody runs",
        batch: &["d1!", "d2", "d3", "d4"],
        delivered: &[],
    },
    Row {
        name: "all one group, the last fails: all before it ran",
        batch: &["e1", "e2", "e3", "e4!"],
        delivered: &["e1", "e2", "e3"],
    },
    Row {
        name: "every group fails at another place",
        batch: &["f1!", "h1", "i1", "f2", "h2!", "i2", "f3", "h3", "i3!"],
        delivered: &["h1", "i1", "i2"],
    },
    Row { name: "one message each", batch: &["j1", "k1!", "l1"], delivered: &["j1", "l1"] },
];

#[test]
fn a_failed_message_takes_its_followers_along_and_nobody_else() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let router = Router::start(&dir, &["--pool", "P=20"]);
    for row in &ROWS {
        let sent = row.batch.iter().map(|id| {
            let script = if id.ends_with('!') { LATER } else { "/ok" };
            message(id, &id[..1], "P", &sink.url(script))
        });
        router.publish(&sent.collect::<Vec<_>>());
        let (file, left) = (dir.join("corelane.db"), row.batch.len() - row.delivered.len());
        let is_ours = |id: &str| row.batch.contains(&id);
        let back = || shelf::waiting(&file).iter().filter(|it| is_ours(&it.id) && it.delay_ms > 0).count();
        until(SOON, row.name, || back() == left, || (shelf::waiting(&file), sink.answers()));
        let mut delivered: Vec<String> = sink.delivered().into_iter().filter(|id| is_ours(id)).collect();
        for group in row.delivered.iter().map(|id| &id[..1]) {
            let ours: Vec<&String> = delivered.iter().filter(|id| id.starts_with(group)).collect();
            assert!(ours.is_sorted(), "{}: {delivered:?}", row.name);
        }
        delivered.sort();
        assert_eq!(delivered, row.delivered, "{}", row.name);
        let failed: Vec<&str> = row.batch.iter().copied().filter(|id| id.ends_with('!')).collect();
        let called = sink.answers().iter().filter(|(id, _)| failed.contains(&id.as_str())).count();
        assert_eq!(called, failed.len(), "{}: failed ones were called once", row.name);
    }
}

#[test]
fn batches_of_one_group_stay_in_order_through_failures_and_other_groups_do_not_wait() {
    const COUNT: usize = 12;
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let flags = ["--pool", "P=20", "--set", "message-router.cascade-delay-seconds=1"];
    let router = Router::start(&dir, &flags);
    let shaky = sink.url("/fail?every=3&status=429&retry_after=1");
    let ids: Vec<String> = (0..COUNT).map(|n| format!("s{n:02}")).collect();
    for batch in ids.chunks(3) {
        let mut sent: Vec<Value> = batch.iter().map(|id| message(id, "shaky", "P", &shaky)).collect();
        sent.push(message(&format!("calm-{}", batch[0]), "calm", "P", &sink.url("/ok")));
        router.publish(&sent);
    }
    let done = |prefix: &str| -> Vec<String> {
        sink.delivered().into_iter().filter(|id| id.starts_with(prefix)).collect()
    };
    until(SOON, "the calm group is done", || done("calm").len() == COUNT / 3, || sink.answers());
    assert!(done("s").len() < COUNT, "the calm group waited for the shaky one: {:?}", sink.answers());
    until(SOON, "the shaky group is done", || done("s").len() >= COUNT, || sink.answers());
    assert_eq!(done("s"), ids, "in order and once each");
}

/// The most requests that were in flight at once.
fn most_at_once(sink: &SinkProgram) -> u64 {
    let (_, body) = request(sink.address, "GET", "/_stats", "").expect("the sink answers");
    let stats: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
    let most = stats.as_object().and_then(|stats| stats.iter().find(|(key, _)| key.contains("max")));
    most.and_then(|(_, value)| value.as_u64()).unwrap_or_else(|| panic!("a maximum in {body}"))
}

#[test]
fn messages_without_a_group_run_one_at_a_time_unless_the_pool_says_parallel() {
    let dir = Dir::new();
    let config = "[[pool]]\ncode = \"ONE\"\nconcurrency = 10\n\
                  [[pool]]\ncode = \"MANY\"\nconcurrency = 10\nungrouped = \"parallel\"\n";
    std::fs::write(dir.join("corelane.toml"), config).expect("the directory is ours");
    let (one, many) = (SinkProgram::start(&dir), SinkProgram::start(&dir));
    let router = Router::start(&dir, &[]);
    let mut sent = Vec::new();
    for n in 0..8 {
        // A blank group is no group.
        let group = if n % 2 == 0 { "" } else { "  " };
        sent.push(message(&format!("o{n}"), group, "ONE", &one.url("/slow?ms=150")));
        sent.push(message(&format!("p{n}"), group, "MANY", &many.url("/slow?ms=150")));
    }
    router.publish(&sent);
    until(SOON, "all delivered", || one.delivered().len() == 16, || one.answers());
    let ones: Vec<String> = one.delivered().into_iter().filter(|id| id.starts_with('o')).collect();
    assert!(ones.is_sorted(), "in the order of arrival: {ones:?}");
    assert_eq!(most_at_once(&one), 1, "__DEFAULT__ is one group");
    assert!(most_at_once(&many) > 1, "parallel");
}

#[test]
fn high_priority_chooses_between_groups_and_never_inside_one() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let router = Router::start(&dir, &["--pool", "P=1", "--set", "memory.prefetch=20"]);
    let ok = sink.url("/ok");
    let urgent = |id: &str, group: &str| {
        let mut message = message(id, group, "P", &ok);
        message["highPriority"] = true.into();
        message
    };
    router.publish(&[message("first", "first", "P", &sink.url("/slow?ms=4000"))]);
    until(SOON, "it runs", || router.pool("P")["active"] == 1, || router.pool("P"));
    let mut sent: Vec<Value> =
        (0..5).map(|n| message(&format!("n{n}"), &format!("n{n}"), "P", &ok)).collect();
    sent.extend([message("b1", "b", "P", &ok), urgent("b2", "b"), urgent("z1", "z"), urgent("z2", "z")]);
    router.publish(&sent);
    until(SOON, "all wait", || router.pool("P")["queued"] == 9, || router.pool("P"));
    assert!(sink.delivered().is_empty(), "the pool's only permit is taken");
    until(SOON, "all delivered", || sink.delivered().len() == 10, || sink.answers());
    let delivered = sink.delivered();
    let place = |id: &str| delivered.iter().position(|other| other == id).expect("delivered");
    assert_eq!(delivered[..3], ["first", "z1", "z2"], "urgent heads go first: {delivered:?}");
    assert!(place("b1") < place("b2"), "never inside a group: {delivered:?}");
    assert!((0..4).all(|n| place(&format!("n{n}")) < place(&format!("n{}", n + 1))), "{delivered:?}");
}

#[test]
fn a_dispatch_mode_says_what_a_failure_does_to_the_group() {
    // Mode of all three, script of the first, and which of the other two are delivered.
    let rows: [(&str, &str, &[&str]); 5] = [
        ("", LATER, &[]),
        ("BLOCK_ON_ERROR", LATER, &[]),
        ("NEXT_ON_ERROR", LATER, &["1", "2"]),
        ("IMMEDIATE", LATER, &["1", "2"]),
        ("IMMEDIATE", "/slow?ms=60000", &["1", "2"]),
    ];
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let router = Router::start(&dir, &["--pool", "P=20"]);
    for (number, (mode, script, delivered)) in rows.iter().enumerate() {
        let mut sent = Vec::new();
        for place in 0..3 {
            let target = sink.url(if place == 0 { script } else { "/ok" });
            let mut message = message(&format!("r{number}-{place}"), &format!("g{number}"), "P", &target);
            if !mode.is_empty() {
                message["dispatchMode"] = (*mode).into();
            }
            sent.push(message);
        }
        router.publish(&sent);
        let want: Vec<String> = delivered.iter().map(|place| format!("r{number}-{place}")).collect();
        let ours = || -> Vec<String> {
            let mut ours = sink.delivered();
            ours.retain(|id| id.starts_with(&format!("r{number}-")));
            ours.sort();
            ours
        };
        let file = dir.join("corelane.db");
        let is_back = || {
            let all = shelf::waiting(&file);
            all.iter().filter(|it| it.id.starts_with(&format!("r{number}-")) && it.delay_ms > 0).count()
        };
        let back = if *script == LATER { 3 - want.len() } else { 0 };
        let name = format!("row {number}: {mode} {script}");
        until(SOON, &name, || ours() == want && is_back() == back, || (ours(), shelf::waiting(&file)));
    }
}
