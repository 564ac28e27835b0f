//! Adapters: one folder or file per broker, each a [`crate::ingress::Source`]; [`Queue`] is any of them.

pub mod activemq;
pub mod feed;
pub mod nats;
pub mod rabbitmq;
pub mod sqlite;
pub mod sqs;

use std::io;
use std::num::NonZeroUsize;
use std::time::Duration;

use shards::clock::Moment;
use shards::desk::{Receipt, SourceSpec, Tell};

use crate::ingress::{Answer, Batch, Linger, MakeSource, ReceiveError, Scope, Source};
use crate::topology::{QueueEntry, QueueUri};
use activemq::ActiveMqQueue;
use nats::NatsQueue;
use rabbitmq::RabbitQueue;
use rabbitmq::bus::BusQueue;
use sqlite::{Consume, Place, SqliteQueue};
use sqs::{SqsQueue, SqsTuning};

/// Lease where neither the config nor the broker says.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(30);

/// A queue of any broker.
pub enum Queue {
    /// A file, on disk or in memory.
    Sqlite(SqliteQueue),
    /// Amazon's, or one that speaks like it.
    Sqs(Box<SqsQueue>),
    /// A JetStream consumer.
    Nats(Box<NatsQueue>),
    /// A RabbitMQ queue.
    Rabbit(Box<RabbitQueue>),
    /// A service of the event bus on RabbitMQ.
    Bus(Box<BusQueue>),
    /// An ActiveMQ queue.
    ActiveMq(Box<ActiveMqQueue>),
}

/// Settings of all queues of a kind.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// SQS.
    pub sqs: SqsTuning,
    /// What this router is called where a broker wants to know. A router that takes its place after an unclean end has the
    /// same name.
    pub instance: String,
}

/// How to make a consumer of a queue, on the ingress thread.
///
/// # Errors
/// Its URI is wrong, or this version has no adapter for its broker.
pub fn make(entry: &QueueEntry, tuning: &Tuning) -> io::Result<MakeSource<Queue>> {
    match &entry.uri {
        QueueUri::Sqlite(_) | QueueUri::Memory(_) => {
            let consume = Consume {
                lease: entry.visibility.unwrap_or(LEASE_DEFAULT),
                attempts_max: entry.attempts_max,
                ..Consume::default()
            };
            let place = Place::of(&entry.uri)?.ok_or(io::ErrorKind::InvalidInput)?;
            let open = move || SqliteQueue::open(&place.path, place.durability, consume).map(Queue::Sqlite);
            Ok(Box::new(open))
        }
        QueueUri::Sqs(url) => {
            let (url, entry, tuning) = (url.clone(), entry.clone(), tuning.sqs.clone());
            Ok(Box::new(move || Ok(Queue::Sqs(Box::new(SqsQueue::new(&url, &entry, tuning))))))
        }
        QueueUri::Nats(_) => checked(entry, |entry| NatsQueue::new(entry).map(Box::new).map(Queue::Nats)),
        QueueUri::Amqp(_) if rabbitmq::is_bus(entry)? => {
            checked(entry, |entry| BusQueue::new(entry).map(Box::new).map(Queue::Bus))
        }
        QueueUri::Amqp(_) => checked(entry, |entry| RabbitQueue::new(entry).map(Box::new).map(Queue::Rabbit)),
        QueueUri::ActiveMq(_) => {
            let instance = tuning.instance.clone();
            checked(entry, move |entry| {
                ActiveMqQueue::new(entry, &instance).map(Box::new).map(Queue::ActiveMq)
            })
        }
        QueueUri::Stomp(_) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "STOMP carries neither the group nor the count of hand-overs: write activemq://HOST:61616/QUEUE (the broker's OpenWire port)",
        )),
    }
}

/// Makes it now, so that a wrong URI is told here; and again there, since a consumer stays on its thread.
fn checked(
    entry: &QueueEntry,
    make: impl Fn(&QueueEntry) -> io::Result<Queue> + Send + 'static,
) -> io::Result<MakeSource<Queue>> {
    drop(make(entry)?);
    let entry = entry.clone();
    Ok(Box::new(move || make(&entry)))
}

/// The same call on whichever it is.
macro_rules! whichever {
    ($any:expr, $queue:ident => $call:expr) => {
        match $any {
            Queue::Sqlite($queue) => $call,
            Queue::Sqs($queue) => $call,
            Queue::Nats($queue) => $call,
            Queue::Rabbit($queue) => $call,
            Queue::Bus($queue) => $call,
            Queue::ActiveMq($queue) => $call,
        }
    };
}

impl Source for Queue {
    fn spec(&self) -> SourceSpec {
        whichever!(self, queue => queue.spec())
    }

    fn open(&mut self, unclean: bool) -> io::Result<()> {
        whichever!(self, queue => queue.open(unclean))
    }

    fn linger(&self) -> Option<Linger> {
        whichever!(self, queue => queue.linger())
    }

    fn settles_at_once(&self) -> usize {
        whichever!(self, queue => queue.settles_at_once())
    }

    async fn receive(&self, scope: Scope, max: NonZeroUsize) -> Result<Batch, ReceiveError> {
        whichever!(self, queue => queue.receive(scope, max).await)
    }

    async fn settle(&self, tells: Vec<(Receipt, Tell)>) -> Vec<Answer> {
        whichever!(self, queue => queue.settle(tells).await)
    }

    async fn depth(&self) -> Option<u64> {
        whichever!(self, queue => queue.depth().await)
    }

    async fn stop(&self) -> Option<Moment> {
        whichever!(self, queue => queue.stop().await)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;

    #[test]
    fn a_stomp_uri_is_refused_with_the_one_to_write() {
        let entry = QueueEntry {
            name: "q".into(),
            uri: QueueUri::parse("stomp://u:hunter2@h:61613/q").expect("a broker's scheme"),
            connections: NonZeroU16::MIN,
            visibility: None,
            ordering: None,
            attempts_max: 0,
        };
        let sqs = SqsTuning {
            messages_per_poll: 10,
            wait: Duration::ZERO,
            endpoint: None,
            partial_batch_pause: Duration::ZERO,
        };
        let refused = make(&entry, &Tuning { sqs, instance: "i".into() });
        let said = refused.map(drop).expect_err("it has no adapter").to_string();
        assert!(said.contains("activemq://") && !said.contains("hunter2"), "{said}");
    }
}
