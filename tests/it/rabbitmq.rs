//! The RabbitMQ adapter by itself, against a real server: what the suite of all brokers does not ask. A server takes
//! long to start, so these tests share one, one after another.

use std::cell::RefCell;
use std::num::{NonZeroU16, NonZeroUsize};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use corelane::broker::rabbitmq::RabbitQueue;
use corelane::ingress::{Answer, Batch, Connected, ReceiveError, Scope, Source};
use corelane::topology::{QueueEntry, QueueUri};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Connection, ConnectionProperties};
use parking_lot::Mutex;
use rustix::process::Signal;
use shards::desk::{Receipt, Tell};
use shards::model::{IdHash, IdHasher, NackReason, SourceId, Ticket};

use crate::nats::proxy::Proxy;
use crate::support::rabbitmq::RabbitServer;
use crate::support::wait::until;

/// Long enough for anything here.
const SOON: Duration = Duration::from_secs(60);

/// The server that these tests share; it ends with the last of them.
fn server() -> Arc<Mutex<RabbitServer>> {
    static SHARED: Mutex<Weak<Mutex<RabbitServer>>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock();
    shared.upgrade().unwrap_or_else(|| {
        let server = Arc::new(Mutex::new(RabbitServer::start("")));
        *shared = Arc::downgrade(&server);
        server
    })
}

fn run<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

fn queue(uri: &str) -> RabbitQueue {
    let entry = QueueEntry {
        name: "q".into(),
        uri: QueueUri::parse(uri).expect("a broker's scheme"),
        connections: NonZeroU16::MIN,
        visibility: None,
        ordering: None,
        attempts_max: 0,
    };
    let mut queue = RabbitQueue::new(&entry).expect("a well-formed URI");
    queue.open().expect("it does not connect yet");
    queue
}

async fn receive(queue: &RabbitQueue, max: usize) -> Result<Batch, ReceiveError> {
    let scope = Scope::new(IdHasher::new((1, 2)), SourceId(0));
    queue.receive(scope, NonZeroUsize::new(max).expect("not zero")).await
}

/// What a source told: the messages, and the last connection.
#[derive(Default)]
struct Told {
    messages: Vec<(String, IdHash, Receipt, u16)>,
    connected: Option<Connected>,
}

impl Told {
    fn ids(&self) -> Vec<&str> {
        self.messages.iter().map(|(id, ..)| id.as_str()).collect()
    }

    fn identities(&self) -> Vec<IdHash> {
        self.messages.iter().map(|&(_, identity, ..)| identity).collect()
    }

    fn receipts(&self) -> Vec<Receipt> {
        self.messages.iter().map(|&(_, _, receipt, _)| receipt).collect()
    }
}

/// Receives until `count` messages came.
async fn some(queue: &RabbitQueue, count: usize) -> Told {
    let (start, mut told) = (Instant::now(), Told::default());
    while told.messages.len() < count {
        match receive(queue, count - told.messages.len()).await {
            Ok(batch) => {
                told.connected = batch.connected.or(told.connected);
                told.messages.extend(batch.arrivals.into_iter().map(|arrival| {
                    let id = String::from_utf8_lossy(arrival.parcel.id()).into_owned();
                    (id, arrival.broker_id, arrival.receipt, arrival.deliveries)
                }));
            }
            Err(ReceiveError::Unreachable(_)) => {}
            Err(error) => panic!("{error}"),
        }
        assert!(start.elapsed() < SOON, "{count} do not come: {:?}", told.ids());
    }
    told
}

async fn ack(queue: &RabbitQueue, receipts: Vec<Receipt>) -> Vec<bool> {
    let tell = |receipt| (receipt, Tell::Ack { ticket: Some(Ticket::default()) });
    let answers = queue.settle(receipts.into_iter().map(tell).collect()).await;
    let done = |answer| match answer {
        Answer::Closed { done, .. } => done,
        other => panic!("{other:?}"),
    };
    answers.into_iter().map(done).collect()
}

async fn nack(queue: &RabbitQueue, receipts: Vec<Receipt>) {
    let tell = |receipt| (receipt, Tell::Nack { delay_s: 0, reason: NackReason::GivenBack });
    assert!(queue.settle(receipts.into_iter().map(tell).collect()).await.is_empty());
}

