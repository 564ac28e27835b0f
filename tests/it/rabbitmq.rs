//! The RabbitMQ adapter by itself, against a real server: what the suite of all brokers does not ask.

mod stage;

use std::rc::Rc;
use std::time::{Duration, Instant};

use corelane::ingress::{ReceiveError, Source};
use lapin::types::FieldTable;
use rustix::process::Signal;

use crate::nats::proxy::Proxy;
use crate::support::wait::until;
use stage::{
    SOON, Told, ack, counts, nack, names, prepare, queue, queue_after, quorum, receive, run, some, stage,
    wait_counts,
};

#[test]
fn a_tag_of_a_lost_channel_settles_nothing_and_messages_are_known_again() {
    let stage = stage();
    let mut server = stage.server.lock();
    run(async {
        prepare(&server, "stale", FieldTable::default(), 3).await;
        let proxy = Proxy::new(server.address);
        let queue = queue(&format!("amqp://{}/stale", proxy.address));
        let first = some(&queue, 3).await;
        assert_eq!(ack(&queue, vec![first.receipts()[0]]).await, [true]);
        assert!(proxy.cut() > 0);
        let second = some(&queue, 2).await;
        assert_eq!(second.ids(), ["m1", "m2"]);
        assert_eq!(second.identities(), first.identities()[1..], "the same messages, not twins");
        // Tags 1 and 2 of the new channel are m1 and m2; of the old one they were m0 and m1.
        assert_eq!(ack(&queue, first.receipts()).await, [false; 3]);
        assert_eq!(counts(&mut server, "stale"), "[0,2]", "nothing was acked by old tags");
        assert_eq!(ack(&queue, second.receipts()).await, [true; 2]);
        assert_eq!(ack(&queue, second.receipts()).await, [false; 2], "told twice");
        wait_counts(&mut server, "stale", "[0,0]");
    });
}

#[test]
fn what_the_server_pushes_is_bounded_by_the_prefetch_which_follows_the_room() {
    let stage = stage();
    let mut server = stage.server.lock();
    run(async {
        prepare(&server, "full", FieldTable::default(), 1_500).await;
        let small = queue(&format!("amqp://{}/full?prefetch=10", server.address));
        some(&small, 4).await;
        wait_counts(&mut server, "full", "[1490,10]"); // A full pool: no more than the uri says.
        drop(small);
        let queue = queue(&format!("amqp://{}/full", server.address));
        let first = some(&queue, 512).await;
        wait_counts(&mut server, "full", "[988,512]");
        // There is room for more: the same 512 come again, and the rest after them.
        let all = some(&queue, 1_500).await;
        assert_eq!(all.ids(), names(0..1_500));
        assert_eq!(all.identities()[..512], first.identities());
        assert!(ack(&queue, all.receipts()).await.into_iter().all(|done| done));
        wait_counts(&mut server, "full", "[0,0]");
    });
}

/// A session is looked after once a second, and that must not take a waiting receive's wake-up from it.
#[test]
fn a_message_that_comes_while_a_receive_waits_is_handed_over_at_once() {
    let stage = stage();
    let server = stage.server.lock();
    run(async {
        prepare(&server, "woken", FieldTable::default(), 0).await;
        let queue = Rc::new(queue(&format!("amqp://{}/woken", server.address)));
        assert!(receive(&queue, 1).await.expect("it connects").connected.is_some());
        let opened = tokio::time::Instant::now();
        let mut took = Vec::new();
        for second in [1, 3, 5] {
            let looked_after = opened + Duration::from_secs(second);
            tokio::time::sleep_until(looked_after - Duration::from_millis(50)).await;
            let own = Rc::clone(&queue);
            // A task of its own: only what it waits for wakes it.
            let received = tokio::task::spawn_local(async move { (some(&own, 1).await, Instant::now()) });
            tokio::time::sleep_until(looked_after + Duration::from_millis(50)).await;
            prepare(&server, "woken", FieldTable::default(), 1).await;
            let published = Instant::now();
            let (told, at) = received.await.expect("it does not panic");
            took.push(at.saturating_duration_since(published));
            assert_eq!(ack(&queue, told.receipts()).await, [true]);
        }
        // A poll is a second long.
        assert!(took.iter().any(|it| *it < Duration::from_millis(300)), "{took:?}");
    });
}

