//! Brokers that go away, refuse, or lose a queue.

use std::time::Duration;

use crate::proxy::Proxy;
use crate::stage::{SOON, Stage, queue_of};
use crate::support::faults::let_work;
use crate::support::router::Router;
use crate::support::wait::until;

/// Calls in flight in these cases: what a cut can double.
const CONCURRENCY: usize = 8;
/// What an answer that was not heard leaves hidden comes back this soon.
const LEASE: Duration = Duration::from_secs(5);
const FLAGS: [&str; 6] =
    ["--pool", "DEFAULT-POOL=8", "--set", "health.interval=1s", "--set", "health.poll-age-max=20s"];

fn wait_error(router: &Router, queue: &str) -> String {
    let error = || queue_of(router, queue)["error"].as_str().map(str::to_owned);
    until(SOON, "the queue's error is shown", || error().is_some(), || router.log());
    error().expect("it was there")
}

/// The server crashes under load and comes back.
pub(super) fn broker_restart(stage: &mut Stage<'_>) -> String {
    let queue = stage.queue_leased(LEASE);
    let drafts = stage.drafts(0, 400, 10, "/slow?ms=10");
    stage.publish(&queue, &drafts);
    let _router = stage.router(&[&queue], &FLAGS);
    stage.wait_delivered(50);
    stage.broker.kill();
    let_work(Duration::from_millis(500));
    stage.broker.start();
    let more = stage.drafts(400, 50, 10, "/slow?ms=10");
    stage.publish(&queue, &more);
    stage.wait_delivered(450);
    let counts = stage.wait_empty(&queue);
    let verdict = stage.judge(CONCURRENCY);
    format!(
        "killed under load: 450 delivered, {} lost, {} out of order, {} left",
        verdict["lost"], verdict["out_of_order"], counts.left
    )
}

/// The connection breaks again and again while messages flow.
pub(super) fn connection_cut(stage: &mut Stage<'_>) -> String {
    let queue = stage.queue_leased(LEASE);
    let drafts = stage.drafts(0, 400, 10, "/slow?ms=10");
    stage.publish(&queue, &drafts);
    let proxy = Proxy::new(stage.broker.address());
    let router = stage.router_at(&queue, proxy.address, &FLAGS);
    for cut in 1..=3 {
        stage.wait_delivered(cut * 60);
        // What it holds may be delivered sooner than it connects anew.
        until(SOON, "a connection to cut", || proxy.cut() > 0, || router.log());
    }
    stage.wait_delivered(400);
    let counts = stage.wait_empty(&queue);
    assert!(proxy.opened() >= 4, "it connected anew: {}", router.log());
    let verdict = stage.judge(3 * CONCURRENCY);
    format!(
        "cut 3 times under load: {} lost, {} out of order, {} left",
        verdict["lost"], verdict["out_of_order"], counts.left
    )
}

/// The connection breaks and the server does not hear of it, once while the router waits and once under load: what the
/// server sends there is lost with it, and must not be overtaken.
pub(super) fn unnoticed_cut(stage: &mut Stage<'_>) -> String {
    let queue = stage.queue_leased(LEASE);
    let proxy = Proxy::new(stage.broker.address());
    let flags = [&FLAGS[..], &["--set", "message-router.sqs.wait-time-seconds=3"]].concat();
    let router = stage.router_at(&queue, proxy.address, &flags);
    let cut = || until(SOON, "a connection to cut", || proxy.cut_unnoticed() > 0, || router.log());
    let first = stage.drafts(0, 1, 5, "/ok");
    stage.publish(&queue, &first);
    stage.wait_delivered(1);
    let_work(Duration::from_millis(300));
    cut();
    let_work(Duration::from_millis(200));
    let drafts = stage.drafts(1, 300, 5, "/slow?ms=10");
    stage.publish(&queue, &drafts);
    stage.wait_delivered(60);
    cut();
    stage.wait_delivered(301);
    let counts = stage.wait_empty(&queue);
    let verdict = stage.judge(2 * CONCURRENCY);
    format!(
        "cut while it waited and under load: {} lost, {} out of order, {} left",
        verdict["lost"], verdict["out_of_order"], counts.left
    )
}

/// The server is not there when the router starts.
pub(super) fn broker_absent(stage: &mut Stage<'_>) -> String {
    let queue = stage.queue("q");
    let drafts = stage.drafts(0, 20, 4, "/ok");
    stage.publish(&queue, &drafts);
    stage.broker.kill();
    let router = stage.router(&[&queue], &FLAGS);
    let error = wait_error(&router, &queue);
    assert!(!error.is_empty());
    stage.broker.start();
    stage.wait_delivered(20);
    let counts = stage.wait_empty(&queue);
    let verdict = stage.judge(0);
    until(SOON, "the error is gone", || queue_of(&router, &queue)["error"].is_null(), || router.log());
    format!(
        "started without it, error shown; then 20 delivered, {} out of order, {} left",
        verdict["out_of_order"], counts.left
    )
}

/// Credentials that the server refuses: said, without the password, and mended by a reload.
pub(super) fn wrong_credentials(stage: &mut Stage<'_>) -> String {
    let queue = stage.queue("q");
    let drafts = stage.drafts(0, 10, 2, "/ok");
    stage.publish(&queue, &drafts);
    stage.configure(&[(&queue, stage.broker.uri_refused(&queue))]);
    let router = stage.start(&FLAGS);
    let error = wait_error(&router, &queue);
    assert!(
        !router.log().contains("wrong-secret") && !error.contains("wrong-secret"),
        "{error} {}",
        router.log()
    );
    assert!(stage.sink.calls().is_empty());
    stage.configure(&[(&queue, stage.broker.uri(&queue))]);
    router.hang_up();
    stage.wait_delivered(10);
    let counts = stage.wait_empty(&queue);
    format!("refused and said so, no secret shown; after a reload 10 delivered, {} left", counts.left)
}

/// The queue goes while it is consumed, and comes back.
pub(super) fn queue_deleted(stage: &mut Stage<'_>) -> String {
    let queue = stage.queue("q");
    let first = stage.drafts(0, 10, 2, "/ok");
    stage.publish(&queue, &first);
    let router = stage.router(&[&queue], &FLAGS);
    stage.wait_delivered(10);
    stage.wait_empty(&queue);
    stage.broker.delete_queue(&queue);
    let_work(Duration::from_secs(3));
    assert_eq!(router.get("/health/live").0, 200, "it lives: {}", router.log());
    stage.broker.make_queue(&queue, crate::stage::LEASE);
    let second = stage.drafts(10, 10, 2, "/ok");
    stage.publish(&queue, &second);
    stage.wait_delivered(20);
    let counts = stage.wait_empty(&queue);
    format!("deleted and made again: 10 before and 10 after delivered, {} left", counts.left)
}
