//! Messages from a queue to the sink over every wire: none lost, none twice, each group in order, and never more
//! calls in flight than the pool allows.
//!
//! Seen to fail with: the messages of a batch reversed in `Queue::take` (order), an ack dropped in `Ingress::flush`
//! (loss), `Permits::new(limit + 1, …)` (in flight).

use std::time::Duration;

use shards::model::Ordering;
use shards::wire::probe::Io;

use super::support::queue::{Message, Queue, Told};
use super::support::rig::{POOL, Parts, Rig, WIRES, pool};
use super::support::sink::{Target, assert_in_order};
use super::support::wait::until;

const MESSAGES: u64 = 10_000;
const GROUPS: u64 = 100;
const CONCURRENCY: u16 = 20;

/// Three in a row are of one group, so that a batch holds some that could be swapped.
const fn group_of(number: u64) -> u64 {
    number / 3 % GROUPS
}

fn messages(target: &Target, path: &str, count: u64) -> impl Iterator<Item = Message> {
    let url = target.url(path);
    (0..count).map(move |number| Message {
        group: group_of(number).to_string(),
        pool: POOL.into(),
        target: url.clone(),
    })
}

fn deliver(io: Io, shards: usize) {
    let (target, queue) = (Target::start(), Queue::new(Ordering::Strict));
    queue.publish(messages(&target, "/slow?ms=1", MESSAGES));
    let rig = Rig::start(&Parts::new(io, shards), &queue, pool(CONCURRENCY, None));
    let all = usize::try_from(MESSAGES).expect("fits");
    until(Duration::from_secs(60), "all are acked", || queue.acked() == all, || (io, shards, queue.acked()));
    let stats = target.sink.stats();
    assert!(stats.in_flight_max <= u64::from(CONCURRENCY), "K1 on {io}, {shards} shards: {stats:?}");
    assert!(stats.in_flight_max > u64::from(CONCURRENCY) / 2, "the pool is used: {stats:?}");
    let snapshot = rig.snapshot();
    assert_eq!((snapshot.held, snapshot.bytes, snapshot.owed), (0, 0, 0), "D5 on {io}");
    rig.drain(Duration::from_secs(5));
    let answered = target.answered();
    assert_eq!(answered.len(), all, "each message was called once on {io}, {shards} shards");
    assert_in_order(&answered, group_of);
    assert_eq!(queue.faults(), Vec::<String>::new());
    assert!(queue.told().iter().all(|told| matches!(told, Told::Acked(_))), "nothing went back");
}

#[test]
fn ten_thousand_messages_arrive_once_and_in_order_over_uring() {
    deliver(Io::Uring, 1);
    deliver(Io::Uring, 2);
}

#[test]
fn ten_thousand_messages_arrive_once_and_in_order_over_epoll() {
    deliver(Io::Epoll, 1);
    deliver(Io::Epoll, 2);
}

#[test]
fn ten_thousand_messages_arrive_once_and_in_order_over_glommio() {
    deliver(Io::Glommio, 1);
    deliver(Io::Glommio, 2);
}

#[test]
fn a_failing_target_keeps_its_groups_in_order() {
    for io in WIRES {
        let (target, queue) = (Target::start(), Queue::new(Ordering::Strict));
        queue.publish(messages(&target, "/fail?every=7&status=503", 2_000));
        let mut parts = Parts::new(io, 2);
        parts.shard.retry_pause = Duration::from_millis(2);
        parts.shard.calls_max = 20;
        let rig = Rig::start(&parts, &queue, pool(CONCURRENCY, None));
        until(Duration::from_secs(60), "all are acked", || queue.acked() == 2_000, || (io, queue.acked()));
        rig.drain(Duration::from_secs(5));
        let answered = target.answered();
        assert!(answered.len() > 2_000, "some calls failed");
        let good: Vec<_> = answered.into_iter().filter(|line| line.status == 200).collect();
        assert_eq!(good.len(), 2_000, "each was delivered once on {io}");
        assert_in_order(&good, group_of);
        assert_eq!(queue.faults(), Vec::<String>::new());
    }
}