#[test]
fn nothing_is_held_so_long_that_the_server_closes_the_channel() {
    let stage = stage();
    let mut server = stage.server.lock();
    let set = "application:set_env(rabbit, consumer_timeout, 3000), \
               application:set_env(rabbit, channel_tick_interval, 500).";
    server.eval(set).expect("a short patience");
    let complaint = "delivery acknowledgement on channel";
    run(async {
        prepare(&server, "long", FieldTable::default(), 2).await;
        let careful = queue(&format!("amqp://{}/long?consumer-timeout=3s", server.address));
        let first = some(&careful, 2).await;
        let again = some(&careful, 2).await;
        assert_eq!((again.ids(), again.identities()), (first.ids(), first.identities()));
        careful.stop().await;
        nack(&careful, again.receipts()).await;
        // One that is not told of it is closed by the server, and comes back.
        let careless = queue(&format!("amqp://{}/long?consumer-timeout=none", server.address));
        let first = some(&careless, 2).await;
        let again = some(&careless, 2).await;
        assert_eq!((again.ids(), again.identities()), (first.ids(), first.identities()));
        assert_eq!(ack(&careless, again.receipts()).await, [true; 2]);
    });
    // The server writes its log some seconds late.
    let complaints = || server.said().matches(complaint).count();
    until(SOON, "the server says that this was the reason", || complaints() > 0, || server.said());
    assert_eq!(complaints(), 1, "the careful one was never closed: {}", server.said());
    let unset = "application:set_env(rabbit, consumer_timeout, 1800000), \
                 application:set_env(rabbit, channel_tick_interval, 60000).";
    server.eval(unset).expect("patience again");
}

#[test]
fn giving_back_does_not_bring_a_message_near_its_delivery_limit() {
    let stage = stage();
    let server = stage.server.lock();
    run(async {
        prepare(&server, "limited", quorum(Some(3)), 2).await;
        let proxy = Proxy::new(server.address);
        let queue = queue(&format!("amqp://{}/limited?delivery-limit=3", proxy.address));
        let mut told = some(&queue, 2).await;
        assert_eq!(told.connected.as_ref().and_then(|it| it.spec.deliveries_max), Some(3));
        for _ in 0..10 {
            nack(&queue, told.receipts()).await;
            told = some(&queue, 2).await;
            assert_eq!(told.ids(), ["m0", "m1"], "in order, and the server has not counted");
        }
        let count = |told: &Told| told.messages.iter().map(|&(.., count)| count).collect::<Vec<_>>();
        assert_eq!(count(&told), [0, 0], "the first hand-over has no count");
        assert!(proxy.cut() > 0);
        let told = some(&queue, 2).await;
        assert_eq!((told.ids(), count(&told)), (vec!["m0", "m1"], vec![2, 2]), "a lost connection counts");
        assert_eq!(ack(&queue, told.receipts()).await, [true; 2]);
    });
}

#[test]
fn after_a_stop_all_is_back_in_its_old_order() {
    let stage = stage();
    let server = stage.server.lock();
    run(async {
        for (name, arguments) in [("back", FieldTable::default()), ("back-quorum", quorum(None))] {
            prepare(&server, name, arguments, 200).await;
            let uri = format!("amqp://{}/{name}", server.address);
            let first = queue(&uri);
            let told = some(&first, 60).await;
            let receipts = told.receipts();
            // Some went back before, some go back now, one is still running, the rest nobody has received.
            nack(&first, receipts[5..20].to_vec()).await;
            first.stop().await;
            nack(&first, receipts[20..60].to_vec()).await;
            nack(&first, receipts[1..5].to_vec()).await;
            assert_eq!(ack(&first, vec![receipts[0]]).await, [true]);
            drop(first);
            let second = queue(&uri);
            let told = some(&second, 199).await;
            assert_eq!(told.ids(), names(1..200), "{name}");
            assert!(ack(&second, told.receipts()).await.into_iter().all(|done| done));
        }
    });
}

#[test]
fn after_an_unclean_end_what_a_dead_connection_still_has_comes_first() {
    let stage = stage();
    let server = stage.server.lock();
    run(async {
        for (name, arguments) in [("dead", FieldTable::default()), ("dead-quorum", quorum(None))] {
            prepare(&server, name, arguments, 5).await;
            // A host that lost its power: the server does not hear of it.
            let proxy = Proxy::new(server.address);
            let dead = queue(&format!("amqp://{}/{name}?prefetch=2", proxy.address));
            assert_eq!(some(&dead, 2).await.ids(), names(0..2));
            let next = queue_after(&format!("amqp://{}/{name}", server.address), true);
            let noticed = async {
                tokio::time::sleep(Duration::from_secs(2)).await;
                assert!(proxy.cut() > 0);
                drop(dead);
            };
            let (told, ()) = tokio::join!(some(&next, 5), noticed);
            assert_eq!(told.ids(), names(0..5), "{name}");
            assert!(ack(&next, told.receipts()).await.into_iter().all(|done| done));
            next.stop().await;
        }
    });
}

