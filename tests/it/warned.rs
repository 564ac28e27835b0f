//! The router document's warnings, provoked through the real program: each with its code and severity.
//! `docs/WARNINGS.md` says for every other code which test covers it.

use std::time::Duration;

use corelane::broker::sqlite::{Durability, NewMessage, SqliteWriter};
use rusqlite::Connection;
use serde_json::{Value, json};

use super::support::platform::{Platform, Reply};
use super::support::router::{Dir, Router, SinkProgram, message};
use super::support::wait::until;

const SOON: Duration = Duration::from_secs(30);
const QUICK: [&str; 8] = [
    "--set",
    "sync.first-delay=50ms",
    "--set",
    "sync.attempts=2",
    "--set",
    "sync.pause=50ms",
    "--set",
    "message-router.sync-interval=1s",
];

fn is(warning: &Value, code: &str, severity: &str) -> bool {
    warning["code"] == code && warning["severity"] == severity
}

fn wait(router: &Router, code: &str, severity: &str) -> Value {
    let find = || router.warnings().into_iter().find(|warning| is(warning, code, severity));
    until(SOON, &format!("{code} {severity}"), || find().is_some(), || (router.warnings(), router.log()));
    find().expect("it was there")
}

fn document(pools: &[&str]) -> String {
    let pools: Vec<Value> = pools.iter().map(|code| json!({ "code": code, "concurrency": 5 })).collect();
    let queues = json!([{ "queueName": "q", "queueUri": "sqlite:corelane.db" }]);
    json!({ "processingPools": pools, "queues": queues }).to_string()
}

#[test]
fn a_first_sync_that_fails_is_critical_and_ends_the_process_with_1() {
    let dir = Dir::new();
    let platform = Platform::start(vec![Reply::Says(500, String::new())]);
    let url = platform.url();
    let mut router = Router::spawn_raw(&dir, &[&["--config-url", &url], &QUICK[..]].concat(), &[]);
    let status = router.wait_end(SOON);
    assert_eq!(status.code(), Some(1), "{}", router.log());
    assert_eq!(platform.heads().len(), 2, "both tries");
    let log = router.log();
    assert!(log.contains("CONFIG_SYNC_FAILED") && log.contains("first config sync failed"), "{log}");
}

#[test]
fn a_later_sync_that_fails_is_a_warning_and_traffic_goes_on() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let platform = Platform::start(vec![Reply::Says(200, document(&["P"])), Reply::Says(500, String::new())]);
    let url = platform.url();
    let router = Router::start(&dir, &[&["--config-url", &url], &QUICK[..]].concat());
    let warning = wait(&router, "CONFIG_SYNC_FAILED", "WARN");
    assert!(warning["message"].to_string().contains("500"), "{warning}");
    router.publish(&[message("m", "g", "P", &sink.url("/ok"))]);
    until(SOON, "delivered", || sink.delivered() == ["m"], || router.log());
    assert_eq!(router.pool("P")["concurrency"], 5, "the last good config stays");
}

#[test]
fn too_many_pools_are_critical_and_many_a_warning() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let platform = Platform::start(vec![
        Reply::Says(200, document(&["A", "B", "C"])),
        Reply::Says(200, document(&["A", "B", "C", "D"])),
    ]);
    let url = platform.url();
    let limits = ["--set", "message-router.max-pools=3", "--set", "message-router.pool-warning-threshold=2"];
    let router = Router::start(&dir, &[&["--config-url", &url], &QUICK[..], &limits].concat());
    wait(&router, "POOL_LIMIT", "WARN");
    wait(&router, "POOL_LIMIT", "CRITICAL");
    assert_eq!(router.pool("C")["concurrency"], 5);
    assert_eq!(router.pool("D"), Value::Null, "beyond the limit");
    router.publish(&[message("m", "g", "C", &sink.url("/ok"))]);
    until(SOON, "delivered", || sink.delivered() == ["m"], || router.log());
}

#[test]
fn messages_are_warned_of_by_what_is_wrong_with_them() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let router = Router::start(&dir, &["--pool", "P=5"]);
    let writer = SqliteWriter::open_apart(&dir.join("corelane.db"), Durability::Process).expect("the file");
    let bad = NewMessage { body: b"{\"id\":".to_vec(), ..NewMessage::default() };
    writer.publish_blocking(vec![bad]).expect("it is taken");
    router.publish(&[
        message("stray", "g", "NO-SUCH-POOL", &sink.url("/ok")),
        message("refused", "g", "P", &sink.url("/status/404")),
        message("unbuilt", "h", "P", &sink.url("/status/501")),
    ]);
    wait(&router, "PROCESSING", "WARN");
    let routing = wait(&router, "ROUTING", "WARN");
    assert!(routing["message"].to_string().contains("NO-SUCH-POOL"), "{routing}");
    // Both within a second and from one target: the worse must not be lost behind the other.
    wait(&router, "CONFIGURATION", "ERROR");
    wait(&router, "CONFIGURATION", "CRITICAL");
    until(SOON, "delivered by the default pool", || sink.delivered() == ["stray"], || router.log());
    let pool = || router.pool("DEFAULT-POOL");
    until(SOON, "counted", || pool()["deliveredTotal"] == 1, pool);
    assert_eq!((&pool()["concurrency"], &pool()["capacity"]), (&json!(20), &json!(400)));
}

