//! Telling the server what became of messages, and leaving it.

use std::rc::Rc;
use std::time::Duration;

use shards::clock::{Clock, Moment};
use shards::desk::{Receipt, Tell};
use shards::model::{Outcome, Ticket};

use super::book::GivenBack;
use super::client::Session;
use super::consumer::Consumer;
use super::shared::Shared;
use crate::ingress::Answer;

/// A message that was not delivered.
#[derive(Clone, Copy)]
pub(super) enum Back {
    /// Show it again then.
    At(Moment),
    /// Its call ended so, and what becomes of it is for the source to say.
    Answered(Outcome),
}

impl Consumer {
    /// Sends all of it at once, and waits until the server has taken the acks. What is of another channel is not sent:
    /// the server has those messages back, and hands them over again. `back` is told of what was not delivered.
    pub(super) async fn settle_all(
        &self,
        tells: Vec<(Receipt, Tell)>,
        mut back: impl FnMut(&Rc<Session>, u64, Back),
    ) -> Vec<Answer> {
        let (shared, now) = (self.shared(), Clock.now());
        let session = shared.live();
        let (mut answers, mut sent, mut must_confirm) = (Vec::with_capacity(tells.len()), Vec::new(), false);
        for (receipt, tell) in tells {
            let session = session.as_ref().filter(|session| session.epoch == receipt.epoch);
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
                    if let Some(session) = session {
                        back(session, receipt.key, Back::At(now + Duration::from_secs(delay_s.into())));
                    }
                }
                Tell::Extend { ticket } => {
                    let done =
                        session.is_some_and(|session| session.book.borrow().get(receipt.key).is_some());
                    answers.push(Answer::Extended { ticket, done, sent: now });
                }
                Tell::Answered { outcome } => {
                    if let Some(session) = session {
                        back(session, receipt.key, Back::Answered(outcome));
                    }
                }
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
        answers.extend(self.unheard(&shared).map(|until| Answer::Unheard { until }));
        answers
    }
}

pub(super) fn ack(shared: &Shared, session: &Session, key: u64, now: Moment) -> bool {
    let Some((tag, item)) = session.book.borrow_mut().settle(key) else { return false };
    shared.memory.borrow_mut().on_acked(item.content, item.id, now);
    session.ack(tag)
}

pub(super) fn give_back(session: &Session, key: u64, due: Moment) {
    if session.book.borrow_mut().give_back(key, due) == GivenBack::Kept {
        session.bell.notify_one();
    }
}
