//! Adapters: one folder or file per broker, each a [`crate::ingress::Source`]; [`Queue`] is any of them.

pub mod memory;
pub mod nats;
pub mod sqlite;

use std::io;
use std::num::NonZeroUsize;
use std::time::Duration;

use shards::desk::{Receipt, SourceSpec, Tell};

use crate::ingress::{Answer, Batch, Linger, MakeSource, ReceiveError, Scope, Source};
use crate::topology::{QueueEntry, QueueUri};
use nats::NatsQueue;
use sqlite::{Consume, Durability, SqliteQueue};

/// Lease where neither the config nor the broker says.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(30);

/// A queue of any broker.
pub enum Queue {
    /// A file.
    Sqlite(SqliteQueue),
    /// A JetStream consumer.
    Nats(Box<NatsQueue>),
}

/// How to make a consumer of a queue, on the ingress thread.
///
/// # Errors
/// This version has no adapter for its broker.
pub fn make(entry: &QueueEntry) -> io::Result<MakeSource<Queue>> {
    match &entry.uri {
        QueueUri::Sqlite(path) => {
            let consume = Consume {
                lease: entry.visibility.unwrap_or(LEASE_DEFAULT),
                attempts_max: entry.attempts_max,
                ..Consume::default()
            };
            let path = path.clone();
            let open = move || SqliteQueue::open(&path, Durability::default(), consume).map(Queue::Sqlite);
            Ok(Box::new(open))
        }
        QueueUri::Nats(_) => {
            // Now, so that a wrong URI is told here; and again there, since a consumer stays on its thread.
            drop(NatsQueue::new(entry)?);
            let entry = entry.clone();
            Ok(Box::new(move || NatsQueue::new(&entry).map(Box::new).map(Queue::Nats)))
        }
        other => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!("this version has no {} adapter: use a sqlite: queue", other.broker()),
        )),
    }
}

impl Source for Queue {
    fn spec(&self) -> SourceSpec {
        match self {
            Self::Sqlite(queue) => queue.spec(),
            Self::Nats(queue) => queue.spec(),
        }
    }

    fn open(&mut self) -> io::Result<()> {
        match self {
            Self::Sqlite(queue) => queue.open(),
            Self::Nats(queue) => queue.open(),
        }
    }

    fn linger(&self) -> Option<Linger> {
        match self {
            Self::Sqlite(queue) => queue.linger(),
            Self::Nats(queue) => queue.linger(),
        }
    }

    async fn receive(&self, scope: Scope, max: NonZeroUsize) -> Result<Batch, ReceiveError> {
        match self {
            Self::Sqlite(queue) => queue.receive(scope, max).await,
            Self::Nats(queue) => queue.receive(scope, max).await,
        }
    }

    async fn settle(&self, tells: Vec<(Receipt, Tell)>) -> Vec<Answer> {
        match self {
            Self::Sqlite(queue) => queue.settle(tells).await,
            Self::Nats(queue) => queue.settle(tells).await,
        }
    }

    fn settles_at_once(&self) -> usize {
        match self {
            Self::Sqlite(queue) => queue.settles_at_once(),
            Self::Nats(queue) => queue.settles_at_once(),
        }
    }

    async fn depth(&self) -> Option<u64> {
        match self {
            Self::Sqlite(queue) => queue.depth().await,
            Self::Nats(queue) => queue.depth().await,
        }
    }

    async fn stop(&self) {
        match self {
            Self::Sqlite(queue) => queue.stop().await,
            Self::Nats(queue) => queue.stop().await,
        }
    }
}
