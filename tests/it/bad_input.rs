//! What senders get wrong: in the queue's file, and over HTTP. A clear reason each time; nothing lost, nothing stuck.

use std::time::Duration;

use corelane::broker::sqlite::{Durability, NewMessage, SqliteWriter};
use serde_json::{Value, json};

use super::support::router::{Dir, Router, SinkProgram, message, request};
use super::support::wait::until;

const SOON: Duration = Duration::from_secs(30);
const SECRET: &str = "a-token-nobody-may-read";

/// A body, and a word that its reason must hold.
fn bodies(ok: &str) -> Vec<(Vec<u8>, &'static str)> {
    let with = |field: &str, value: Value| {
        let mut good = message("good", "g", "", ok);
        good[field] = value;
        good.to_string().into_bytes()
    };
    let mut endless = message("good", "g", "", ok).to_string().into_bytes();
    endless.resize((1 << 20) + 1, b' ');
    vec![
        (Vec::new(), "not a message"),
        (b"{\"id\":\"x\"".to_vec(), "not a message"),
        (b"hello".to_vec(), "not a message"),
        (b"null".to_vec(), "not a message"),
        (b"[]".to_vec(), "not a message"),
        (b"{\"id\":\"\xff\xfe\",\"mediationTarget\":\"http://h/\"}".to_vec(), "not a message"),
        ("[".repeat(100_000).into_bytes(), "not a message"),
        (b"{\"mediationTarget\":\"http://h/\"}".to_vec(), "id"),
        (b"{\"id\":\"x\"}".to_vec(), "mediationTarget"),
        (with("id", json!(5)), "string"),
        (with("id", json!("")), "id"),
        (with("id", json!("x".repeat(600))), "id"),
        (with("id", json!("two\nlines")), "id"),
        (with("id", json!("é")), "id"),
        (with("messageGroupId", json!("x".repeat(600))), "messageGroupId"),
        (with("poolCode", json!("x".repeat(600))), "poolCode"),
        (with("authToken", json!(format!("{SECRET}\r\nx-evil: 1"))), "authToken"),
        (with("authToken", json!(SECRET.repeat(1_000))), "authToken"),
        (with("mediationType", json!("SMTP")), "mediationType"),
        (with("dispatchMode", json!("WHENEVER")), "dispatchMode"),
        (with("mediationTarget", json!("")), "mediationTarget"),
        (with("mediationTarget", json!("ftp://h/")), "mediationTarget"),
        (with("mediationTarget", json!("http://")), "mediationTarget"),
        (with("mediationTarget", json!("http://h/a b")), "mediationTarget"),
        (with("mediationTarget", json!("http://h/\r\nx-evil: 1")), "mediationTarget"),
        (with("mediationTarget", json!("http://h:99999/")), "mediationTarget"),
        (with("highPriority", json!("very")), "not a message"),
        (endless, "1048577"),
    ]
}

#[test]
fn a_message_that_can_not_be_read_is_set_aside_with_its_reason_and_stops_nobody() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let router = Router::start(&dir, &[]);
    let writer = SqliteWriter::open_apart(&dir.join("corelane.db"), Durability::Process).expect("the file");
    let ok = sink.url("/ok");
    let rows = bodies(&ok);
    let mut sent = Vec::new();
    for (number, (body, word)) in rows.iter().enumerate() {
        // Before and behind it in its group, and in another group.
        let (group, good) = (format!("g{number}"), |id: &str, group: &str| {
            message(&format!("{id}{number}"), group, "", &ok).to_string().into_bytes()
        });
        let put =
            |body, group: &str| NewMessage { body, group: Some(group.to_owned()), ..NewMessage::default() };
        sent.push(put(good("before", &group), &group));
        let mut bad = put(body.clone(), &group);
        // A group that the broker names goes before the body's, so that here it must name none.
        bad.group = bad.group.filter(|_| *word != "messageGroupId");
        sent.push(bad);
        sent.push(put(good("behind", &group), &group));
        sent.push(put(good("beside", "other"), "other"));
    }
    writer.publish_blocking(sent).expect("the queue takes all");
    let good = rows.len() * 3;
    until(
        SOON,
        "all good ones",
        || sink.delivered().len() >= good,
        || (sink.delivered().len(), router.log()),
    );
    let letters = || router.json("/api/dead-letters?limit=100");
    until(SOON, "all bad ones", || letters()["total"] == rows.len(), || letters()["total"].clone());
    let depth = || router.json("/api/queues")["queues"][0]["depth"].clone();
    until(SOON, "the queue is empty", || depth() == 0, depth);
    let all = letters();
    for (number, (body, word)) in rows.iter().enumerate() {
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]);
        let group = if *word == "messageGroupId" { "x".repeat(600) } else { format!("g{number}") };
        let letter = all["items"].as_array().expect("a list").iter().find(|it| it["group"] == group.as_str());
        let letter = letter.unwrap_or_else(|| panic!("{shown} is not set aside: {all}"));
        assert_eq!(letter["reason"], "MALFORMED", "{shown}");
        let detail = letter["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(word) && detail.len() < 500, "{shown}: {detail}");
        let one = router.get(&format!("/api/dead-letters/{}", letter["number"]));
        assert!(one.0 == 200 && !one.1.contains(SECRET), "{shown}: {one:?}");
    }
    assert_eq!(sink.delivered().len(), good, "once each");
    assert!(!router.log().contains(SECRET) && !router.get("/api/warnings").1.contains(SECRET));
}

