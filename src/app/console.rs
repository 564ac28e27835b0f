//! What other threads and HTTP clients may see and ask of the control loop. Shared; holds no broker and no
//! engine, only handles and the latest view.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use shards::model::PoolSpec;

use crate::admin::{
    DeadLetters, Explanation, Fact, GroupsBy, InflightFilter, Page, PoolChange, Publish, Published,
    RateChange, Router, RouterError,
};
use crate::broker::Queue;
use crate::broker::sqlite::{NewMessage, Placed, PutBack, SqliteWriter};
use crate::deadletter::{self, DeadLetterStore, redrive};
use crate::ingress::{Handle, HandleError, Question};
use crate::message;
use crate::telemetry::warnings::Warnings;
use crate::view::{DeadLetterFilter, DeadLetterView, GroupView, MessageView, View};

/// How long the control loop may take over an order.
const ORDER_MAX: Duration = Duration::from_secs(10);
/// Messages looked through for a filtered list.
const INFLIGHT_SCAN_MAX: usize = 2_000;

/// Dead letters that a page may leave out; a filter reaches those further back.
const OFFSET_MAX: usize = 10_000;

/// When a retry that met a message still being acked may be tried again.
const UNACKED_RETRY: Duration = Duration::from_secs(2);

/// What the control loop is asked to change.
pub(super) enum Order {
    /// Changes a pool until the process ends.
    SetPool { code: String, change: PoolChange, reply: flume::Sender<Result<(), RouterError>> },
}

/// The control loop's public face.
pub(super) struct Console {
    pub(super) handle: Handle<Queue>,
    pub(super) view: RwLock<Arc<View>>,
    pub(super) warnings: Warnings,
    pub(super) config: RwLock<serde_json::Value>,
    /// Queues that can be published to, in the order of the config.
    pub(super) writers: RwLock<Vec<(String, SqliteWriter)>>,
    pub(super) letters: DeadLetterStore,
    pub(super) orders: flume::Sender<Order>,
}

impl Console {
    fn writer(&self, queue: Option<&str>) -> Result<(String, SqliteWriter), RouterError> {
        let writers = self.writers.read();
        let found = match queue {
            None => writers.first(),
            Some(name) => writers.iter().find(|(other, _)| other == name),
        };
        if let Some((name, writer)) = found {
            return Ok((name.clone(), writer.clone()));
        }
        let Some(name) = queue else {
            return Err(RouterError::NotPossible("no queue that can be published to is configured".into()));
        };
        if self.view.read().queues.iter().any(|queue| queue.name == name) {
            let text = format!("queue {name} is only read here: publish to it with its broker's own clients");
            return Err(RouterError::NotPossible(text));
        }
        Err(RouterError::QueueUnknown(name.to_owned()))
    }

    async fn ask(&self, question: Question) -> Result<crate::ingress::Found, RouterError> {
        self.handle.ask(question).await.map_err(unreachable)
    }

    /// Explains a target by its origin or any URL of it.
    fn explain_target(&self, what: &str) -> Option<Explanation> {
        let view = self.view();
        let target = view.targets.iter().find(|target| what.starts_with(&target.origin))?.clone();
        let breaker = match target.breaker {
            crate::view::BreakerState::Admitting => "lets calls through".to_owned(),
            crate::view::BreakerState::Probing => "lets one call through at a time, to see".to_owned(),
            crate::view::BreakerState::Tripped => {
                format!("lets nothing through; next probe in {} ms", target.retry_in_ms.unwrap_or(0))
            }
        };
        let summary =
            format!("target {}: {} calls in flight, breaker {breaker}", target.origin, target.active);
        let facts = [
            ("breaker", breaker),
            ("calls in flight", target.active.to_string()),
            ("connections", target.connections.to_string()),
            ("calls", target.calls_total.to_string()),
            ("without an answer", target.failures_total.to_string()),
        ];
        Some(Explanation {
            what: what.to_owned(),
            kind: "TARGET".into(),
            summary,
            facts: facts.into_iter().map(|(name, value)| Fact { name: name.into(), value }).collect(),
            targets: vec![target],
            ..Explanation::default()
        })
    }
}

