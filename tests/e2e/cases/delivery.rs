//! Messages that go through.

use crate::stage::Stage;

/// Every message reaches its target, its group in order.
pub(crate) fn deliver(stage: &mut Stage<'_>) -> String {
    let queue = stage.queue("q");
    let drafts = stage.drafts(0, 40, 4, "/ok");
    stage.publish(&queue, &drafts);
    let router = stage.router(&[&queue], &[]);
    stage.wait_delivered(40);
    let counts = stage.wait_empty(&queue);
    let verdict = stage.judge(0);
    assert_eq!(router.stop().0.code(), Some(0));
    format!("{} delivered, {} out of order, {} left", verdict["delivered"], verdict["out_of_order"], counts.left)
}
