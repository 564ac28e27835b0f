//! RabbitMQ: queues over AMQP 0-9-1, pushed by the server, acked one by one. Core: the ingress.
//!
//! - R1: a delivery tag is used in its own channel only (`book.rs`), and never for several messages at once.
//! - R2: a message that comes again after a loss has the id it had (`memory.rs`), so that the desk knows it.
//! - R3: what the desk gives back stays here, unsettled, and is handed over again from here. Only a lost or closed
//!   channel gives messages back to the server: it then puts all of them where they were, in order.
//! - R4: nothing stays unsettled so long that the server would close the channel for it (its `consumer_timeout`).
//! - R5: a queue's consumers share one session, so that a new one goes on where the old one ends.
//! - R6: where order matters, what a lost connection had comes before all that is newer (`client.rs`).

pub(crate) mod address;
mod book;
pub mod bus;
mod client;
pub(crate) mod connect;
mod consumer;
mod group;
mod memory;
mod settle;
mod shared;

use std::hash::{BuildHasher, Hasher};
use std::io;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering as Atomic};
use std::time::Duration;

use lapin::message::Delivery;
use lapin::types::{AMQPValue, ShortString};
use shards::clock::{Clock, Moment};
use shards::desk::{Arrival, Receipt, SourceSpec, Tell};
use shards::model::{IdHash, Ordering};

use crate::ingress::{Answer, Batch, ReceiveError, Scope, Source, Unreadable};
use crate::message;
use crate::topology::QueueEntry;
use address::{Address, Place};
use book::{Due, Item};
use client::{Pushed, Session};
use consumer::Consumer;
use group::GroupFrom;
use memory::{Content, Fate};
use settle::Back;
use shared::Shared;

/// Messages taken at once at most.
const BATCH_MAX: usize = 1_000;
/// After so many returns a quorum queue drops a message: the default of RabbitMQ 4.
const DELIVERY_LIMIT_DEFAULT: u16 = 20;
/// Calls of `settle` under way: acks are sent as they come, and one answer confirms all that were sent before.
const SETTLES_AT_ONCE: usize = 64;
/// Where a quorum queue says how often a message came back.
const DELIVERY_COUNT: &str = "x-delivery-count";

/// Every message that is handed over for the first time is another one.
static MESSAGES: AtomicU64 = AtomicU64::new(1);

/// A consumer of a RabbitMQ queue.
pub struct RabbitQueue {
    consumer: Consumer,
    group: GroupFrom,
}

impl RabbitQueue {
    /// A consumer of a queue. Does not connect.
    ///
    /// # Errors
    /// The URI is wrong; the text says how.
    pub fn new(entry: &QueueEntry) -> io::Result<Self> {
        let address = address_of(entry)?;
        let Place::Queue(queue) = address.place.clone() else {
            return Err(wrong(entry, "names a service of the event bus, not a queue"));
        };
        let deliveries_max = match queue.delivery_limit {
            Some(0) => None,
            limit => Some(limit.unwrap_or(DELIVERY_LIMIT_DEFAULT)),
        };
        let spec = SourceSpec {
            ordering: entry.ordering.unwrap_or(Ordering::Strict),
            lease: None,
            unheard_max: Duration::ZERO,
            attempts_max: entry.attempts_max,
            deliveries_max,
            // A server that crashes may forget acks, but then its messages are known here.
            repeats: false,
            judges: false,
            holds_permits: false,
            batch_max: BATCH_MAX,
        };
        let hold_max = queue.hold_max();
        let consumer = Consumer::new(entry, address, queue.name, spec, hold_max);
        Ok(Self { consumer, group: queue.group })
    }

    /// What there is to hand over, without waiting.
    fn take(&self, shared: &Shared, session: &Session, scope: Scope, max: usize) -> Batch {
        let (mut batch, now) = (Batch::default(), Clock.now());
        let due = session.book.borrow_mut().take_due(now, max);
        for due in due {
            match due {
                Due::Again(key) => {
                    if let Some(item) = session.book.borrow().get(key) {
                        put(&mut batch, Receipt { key, epoch: session.epoch }, item);
                    }
                }
                Due::Bare(tag, item) => {
                    session.nack(tag);
                    shared.memory.borrow_mut().on_away(item.content, item.id, now);
                }
            }
        }
        let mut forgotten = 0_u32;
        while batch.arrivals.len() + batch.unreadable.len() < max {
            let Some(Pushed { at, delivery }) = session.take_pushed() else { break };
            let tag = delivery.delivery_tag;
            let (item, fate) = self.item(shared, scope, delivery, at);
            if fate == Fate::Acked {
                // The server has lost the ack. The desk is done with it.
                session.ack(tag);
                shared.memory.borrow_mut().on_acked(item.content, item.id, now);
                forgotten += 1;
                continue;
            }
            let mut receipt = Receipt { key: 0, epoch: session.epoch };
            let made = read(&item);
            receipt.key = session.book.borrow_mut().hand_over(tag, item);
            made.put(&mut batch, receipt);
        }
        if forgotten > 0 {
            let queue = &self.consumer.address;
            tracing::info!(%queue, forgotten, "the server has lost acks: messages that came again are acked again");
        }
        batch
    }

