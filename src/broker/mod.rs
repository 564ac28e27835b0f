//! Adapters: one folder or file per broker, each a [`crate::ingress::Source`]; [`Queue`] is any of them.

pub mod memory;
pub mod sqlite;
pub mod sqs;

use std::io;
use std::num::NonZeroUsize;
use std::time::Duration;

use shards::desk::{Receipt, SourceSpec, Tell};

use crate::ingress::{Answer, Batch, Linger, MakeSource, ReceiveError, Scope, Source};
use crate::topology::{QueueEntry, QueueUri};
use sqlite::{Consume, Durability, SqliteQueue};
use sqs::{SqsQueue, SqsTuning};

/// Lease where neither the config nor the broker says.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(30);

/// A queue of any broker.
pub enum Queue {
    /// A file.
    Sqlite(SqliteQueue),
    /// Amazon's, or one that speaks like it.
    Sqs(Box<SqsQueue>),
}

/// Settings of all queues of a kind.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// SQS.
    pub sqs: SqsTuning,
}

/// How to make a consumer of a queue, on the ingress thread.
///
/// # Errors
/// This version has no adapter for its broker.
pub fn make(entry: &QueueEntry, tuning: &Tuning) -> io::Result<MakeSource<Queue>> {
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
        QueueUri::Sqs(url) => {
            let (url, entry, tuning) = (url.clone(), entry.clone(), tuning.sqs.clone());
            Ok(Box::new(move || Ok(Queue::Sqs(Box::new(SqsQueue::new(&url, &entry, tuning))))))
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
            Self::Sqs(queue) => queue.spec(),
        }
    }

    fn open(&mut self) -> io::Result<()> {
        match self {
            Self::Sqlite(queue) => queue.open(),
            Self::Sqs(queue) => queue.open(),
        }
    }

    fn linger(&self) -> Option<Linger> {
        match self {
            Self::Sqlite(queue) => queue.linger(),
            Self::Sqs(queue) => queue.linger(),
        }
    }

    async fn receive(&self, scope: Scope, max: NonZeroUsize) -> Result<Batch, ReceiveError> {
        match self {
            Self::Sqlite(queue) => queue.receive(scope, max).await,
            Self::Sqs(queue) => queue.receive(scope, max).await,
        }
    }

    async fn settle(&self, tells: Vec<(Receipt, Tell)>) -> Vec<Answer> {
        match self {
            Self::Sqlite(queue) => queue.settle(tells).await,
            Self::Sqs(queue) => queue.settle(tells).await,
        }
    }

    async fn depth(&self) -> Option<u64> {
        match self {
            Self::Sqlite(queue) => queue.depth().await,
            Self::Sqs(queue) => queue.depth().await,
        }
    }

    async fn stop(&self) {
        match self {
            Self::Sqlite(queue) => queue.stop().await,
            Self::Sqs(queue) => queue.stop().await,
        }
    }
}
