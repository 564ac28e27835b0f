//! RabbitMQ: durable queues, classic and quorum, messages that are confirmed as kept.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use futures_lite::StreamExt;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
    QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties};

use crate::broker::{Broker, Counts, Draft};
use crate::stage::SOON;
use crate::support::rabbitmq::RabbitServer;
use crate::support::wait::until;

const PERSISTENT: u8 = 2;
const UNAWAITED_MAX: usize = 100;

/// Which queues the cases get.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flavour {
    Classic,
    Quorum,
}

struct Rabbit {
    flavour: Flavour,
    server: RabbitServer,
    runtime: tokio::runtime::Runtime,
    version: String,
    /// Queues that are there.
    queues: Vec<String>,
}

/// Classic queues.
pub(crate) fn start_classic() -> Box<dyn Broker> {
    Box::new(Rabbit::start(Flavour::Classic))
}

/// Quorum queues.
pub(crate) fn start_quorum() -> Box<dyn Broker> {
    Box::new(Rabbit::start(Flavour::Quorum))
}

impl Rabbit {
    fn start(flavour: Flavour) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("rabbitmq: a runtime");
        let mut server = RabbitServer::start("");
        let version = server.eval("list_to_atom(rabbit_misc:version()).").expect("rabbitmq: its version");
        Self { flavour, server, runtime, version: version.trim_matches('\'').to_owned(), queues: Vec::new() }
    }

    fn with<F: Future>(&self, work: impl FnOnce(Channel) -> F) -> F::Output {
        self.runtime.block_on(async {
            let uri = format!("amqp://guest:guest@{}/%2f", self.server.address);
            let connection = Connection::connect(&uri, ConnectionProperties::default()).await;
            let connection = connection.expect("rabbitmq: it accepts us");
            let channel = connection.create_channel().await.expect("rabbitmq: a channel");
            let done = work(channel.clone()).await;
            connection.close(200, "OK".into()).await.expect("rabbitmq: goodbye");
            done
        })
    }

    /// A passive declare counts only what is ready, and tools and statistics are late. So the queue's own process is
    /// asked: `{all,held}`.
    fn count(&mut self, queue: &str) -> Result<String, String> {
        let found =
            format!("{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"/\">>, queue, <<\"{queue}\">>))");
        let ask = match self.flavour {
            Flavour::Classic => {
                "[{_, Ready}, {_, Held}] = rabbit_amqqueue:info(Q, [messages_ready, messages_unacknowledged]), \
                 {Ready + Held, Held}."
            }
            Flavour::Quorum => {
                "Ask = fun(F) -> {ok, N, _} = ra:consistent_query(amqqueue:get_pid(Q), F), N end, \
                 Left = Ask(fun rabbit_fifo:query_messages_total/1), \
                 {Left, Left - Ask(fun rabbit_fifo:query_messages_ready/1)}."
            }
        };
        self.server.eval(&format!("{found}, {ask}"))
    }
}

