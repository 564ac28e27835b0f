//! Messages that fail: delayed, set aside, in their group's order.

use std::time::Duration;

use serde_json::{Value, json};

use crate::broker::Draft;
use crate::stage::{SOON, Stage, queue_of, wait_count};
use crate::support::wait::until;

/// What the target asks for before it takes the message.
const DELAY: Duration = Duration::from_secs(3);
/// Brokers look at their delayed messages now and then.
const DELAY_SLACK: Duration = Duration::from_secs(8);

/// A message that goes back with a delay comes again after it, and not before.
pub(super) fn nack_with_delay(stage: &mut Stage<'_>) -> String {
    let queue = stage.queue("q");
    let target = stage.sink.url(&format!("/ok?first=1&status=429&retry_after={}", DELAY.as_secs()));
    // `NEXT_ON_ERROR`: it really goes back to the broker, and its group goes on without it.
    let body = json!({ "id": "late", "mediationTarget": target, "dispatchMode": "NEXT_ON_ERROR" });
    let late = Draft {
        id: "late".into(),
        group: "g".into(),
        group_in_body: false,
        body: body.to_string().into_bytes(),
    };
    let after = Draft::new("after", "g", "", &stage.sink.url("/ok"));
    stage.publish(&queue, &[late, after]);
    let router = stage.router(&[&queue], &[]);
    stage.wait_delivered(2);
    stage.wait_empty(&queue);
    let calls: Vec<_> = stage.sink.calls().into_iter().filter(|call| call.id == "late").collect();
    let [first, second] = calls.as_slice() else { panic!("two calls: {calls:?}") };
    let waited = second.at.saturating_sub(first.at);
    assert!(waited >= DELAY && waited <= DELAY + DELAY_SLACK, "{waited:?}");
    wait_count(&router, &queue, "nackedTotal", 1);
    "1 nack; the second call came no sooner than the 3 s asked for".to_owned()
}

/// What can't be read is set aside with its bytes, and its group goes on.
pub(super) fn malformed_body(stage: &mut Stage<'_>) -> String {
    let queue = stage.queue("q");
    let good = |id: &str, stage: &Stage<'_>| Draft::new(id, "g", "", &stage.sink.url("/ok"));
    let bad = Draft {
        id: "bad".into(),
        group: "g".into(),
        group_in_body: false,
        body: b"{\"id\": not json".to_vec(),
    };
    let drafts = [good("before", stage), bad, good("after", stage)];
    stage.publish(&queue, &drafts);
    let router = stage.router(&[&queue], &[]);
    stage.wait_delivered(2);
    let counts = stage.wait_empty(&queue);
    let letters = || router.json("/api/dead-letters");
    let has_one = || letters()["items"].as_array().is_some_and(|all| all.len() == 1);
    until(SOON, "one dead letter", has_one, letters);
    let letter = letters()["items"][0].clone();
    assert_eq!(letter["reason"], "MALFORMED", "{letter}");
    assert_eq!(stage.sink.delivered(), ["before", "after"]);
    format!("1 dead letter, reason MALFORMED; {} left at the broker", counts.left)
}

/// A failed message holds up or takes along its own group, no other; the group stays in order.
pub(super) fn cascade(stage: &mut Stage<'_>) -> String {
    let queue = stage.queue("q");
    let (ok, failing) = (stage.sink.url("/ok"), stage.sink.url("/ok?first=1&status=429&retry_after=2"));
    let draft = |id: &str, target: &str| Draft::new(id, &id[..1], "", target);
    let drafts = [
        draft("a1", &ok),
        draft("a2", &failing),
        draft("b1", &ok),
        draft("a3", &ok),
        draft("b2", &ok),
        draft("a4", &ok),
    ];
    stage.publish(&queue, &drafts);
    let router = stage.router(&[&queue], &[]);
    stage.wait_delivered(6);
    stage.wait_empty(&queue);
    let order = stage.sink.delivered();
    let of =
        |group: &str| order.iter().filter(|id| id.starts_with(group)).cloned().collect::<Vec<_>>().join(" ");
    assert_eq!((of("a"), of("b")), ("a1 a2 a3 a4".to_owned(), "b1 b2".to_owned()));
    let place = |id: &str| order.iter().position(|other| other == id).expect("delivered");
    assert!(place("b2") < place("a2"), "b did not wait for a: {order:?}");
    let ordering = queue_of(&router, &queue)["ordering"].clone();
    format!("{}: a1 a2 a3 a4 in order after a2 failed once, b before them", ordering.as_str().unwrap_or("?"))
}

/// Many failures, no overtaking.
pub(super) fn order_under_failure(stage: &mut Stage<'_>) -> String {
    let queue = stage.queue("q");
    let drafts = stage.drafts(0, 300, 12, "/fail?every=7&status=503&ms=2");
    stage.publish(&queue, &drafts);
    let _router = stage.router(&[&queue], &[]);
    stage.wait_delivered(300);
    let counts = stage.wait_empty(&queue);
    let verdict: Value = stage.judge(0);
    assert!(verdict["failures"].as_u64().is_some_and(|failures| failures >= 40), "{verdict}");
    format!(
        "300 messages, every 7th call failed: {} out of order, {} lost, {} left",
        verdict["out_of_order"], verdict["lost"], counts.left
    )
}
