//! ActiveMQ Classic over OpenWire: a consumer with individual acks. Core: the ingress.
//!
//! - There is no lease: what was handed over is ours as long as the connection, and comes back in order when it ends.
//! - A receipt belongs to one connection. One of another is never used: the broker has the message back.
//! - An ack counts when the broker has confirmed it, or a later one of the same connection.
//! - What the desk gives back stays here until it is due, in its place. Only a message that its group does not wait for
//!   becomes a delayed copy at the broker. The copy is kept there before the original is acked: the broker's scheduler is
//!   no part of its transactions, and would lose the message if it crashed between the two.
//! - No connection is made while the broker still has our last one, so that nothing newer overtakes what that one had.

mod acks;
mod address;
mod connect;
mod line;
mod sender;
mod session;
mod settle;
mod shelf;
mod tls;
mod window;
mod wire;

use std::cell::{Cell, RefCell};
use std::io;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use shards::clock::{Clock, Moment};
use shards::desk::{Arrival, Receipt, SourceSpec, Tell};
use shards::model::{Dispatch, Ordering};
use tokio::sync::Notify;

use crate::ingress::{Answer, Batch, Connected, ReceiveError, Scope, Source, Unreadable};
use crate::message;
use crate::topology::QueueEntry;
use address::{Address, GroupFrom};
use connect::away;
use sender::Sender;
use session::Session;
use shelf::{Held, Shelf};
use wire::{Map, Message, Value};

/// Messages handed over at once at most.
const BATCH_MAX: usize = 1_000;
/// Acks go out as they come; what waits here for earlier answers would be delivered again after a crash.
const SETTLES_AT_ONCE: usize = 256;
/// How long a receive waits for a first message. A drain waits for it.
const RECEIVE_MAX: Duration = Duration::from_secs(1);
/// How long a consumer that stops waits for what the desk still has. A little less than its successor waits for it.
const STOP_MAX: Duration = Duration::from_secs(29);
/// How our connections are named: a message of a connection so named may be a copy that we made.
const CLIENT: &str = "ID:corelane-";

/// A queue of an ActiveMQ broker.
pub struct ActiveMqQueue {
    address: Address,
    spec: SourceSpec,
    /// What this router's connections for this queue say who they are, one after another: a broker that still has the last
    /// one refuses the next, also that of a consumer or a router that takes this one's place.
    client: String,
    /// How this consumer's connections are named, before a number. Messages that they send are named after them.
    name: String,
    session: RefCell<Option<Rc<Session>>>,
    /// The last connection was lost, and none came after it.
    was_lost: Cell<bool>,
    sender: RefCell<Option<Rc<Sender>>>,
    senders: Cell<u32>,
    epoch: Cell<u32>,
    /// The broker that accepted us last.
    host: Cell<usize>,
    shelf: RefCell<Shelf>,
    /// Messages that are becoming copies.
    moving: Cell<usize>,
    /// The broker delays messages, as far as is known.
    schedules: Cell<bool>,
    /// Something was settled or given back.
    settled: Notify,
}

/// A message as the desk gets it, and what to keep of it.
struct Taken {
    identity: String,
    /// It is a copy that came too early: the broker delays nothing.
    due: Option<Moment>,
    deliveries: u16,
    group: Option<String>,
}

