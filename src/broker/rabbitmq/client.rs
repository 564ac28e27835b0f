//! A channel that consumes one queue. The server pushes; all that it pushed and that is not settled is bounded by the
//! consumer's prefetch.
//!
//! - A channel has one consumer at a time, and its prefetch stays as it is. AMQP changes a running consumer's only in a
//!   way that quorum queues do not know; and when a channel with two consumers ends, a quorum queue puts the messages of one
//!   before those of the other, whichever are older. A larger prefetch is a new session.
//! - AMQP does not answer acks. The server works a channel off in order, so the answer to a question that was asked
//!   after an ack says that the ack was taken.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_lite::Stream;
use lapin::message::Delivery;
use lapin::options::{
    BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions,
    QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, Consumer, Queue};
use shards::clock::{Clock, Moment};
use tokio::sync::{Mutex, Notify};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};

use super::address::Address;
use super::book::Book;
use super::bus;
use super::connect::{Line, REPLY_SUCCESS, away, receive_error};
use super::shared::WIDER;
use crate::ingress::ReceiveError;

/// How long the server may take to answer. A connection that hangs is noticed so soon.
const ANSWER_MAX: Duration = Duration::from_secs(4);
/// How long the depth may take; the next look is in a few seconds.
const DEPTH_MAX: Duration = Duration::from_secs(2);
/// A prefetch is not raised beyond so many bytes of messages.
const PREFETCH_BYTES: usize = 64 << 20;
/// How long a lost connection's messages may stay with it once the server is there again: it notices after two heartbeats of
/// 5 s and a little, and later if it is busy.
const GHOST_MAX: Duration = Duration::from_secs(30);
/// A consumer's usual priority (`x-priority`).
const PRIORITY: i32 = 0;
/// Between two looks whether they are back.
const GHOST_LOOK: Duration = Duration::from_millis(10);

/// A message that the server pushed.
pub(super) struct Pushed {
    pub(super) at: Moment,
    pub(super) delivery: Delivery,
}

/// The channel's consumer.
struct Flow {
    consumer: Consumer,
    /// We cancelled it: its end is no news.
    leaving: bool,
}

/// What a new session must know of the one before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    /// Consumers of the queue that were not ours.
    pub(super) others: u32,
    /// Without a goodbye: the server may have been started again, or takes that session for a live one.
    pub(super) was_lost: bool,
}

/// A connection with its consuming channel.
pub(super) struct Session {
    pub(super) epoch: u32,
    pub(super) opened_at: Moment,
    /// Consumers of the queue that are not ours, as far as we know.
    pub(super) others: Cell<u32>,
    queue: ShortString,
    line: Line,
    channel: Channel,
    /// For questions: a wrong one closes its channel.
    side: RefCell<Option<Channel>>,
    flow: RefCell<Option<Flow>>,
    /// The tag of a message that a consumer before this one left here: a quorum queue counts that one until it is settled.
    first: Cell<Option<u64>>,
    pushed: RefCell<VecDeque<Pushed>>,
    pub(super) book: RefCell<Book>,
    /// The consumer's prefetch.
    pub(super) prefetch: u16,
    /// Mean size of a body.
    body_bytes: Cell<usize>,
    lost: RefCell<Option<String>>,
    /// Something was given back, or the session is lost.
    pub(super) bell: Notify,
    /// Acks and nacks sent, and how many of them the server has taken.
    sent: Cell<u64>,
    taken: Cell<u64>,
    asking: Mutex<()>,
}

impl Session {
    /// Connects and consumes. `before`: the session that was lost, where order matters.
    pub(super) async fn open(
        address: &Address,
        queue: &str,
        prefetch: u16,
        (epoch, base): (u32, u64),
        before: Option<Before>,
    ) -> Result<Self, ReceiveError> {
        let line = Line::connect(address).await?;
        bus::prepare(address, &line).await?;
        let channel = line.channel(address).await?;
        let mut session = Self {
            epoch,
            opened_at: Clock.now(),
            others: Cell::new(0),
            queue: ShortString::from(queue),
            line,
            channel,
            side: RefCell::default(),
            flow: RefCell::default(),
            first: Cell::new(None),
            pushed: RefCell::default(),
            book: RefCell::new(Book::new(base)),
            prefetch,
            body_bytes: Cell::new(0),
            lost: RefCell::default(),
            bell: Notify::new(),
            sent: Cell::new(0),
            taken: Cell::new(0),
            asking: Mutex::new(()),
        };
        let others = match before {
            Some(before) => session.await_ghost(address, before).await?,
            None => answer(address, session.ask_queue()).await?.consumer_count(),
        };
        answer(address, session.consume(prefetch, "2-main", PRIORITY)).await?;
        session.others.set(others);
        Ok(session)
    }

