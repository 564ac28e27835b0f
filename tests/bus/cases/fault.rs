//! What breaks: the router, the connection, the server.

use std::collections::BTreeSet;
use std::time::Duration;

use lapin::types::AMQPValue;

use crate::hand::{Hand, with_headers};
use crate::proxy::Proxy;
use crate::stage::{SOON, Stage};
use crate::support::rabbitmq::RabbitServer;
use crate::support::wait::until;
use crate::target::{Reply, Target};

const SLOW: Duration = Duration::from_millis(30);

fn lines(count: usize) -> String {
    (0..count).map(|n| format!("{{\"n\":{n}}}\n")).collect()
}

/// Waits until every one of them was taken.
fn wait_all(target: &Target, count: usize, said: impl Fn() -> String) {
    let taken = || target.seen().into_iter().filter(|call| call.status == 200);
    let distinct = || taken().map(|call| call.body).collect::<BTreeSet<_>>().len();
    until(SOON * 3, "all are delivered", || distinct() == count, || (distinct(), said()));
}

pub(super) fn killed(stage: &Stage) {
    let target = Target::new(|_, number| Reply::Slow(if number % 50 == 7 { 500 } else { 200 }, SLOW));
    let router = stage.router(&[("a", &target.url())], &[]);
    stage.publish(&lines(600));
    target.wait(100, SOON, || router.log());
    router.kill();
    let calls = target.seen().len();
    let router = stage.router(&[("a", &target.url())], &[]);
    target.wait(calls + 100, SOON, || router.log());
    router.kill();
    let router = stage.router(&[("a", &target.url())], &[]);
    wait_all(&target, 600, || router.log());
    stage.wait_gone(router, "a");
    // Twenty calls run at once, and about as many acks are on their way: no more than those of two kills may be made
    // twice; and the retries.
    let calls = target.seen().len();
    assert!(calls <= 600 + 2 * 40 + calls / 50 + 1, "{calls} calls for 600 messages");
}

pub(super) fn stopped(stage: &Stage) {
    let target = Target::answering(&[Reply::Status(425)]);
    let router = stage.router(&[("a", &target.url())], &[]);
    stage.publish(&lines(5));
    target.wait(5, SOON, || router.log());
    let (status, took) = router.stop();
    assert!(status.success() && took < Duration::from_secs(5), "{status:?} after {took:?}");
    assert_eq!(stage.hand.depth(&stage.named("queue", "a")), Some(5), "back at once: {}", stage.dir.logs());
}

pub(super) fn cut(stage: &Stage) {
    let proxy = Proxy::new(stage.address);
    let target = Target::new(|_, _| Reply::Slow(200, SLOW));
    let router = stage.router_at(proxy.address, &[("a", &target.url())], &[]);
    stage.publish(&lines(400));
    for count in [50, 150, 250] {
        target.wait(count, SOON, || router.log());
        assert!(proxy.cut() > 0, "there was something to cut");
    }
    wait_all(&target, 400, || router.log());
    stage.wait_gone(router, "a");
    let calls = target.seen().len();
    assert!(
        calls <= 400 + 3 * 20,
        "{calls} calls for 400 messages: those that ran at a cut may be made again"
    );
}

pub(super) fn hung_publish(stage: &Stage) {
    let proxy = Proxy::new(stage.address);
    let target = Target::new(|_, _| Reply::Slow(500, Duration::from_millis(500)));
    let router = stage.router_at(proxy.address, &[("a", &target.url())], &[]);
    let worn = with_headers("m-1", &[("corelane-retries", AMQPValue::LongInt(10))]);
    stage.hand.publish(&stage.named("queue", "a"), &worn, b"x");
    target.wait(1, SOON, || router.log());
    // While the call runs: what is published to the DLQ afterwards goes nowhere.
    proxy.hang();
    stage.wait_depth_within("dlq", "a", 1, SOON * 2);
    until(
        SOON,
        "it is out of its queue",
        || stage.hand.depth(&stage.named("queue", "a")) == Some(0),
        || router.log(),
    );
    router.stop();
    assert_eq!(stage.hand.depth(&stage.named("queue", "a")), Some(0), "{}", stage.dir.logs());
    assert_eq!(stage.hand.depth(&stage.named("dlq", "a")), Some(1), "once");
}

pub(super) fn crashed(stage: &mut Stage, server: &mut RabbitServer) {
    let target = Target::new(|_, _| Reply::Slow(200, SLOW));
    let router = stage.router(&[("a", &target.url())], &[]);
    stage.publish(&lines(600));
    target.wait(100, SOON, || router.log());
    server.kill();
    server.launch();
    stage.hand = Hand::new(stage.address);
    wait_all(&target, 600, || router.log());
    stage.wait_gone(router, "a");
}
