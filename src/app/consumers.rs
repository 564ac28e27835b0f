//! The consumers of all queues: made, replaced and retired. Control thread.

use std::io;
use std::time::Duration;

use shards::model::SourceId;

use crate::broker::sqlite::{Place, SqliteWriter};
use crate::broker::{self, Queue, Tuning};
use crate::ingress::{Command, Handle, IngressSnapshot};
use crate::topology::QueueEntry;

use super::viewing::is_healthy;

/// A queue and who consumes it now.
struct Consumer {
    entry: QueueEntry,
    /// `None`: it could not be made; tried again at the next health check.
    source: Option<SourceId>,
    writer: Option<SqliteWriter>,
    /// Restarts in a row, and the health checks left out before the next one.
    restarts: u32,
    patience: u32,
}

/// All of them, in the order of the config.
pub(super) struct Consumers {
    handle: Handle<Queue>,
    tuning: Tuning,
    all: Vec<Consumer>,
    /// Files of consumers that are leaving. Kept until they are gone, so that the last to let go of a file,
    /// who waits for its keeper, is never the ingress.
    leaving: Vec<(SourceId, SqliteWriter)>,
    unclean: bool,
}

/// Health checks left out between restarts that do not help: doubles up to this.
const PATIENCE_MAX: u32 = 64;

impl Consumers {
    pub(super) const fn new(handle: Handle<Queue>, tuning: Tuning, unclean: bool) -> Self {
        Self { handle, tuning, all: Vec::new(), leaving: Vec::new(), unclean }
    }

    /// Consumes a queue from now on. A queue that can't be opened stays in the list and is tried again.
    ///
    /// # Errors
    /// Why it can't be opened.
    pub(super) async fn add(&mut self, entry: QueueEntry) -> io::Result<()> {
        let made = self.make(&entry).await;
        let (source, writer, result) = match made {
            Ok((source, writer)) => (Some(source), writer, Ok(())),
            Err(error) => (None, None, Err(error)),
        };
        self.all.retain(|consumer| consumer.entry.name != entry.name);
        self.all.push(Consumer { entry, source, writer, restarts: 0, patience: 0 });
        result
    }

    async fn make(&self, entry: &QueueEntry) -> io::Result<(SourceId, Option<SqliteWriter>)> {
        let writer = match Place::of(&entry.uri)? {
            Some(place) => {
                let open = move || SqliteWriter::open(&place.path, place.durability);
                Some(tokio::task::spawn_blocking(open).await.map_err(io::Error::other)??)
            }
            None => None,
        };
        let make = broker::make(entry, &self.tuning)?;
        let answer = self
            .handle
            .add_source(&entry.name, &entry.uri.to_string(), make, self.unclean)
            .map_err(io::Error::other)?;
        let source = answer.recv_async().await.map_err(io::Error::other)??;
        Ok((source, writer))
    }

    /// The new consumer first, then the old one drains.
    ///
    /// # Errors
    /// The new one can't be made; the old one goes on.
    pub(super) async fn rebuild(&mut self, entry: QueueEntry) -> io::Result<()> {
        let (source, writer) = self.make(&entry).await?;
        if let Some(old) = self.all.iter_mut().find(|consumer| consumer.entry.name == entry.name) {
            let retired = old.source.replace(source);
            old.entry = entry;
            let file = std::mem::replace(&mut old.writer, writer);
            self.retire(retired, file);
        } else {
            self.all.push(Consumer { entry, source: Some(source), writer, restarts: 0, patience: 0 });
        }
        Ok(())
    }

    /// Consumes a queue no more; what it handed over is still settled.
    pub(super) fn remove(&mut self, name: &str) {
        if let Some(at) = self.all.iter().position(|consumer| consumer.entry.name == name) {
            let gone = self.all.remove(at);
            self.retire(gone.source, gone.writer);
        }
    }

    fn retire(&mut self, source: Option<SourceId>, file: Option<SqliteWriter>) {
        if let Some(source) = source {
            // An ingress that has ended has no consumers.
            let _ = self.handle.send(Command::RetireSource { source });
            self.leaving.extend(file.map(|file| (source, file)));
        }
    }

    /// Lets go of the files of consumers that are gone.
    pub(super) fn let_go(&mut self, look: &IngressSnapshot) {
        let is_gone =
            |(source, _): &mut (SourceId, SqliteWriter)| look.sources.iter().all(|it| it.id != *source);
        for (_, file) in self.leaving.extract_if(.., is_gone) {
            tokio::task::spawn_blocking(move || drop(file));
        }
    }

    /// Queues whose consumer must be replaced now: never made, stopped, or silent for too long. One that a
    /// restart does not mend is restarted ever less often.
    pub(super) fn unhealthy(&mut self, look: &IngressSnapshot, poll_age_max: Duration) -> Vec<QueueEntry> {
        let mut sick = Vec::new();
        for consumer in &mut self.all {
            let is_sick = match consumer.source {
                None => true,
                // One that is not in the look yet was made since.
                Some(source) => {
                    look.sources.iter().any(|it| it.id == source && !is_healthy(it, poll_age_max))
                }
            };
            if !is_sick {
                (consumer.restarts, consumer.patience) = (0, 0);
            } else if consumer.patience > 0 {
                consumer.patience -= 1;
            } else {
                consumer.patience = (1 << consumer.restarts.min(PATIENCE_MAX.ilog2())) - 1;
                consumer.restarts += 1;
                sick.push(consumer.entry.clone());
            }
        }
        sick
    }

    /// Queues that can be published to.
    pub(super) fn writers(&self) -> Vec<(String, SqliteWriter)> {
        let writer = |it: &Consumer| Some((it.entry.name.clone(), it.writer.clone()?));
        self.all.iter().filter_map(writer).collect()
    }

    /// All queues.
    pub(super) fn entries(&self) -> Vec<QueueEntry> {
        self.all.iter().map(|consumer| consumer.entry.clone()).collect()
    }
}