/// Makes a durable queue with messages `m0`, `m1`, …
async fn prepare(server: &RabbitServer, queue: &str, arguments: FieldTable, count: usize) {
    let uri = format!("amqp://{}/%2f", server.address);
    let connection = Connection::connect(&uri, ConnectionProperties::default()).await.expect("it accepts us");
    let channel = connection.create_channel().await.expect("a channel");
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(queue.into(), durable, arguments).await.expect("a queue");
    channel.confirm_select(ConfirmSelectOptions::default()).await.expect("it confirms");
    let mut sent = Vec::new();
    for n in 0..count {
        let body = format!(r#"{{"id":"m{n}","mediationTarget":"http://127.0.0.1:1/","messageGroupId":"g"}}"#);
        let options = BasicPublishOptions::default();
        let properties = BasicProperties::default().with_delivery_mode(2);
        let publish = channel.basic_publish("".into(), queue.into(), options, body.as_bytes(), properties);
        sent.push(publish.await.expect("it is sent"));
    }
    for sent in sent {
        assert!(sent.await.expect("it answers").is_ack());
    }
    connection.close(200, "OK".into()).await.expect("goodbye");
}

fn quorum(limit: Option<i32>) -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    if let Some(limit) = limit {
        arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(limit));
    }
    arguments
}

/// Waits until a classic queue has so many messages ready and unsettled. It answers questions before it works off acks.
fn wait_counts(server: &mut RabbitServer, queue: &str, want: &str) {
    let last = RefCell::new(String::new());
    let is_so = || {
        *last.borrow_mut() = counts(server, queue);
        *last.borrow() == want
    };
    until(SOON, want, is_so, || last.borrow().clone());
}

/// Ready and unsettled messages of a classic queue, as it counts them itself.
fn counts(server: &mut RabbitServer, queue: &str) -> String {
    let ask = format!(
        "{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"/\">>, queue, <<\"{queue}\">>)), \
         [N || {{_, N}} <- rabbit_amqqueue:info(Q, [messages_ready, messages_unacknowledged])]."
    );
    server.eval(&ask).expect("it counts")
}

fn names(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("m{n}")).collect()
}

#[test]
fn a_tag_of_a_lost_channel_settles_nothing_and_messages_are_known_again() {
    let server = server();
    let mut server = server.lock();
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
fn what_the_server_pushes_is_bounded_by_the_window_and_the_window_follows_the_room() {
    let server = server();
    let mut server = server.lock();
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

#[test]
fn nothing_is_held_so_long_that_the_server_closes_the_channel() {
    let server = server();
    let mut server = server.lock();
    let set = "application:set_env(rabbit, consumer_timeout, 3000), \
               application:set_env(rabbit, channel_tick_interval, 500).";
    server.eval(set).expect("a short patience");
    run(async {
        let complaint = "delivery acknowledgement on channel";
        prepare(&server, "long", FieldTable::default(), 2).await;
        let careful = queue(&format!("amqp://{}/long?consumer-timeout=3s", server.address));
        let first = some(&careful, 2).await;
        let again = some(&careful, 2).await;
        assert_eq!((again.ids(), again.identities()), (first.ids(), first.identities()));
        assert!(!server.said().contains(complaint), "renewed before: {}", server.said());
        careful.stop().await;
        nack(&careful, again.receipts()).await;
        // One that is not told of it is closed by the server, and comes back.
        let careless = queue(&format!("amqp://{}/long?consumer-timeout=none", server.address));
        let first = some(&careless, 2).await;
        let again = some(&careless, 2).await;
        assert_eq!((again.ids(), again.identities()), (first.ids(), first.identities()));
        assert!(server.said().contains(complaint), "that was the reason: {}", server.said());
        assert_eq!(ack(&careless, again.receipts()).await, [true; 2]);
    });
    let unset = "application:set_env(rabbit, consumer_timeout, 1800000), \
                 application:set_env(rabbit, channel_tick_interval, 60000).";
    server.eval(unset).expect("patience again");
}

#[test]
fn giving_back_does_not_bring_a_message_near_its_delivery_limit() {
    let server = server();
    let server = server.lock();
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
    let server = server();
    let server = server.lock();
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
fn a_new_consumer_goes_on_where_the_old_one_ends() {
    let server = server();
    let mut server = server.lock();
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
    let server = server();
    let server = server.lock();
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
    let server = server();
    let server = server.lock();
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
