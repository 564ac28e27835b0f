//! A service's queue as a source: what it hands over, and what becomes of it after a call.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::num::NonZeroUsize;
use std::rc::{Rc, Weak};
use std::time::Duration;

use lapin::types::ShortString;
use shards::clock::{Clock, Moment};
use shards::desk::{Arrival, Receipt, SourceSpec, Tell};
use shards::model::{Dispatch, IdHash, Ordering, Outcome, Parcel, ParcelError, Parts};

use super::Note;
use super::bury::{Burial, Dead};
use super::headers::{self, Why};
use super::judge::{self, RETRIES_MAX, Verdict};
use super::names::Service;
use crate::broker::rabbitmq::address::{BusService, Place};
use crate::broker::rabbitmq::book::Item;
use crate::broker::rabbitmq::client::{Pushed, Session};
use crate::broker::rabbitmq::consumer::Consumer;
use crate::broker::rabbitmq::memory::Fate;
use crate::broker::rabbitmq::settle::{Back, ack, give_back};
use crate::broker::rabbitmq::shared::Shared;
use crate::broker::rabbitmq::{address_of, content, fresh, wrong};
use crate::ingress::{Answer, Batch, ReceiveError, Scope, Source};
use crate::topology::QueueEntry;

/// Messages taken at once at most.
const BATCH_MAX: usize = 1_000;
/// Calls of `settle` under way, as for plain queues.
const SETTLES_AT_ONCE: usize = 64;
/// A message that is given back without a delay would be pushed again at once, and so on.
const BACK_LEAST: Duration = Duration::from_secs(1);
/// How long a drain waits for messages on their way to the DLQ.
const BURIAL_MAX: Duration = Duration::from_secs(4);

/// A service's queue.
pub struct BusQueue {
    consumer: Consumer,
    queue: String,
    target: String,
    pool: String,
    burial: Rc<Burial>,
}

impl BusQueue {
    /// A consumer of a service's queue. Does not connect.
    ///
    /// # Errors
    /// The URI or the service's name is wrong; the text says how.
    pub fn new(entry: &QueueEntry) -> io::Result<Self> {
        let address = address_of(entry)?;
        let Place::Bus(bus) = address.place.clone() else {
            return Err(wrong(entry, "names no service of the event bus"));
        };
        let hold_max = bus.hold_max();
        let BusService { name, target, pool, .. } = bus;
        let service = Service::new(&name).map_err(|why| wrong(entry, &why))?;
        check_target(&target).map_err(|error| wrong(entry, &format!("has target=, but {error}")))?;
        if entry.ordering.is_some_and(|ordering| ordering != Ordering::None) {
            return Err(wrong(
                entry,
                "names a service of the event bus, which has no groups: leave ordering out",
            ));
        }
        if entry.attempts_max > 0 {
            return Err(wrong(
                entry,
                "names a service of the event bus, which has ten retries: leave attempts-max out",
            ));
        }
        let spec = SourceSpec {
            ordering: Ordering::None,
            lease: None,
            unheard_max: Duration::ZERO,
            attempts_max: 0,
            deliveries_max: None,
            // A server that crashes may forget acks.
            repeats: true,
            judges: true,
            holds_permits: false,
            batch_max: BATCH_MAX,
        };
        let (queue, burial) = (service.queue(), Burial::new(address.clone(), &service));
        let consumer = Consumer::new(entry, address, queue.clone(), spec, hold_max);
        Ok(Self { consumer, queue, target, pool: pool.unwrap_or_default(), burial })
    }