impl ActiveMqQueue {
    /// A consumer of a queue, for the router that is called `instance`. Does not connect.
    ///
    /// # Errors
    /// The URI is wrong; the text says how.
    pub fn new(entry: &QueueEntry, instance: &str) -> io::Result<Self> {
        let address = Address::parse(&entry.uri.reveal()).map_err(|why| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("queue {}: its URI {why}", entry.name))
        })?;
        let spec = SourceSpec {
            ordering: entry.ordering.unwrap_or(Ordering::Strict),
            lease: None,
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
            spec,
            client: format!("{CLIENT}{instance}-{}", entry.name),
            name: format!("{CLIENT}{:016x}", random_word()?),
            session: RefCell::default(),
            was_lost: Cell::new(false),
            sender: RefCell::default(),
            senders: Cell::new(0),
            epoch: Cell::new(0),
            host: Cell::new(0),
            shelf: RefCell::default(),
            moving: Cell::new(0),
            schedules: Cell::new(true),
            settled: Notify::new(),
        })
    }

    fn live(&self) -> Option<Rc<Session>> {
        self.session.borrow().clone().filter(|session| !session.is_lost())
    }

    /// The connection, made if there is none.
    async fn connected(&self) -> Result<Rc<Session>, ReceiveError> {
        if let Some(session) = self.live() {
            return Ok(session);
        }
        self.was_lost.set(self.session.take().is_some() || self.was_lost.get());
        self.shelf.borrow_mut().clear(Clock.now());
        self.epoch.set(self.epoch.get() + 1);
        // It may be another broker, or one that was set up anew.
        self.schedules.set(true);
        let name = format!("{}-{}", self.name, self.epoch.get());
        let opened =
            Session::open(&self.address, self.host.get(), [&self.client, &name], self.epoch.get()).await;
        let (session, host) = opened?;
        self.host.set(host);
        let session = Rc::new(session);
        self.session.replace(Some(Rc::clone(&session)));
        self.was_lost.set(false);
        Ok(session)
    }

    /// Hands over what is here, oldest first.
    fn gather(
        &self,
        session: &Session,
        scope: Scope,
        max: usize,
        batch: &mut Batch,
    ) -> Result<(), ReceiveError> {
        let now = Clock.now();
        while batch.arrivals.len() + batch.unreadable.len() < max {
            let again = self.shelf.borrow_mut().take_due(now);
            let (frame, known) = match again {
                Some(held) => (held.frame.clone(), Some(held)),
                None => match session.take() {
                    Some(frame) => (frame, None),
                    None => break,
                },
            };
            let read = session.read(&frame).map_err(|why| {
                session.line().lose(why.clone());
                away(&self.address, why)
            })?;
            if let Some((message, redeliveries)) = read {
                self.hand_over(&frame, &message, redeliveries, (known, session.epoch), scope, batch);
            }
        }
        Ok(())
    }

    fn hand_over(
        &self,
        frame: &Bytes,
        message: &Message<'_>,
        redeliveries: i32,
        (known, epoch): (Option<Held>, u32),
        scope: Scope,
        batch: &mut Batch,
    ) {
        let now = Clock.now();
        let taken = self.look_at(message, redeliveries, now);
        let id = scope.broker_id(taken.identity.as_bytes());
        let body = message.body();
        let read = match &body {
            Ok(body) => message::read(body, taken.group.as_deref()).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let mut kept = self.shelf.borrow_mut();
        let again = known.is_some();
        let (seq, failed, also) =
            known.map_or_else(|| (kept.next_seq(), 0, None), |held| (held.seq, held.failed, held.also));
        let dispatch = read.as_ref().map_or(Dispatch::BlockOnError, |read| read.dispatch);
        let held = Held {
            id,
            frame: frame.clone(),
            id_span: message.id_span.clone(),
            seq,
            failed,
            blocks: self.spec.ordering != Ordering::None && dispatch == Dispatch::BlockOnError,
            also,
        };
        if !again && let Some(due) = taken.due.or_else(|| kept.wait_of(id, now)) {
            return kept.put_back(held, due);
        }
        let receipt = Receipt { key: kept.hand_out(held), epoch };
        match read {
            Ok(read) => batch.arrivals.push(Arrival {
                parcel: read.parcel,
                broker_id: id,
                receipt,
                deliveries: taken.deliveries.saturating_add(failed),
                dispatch: read.dispatch,
                high_priority: read.high_priority,
            }),
            Err(detail) => {
                let body = body.unwrap_or_else(|_| message.content.unwrap_or_default().into()).into_owned();
                let group = taken.group.unwrap_or_default();
                batch.unreadable.push(Unreadable { receipt, group, body, detail });
            }
        }
    }

    fn look_at(&self, message: &Message<'_>, redeliveries: i32, now: Moment) -> Taken {
        let group = match &self.address.group {
            GroupFrom::Jms => message.group.clone(),
            GroupFrom::Body => None,
            GroupFrom::Property(name) => message.properties.and_then(|all| wire::find_text(all, name)),
        };
        let count = u16::try_from(redeliveries.max(0)).unwrap_or(u16::MAX);
        let mut taken = Taken {
            identity: String::new(),
            due: None,
            deliveries: count.saturating_add(1),
            group: group.filter(|group| !group.trim().is_empty()),
        };
        // A sender that passes on all properties of a message must not have its own messages taken for copies.
        let ours =
            message.producer.is_some_and(|producer| producer.connection.starts_with(CLIENT.as_bytes()));
        let marks = if ours { message.properties.and_then(|all| Map::read(all).ok()) } else { None };
        if let Some(marks) = marks {
            let number = |name: &str| marks.get(name).and_then(Value::number);
            if let Some(first) = marks.get(sender::FIRST_ID).and_then(Value::text) {
                first.clone_into(&mut taken.identity);
            }
            let before = number(sender::DELIVERIES).unwrap_or_default();
            taken.deliveries = taken.deliveries.saturating_add(u16::try_from(before).unwrap_or_default());
            if number(sender::DELAY).is_some() {
                taken.due = number(sender::DUE).and_then(|due| moment_of(due, now));
                if self.schedules.replace(false) {
                    tracing::warn!(
                        queue = %self.address,
                        "the broker delays no messages: set schedulerSupport=\"true\" there. Until then they wait here"
                    );
                }
            }
        }
        if taken.identity.is_empty() {
            taken.identity = message.id.to_string();
        }
        taken
    }
}

