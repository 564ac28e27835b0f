//! Leases, redeliveries and twins: the same message again, or another with its id.

use std::time::Duration;

use crate::broker::Draft;
use crate::proxy::Proxy;
use crate::stage::{SOON, Stage, queue_of, wait_count};
use crate::support::faults::let_work;
use crate::support::wait::until;

/// How long a call takes that outlasts a short lease three times.
const LONG_CALL: Duration = Duration::from_secs(7);

fn short_lease(stage: &Stage<'_>) -> Duration {
    stage.broker.lease_min().map_or(Duration::from_secs(2), |least| least.max(Duration::from_secs(2)))
}

/// A call that outlasts the lease: it is extended, and nobody gets the message a second time.
pub(super) fn lease_extension(stage: &mut Stage<'_>) -> String {
    let lease = short_lease(stage);
    let queue = stage.queue_leased(lease);
    let target = stage.sink.url(&format!("/slow?ms={}", LONG_CALL.as_millis()));
    stage.publish(&queue, &[Draft::new("long", "g", "", &target)]);
    let router = stage.router(&[&queue], &[]);
    stage.wait_delivered(1);
    let counts = stage.wait_empty(&queue);
    assert_eq!(stage.answers_to("long"), [200], "called once");
    wait_count(&router, &queue, "receivedTotal", 1);
    let shown = queue_of(&router, &queue);
    if stage.broker.lease_min().is_none() {
        return format!(
            "held for {} s without a lease: handed over once, {} left",
            LONG_CALL.as_secs(),
            counts.left
        );
    }
    assert!(shown["extendedTotal"].as_u64().is_some_and(|count| count >= 2), "{shown}");
    format!(
        "lease {} s, call {} s: extended, handed over once, {} left",
        lease.as_secs(),
        LONG_CALL.as_secs(),
        counts.left
    )
}

/// What a killed router had comes back.
pub(super) fn redelivery(stage: &mut Stage<'_>) -> String {
    let lease = short_lease(stage);
    let queue = stage.queue_leased(lease);
    let target = stage.sink.url("/slow?ms=1500");
    stage.publish(&queue, &[Draft::new("again", "g", "", &target)]);
    let first = stage.router(&[&queue], &[]);
    let started = || stage.sink.stats().requests >= 1;
    until(SOON, "the call has begun", started, || first.log());
    first.kill();
    let second = stage.router(&[&queue], &[]);
    stage.wait_delivered(1);
    until(SOON, "the second call", || stage.sink.stats().requests >= 2, || second.log());
    let counts = stage.wait_empty(&queue);
    format!("killed in mid-call, called again by the next router; {} left", counts.left)
}

/// The broker hands over again what is being delivered: it is not called a second time, and acked by the new receipt.
pub(super) fn dedupe(stage: &mut Stage<'_>) -> String {
    let lease = short_lease(stage);
    let queue = stage.queue_leased(lease);
    let target = stage.sink.url(&format!("/slow?ms={}", LONG_CALL.as_millis()));
    stage.publish(&queue, &[Draft::new("once", "g", "", &target)]);
    let leased = stage.broker.lease_min().is_some();
    let proxy = (!leased).then(|| Proxy::new(stage.broker.address()));
    let router = match &proxy {
        Some(proxy) => stage.router_at(&queue, proxy.address, &[]),
        None => stage.router(&[&queue], &[]),
    };
    until(SOON, "the call has begun", || stage.sink.stats().requests >= 1, || router.log());
    if let Some(proxy) = &proxy {
        assert!(proxy.cut() > 0, "there was a connection to cut");
    } else {
        router.freeze();
        let_work(lease + Duration::from_secs(1));
        router.thaw();
    }
    stage.wait_delivered(1);
    let counts = stage.wait_empty(&queue);
    assert_eq!(stage.answers_to("once"), [200], "called once");
    let how = if leased { "its lease ran out" } else { "its connection was cut" };
    format!("{how} in mid-call: called once, {} left", counts.left)
}

/// Two messages of the broker with one sender's id: the second shares the first one's fate.
pub(super) fn broker_message_id(stage: &mut Stage<'_>) -> String {
    let queue = stage.queue("q");
    let target = stage.sink.url("/slow?ms=1500");
    let twins = [Draft::new("twin", "g", "", &target), Draft::new("twin", "g", "", &target)];
    stage.broker.publish(&queue, &twins);
    let router = stage.router(&[&queue], &[]);
    stage.wait_delivered(1);
    let counts = stage.wait_empty(&queue);
    wait_count(&router, &queue, "receivedTotal", 2);
    wait_count(&router, &queue, "ackedTotal", 2);
    assert_eq!(stage.answers_to("twin"), [200], "called once");
    format!("2 received, 2 acked, 1 call; {} left", counts.left)
}