    fn item(&self, shared: &Shared, scope: Scope, delivery: Delivery, since: Moment) -> (Item, Fate) {
        let headers = delivery.properties.headers().as_ref();
        let group = self.group.of(headers).map(std::borrow::Cow::into_owned);
        let count = headers.and_then(|headers| headers.inner().get(DELIVERY_COUNT)).and_then(whole);
        let deliveries = count.map_or(0, |count| u16::try_from(count).unwrap_or(u16::MAX).saturating_add(1));
        let content = content(shared, &delivery, group.as_deref());
        let known = shared.memory.borrow_mut().recall(content, delivery.redelivered, since);
        let (id, fate) = known.unwrap_or_else(|| (fresh(scope), Fate::Open));
        (Item { id, content, since, deliveries, group, body: delivery.data, note: None }, fate)
    }
}

fn fresh(scope: Scope) -> IdHash {
    scope.broker_id(&MESSAGES.fetch_add(1, Atomic::Relaxed).to_le_bytes())
}

fn whole(value: &AMQPValue) -> Option<u64> {
    match value {
        AMQPValue::LongLongInt(number) => u64::try_from(*number).ok(),
        AMQPValue::LongInt(number) => u64::try_from(*number).ok(),
        AMQPValue::LongUInt(number) => Some((*number).into()),
        AMQPValue::ShortUInt(number) => Some((*number).into()),
        AMQPValue::ShortInt(number) => u64::try_from(*number).ok(),
        AMQPValue::ShortShortUInt(number) => Some((*number).into()),
        AMQPValue::ShortShortInt(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

/// A hash of what stays the same when a message is handed over again. Its headers do not: servers count in them.
fn content<'a>(shared: &Shared, delivery: &'a Delivery, group: Option<&'a str>) -> Content {
    let properties = &delivery.properties;
    let text = |text: &'a Option<ShortString>| text.as_ref().map_or("", ShortString::as_str);
    let parts = [
        text(properties.message_id()),
        text(properties.correlation_id()),
        text(properties.kind()),
        text(properties.app_id()),
        delivery.exchange.as_str(),
        delivery.routing_key.as_str(),
        group.unwrap_or_default(),
    ];
    let half = |state: &std::hash::RandomState| {
        let mut hasher = state.build_hasher();
        for part in parts {
            hasher.write_usize(part.len());
            hasher.write(part.as_bytes());
        }
        hasher.write_u64(properties.timestamp().unwrap_or_default());
        hasher.write(&delivery.data);
        u128::from(hasher.finish())
    };
    (half(&shared.hashers[0]) << 64) | half(&shared.hashers[1])
}

/// A message as the desk takes it, but for its receipt.
enum Made {
    Message(Box<message::Message>, IdHash, u16),
    Unreadable { group: String, body: Vec<u8>, detail: String },
}

fn read(item: &Item) -> Made {
    match message::read(&item.body, item.group.as_deref()) {
        Ok(message) => Made::Message(Box::new(message), item.id, item.deliveries),
        Err(error) => Made::Unreadable {
            group: item.group.clone().unwrap_or_default(),
            body: item.body.clone(),
            detail: error.to_string(),
        },
    }
}

impl Made {
    fn put(self, batch: &mut Batch, receipt: Receipt) {
        match self {
            Self::Message(message, broker_id, deliveries) => batch.arrivals.push(Arrival {
                parcel: message.parcel,
                broker_id,
                receipt,
                deliveries,
                dispatch: message.dispatch,
                high_priority: message.high_priority,
            }),
            Self::Unreadable { group, body, detail } => {
                batch.unreadable.push(Unreadable { receipt, group, body, detail });
            }
        }
    }
}

fn put(batch: &mut Batch, receipt: Receipt, item: &Item) {
    read(item).put(batch, receipt);
}

/// Reads a queue's URI.
fn address_of(entry: &QueueEntry) -> io::Result<Address> {
    Address::parse(&entry.uri.reveal()).map_err(|why| wrong(entry, &why))
}

fn wrong(entry: &QueueEntry, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("queue {}: its URI {why}", entry.name))
}

/// True if a queue's URI names a service of the event bus.
pub(super) fn is_bus(entry: &QueueEntry) -> io::Result<bool> {
    Ok(matches!(address_of(entry)?.place, Place::Bus(_)))
}

impl Source for RabbitQueue {
    fn spec(&self) -> SourceSpec {
        self.consumer.spec
    }

    fn open(&mut self, unclean: bool) -> io::Result<()> {
        self.consumer.open(unclean);
        Ok(())
    }

    async fn depth(&self) -> Option<u64> {
        self.consumer.depth().await
    }

    async fn receive(&self, scope: Scope, max: NonZeroUsize) -> Result<Batch, ReceiveError> {
        self.consumer.receive(|shared, session| self.take(shared, session, scope, max.get())).await
    }

    fn settles_at_once(&self) -> usize {
        SETTLES_AT_ONCE
    }

    async fn settle(&self, tells: Vec<(Receipt, Tell)>) -> Vec<Answer> {
        let back = |session: &Rc<Session>, key, back| match back {
            Back::At(due) => settle::give_back(session, key, due),
            Back::Answered(_) => unreachable!("this source does not judge"),
        };
        self.consumer.settle_all(tells, back).await
    }

    async fn stop(&self) -> Option<Moment> {
        self.consumer.end().await
    }
}