    /// A server that has not noticed yet that the connection before is gone still keeps that one's messages: newer ones
    /// would overtake them. Waits until its consumer is gone; returns how many there are.
    ///
    /// A quorum queue that is starting says that it has no consumers, or how many it once had. One that took a consumer
    /// in has started: so after a loss it gets one for a single message first, which comes after all others: while the lost
    /// one can take more it gets nothing, and so tears no hole into what that one has. What is new may have come too
    /// early, and goes back behind what the lost connection had; what was pushed before is the oldest, and the first of
    /// this session.
    async fn await_ghost(&mut self, address: &Address, before: Before) -> Result<u32, ReceiveError> {
        if !before.was_lost {
            return self.await_consumers(address, before, 0).await;
        }
        // Its name comes before the other's: a quorum queue takes a channel's messages back in the order of names.
        answer(address, self.consume(1, "1-first", PRIORITY - 1)).await?;
        let others = self.await_consumers(address, before, 1).await?;
        let since = Clock.now();
        while self.pushed.borrow().is_empty() && Clock.now().since(since) < ANSWER_MAX {
            if answer(address, self.ask_queue()).await?.message_count() == 0 {
                break;
            }
            tokio::time::sleep(GHOST_LOOK).await;
            self.pump();
        }
        self.cancel().await;
        let first =
            self.pushed.borrow().front().map(|it| (it.delivery.delivery_tag, it.delivery.redelivered));
        self.first.set(first.map(|(tag, _)| tag));
        if let Some((_, false)) = first {
            // A nack would go to the queue beside the next consumer's request, and perhaps after it.
            self.pushed.borrow_mut().clear();
            answer(address, self.channel.close(REPLY_SUCCESS, "what came too early goes back".into()))
                .await?;
            self.channel = self.line.channel(address).await?;
            self.first.set(None);
            self.await_consumers(address, before, 0).await?;
        }
        Ok(others)
    }

    /// Waits until the queue has no consumers but others' and `ours`; returns how many others.
    async fn await_consumers(
        &self,
        address: &Address,
        before: Before,
        ours: u32,
    ) -> Result<u32, ReceiveError> {
        loop {
            let consumers = answer(address, self.ask_queue()).await?.consumer_count();
            if (ours..=before.others + ours).contains(&consumers) {
                return Ok(consumers - ours);
            }
            if Clock.now().since(self.opened_at) > GHOST_MAX {
                tracing::warn!(queue = %address, consumers, "another consumer has come, or the server still holds messages of the lost connection: going on");
                return Ok(before.others);
            }
            tokio::time::sleep(GHOST_LOOK).await;
        }
    }

    /// Asks about the queue, on a channel of its own: the server closes a channel whose question has no answer.
    async fn ask_queue(&self) -> lapin::Result<Queue> {
        let side = self.side.take().filter(|channel| channel.status().connected());
        let side = match side {
            Some(side) => side,
            None => self.line.open_channel().await?,
        };
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let found = side.queue_declare(self.queue.clone(), options, FieldTable::default()).await?;
        self.side.replace(Some(side));
        Ok(found)
    }

    async fn consume(&self, prefetch: u16, name: &str, priority: i32) -> lapin::Result<()> {
        self.channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
        let tag = ShortString::from(format!("corelane-{}-{}-{name}", std::process::id(), self.epoch));
        let mut arguments = FieldTable::default();
        if priority != PRIORITY {
            arguments.insert("x-priority".into(), AMQPValue::LongInt(priority));
        }
        let options = BasicConsumeOptions::default();
        let consumer = self.channel.basic_consume(self.queue.clone(), tag, options, arguments).await?;
        self.flow.replace(Some(Flow { consumer, leaving: false }));
        Ok(())
    }

