//! `corelane run` as a person meets it: starts on nothing, delivers, explains, ends.

use std::time::Duration;

use serde_json::json;

use super::support::router::{Dir, Router, SinkProgram, message};
use super::support::wait::until;

const SOON: Duration = Duration::from_secs(20);

#[test]
fn without_any_config_it_serves_a_queue_in_the_working_directory() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let router = Router::start(&dir, &[]);
    assert!(dir.join("corelane.db").exists());
    let all: Vec<_> =
        (0..100).map(|n| message(&format!("m{n}"), &format!("g{}", n % 7), "", &sink.url("/ok"))).collect();
    router.publish(&all);
    until(SOON, "all delivered", || sink.delivered().len() == 100, || (sink.delivered().len(), router.log()));
    let delivered = sink.delivered();
    for group in 0..7 {
        let ours: Vec<u32> = delivered
            .iter()
            .filter_map(|id| id.trim_start_matches('m').parse().ok())
            .filter(|n| n % 7 == group)
            .collect();
        assert!(ours.is_sorted(), "group {group} out of order: {ours:?}");
    }
    until(
        SOON,
        "acked",
        || router.json("/api/queues")["queues"][0]["depth"] == json!(0),
        || router.get("/api/queues"),
    );
    let (status, took) = router.stop();
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(3), "an idle router ends at once, not in {took:?}");
    let left: Vec<String> = std::fs::read_dir(dir.path())
        .expect("its directory")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("corelane-running"))
        .collect();
    assert_eq!(left, Vec::<String>::new(), "a clean end leaves no marker");
}

#[test]
fn a_refused_message_is_set_aside_explained_and_retried_in_its_place() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let router = Router::start(&dir, &[]);
    router.publish(&[message("bad", "g", "", &sink.url("/status/404"))]);
    let letters = || router.json("/api/dead-letters");
    until(SOON, "set aside", || letters()["total"] == json!(1), letters);
    assert_eq!(letters()["items"][0]["reason"], "REFUSED");
    assert_eq!(letters()["items"][0]["status"], 404);
    let warning = router.wait_warning("CONFIGURATION");
    assert_eq!(warning["severity"], "ERROR");
    let explained = router.json("/api/explain?what=bad");
    assert_eq!(explained["kind"], "DEAD_LETTER", "{explained}");
    let (status, said) = router.post("/api/dead-letters/retry", r#"{"all":true}"#);
    assert_eq!(status, 200, "{said}");
    until(SOON, "tried again", || sink.answers().len() == 2, || sink.answers());
}

#[test]
fn a_message_that_waits_says_for_what() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let router = Router::start(&dir, &[]);
    router.publish(&[
        message("head", "g", "", &sink.url("/slow?ms=60000")),
        message("next", "g", "", &sink.url("/ok")),
    ]);
    let explain = |what: &str| router.get(&format!("/api/explain?what={what}"));
    until(SOON, "the head runs", || explain("head").1.contains("the target's answer"), || explain("head"));
    assert!(explain("next").1.contains("1 before it in its group"), "{:?}", explain("next"));
    assert!(explain("g").1.contains("\"GROUP\""), "{:?}", explain("g"));
    let target = sink.url("/");
    until(SOON, "the target is known", || explain(&target).1.contains("\"TARGET\""), || explain(&target));
    assert_eq!(explain("nobody").0, 404);
    let groups = router.json("/api/groups?by=depth");
    assert!(groups.to_string().contains("\"depth\":2"), "{groups}");
}
