//! The status table, row by row: the first call is answered as the row says, the second with 200.

use std::collections::BTreeSet;
use std::time::Duration;

use lapin::BasicProperties;
use parking_lot::Mutex;

use crate::stage::{SOON, Stage, lines};
use crate::support::ports::free_address;
use crate::support::wait::until;
use crate::target::{Reply, Seen, Target};

/// What the retry queue keeps a message for, less what clocks may differ.
const TTL: Duration = Duration::from_millis(4_900);

fn retried(stage: &Stage, replies: &'static [Reply]) {
    let target = Target::answering(replies);
    let router = stage.router(&[("a", &target.url())], &[]);
    stage.publish("{\"n\":1}\n");
    stage.wait_depth("retry-queue", "a", 1);
    let seen = target.wait(replies.len(), SOON, || router.log());
    assert_retries(&seen);
    stage.wait_gone(router, "a");
    assert_eq!(target.seen().len(), replies.len());
}

/// One and the same message, each time after its wait in the retry queue, each time counted.
fn assert_retries(seen: &[Seen]) {
    for (pair, count) in seen.windows(2).zip(1..) {
        let gap = pair[1].at.duration_since(pair[0].at);
        assert!(gap >= TTL, "brought back after {gap:?}");
        assert_eq!((pair[0].attempt, pair[1].attempt), (count, count + 1), "counted");
        assert_eq!((&pair[0].id, &pair[0].body), (&pair[1].id, &pair[1].body));
    }
}

