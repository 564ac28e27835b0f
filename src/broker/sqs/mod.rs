//! SQS: long polls, deletes and visibility changes in batches of ten. Core: the ingress.
//!
//! - Q1: a receive that was sent is never abandoned; what it brings too late goes back at once.
//! - Q2: acks, extensions and nacks use a message's newest handle.
//! - Q3: no more is asked for than fits: polls that are out count as what they may bring.
//! - Q4: where SQS does not lock groups and an answer was lost, nothing is asked for until what it may have brought is
//!   visible again. A poll whose caller is gone may still take messages until its own time is over.

mod address;
mod client;
mod handles;

use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;
use std::time::Duration;

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use shards::clock::{Clock, Moment};
use shards::desk::{Arrival, Receipt, SourceSpec, Tell};
use shards::model::{Ordering, Ticket};
use tokio::task::JoinSet;

use crate::ingress::{Answer, Batch, Connected, Linger, ReceiveError, Scope, Source, Unreadable};
use crate::message;
use crate::topology::QueueEntry;

use address::Address;
use client::{Link, PollError};
use handles::Handles;

/// Messages in one request: SQS's limit.
const REQUEST_MAX: usize = 10;
/// How long fewer than ten deletes wait for more.
const LINGER: Duration = Duration::from_millis(2);
/// Settlings at once: what is to be told next need not wait for answers.
const SETTLES_AT_ONCE: usize = 8;
/// Requests of one settling that are under way at once.
const SETTLING_MAX: usize = 16;
/// How much later than it should SQS may have handed over what an unheard answer brought.
const ANSWER_LATE: Duration = Duration::from_secs(1);
/// The longest that a receive sleeps while it may not ask.
const QUIET_NAP: Duration = Duration::from_secs(1);
/// Lease until the queue has said its own.
const LEASE_ASSUMED: Duration = Duration::from_secs(30);

/// Settings of all SQS queues.
#[derive(Clone, Debug)]
pub struct SqsTuning {
    /// Messages asked for in one receive, 1 to 10.
    pub messages_per_poll: u8,
    /// Long poll.
    pub wait: Duration,
    /// Speak to this URL instead of AWS.
    pub endpoint: Option<String>,
    /// Pause after a receive that was not full.
    pub partial_batch_pause: Duration,
}

/// What a poll brought, and when.
struct Polled {
    sent: Moment,
    at: Moment,
    asked: usize,
    messages: Result<Vec<Message>, PollError>,
}

/// A consumer of an SQS queue.
pub struct SqsQueue {
    address: Address,
    entry: QueueEntry,
    tuning: SqsTuning,
    link: RefCell<Option<Link>>,
    lease: Cell<Duration>,
    handles: RefCell<Handles>,
    /// Messages that the polls under way may bring.
    asked: Cell<usize>,
    polls: Cell<usize>,
    polled: (flume::Sender<Polled>, flume::Receiver<Polled>),
    /// An answer was not heard: what it brought was handed over until then. Only where order matters.
    unheard_until: Cell<Option<Moment>>,
    /// It receives no more, only settles.
    stopped: Cell<bool>,
}

impl SqsQueue {
    /// A consumer of the queue at `url`.
    #[must_use]
    pub fn new(url: &str, entry: &QueueEntry, tuning: SqsTuning) -> Self {
        Self {
            address: Address::new(url, tuning.endpoint.as_deref()),
            lease: Cell::new(entry.visibility.unwrap_or(LEASE_ASSUMED)),
            entry: entry.clone(),
            tuning,
            link: RefCell::default(),
            handles: RefCell::default(),
            asked: Cell::new(0),
            polls: Cell::new(0),
            polled: flume::unbounded(),
            unheard_until: Cell::new(None),
            stopped: Cell::new(false),
        }
    }