    /// Cancels the consumer, so that the server pushes no more. What it pushed before is here then.
    pub(super) async fn cancel(&self) {
        let tag = self.flow.borrow_mut().as_mut().filter(|flow| !flow.leaving).map(|flow| {
            flow.leaving = true;
            flow.consumer.tag()
        });
        let Some(tag) = tag else { return };
        let cancelled = self.channel.basic_cancel(tag, BasicCancelOptions::default());
        self.lose_unless(timeout(ANSWER_MAX, cancelled).await);
        self.pump();
    }

    /// The server holds messages back that the desk has room for, and the prefetch could be larger.
    pub(super) fn is_narrow(&self, prefetch_max: u16) -> bool {
        let unsettled = self.book.borrow().len() + self.pushed.borrow().len();
        let fits = usize::from(self.prefetch) * usize::from(WIDER) * self.body_bytes.get() <= PREFETCH_BYTES;
        fits && self.prefetch < prefetch_max && unsettled >= usize::from(self.prefetch)
    }

    /// Moves what the server pushed from the client's buffer to ours.
    pub(super) fn pump(&self) {
        let _ = self.poll_pump(&mut Context::from_waker(Waker::noop()));
    }

    /// The same beside a receive that may be waiting. The client wakes only whoever polled it last, and that is nobody
    /// now: so the receive looks again.
    pub(super) fn pump_aside(&self) {
        self.pump();
        self.bell.notify_one();
    }