    /// What there is to hand over, without waiting.
    fn take(&self, shared: &Rc<Shared>, session: &Rc<Session>, scope: Scope, max: usize) -> Batch {
        let mut batch = Batch::default();
        while batch.arrivals.len() < max {
            let Some(Pushed { at, delivery }) = session.take_pushed() else { break };
            let (tag, epoch, content) =
                (delivery.delivery_tag, session.epoch, content(shared, &delivery, None));
            // Anyone may publish here, so what is not marked is new: two messages may be the same to the letter.
            let marked = delivery.redelivered;
            let known = if marked { shared.memory.borrow_mut().recall(content, marked, at) } else { None };
            let (id, fate) = known.unwrap_or_else(|| (fresh(scope), Fate::Open));
            if fate == Fate::Acked || self.burial.knows(id, at) {
                shared.memory.borrow_mut().on_acked(content, id, at);
                session.ack(tag);
                continue;
            }
            let retries = headers::retries(&delivery.properties, &self.queue);
            let parcel = self.parcel(&delivery.properties, id, &delivery.data);
            // The others can't go to the DLQ after this hand-over: their bodies need not be kept.
            let is_last = retries >= RETRIES_MAX || parcel.is_err();
            let note = Note {
                retries,
                body_bytes: delivery.data.len(),
                properties: is_last.then(|| Box::new(delivery.properties)),
            };
            let body = if is_last { delivery.data } else { Vec::new() };
            let deliveries = u16::try_from(retries).unwrap_or(u16::MAX).saturating_add(1);
            let item = Item { id, content, since: at, deliveries, group: None, body, note: Some(note) };
            let key = session.book.borrow_mut().hand_over(tag, item);
            match parcel {
                Ok(parcel) => batch.arrivals.push(Arrival {
                    parcel,
                    broker_id: id,
                    receipt: Receipt { key, epoch },
                    deliveries,
                    dispatch: Dispatch::Immediate,
                    high_priority: false,
                }),
                Err(error) => {
                    let why = Why::Unfit(format!("it can't be posted: {error}"));
                    self.burial.add(shared, Dead { epoch, key, why });
                }
            }
        }
        batch
    }

    /// The request: the message's own bytes and type. A message without an id, or with one that can't be a header,
    /// gets one for this hand-over.
    fn parcel(
        &self,
        properties: &lapin::BasicProperties,
        id: IdHash,
        body: &[u8],
    ) -> Result<Parcel, ParcelError> {
        let given = properties.message_id().as_ref().map(ShortString::as_str).unwrap_or_default();
        let is_fit = !given.is_empty() && given.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
        let made = format!("{:032x}", id.0);
        Parcel::new(&Parts {
            id: if is_fit { given } else { &made },
            group: "",
            pool: &self.pool,
            target: &self.target,
            token: "",
            content_type: properties.content_type().as_ref().map(ShortString::as_str).unwrap_or_default(),
            body,
        })
    }

    /// A message was not delivered.
    fn back(&self, shared: &Rc<Shared>, session: &Rc<Session>, key: u64, back: Back) {
        match back {
            Back::At(due) => self.requeue(shared, session, key, due.max(Clock.now() + BACK_LEAST)),
            Back::Answered(outcome) => self.judge(shared, session, key, outcome),
        }
    }

    fn judge(&self, shared: &Rc<Shared>, session: &Rc<Session>, key: u64, outcome: Outcome) {
        let retries =
            session.book.borrow().get(key).and_then(|item| item.note.as_ref()).map(|note| note.retries);
        let Some(retries) = retries else { return };
        match judge::judge(outcome, retries, RandomState::new().hash_one(key)) {
            Verdict::Ack => drop(ack(shared, session, key, Clock.now())),
            Verdict::Retry => {
                if let Some((tag, _)) = session.book.borrow_mut().settle(key) {
                    session.reject(tag);
                }
            }
            Verdict::Requeue(wait) => self.requeue(shared, session, key, Clock.now() + wait),
            Verdict::DeadLetter => {
                let dead = Dead { epoch: session.epoch, key, why: Why::Outcome(outcome) };
                self.burial.add(shared, dead);
            }
        }
    }