    fn spec_with(&self, deliveries_max: Option<u16>) -> SourceSpec {
        let usual = if self.address.is_fifo() { Ordering::Batch } else { Ordering::Strict };
        SourceSpec {
            ordering: self.entry.ordering.unwrap_or(usual),
            lease: Some(self.lease.get()),
            unheard_max: self.tuning.wait + ANSWER_LATE,
            attempts_max: self.entry.attempts_max,
            deliveries_max,
            repeats: !self.address.is_fifo(),
            judges: false,
            holds_permits: false,
            // What is handed over, and what the next polls may bring meanwhile.
            batch_max: 2 * REQUEST_MAX * usize::from(self.entry.connections.get()),
        }
    }

    async fn connect(&self) -> Result<Batch, ReceiveError> {
        let link = Link::new(&self.address).await;
        let learnt = link.learn().await?;
        self.lease.set(self.entry.visibility.unwrap_or(learnt.lease).max(Duration::from_secs(1)));
        self.link.replace(Some(link));
        let spec = self.spec_with(learnt.deliveries_max);
        Ok(Batch { connected: Some(Connected { epoch: 0, spec }), ..Batch::default() })
    }

    fn is_strict(&self) -> bool {
        self.spec_with(None).ordering == Ordering::Strict
    }

    fn note_unheard(&self, until: Moment) {
        self.unheard_until.set(self.unheard_until.get().max(Some(until)));
    }

    /// How long what an unheard answer brought may still be hidden: newer messages must not overtake it.
    fn quiet_at(&self, now: Moment) -> Duration {
        self.unheard_until.get().map_or(Duration::ZERO, |until| (until + self.lease.get()).since(now))
    }

    /// Polls at once. Where order rests on the order of hand-overs there is one: of two answers nobody knows which
    /// SQS gave first.
    fn polls_max(&self) -> usize {
        if self.is_strict() { 1 } else { usize::from(self.entry.connections.get()) }
    }

    /// Sends polls for what fits, one per connection at most.
    fn send_polls(&self, link: &Link, max: usize) {
        let most = usize::from(self.tuning.messages_per_poll).clamp(1, REQUEST_MAX);
        while self.polls.get() < self.polls_max() {
            let room = max.saturating_sub(self.asked.get());
            if room == 0 && self.polls.get() > 0 {
                return;
            }
            let asked = room.clamp(1, most);
            self.polls.set(self.polls.get() + 1);
            self.asked.set(self.asked.get() + asked);
            let (link, sender) = (link.clone(), self.polled.0.clone());
            let (wait, lease) = (self.tuning.wait, self.lease.get());
            let sent = Clock.now();
            tokio::task::spawn_local(async move {
                let messages = link.poll(i32::try_from(asked).unwrap_or(1), wait, lease).await;
                let _ = sender.send(Polled { sent, at: Clock.now(), asked, messages });
            });
        }
    }

    /// Takes what a poll brought, and says whether it must go back: it is too old, or an older one is hidden.
    fn take(&self, polled: Polled) -> Result<(Vec<Message>, bool), ReceiveError> {
        let now = Clock.now();
        self.polls.set(self.polls.get() - 1);
        self.asked.set(self.asked.get() - polled.asked);
        let goes_back = now.since(polled.at) >= self.lease.get() / 2 || !self.quiet_at(now).is_zero();
        match polled.messages {
            Ok(messages) => Ok((messages, goes_back)),
            Err(PollError { unheard, error }) => {
                if unheard && self.is_strict() {
                    self.note_unheard((polled.sent + self.tuning.wait).max(now) + ANSWER_LATE);
                }
                Err(error)
            }
        }
    }

