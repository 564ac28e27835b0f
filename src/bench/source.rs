//! The sources a benchmark can read from, as one type.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use anyhow::Context;
use shards::desk::{Receipt, SourceSpec, Tell};

use super::durable::Durable;
use crate::broker::feed::{Feed, FeedQueue, Tally};
use crate::broker::sqlite::SqliteQueue;
use crate::ingress::{Answer, Batch, ReceiveError, Scope, Source};

/// Where messages come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum SourceKind {
    /// Made as they are asked for.
    #[default]
    Memory,
    /// Published to a SQLite queue, durably, by a thread of its own.
    Sqlite,
}

/// A source of either kind.
pub(super) enum BenchQueue {
    /// In memory.
    Memory(Box<FeedQueue>),
    /// In a file; its acks are counted once they are durable.
    Sqlite(SqliteQueue, Arc<Tally>),
}

impl BenchQueue {
    /// Opens a source, and its file and publisher where it has them.
    ///
    /// # Errors
    /// The feed can't be in a message, or the file can't be made.
    pub(super) fn open(
        kind: SourceKind,
        feed: Feed,
        tally: &Arc<Tally>,
    ) -> anyhow::Result<(Self, Option<Durable>)> {
        match kind {
            SourceKind::Memory => {
                let queue =
                    FeedQueue::new(feed, Arc::clone(tally)).context("make messages for the target")?;
                Ok((Self::Memory(Box::new(queue)), None))
            }
            SourceKind::Sqlite => {
                let durable = Durable::start(feed, tally).context("make a SQLite queue")?;
                Ok((Self::Sqlite(durable.consume(), Arc::clone(tally)), Some(durable)))
            }
        }
    }
}

impl Source for BenchQueue {
    fn spec(&self) -> SourceSpec {
        match self {
            Self::Memory(queue) => queue.spec(),
            Self::Sqlite(queue, _) => queue.spec(),
        }
    }

    async fn depth(&self) -> Option<u64> {
        match self {
            Self::Memory(queue) => queue.depth().await,
            Self::Sqlite(queue, _) => queue.depth().await,
        }
    }

    fn open(&mut self, unclean: bool) -> io::Result<()> {
        match self {
            Self::Memory(queue) => queue.open(unclean),
            Self::Sqlite(queue, _) => queue.open(unclean),
        }
    }

    async fn receive(&self, scope: Scope, max: NonZeroUsize) -> Result<Batch, ReceiveError> {
        match self {
            Self::Memory(queue) => queue.receive(scope, max).await,
            Self::Sqlite(queue, _) => queue.receive(scope, max).await,
        }
    }

    async fn settle(&self, tells: Vec<(Receipt, Tell)>) -> Vec<Answer> {
        match self {
            Self::Memory(queue) => queue.settle(tells).await,
            Self::Sqlite(queue, tally) => {
                let nacks = tells.iter().filter(|(_, tell)| matches!(tell, Tell::Nack { .. })).count();
                let answers = queue.settle(tells).await;
                let acks =
                    answers.iter().filter(|it| matches!(it, Answer::Closed { done: true, .. })).count();
                tally.acked.fetch_add(acks as u64, Ordering::Relaxed);
                tally.nacked.fetch_add(nacks as u64, Ordering::Relaxed);
                answers
            }
        }
    }
}