impl Router for Console {
    fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read())
    }

    fn warnings(&self) -> &Warnings {
        &self.warnings
    }

    fn config(&self) -> serde_json::Value {
        self.config.read().clone()
    }

    async fn set_pool(&self, code: &str, change: PoolChange) -> Result<(), RouterError> {
        let (reply, answer) = flume::bounded(1);
        let order = Order::SetPool { code: code.to_owned(), change, reply };
        self.orders.send(order).map_err(|_| ending())?;
        match tokio::time::timeout(ORDER_MAX, answer.recv_async()).await {
            Ok(Ok(result)) => result,
            _ => Err(ending()),
        }
    }

    async fn publish(&self, queue: Option<&str>, messages: Vec<Publish>) -> Result<Published, RouterError> {
        let (queue, writer) = self.writer(queue)?;
        let mut rows = Vec::with_capacity(messages.len());
        for (at, message) in messages.iter().enumerate() {
            let pointer = message.pointer();
            message::check(&pointer, None).map_err(|error| RouterError::Invalid {
                field: format!("messages[{at}]"),
                problem: format!("can't be delivered: {error}"),
            })?;
            let body =
                serde_json::to_vec(&pointer).map_err(|error| RouterError::Failed(error.to_string()))?;
            rows.push(NewMessage { body, ..NewMessage::default() });
        }
        let count = rows.len() as u64;
        writer
            .publish(rows)
            .await
            .map_err(|error| RouterError::Failed(format!("publish to {queue}: {error}")))?;
        Ok(Published { queue, count })
    }

    async fn groups(&self, by: GroupsBy, max: usize) -> Result<Vec<GroupView>, RouterError> {
        let question = match by {
            GroupsBy::Depth => Question::Deepest(max),
            GroupsBy::Age => Question::OldestGroups(max),
        };
        Ok(self.ask(question).await?.groups)
    }

    async fn inflight(&self, filter: InflightFilter, max: usize) -> Result<Vec<MessageView>, RouterError> {
        if let Some(id) = &filter.id {
            return Ok(self.ask(Question::Message(id.clone())).await?.messages);
        }
        let all = filter == InflightFilter::default();
        let scan = if all { max } else { INFLIGHT_SCAN_MAX };
        let mut messages = self.ask(Question::Oldest(scan)).await?.messages;
        let is =
            |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|wanted| wanted == value);
        messages.retain(|message| {
            is(&filter.queue, &message.queue)
                && is(&filter.pool, &message.pool)
                && is(&filter.group, &message.group)
                && filter.target.as_deref().is_none_or(|start| message.target.starts_with(start))
        });
        messages.truncate(max);
        Ok(messages)
    }

    async fn explain(&self, what: &str) -> Result<Explanation, RouterError> {
        let found = self.ask(Question::Message(what.to_owned())).await?;
        if let Some(message) = found.messages.into_iter().next() {
            return Ok(explain_message(what, message));
        }
        let found = self.ask(Question::Group(what.to_owned())).await?;
        if !found.groups.is_empty() {
            return Ok(explain_group(what, found.groups, found.messages));
        }
        if let Some(explanation) = self.explain_target(what) {
            return Ok(explanation);
        }
        let filter = DeadLetterFilter { id: Some(what.to_owned()), ..DeadLetterFilter::default() };
        let letters = self.dead_letters(filter, Page { offset: 0, limit: 10 }).await?;
        match letters.items.first() {
            Some(letter) => Ok(Explanation {
                what: what.to_owned(),
                kind: "DEAD_LETTER".into(),
                summary: format!(
                    "message {what} is in the dead-letter store as number {}: {}; `corelane dlq retry {}` sends it again",
                    letter.number, letter.detail, letter.number
                ),
                dead_letters: letters.items,
                ..Explanation::default()
            }),
            None => Err(RouterError::Unknown(what.to_owned())),
        }
    }

    async fn dead_letters(&self, filter: DeadLetterFilter, page: Page) -> Result<DeadLetters, RouterError> {
        let total = self.letters.count(filter.clone()).await.map_err(store_failed)?;
        // The store pages by number; a client's offset is bounded, so that a page far back costs little.
        let skip = usize::try_from(page.offset).unwrap_or(usize::MAX).min(OFFSET_MAX);
        let limit = usize::try_from(page.limit).unwrap_or(usize::MAX).saturating_add(skip);
        let mut items =
            self.letters.list(filter, deadletter::Page { below: None, limit }).await.map_err(store_failed)?;
        items.drain(..skip.min(items.len()));
        Ok(DeadLetters { total, items })
    }

    async fn dead_letter(&self, number: i64) -> Result<DeadLetterView, RouterError> {
        let found = self.letters.show(number).await.map_err(store_failed)?;
        found.ok_or(RouterError::DeadLetterUnknown(number))
    }

    async fn retry_dead_letters(&self, filter: DeadLetterFilter) -> Result<u64, RouterError> {
        let (writers, letters) = (self.writers.read().clone(), self.letters.clone());
        let put_back = move |queue: &str, back: Vec<deadletter::Redrive>| {
            let found = writers.iter().find(|(name, _)| name == queue);
            let Some((_, writer)) = found else {
                let text = format!("queue {queue} is not configured, or can't be written here");
                return Err(std::io::Error::new(std::io::ErrorKind::NotFound, text));
            };
            let back = back.into_iter().map(put_back_of).collect();
            let placed = writer.put_back_blocking(back)?;
            Ok(placed.into_iter().map(Placed::is_in).collect())
        };
        let retry = move || redrive(&letters, &filter, put_back, &|_| ());
        let retried = tokio::task::spawn_blocking(retry)
            .await
            .map_err(|error| RouterError::Failed(error.to_string()))?;
        let retried = retried.map_err(store_failed)?;
        if retried.unacked > 0 {
            let reason = format!(
                "{} dead letters are still being acked in their queue and stay in the store; {} were retried",
                retried.unacked, retried.letters
            );
            return Err(RouterError::Busy { reason, after: UNACKED_RETRY });
        }
        Ok(retried.letters)
    }

    async fn purge_dead_letters(&self, filter: DeadLetterFilter) -> Result<u64, RouterError> {
        self.letters.purge(filter).await.map_err(store_failed)
    }
}

