//! Telling the server what became of messages.

use std::rc::Rc;
use std::time::Duration;

use async_nats::Subject;
use bytes::Bytes;
use shards::clock::{Clock, Moment};
use shards::desk::{Receipt, Tell};
use shards::model::Ticket;
use tokio::time::Instant;

use super::client::Session;
use super::handles::Handle;
use super::wire::{self, GivenUp};
use super::{BACK_LATE, NatsQueue};
use crate::ingress::{Answer, ReceiveError};

/// How long the server may take to confirm, a new connection included: as long as a drain waits for it.
const SETTLE_MAX: Duration = Duration::from_secs(4);
/// Between two tries to connect.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);

/// When a settlement that begins now must have been confirmed.
pub(super) fn deadline() -> Instant {
    Instant::now() + SETTLE_MAX
}

/// What to do for one message, and how it went.
struct Errand {
    stream_seq: u64,
    consumer_seq: u64,
    kind: Kind,
    /// Where to send it; `None` = there is nothing to send.
    subject: Option<Subject>,
    word: Bytes,
    done: bool,
}

/// What the desk wants to hear.
#[derive(Clone, Copy)]
enum Kind {
    Ack(Option<Ticket>),
    Nack,
    Extend(Ticket),
}

impl Errand {
    /// Not confirmed yet, and sending it once more does no harm. A second nak would: the message may be here again.
    fn may_go_again(&self) -> bool {
        !self.done && self.subject.is_some() && !matches!(self.kind, Kind::Nack)
    }

    /// It was to go back, and stays hidden as far as we know.
    fn is_hidden(&self) -> bool {
        !self.done && self.subject.is_some() && matches!(self.kind, Kind::Nack)
    }
}

impl NatsQueue {
    /// Tells all of it at once and waits for the answers. A connection that is lost meanwhile is made anew, and what it
    /// left open is told again.
    pub(super) async fn settle_all(&self, tells: Vec<(Receipt, Tell)>) -> Vec<Answer> {
        let sent = Clock.now();
        let mut errands: Vec<Errand> =
            tells.iter().map(|(receipt, tell)| self.errand(receipt.key, tell, sent)).collect();
        let until = deadline();
        let mut open: Vec<usize> = (0..errands.len()).filter(|&at| errands[at].subject.is_some()).collect();
        while !open.is_empty() {
            let Some(session) = self.session_until(until).await else { break };
            let word = |&at: &usize| Some((errands[at].subject.clone()?, errands[at].word.clone()));
            let done = session.tell(open.iter().filter_map(word).collect(), until).await;
            for (&at, done) in open.iter().zip(done) {
                errands[at].done = done;
            }
            if !session.is_lost() {
                break;
            }
            open.retain(|&at| errands[at].may_go_again());
        }
        // While it goes on, the desk remembers what it gave back; the next consumer does not.
        let unheard = self.stopped.get() && errands.iter().any(Errand::is_hidden);
        let answers = errands.into_iter().filter_map(|errand| self.conclude(&errand, sent));
        answers.chain(unheard.then_some(Answer::Unheard { until: sent + BACK_LATE })).collect()
    }

    fn errand(&self, stream_seq: u64, tell: &Tell, now: Moment) -> Errand {
        let handle = self.handles.borrow().get(stream_seq).cloned();
        let (kind, word) = match tell {
            Tell::Ack { ticket } => (Kind::Ack(*ticket), wire::ACK),
            Tell::Nack { delay_s, .. } => (Kind::Nack, wire::nak(*delay_s)),
            Tell::Extend { ticket } => (Kind::Extend(*ticket), wire::WORKING),
            Tell::Answered { .. } => unreachable!("this source does not judge"),
            Tell::DeadLetter { .. } => unreachable!("a port sets dead letters aside and tells an ack"),
        };
        let consumer_seq = handle.as_ref().map_or(0, |handle| handle.consumer_seq);
        let subject = match kind {
            Kind::Nack => handle.and_then(|handle| self.give_back(stream_seq, &handle, now)),
            _ => handle.map(|handle| handle.subject),
        };
        Errand { stream_seq, consumer_seq, kind, subject, word, done: false }
    }

    /// Where to nak a message; nowhere after its lease: it comes back by itself, and a late nak would make it come
    /// twice.
    fn give_back(&self, stream_seq: u64, handle: &Handle, now: Moment) -> Option<Subject> {
        self.handles.borrow_mut().forget(stream_seq, handle.consumer_seq);
        if let Some(deliveries) = handle.given_up {
            self.given_up.borrow_mut().push_back(GivenUp { stream_seq, deliveries });
            return None;
        }
        (now < handle.lease_until).then(|| handle.subject.clone())
    }

    fn conclude(&self, errand: &Errand, sent: Moment) -> Option<Answer> {
        let Errand { stream_seq, consumer_seq, done, .. } = *errand;
        let mut handles = self.handles.borrow_mut();
        match errand.kind {
            Kind::Ack(ticket) => {
                // One that was not confirmed stays reachable until it is handed over again or its time is over.
                if done {
                    handles.forget(stream_seq, consumer_seq);
                }
                ticket.map(|ticket| Answer::Closed { ticket, done })
            }
            Kind::Nack => None,
            Kind::Extend(ticket) => {
                if done {
                    handles.extend(stream_seq, sent + self.lease());
                }
                Some(Answer::Extended { ticket, done, sent })
            }
        }
    }

    /// The connection, waited for. While a router drains no one but us would make one.
    async fn session_until(&self, until: Instant) -> Option<Rc<Session>> {
        loop {
            match tokio::time::timeout_at(until, self.session()).await.ok()? {
                Ok(session) => return Some(session),
                Err(ReceiveError::Unreachable(_)) => {}
                Err(ReceiveError::Denied { .. } | ReceiveError::Ended) => return None,
            }
            let next = Instant::now() + CONNECT_PAUSE;
            if next >= until {
                return None;
            }
            tokio::time::sleep_until(next).await;
        }
    }
}
