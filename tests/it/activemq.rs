//! The ActiveMQ adapter by itself, against a real broker and its JMS client: what the suite of all brokers does not ask.

use std::num::{NonZeroU16, NonZeroUsize};
use std::process::Command;
use std::time::{Duration, Instant};

use corelane::broker::activemq::ActiveMqQueue;
use corelane::ingress::{Answer, Batch, ReceiveError, Scope, Source};
use corelane::topology::{QueueEntry, QueueUri};
use shards::desk::{Arrival, Receipt, Tell};
use shards::model::{IdHasher, NackReason, SourceId, Ticket};

use crate::support::activemq::{ActiveMqServer, PASSWORD, Post, Setup, USER};

#[path = "activemq_breaks.rs"]
mod breaks;
#[path = "activemq_reach.rs"]
mod reach;

/// Long enough for anything here.
const SOON: Duration = Duration::from_secs(60);

fn run<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

fn queue(uri: &str) -> ActiveMqQueue {
    queue_named("q", uri)
}

fn queue_named(name: &str, uri: &str) -> ActiveMqQueue {
    let entry = QueueEntry {
        name: name.into(),
        uri: QueueUri::parse(uri).expect("a broker's scheme"),
        connections: NonZeroU16::MIN,
        visibility: None,
        ordering: None,
        attempts_max: 0,
    };
    ActiveMqQueue::new(&entry, "router-1").expect("a well-formed URI")
}

async fn receive(queue: &ActiveMqQueue, max: usize) -> Result<Batch, ReceiveError> {
    let scope = Scope::new(IdHasher::new((1, 2)), SourceId(0));
    queue.receive(scope, NonZeroUsize::new(max).expect("not zero")).await
}

