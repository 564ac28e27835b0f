//! A service's DLQ by hand: look, put back, delete.
//!
//! Looking takes a message without an ack and gives it back to its old place at the end. What is put back is acked here
//! only when the service's queue has it. As many are looked at as were there at the start, so that one that fails
//! again does not go round in circles.

use std::io;
use std::time::Duration;

use lapin::message::BasicGetMessage;
use lapin::options::{BasicAckOptions, BasicGetOptions, BasicNackOptions, QueueDeclareOptions};
use lapin::types::{FieldTable, ShortString};
use lapin::{BasicProperties, Channel};
use serde::Serialize;

use super::declare;
use super::headers::{self, FINAL_ERROR, FINAL_RETRIES, FINAL_STATUS, ORIGINAL_QUEUE};
use super::names::Service;
use super::publish::{Outgoing, Publisher};

/// How long the broker may take to confirm.
const CONFIRM_MAX: Duration = Duration::from_secs(30);
/// Messages that are put back at once.
const BATCH: usize = 64;
/// Bytes that are put back at once.
const BATCH_BYTES: usize = 4 << 20;
/// Of a body, shown at most.
const BODY_SHOWN: usize = 64 << 10;

/// Every message that was handed over on a channel, where a delivery tag is asked for.
const ALL: u64 = 0;
/// Asks for a queue, and does not make it.
const PASSIVE: QueueDeclareOptions = QueueDeclareOptions {
    passive: true,
    durable: false,
    exclusive: false,
    auto_delete: false,
    nowait: false,
};

/// Which of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Which {
    pub(crate) id: Option<String>,
    /// The target's last status.
    pub(crate) status: Option<u16>,
    /// The first so many.
    pub(crate) limit: Option<usize>,
}

impl Which {
    fn fits(&self, properties: &BasicProperties) -> bool {
        let id = properties.message_id().as_ref().map(ShortString::as_str);
        let status = headers::count_header(properties, FINAL_STATUS);
        self.id.as_deref().is_none_or(|want| id == Some(want))
            && self.status.is_none_or(|want| status == Some(want.into()))
    }
}

/// A dead letter, as a person sees it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BusLetter {
    /// Its place in the DLQ, from 1: the oldest.
    pub(crate) place: usize,
    pub(crate) id: String,
    pub(crate) original_queue: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) final_status_code: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) final_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) final_retry_count: Option<u32>,
    pub(crate) content_type: String,
    pub(crate) body_bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) body: Option<String>,
}

impl BusLetter {
    fn new(place: usize, message: &BasicGetMessage, with_body: bool) -> Self {
        let properties = &message.properties;
        let text = |name| headers::text_header(properties, name).map(str::to_owned);
        let short = |text: &Option<ShortString>| text.as_ref().map(ToString::to_string).unwrap_or_default();
        let shown = &message.data[..message.data.len().min(BODY_SHOWN)];
        Self {
            place,
            id: short(properties.message_id()),
            original_queue: text(ORIGINAL_QUEUE).unwrap_or_default(),
            final_status_code: headers::count_header(properties, FINAL_STATUS),
            final_error: text(FINAL_ERROR),
            final_retry_count: headers::count_header(properties, FINAL_RETRIES),
            content_type: short(properties.content_type()),
            body_bytes: message.data.len(),
            body: with_body.then(|| String::from_utf8_lossy(shown).into_owned()),
        }
    }
}

/// The queue, opened for one look or change. What was not acked goes back when it is closed.
pub(crate) struct Dlq {
    channel: Channel,
    publisher: Publisher,
    name: String,
    /// The service's queue.
    queue: String,
    /// Messages that were there when it was opened.
    count: usize,
}

impl Dlq {
    pub(super) async fn open(channel: Channel, publisher: Publisher, service: &Service) -> io::Result<Self> {
        let name = service.dlq();
        let found =
            channel.queue_declare(ShortString::from(name.as_str()), PASSIVE, FieldTable::default()).await;
        let found = found.map_err(|error| match error.kind() {
            lapin::ErrorKind::ProtocolError(said) if said.get_id() == declare::NOT_FOUND => {
                let what = format!("there is no queue {name} in this vhost: is the service declared there?");
                io::Error::new(io::ErrorKind::NotFound, what)
            }
            _ => io::Error::other(format!("queue {name}: {error}")),
        })?;
        let count = usize::try_from(found.message_count()).unwrap_or(usize::MAX);
        Ok(Self { channel, publisher, name, queue: service.queue(), count })
    }

