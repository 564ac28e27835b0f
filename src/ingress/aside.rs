//! What the ingress asks of a dead-letter store. The trait is the ingress's; `deadletter` implements it.

use std::io;

use shards::model::{DeadReason, Dispatch};

/// Messages of one batch that are logged when they are set aside.
const LETTERS_LOGGED: usize = 5;

/// A message that will not be delivered, with all that a retry needs.
#[derive(Clone, PartialEq, Eq)]
pub struct Letter {
    /// Name of the queue it came from.
    pub queue: String,
    /// Its receipt's key. Where the queue's keys name places (SQLite), a retry takes that place again.
    pub key: u64,
    /// The sender's id; empty if it could not be read.
    pub id: String,
    /// Its group; empty if none.
    pub group: String,
    /// Its pool; empty if none.
    pub pool: String,
    /// Where it was to go; empty if it could not be read.
    pub target: String,
    /// Bearer token. Kept for a retry, never shown.
    pub token: String,
    /// What its failure did to its group.
    pub dispatch: Dispatch,
    /// Went before others.
    pub high_priority: bool,
    /// What was to be posted; what was received if it could not be read.
    pub body: Vec<u8>,
    /// Why it is here.
    pub reason: DeadReason,
    /// The same in words.
    pub detail: String,
    /// The target's last status; 0 if none.
    pub status: u16,
    /// Deliveries tried.
    pub attempts: u16,
}

impl std::fmt::Debug for Letter {
    /// Shows no token and no body.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Letter")
            .field("queue", &self.queue)
            .field("key", &self.key)
            .field("id", &self.id)
            .field("group", &self.group)
            .field("reason", &self.reason)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

/// Where messages go that can't be delivered.
#[expect(async_fn_in_trait, reason = "called on the ingress thread only: no Send bound")]
pub trait SetAside {
    /// Keeps all of them, durably, or none. Keeping the same (queue, key) twice keeps it once.
    ///
    /// # Errors
    /// They are not kept; the messages go back to their queue.
    async fn set_aside(&self, letters: Vec<Letter>) -> io::Result<()>;
}

/// Says which messages are set aside, a few of each batch: a target that refuses all must not fill the disk.
pub(super) fn note_letters(letters: &[Letter]) {
    for letter in letters.iter().take(LETTERS_LOGGED) {
        tracing::warn!(
            id = letter.id,
            queue = letter.queue,
            group = letter.group,
            pool = letter.pool,
            to = without_query(&letter.target),
            status = letter.status,
            attempts = letter.attempts,
            reason = letter.reason.name(),
            "message set aside: {}",
            letter.detail
        );
    }
    if letters.len() > LETTERS_LOGGED {
        tracing::warn!(count = letters.len() - LETTERS_LOGGED, "and more messages set aside");
    }
}

/// A query may hold a secret.
fn without_query(target: &str) -> &str {
    target.split(['?', '#']).next().unwrap_or(target)
}

/// Why a message is set aside, in words.
pub(super) fn detail(reason: DeadReason, status: u16, attempts: u16) -> String {
    match reason {
        DeadReason::Refused => format!("the target answered {status}"),
        DeadReason::Exhausted if status == 0 => format!("no answer in {attempts} deliveries"),
        DeadReason::Exhausted => format!("{attempts} deliveries failed, the last with {status}"),
        DeadReason::Malformed => "it could not be read".to_owned(),
    }
}
