//! Dead letters: how a message gets into the DLQ, what is said of it there, and how it comes back.

use std::time::Duration;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use serde_json::Value;

use crate::hand::{header, number, text, worn};
use crate::stage::{SOON, Stage};
use crate::support::wait::until;
use crate::target::{Reply, Target};

/// Ten waits of five seconds, on a busy machine.
const TEN_RETRIES: Duration = Duration::from_secs(120);
const MARK: &str = "RABBITMQ_MESSAGE_MAX_RETRIES_EXCEEDED";

/// The broker's count for a queue and a reason.
fn deaths(properties: &BasicProperties, queue: &str, reason: &str) -> i64 {
    let Some(AMQPValue::FieldArray(deaths)) = header(properties, "x-death") else { return 0 };
    let is = |death: &FieldTable, key: &str, want: &str| {
        let value = death.inner().get(key).and_then(AMQPValue::as_long_string);
        value.is_some_and(|value| value.as_bytes() == want.as_bytes())
    };
    let mut tables = deaths.as_slice().iter().filter_map(AMQPValue::as_field_table);
    let death = tables.find(|death| is(death, "queue", queue) && is(death, "reason", reason));
    death.and_then(|death| death.inner().get("count")?.as_long_long_int()).unwrap_or(0)
}

pub(super) fn ten_retries_and_back(stage: &Stage) {
    let target = Target::answering(&[Reply::Status(503)]);
    let router = stage.router(&[("a", &target.url())], &[]);
    stage.publish("{\"n\":1}\n");
    stage.wait_depth_within("dlq", "a", 1, TEN_RETRIES);
    let seen = target.seen();
    let attempts: Vec<u32> = seen.iter().map(|call| call.attempt).collect();
    assert_eq!(attempts, (1..=11).collect::<Vec<_>>(), "called first, then counted");
    let queue = stage.named("queue", "a");
    let (properties, body) = stage.hand.peek(&stage.named("dlq", "a")).expect("it is there");
    assert_eq!((text(&properties, "x-original-queue"), &body[..]), (Some(queue.clone()), &b"{\"n\":1}"[..]));
    assert_eq!(number(&properties, "x-final-status-code"), Some(503));
    assert_eq!(
        (header(&properties, "x-final-error"), number(&properties, "x-final-retry-count")),
        (None, Some(10))
    );
    let retry_queue = stage.named("retry-queue", "a");
    assert_eq!(
        (deaths(&properties, &queue, "rejected"), deaths(&properties, &retry_queue, "expired")),
        (10, 10)
    );
    assert_eq!(properties.content_type().as_ref().map(ShortString::as_str), Some("application/json"));
    assert!(router.log().contains(MARK), "{}", router.log());
    // Not fixed yet: one call, and the count has gone on.
    assert!(stage.dlq(&["retry"], "a").contains("1 dead letters retried"));
    target.wait(12, SOON, || router.log());
    stage.wait_depth("dlq", "a", 1);
    let (properties, _) = stage.hand.peek(&stage.named("dlq", "a")).expect("it is there again");
    assert_eq!(number(&properties, "x-final-retry-count"), Some(11));
    assert_eq!(deaths(&properties, &queue, "rejected"), 10, "its history is still there");
    // Fixed.
    target.answer(Reply::Status(200));
    stage.dlq(&["retry"], "a");
    let seen = target.wait(13, SOON, || router.log());
    assert_eq!((seen[12].attempt, &seen[12].id), (13, &seen[0].id));
    stage.wait_gone(router, "a");
}

