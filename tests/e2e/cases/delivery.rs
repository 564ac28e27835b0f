//! Messages that go through.

use crate::broker::Draft;
use crate::stage::{SOON, Stage, queue_of, wait_count};
use crate::support::wait::until;

/// Every message reaches its target, its group in order.
pub(super) fn deliver(stage: &mut Stage<'_>) -> String {
    let queue = stage.queue("q");
    let drafts = stage.drafts(0, 40, 4, "/ok");
    stage.publish(&queue, &drafts);
    let router = stage.router(&[&queue], &[]);
    stage.wait_delivered(40);
    let counts = stage.wait_empty(&queue);
    let verdict = stage.judge(0);
    assert_eq!(router.stop().0.code(), Some(0));
    format!(
        "{} delivered, {} out of order, {} left",
        verdict["delivered"], verdict["out_of_order"], counts.left
    )
}

/// What was acked is gone: the next consumer gets nothing of it.
pub(super) fn ack(stage: &mut Stage<'_>) -> String {
    let queue = stage.queue("q");
    let drafts = stage.drafts(0, 5, 5, "/ok");
    stage.publish(&queue, &drafts);
    let first = stage.router(&[&queue], &[]);
    stage.wait_delivered(5);
    stage.wait_empty(&queue);
    assert_eq!(first.stop().0.code(), Some(0));
    let second = stage.router(&[&queue], &[]);
    let sentinel = stage.drafts(5, 1, 1, "/ok");
    stage.publish(&queue, &sentinel);
    stage.wait_delivered(6);
    let counts = stage.wait_empty(&queue);
    wait_count(&second, &queue, "receivedTotal", 1);
    stage.judge(0);
    format!("{} left, {} held, the next consumer received only what was new", counts.left, counts.held)
}

/// The group that the broker itself carries is the message's group.
pub(super) fn group_id(stage: &mut Stage<'_>) -> String {
    let queue = stage.queue("q");
    let target = stage.sink.url("/slow?ms=1500");
    let drafts = ["a1", "a2"].map(|id| Draft::new(id, "orders-7", "", &target));
    stage.publish(&queue, &drafts);
    let router = stage.router(&[&queue], &[]);
    let seen = || router.get("/api/groups").1;
    until(SOON, "the group is seen", || seen().contains("\"orders-7\""), || (seen(), router.log()));
    stage.wait_delivered(2);
    let calls = stage.sink.calls();
    let gap = calls[1].at.saturating_sub(calls[0].at);
    assert!(gap.as_millis() >= 1_400, "one group, one at a time: {gap:?}");
    stage.wait_empty(&queue);
    "group `orders-7` of the broker's own property; its two messages one after the other".to_owned()
}

/// Two queues of one broker feed one router.
pub(super) fn two_queues(stage: &mut Stage<'_>) -> String {
    let (one, two) = (stage.queue("one"), stage.queue("two"));
    let drafts = stage.drafts(0, 100, 5, "/slow?ms=2");
    let (left, right) = drafts.split_at(50);
    stage.publish(&one, left);
    stage.publish(&two, right);
    let router = stage.router(&[&one, &two], &[]);
    stage.wait_delivered(100);
    let counts = [stage.wait_empty(&one), stage.wait_empty(&two)];
    for queue in [&one, &two] {
        wait_count(&router, queue, "receivedTotal", 50);
    }
    let verdict = stage.judge(0);
    format!(
        "50 received from each, {} out of order, {} and {} left",
        verdict["out_of_order"], counts[0].left, counts[1].left
    )
}

/// What waits at the broker is read and exported.
pub(super) fn queue_depth(stage: &mut Stage<'_>) -> String {
    let queue = stage.queue("q");
    // One pool that holds little, and nothing comes back: the rest waits at the broker.
    let drafts = stage.drafts(0, 3_000, 3_000, "/never");
    stage.publish(&queue, &drafts);
    let router = stage.router(&[&queue], &[]);
    let depth = || queue_of(&router, &queue)["depth"].as_u64();
    until(SOON, "the depth is read", || depth().is_some_and(|depth| depth > 0), || (depth(), router.log()));
    let metric = || {
        let text = router.get("/metrics").1;
        let line =
            text.lines().find(|line| line.starts_with("corelane_queue_depth{") && line.contains(&queue));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
    };
    until(SOON, "and exported", || metric().is_some_and(|depth| depth > 0.0), metric);
    let shown = depth().expect("it was there");
    assert!(shown <= 3_000, "no more than there are: {shown}");
    "`corelane_queue_depth` and the API show what waits of 3,000 messages".to_owned()
}
