//! A consumer of a queue file: the [`Source`] that the ingress reads from.

use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use shards::clock::Clock;
use shards::desk::{Arrival, Receipt, SourceSpec, Tell};
use shards::model::{Ordering, Ticket};

use super::claims::Consumer;
use super::file::{QueueFile, ended};
use super::request::{Receive, Request, Settle, Taken, Told};
use super::schema::Durability;
use crate::ingress::{Answer, Batch, ReceiveError, Scope, Source, Unreadable};
use crate::message;

/// Messages asked for at once at most.
const BATCH_MAX: usize = 1_000;

/// How long a receive waits for messages: a drain has to wait for it, and idle it costs a wake-up each time.
const POLL: Duration = Duration::from_millis(250);

/// How a queue is consumed.
#[derive(Clone, Copy, Debug)]
pub struct Consume {
    /// How long a message is ours without an extension.
    pub lease: Duration,
    /// Deliveries after which a message is set aside; 0 = never.
    pub attempts_max: u16,
    /// How long a receive waits for messages.
    pub poll: Duration,
}

impl Default for Consume {
    fn default() -> Self {
        Self { lease: Duration::from_secs(30), attempts_max: 0, poll: POLL }
    }
}

/// A consumer. Dropped, it gives back what it still has.
pub struct SqliteQueue {
    file: Arc<QueueFile>,
    consumer: Consumer,
    consume: Consume,
}

impl SqliteQueue {
    pub(super) fn new(file: Arc<QueueFile>, consume: Consume) -> Self {
        let consumer = file.consumer();
        Self { file, consumer, consume }
    }

    /// Opens a queue's file, or shares it where it is open already, and consumes it. Blocks while the file is opened:
    /// where the ingress must not wait, open a [`super::SqliteWriter`] elsewhere first.
    ///
    /// # Errors
    /// It can't be opened, is not a queue, or was written by a newer version.
    pub fn open(path: &Path, durability: Durability, consume: Consume) -> io::Result<Self> {
        Ok(Self::new(QueueFile::open(path, durability)?, consume))
    }
}

impl Drop for SqliteQueue {
    fn drop(&mut self) {
        self.file.tell(Request::Leave(self.consumer));
    }
}

impl Source for SqliteQueue {
    fn spec(&self) -> SourceSpec {
        SourceSpec {
            ordering: Ordering::Batch,
            lease: Some(self.consume.lease),
            unheard_max: Duration::ZERO,
            attempts_max: self.consume.attempts_max,
            deliveries_max: None,
            repeats: false,
            judges: false,
            holds_permits: true,
            batch_max: BATCH_MAX,
        }
    }

    async fn depth(&self) -> Option<u64> {
        self.file.ask(Request::Depth).recv_async().await.ok()?.ok()
    }

    async fn receive(&self, scope: Scope, max: NonZeroUsize) -> Result<Batch, ReceiveError> {
        let (consumer, max) = (self.consumer, max.get().min(BATCH_MAX));
        let Consume { lease, poll, .. } = self.consume;
        let answer = self.file.ask(|reply| Request::Receive(Receive { consumer, max, lease, poll, reply }));
        let taken = answer.recv_async().await.map_err(ended).and_then(|taken| taken);
        let taken = taken.map_err(ReceiveError::Unreachable)?;
        let mut batch = Batch { arrivals: Vec::with_capacity(taken.len()), ..Batch::default() };
        for taken in taken {
            read(taken, scope, &mut batch);
        }
        Ok(batch)
    }

    async fn settle(&self, tells: Vec<(Receipt, Tell)>) -> Vec<Answer> {
        let sent = Clock.now();
        let (mut told, mut asks) = (Vec::with_capacity(tells.len()), Vec::with_capacity(tells.len()));
        for (receipt, tell) in tells {
            let (what, ask) = translate(&tell);
            told.push((receipt.key, what));
            asks.push(ask);
        }
        let consumer = self.consumer;
        let answer = self.file.ask(|reply| Request::Settle(Settle { consumer, tells: told, reply }));
        let done = answer.recv_async().await.map_err(ended).and_then(|done| done);
        let done = done.unwrap_or_else(|_| vec![false; asks.len()]);
        let answers = asks.into_iter().zip(done).filter_map(|(ask, done)| match ask {
            Ask::Nothing => None,
            Ask::Closed(ticket) => Some(Answer::Closed { ticket, done }),
            Ask::Extended(ticket) => Some(Answer::Extended { ticket, done, sent }),
        });
        answers.collect()
    }
}

/// What the desk wants to hear.
enum Ask {
    Nothing,
    Closed(Ticket),
    Extended(Ticket),
}

fn translate(tell: &Tell) -> (Told, Ask) {
    match tell {
        Tell::Ack { ticket } => (Told::Ack, ticket.map_or(Ask::Nothing, Ask::Closed)),
        Tell::Nack { delay_s, reason } => {
            (Told::Nack { delay_s: *delay_s, tried: reason.is_attempt() }, Ask::Nothing)
        }
        Tell::Extend { ticket } => (Told::Extend, Ask::Extended(*ticket)),
        Tell::Answered { .. } => unreachable!("this source does not judge"),
        Tell::DeadLetter { .. } => unreachable!("a port sets dead letters aside and tells an ack"),
    }
}

fn read(taken: Taken, scope: Scope, batch: &mut Batch) {
    let receipt = Receipt { key: taken.identity.seq, epoch: 0 };
    let group = (!taken.group.is_empty()).then_some(taken.group.as_str());
    match message::read(&taken.body, group) {
        Ok(message) => batch.arrivals.push(Arrival {
            parcel: message.parcel,
            broker_id: scope.broker_id(&taken.identity.bytes()),
            receipt,
            deliveries: taken.receives,
            dispatch: message.dispatch,
            high_priority: message.high_priority,
        }),
        Err(error) => batch.unreadable.push(Unreadable {
            receipt,
            group: taken.group,
            body: taken.body,
            detail: error.to_string(),
        }),
    }
}
