//! Consumers that end, hang, or are replaced.

use std::time::Duration;

use crate::broker::Draft;
use crate::proxy::Proxy;
use crate::stage::{SOON, Stage};
use crate::support::faults::let_work;
use crate::support::wait::until;

/// SIGTERM under load: calls end, the rest is back at the broker at once, nothing is doubled.
pub(super) fn graceful_stop(stage: &mut Stage<'_>) -> String {
    let queue = stage.queue("q");
    let drafts = stage.drafts(0, 200, 20, "/slow?ms=100");
    stage.publish(&queue, &drafts);
    let first = stage.router(&[&queue], &["--pool", "DEFAULT-POOL=4"]);
    stage.wait_delivered(12);
    let (status, took) = first.stop();
    assert_eq!(status.code(), Some(0), "it ended as asked");
    assert!(took < Duration::from_secs(30), "{took:?}");
    let broker = &mut *stage.broker;
    let mut held = broker.counts(&queue).held;
    let mut is_free = || {
        held = broker.counts(&queue).held;
        held == 0
    };
    until(Duration::from_secs(5), "nothing is held any more", &mut is_free, || ());
    let delivered = stage.sink.delivered().len();
    let left = stage.broker.counts(&queue).left;
    assert_eq!(left, 200 - delivered as u64, "acked or back, each of them");
    let _second = stage.router(&[&queue], &[]);
    stage.wait_delivered(200);
    stage.wait_empty(&queue);
    let verdict = stage.judge(0);
    format!(
        "exit 0, nothing held; the next router delivered the rest: {} doubled, {} out of order",
        verdict["duplicates"], verdict["out_of_order"]
    )
}

/// A connection that hangs without a word is noticed, and the consumer replaced.
pub(super) fn stalled_consumer(stage: &mut Stage<'_>) -> String {
    let queue = stage.queue("q");
    let proxy = Proxy::new(stage.broker.address());
    let flags = ["--set", "health.interval=1s", "--set", "health.poll-age-max=4s"];
    let router = stage.router_at(&queue, proxy.address, &flags);
    let first = stage.drafts(0, 10, 2, "/ok");
    stage.publish(&queue, &first);
    stage.wait_delivered(10);
    // Their acks must have arrived.
    stage.wait_empty(&queue);
    proxy.hang();
    // The broker hands the first of them to the hung connection, and has the others for whoever comes next.
    for first in [10, 15] {
        let_work(Duration::from_millis(200));
        let more = stage.drafts(first, 5, 2, "/ok");
        stage.publish(&queue, &more);
    }
    let opened = proxy.opened();
    until(SOON, "it connects anew", || proxy.opened() > opened, || router.log());
    stage.wait_delivered(20);
    let counts = stage.wait_empty(&queue);
    let verdict = stage.judge(0);
    format!(
        "hung connection replaced; 20 delivered, {} out of order, {} left",
        verdict["out_of_order"], counts.left
    )
}

/// SIGTERM while the connection hangs: what the broker handed to it can't be given back. The next router waits for it.
pub(super) fn stop_while_hung(stage: &mut Stage<'_>) -> String {
    let queue = stage.queue("q");
    let publish = |stage: &mut Stage<'_>, first, count| {
        let drafts = stage.drafts(first, count, 2, "/ok");
        let drafts: Vec<_> = drafts.into_iter().map(Draft::with_group_in_body).collect();
        stage.publish(&queue, &drafts);
    };
    let proxy = Proxy::new(stage.broker.address());
    let first = stage.router_at(&queue, proxy.address, &["--grace", "2s"]);
    publish(stage, 0, 10);
    stage.wait_delivered(10);
    // Their acks must have arrived.
    stage.wait_empty(&queue);
    proxy.hang();
    let_work(Duration::from_millis(200));
    publish(stage, 10, 5);
    let_work(Duration::from_millis(200));
    first.stop();
    publish(stage, 15, 5);
    let _second = stage.router(&[&queue], &[]);
    let_work(Duration::from_secs(2));
    publish(stage, 20, 10);
    stage.wait_delivered_within(30, SOON * 2);
    let counts = stage.wait_empty(&queue);
    let verdict = stage.judge(0);
    format!(
        "ended, and 5 were hidden; the next router: {} out of order, {} left",
        verdict["out_of_order"], counts.left
    )
}

/// A changed setting builds a new consumer next to a busy one: nothing is lost or overtaken.
pub(super) fn consumer_replaced(stage: &mut Stage<'_>) -> String {
    let queue = stage.queue("q");
    let drafts = stage.drafts(0, 300, 10, "/slow?ms=10");
    stage.publish(&queue, &drafts);
    let router = stage.router(&[&queue], &["--pool", "DEFAULT-POOL=8"]);
    for connections in [2, 3] {
        stage.wait_delivered(connections * 30);
        let path = stage.dir.join("corelane.toml");
        let config = std::fs::read_to_string(&path).expect("the config");
        let config =
            config.lines().filter(|line| !line.starts_with("connections")).collect::<Vec<_>>().join("\n");
        std::fs::write(&path, format!("{config}\nconnections = {connections}\n")).expect("it is written");
        router.hang_up();
    }
    stage.wait_delivered(300);
    let counts = stage.wait_empty(&queue);
    let verdict = stage.judge(0);
    let log = router.log();
    assert!(log.matches(&*queue).count() >= 1, "{log}");
    format!(
        "replaced twice under load: {} lost, {} doubled, {} out of order, {} left",
        verdict["lost"], verdict["duplicates"], verdict["out_of_order"], counts.left
    )
}
