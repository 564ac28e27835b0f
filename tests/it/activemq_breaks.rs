//! ActiveMQ connections that break or hang, and a broker that crashes: nothing is lost, overtaken or acked by mistake.

use super::*;
use crate::nats::proxy::Proxy;

#[test]
fn a_receipt_of_a_lost_connection_is_never_used() {
    let server = ActiveMqServer::start(&Setup::default());
    let proxy = Proxy::new(server.address);
    publish(&server, "cut", 0, 3);
    run(async {
        let queue = queue(&format!("activemq://{USER}:{PASSWORD}@{}/cut", proxy.address));
        let first = take(&queue, 3).await;
        // One waits here for a while: it must not come earlier because the connection broke.
        queue.settle(vec![nack(&first.arrivals[2], 4, NackReason::NoRoom)]).await;
        let waits_until = Instant::now() + Duration::from_secs(4);
        assert!(proxy.cut() > 0);
        let lost = receive(&queue, 1).await;
        assert!(
            matches!(&lost, Err(ReceiveError::Unreachable(error)) if error.to_string().contains("closed")),
            "{lost:?}"
        );
        let late = queue.settle(vec![ack(first.arrivals[0].receipt)]).await;
        assert!(matches!(late[..], [Answer::Closed { done: false, .. }]), "{late:?}");
        let second = take(&queue, 2).await;
        assert_eq!(ids(&second), names(0, 2));
        for (old, new) in first.arrivals.iter().zip(&second.arrivals) {
            assert_eq!((old.broker_id, new.deliveries), (new.broker_id, 2));
            assert!(new.receipt.epoch > old.receipt.epoch && new.receipt.key != old.receipt.key);
        }
        // The old receipts again, now that there is a connection.
        let stale = first.arrivals[..2].iter().map(|it| ack(it.receipt)).collect();
        let stale = queue.settle(stale).await;
        assert!(stale.iter().all(|it| matches!(it, Answer::Closed { done: false, .. })), "{stale:?}");
        assert_eq!(server.counts("cut")[0], 3, "nothing was acked by them");
        assert!(ack_all(&queue, &second).await);
        let third = take(&queue, 1).await;
        assert!(Instant::now() >= waits_until, "its wait outlives the connection");
        assert_eq!(ids(&third), names(2, 3));
        assert!(ack_all(&queue, &third).await);
        assert_eq!(server.counts("cut")[0], 0);
    });
}

#[test]
fn a_crash_while_copies_are_made_loses_nothing() {
    let mut server = ActiveMqServer::start(&Setup::default());
    for round in 0..3 {
        let name = format!("crash-{round}");
        let bodies: Vec<_> = (0..60).map(|n| body(&format!("m{n}"), "NEXT_ON_ERROR")).collect();
        let post = |body| Post { kind: "text", group: "g", body, properties: &[] };
        let posts: Vec<Post<'_>> = bodies.iter().map(|body| post(body)).collect();
        server.publish(&name, &posts, false);
        run(async {
            let queue = queue(&server.uri(&name));
            let batch = take(&queue, 60).await;
            let settling = async {
                for part in batch.arrivals.chunks(6) {
                    queue.settle(part.iter().map(|it| nack(it, 1, NackReason::Failed)).collect()).await;
                }
            };
            let crash = async {
                tokio::time::sleep(Duration::from_millis(15 + 40 * round)).await;
                server.kill();
            };
            tokio::join!(settling, crash);
            server.launch();
            let mut seen = std::collections::BTreeSet::new();
            while seen.len() < 60 {
                let batch = take(&queue, 1).await;
                seen.extend(ids(&batch));
                assert!(ack_all(&queue, &batch).await);
            }
            queue.stop().await;
        });
    }
}

#[test]
fn the_order_holds_over_one_break_after_another() {
    let server = ActiveMqServer::start(&Setup::default());
    let proxy = Proxy::new(server.address);
    publish(&server, "breaks", 0, 600);
    run(async {
        let queue = queue(&format!("activemq://{USER}:{PASSWORD}@{}/breaks?prefetch=300", proxy.address));
        for _ in 0..4 {
            // Few are taken: of what the broker handed over, most waits here when the connection breaks.
            assert_eq!(ids(&take(&queue, 20).await), names(0, 20));
            assert!(proxy.cut() > 0);
            // What still comes of it does not matter: all of it comes again.
            while receive(&queue, 1).await.is_ok() {}
        }
        let mut seen = Vec::new();
        while seen.len() < 600 {
            let batch = take(&queue, 50).await;
            seen.extend(ids(&batch));
            assert!(ack_all(&queue, &batch).await);
        }
        assert_eq!(seen, names(0, 600));
    });
}

#[test]
fn after_a_hang_what_is_hidden_comes_before_what_is_new() {
    let server = ActiveMqServer::start(&Setup::default());
    let proxy = Proxy::new(server.address);
    // No group that the broker knows: it would not give another consumer the group's newer messages.
    let post = |n: usize| {
        let body = body(&format!("m{n}"), "BLOCK_ON_ERROR");
        server.publish("hang", &[Post { kind: "text", group: "", body: &body, properties: &[] }], false);
    };
    run(async {
        let queue = queue(&format!("activemq://{USER}:{PASSWORD}@{}/hang", proxy.address));
        post(0);
        let first = take(&queue, 1).await;
        assert!(ack_all(&queue, &first).await);
        proxy.hang();
        tokio::time::sleep(Duration::from_millis(100)).await;
        // The broker hands these to a connection that nobody hears any more.
        (1..4).for_each(post);
        assert_eq!(server.counts("hang")[..2], [3, 3]);
        let lost = loop {
            if let Err(error) = receive(&queue, 10).await {
                break error;
            }
        };
        let ReceiveError::Unreachable(why) = lost else { panic!("{lost}") };
        assert!(why.to_string().contains("nothing was heard"), "{why}");
        while receive(&queue, 10).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // There is a connection again; a broker that still had the old one would give it some of these.
        (4..10).for_each(post);
        assert_eq!(ids(&take(&queue, 9).await), names(1, 10));
    });
}