pub(super) fn success(stage: &Stage) {
    let target =
        Target::answering(&[Reply::Status(200), Reply::Says(201, r#"{"ack":false}"#), Reply::Status(204)]);
    let router = stage.router(&[("a", &target.url())], &[]);
    let queue = stage.named("queue", "a");
    let bytes: Vec<u8> = (0..=255).collect();
    let properties = BasicProperties::default().with_message_id("m-1".into());
    stage.hand.send(
        &stage.main_exchange(),
        "",
        &properties.clone().with_content_type("image/png".into()),
        &bytes,
    );
    target.wait(1, SOON, || router.log());
    stage.hand.publish(
        &queue,
        &properties.clone().with_content_type("text/plain; charset=utf-8".into()),
        b"hello",
    );
    target.wait(2, SOON, || router.log());
    stage.hand.publish(&queue, &BasicProperties::default(), b"{}");
    let seen = target.wait(3, SOON, || router.log());
    stage.wait_gone(router, "a");
    assert_eq!(target.seen().len(), 3, "each was posted once");
    let first = &seen[0];
    assert_eq!((first.id.as_str(), first.content_type.as_str(), &first.body), ("m-1", "image/png", &bytes));
    assert_eq!(
        (seen[1].content_type.as_str(), &seen[1].body[..]),
        ("text/plain; charset=utf-8", &b"hello"[..])
    );
    assert!(!seen[2].id.is_empty(), "a message without an id gets one");
}

pub(super) fn too_many_requests(stage: &Stage) {
    retried(stage, &[Reply::Status(429), Reply::Status(200)]);
}

pub(super) fn conflict(stage: &Stage) {
    retried(stage, &[Reply::Status(409), Reply::Status(200)]);
}

pub(super) fn server_error(stage: &Stage) {
    retried(stage, &[Reply::Status(500), Reply::Status(501), Reply::Status(503), Reply::Status(200)]);
}

pub(super) fn client_error(stage: &Stage) {
    retried(stage, &[Reply::Status(404), Reply::Status(408), Reply::Status(200)]);
}

pub(super) fn no_answer(stage: &Stage) {
    let target = Target::answering(&[Reply::Silence, Reply::Status(200)]);
    let router = stage.router(&[("a", &target.url())], &["--set", "mediator.http.timeout.ms=500"]);
    stage.publish("{\"n\":1}\n");
    stage.wait_depth("retry-queue", "a", 1);
    assert_retries(&target.wait(2, SOON, || router.log()));
    stage.wait_gone(router, "a");
}

pub(super) fn refused(stage: &Stage) {
    let address = free_address();
    let router = stage.router(&[("a", &format!("http://{address}/in"))], &[]);
    stage.publish("{\"n\":1}\n");
    stage.wait_depth("retry-queue", "a", 1);
    let target = Target::at(address, |_, _| Reply::Status(200));
    let seen = target.wait(1, SOON, || router.log());
    assert_eq!(seen[0].attempt, 2, "the refused call counts");
    stage.wait_gone(router, "a");
}

pub(super) fn too_early(stage: &Stage) {
    const REPLIES: &[Reply] =
        &[Reply::Status(425), Reply::Status(425), Reply::Status(425), Reply::Status(200)];
    let target = Target::answering(REPLIES);
    // One call at a time: a wait that held its permit would hold up the others.
    let router = stage.router(&[("a", &target.url())], &["--pool", "DEFAULT-POOL=1"]);
    stage.publish("{\"n\":1}\n");
    target.wait(1, SOON, || router.log());
    stage.publish("{\"n\":2}\n");
    let seen = target.wait(5, SOON, || router.log());
    let waiting = seen[1].at.duration_since(seen[0].at);
    assert!(
        seen[1].body != seen[0].body && waiting < Duration::from_secs(1),
        "no permit is held: {waiting:?}"
    );
    let early: Vec<&Seen> = seen.iter().filter(|call| call.body == seen[0].body).collect();
    for pair in early.windows(2) {
        let gap = pair[1].at.duration_since(pair[0].at);
        let range = Duration::from_millis(950)..Duration::from_secs(7);
        assert!(range.contains(&gap), "waited {gap:?}");
    }
    assert!(seen.iter().all(|call| call.attempt == 1), "not counted: {seen:?}");
    stage.wait_gone(router, "a");
}

pub(super) fn many_too_early(stage: &Stage) {
    const COUNT: usize = 1_500;
    let early = Mutex::new(BTreeSet::new());
    let target = Target::new(move |seen, _| {
        let is_first = early.lock().insert(seen.body.clone());
        Reply::Status(if is_first && seen.body != b"{}" { 425 } else { 200 })
    });
    let router = stage.router(&[("a", &target.url())], &["--pool", "DEFAULT-POOL=50"]);
    stage.publish(&lines(COUNT));
    // More wait than the first prefetch lets through, and one that comes later is not held up by them.
    target.wait(600, SOON, || router.log());
    stage.publish("{}\n");
    let taken = || {
        let taken = target.seen().into_iter().filter(|call| call.status == 200);
        taken.map(|call| call.body).collect::<BTreeSet<_>>().len()
    };
    until(SOON, "all are taken", || taken() == COUNT + 1, || (taken(), router.log()));
    assert!(target.seen().iter().all(|call| call.attempt == 1), "none was counted");
    stage.wait_gone(router, "a");
}

pub(super) fn only_the_failed_one(stage: &Stage) {
    let fine = Target::answering(&[Reply::Status(200)]);
    let failing = Target::answering(&[Reply::Status(503), Reply::Status(503), Reply::Status(200)]);
    // One router has both services: the copies have one id.
    let router = stage.router(&[("a", &fine.url()), ("b", &failing.url())], &[]);
    stage.publish("{\"n\":1}\n");
    let seen = failing.wait(3, SOON, || router.log());
    assert_retries(&seen);
    let others = fine.wait(1, SOON, || router.log());
    assert_eq!((others.len(), &others[0].id), (1, &seen[0].id), "it had it once");
    stage.wait_gone(router, "a");
    assert_eq!(stage.hand.depth(&stage.named("queue", "b")), Some(0));
}

pub(super) fn breaker(stage: &Stage) {
    let address = free_address();
    let flags = ["--set", "breaker.window=2", "--set", "breaker.failures=2", "--set", "breaker.wait=20s"];
    let router = stage.router(&[("a", &format!("http://{address}/in"))], &flags);
    // Two that trip it, and one that meets it tripped.
    stage.publish("{\"n\":1}\n{\"n\":2}\n");
    let tripped = || router.warning("BREAKER_TRIPPED").is_some();
    until(SOON, "it trips", tripped, || router.log());
    stage.publish("{\"n\":3}\n");
    let target = Target::at(address, |_, _| Reply::Status(200));
    let seen = target.wait(3, SOON * 2, || router.log());
    let third = seen.iter().find(|call| call.body == b"{\"n\":3}").expect("it was delivered");
    assert_eq!(third.attempt, 1, "it was not called while the breaker was tripped");
    assert!(seen.iter().all(|call| call.attempt <= 2), "nor were the others: {seen:?}");
    stage.wait_gone(router, "a");
}