#[test]
fn a_full_pool_is_a_warning_and_others_go_on() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let router = Router::start(&dir, &["--pool", "FULL=1", "--pool", "FREE=20"]);
    let slow = sink.url("/slow?ms=60000");
    let (mut mixed, free) = (Vec::new(), sink.url("/ok"));
    for n in 0..300 {
        mixed.push(message(&format!("f{n}"), &format!("f{n}"), "FULL", &slow));
        mixed.push(message(&format!("m{n}"), &format!("g{n}"), "FREE", &free));
    }
    router.publish(&mixed);
    let warning = wait(&router, "QUEUE_FULL", "WARN");
    assert_eq!(warning["source"], "FULL");
    until(
        SOON,
        "the free pool's are delivered",
        || sink.delivered().len() == 300,
        || router.get("/api/pools"),
    );
    assert!(router.pool("FULL")["queued"].as_u64() <= Some(50), "{}", router.pool("FULL"));
}

#[test]
fn a_consumer_that_can_not_be_made_is_tried_again_until_it_can() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let queue = "q=sqlite:not-there/queue.db";
    let router = Router::spawn(&dir, &["--queue", queue, "--set", "health.interval=1s"], &[]);
    wait(&router, "QUEUE_INVALID", "ERROR");
    wait(&router, "CONSUMER_RESTART", "WARN");
    wait(&router, "CONSUMER_RESTART_FAILED", "CRITICAL");
    let ready = router.get("/health/ready");
    assert!(ready.0 == 503 && ready.1.contains("queue q"), "{ready:?}");
    std::fs::create_dir(dir.join("not-there")).expect("the directory is ours");
    router.wait_ready();
    router.publish(&[message("m", "g", "", &sink.url("/ok"))]);
    until(SOON, "delivered", || sink.delivered() == ["m"], || router.log());
}

#[test]
fn a_consumer_that_is_locked_out_is_restarted_and_goes_on_when_the_lock_is_gone() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let flags = ["--set", "health.interval=1s", "--set", "health.poll-age-max=3s"];
    let router = Router::start(&dir, &flags);
    router.publish(&[message("m", "g", "", &sink.url("/fail?every=1&status=429&retry_after=2"))]);
    until(SOON, "tried", || sink.answers().len() == 1, || router.log());
    let file = dir.join("corelane.db");
    let lock = Connection::open(&file).expect("the queue's file");
    lock.busy_timeout(SOON).expect("it can wait");
    until(SOON, "back", || super::support::shelf::waiting(&file)[0].delay_ms > 0, || router.log());
    lock.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let warning = wait(&router, "CONSUMER_RESTART", "WARN");
    assert_eq!(warning["source"], "default");
    assert_eq!(sink.answers().len(), 1, "nothing is handed out meanwhile");
    lock.execute_batch("ROLLBACK").expect("unlocked");
    until(SOON, "tried again", || sink.answers().len() >= 2, || router.log());
    router.wait_ready();
}

#[test]
fn a_call_that_outlasts_the_end_is_told_and_its_message_goes_back() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let mut router = Router::start(&dir, &["--grace", "6s"]);
    router.publish(&[message("m", "g", "", &sink.url("/never"))]);
    let active = || router.pool("DEFAULT-POOL")["active"] == 1;
    until(SOON, "called", active, || router.get("/api/pools"));
    router.terminate();
    assert_eq!(router.wait_end(SOON).code(), Some(3), "{}", router.log());
    assert!(router.log().contains("SHUTDOWN_CLEANUP_ERRORS"), "{}", router.log());
    let back = super::support::shelf::waiting(&dir.join("corelane.db"));
    assert_eq!(back.len(), 1, "nothing is lost: {back:?}");
    assert!(back[0].delay_ms <= 0, "and it may be handed out at once: {back:?}");
}

#[test]
fn a_warning_goes_when_its_time_is_over() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let router = Router::start(&dir, &["--set", "warnings.expire=2s"]);
    router.publish(&[message("m", "g", "NO-SUCH-POOL", &sink.url("/ok"))]);
    wait(&router, "ROUTING", "WARN");
    until(SOON, "expired", || router.warning("ROUTING").is_none(), || router.warnings());
}