    fn read(&self, got: Message, scope: Scope, batch: &mut Batch) {
        let attribute = |name| got.attributes.as_ref().and_then(|all| all.get(&name));
        let group = attribute(MessageSystemAttributeName::MessageGroupId).cloned();
        let count = attribute(MessageSystemAttributeName::ApproximateReceiveCount);
        let deliveries = count.and_then(|text| text.parse().ok()).unwrap_or(0);
        let broker_id = scope.broker_id(got.message_id.unwrap_or_default().as_bytes());
        let key = self.handles.borrow_mut().keep(broker_id, got.receipt_handle.unwrap_or_default());
        let receipt = Receipt { key, epoch: 0 };
        let body = got.body.unwrap_or_default();
        match message::read(body.as_bytes(), group.as_deref()) {
            Ok(message) => batch.arrivals.push(Arrival {
                parcel: message.parcel,
                broker_id,
                receipt,
                deliveries,
                dispatch: message.dispatch,
                high_priority: message.high_priority,
            }),
            Err(error) => batch.unreadable.push(Unreadable {
                receipt,
                group: group.unwrap_or_default(),
                body: body.into_bytes(),
                detail: error.to_string(),
            }),
        }
    }

    /// Makes messages that came too late visible again, in their order. Those that can't be are as if they were unheard.
    async fn give_back(&self, link: &Link, late: Vec<Message>) {
        let handles: Vec<_> =
            late.into_iter().filter_map(|message| Some((message.receipt_handle?, 0))).collect();
        if !handles.is_empty() && link.hide(&handles).await.contains(&false) && self.is_strict() {
            self.note_unheard(Clock.now());
        }
    }
}

impl Source for SqsQueue {
    fn spec(&self) -> SourceSpec {
        self.spec_with(None)
    }

    fn linger(&self) -> Option<Linger> {
        Some(Linger { count: REQUEST_MAX, wait: LINGER })
    }

    fn settles_at_once(&self) -> usize {
        SETTLES_AT_ONCE
    }

    async fn depth(&self) -> Option<u64> {
        let link = self.link.borrow().clone()?;
        link.depth().await
    }

    async fn receive(&self, scope: Scope, max: NonZeroUsize) -> Result<Batch, ReceiveError> {
        let link = self.link.borrow().clone();
        let Some(link) = link else { return self.connect().await };
        let quiet = self.quiet_at(Clock.now());
        if !quiet.is_zero() && self.polls.get() == 0 {
            tokio::time::sleep(quiet.min(QUIET_NAP)).await;
            return Ok(Batch::default());
        }
        if quiet.is_zero() {
            self.send_polls(&link, max.get());
        }
        let Ok(first) = self.polled.1.recv_async().await else { return Ok(Batch::default()) };
        let mut batch = Batch::default();
        let mut next = Some(first);
        while let Some(polled) = next.take() {
            let asked = polled.asked;
            let (messages, goes_back) = match self.take(polled) {
                Ok(taken) => taken,
                // What came before is ours all the same; the next poll says what is wrong.
                Err(_) if !batch.is_empty() => break,
                Err(error) => return Err(error),
            };
            let is_partial = !messages.is_empty() && messages.len() < asked;
            if goes_back {
                self.give_back(&link, messages).await;
            } else {
                for message in messages {
                    self.read(message, scope, &mut batch);
                }
            }
            if is_partial && !self.tuning.partial_batch_pause.is_zero() {
                tokio::time::sleep(self.tuning.partial_batch_pause).await;
            }
            if batch.arrivals.len() < max.get() {
                next = self.polled.1.try_recv().ok();
            }
        }
        // SQS works on the next answer while the desk works on this one.
        let room = max.get().saturating_sub(batch.arrivals.len());
        if room > 0 && !batch.arrivals.is_empty() && quiet.is_zero() {
            self.send_polls(&link, room);
        }
        Ok(batch)
    }

