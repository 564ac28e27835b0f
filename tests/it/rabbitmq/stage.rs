//! What the tests of the RabbitMQ adapter share: a server, which takes long to start, and words for a source.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroUsize};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use corelane::broker::rabbitmq::RabbitQueue;
use corelane::ingress::{Answer, Batch, Connected, ReceiveError, Scope, Source};
use corelane::topology::{QueueEntry, QueueUri};
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Connection, ConnectionProperties};
use parking_lot::Mutex;
use shards::desk::{Receipt, Tell};
use shards::model::{IdHash, IdHasher, NackReason, SourceId, Ticket};

use crate::support::ports::free_address;
use crate::support::rabbitmq::RabbitServer;
use crate::support::router::Dir;
use crate::support::wait::until;

/// Long enough for anything here.
pub(super) const SOON: Duration = Duration::from_secs(60);

/// The server that these tests share, one after another; it ends with the last of them.
pub(super) struct Stage {
    pub(super) server: Mutex<RabbitServer>,
    /// Its certificate, and where it listens with TLS.
    pub(super) cert: PathBuf,
    pub(super) tls: SocketAddr,
    _dir: Dir,
}

pub(super) fn stage() -> Arc<Stage> {
    static SHARED: Mutex<Weak<Stage>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock();
    shared.upgrade().unwrap_or_else(|| {
        let stage = Arc::new(Stage::start());
        *shared = Arc::downgrade(&stage);
        stage
    })
}

impl Stage {
    fn start() -> Self {
        let dir = Dir::new();
        let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("a certificate");
        let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
        std::fs::write(&cert, made.cert.pem()).expect("it is written");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("it is written");
        let tls = free_address();
        let config = format!(
            "listeners.ssl.1 = {tls}\nssl_options.certfile = {}\nssl_options.keyfile = {}",
            cert.display(),
            key.display()
        );
        Self { server: Mutex::new(RabbitServer::start(&config)), cert, tls, _dir: dir }
    }
}

pub(super) fn run<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

pub(super) fn queue(uri: &str) -> RabbitQueue {
    queue_after(uri, false)
}

/// A consumer in a process whose predecessor ended cleanly, or not.
pub(super) fn queue_after(uri: &str, unclean: bool) -> RabbitQueue {
    let entry = QueueEntry {
        name: "q".into(),
        uri: QueueUri::parse(uri).expect("a broker's scheme"),
        connections: NonZeroU16::MIN,
        visibility: None,
        ordering: None,
        attempts_max: 0,
    };
    let mut queue = RabbitQueue::new(&entry).expect("a well-formed URI");
    queue.open(unclean).expect("it does not connect yet");
    queue
}

pub(super) async fn receive(queue: &RabbitQueue, max: usize) -> Result<Batch, ReceiveError> {
    let scope = Scope::new(IdHasher::new((1, 2)), SourceId(0));
    queue.receive(scope, NonZeroUsize::new(max).expect("not zero")).await
}

/// What a source told: the messages, and the last connection.
#[derive(Default)]
pub(super) struct Told {
    pub(super) messages: Vec<(String, IdHash, Receipt, u16)>,
    pub(super) connected: Option<Connected>,
}

impl Told {
    pub(super) fn ids(&self) -> Vec<&str> {
        self.messages.iter().map(|(id, ..)| id.as_str()).collect()
    }

    pub(super) fn identities(&self) -> Vec<IdHash> {
        self.messages.iter().map(|&(_, identity, ..)| identity).collect()
    }

    pub(super) fn receipts(&self) -> Vec<Receipt> {
        self.messages.iter().map(|&(_, _, receipt, _)| receipt).collect()
    }
}

/// Receives until `count` messages came.
pub(super) async fn some(queue: &RabbitQueue, count: usize) -> Told {
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

pub(super) async fn ack(queue: &RabbitQueue, receipts: Vec<Receipt>) -> Vec<bool> {
    let tell = |receipt| (receipt, Tell::Ack { ticket: Some(Ticket::default()) });
    let answers = queue.settle(receipts.into_iter().map(tell).collect()).await;
    let done = |answer| match answer {
        Answer::Closed { done, .. } => done,
        other => panic!("{other:?}"),
    };
    answers.into_iter().map(done).collect()
}

pub(super) async fn nack(queue: &RabbitQueue, receipts: Vec<Receipt>) {
    let tell = |receipt| (receipt, Tell::Nack { delay_s: 0, reason: NackReason::GivenBack });
    assert!(queue.settle(receipts.into_iter().map(tell).collect()).await.is_empty());
}

/// Makes a durable queue with messages `m0`, `m1`, …
pub(super) async fn prepare(server: &RabbitServer, queue: &str, arguments: FieldTable, count: usize) {
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

pub(super) fn quorum(limit: Option<i32>) -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    if let Some(limit) = limit {
        arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(limit));
    }
    arguments
}

/// Waits until a classic queue has so many messages ready and unsettled. It answers questions before it works off acks.
pub(super) fn wait_counts(server: &mut RabbitServer, queue: &str, want: &str) {
    let last = RefCell::new(String::new());
    let is_so = || {
        *last.borrow_mut() = counts(server, queue);
        *last.borrow() == want
    };
    until(SOON, want, is_so, || last.borrow().clone());
}

/// Ready and unsettled messages of a classic queue, as it counts them itself.
pub(super) fn counts(server: &mut RabbitServer, queue: &str) -> String {
    let ask = format!(
        "{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"/\">>, queue, <<\"{queue}\">>)), \
         [N || {{_, N}} <- rabbit_amqqueue:info(Q, [messages_ready, messages_unacknowledged])]."
    );
    server.eval(&ask).expect("it counts")
}

pub(super) fn names(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| format!("m{n}")).collect()
}