impl Broker for Rabbit {
    fn name(&self) -> &'static str {
        match self.flavour {
            Flavour::Classic => "rabbitmq",
            Flavour::Quorum => "rabbitmq-quorum",
        }
    }

    fn version(&self) -> String {
        let queues = if self.flavour == Flavour::Quorum { "quorum" } else { "classic" };
        format!("RabbitMQ {}, {queues} queues", self.version)
    }

    fn lease_min(&self) -> Option<Duration> {
        None
    }

    fn make_queue(&mut self, queue: &str, _lease: Duration) {
        let mut arguments = FieldTable::default();
        if self.flavour == Flavour::Quorum {
            arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        }
        self.with(|channel| async move {
            let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
            channel.queue_declare(queue.into(), options, arguments).await.expect("rabbitmq: a queue");
        });
        // The server writes to its disk that there is a queue some seconds later. One that is killed before knows nothing
        // of a classic queue, and makes an empty one without a leader of a quorum queue.
        let synced = self.server.eval("ok = mnesia:sync_log(), [dets:sync(Table) || Table <- dets:all()].");
        synced.expect("rabbitmq: the queue is on its disk");
        self.queues.push(queue.to_owned());
    }

    fn delete_queue(&mut self, queue: &str) {
        self.with(|channel| async move {
            let deleted = channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await;
            deleted.expect("rabbitmq: it goes");
        });
        self.queues.retain(|other| other != queue);
    }

    fn uri(&self, queue: &str) -> String {
        self.uri_at(queue, self.server.address)
    }

    fn uri_at(&self, queue: &str, at: SocketAddr) -> String {
        format!("amqp://guest:guest@{at}/%2F/{queue}")
    }

    fn uri_refused(&self, queue: &str) -> String {
        format!("amqp://guest:wrong-secret@{}/%2F/{queue}", self.server.address)
    }

    fn address(&self) -> SocketAddr {
        self.server.address
    }

    fn publish(&mut self, queue: &str, drafts: &[Draft]) {
        self.with(|channel| async move {
            let select = channel.confirm_select(ConfirmSelectOptions::default()).await;
            select.expect("rabbitmq: it confirms");
            let mut confirmations = Vec::new();
            for draft in drafts {
                let mut headers = FieldTable::default();
                if !draft.group.is_empty() {
                    let group = AMQPValue::LongString(draft.group.as_str().into());
                    headers.insert("corelane-group".into(), group);
                }
                let properties =
                    BasicProperties::default().with_delivery_mode(PERSISTENT).with_headers(headers);
                let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
                let sent = channel.basic_publish("".into(), queue.into(), options, &draft.body, properties);
                confirmations.push(sent.await.expect("rabbitmq: it is sent"));
            }
            for confirmation in confirmations {
                let confirmed = confirmation.await.expect("rabbitmq: it answers");
                assert!(matches!(confirmed, Confirmation::Ack(None)), "rabbitmq: it is kept: {confirmed:?}");
            }
        });
    }

    fn counts(&mut self, queue: &str) -> Counts {
        let said = self.count(queue).expect("rabbitmq: the queue counts");
        let numbers = said.trim_matches(['{', '}']).split_once(',');
        let (left, held) = numbers.unwrap_or_else(|| panic!("rabbitmq: two numbers: {said}"));
        let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("rabbitmq: a number: {said}"));
        Counts { left: number(left), held: number(held) }
    }

    /// A channel passes 32 acks on to a quorum queue and keeps the rest until those are on the disk. It forgets them with
    /// its connection: measured, 67 of 100 acks that were sent just before.
    fn acks_forgotten(&self) -> u64 {
        if self.flavour == Flavour::Quorum { 64 } else { 0 }
    }

    fn plain(&mut self, queues: &[String], messages: u64) {
        let each = usize::try_from(messages).expect("few") / queues.len();
        self.with(|channel| async move {
            channel.basic_qos(1_000, BasicQosOptions::default()).await.expect("rabbitmq: a prefetch");
            for queue in queues {
                let options = BasicConsumeOptions::default();
                let all =
                    channel.basic_consume(queue.as_str().into(), "".into(), options, FieldTable::default());
                let mut all = all.await.expect("rabbitmq: a consumer").take(each);
                // Acks are written as they come; nobody waits for each.
                let mut acks = Vec::with_capacity(UNAWAITED_MAX);
                while let Some(delivery) = all.next().await {
                    let delivery = delivery.expect("rabbitmq: a message");
                    acks.push(tokio::spawn(async move { delivery.ack(BasicAckOptions::default()).await }));
                    if acks.len() == UNAWAITED_MAX {
                        for ack in acks.drain(..) {
                            ack.await.expect("it ran").expect("rabbitmq: it takes the ack");
                        }
                    }
                }
                for ack in acks {
                    ack.await.expect("it ran").expect("rabbitmq: it takes the ack");
                }
            }
        });
    }

    fn kill(&mut self) {
        self.server.kill();
    }

    fn start(&mut self) {
        self.server.launch();
        // It listens a little before it is whole.
        let mut is_whole = || self.server.eval("rabbit:await_startup().").is_ok();
        until(SOON, "rabbitmq has started", &mut is_whole, || ());
        // And a quorum queue has no leader for a while: who publishes to it then is cut off with an internal error.
        for queue in self.queues.clone() {
            until(SOON, "rabbitmq's queue serves", || self.count(&queue).is_ok(), || queue.clone());
        }
    }
}
