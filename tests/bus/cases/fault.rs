//! What breaks: the router, the connection, the server.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::hand::{Hand, worn};
use crate::proxy::Proxy;
use crate::stage::{SOON, Stage, lines};
use crate::support::rabbitmq::RabbitServer;
use crate::support::wait::until;
use crate::target::{Reply, Target};

const SLOW: Duration = Duration::from_millis(30);

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
    // On a busy machine most of them may have been called by now.
    let more = (target.seen().len() + 100).min(600);
    let router = stage.router(&[("a", &target.url())], &[]);
    target.wait(more, SOON, || router.log());
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
    // Those that were not called: back as well, and not counted as retries.
    let target = Target::new(|_, _| Reply::Slow(200, Duration::from_secs(1)));
    let router = stage.router(&[("a", &target.url())], &["--pool", "DEFAULT-POOL=1"]);
    stage.publish(&lines(20));
    target.wait(1, SOON, || router.log());
    let (status, _) = router.stop();
    assert!(status.success(), "{status:?}");
    let left = 25 - u32::try_from(target.seen().len()).expect("few");
    let found = ["queue", "retry-queue"].map(|what| stage.hand.depth(&stage.named(what, "a")));
    assert_eq!(found, [Some(left), Some(0)], "{}", stage.dir.logs());
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

pub(super) fn lost_ack(stage: &Stage) {
    let proxy = Proxy::new(stage.address);
    let target = Target::new(|_, _| Reply::Slow(500, Duration::from_millis(500)));
    let router = stage.router_at(proxy.address, &[("a", &target.url())], &[]);
    let opened = proxy.opened();
    stage.hand.publish(&stage.named("queue", "a"), &worn("m-1"), b"x");
    target.wait(1, SOON, || router.log());
    // While the call runs: the DLQ gets it over a new connection, and the ack goes nowhere.
    proxy.hang();
    stage.wait_depth("dlq", "a", 1);
    // The next connection brings it again.
    until(SOON, "a new connection", || proxy.opened() >= opened + 2, || router.log());
    stage.wait_queue("a");
    stage.publish("{\"n\":2}\n");
    let seen = target.wait(2, SOON, || router.log());
    assert_eq!(seen[1].body, b"{\"n\":2}", "the first was not called again");
    router.stop();
    assert_eq!(stage.hand.depth(&stage.named("dlq", "a")), Some(1), "once");
}

/// A broker with more than so much in memory takes no messages. It always has more than a megabyte.
fn set_memory(server: &mut RabbitServer, most: &str) {
    let set = format!("vm_memory_monitor:set_vm_memory_high_watermark({{absolute, \"{most}\"}}).");
    server.eval(&set).expect("the server takes it");
}

pub(super) fn short_of_memory(stage: &mut Stage, server: &mut RabbitServer) {
    let target = Target::new(|seen, _| Reply::Status(if seen.body == b"x" { 500 } else { 200 }));
    let router = stage.router(&[("a", &target.url())], &[]);
    let (status, _) = router.stop();
    assert!(status.success());
    for (id, body) in [("m-1", "y"), ("m-x2", "x"), ("m-2", "y"), ("m-3", "y")] {
        stage.hand.publish(&stage.named("queue", "a"), &worn(id), body.as_bytes());
    }
    set_memory(server, "1MB");
    let target = Target::new(|seen, _| Reply::Status(if seen.body == b"x" { 500 } else { 200 }));
    let router = stage.router(&[("a", &target.url())], &[]);
    target.wait(4, SOON, || router.log());
    // The three are acked: only the one that the DLQ does not take is unsettled.
    let look = format!(
        "{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"/\">>, queue, <<\"{}\">>)), \
         [{{_, N}}] = rabbit_amqqueue:info(Q, [messages_unacknowledged]), N.",
        stage.named("queue", "a")
    );
    let is_one = || server.eval(&look).expect("the server answers").trim() == "1";
    until(SOON, "acks go on", is_one, || router.log());
    assert_eq!(stage.hand.depth(&stage.named("dlq", "a")), Some(0), "the DLQ takes nothing");
    set_memory(server, "400MB");
    stage.wait_depth("dlq", "a", 1);
    router.stop();
    assert_eq!(stage.hand.depth(&stage.named("queue", "a")), Some(0), "{}", stage.dir.logs());
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