fn put_back_of(letter: deadletter::Redrive) -> PutBack {
    PutBack { seq: letter.key, group: letter.group, body: letter.body, token: letter.token }
}

/// A pool's settings after a change.
#[must_use]
pub(super) fn changed(mut spec: PoolSpec, change: PoolChange) -> PoolSpec {
    if let Some(concurrency) = change.concurrency {
        spec.concurrency = concurrency;
    }
    match change.rate {
        RateChange::Keep => {}
        RateChange::Lift => spec.rate_per_minute = None,
        RateChange::Set(rate) => spec.rate_per_minute = Some(rate),
    }
    spec
}

fn explain_message(what: &str, message: MessageView) -> Explanation {
    let mut facts = vec![
        ("queue", message.queue.clone()),
        ("pool", message.pool.clone()),
        ("group", message.group.clone()),
        ("target", message.target.clone()),
        ("shard", message.shard.to_string()),
        ("place in its group", message.place.to_string()),
        ("waits for", message.waits_for.clone()),
        ("deliveries tried", message.attempts.to_string()),
        ("handed over by the queue", format!("{} times", message.deliveries)),
        ("here for", format!("{:.1} s", message.age_s)),
    ];
    if let Some(seconds) = message.resumes_in_s {
        facts.push(("next try in", format!("{seconds:.1} s")));
    }
    if let Some(seconds) = message.lease_left_s {
        facts.push(("lease ends in", format!("{seconds:.1} s, and is extended before")));
    }
    Explanation {
        what: what.to_owned(),
        kind: "MESSAGE".into(),
        summary: format!("message {what} waits for {}", message.waits_for),
        facts: facts.into_iter().map(|(name, value)| Fact { name: name.into(), value }).collect(),
        messages: vec![message],
        ..Explanation::default()
    }
}

fn explain_group(what: &str, groups: Vec<GroupView>, messages: Vec<MessageView>) -> Explanation {
    let count: u64 = groups.iter().map(|group| group.depth).sum();
    let head = groups.first().map(|group| format!("its head {} waits for {}", group.head, group.waits_for));
    let mut facts = Vec::new();
    for group in &groups {
        facts.push(Fact {
            name: format!("pool {}", group.pool),
            value: format!(
                "{} messages on shard {}, the oldest for {:.1} s; head {} ({} deliveries tried) waits for {}",
                group.depth, group.shard, group.age_s, group.head, group.attempts, group.waits_for
            ),
        });
    }
    Explanation {
        what: what.to_owned(),
        kind: "GROUP".into(),
        summary: format!("group {what} has {count} messages here; {}", head.unwrap_or_default()),
        facts,
        messages,
        groups,
        ..Explanation::default()
    }
}

fn unreachable(error: HandleError) -> RouterError {
    match error {
        HandleError::Ended => ending(),
        HandleError::Stuck => RouterError::Failed(error.to_string()),
    }
}

fn ending() -> RouterError {
    RouterError::Busy { reason: "the router is ending".into(), after: Duration::from_secs(5) }
}

#[expect(clippy::needless_pass_by_value, reason = "made for map_err")]
fn store_failed(error: std::io::Error) -> RouterError {
    RouterError::Failed(format!("use the dead-letter store: {error}"))
}
