//! The calls themselves, through the real program and the SQLite queue: what is sent, how often, and when not at all.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::support::ports::free_address;
use super::support::router::{Dir, Router, SinkProgram, message};
use super::support::shelf;
use super::support::wait::until;

const SOON: Duration = Duration::from_secs(30);

/// Takes one request and answers it; what was sent.
fn take_one(listener: &TcpListener) -> String {
    let (mut stream, _) = listener.accept().expect("the router calls");
    stream.set_read_timeout(Some(SOON)).expect("a timeout");
    let (mut text, mut piece) = (String::new(), [0; 4096]);
    while !text.ends_with('}') {
        let count = stream.read(&mut piece).expect("the request comes");
        assert!(count > 0, "it ended early: {text}");
        text.push_str(std::str::from_utf8(&piece[..count]).expect("text"));
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n{\"ack\":true}").expect("it listens");
    text
}

#[test]
fn a_request_has_the_router_documents_form() {
    let dir = Dir::new();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let host = listener.local_addr().expect("bound").to_string();
    let router = Router::start(&dir, &[]);
    let mut with_token = message("m \"1\"", "g", "", &format!("http://{host}/orders?x=1"));
    with_token["authToken"] = "a.bearer.token".into();
    router.publish(&[with_token, message("m2", "g", "", &format!("http://{host}"))]);
    let text = take_one(&listener);
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let mut lines = head.lines();
    assert_eq!(lines.next(), Some("POST /orders?x=1 HTTP/1.1"));
    let headers: Vec<(String, &str)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim()))
        .collect();
    let header = |name: &str| headers.iter().find(|(other, _)| other == name).map(|(_, value)| *value);
    let rows = [
        ("authorization", "Bearer a.bearer.token"),
        ("content-type", "application/json"),
        ("accept", "application/json"),
        ("host", host.as_str()),
        ("idempotency-key", "m \"1\""),
        ("corelane-attempt", "1"),
    ];
    for (name, value) in rows {
        assert_eq!(header(name), Some(value), "{name}: {text}");
    }
    assert_eq!(header("traceparent").map(str::len), Some(55), "{text}");
    assert_eq!(header("content-length"), Some(body.len().to_string().as_str()));
    assert_eq!(serde_json::from_str::<Value>(body).ok(), Some(json!({ "messageId": "m \"1\"" })));
    let text = take_one(&listener);
    assert!(text.starts_with("POST / HTTP/1.1\r\n") && !text.contains("uthorization"), "{text}");
    assert!(!router.log().contains("a.bearer.token"), "no token in a log");
}

#[test]
fn a_message_sent_twice_under_one_id_is_called_once() {
    // Setting, target of both, and calls.
    let rows = [
        ("chain", "/slow?ms=1500", 1),
        ("ack", "/slow?ms=1500", 1),
        ("chain", "/slow?ms=1500&body={%22ack%22:false,%22delaySeconds%22:600}", 1),
    ];
    for (number, (requeued, script, calls)) in rows.into_iter().enumerate() {
        let dir = Dir::new();
        let sink = SinkProgram::start(&dir);
        let set = format!("message-router.requeued={requeued}");
        let router = Router::start(&dir, &["--set", &set]);
        // In two groups, because a queue that locks groups would not hand over the second of one group.
        for group in ["g", "h"] {
            router.publish(&[message("m", group, "", &sink.url(script))]);
        }
        let file = dir.join("corelane.db");
        let fails = script.contains("false");
        let is_over = || {
            let left = shelf::waiting(&file);
            if fails { left.len() == 2 && left[0].delay_ms > 0 } else { left.is_empty() }
        };
        until(SOON, &format!("row {number}"), is_over, || (shelf::waiting(&file), sink.answers()));
        assert_eq!(sink.answers().len(), calls, "row {number}: {:?}", sink.answers());
    }
}

