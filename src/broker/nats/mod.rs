//! NATS JetStream: a durable pull consumer with explicit acks. Core: the ingress.
//!
//! - A pull is never abandoned while the server may answer it: what comes late belongs to the next receive.
//! - An ack, a nak and an extension count only when the server has answered them.
//! - JetStream does not notice that a client is gone: what it handed to a lost connection stays hidden for a lease, and
//!   newer messages would overtake it. After a loss the consumer's own count of hand-overs says whether there is any;
//!   if so, and order matters, nothing is asked for until that lease is over.
//! - What came back while no one received is handed over by the server in the order in which it came back. Where order
//!   matters, all of it is taken first and passed on in the stream's order (`returned.rs`).
//! - Ack subjects stay valid over connections, so all receipts are of one epoch.

mod address;
mod client;
mod connect;
mod group;
mod handles;
mod ledger;
mod line;
mod returned;
mod settle;
mod wire;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::Duration;

use async_nats::Message;
use shards::clock::{Clock, Moment};
use shards::desk::{Arrival, Receipt, SourceSpec, Tell};
use shards::model::Ordering;

use crate::ingress::{Answer, Batch, Connected, ReceiveError, Scope, Source, Unreadable};
use crate::message;
use crate::topology::QueueEntry;
use address::Address;
use client::{Pulled, Session};
use connect::away;
use handles::{Handle, Handles};
use wire::{Delivery, GivenUp};

/// Messages asked for at once at most.
const BATCH_MAX: usize = 1_000;
/// A server that syncs its files takes half a millisecond for each ack. What is sent it will take, though we may be
/// gone by then; what waits here for earlier answers would be delivered again after a crash.
const SETTLES_AT_ONCE: usize = 256;
/// The lease of a consumer that we make, where the config does not say.
const LEASE_DEFAULT: Duration = Duration::from_secs(30);
/// An empty answer that came sooner than this is followed by a pause, so that a server that has nothing to say is not
/// asked all the time.
const EMPTY_SOONEST: Duration = Duration::from_millis(20);
/// That pause.
const EMPTY_PAUSE: Duration = Duration::from_millis(50);
/// Messages given up by the server that wait to be set aside; more than that were lost to the dead-letter store anyway.
const GIVEN_UP_MAX: usize = 65_536;
/// A server is late with what comes back: it keeps whole seconds over a restart.
const BACK_LATE: Duration = Duration::from_millis(1_500);
/// The longest that a receive sleeps while it may not ask.
const QUIET_NAP: Duration = Duration::from_secs(1);

/// A queue on a JetStream consumer.
pub struct NatsQueue {
    address: Address,
    spec: Cell<SourceSpec>,
    /// What the config asks the lease to be.
    visibility: Option<Duration>,
    session: RefCell<Option<Rc<Session>>>,
    /// Held while connecting: one at a time.
    connecting: tokio::sync::Mutex<()>,
    handles: RefCell<Handles>,
    given_up: RefCell<VecDeque<GivenUp>>,
    /// The newest hand-over that was seen, by the consumer's count; `None` = not connected yet.
    consumer_seq: Cell<Option<u64>>,
    /// What a lost connection asked for may be handed over until then; `None` = the consumer's count of hand-overs has
    /// told since what came of that.
    asked_until: Cell<Option<Moment>>,
    /// There were hand-overs until then that were not seen.
    unheard_until: Cell<Option<Moment>>,
    /// It receives no more, only settles.
    stopped: Cell<bool>,
}

