//! Telling the server what became of messages, and leaving it.

use std::time::Duration;

use shards::clock::{Clock, Moment};
use shards::desk::{Receipt, Tell};
use shards::model::{Ordering, Ticket};

use super::RabbitQueue;
use super::book::GivenBack;
use super::client::Session;
use super::shared::Shared;
use crate::ingress::Answer;

impl RabbitQueue {
    /// Sends all of it at once, and waits until the server has taken the acks. What is of another channel is not sent:
    /// the server has those messages back, and hands them over again.
    pub(super) async fn settle_all(&self, tells: Vec<(Receipt, Tell)>) -> Vec<Answer> {
        let (shared, now) = (self.shared(), Clock.now());
        let session = shared.live();
        let (mut answers, mut sent, mut must_confirm) = (Vec::with_capacity(tells.len()), Vec::new(), false);
        for (receipt, tell) in tells {
            let session = session.as_deref().filter(|session| session.epoch == receipt.epoch);
            match tell {
                Tell::Ack { ticket } => {
                    let was_sent = session.is_some_and(|session| ack(&shared, session, receipt.key, now));
                    must_confirm |= was_sent;
                    match ticket {
                        Some(ticket) if was_sent => sent.push(ticket),
                        Some(ticket) => answers.push(Answer::Closed { ticket, done: false }),
                        None => {}
                    }
                }
                Tell::Nack { delay_s, .. } => {
                    let due = now + Duration::from_secs(delay_s.into());
                    if let Some(session) = session {
                        give_back(session, receipt.key, due);
                    }
                }
                Tell::Extend { ticket } => {
                    let done =
                        session.is_some_and(|session| session.book.borrow().get(receipt.key).is_some());
                    answers.push(Answer::Extended { ticket, done, sent: now });
                }
                Tell::Answered { .. } => unreachable!("this source does not judge"),
                Tell::DeadLetter { .. } => unreachable!("a port sets dead letters aside and tells an ack"),
            }
        }
        if let Some(session) = &session {
            // Also where nobody asks: what is told last before a stop must have arrived.
            let done = must_confirm && session.confirm().await;
            answers.extend(sent.into_iter().map(|ticket: Ticket| Answer::Closed { ticket, done }));
            if session.is_lost() {
                shared.on_lost(session, &self.address).await;
            }
        }
        self.leave_if_done(&shared).await;
        answers
    }

    /// No more is received. A consumer that came after this one goes on with the session. Otherwise the server pushes no
    /// more, and what it pushed goes back: where order matters when the desk has settled all that it holds, because
    /// what goes back first would be before what is still running here.
    pub(super) async fn end(&self) {
        if self.stopped.replace(true) {
            return;
        }
        let shared = self.shared();
        shared.exit();
        let Some(session) = shared.live() else { return };
        if shared.is_in_use() {
            return;
        }
        session.cancel().await;
        if self.spec.ordering != Ordering::Strict {
            shared.return_all(&session);
            session.confirm().await;
        }
        self.leave_if_done(&shared).await;
    }

    /// After the last consumer's stop: closes when the desk has settled all. The server then has all the rest back at
    /// its old place.
    async fn leave_if_done(&self, shared: &Shared) {
        if !self.stopped.get() || shared.is_in_use() {
            return;
        }
        if let Some(session) = shared.live()
            && session.book.borrow().out_count() == 0
        {
            shared.leave(&session).await;
        }
    }
}

fn ack(shared: &Shared, session: &Session, key: u64, now: Moment) -> bool {
    let Some((tag, item)) = session.book.borrow_mut().settle(key) else { return false };
    shared.memory.borrow_mut().on_acked(item.content, item.id, now);
    session.ack(tag)
}

fn give_back(session: &Session, key: u64, due: Moment) {
    if session.book.borrow_mut().give_back(key, due) == GivenBack::Kept {
        session.bell.notify_one();
    }
}
