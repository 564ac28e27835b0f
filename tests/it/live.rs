//! Config through the real program: from the platform's URL and from the file, changed while traffic flows.

use std::fmt::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::support::platform::{Platform, Reply};
use super::support::publisher::{Load, Publisher, judge};
use super::support::router::{Dir, Router, SinkProgram, message};
use super::support::wait::until;

const SOON: Duration = Duration::from_secs(40);

/// The platform's document: pools with their concurrency, and one queue.
fn document(pools: &[(&str, u16)]) -> Reply {
    let pool = |(code, concurrency): &(&str, u16)| json!({ "code": code, "concurrency": concurrency });
    let pools: Vec<Value> = pools.iter().map(pool).collect();
    let queues = json!([{ "queueName": "q", "queueUri": "sqlite:corelane.db", "visibilityTimeout": 30 }]);
    Reply::Says(200, json!({ "processingPools": pools, "queues": queues }).to_string())
}

fn flags<'a>(url: &'a str, sets: &[&'a str]) -> Vec<&'a str> {
    let quick =
        ["sync.first-delay=50ms", "sync.attempts=1", "message-router.sync-interval=1s", "sync.timeout=1s"];
    let sets = quick.iter().chain(sets).flat_map(|&set| ["--set", set]);
    ["--config-url", url].into_iter().chain(sets).collect()
}

fn deliver(router: &Router, sink: &SinkProgram, id: &str, pool: &str) {
    router.publish(&[message(id, id, pool, &sink.url("/ok"))]);
    let delivered = || sink.delivered().contains(&id.to_owned());
    until(SOON, &format!("{id} is delivered"), delivered, || router.log());
}

#[test]
fn bad_documents_change_nothing_and_the_next_good_one_is_taken() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let says = |status, body: &str| Reply::Says(status, body.to_owned());
    let replies = vec![
        document(&[("A", 5), ("B", 6)]),
        says(200, ""),
        says(200, "{}"),
        says(200, r#"{"processingPools":[{"code":"A","concurrency":1}]}"#),
        says(200, r#"{"processingPools":[],"queues":[]}"#),
        says(200, r#"{"processingPools":[{"code":"A","#),
        says(500, "{}"),
        says(404, "{}"),
        Reply::Floods,
        Reply::Stalls,
        Reply::Hangs,
        Reply::Points("http://127.0.0.1:9/".into()),
        document(&[("A", 9), ("B", 6), ("C", 7)]),
    ];
    let count = replies.len();
    let platform = Platform::start(replies);
    let url = platform.url();
    let router = Router::start(&dir, &flags(&url, &["sync.body-max=64KiB"]));
    let mut number = 0;
    let goes_on = |number: &mut u32| {
        *number += 1;
        deliver(&router, &sink, &format!("m{number}"), "A");
    };
    until(
        SOON,
        "all documents are fetched",
        || {
            let fetched = platform.heads().len();
            if fetched < count {
                assert_eq!(router.pool("A")["concurrency"], 5, "after {fetched} documents");
                assert_eq!(router.pool("B")["concurrency"], 6, "after {fetched} documents");
                goes_on(&mut number);
            }
            fetched >= count
        },
        || (platform.heads().len(), router.log()),
    );
    until(
        SOON,
        "the good one is taken",
        || router.pool("A")["concurrency"] == 9,
        || router.get("/api/pools"),
    );
    until(SOON, "and its new pool", || router.pool("C")["concurrency"] == 7, || router.get("/api/pools"));
    let failed = router.warnings().into_iter().filter(|it| it["code"] == "CONFIG_SYNC_FAILED");
    let failed: Vec<Value> = failed.inspect(|it| assert_eq!(it["severity"], "WARN", "{it}")).collect();
    let told: u64 = failed.iter().filter_map(|it| it["count"].as_u64()).sum();
    assert_eq!(told, count as u64 - 2, "each bad one is told: {failed:?}");
    goes_on(&mut number);
    assert_eq!(router.json("/api/dead-letters")["total"], 0);
}

#[test]
fn a_document_that_removes_too_much_is_refused_unless_allowed() {
    let all = [("A", 5), ("B", 5), ("C", 5), ("D", 5)];
    let rows = [
        (&["sync.allow-mass-removal=false"], &all[..2], true),
        (&["sync.allow-mass-removal=false"], &all[..3], false),
        (&["sync.allow-mass-removal=true"], &all[..1], false),
    ];
    for (sets, left, refused) in rows {
        let dir = Dir::new();
        let platform = Platform::start(vec![document(&all), document(left)]);
        let url = platform.url();
        let router = Router::start(&dir, &flags(&url, sets));
        if refused {
            assert_eq!(router.wait_warning("CONFIG_REFUSED")["severity"], "ERROR");
            assert_eq!(router.pool("D")["draining"], false, "{sets:?} {left:?}");
        } else {
            let gone = || router.pool("D") == Value::Null && router.pool("A") != Value::Null;
            until(SOON, &format!("D goes: {sets:?} {left:?}"), gone, || router.get("/api/pools"));
            assert_eq!(router.warning("CONFIG_REFUSED"), None);
        }
    }
}

#[test]
fn a_pool_changed_by_the_api_stays_so_through_syncs() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let platform = Platform::start(vec![document(&[("A", 5)]), document(&[("A", 6)])]);
    let url = platform.url();
    let router = Router::start(&dir, &flags(&url, &[]));
    let (status, said) = router.send("PATCH", "/api/pools/A", r#"{"concurrency":17}"#);
    assert_eq!(status, 200, "{said}");
    let seen = platform.heads().len();
    let a = || router.pool("A");
    until(SOON, "changed", || a()["concurrency"] == 17, a);
    until(SOON, "synced twice", || platform.heads().len() >= seen + 3, || router.log());
    assert_eq!((&a()["concurrency"], &a()["capacity"]), (&json!(17), &json!(340)), "capacity follows");
    let (status, said) = router.send("PUT", "/api/pools/A", r#"{"concurrency":3,"rateLimitPerMinute":600}"#);
    assert_eq!(status, 200, "{said}");
    until(SOON, "limited", || a()["rateLimitPerMinute"] == 600 && a()["concurrency"] == 3, a);
    deliver(&router, &sink, "m", "A");
}

#[test]
fn the_last_good_config_starts_a_router_whose_platform_is_down() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    // The cache belongs to a URL, so that one platform plays both parts.
    let platform = Platform::start(vec![document(&[("A", 5)]), Reply::Says(503, String::new())]);
    let url = platform.url();
    let router = Router::start(&dir, &flags(&url, &["message-router.sync-interval=1h"]));
    let kept = dir.join("corelane-config.json");
    until(SOON, "kept on disk", || kept.exists(), || router.log());
    assert_eq!(router.stop().0.code(), Some(0));
    let router = Router::start(&dir, &flags(&url, &["message-router.sync-interval=1h"]));
    let warning = router.wait_warning("CONFIG_SYNC_FAILED");
    assert_eq!(warning["severity"], "WARN", "{warning}");
    assert!(warning["message"].to_string().contains("last good config on disk"), "{warning}");
    assert_eq!(router.pool("A")["concurrency"], 5);
    deliver(&router, &sink, "m", "A");
    assert_eq!(router.stop().0.code(), Some(0));
    let strict = flags(&url, &["sync.start-from-cache=false"]);
    let mut router = Router::spawn_raw(&dir, &strict, &[]);
    assert_eq!(router.wait_end(SOON).code(), Some(1), "without the cache it ends: {}", router.log());
}

#[test]
fn a_hang_up_during_a_sync_starts_no_second_one() {
    let dir = Dir::new();
    let platform = Platform::start(vec![document(&[("A", 5)]), Reply::Stalls, document(&[("A", 8)])]);
    let url = platform.url();
    let sets = ["message-router.sync-interval=1h", "sync.timeout=4s"];
    let router = Router::start(&dir, &flags(&url, &sets));
    router.hang_up();
    until(SOON, "it is asked again", || platform.heads().len() == 2, || router.log());
    router.hang_up();
    until(SOON, "the second is heard", || router.log().matches("SIGHUP").count() == 2, || router.log());
    assert_eq!(router.wait_warning("CONFIG_SYNC_FAILED")["count"], 1);
    assert_eq!(platform.heads().len(), 2, "one sync at a time");
    router.hang_up();
    until(SOON, "the next one is taken", || router.pool("A")["concurrency"] == 8, || router.log());
}

#[test]
fn the_first_sync_waits_two_seconds() {
    let dir = Dir::new();
    let platform = Platform::start(vec![document(&[("A", 5)])]);
    let start = Instant::now();
    let router = Router::spawn(&dir, &["--config-url", &platform.url()], &[]);
    let (status, said) = router.get("/health/ready");
    assert!(status == 503 && said.contains("STARTING"), "{status} {said}");
    until(SOON, "synced", || !platform.heads().is_empty(), || router.log());
    assert!(start.elapsed() >= Duration::from_secs(2), "after {:?}", start.elapsed());
    router.wait_ready();
    assert!(platform.heads()[0].starts_with("GET /config "), "{:?}", platform.heads());
}

#[test]
fn a_router_that_is_not_enabled_idles_and_says_so() {
    let dir = Dir::new();
    let router = Router::spawn(&dir, &[], &[("MESSAGE_ROUTER_ENABLED", "false")]);
    let health = || router.get("/health");
    until(SOON, "it says so", || health().1.contains("DISABLED"), health);
    assert_eq!(health().0, 200, "idle by choice is healthy");
    assert_eq!(router.json("/api/queues")["queues"], json!([]), "nothing is consumed");
    assert!(router.get("/metrics").1.contains("corelane_state{state=\"DISABLED\"} 1"));
    let (status, said) =
        router.post("/api/messages", &message("m", "g", "", "http://127.0.0.1:9/").to_string());
    assert!((400..500).contains(&status) && said.contains("queue"), "{status} {said}");
    assert_eq!(router.stop().0.code(), Some(0));
}

/// The local file: pools, and queues with their leases.
fn write_config(dir: &Dir, pools: &[&str], queues: &[(&str, &str, u32)]) {
    let mut text = String::new();
    for code in pools {
        writeln!(text, "[[pool]]\ncode = \"{code}\"\nconcurrency = 16").expect("a text takes all");
    }
    for (name, file, lease) in queues {
        writeln!(text, "[[queue]]\nname = \"{name}\"\nuri = \"sqlite:{file}\"\nvisibility = \"{lease}s\"")
            .expect("a text takes all");
    }
    std::fs::write(dir.join("corelane.toml"), text).expect("the directory is ours");
}

#[test]
fn a_reload_changes_pools_and_queues_while_traffic_flows_and_loses_nothing() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let main = |lease| ("main", "corelane.db", lease);
    write_config(&dir, &["KILLED", "B", "C", "D"], &[main(30)]);
    let router = Router::start(&dir, &[]);
    let load = Load {
        messages: u64::MAX / 2,
        groups: 40,
        pause: Duration::from_millis(10),
        target: sink.url("/slow?ms=3"),
        pool: "KILLED",
        ahead: 0,
    };
    let sender = Publisher::start(&dir, load);
    let log = sender.log.clone();
    let flows = |more: usize| {
        let before = sink.delivered().len();
        until(SOON, "traffic flows", || sink.delivered().len() >= before + more, || router.log());
    };
    let reload = |pools: &[&str], queues: &[(&str, &str, u32)], said: &str| {
        write_config(&dir, pools, queues);
        router.hang_up();
        until(SOON, said, || router.log().contains(said), || router.log());
        flows(300);
    };
    flows(300);
    reload(&["KILLED", "B", "C", "E"], &[main(30)], "pool E");
    until(SOON, "D is gone", || router.pool("D") == Value::Null, || router.get("/api/pools"));
    reload(&["KILLED", "B", "C", "E"], &[main(30), ("second", "second.db", 30)], "add queue second");
    let (status, said) =
        router.post("/api/messages?queue=second", &message("s", "s", "E", &sink.url("/ok")).to_string());
    assert_eq!(status, 200, "{said}");
    until(SOON, "the new queue is served", || sink.delivered().contains(&"s".into()), || router.log());
    for lease in [20, 40, 25] {
        reload(&["KILLED", "B", "C", "E"], &[main(lease), ("second", "second.db", 30)], &format!("{lease}s"));
    }
    reload(&["KILLED"], &[main(25)], "CONFIG_REFUSED");
    assert_ne!(router.pool("E"), Value::Null, "a file that removes too much is refused too");
    std::fs::write(dir.join("corelane.toml"), "[[pool]]\ncode = 5\n").expect("the directory is ours");
    router.hang_up();
    until(SOON, "a wrong file is told", || router.log().contains("corelane.toml"), || router.log());
    flows(300);
    // The pool that all traffic goes through: what it held goes back and comes again for DEFAULT-POOL.
    reload(&["B", "C", "E"], &[main(25), ("second", "second.db", 30)], "remove pool KILLED");
    until(SOON, "its pool is gone", || router.pool("KILLED") == Value::Null, || router.get("/api/pools"));
    let stray = || router.pool("DEFAULT-POOL")["deliveredTotal"].as_u64();
    until(SOON, "DEFAULT-POOL delivers", || stray() > Some(0), || router.get("/api/pools"));
    reload(&["KILLED", "B", "C", "E"], &[main(25), ("second", "second.db", 30)], "set pool KILLED");
    until(SOON, "it is back", || router.pool("KILLED") != Value::Null, || router.get("/api/pools"));
    let published = usize::try_from(sender.stop()).expect("few");
    let done = || sink.delivered().iter().filter(|id| id.starts_with('m')).count();
    until(SOON, "all delivered", || done() >= published, || (published, done(), router.get("/api/queues")));
    let ours = dir.join("main.log");
    let lines = std::fs::read_to_string(&sink.log).expect("the sink's log");
    let lines: Vec<&str> = lines.lines().filter(|line| !line.contains("\ts\t")).collect();
    std::fs::write(&ours, lines.join("\n") + "\n").expect("the directory is ours");
    let verdict = judge(&log, &ours, 0);
    assert_eq!(verdict["kept"], published, "{verdict}");
    assert_eq!(router.stop().0.code(), Some(0));
}

#[test]
fn a_queue_that_is_removed_keeps_its_messages_until_it_is_served_again() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let (one, two) = (("one", "corelane.db", 30), ("two", "two.db", 30));
    write_config(&dir, &["P"], &[one, two]);
    let router = Router::start(&dir, &["--allow-mass-removal"]);
    let names = || {
        let all = router.json("/api/queues")["queues"].clone();
        all.as_array().expect("a list").iter().map(|queue| queue["name"].to_string()).collect::<String>()
    };
    until(SOON, "both are served", || names().contains("two"), names);
    let slow = sink.url("/slow?ms=1500");
    let ids: Vec<String> = (0..3).map(|n| format!("m{n}")).collect();
    let sent: Vec<Value> = ids.iter().map(|id| message(id, "g", "P", &slow)).collect();
    let (status, said) = router.post("/api/messages?queue=two", &json!(sent).to_string());
    assert_eq!(status, 200, "{said}");
    until(SOON, "the first runs", || router.pool("P")["active"] == 1, || router.pool("P"));
    write_config(&dir, &["P"], &[one]);
    router.hang_up();
    until(SOON, "it is gone", || !names().contains("two"), || router.log());
    let (status, said) = router.post("/api/messages?queue=two", &json!(sent).to_string());
    assert_eq!(status, 404, "{said}");
    // What it handed over is still settled, so that nothing is called twice.
    until(SOON, "what was held is done", || router.json("/api/view")["inflight"] == 0, || router.log());
    write_config(&dir, &["P"], &[one, two]);
    router.hang_up();
    until(SOON, "all are delivered", || sink.delivered().len() >= 3, || (sink.answers(), router.log()));
    assert_eq!(sink.delivered(), ids, "in order and once each");
}
