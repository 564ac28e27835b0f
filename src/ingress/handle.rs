//! How other threads reach the ingress: commands over a channel, then its bell.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use shards::link::Bell;
use shards::model::{PoolSpec, SourceId};
use thiserror::Error;

use super::ask::{Found, Question};
use super::command::{Command, IngressSnapshot, MakeSource};

/// How long the ingress may take to answer before it counts as stuck.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The ingress can't be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HandleError {
    /// It has ended.
    #[error("the ingress has ended")]
    Ended,
    /// It does not answer.
    #[error("the ingress did not answer in {} s", ANSWER_MAX.as_secs())]
    Stuck,
}

/// A handle on a running ingress.
pub struct Handle<S> {
    commands: flume::Sender<Command<S>>,
    bell: Arc<Bell>,
}

impl<S> Clone for Handle<S> {
    fn clone(&self) -> Self {
        Self { commands: self.commands.clone(), bell: Arc::clone(&self.bell) }
    }
}

impl<S> Handle<S> {
    /// A handle that sends here and rings this bell.
    #[must_use]
    pub const fn new(commands: flume::Sender<Command<S>>, bell: Arc<Bell>) -> Self {
        Self { commands, bell }
    }

    /// Sends a command.
    ///
    /// # Errors
    /// The ingress has ended.
    pub fn send(&self, command: Command<S>) -> Result<(), HandleError> {
        self.commands.send(command).map_err(|_| HandleError::Ended)?;
        self.bell.ring();
        Ok(())
    }

    /// Adds or changes a pool.
    ///
    /// # Errors
    /// The ingress has ended.
    pub fn set_pool(&self, code: &str, spec: PoolSpec) -> Result<(), HandleError> {
        self.send(Command::SetPool { code: code.to_owned(), spec })
    }

    /// Adds a consumer and does not wait for it.
    ///
    /// # Errors
    /// The ingress has ended.
    pub fn add_source(
        &self,
        queue: &str,
        place: &str,
        make: MakeSource<S>,
        unclean: bool,
    ) -> Result<flume::Receiver<io::Result<SourceId>>, HandleError> {
        let (reply, answer) = flume::bounded(1);
        let (queue, place) = (queue.to_owned(), place.to_owned());
        self.send(Command::AddSource { queue, place, make, unclean, reply })?;
        Ok(answer)
    }

    /// A look at the whole engine. Blocks; not for async code.
    ///
    /// # Errors
    /// The ingress has ended or does not answer.
    pub fn snapshot(&self) -> Result<IngressSnapshot, HandleError> {
        let (reply, answer) = flume::bounded(1);
        self.send(Command::Snapshot(reply))?;
        answer.recv_timeout(ANSWER_MAX).map_err(|_| HandleError::Stuck)
    }

    /// A look at the whole engine.
    ///
    /// # Errors
    /// The ingress has ended or does not answer.
    pub async fn look(&self) -> Result<IngressSnapshot, HandleError> {
        let (reply, answer) = flume::bounded(1);
        self.send(Command::Snapshot(reply))?;
        let answered = tokio::time::timeout(ANSWER_MAX, answer.recv_async()).await;
        answered.map_err(|_| HandleError::Stuck)?.map_err(|_| HandleError::Ended)
    }

    /// Asks about messages or groups.
    ///
    /// # Errors
    /// The ingress has ended or does not answer.
    pub async fn ask(&self, question: Question) -> Result<Found, HandleError> {
        let (reply, answer) = flume::bounded(1);
        self.send(Command::Ask(question, reply))?;
        let answered = tokio::time::timeout(ANSWER_MAX, answer.recv_async()).await;
        answered.map_err(|_| HandleError::Stuck)?.map_err(|_| HandleError::Ended)
    }
}