    /// Puts a message back into its queue when its wait is over; at once where nobody receives any more.
    fn requeue(&self, shared: &Rc<Shared>, session: &Rc<Session>, key: u64, due: Moment) {
        if self.consumer.is_stopped() {
            give_back(session, key, Clock.now());
            return requeue_due(shared, session);
        }
        give_back(session, key, due);
        let (wait, shared, session) = (due.since(Clock.now()), Rc::downgrade(shared), Rc::downgrade(session));
        tokio::task::spawn_local(async move {
            tokio::time::sleep(wait).await;
            if let (Some(shared), Some(session)) = (Weak::upgrade(&shared), Weak::upgrade(&session)) {
                requeue_due(&shared, &session);
            }
        });
    }
}

/// Puts back what is due.
fn requeue_due(shared: &Shared, session: &Session) {
    let now = Clock.now();
    let due = session.book.borrow_mut().take_returned_by(now);
    for (tag, item) in due {
        session.nack(tag);
        shared.memory.borrow_mut().on_away(item.content, item.id, now);
    }
}

/// Tried out once, so that a wrong URL is told at the start and not by every message.
fn check_target(target: &str) -> Result<(), ParcelError> {
    Parcel::new(&Parts { id: "-", target, ..Parts::default() }).map(drop)
}

impl Source for BusQueue {
    fn spec(&self) -> SourceSpec {
        self.consumer.spec
    }

    fn open(&mut self, unclean: bool) -> io::Result<()> {
        self.consumer.open(unclean);
        Ok(())
    }

    async fn depth(&self) -> Option<u64> {
        self.consumer.depth().await
    }

    async fn receive(&self, scope: Scope, max: NonZeroUsize) -> Result<Batch, ReceiveError> {
        self.consumer.receive(|shared, session| self.take(shared, session, scope, max.get())).await
    }

    fn settles_at_once(&self) -> usize {
        SETTLES_AT_ONCE
    }

    async fn settle(&self, tells: Vec<(Receipt, Tell)>) -> Vec<Answer> {
        let shared = self.consumer.shared();
        let back = |session: &Rc<Session>, key, back| self.back(&shared, session, key, back);
        let answers = self.consumer.settle_all(tells, back).await;
        if self.consumer.is_stopped() {
            self.burial.finish(BURIAL_MAX).await;
            self.consumer.leave_if_done(&shared).await;
        }
        answers
    }

    async fn stop(&self) -> Option<Moment> {
        self.consumer.end().await
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;
    use crate::topology::QueueUri;

    fn entry(uri: &str) -> QueueEntry {
        QueueEntry {
            name: "q".into(),
            uri: QueueUri::parse(uri).expect("a broker's scheme"),
            connections: NonZeroU16::MIN,
            visibility: None,
            ordering: None,
            attempts_max: 0,
        }
    }

    #[test]
    fn a_service_has_no_order_judges_itself_and_is_called_once_per_hand_over() {
        let queue = BusQueue::new(&entry("amqp://h/?service=wms-a&target=http://t/")).expect("a service");
        let spec = queue.spec();
        assert_eq!((spec.ordering, spec.judges, spec.attempts_max), (Ordering::None, true, 0));
        assert_eq!((queue.queue.as_str(), queue.pool.as_str()), ("wms.queue.wms-a", ""));
    }

    #[test]
    fn what_can_not_be_a_service_is_refused_with_the_reason() {
        let fine = entry("amqp://u:hunter2@h/?service=wms-a&target=http://t/");
        let rows = [
            (entry("amqp://h/q"), "no service"),
            (entry("amqp://u:hunter2@h/?service=a%20b&target=http://t/"), "letters, digits"),
            (entry("amqp://u:hunter2@h/?service=amq-b&target=http://t/"), "the broker's own"),
            (entry("amqp://u:hunter2@h/?service=wms-a&target=http://t/%0A"), "target="),
            (QueueEntry { ordering: Some(Ordering::Strict), ..fine.clone() }, "leave ordering out"),
            (QueueEntry { attempts_max: 3, ..fine }, "leave attempts-max out"),
        ];
        for (entry, said) in rows {
            let Err(error) = BusQueue::new(&entry) else { panic!("{said}: it was taken") };
            let error = error.to_string();
            assert!(
                error.contains(said) && error.contains("queue q") && !error.contains("hunter2"),
                "{error}"
            );
        }
    }
}
