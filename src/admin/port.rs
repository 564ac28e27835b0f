//! What the admin API needs of the router, and the words between them. `app` implements it.

use std::borrow::Cow;
use std::fmt;
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::message::Pointer;
use crate::telemetry::warnings::Warnings;
use crate::view::{DeadLetterFilter, DeadLetterView, GroupView, MessageView, TargetView, View};

/// What the admin API needs of the router.
pub trait Router: Send + Sync + 'static {
    /// The latest view.
    fn view(&self) -> Arc<View>;

    /// The warnings.
    fn warnings(&self) -> &Warnings;

    /// The config in effect; secrets are shown as `***`.
    fn config(&self) -> serde_json::Value;

    /// Changes a pool while traffic flows.
    fn set_pool(
        &self,
        code: &str,
        change: PoolChange,
    ) -> impl Future<Output = Result<(), RouterError>> + Send;

    /// Puts messages on a queue, in order; `None` = the first queue. They are durable when it returns.
    fn publish(
        &self,
        queue: Option<&str>,
        messages: Vec<Publish>,
    ) -> impl Future<Output = Result<Published, RouterError>> + Send;

    /// The deepest or the oldest groups.
    fn groups(
        &self,
        by: GroupsBy,
        max: usize,
    ) -> impl Future<Output = Result<Vec<GroupView>, RouterError>> + Send;

    /// Messages that are held.
    fn inflight(
        &self,
        filter: InflightFilter,
        max: usize,
    ) -> impl Future<Output = Result<Vec<MessageView>, RouterError>> + Send;

    /// Where a message id, a group or a target is, and what it waits for.
    fn explain(&self, what: &str) -> impl Future<Output = Result<Explanation, RouterError>> + Send;

    /// A page of dead letters, the latest first, without bodies.
    fn dead_letters(
        &self,
        filter: DeadLetterFilter,
        page: Page,
    ) -> impl Future<Output = Result<DeadLetters, RouterError>> + Send;

    /// One dead letter, with its body.
    fn dead_letter(&self, number: i64) -> impl Future<Output = Result<DeadLetterView, RouterError>> + Send;

    /// Sends dead letters on their way again; how many.
    fn retry_dead_letters(
        &self,
        filter: DeadLetterFilter,
    ) -> impl Future<Output = Result<u64, RouterError>> + Send;

    /// Removes dead letters for good; how many.
    fn purge_dead_letters(
        &self,
        filter: DeadLetterFilter,
    ) -> impl Future<Output = Result<u64, RouterError>> + Send;
}

/// Why the router did not do it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RouterError {
    /// No such pool. The caller mends it.
    #[error("there is no pool {0:?}: GET /api/pools lists them")]
    PoolUnknown(String),
    /// No such queue. The caller mends it.
    #[error("there is no queue {0:?}: GET /api/queues lists them")]
    QueueUnknown(String),
    /// No message, group or target of this name. Perhaps it is done already.
    #[error("nothing is known of {0:?}: no message, group or target of this name is held")]
    Unknown(String),
    /// No such dead letter. Perhaps someone else retried it.
    #[error("there is no dead letter {0}: it may have been retried or purged")]
    DeadLetterUnknown(i64),
    /// A field's value is wrong. The caller mends it.
    #[error("{field} {problem}")]
    Invalid {
        /// Which one.
        field: String,
        /// What is wrong with its value, and what would be right.
        problem: String,
    },
    /// It can't be done with what is configured, such as publishing to a queue that we only read.
    #[error("{0}")]
    NotPossible(String),
    /// Not now. Waiting mends it.
    #[error("busy: {reason}; try again in {} s", after.as_secs().max(1))]
    Busy {
        /// With what.
        reason: String,
        /// When to ask again.
        after: Duration,
    },
    /// Something of ours failed, such as the store. An operator mends it.
    #[error("{0}")]
    Failed(String),
}

/// A change of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolChange {
    /// Calls in flight at most; none = as it is.
    pub concurrency: Option<NonZeroU16>,
    /// Messages per minute.
    pub rate: RateChange,
}

/// What becomes of a pool's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateChange {
    /// As it is.
    Keep,
    /// No limit any more.
    Lift,
    /// Messages per minute at most.
    Set(NonZeroU32),
}

/// A message to publish: an owned [`Pointer`], checked by [`crate::message::check`]. Its token is never shown.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Publish {
    /// The sender's id.
    pub id: String,
    /// URL to POST to.
    pub mediation_target: String,
    /// Which pool; none = the default pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_code: Option<String>,
    /// Runs in order with others of its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_group_id: Option<String>,
    /// Bearer token for the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_token: Option<String>,
    /// Always `HTTP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mediation_type: Option<String>,
    /// Its group goes before others while it is at the head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_priority: Option<bool>,
    /// `IMMEDIATE`, `NEXT_ON_ERROR` or `BLOCK_ON_ERROR`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch_mode: Option<String>,
}

impl Publish {
    /// The message as it stands in a queue.
    #[must_use]
    pub fn pointer(&self) -> Pointer<'_> {
        let borrow = |text: &'_ Option<String>| text.clone().map(Cow::Owned);
        Pointer {
            id: Cow::Borrowed(&self.id),
            pool_code: borrow(&self.pool_code),
            auth_token: borrow(&self.auth_token),
            mediation_type: borrow(&self.mediation_type),
            mediation_target: Cow::Borrowed(&self.mediation_target),
            message_group_id: borrow(&self.message_group_id),
            high_priority: self.high_priority,
            dispatch_mode: borrow(&self.dispatch_mode),
        }
    }
}

impl fmt::Debug for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publish")
            .field("id", &self.id)
            .field("mediation_target", &self.mediation_target)
            .field("pool_code", &self.pool_code)
            .field("message_group_id", &self.message_group_id)
            .field("auth_token", &self.auth_token.as_ref().map(|_| "***"))
            .finish_non_exhaustive()
    }
}

/// What was published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Published {
    /// Where.
    pub queue: String,
    /// How many messages.
    pub count: u64,
}

/// Which groups come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupsBy {
    /// Those with most messages.
    #[default]
    Depth,
    /// Those whose oldest message is oldest.
    Age,
}

/// Which held messages. An empty filter means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InflightFilter {
    /// The sender's id.
    pub id: Option<String>,
    /// The queue.
    pub queue: Option<String>,
    /// The pool.
    pub pool: Option<String>,
    /// The group.
    pub group: Option<String>,
    /// What the target's URL starts with.
    pub target: Option<String>,
}

/// A part of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// How many to leave out first.
    pub offset: u64,
    /// How many at most.
    pub limit: u32,
}

/// A page of dead letters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetters {
    /// How many there are over all pages.
    pub total: u64,
    /// Those of this page.
    pub items: Vec<DeadLetterView>,
}

/// Where something is and what it waits for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// What was asked for.
    pub what: String,
    /// `MESSAGE`, `GROUP`, `TARGET` or `DEAD_LETTER`.
    pub kind: String,
    /// The answer in a sentence or two.
    pub summary: String,
    /// What it rests on, in reading order.
    pub facts: Vec<Fact>,
    /// The messages it is about.
    pub messages: Vec<MessageView>,
    /// The groups it is about.
    pub groups: Vec<GroupView>,
    /// The targets it is about.
    pub targets: Vec<TargetView>,
    /// The dead letters it is about.
    pub dead_letters: Vec<DeadLetterView>,
}

/// A line of an explanation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fact {
    /// What.
    pub name: String,
    /// Its value, in words.
    pub value: String,
}
