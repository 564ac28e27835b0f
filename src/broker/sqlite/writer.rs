//! Publishing to a queue file, from any thread.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::file::{Gauges, QueueFile, ended};
use super::request::{NewMessage, Placed, PutBack, Request};
use super::schema::Durability;
use super::source::{Consume, SqliteQueue};
use crate::message::Pointer;

/// A handle on an open queue file. Clones share it; the file is closed with the last one and the last consumer.
#[derive(Clone)]
pub struct SqliteWriter(Arc<QueueFile>);

impl SqliteWriter {
    /// Opens a queue's file, creates it if there is none. Blocks; a file that is open already is shared, and then
    /// keeps the durability it was opened with.
    ///
    /// # Errors
    /// It can't be opened, is not a queue, or was written by a newer version.
    pub fn open(path: &Path, durability: Durability) -> io::Result<Self> {
        QueueFile::open(path, durability).map(Self)
    }

    /// Opens it with a keeper of its own, as another process would.
    ///
    /// # Errors
    /// As [`SqliteWriter::open`].
    pub fn open_apart(path: &Path, durability: Durability) -> io::Result<Self> {
        QueueFile::open_apart(path, durability).map(Self)
    }

    /// A consumer of this file.
    #[must_use]
    pub fn consume(&self, consume: Consume) -> SqliteQueue {
        SqliteQueue::new(Arc::clone(&self.0), consume)
    }

    /// Publishes all of them or none; they are durable when this returns. Their numbers, in order.
    ///
    /// # Errors
    /// None of them is published.
    pub async fn publish(&self, messages: Vec<NewMessage>) -> io::Result<Vec<u64>> {
        let messages = grouped(messages);
        self.0.ask(|reply| Request::Publish(messages, reply)).recv_async().await.map_err(ended)?
    }

    /// The same for a thread that may block.
    ///
    /// # Errors
    /// None of them is published.
    pub fn publish_blocking(&self, messages: Vec<NewMessage>) -> io::Result<Vec<u64>> {
        let messages = grouped(messages);
        self.0.ask(|reply| Request::Publish(messages, reply)).recv().map_err(ended)?
    }

    /// Puts dead letters back at their old places, ahead of newer messages of their groups, in one transaction;
    /// says of each what became of it. Where the place holds another message it goes to the end.
    ///
    /// # Errors
    /// None of them is put back.
    pub async fn put_back(&self, letters: Vec<PutBack>) -> io::Result<Vec<Placed>> {
        self.0.ask(|reply| Request::PutBack(letters, reply)).recv_async().await.map_err(ended)?
    }

    /// The same for a thread that may block.
    ///
    /// # Errors
    /// None of them is put back.
    pub fn put_back_blocking(&self, letters: Vec<PutBack>) -> io::Result<Vec<Placed>> {
        self.0.ask(|reply| Request::PutBack(letters, reply)).recv().map_err(ended)?
    }

    /// Messages that wait.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn depth_blocking(&self) -> io::Result<u64> {
        self.0.ask(Request::Depth).recv().map_err(ended)?
    }

    /// How its keeper fares.
    #[must_use]
    pub fn gauges(&self) -> &Gauges {
        &self.0.gauges
    }
}

/// Gives every message the group by which the queue keeps its order: what the publisher says, else what the body
/// says. A blank one is none.
fn grouped(mut messages: Vec<NewMessage>) -> Vec<NewMessage> {
    for message in &mut messages {
        let named = message.group.take().or_else(|| {
            let pointer: Pointer<'_> = serde_json::from_slice(&message.body).ok()?;
            pointer.message_group_id.map(std::borrow::Cow::into_owned)
        });
        message.group = named.filter(|group| !group.trim().is_empty());
    }
    messages
}