    async fn settle(&self, tells: Vec<(Receipt, Tell)>) -> Vec<Answer> {
        let Some(link) = self.link.borrow().clone() else { return Vec::new() };
        let sent = Clock.now();
        let (mut deletes, mut hides) = (Vec::new(), Vec::new());
        let mut answers = Vec::with_capacity(tells.len());
        for (receipt, tell) in tells {
            let mut handles = self.handles.borrow_mut();
            match tell {
                Tell::Ack { ticket } => match handles.take(receipt.key) {
                    Some(handle) => deletes.push((handle, ticket)),
                    // Deleted before, or handed over again since: then its new receipt is acked.
                    None => answers.extend(ticket.map(|ticket| Answer::Closed { ticket, done: false })),
                },
                Tell::Nack { delay_s, .. } => {
                    hides.extend(handles.take(receipt.key).map(|handle| (handle, delay_s, None)));
                }
                Tell::Extend { ticket } => match handles.get(receipt.key) {
                    Some(handle) => {
                        let lease_s = u32::try_from(self.lease.get().as_secs()).unwrap_or(u32::MAX);
                        hides.push((handle.to_owned(), lease_s, Some(ticket)));
                    }
                    None => answers.push(Answer::Extended { ticket, done: false, sent }),
                },
                Tell::Answered { .. } => unreachable!("this source does not judge"),
                Tell::DeadLetter { .. } => unreachable!("a port sets dead letters aside and tells an ack"),
            }
        }
        let mut calls: JoinSet<Vec<Answer>> = JoinSet::new();
        for work in works(deletes, hides) {
            if calls.len() >= SETTLING_MAX {
                answers.extend(calls.join_next().await.and_then(Result::ok).unwrap_or_default());
            }
            calls.spawn_local(work.run(link.clone(), sent));
        }
        while let Some(done) = calls.join_next().await {
            answers.extend(done.unwrap_or_default());
        }
        // While it goes on, the desk remembers what it gave back; the next consumer does not.
        answers.retain(|answer| self.stopped.get() || !matches!(answer, Answer::Unheard { .. }));
        answers
    }

    /// Waits for every poll that is out: none is abandoned (Q1).
    async fn stop(&self) -> Option<Moment> {
        self.stopped.set(true);
        let link = self.link.borrow().clone();
        while self.polls.get() > 0
            && let Ok(polled) = self.polled.1.recv_async().await
        {
            let taken = self.take(polled);
            if let (Ok((messages, _)), Some(link)) = (taken, &link) {
                self.give_back(link, messages).await;
            }
        }
        self.unheard_until.get()
    }
}

/// One request.
enum Work {
    Delete(Vec<(String, Option<Ticket>)>),
    Hide(Vec<(String, u32, Option<Ticket>)>),
}

fn works(
    deletes: Vec<(String, Option<Ticket>)>,
    hides: Vec<(String, u32, Option<Ticket>)>,
) -> impl Iterator<Item = Work> {
    let deletes = tens(deletes).into_iter().map(Work::Delete);
    // Extensions first: they have a deadline.
    tens(hides).into_iter().map(Work::Hide).chain(deletes)
}

fn tens<T>(all: Vec<T>) -> Vec<Vec<T>> {
    let mut all = all.into_iter().peekable();
    let mut parts = Vec::new();
    while all.peek().is_some() {
        parts.push(all.by_ref().take(REQUEST_MAX).collect());
    }
    parts
}

impl Work {
    async fn run(self, link: Link, sent: Moment) -> Vec<Answer> {
        match self {
            Self::Delete(entries) => {
                let (handles, tickets): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
                let done = link.delete(&handles).await;
                let answer =
                    |(ticket, done): (Option<Ticket>, bool)| Some(Answer::Closed { ticket: ticket?, done });
                tickets.into_iter().zip(done).filter_map(answer).collect()
            }
            Self::Hide(entries) => {
                let tickets: Vec<_> = entries.iter().map(|(.., ticket)| *ticket).collect();
                let handles: Vec<_> =
                    entries.into_iter().map(|(handle, delay_s, _)| (handle, delay_s)).collect();
                let done = link.hide(&handles).await;
                let answer = |(ticket, done): (Option<Ticket>, bool)| match ticket {
                    Some(ticket) => Some(Answer::Extended { ticket, done, sent }),
                    // It was to go back, and stays hidden.
                    None => (!done).then_some(Answer::Unheard { until: sent }),
                };
                tickets.into_iter().zip(done).filter_map(answer).collect()
            }
        }
    }
}