impl NatsQueue {
    /// A consumer of a queue. Does not connect.
    ///
    /// # Errors
    /// The URI is wrong; the text says how.
    pub fn new(entry: &QueueEntry) -> io::Result<Self> {
        let address = Address::parse(&entry.uri.reveal()).map_err(|why| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("queue {}: its URI {why}", entry.name))
        })?;
        let spec = SourceSpec {
            ordering: entry.ordering.unwrap_or(Ordering::Strict),
            lease: Some(entry.visibility.unwrap_or(LEASE_DEFAULT)),
            unheard_max: Duration::ZERO,
            attempts_max: entry.attempts_max,
            deliveries_max: None,
            repeats: true,
            judges: false,
            holds_permits: false,
            batch_max: BATCH_MAX,
        };
        Ok(Self {
            address,
            spec: Cell::new(spec),
            visibility: entry.visibility,
            session: RefCell::default(),
            connecting: tokio::sync::Mutex::new(()),
            handles: RefCell::default(),
            given_up: RefCell::default(),
            consumer_seq: Cell::new(None),
            asked_until: Cell::new(None),
            unheard_until: Cell::new(None),
            stopped: Cell::new(false),
        })
    }

    fn live(&self) -> Option<Rc<Session>> {
        self.session.borrow().clone().filter(|session| !session.is_lost())
    }

    /// The connection, made if there is none.
    async fn session(&self) -> Result<Rc<Session>, ReceiveError> {
        if let Some(session) = self.live() {
            return Ok(session);
        }
        let _one_at_a_time = self.connecting.lock().await;
        if let Some(session) = self.live() {
            return Ok(session);
        }
        self.leave_lost();
        let lease = self.visibility.unwrap_or(LEASE_DEFAULT);
        let asked_until = self.asked_until.get().unwrap_or(Moment::ZERO);
        let session = Rc::new(Session::open(&self.address, lease, asked_until).await?);
        if self.stopped.get() {
            session.stop_listening();
        }
        self.learn(&session);
        self.session.replace(Some(Rc::clone(&session)));
        Ok(session)
    }

    /// Lets go of a connection that was lost.
    fn leave_lost(&self) {
        let lost = self.session.borrow().clone().filter(|session| session.is_lost());
        if let Some(lost) = lost {
            self.leave(&lost);
        }
    }

    /// The connection is of no use any more.
    fn leave(&self, session: &Rc<Session>) {
        if self.is_strict() {
            self.asked_until.set(self.asked_until.get().max(session.pull_until()));
        }
        if !session.returned.take().is_empty() {
            self.note_unheard();
        }
        let mut current = self.session.borrow_mut();
        if current.as_ref().is_some_and(|current| Rc::ptr_eq(current, session)) {
            *current = None;
        }
    }

    /// Takes over what the consumer says of itself.
    fn learn(&self, session: &Session) {
        let config = &session.consumer.config;
        let (lease, mut spec) = (config.lease(), self.spec.get());
        if self.visibility.is_some_and(|wanted| wanted != lease) && spec.lease != Some(lease) {
            let (queue, lease_s) = (&self.address, lease.as_secs_f32());
            tracing::warn!(%queue, lease_s, "the consumer's ack_wait is used, not the visibility in the config");
        }
        spec.lease = Some(lease);
        spec.deliveries_max = config.deliveries_max();
        spec.batch_max = config.batch_max(BATCH_MAX);
        self.spec.set(spec);
        let handed_over = session.consumer.delivered.consumer_seq;
        let missed =
            self.consumer_seq.replace(Some(handed_over)).map_or(0, |seen| handed_over.saturating_sub(seen));
        self.asked_until.set(None);
        if self.is_strict() {
            session.back.set(session.consumer.num_ack_pending.saturating_sub(self.handles.borrow().len()));
        }
        if missed > 0 && self.is_strict() {
            self.note_unheard();
            tracing::warn!(queue = %self.address, missed, "messages were lost with the connection: waiting until they come back");
        }
    }

    /// Some of what was handed over before now was not seen.
    fn note_unheard(&self) {
        self.unheard_until.set(Some(Clock.now() + BACK_LATE));
    }

    /// How long that may still be hidden: nothing is asked for until then.
    fn quiet_at(&self, now: Moment) -> Duration {
        self.unheard_until.get().map_or(Duration::ZERO, |until| (until + self.lease()).since(now))
    }

    fn is_strict(&self) -> bool {
        self.spec.get().ordering == Ordering::Strict
    }

    fn lease(&self) -> Duration {
        self.spec.get().lease.unwrap_or(LEASE_DEFAULT)
    }

    /// How many to ask for: not more than the server would hand over before something is settled.
    fn room(&self, session: &Session, max: usize) -> usize {
        let pending_max = session.consumer.config.ack_pending_max();
        let free = pending_max.saturating_sub(self.handles.borrow().len()).max(1);
        max.min(free).min(self.spec.get().batch_max)
    }

    fn take(&self, message: &Message, scope: Scope, batch: &mut Batch) {
        let delivery = message.reply.as_ref().and_then(|reply| Some((reply, Delivery::read(reply)?)));
        let Some((subject, delivery)) = delivery else {
            tracing::warn!(queue = %self.address, "a message without an ack subject: not JetStream's");
            return;
        };
        self.consumer_seq.set(self.consumer_seq.get().max(Some(delivery.consumer_seq)));
        let now = Clock.now();
        let lease = self.lease();
        let handle = Handle {
            // A copy: the client's own is a slice of what it read at once, and one message would keep all of that.
            subject: subject.as_str().into(),
            consumer_seq: delivery.consumer_seq,
            lease_until: now + lease,
            given_up: None,
        };
        self.handles.borrow_mut().put(delivery.stream_seq, handle, now, lease * 2);
        let receipt = Receipt { key: delivery.stream_seq, epoch: 0 };
        let group = self.address.group.of(&message.subject, message.headers.as_ref());
        match message::read(&message.payload, group) {
            Ok(read) => batch.arrivals.push(Arrival {
                parcel: read.parcel,
                broker_id: scope.broker_id(&delivery.identity()),
                receipt,
                deliveries: u16::try_from(delivery.count).unwrap_or(u16::MAX),
                dispatch: read.dispatch,
                high_priority: read.high_priority,
            }),
            Err(error) => batch.unreadable.push(Unreadable {
                receipt,
                group: group.unwrap_or_default().to_owned(),
                body: message.payload.to_vec(),
                detail: error.to_string(),
            }),
        }
    }

    /// Fetches messages that the server will not hand over any more, so that they are set aside and not forgotten.
    async fn take_given_up(&self, session: &Session, max: usize, batch: &mut Batch) {
        while let Some(news) = session.given_up() {
            let mut given_up = self.given_up.borrow_mut();
            if given_up.len() < GIVEN_UP_MAX {
                given_up.push_back(news);
            }
        }
        while batch.unreadable.len() < max {
            let Some(GivenUp { stream_seq, deliveries }) = self.given_up.borrow().front().copied() else {
                return;
            };
            let stored = match session.stored(stream_seq).await {
                Ok(stored) => stored,
                Err(error) => {
                    let (queue, seq) = (&self.address, stream_seq);
                    tracing::warn!(%queue, seq, error, "a message that the server gave up can't be fetched yet");
                    return;
                }
            };
            self.given_up.borrow_mut().pop_front();
            let Some(stored) = stored else { continue };
            let Address { stream, consumer, group, .. } = &self.address;
            let now = Clock.now();
            let lease = self.lease();
            let handle = Handle {
                subject: wire::ack_subject(stream, consumer, deliveries, stream_seq).into(),
                consumer_seq: 0,
                lease_until: now + lease,
                given_up: Some(deliveries),
            };
            self.handles.borrow_mut().put(stream_seq, handle, now, lease * 2);
            let group = group.of(&stored.subject, Some(&stored.headers)).unwrap_or_default().to_owned();
            batch.unreadable.push(Unreadable {
                receipt: Receipt { key: stream_seq, epoch: 0 },
                group,
                body: stored.payload.to_vec(),
                detail: format!(
                    "the server gave it up after {deliveries} deliveries (the consumer's max_deliver)"
                ),
            });
        }
    }
}