#[test]
fn a_call_longer_than_its_lease_is_not_made_twice() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let config = "[[queue]]\nname = \"q\"\nuri = \"sqlite:corelane.db\"\nvisibility = \"2s\"\n\
                  [[pool]]\ncode = \"P\"\nconcurrency = 1\n";
    std::fs::write(dir.join("corelane.toml"), config).expect("the directory is ours");
    let router = Router::start(&dir, &[]);
    let slow = sink.url("/slow?ms=3500");
    router.publish(&[
        message("a", "g", "P", &slow),
        message("b", "g", "P", &slow),
        message("c", "h", "P", &slow),
    ]);
    until(SOON, "all delivered", || sink.delivered().len() >= 3, || sink.answers());
    let depth = || router.json("/api/queues")["queues"][0].clone();
    until(SOON, "all acked", || depth()["ackedTotal"] == 3, depth);
    assert_eq!(sink.answers().len(), 3, "{:?}", sink.answers());
    assert!(depth()["extendedTotal"].as_u64() > Some(3), "held and waiting ones were extended: {}", depth());
    assert_eq!(router.warning("LEASE_LOST"), None);
}

/// A port that takes no more connections: a call to it runs into the connect timeout.
fn full_port() -> (TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    rustix::net::listen(&listener, 0).expect("a shorter line");
    let at = listener.local_addr().expect("bound");
    let wait = Duration::from_millis(300);
    let waiting = std::iter::from_fn(|| TcpStream::connect_timeout(&at, wait).ok()).take(8).collect();
    (listener, waiting)
}

#[test]
fn a_target_that_takes_no_connection_is_an_error_of_the_connection() {
    let dir = Dir::new();
    let (listener, _waiting) = full_port();
    let target = format!("http://{}/", listener.local_addr().expect("bound"));
    let router = Router::start(&dir, &["--pool", "P=5", "--set", "mediator.http.connect-timeout=500ms"]);
    router.publish(&[message("m", "g", "P", &target)]);
    let file = dir.join("corelane.db");
    let back = || shelf::waiting(&file).first().map_or(0, |it| it.delay_ms);
    until(SOON, "it is back", || back() > 0, || router.get("/api/targets"));
    assert!((24_000..=30_000).contains(&back()), "{}", back());
    let pool = || router.pool("P");
    until(SOON, "counted", || pool()["failedTotal"] == 1 && pool()["transientTotal"] == 0, pool);
    let targets = router.json("/api/targets");
    assert_eq!(targets["targets"][0]["callsTotal"], 3, "{targets}");
}

#[test]
fn a_dead_target_trips_its_breaker_alone_and_spends_no_attempts() {
    // Scope of the breaker, and whether another target still gets its calls.
    for (scope, others_go_on) in [("origin", true), ("global", false)] {
        let dir = Dir::new();
        let sink = SinkProgram::start(&dir);
        let dead = free_address();
        let set = format!("breaker.scope={scope}");
        let flags = ["--pool", "P=20", "--set", &set, "--set", "breaker.wait=60s"];
        let router = Router::start(&dir, &flags);
        let target = format!("http://{dead}/");
        let all: Vec<Value> =
            (0..20).map(|n| message(&format!("d{n}"), &format!("d{n}"), "P", &target)).collect();
        router.publish(&all);
        let warning = router.wait_warning("BREAKER_TRIPPED");
        assert_eq!(warning["severity"], "WARN");
        router.publish(&[
            message("late", "late", "P", &target),
            message("other", "other", "P", &sink.url("/ok")),
        ]);
        let file = dir.join("corelane.db");
        let late = || shelf::waiting(&file).into_iter().find(|it| it.id == "late" && it.delay_ms > 0);
        until(SOON, "the late one is back", || late().is_some(), || shelf::waiting(&file));
        let back = late().expect("seen");
        assert_eq!(back.receives, 0, "no attempt is spent: {back:?}");
        assert!((5_000..=60_000).contains(&back.delay_ms), "until the breaker may probe: {back:?}");
        if others_go_on {
            until(SOON, "the other target", || sink.delivered() == ["other"], || sink.answers());
        } else {
            let other = || shelf::waiting(&file).into_iter().any(|it| it.id == "other" && it.delay_ms > 0);
            until(SOON, "one breaker for all", other, || shelf::waiting(&file));
            assert!(sink.answers().is_empty());
        }
        let rejected = || router.pool("P")["rejectedTotal"]["breaker"].as_u64();
        until(SOON, "counted", || rejected() > Some(0), || router.pool("P"));
    }
}