/// Receives until `count` messages came.
async fn take(queue: &ActiveMqQueue, count: usize) -> Batch {
    let (start, mut all) = (Instant::now(), Batch::default());
    while all.arrivals.len() + all.unreadable.len() < count {
        assert!(start.elapsed() < SOON, "only these came: {all:?}");
        match receive(queue, count - all.arrivals.len() - all.unreadable.len()).await {
            Ok(batch) => {
                all.arrivals.extend(batch.arrivals);
                all.unreadable.extend(batch.unreadable);
            }
            Err(ReceiveError::Unreachable(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => panic!("{error}"),
        }
    }
    all
}

fn ids(batch: &Batch) -> Vec<String> {
    batch.arrivals.iter().map(|it| String::from_utf8_lossy(it.parcel.id()).into_owned()).collect()
}

fn ack(receipt: Receipt) -> (Receipt, Tell) {
    (receipt, Tell::Ack { ticket: Some(Ticket::default()) })
}

fn nack(arrival: &Arrival, delay_s: u32, reason: NackReason) -> (Receipt, Tell) {
    (arrival.receipt, Tell::Nack { delay_s, reason })
}

async fn ack_all(queue: &ActiveMqQueue, batch: &Batch) -> bool {
    let receipts =
        batch.arrivals.iter().map(|it| it.receipt).chain(batch.unreadable.iter().map(|it| it.receipt));
    let answers = queue.settle(receipts.map(ack).collect()).await;
    answers.iter().all(|answer| matches!(answer, Answer::Closed { done: true, .. }))
}

fn body(id: &str, mode: &str) -> Vec<u8> {
    format!(r#"{{"id":"{id}","mediationTarget":"http://127.0.0.1:1/","dispatchMode":"{mode}"}}"#).into_bytes()
}

/// Publishes text messages `m<first>`… of one group.
fn publish(server: &ActiveMqServer, queue: &str, first: usize, count: usize) {
    let bodies: Vec<_> = (first..first + count).map(|n| body(&format!("m{n}"), "BLOCK_ON_ERROR")).collect();
    let post = |body| Post { kind: "text", group: "g", body, properties: &[] };
    let posts: Vec<Post<'_>> = bodies.iter().map(|body| post(body)).collect();
    server.publish(queue, &posts, false);
}

fn names(from: usize, to: usize) -> Vec<String> {
    (from..to).map(|n| format!("m{n}")).collect()
}

#[test]
fn jms_messages_are_read_whatever_their_kind_or_set_aside() {
    let server = ActiveMqServer::start(&Setup::default());
    let long = body(&"x".repeat(200), "");
    let plain = body("plain", "");
    let posts = [
        Post { kind: "text", group: "orders-7", body: &plain, properties: &["tenant=t1"] },
        Post { kind: "bytes", group: "", body: &plain, properties: &[] },
        Post { kind: "map", group: "g", body: b"x", properties: &[] },
        Post { kind: "empty", group: "", body: b"", properties: &[] },
        Post { kind: "text", group: "", body: "{\"id\":\"grüß 😀\"}".as_bytes(), properties: &[] },
    ];
    server.publish("kinds", &posts, false);
    let packed = ["text", "bytes"].map(|kind| Post { kind, group: "p", body: &long, properties: &[] });
    server.publish("kinds", &packed, true);
    run(async {
        let queue = queue(&server.uri("kinds"));
        let batch = take(&queue, 7).await;
        let seen: Vec<(usize, String)> = batch
            .arrivals
            .iter()
            .map(|it| (it.parcel.id().len(), String::from_utf8_lossy(it.parcel.group()).into_owned()))
            .collect();
        let want =
            [(5, "orders-7"), (5, ""), (200, "p"), (200, "p")].map(|(len, group)| (len, group.to_owned()));
        assert_eq!(seen, want);
        let [map, empty, foreign] = &batch.unreadable[..] else { panic!("{:?}", batch.unreadable) };
        assert!(map.detail.contains("JMS map message") && map.group == "g", "{map:?}");
        assert!(empty.detail.contains("without a body"), "{empty:?}");
        assert_eq!(foreign.body, "{\"id\":\"grüß 😀\"}".as_bytes(), "Java's UTF-8 was made everyone's");
        assert!(ack_all(&queue, &batch).await);
        assert_eq!(server.counts("kinds")[..2], [0, 0]);
        assert_eq!(queue.depth().await, Some(0));
    });
    server.publish("kinds", &posts[..1], false);
    run(async {
        let queue = queue(&format!("{}?group=property:tenant", server.uri("kinds")));
        assert_eq!(take(&queue, 1).await.arrivals[0].parcel.group(), b"t1");
    });
}

#[test]
fn what_is_given_back_stays_in_its_place_and_goes_back_in_order() {
    let server = ActiveMqServer::start(&Setup::default());
    publish(&server, "back", 0, 6);
    run(async {
        let first = queue(&server.uri("back"));
        let batch = take(&first, 4).await;
        assert_eq!(ids(&batch), names(0, 4));
        let back = [2, 0].map(|at| nack(&batch.arrivals[at], 0, NackReason::GivenBack));
        assert!(first.settle(back.into()).await.is_empty());
        // Told again, a receipt does nothing.
        first.settle(vec![nack(&batch.arrivals[0], 0, NackReason::GivenBack)]).await;
        let again = take(&first, 4).await;
        assert_eq!(ids(&again), ["m0", "m2", "m4", "m5"], "older ones first, nothing twice");
        assert_eq!(server.counts("back")[0], 6, "and the broker still has all");
        let start = Instant::now();
        first.settle(vec![nack(&again.arrivals[0], 1, NackReason::Failed)]).await;
        let late = take(&first, 1).await;
        assert!(start.elapsed() >= Duration::from_secs(1));
        assert_eq!((ids(&late), late.arrivals[0].deliveries), (names(0, 1), 2), "a failure is counted");
        // It stops: two are settled meanwhile, all else goes back.
        let rest = [
            &batch.arrivals[1],
            &again.arrivals[1],
            &again.arrivals[2],
            &again.arrivals[3],
            &late.arrivals[0],
        ];
        let settling = async {
            assert!(ack_all(&first, &Batch { arrivals: Vec::new(), ..Batch::default() }).await);
            tokio::time::sleep(Duration::from_millis(300)).await;
            let answers = first.settle(vec![ack(batch.arrivals[3].receipt)]).await;
            assert!(matches!(answers[..], [Answer::Closed { done: true, .. }]), "{answers:?}");
            first.settle(rest.iter().map(|it| nack(it, 0, NackReason::GivenBack)).collect()).await;
        };
        tokio::join!(first.stop(), settling);
        let second = queue(&server.uri("back"));
        let batch = take(&second, 5).await;
        assert_eq!(ids(&batch), ["m0", "m1", "m2", "m4", "m5"]);
        assert!(
            batch.arrivals.iter().all(|it| it.deliveries == 1),
            "what was never tried counts for nothing"
        );
        assert!(ack_all(&second, &batch).await);
        assert_eq!(server.counts("back")[..2], [0, 0]);
    });
}

#[test]
fn a_delayed_copy_is_the_same_message() {
    let server = ActiveMqServer::start(&Setup::default());
    let late = body("late", "NEXT_ON_ERROR");
    let post = Post { kind: "bytes", group: "g7", body: &late, properties: &["tenant=t1"] };
    server.publish("copies", &[post], false);
    run(async {
        let queue = queue(&format!("{}?group=property:tenant", server.uri("copies")));
        let mut seen = take(&queue, 1).await;
        let first = seen.arrivals[0].broker_id;
        for deliveries in 1..4 {
            let arrival = &seen.arrivals[0];
            assert_eq!((arrival.broker_id, arrival.deliveries), (first, deliveries));
            assert_eq!((arrival.parcel.id(), arrival.parcel.group()), (&b"late"[..], &b"t1"[..]));
            let start = Instant::now();
            queue.settle(vec![nack(arrival, 2, NackReason::Failed)]).await;
            assert_eq!(server.counts("copies")[..2], [0, 0], "the original is acked, the copy scheduled");
            seen = take(&queue, 1).await;
            assert!(start.elapsed() >= Duration::from_secs(2), "{:?}", start.elapsed());
        }
        queue.settle(vec![nack(&seen.arrivals[0], 1, NackReason::NoRoom)]).await;
        seen = take(&queue, 1).await;
        assert_eq!(seen.arrivals[0].deliveries, 4, "no room is no delivery");
        queue.settle(vec![nack(&seen.arrivals[0], 3, NackReason::Failed)]).await;
        queue.stop().await;
    });
    let copy = server.jms(&["take", "copies", "1"], &[]).concat();
    for part in ["groupID = g7", "persistent = true", "tenant=t1", "corelaneId=ID:"] {
        assert!(copy.contains(part), "{part}: {copy}");
    }
    // Another sender that passes all properties on does not have its message taken for that copy.
    let marked: Vec<&str> =
        copy.split(['{', ',', '}']).map(str::trim).filter(|it| it.starts_with("corelaneId=")).collect();
    server.publish(
        "copies",
        &[Post { properties: &marked, ..post }, Post { properties: &marked, ..post }],
        false,
    );
    run(async {
        let queue = queue(&server.uri("copies"));
        let batch = take(&queue, 2).await;
        assert_ne!(batch.arrivals[0].broker_id, batch.arrivals[1].broker_id, "{marked:?}");
    });
}

#[test]
fn a_broker_without_scheduler_and_statistics_is_enough() {
    let server = ActiveMqServer::start(&Setup { scheduler: false, statistics: false, ..Setup::default() });
    let late = body("late", "NEXT_ON_ERROR");
    server.publish("bare", &[Post { kind: "text", group: "g", body: &late, properties: &[] }], false);
    run(async {
        let queue = queue(&server.uri("bare"));
        let mut seen = take(&queue, 1).await;
        assert_eq!(queue.depth().await, None);
        for deliveries in 1..4 {
            assert_eq!(seen.arrivals[0].deliveries, deliveries);
            let start = Instant::now();
            queue.settle(vec![nack(&seen.arrivals[0], 2, NackReason::Failed)]).await;
            seen = take(&queue, 1).await;
            assert!(start.elapsed() >= Duration::from_millis(1_990), "{deliveries}: {:?}", start.elapsed());
        }
        assert!(ack_all(&queue, &seen).await);
    });
    let seen = server.jms(&["take", "ActiveMQ.Statistics.Destination.bare", "1"], &[]).concat();
    assert_eq!(seen, "", "the question that nobody answered is gone");
}

#[test]
fn a_consumer_that_takes_anothers_place_waits_until_the_broker_has_let_go_of_that_one() {
    let server = ActiveMqServer::start(&Setup::default());
    run(async {
        let first = queue(&server.uri("heir"));
        assert!(receive(&first, 1).await.expect("it connects").connected.is_some());
        let heir = queue(&server.uri("heir"));
        let error = receive(&heir, 1).await.expect_err("the broker still has the first");
        assert!(format!("{error:?}").contains("has not noticed yet"), "{error:?}");
        first.stop().await;
        drop(first);
        let start = Instant::now();
        while receive(&heir, 1).await.is_err() {
            assert!(start.elapsed() < Duration::from_secs(30), "it connects when the first is gone");
        }
    });
}

#[test]
fn two_consumers_share_a_queue_by_groups() {
    let server = ActiveMqServer::start(&Setup::default());
    run(async {
        let both = ["one", "other"].map(|name| queue_named(name, &server.uri("shared")));
        for queue in &both {
            assert!(receive(queue, 1).await.expect("it connects").connected.is_some());
        }
        let names: Vec<(String, String)> =
            (0..40).map(|n| (format!("m{n:02}"), format!("g{}", n % 8))).collect();
        let bodies: Vec<_> = names.iter().map(|(id, _)| body(id, "")).collect();
        let posts: Vec<Post<'_>> = bodies
            .iter()
            .zip(&names)
            .map(|(body, (_, group))| Post { kind: "text", group, body, properties: &[] })
            .collect();
        server.publish("shared", &posts, false);
        let mut got = [Batch::default(), Batch::default()];
        while got.iter().map(|batch| batch.arrivals.len()).sum::<usize>() < 40 {
            for (queue, got) in both.iter().zip(&mut got) {
                got.arrivals.extend(receive(queue, 100).await.expect("messages").arrivals);
            }
        }
        let groups = |batch: &Batch| {
            batch
                .arrivals
                .iter()
                .map(|it| it.parcel.group().to_vec())
                .collect::<std::collections::BTreeSet<_>>()
        };
        let [left, right] = [groups(&got[0]), groups(&got[1])];
        assert!(!left.is_empty() && !right.is_empty() && left.is_disjoint(&right), "{left:?} {right:?}");
        // One goes, and the other gets its groups, in order and as if new.
        both[0].settle(got[0].arrivals.iter().map(|it| nack(it, 0, NackReason::GivenBack)).collect()).await;
        both[0].stop().await;
        let moved = take(&both[1], got[0].arrivals.len()).await;
        assert_eq!(ids(&moved), ids(&got[0]));
        assert!(moved.arrivals.iter().all(|it| it.deliveries == 1));
        assert!(ack_all(&both[1], &moved).await && ack_all(&both[1], &got[1]).await);
        assert_eq!(server.counts("shared")[..2], [0, 0]);
    });
}

#[test]
fn what_the_broker_hands_over_follows_the_room() {
    let server = ActiveMqServer::start(&Setup::default());
    publish(&server, "room", 0, 8_000);
    run(async {
        let queue = queue(&server.uri("room"));
        let (start, mut seen) = (Instant::now(), 600);
        // Much room: all that fits comes at once, though nothing is acked. By itself the broker stops after 200.
        let batch = take(&queue, 600).await;
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        assert_eq!(ids(&batch), names(0, 600));
        assert!(ack_all(&queue, &batch).await);
        // Little room: after a while the broker keeps most of it.
        while server.counts("room")[1] > 40 {
            let batch = take(&queue, 4).await;
            assert_eq!(ids(&batch), names(seen, seen + 4));
            seen += 4;
            assert!(ack_all(&queue, &batch).await);
            assert!(seen < 7_000 && start.elapsed() < SOON, "it never narrows");
            // What is waited for is time: a quick machine would run out of messages before.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(start.elapsed() > Duration::from_secs(4), "it had much for a while");
        // Much room again.
        let batch = take(&queue, 600).await;
        assert_eq!(ids(&batch), names(seen, seen + 600));
        assert!(ack_all(&queue, &batch).await);
    });
}

#[test]
fn the_golden_frames_are_what_activemq_writes() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let installed = Command::new(root.join("tests/services/activemq.sh")).status().expect("bash runs");
    assert!(installed.success());
    let written = Command::new("java")
        .args(["-cp", "/usr/share/activemq/lib/*"])
        .arg(root.join("tests/services/Golden.java"))
        .output()
        .expect("java runs");
    let golden = std::fs::read(root.join("src/broker/activemq/wire/golden.txt")).expect("they are there");
    assert!(written.stdout == golden, "{}", String::from_utf8_lossy(&written.stderr));
}

#[test]
fn large_messages_come_through_a_few_at_a_time() {
    let server = ActiveMqServer::start(&Setup::default());
    let filler = "x".repeat(900 << 10);
    let large = format!(r#"{{"id":"large","mediationTarget":"http://127.0.0.1:1/","new":"{filler}"}}"#);
    let post = Post { kind: "bytes", group: "", body: large.as_bytes(), properties: &[] };
    for _ in 0..8 {
        server.publish("large", &[post; 10], false);
    }
    run(async {
        let queue = queue(&server.uri("large"));
        let batch = take(&queue, 80).await;
        assert_eq!(batch.arrivals.len(), 80);
        assert!(ack_all(&queue, &batch).await, "the confirmation comes behind all of them");
        assert_eq!(server.counts("large")[..2], [0, 0]);
    });
}