impl Source for NatsQueue {
    fn spec(&self) -> SourceSpec {
        self.spec.get()
    }

    async fn depth(&self) -> Option<u64> {
        let session = self.live()?;
        session.depth().await
    }

    async fn receive(&self, scope: Scope, max: NonZeroUsize) -> Result<Batch, ReceiveError> {
        let session = self.session().await?;
        let mut batch = Batch::default();
        if !session.announced.replace(true) {
            batch.connected = Some(Connected { epoch: 0, spec: self.spec.get() });
            return Ok(batch);
        }
        let began = Clock.now();
        let quiet = self.quiet_at(began);
        if !quiet.is_zero() {
            tokio::time::sleep(quiet.min(QUIET_NAP)).await;
            return Ok(batch);
        }
        self.take_given_up(&session, max.get(), &mut batch).await;
        if !batch.is_empty() {
            return Ok(batch);
        }
        let back = session.back.take();
        if back > 0
            && let Pulled::Broken(why) = session.collect(back, self.lease()).await
        {
            session.wear();
            self.leave(&session);
            return Err(away(&self.address, why));
        }
        if !session.returned.borrow().is_empty() {
            let passed = session
                .pass_on(max.get(), self.lease(), |message| self.take(message, scope, &mut batch))
                .await;
            return match passed {
                Err(why) if batch.is_empty() => Err(away(&self.address, why)),
                _ => Ok(batch),
            };
        }
        let room = self.room(&session, max.get());
        match session.pull(room, |message| self.take(&message, scope, &mut batch)).await {
            Pulled::Messages if batch.is_empty() && Clock.now().since(began) < EMPTY_SOONEST => {
                tokio::time::sleep(EMPTY_PAUSE).await;
                Ok(batch)
            }
            Pulled::Messages => Ok(batch),
            Pulled::Broken(why) => {
                session.wear();
                self.leave(&session);
                // What came is ours all the same; the next receive connects anew.
                if batch.is_empty() { Err(away(&self.address, why)) } else { Ok(batch) }
            }
        }
    }

    fn settles_at_once(&self) -> usize {
        SETTLES_AT_ONCE
    }

    async fn settle(&self, tells: Vec<(Receipt, Tell)>) -> Vec<Answer> {
        self.settle_all(tells).await
    }

    async fn stop(&self) -> Option<Moment> {
        self.stopped.set(true);
        self.leave_lost();
        if let Some(session) = self.live() {
            session.stop_listening();
            let mut left = session.returned.borrow_mut().take_all();
            left.extend(session.leftovers().await);
            let back = left.into_iter().filter_map(|message| Some((message.reply?, wire::nak(0)))).collect();
            let told = session.tell(back, settle::deadline()).await;
            if self.is_strict() && told.contains(&false) {
                self.note_unheard();
            }
            // One that did not end may still bring something.
            self.asked_until.set(self.asked_until.get().max(session.pull_until()));
        }
        let asked_until = self.asked_until.get().map(|until| until + BACK_LATE);
        self.unheard_until.get().max(asked_until)
    }
}