    /// Messages in it when it was opened.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    async fn next(&self) -> io::Result<Option<BasicGetMessage>> {
        let name = ShortString::from(self.name.as_str());
        self.channel.basic_get(name, BasicGetOptions { no_ack: false }).await.map_err(io::Error::other)
    }

    /// Those that fit, oldest first.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) async fn list(&self, which: &Which) -> io::Result<Vec<BusLetter>> {
        let mut letters = Vec::new();
        for place in 1..=self.count {
            if which.limit.is_some_and(|limit| letters.len() >= limit) {
                break;
            }
            let Some(message) = self.next().await? else { break };
            if which.fits(&message.properties) {
                letters.push(BusLetter::new(place, &message, false));
            }
        }
        Ok(letters)
    }

    /// The one at this place, with its body.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) async fn show(&self, place: usize) -> io::Result<Option<BusLetter>> {
        for at in 1..=place.min(self.count) {
            let Some(message) = self.next().await? else { break };
            if at == place {
                return Ok(Some(BusLetter::new(place, &message, true)));
            }
        }
        Ok(None)
    }

    /// Puts those that fit back into the service's queue: no other service gets them. Returns how many.
    ///
    /// # Errors
    /// The connection is lost or the queue is gone; what was not moved is still here. `done` has been told how many were.
    pub(crate) async fn retry(&self, which: &Which, done: impl Fn(usize)) -> io::Result<usize> {
        let mut moved = 0;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let mut left = which.limit.unwrap_or(usize::MAX);
        for _ in 0..self.count {
            if left == 0 {
                break;
            }
            let Some(message) = self.next().await? else { break };
            if !which.fits(&message.properties) {
                continue;
            }
            left -= 1;
            bytes += message.data.len();
            batch.push(message);
            if batch.len() >= BATCH || bytes >= BATCH_BYTES {
                moved += self.put_back(std::mem::take(&mut batch)).await?;
                bytes = 0;
                done(moved);
            }
        }
        moved += self.put_back(batch).await?;
        done(moved);
        Ok(moved)
    }

    async fn put_back(&self, batch: Vec<BasicGetMessage>) -> io::Result<usize> {
        if batch.is_empty() {
            return Ok(0);
        }
        let outgoing = |message: &BasicGetMessage| Outgoing {
            exchange: String::new(),
            routing_key: self.queue.clone(),
            properties: headers::for_retry(&message.properties, &self.queue),
            body: message.data.clone(),
        };
        let all: Vec<Outgoing> = batch.iter().map(outgoing).collect();
        let published = tokio::time::timeout(CONFIRM_MAX, self.publisher.publish(&all)).await;
        let published = published.map_err(|_| {
            let (count, name) = (batch.len(), &self.name);
            io::Error::other(format!(
                "the broker does not confirm: it may be short of memory or disk. These {count} stay in {name}, and may \
                 be in {} too",
                self.queue
            ))
        })?;
        let not_taken = published.map_err(io::Error::other)?;
        if !not_taken.is_empty() {
            return Err(io::Error::other(format!(
                "queue {} does not take messages: is it there? These {} stay in {}",
                self.queue,
                batch.len(),
                self.name
            )));
        }
        let count = batch.len();
        for message in batch {
            message.acker.ack(BasicAckOptions::default()).await.map_err(io::Error::other)?;
        }
        Ok(count)
    }

    /// Deletes those that fit. Returns how many.
    ///
    /// # Errors
    /// The connection is lost; what was not deleted is still here.
    pub(crate) async fn purge(&self, which: &Which, done: impl Fn(usize)) -> io::Result<usize> {
        let mut gone = 0;
        for _ in 0..self.count {
            if which.limit.is_some_and(|limit| gone >= limit) {
                break;
            }
            let Some(message) = self.next().await? else { break };
            if which.fits(&message.properties) {
                message.acker.ack(BasicAckOptions::default()).await.map_err(io::Error::other)?;
                gone += 1;
                done(gone);
            }
        }
        Ok(gone)
    }

    /// Gives back what was only looked at, and waits until the broker has done that and has every ack. A connection that
    /// just closes does not: the broker answers first and takes the messages back later. An ack is not answered either,
    /// so a question is asked behind both.
    ///
    /// # Errors
    /// The connection is lost, or the broker does not answer: it takes the messages back when it finds that out.
    pub(crate) async fn close(self) -> io::Result<()> {
        let back = BasicNackOptions { multiple: true, requeue: true };
        let done = tokio::time::timeout(CONFIRM_MAX, async {
            self.channel.basic_nack(ALL, back).await?;
            self.channel
                .queue_declare(ShortString::from(self.name.as_str()), PASSIVE, FieldTable::default())
                .await
        });
        let done = done.await.map_err(|_| io::Error::other("the broker does not answer"))?;
        done.map(drop).map_err(io::Error::other)
    }
}