pub(super) fn looked_at_and_purged(stage: &Stage) {
    // By the body: 503, no answer, or fine.
    let target = Target::new(|seen, _| match seen.body.first() {
        Some(b'5') => Reply::Status(503),
        Some(b'4') => Reply::Status(404),
        Some(b'0') => Reply::Silence,
        _ => Reply::Status(200),
    });
    let router = stage.router(&[("a", &target.url())], &["--set", "mediator.http.timeout.ms=300"]);
    let queue = stage.named("queue", "a");
    for (count, (id, body)) in (1..).zip([("m-5", "5xx"), ("m-4", "4xx"), ("m-0", "0"), ("m-5b", "5b")]) {
        stage.hand.publish(&queue, &worn(id), body.as_bytes());
        stage.wait_depth("dlq", "a", count);
    }
    let listed = |flags: &[&str]| -> Vec<Value> {
        let text = stage.dlq(&[&["list", "--json"], flags].concat(), "a");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    let ids = |letters: &[Value]| -> Vec<String> {
        letters.iter().map(|letter| letter["id"].as_str().expect("text").to_owned()).collect()
    };
    let all = listed(&[]);
    assert_eq!(ids(&all), ["m-5", "m-4", "m-0", "m-5b"], "oldest first");
    assert_eq!(ids(&listed(&[])), ids(&all), "a look changes nothing");
    let shown = |key: &str| all.iter().map(|letter| letter[key].clone()).collect::<Vec<_>>();
    assert_eq!(shown("finalStatusCode"), [503.into(), 404.into(), Value::Null, 503.into()]);
    assert!(all[2]["finalError"].as_str().is_some_and(|error| error.contains("timeout")), "{:?}", all[2]);
    assert!(shown("finalRetryCount").iter().all(|count| *count == 10) && all[0]["originalQueue"] == *queue);
    assert_eq!(ids(&listed(&["--status", "503"])), ["m-5", "m-5b"]);
    assert_eq!(ids(&listed(&["--id", "m-4"])), ["m-4"]);
    assert_eq!(ids(&listed(&["--limit", "2"])), ["m-5", "m-4"]);
    assert!(stage.dlq(&["show", "3"], "a").contains("m-0"));
    assert!(stage.dlq(&["retry", "--dry-run"], "a").starts_with("4 "));
    assert!(stage.dlq(&["purge", "--dry-run", "--status", "404"], "a").starts_with("1 "));
    assert_eq!(stage.hand.depth(&stage.named("dlq", "a")), Some(4), "nothing was changed");
    // One of them is put back, at its place among the others; one is deleted.
    let calls = target.seen().len();
    target.answer(Reply::Status(200));
    stage.dlq(&["retry", "--id", "m-4"], "a");
    assert_eq!(target.wait(calls + 1, SOON, || router.log())[calls].id, "m-4");
    stage.dlq(&["purge", "--id", "m-0"], "a");
    assert_eq!(ids(&listed(&[])), ["m-5", "m-5b"]);
    let (vhost, service) = (stage.vhost(), stage.service("a"));
    let refused = stage.corelane(&["dlq", "purge", "--bus", &vhost, "--service", &service], "");
    assert!(!refused.ok && refused.err.contains("--yes"), "{}", refused.err);
    let refused =
        stage.corelane(&["dlq", "list", "--bus", &vhost, "--service", &service, "--group", "g"], "");
    assert!(!refused.ok && refused.err.contains("--bus only"), "{}", refused.err);
    stage.dlq(&["purge", "--yes"], "a");
    stage.wait_gone(router, "a");
    let missing = stage.corelane(&["dlq", "list", "--bus", &vhost, "--service", "no-body"], "");
    assert!(!missing.ok && missing.err.contains("no.dlq.no-body"), "{}", missing.err);
}

pub(super) fn unroutable(stage: &Stage) {
    let target = Target::answering(&[Reply::Status(500)]);
    let router = stage.router(&[("a", &target.url())], &[]);
    stage.hand.delete(&stage.named("dlq", "a"));
    stage.hand.publish(&stage.named("queue", "a"), &worn("m-1"), b"x");
    target.wait(1, SOON, || router.log());
    let said = || router.log().contains("the DLQ does not take messages");
    until(SOON, "it says so", said, || router.log());
    assert!(!router.log().contains(MARK), "it was not moved");
    // It is held, and is moved when there is a DLQ again, without another call.
    stage.done(&["bus", "declare", "--service", &stage.service("a")], "");
    stage.wait_depth("dlq", "a", 1);
    until(SOON, "it says that, too", || router.log().contains(MARK), || router.log());
    assert_eq!(target.seen().len(), 1);
    // And one that never finds a DLQ is still in its queue when the router is gone.
    stage.hand.delete(&stage.named("dlq", "a"));
    stage.hand.publish(&stage.named("queue", "a"), &worn("m-2"), b"y");
    target.wait(2, SOON, || router.log());
    router.kill();
    stage.wait_depth("queue", "a", 1);
}

pub(super) fn unfit(stage: &Stage) {
    let target = Target::answering(&[Reply::Status(200)]);
    let router = stage.router(&[("a", &target.url())], &[]);
    let odd = BasicProperties::default().with_message_id("m-1".into()).with_content_type("text/plän".into());
    stage.hand.publish(&stage.named("queue", "a"), &odd, b"x");
    stage.wait_depth("dlq", "a", 1);
    let (properties, body) = stage.hand.peek(&stage.named("dlq", "a")).expect("it is there");
    let error = text(&properties, "x-final-error").unwrap_or_default();
    assert!(error.contains("contentType") && body == b"x", "{error}");
    assert_eq!(
        (number(&properties, "x-final-retry-count"), number(&properties, "x-final-status-code")),
        (Some(0), None)
    );
    // An id that may not stand in a header is no reason: it gets another.
    let odd = BasicProperties::default().with_message_id("m\u{fc}".into());
    stage.hand.publish(&stage.named("queue", "a"), &odd, b"y");
    let seen = target.wait(1, SOON, || router.log());
    assert_eq!((seen[0].body.as_slice(), target.seen().len()), (&b"y"[..], 1));
    router.stop();
    assert_eq!(stage.hand.depth(&stage.named("queue", "a")), Some(0));
}