#[test]
fn the_api_refuses_bad_messages_by_field_and_takes_none_of_them() {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let router = Router::start(&dir, &[]);
    let good = message("m", "g", "", &sink.url("/ok"));
    let bad = |field: &str, value: Value| {
        let mut bad = good.clone();
        bad[field] = value;
        json!([good, bad]).to_string()
    };
    let many = json!(vec![good.clone(); 10_001]).to_string();
    let rows = [
        ("/api/messages", "{".to_owned(), 400, "body"),
        ("/api/messages", "\"x\"".to_owned(), 400, "body"),
        ("/api/messages", "[]".to_owned(), 400, "body"),
        ("/api/messages", many, 400, "10000"),
        ("/api/messages", bad("id", json!("x".repeat(600))), 400, "[1]"),
        ("/api/messages", bad("authToken", json!(format!("{SECRET}\r\n"))), 400, "authToken"),
        ("/api/messages", bad("mediationTarget", json!("file:///etc/passwd")), 400, "mediationTarget"),
        ("/api/messages", bad("messageGroupId", json!(7)), 400, "[1]"),
        ("/api/messages", " ".repeat(9 << 20), 413, "8"),
        ("/api/messages?queue=nowhere", good.to_string(), 404, "nowhere"),
        ("/api/messages?que=default", good.to_string(), 400, "que"),
    ];
    for (path, body, status, word) in rows {
        let shown = body[..body.len().min(100)].to_owned();
        let (got, said) = router.post(path, &body);
        assert_eq!(got, status, "{path} {shown}: {said}");
        assert!(said.contains(word) && said.contains("\"message\""), "{path} {shown}: {said}");
        assert!(!said.contains(SECRET), "{said}");
    }
    assert_eq!(router.send("DELETE", "/api/messages", "").0, 405);
    assert_eq!(router.get("/api/nothing").0, 404);
    for (body, status) in [
        (r#"{"concurrency":0}"#, 400),
        (r#"{"concurrency":70000}"#, 400),
        (r#"{"concurrency":"5"}"#, 400),
        (r#"{"rateLimitPerMinute":-1}"#, 400),
        (r#"{"concurrency":5,"colour":"red"}"#, 400),
        (r#"{"concurrency":5}"#, 404),
    ] {
        let (got, said) = router.send("PATCH", "/api/pools/NO-SUCH-POOL", body);
        assert_eq!(got, status, "{body}: {said}");
    }
    router.publish(&[good]);
    until(SOON, "the good one", || sink.delivered() == ["m"], || sink.answers());
    assert_eq!(router.json("/api/dead-letters")["total"], 0, "refused ones are not taken");
}

#[test]
fn with_a_token_set_nothing_is_told_or_done_without_it() {
    let dir = Dir::new();
    let router = Router::spawn(&dir, &[], &[("CORELANE_ADMIN_TOKEN", SECRET)]);
    let ask = |method: &str, path: &str, token: &str| {
        // The request's line takes a further header, as a client's would.
        let path = format!("{path} HTTP/1.1\r\nauthorization: Bearer {token}\r\nx-rest:");
        request(router.admin, method, &path, "").map(|(status, _)| status)
    };
    until(SOON, "ready", || router.get("/health/ready").0 == 200, || router.log());
    let rows = [
        ("GET", "/api/pools"),
        ("GET", "/api/config"),
        ("POST", "/api/messages"),
        ("DELETE", "/api/warnings"),
    ];
    for (method, path) in rows {
        assert_eq!(router.send(method, path, "").0, 401, "{method} {path}");
        assert_eq!(ask(method, path, "wrong"), Some(401), "{method} {path}");
    }
    assert_eq!(ask("GET", "/api/pools", SECRET), Some(200));
    let flood: Vec<_> = (0..12).map(|_| ask("GET", "/api/pools", "wrong")).collect();
    assert_eq!(flood.last(), Some(&Some(429)), "guessing is locked out: {flood:?}");
    assert_eq!(router.get("/health").0, 200, "health is open");
    assert!(!router.log().contains(SECRET));
}
