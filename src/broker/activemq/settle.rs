//! Telling the broker what became of messages.

use std::rc::Rc;
use std::time::Duration;

use shards::clock::Clock;
use shards::desk::{Receipt, Tell};
use shards::model::{NackReason, Ticket};

use super::sender::{Mark, SEND_MAX, Sender};
use super::session::Session;
use super::shelf::Held;
use super::{ActiveMqQueue, wall_ms};
use crate::ingress::Answer;

/// How long the broker may take to confirm an ack: as long as a drain waits for it.
const CONFIRM_MAX: Duration = Duration::from_secs(4);

/// A message that is to become a copy.
struct Move {
    held: Held,
    delay: Duration,
}

impl ActiveMqQueue {
    /// Tells all of it at once and waits for the broker's word.
    pub(super) async fn settle_all(&self, tells: Vec<(Receipt, Tell)>) -> Vec<Answer> {
        let session = self.live();
        let sent = Clock.now();
        let (mut answers, mut delivered, mut moves) = (Vec::new(), Vec::new(), Vec::new());
        for (receipt, tell) in tells {
            let live = session.as_ref().is_some_and(|session| session.epoch == receipt.epoch);
            match tell {
                Tell::Ack { ticket } if self.is_out(receipt, live) => delivered.push((receipt.key, ticket)),
                // Of a connection that is gone, or acked before: if it comes again, it is acked then.
                Tell::Ack { ticket } => {
                    answers.extend(ticket.map(|ticket| Answer::Closed { ticket, done: false }));
                }
                Tell::Nack { delay_s, reason } => {
                    moves.extend(self.give_back(receipt, live, Duration::from_secs(delay_s.into()), reason));
                }
                // Nothing has a lease here.
                Tell::Extend { ticket } => answers.push(Answer::Extended { ticket, done: live, sent }),
                Tell::Answered { .. } => unreachable!("this source does not judge"),
                Tell::DeadLetter { .. } => unreachable!("a port sets dead letters aside and tells an ack"),
            }
        }
        self.settled.notify_one();
        if let Some(session) = session {
            answers.extend(self.ack(&session, delivered).await);
            if !moves.is_empty() {
                self.move_all(&session, moves).await;
            }
        }
        answers
    }

    fn is_out(&self, receipt: Receipt, live: bool) -> bool {
        live && self.shelf.borrow().get(receipt.key).is_some()
    }

    async fn ack(&self, session: &Session, delivered: Vec<(u64, Option<Ticket>)>) -> Vec<Answer> {
        if delivered.is_empty() {
            return Vec::new();
        }
        let told = {
            let kept = self.shelf.borrow();
            let held = delivered.iter().filter_map(|(key, _)| kept.get(*key));
            held.flat_map(|held| session.acks(held)).collect()
        };
        let confirmed = tokio::time::timeout(CONFIRM_MAX, session.line().ack(told)).await;
        let done = confirmed.unwrap_or(false);
        let mut kept = self.shelf.borrow_mut();
        for (key, _) in &delivered {
            kept.take(*key);
        }
        self.settled.notify_one();
        delivered
            .into_iter()
            .filter_map(|(_, ticket)| Some(Answer::Closed { ticket: ticket?, done }))
            .collect()
    }

    /// Keeps a message here until it is due, unless its group goes on without it: then it should be a copy.
    fn give_back(&self, receipt: Receipt, live: bool, delay: Duration, reason: NackReason) -> Option<Move> {
        let mut kept = self.shelf.borrow_mut();
        let mut held = if live { kept.take(receipt.key)? } else { return None };
        held.failed = held.failed.saturating_add(u16::from(reason == NackReason::Failed));
        if !held.blocks && !delay.is_zero() && self.schedules.get() {
            self.moving.set(self.moving.get() + 1);
            return Some(Move { held, delay });
        }
        kept.put_back(held, Clock.now() + delay);
        None
    }

    /// Makes copies that the broker delays. The original is acked when its copy is kept; one that could not be copied
    /// waits here.
    async fn move_all(&self, session: &Rc<Session>, moves: Vec<Move>) {
        let began = Clock.now();
        let copied = tokio::time::timeout(SEND_MAX, self.copy_all(session, &moves)).await;
        let copied = copied.unwrap_or_else(|_| {
            // The broker may still be about to keep them. It will not once the connection is gone.
            self.sender.take();
            vec![Err("the broker does not answer".to_owned()); moves.len()]
        });
        let mut acks = Vec::new();
        for (Move { held, delay }, copied) in moves.iter().zip(copied) {
            match copied {
                Ok(()) => acks.extend(session.acks(held)),
                Err(why) if session.is_lost() => {
                    tracing::debug!(queue = %self.address, why, "the broker has the message back");
                }
                Err(why) => {
                    tracing::warn!(queue = %self.address, why, "a delayed copy can't be sent: the message waits here");
                    if self.live().is_some_and(|live| live.epoch == session.epoch) {
                        self.shelf.borrow_mut().put_back(held.clone(), began + *delay);
                    }
                }
            }
        }
        let _ = tokio::time::timeout(CONFIRM_MAX, session.line().ack(acks)).await;
        self.moving.set(self.moving.get() - moves.len());
        self.settled.notify_one();
    }

    /// Sends all copies, then waits for each.
    async fn copy_all(&self, session: &Session, moves: &[Move]) -> Vec<Result<(), String>> {
        let sender = match self.sender().await {
            Ok(sender) => sender,
            Err(why) => return vec![Err(why); moves.len()],
        };
        let mut sent = Vec::with_capacity(moves.len());
        for Move { held, delay } in moves {
            sent.push(match session.read(&held.frame) {
                Ok(Some((message, redeliveries))) => {
                    let taken = self.look_at(&message, redeliveries, Clock.now());
                    let delay_ms = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
                    let mark = Mark {
                        first_id: taken.identity,
                        deliveries: taken.deliveries.saturating_sub(1).saturating_add(held.failed),
                        delay: *delay,
                        due: wall_ms().saturating_add(delay_ms),
                    };
                    sender.send(&message, &held.frame, &mark)
                }
                Ok(None) => Err("there is no message".to_owned()),
                Err(why) => Err(why),
            });
        }
        let mut kept = Vec::with_capacity(sent.len());
        for sent in sent {
            kept.push(match sent {
                Ok(kept) => kept.await,
                Err(why) => Err(why),
            });
        }
        kept
    }

    /// The connection that sends, made if there is none.
    async fn sender(&self) -> Result<Rc<Sender>, String> {
        if let Some(sender) = self.sender.borrow().clone().filter(|sender| !sender.is_lost()) {
            return Ok(sender);
        }
        self.senders.set(self.senders.get() + 1);
        let name = format!("{}-s{}", self.name, self.senders.get());
        let opened = Sender::open(&self.address, self.host.get(), &name).await;
        let sender = Rc::new(opened.map_err(|error| error.to_string())?);
        self.sender.replace(Some(Rc::clone(&sender)));
        Ok(sender)
    }
}