/// Milliseconds since 1970.
fn wall_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// The moment of a time of day; `None` = it is over.
fn moment_of(due_ms: i64, now: Moment) -> Option<Moment> {
    let left = u64::try_from(due_ms.checked_sub(wall_ms())?).ok()?;
    Some(now + Duration::from_millis(left))
}

fn random_word() -> io::Result<u64> {
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_be_bytes(random))
}

impl Source for ActiveMqQueue {
    fn spec(&self) -> SourceSpec {
        self.spec
    }

    async fn depth(&self) -> Option<u64> {
        let session = self.live()?;
        session.depth().await
    }

    async fn receive(&self, scope: Scope, max: NonZeroUsize) -> Result<Batch, ReceiveError> {
        let session = self.connected().await?;
        let mut batch = Batch::default();
        if !session.announced.replace(true) {
            batch.connected = Some(Connected { epoch: session.epoch, spec: self.spec });
            return Ok(batch);
        }
        let until = Clock.now() + RECEIVE_MAX;
        loop {
            let now = Clock.now();
            session.follow(self.shelf.borrow().size(), max.get(), now);
            if session.is_lost() {
                // The broker has back what came with it.
                return Err(away(&self.address, session.line().why_lost()));
            }
            self.gather(&session, scope, max.get(), &mut batch)?;
            if !batch.is_empty() || now >= until {
                return Ok(batch);
            }
            session.ask_for_more();
            let due = self.shelf.borrow().next_due().unwrap_or(until).min(until);
            tokio::select! {
                () = session.line().has_arrived() => {}
                () = self.settled.notified() => {}
                () = tokio::time::sleep(due.since(now)) => {}
            }
        }
    }

    fn settles_at_once(&self) -> usize {
        SETTLES_AT_ONCE
    }

    async fn settle(&self, tells: Vec<(Receipt, Tell)>) -> Vec<Answer> {
        self.settle_all(tells).await
    }

    /// Waits until the desk has nothing of it any more and closes the consumer: the broker takes the rest back in order. A
    /// single message can't be given back, and closing earlier would hand what is being delivered to others.
    async fn stop(&self) -> Option<Moment> {
        let Some(session) = self.live() else {
            // What the lost connection had is with the broker until it finds that out.
            return (self.was_lost.get() || self.session.borrow().is_some()).then(|| Clock.now());
        };
        session.shut_window();
        let all_settled = async {
            while self.shelf.borrow().out_len() > 0 || self.moving.get() > 0 {
                self.settled.notified().await;
            }
        };
        tokio::select! {
            () = all_settled => {}
            () = session.line().ended() => {}
            () = tokio::time::sleep(STOP_MAX) => {}
        }
        let heard = session.close().await;
        self.shelf.borrow_mut().clear(Clock.now());
        (!heard).then(|| Clock.now())
    }
}