#[test]
fn a_new_consumer_goes_on_where_the_old_one_ends() {
    let stage = stage();
    let mut server = stage.server.lock();
    run(async {
        prepare(&server, "heir", FieldTable::default(), 20).await;
        let uri = format!("amqp://{}/heir", server.address);
        let old = queue(&uri);
        let had = some(&old, 5).await;
        let new = queue(&uri);
        old.stop().await;
        let rest = some(&new, 15).await;
        assert_eq!(rest.ids(), names(5..20), "nothing comes again, nothing is left out");
        assert_eq!(ack(&old, had.receipts()).await, [true; 5], "what is running is acked by the old one");
        assert_eq!(ack(&new, rest.receipts()).await, [true; 15]);
        new.stop().await;
        wait_counts(&mut server, "heir", "[0,0]");
    });
}

#[test]
fn a_server_that_hangs_is_noticed_and_waited_for() {
    let stage = stage();
    let server = stage.server.lock();
    run(async {
        prepare(&server, "hung", FieldTable::default(), 1).await;
        let queue = queue(&format!("amqp://{}/hung", server.address));
        let first = some(&queue, 1).await;
        server.signal(Signal::STOP);
        let start = Instant::now();
        let error = loop {
            match receive(&queue, 10).await {
                Ok(batch) => assert!(batch.is_empty() && start.elapsed() < SOON, "it hangs"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, ReceiveError::Unreachable(_)), "{error}");
        assert_eq!(ack(&queue, first.receipts()).await, [false], "nobody has taken it");
        server.signal(Signal::CONT);
        let again = some(&queue, 1).await;
        assert_eq!(again.identities(), first.identities());
        assert_eq!(ack(&queue, again.receipts()).await, [true]);
    });
}

#[test]
fn what_an_operator_must_mend_is_said_in_words() {
    let stage = stage();
    let server = stage.server.lock();
    run(async {
        let at = server.address;
        let rows = [
            (format!("amqp://{at}/none"), "there is no queue none"),
            (format!("amqp://{at}/nowhere/none"), "there is no vhost nowhere"),
            (format!("amqp://guest:hunter2@{at}/none"), "refuses the credentials"),
        ];
        for (uri, part) in rows {
            match receive(&queue(&uri), 1).await {
                Err(ReceiveError::Denied { queue }) => {
                    assert!(queue.contains(part) && !queue.contains("hunter2"), "{queue}");
                }
                other => panic!("{uri}: {other:?}"),
            }
        }
        // Where nobody listens, and where something else does.
        let web = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let silent = web.local_addr().expect("it is bound");
        let unreachable = receive(&queue(&format!("amqp://127.0.0.1:1,{silent}/q")), 1).await;
        let Err(ReceiveError::Unreachable(error)) = unreachable else { panic!("{unreachable:?}") };
        let said = error.to_string();
        assert!(said.contains("127.0.0.1:1: ") && said.contains("no answer"), "both are named: {said}");
    });
}

#[test]
fn a_server_is_trusted_by_the_authority_that_the_uri_names() {
    let stage = stage();
    let server = stage.server.lock();
    run(async {
        prepare(&server, "sealed", FieldTable::default(), 1).await;
        let (port, cert) = (stage.tls.port(), &stage.cert);
        let trusted = queue(&format!("amqps://localhost:{port}/sealed?ca={}", cert.display()));
        let told = some(&trusted, 1).await;
        assert_eq!(ack(&trusted, told.receipts()).await, [true]);
        let unknown = receive(&queue(&format!("amqps://localhost:{port}/sealed")), 1).await;
        let Err(ReceiveError::Unreachable(error)) = unknown else { panic!("{unknown:?}") };
        assert!(error.to_string().to_lowercase().contains("certificate"), "{error}");
        let other = server.dir.join("rabbitmq.conf");
        let wrong =
            receive(&queue(&format!("amqps://localhost:{port}/sealed?ca={}", other.display())), 1).await;
        let Err(ReceiveError::Denied { queue }) = wrong else { panic!("{wrong:?}") };
        assert!(queue.contains("no certificate"), "{queue}");
    });
}

#[test]
fn a_server_that_is_short_of_memory_is_still_consumed() {
    let stage = stage();
    let mut server = stage.server.lock();
    run(async {
        prepare(&server, "short", FieldTable::default(), 600).await;
        server.eval("vm_memory_monitor:set_vm_memory_high_watermark(0.0001).").expect("an alarm");
        let queue = queue(&format!("amqp://{}/short", server.address));
        let told = some(&queue, 300).await;
        assert!(ack(&queue, told.receipts()).await.into_iter().all(|done| done));
        let told = some(&queue, 300).await;
        assert!(ack(&queue, told.receipts()).await.into_iter().all(|done| done));
        server
            .eval("vm_memory_monitor:set_vm_memory_high_watermark({absolute, 400000000}).")
            .expect("all clear");
    });
}
