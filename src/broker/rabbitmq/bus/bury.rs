//! Moves messages to the DLQ, in the background: an ack must not wait for a DLQ that does not answer.
//!
//! - U1: a message is acked in its queue only when the DLQ has it, confirmed and not returned; until then it is held and
//!   tried again.
//! - U2: over a connection of its own: a broker that is short of memory stops reading from one that publishes, and
//!   acks would wait with it.
//! - U3: a message whose ack was lost after it was moved is acked when it comes again, without a call.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use shards::clock::{Clock, Moment};
use shards::model::IdHash;
use tokio::sync::Notify;

use super::headers::{self, Why};
use super::names::Service;
use super::publish::{Outgoing, Publisher};
use crate::broker::rabbitmq::address::Address;
use crate::broker::rabbitmq::client::Session;
use crate::broker::rabbitmq::connect::Line;
use crate::broker::rabbitmq::settle::ack;
use crate::broker::rabbitmq::shared::Shared;
use crate::ingress::ReceiveError;

/// Messages moved at once.
const BATCH: usize = 64;
/// Bytes moved at once.
const BATCH_BYTES: usize = 4 << 20;
/// Pause after a failure: doubles from the first to the second.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));
/// How long a confirmation may take before it is told.
const CONFIRM_LATE: Duration = Duration::from_secs(30);
/// How long the connection is kept for the next one.
const IDLE: Duration = Duration::from_secs(30);
/// How long a moved message is remembered, and how many: as acked ones are.
const KNOWN: (Duration, usize) = (Duration::from_secs(120), 65_536);

/// A message that is to be moved.
pub(super) struct Dead {
    pub(super) epoch: u32,
    pub(super) key: u64,
    pub(super) why: Why,
}

/// A message on its way.
struct Moving {
    key: u64,
    id: IdHash,
    outgoing: Outgoing,
}

/// A service's burials.
pub(super) struct Burial {
    address: Address,
    queue: String,
    dlq: String,
    waiting: RefCell<VecDeque<Dead>>,
    running: Cell<bool>,
    more: Notify,
    idle: Notify,
    known: RefCell<Known>,
}

impl Burial {
    pub(super) fn new(address: Address, service: &Service) -> Rc<Self> {
        Rc::new(Self {
            address,
            queue: service.queue(),
            dlq: service.dlq(),
            waiting: RefCell::default(),
            running: Cell::new(false),
            more: Notify::new(),
            idle: Notify::new(),
            known: RefCell::default(),
        })
    }

    /// It was moved, and comes again because its ack was lost.
    pub(super) fn knows(&self, id: IdHash, now: Moment) -> bool {
        self.known.borrow().has(id, now)
    }

    /// Moves one of `shared`'s session.
    pub(super) fn add(self: &Rc<Self>, shared: &Rc<Shared>, dead: Dead) {
        self.waiting.borrow_mut().push_back(dead);
        self.more.notify_one();
        if !self.running.replace(true) {
            tokio::task::spawn_local(Rc::clone(self).run(Rc::clone(shared)));
        }
    }

    /// Waits until all is moved, but not longer than `max`.
    pub(super) async fn finish(&self, max: Duration) {
        let over = async {
            while !self.waiting.borrow().is_empty() {
                self.idle.notified().await;
            }
        };
        // What is not moved by then is still in its queue.
        let _ = tokio::time::timeout(max, over).await;
    }

    async fn run(self: Rc<Self>, shared: Rc<Shared>) {
        let (mut way, mut pause) = (None, BACKOFF.0);
        loop {
            let (session, batch) = self.next(&shared);
            if batch.is_empty() {
                self.idle.notify_waiters();
                let waited = tokio::time::timeout(IDLE, self.more.notified()).await;
                if waited.is_err() && self.waiting.borrow().is_empty() {
                    self.running.set(false);
                    return;
                }
                continue;
            }
            match self.publish(&mut way, &batch).await {
                Ok(()) => {
                    pause = BACKOFF.0;
                    self.waiting.borrow_mut().drain(..batch.len());
                    if let Some(session) = session {
                        self.settle(&shared, &session, batch);
                    }
                }
                Err(why) => {
                    let (dlq, count) = (&self.dlq, batch.len());
                    tracing::warn!(
                        dlq,
                        count,
                        why,
                        "the DLQ does not take messages: they are held and tried again"
                    );
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(BACKOFF.1);
                }
            }
        }
    }

    /// The next that can be moved. What is of another connection has gone back by itself.
    fn next(&self, shared: &Shared) -> (Option<Rc<Session>>, Vec<Moving>) {
        let mut waiting = self.waiting.borrow_mut();
        let session = shared.live();
        let is_here = |dead: &Dead| {
            let session = session.as_ref().filter(|session| session.epoch == dead.epoch);
            session.is_some_and(|session| session.book.borrow().get(dead.key).is_some())
        };
        waiting.retain(is_here);
        let (mut batch, mut bytes) = (Vec::new(), 0);
        if let Some(session) = &session {
            for dead in waiting.iter().take(BATCH) {
                let Some(moving) = self.moving(session, dead) else { break };
                bytes += moving.outgoing.body.len();
                batch.push(moving);
                if bytes >= BATCH_BYTES {
                    break;
                }
            }
            // One whose body was not kept goes the long way: it comes again, and then there may be room.
            if batch.is_empty()
                && let Some(dead) = waiting.pop_front()
                && let Some((tag, _)) = session.book.borrow_mut().settle(dead.key)
            {
                session.reject(tag);
                self.more.notify_one();
            }
        }
        (session, batch)
    }

