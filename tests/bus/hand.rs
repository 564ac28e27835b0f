//! The broker by hand, as any other client of it: publishes, looks into queues, makes and deletes them.

use std::net::SocketAddr;

use lapin::options::{
    BasicGetOptions, BasicNackOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions,
    QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{BasicProperties, Connection, ConnectionProperties};
use parking_lot::Mutex;
use tokio::runtime::Runtime;

/// A connection of the test's own.
pub(crate) struct Hand {
    runtime: Runtime,
    connection: Connection,
    looking: Mutex<Option<lapin::Channel>>,
}

impl Hand {
    pub(crate) fn new(server: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let uri = format!("amqp://guest:guest@{server}/%2f");
        let connection = runtime.block_on(Connection::connect(&uri, ConnectionProperties::default()));
        let connection = connection.expect("the broker accepts us");
        Self { runtime, connection, looking: Mutex::default() }
    }

    /// A channel of its own for each deed.
    async fn channel(&self) -> lapin::Channel {
        self.connection.create_channel().await.expect("a channel")
    }

    /// Publishes straight into a queue.
    pub(crate) fn publish(&self, queue: &str, properties: &BasicProperties, body: &[u8]) {
        self.send("", queue, properties, body);
    }

    /// Publishes to an exchange, and waits until the broker has it.
    pub(crate) fn send(&self, exchange: &str, key: &str, properties: &BasicProperties, body: &[u8]) {
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let properties = properties.clone().with_delivery_mode(2);
        self.runtime.block_on(async {
            let channel = self.channel().await;
            channel.confirm_select(ConfirmSelectOptions::default()).await.expect("confirms");
            let [exchange, key] = [exchange, key].map(ShortString::from);
            let sent =
                channel.basic_publish(exchange, key, options, body, properties).await.expect("it is sent");
            let confirmed = sent.await.expect("it is confirmed");
            assert!(confirmed.is_ack() && confirmed.take_message().is_none(), "it reached no queue");
        });
    }

    /// Messages that wait in a queue; `None`: there is no such queue.
    pub(crate) fn depth(&self, queue: &str) -> Option<u32> {
        self.look(queue).map(|queue| queue.message_count())
    }

    /// Somebody consumes it.
    pub(crate) fn is_consumed(&self, queue: &str) -> bool {
        self.look(queue).is_some_and(|queue| queue.consumer_count() > 0)
    }

    /// Asks on one channel, again and again: a client has two thousand of them, and a closed one is not free at once.
    fn look(&self, queue: &str) -> Option<lapin::Queue> {
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        self.runtime.block_on(async {
            let kept = self.looking.lock().take().filter(|channel| channel.status().connected());
            let channel = match kept {
                Some(channel) => channel,
                None => self.connection.create_channel().await.ok()?,
            };
            let found = channel.queue_declare(ShortString::from(queue), options, FieldTable::default()).await;
            *self.looking.lock() = Some(channel);
            found.ok()
        })
    }

    /// The first message of a queue, which stays there.
    pub(crate) fn peek(&self, queue: &str) -> Option<(BasicProperties, Vec<u8>)> {
        self.runtime.block_on(async {
            let channel = self.channel().await;
            let options = BasicGetOptions { no_ack: false };
            let got = channel.basic_get(ShortString::from(queue), options).await.expect("the queue is there");
            let got = got?;
            got.acker
                .nack(BasicNackOptions { requeue: true, ..BasicNackOptions::default() })
                .await
                .expect("it goes back");
            // A closed channel's messages come back later than its last answer: this question is answered after it.
            let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            let asked = channel.queue_declare(ShortString::from(queue), passive, FieldTable::default()).await;
            asked.expect("the queue is there");
            Some((got.properties.clone(), got.data.clone()))
        })
    }

    pub(crate) fn declare(&self, queue: &str, arguments: &[(&str, AMQPValue)]) {
        let mut table = FieldTable::default();
        for (name, value) in arguments {
            table.insert(ShortString::from(*name), value.clone());
        }
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        self.runtime.block_on(async {
            let channel = self.channel().await;
            channel.queue_declare(ShortString::from(queue), options, table).await.expect("a queue");
        });
    }

    pub(crate) fn delete(&self, queue: &str) {
        self.runtime.block_on(async {
            let channel = self.channel().await;
            let options = QueueDeleteOptions::default();
            channel.queue_delete(ShortString::from(queue), options).await.expect("it is deleted");
        });
    }
}

/// A header of a message.
pub(crate) fn header<'a>(properties: &'a BasicProperties, name: &str) -> Option<&'a AMQPValue> {
    properties.headers().as_ref()?.inner().get(name)
}

/// A header that is text.
pub(crate) fn text(properties: &BasicProperties, name: &str) -> Option<String> {
    header(properties, name)?.as_long_string().map(ToString::to_string)
}

/// A header that is a number, as this program writes it.
pub(crate) fn number(properties: &BasicProperties, name: &str) -> Option<i32> {
    header(properties, name)?.as_long_int()
}

/// A message that has had its ten retries: the next failure sends it to the DLQ.
pub(crate) fn worn(id: &str) -> BasicProperties {
    let mut headers = FieldTable::default();
    headers.insert("corelane-retries".into(), AMQPValue::LongInt(10));
    BasicProperties::default().with_message_id(ShortString::from(id)).with_headers(headers)
}