    /// Ready when something came, or the session is lost.
    fn poll_pump(&self, context: &mut Context<'_>) -> Poll<()> {
        let (mut held, mut came) = (self.flow.borrow_mut(), false);
        while let Some(flow) = held.as_mut() {
            match Pin::new(&mut flow.consumer).poll_next(context) {
                Poll::Ready(Some(Ok(delivery))) => {
                    came = true;
                    let mean = (self.body_bytes.get() * 15 + delivery.data.len()) / 16;
                    self.body_bytes.set(mean);
                    self.pushed.borrow_mut().push_back(Pushed { at: Clock.now(), delivery });
                }
                Poll::Ready(None) if flow.leaving => drop(held.take()),
                Poll::Ready(None) => {
                    self.lose("the server ended the consumer: the queue was deleted, or its node is down");
                    return Poll::Ready(());
                }
                Poll::Ready(Some(Err(error))) => {
                    self.lose(&words(&error));
                    return Poll::Ready(());
                }
                Poll::Pending if came => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
        if came { Poll::Ready(()) } else { Poll::Pending }
    }

    /// The oldest message that was pushed and not taken.
    pub(super) fn take_pushed(&self) -> Option<Pushed> {
        self.pushed.borrow_mut().pop_front()
    }

    /// Since when the oldest of all that is here has been unsettled.
    pub(super) fn oldest(&self) -> Option<Moment> {
        let pushed = self.pushed.borrow().front().map(|pushed| pushed.at);
        [self.book.borrow().oldest(), pushed].into_iter().flatten().min()
    }

    /// Waits until something came, was given back, or is due; or until `until`. False: the time is up.
    pub(super) async fn wait(&self, until: Instant) -> bool {
        let due = self.book.borrow().next_due().map(|due| due.since(Clock.now()));
        let wait = due.map_or(until, |due| until.min(Instant::now() + due));
        tokio::select! {
            biased;
            () = std::future::poll_fn(|context| self.poll_pump(context)) => true,
            () = self.bell.notified() => true,
            () = tokio::time::sleep_until(wait) => wait < until,
        }
    }

    /// Sends an ack. Does not wait: [`Session::confirm`] says whether it was taken.
    pub(super) fn ack(&self, tag: u64) -> bool {
        self.send(self.channel.basic_ack(tag, BasicAckOptions { multiple: false }))
    }

    /// Sends a nack: back into the queue.
    pub(super) fn nack(&self, tag: u64) -> bool {
        self.send(self.channel.basic_nack(tag, BasicNackOptions { multiple: false, requeue: true }))
    }

    /// Sends a nack: to where the queue sends what was rejected.
    pub(super) fn reject(&self, tag: u64) -> bool {
        self.send(self.channel.basic_nack(tag, BasicNackOptions { multiple: false, requeue: false }))
    }

    /// The first poll puts the frame in line; nobody waits until it is written.
    fn send(&self, frame: impl Future<Output = lapin::Result<()>>) -> bool {
        let polled = pin!(frame).poll(&mut Context::from_waker(Waker::noop()));
        let sent = !matches!(polled, Poll::Ready(Err(_))) && !self.is_lost();
        if sent {
            self.sent.set(self.sent.get() + 1);
        }
        sent
    }

    /// Waits until the server has taken all that was sent before. One question answers for all who wait.
    pub(super) async fn confirm(&self) -> bool {
        let want = self.sent.get();
        let _one_at_a_time = self.asking.lock().await;
        self.taken.get() >= want || self.answers().await
    }

    /// Asks something that changes nothing, to hear whether the server is there.
    async fn answers(&self) -> bool {
        if self.is_lost() {
            return false;
        }
        let sent = self.sent.get();
        let asked = self.channel.basic_qos(self.prefetch, BasicQosOptions::default());
        let is_there = self.lose_unless(timeout(ANSWER_MAX, asked).await);
        if is_there {
            self.taken.set(sent);
        }
        is_there
    }

    /// Is the server there? Asked when nothing came for a while.
    pub(super) async fn is_there(&self) -> bool {
        let _one_at_a_time = self.asking.lock().await;
        self.answers().await
    }

    /// Messages that wait; `None` = the server does not say.
    pub(super) async fn depth(&self) -> Option<u64> {
        let queue = timeout(DEPTH_MAX, self.ask_queue()).await.ok()?.ok()?;
        // One of them is ours, or two. Others come and go.
        let is_here = |tag: u64| {
            self.book.borrow().has(tag)
                || self.pushed.borrow().front().is_some_and(|it| it.delivery.delivery_tag == tag)
        };
        let ours = 1 + u32::from(self.first.get().is_some_and(is_here));
        self.others.set(queue.consumer_count().saturating_sub(ours));
        Some(u64::from(queue.message_count()))
    }

    pub(super) fn is_lost(&self) -> bool {
        let lost = self.lost.borrow().is_some();
        lost || !self.channel.status().connected()
    }

    /// Why it is of no use any more.
    pub(super) fn why_lost(&self) -> Option<String> {
        let why = self.lost.borrow().clone();
        why.or_else(|| self.is_lost().then(|| "the connection was lost".to_owned()))
    }

    /// A question without an answer is the end.
    fn lose_unless(&self, answered: Result<lapin::Result<()>, Elapsed>) -> bool {
        match answered {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => {
                // The consumer has the server's reason, if there is one.
                self.pump();
                self.lose(&words(&error));
            }
            Err(_) => self.lose("the server does not answer: the connection hangs"),
        }
        false
    }

    /// It is of no use any more. The first reason counts: the others follow from it.
    pub(super) fn lose(&self, why: &str) {
        self.lost.borrow_mut().get_or_insert_with(|| why.to_owned());
        self.bell.notify_one();
    }

    /// Lets go of the connection: the server takes back what is unsettled, in order. False if it did not answer.
    pub(super) async fn close(&self) -> bool {
        self.lose("it was closed");
        self.line.close().await
    }
}

/// Waits for the server's answer, but not for ever.
async fn answer<T>(
    address: &Address,
    asked: impl Future<Output = lapin::Result<T>>,
) -> Result<T, ReceiveError> {
    match timeout(ANSWER_MAX, asked).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(receive_error(address, &error)),
        Err(_) => Err(away(address, "the server does not answer")),
    }
}

/// What the client says of a loss, without the queue's address.
fn words(error: &lapin::Error) -> String {
    match error.kind() {
        lapin::ErrorKind::ProtocolError(said) => format!("the server said {:?}", said.get_message().as_str()),
        lapin::ErrorKind::MissingHeartbeatError => {
            "no heartbeat came: the server or the network hangs".into()
        }
        _ => "the connection was lost".into(),
    }
}