    fn moving(&self, session: &Session, dead: &Dead) -> Option<Moving> {
        let book = session.book.borrow();
        let item = book.get(dead.key)?;
        let note = item.note.as_ref().filter(|note| note.body_bytes == item.body.len())?;
        let properties = headers::for_dlq(note.properties.as_deref()?, &self.queue, &dead.why, note.retries);
        let (exchange, routing_key, body) = (String::new(), self.dlq.clone(), item.body.clone());
        let outgoing = Outgoing { exchange, routing_key, properties, body };
        Some(Moving { key: dead.key, id: item.id, outgoing })
    }

    async fn publish(&self, way: &mut Option<(Line, Publisher)>, batch: &[Moving]) -> Result<(), String> {
        if way.as_ref().is_none_or(|(line, _)| line.is_lost()) {
            *way = Some(self.connect().await.map_err(|error| match error {
                ReceiveError::Unreachable(error) => error.to_string(),
                other => other.to_string(),
            })?);
        }
        let Some((_, publisher)) = way else { return Err("no connection".to_owned()) };
        let all: Vec<Outgoing> = batch.iter().map(|moving| moving.outgoing.clone()).collect();
        match self.confirmed(publisher.publish(&all)).await {
            Ok(not_taken) if not_taken.is_empty() => Ok(()),
            Ok(not_taken) if not_taken.returned.is_empty() => {
                Err("the broker refuses to keep them".to_owned())
            }
            Ok(_) => {
                Err("there is no such queue: declare the service again (corelane bus declare)".to_owned())
            }
            Err(error) => {
                *way = None;
                Err(error.to_string())
            }
        }
    }

    /// Waits for the broker's word, and says so when it takes long. Publishing again would make them two.
    async fn confirmed<T>(&self, published: impl Future<Output = T>) -> T {
        let mut published = std::pin::pin!(published);
        loop {
            if let Ok(done) = tokio::time::timeout(CONFIRM_LATE, &mut published).await {
                return done;
            }
            let dlq = &self.dlq;
            tracing::warn!(
                dlq,
                "the broker does not confirm what goes to the DLQ: it may be short of memory or disk"
            );
        }
    }

    async fn connect(&self) -> Result<(Line, Publisher), ReceiveError> {
        let line = Line::connect(&self.address).await?;
        let channel = line.channel(&self.address).await?;
        let publisher = Publisher::new(channel).await;
        let publisher = publisher.map_err(|error| super::receive_error(&self.address, &error))?;
        Ok((line, publisher))
    }

    /// The DLQ has them.
    fn settle(&self, shared: &Shared, session: &Session, batch: Vec<Moving>) {
        let now = Clock.now();
        for Moving { key, id, outgoing } in batch {
            self.known.borrow_mut().put(id, now);
            ack(shared, session, key, now);
            self.say(&outgoing);
        }
    }

    fn say(&self, outgoing: &Outgoing) {
        let properties = &outgoing.properties;
        let id = properties.message_id().as_ref().map(ToString::to_string).unwrap_or_default();
        let status = headers::count_header(properties, headers::FINAL_STATUS).unwrap_or_default();
        let retries = headers::count_header(properties, headers::FINAL_RETRIES).unwrap_or_default();
        let error = headers::text_header(properties, headers::FINAL_ERROR).unwrap_or_default();
        let (queue, dlq) = (&self.queue, &self.dlq);
        if retries >= super::judge::RETRIES_MAX {
            tracing::warn!(
                queue,
                dlq,
                id,
                status,
                retries,
                error,
                "RABBITMQ_MESSAGE_MAX_RETRIES_EXCEEDED: the message was moved to the DLQ"
            );
        } else {
            tracing::warn!(queue, dlq, id, error, "the message can't be posted: it was moved to the DLQ");
        }
    }
}

/// Ids that were moved lately.
#[derive(Default)]
struct Known {
    until: HashMap<IdHash, Moment>,
    order: VecDeque<(Moment, IdHash)>,
}

impl Known {
    fn put(&mut self, id: IdHash, now: Moment) {
        let (kept, most) = KNOWN;
        while self.order.len() >= most || self.order.front().is_some_and(|&(until, _)| until <= now) {
            let Some((until, old)) = self.order.pop_front() else { break };
            if self.until.get(&old) == Some(&until) {
                self.until.remove(&old);
            }
        }
        self.until.insert(id, now + kept);
        self.order.push_back((now + kept, id));
    }

    fn has(&self, id: IdHash, now: Moment) -> bool {
        self.until.get(&id).is_some_and(|&until| until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_moved_is_known_for_a_while_and_not_without_bound() {
        let at = |seconds| Moment::ZERO + Duration::from_secs(seconds);
        let mut known = Known::default();
        known.put(IdHash(1), at(0));
        known.put(IdHash(1), at(60));
        known.put(IdHash(2), at(130));
        assert!(
            known.has(IdHash(1), at(179)) && !known.has(IdHash(1), at(180)) && !known.has(IdHash(3), at(1))
        );
        for number in 0..2 * KNOWN.1 {
            known.put(IdHash(number as u128), at(200));
        }
        assert!(known.until.len() <= KNOWN.1 && known.order.len() <= KNOWN.1);
    }
}
