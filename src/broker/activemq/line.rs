//! A connection's two directions: a task that reads, one that writes, and one that listens for silence. Core: the ingress.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::acks::Acks;
use super::wire::{self, Command, Refusal, Scribe, Told, WireError};

/// What one read may bring.
const READ_BYTES: usize = 64 << 10;
/// Bytes of messages that wait here for room; with more nothing is read until some are taken. A burst of large messages
/// comes before the window can follow.
const INBOX_BYTES_MAX: usize = 32 << 20;
/// How long the last words of a connection may take to be written.
const LAST_WORDS_MAX: Duration = Duration::from_secs(1);
/// Silence is looked for so often in the time that ends a connection.
const LOOKS: u32 = 3;

/// The consumers of a connection.
pub(super) const MESSAGES: i64 = 1;
pub(super) const REPLIES: i64 = 2;

/// Why a question was not answered with yes.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// The broker refuses.
    Refused(Refusal),
    /// The connection is gone.
    Lost(String),
}

/// What the tasks of a connection and its users share.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) scribe: Scribe,
    out: RefCell<Vec<u8>>,
    to_write: Notify,
    inbox: RefCell<VecDeque<Bytes>>,
    inbox_bytes: Cell<usize>,
    /// Something came, or nothing will.
    arrived: Notify,
    /// Room in the inbox.
    taken: Notify,
    /// Frames for the consumer of replies.
    replies: RefCell<VecDeque<Bytes>>,
    replied: Notify,
    acks: RefCell<Acks>,
    answers: RefCell<HashMap<i32, oneshot::Sender<Result<(), Refusal>>>>,
    lost: RefCell<Option<String>>,
    has_lost: Notify,
    heard: Cell<Instant>,
    /// Nothing is read for now, so nothing can be heard.
    full: Cell<bool>,
}

impl Line {
    pub(super) fn new(scribe: Scribe) -> Self {
        Self {
            scribe,
            out: RefCell::default(),
            to_write: Notify::new(),
            inbox: RefCell::default(),
            inbox_bytes: Cell::new(0),
            arrived: Notify::new(),
            taken: Notify::new(),
            replies: RefCell::default(),
            replied: Notify::new(),
            acks: RefCell::default(),
            answers: RefCell::default(),
            lost: RefCell::default(),
            has_lost: Notify::new(),
            heard: Cell::new(Instant::now()),
            full: Cell::new(false),
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.borrow().is_some()
    }

    /// Why it is of no use any more.
    pub(super) fn why_lost(&self) -> String {
        self.lost.borrow().clone().unwrap_or_else(|| "the connection was lost".to_owned())
    }

    /// It is of no use any more; who waits for something hears of it.
    pub(super) fn lose(&self, why: impl Into<String>) {
        self.lost.borrow_mut().get_or_insert_with(|| why.into());
        self.acks.borrow_mut().give_up();
        self.answers.borrow_mut().clear();
        self.arrived.notify_waiters();
        self.replied.notify_waiters();
        self.has_lost.notify_waiters();
        self.to_write.notify_one();
        self.taken.notify_one();
    }

    /// Waits until it is lost.
    pub(super) async fn ended(&self) {
        while !self.is_lost() {
            self.has_lost.notified().await;
        }
    }

    /// Says something without waiting for an answer.
    pub(super) fn say(&self, told: &Told) {
        self.out.borrow_mut().extend_from_slice(&told.frame);
        self.to_write.notify_one();
    }

    /// Says something that the broker answers, at once, and waits for the answer when it is polled.
    pub(super) fn ask(self: &Rc<Self>, told: &Told) -> impl Future<Output = Result<(), Fault>> + use<> {
        let (answer, answered) = oneshot::channel();
        if !self.is_lost() {
            self.answers.borrow_mut().insert(told.number, answer);
            self.say(told);
        }
        let line = Rc::clone(self);
        async move {
            match answered.await {
                Ok(answer) => answer.map_err(Fault::Refused),
                Err(_) => Err(Fault::Lost(line.why_lost())),
            }
        }
    }

    /// Acks messages; true when the broker has confirmed all of them.
    pub(super) fn ack(&self, acks: Vec<Told>) -> impl Future<Output = bool> + use<> {
        let confirmed = (!self.is_lost()).then(|| {
            let confirmed = self.acks.borrow_mut().push(acks);
            self.write_acks();
            confirmed
        });
        async move {
            match confirmed {
                Some(confirmed) => confirmed.await.unwrap_or(false),
                None => false,
            }
        }
    }

    fn write_acks(&self) {
        self.acks.borrow_mut().write(&mut self.out.borrow_mut());
        self.to_write.notify_one();
    }

    /// Sends the acks that wait for an earlier one's answer: nothing is acked after that.
    pub(super) fn flush_acks(&self) {
        self.acks.borrow_mut().write_rest(&mut self.out.borrow_mut());
        self.to_write.notify_one();
    }

    /// The next message that came.
    pub(super) fn take(&self) -> Option<Bytes> {
        let frame = self.inbox.borrow_mut().pop_front()?;
        self.inbox_bytes.set(self.inbox_bytes.get() - frame.len());
        self.taken.notify_one();
        Some(frame)
    }

    /// Waits until there is a message to take, or the connection is lost.
    pub(super) async fn has_arrived(&self) {
        while self.inbox.borrow().is_empty() && !self.is_lost() {
            self.arrived.notified().await;
        }
    }

    /// A message for the consumer of replies that is here.
    pub(super) fn take_reply(&self) -> Option<Bytes> {
        self.replies.borrow_mut().pop_front()
    }

    /// The next message for the consumer of replies.
    pub(super) async fn reply(&self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.take_reply() {
                return Some(frame);
            }
            if self.is_lost() {
                return None;
            }
            self.replied.notified().await;
        }
    }

    fn on_frame(&self, frame: Bytes) -> Result<(), WireError> {
        match wire::dispatched_to(&frame)? {
            Some(MESSAGES) => {
                self.inbox_bytes.set(self.inbox_bytes.get() + frame.len());
                self.inbox.borrow_mut().push_back(frame);
                self.arrived.notify_waiters();
                return Ok(());
            }
            Some(_) => {
                self.replies.borrow_mut().push_back(frame);
                self.replied.notify_waiters();
                return Ok(());
            }
            None => {}
        }
        match Command::read(&frame, self.scribe.version())? {
            Command::Done(number) => self.on_answer(number, Ok(())),
            Command::Refused(number, why) => self.on_answer(number, Err(why)),
            Command::Alive { asks: true } => self.say(&self.scribe.alive(false)),
            Command::Broken(why) => self.lose(format!("the broker says: {}", why.text)),
            Command::ConsumerEnded => {
                self.lose("the broker ended the consumer, perhaps as too slow: see its slowConsumerStrategy");
            }
            Command::Closing => self.lose("the broker closes the connection"),
            Command::Alive { .. } | Command::Hello(_) | Command::Dispatch { .. } | Command::Other => {}
        }
        Ok(())
    }

    fn on_answer(&self, number: i32, answer: Result<(), Refusal>) {
        if self.acks.borrow_mut().on_answer(number, answer.is_ok()) {
            if let Err(why) = answer {
                tracing::warn!(class = why.class, "the broker refuses an ack: {}", why.text);
            }
            self.write_acks();
        } else if let Some(waiting) = self.answers.borrow_mut().remove(&number) {
            let _ = waiting.send(answer);
        }
    }

    /// Reads until the end. `buffer`: what was read already.
    pub(super) async fn read(self: Rc<Self>, mut from: impl AsyncRead + Unpin, mut buffer: BytesMut) {
        loop {
            loop {
                match wire::next_frame(&mut buffer) {
                    Ok(None) => break,
                    Ok(Some(frame)) => {
                        if let Err(error) = self.on_frame(frame) {
                            return self.lose(format!("what the broker says can't be read: {error}"));
                        }
                    }
                    Err(error) => return self.lose(format!("what the broker says can't be read: {error}")),
                }
            }
            while self.inbox_bytes.get() > INBOX_BYTES_MAX && !self.is_lost() {
                self.full.set(true);
                self.taken.notified().await;
            }
            self.full.set(false);
            buffer.reserve(READ_BYTES);
            match from.read_buf(&mut buffer).await {
                Ok(0) => return self.lose("the connection was closed"),
                Ok(_) => self.heard.set(Instant::now()),
                Err(error) => return self.lose(format!("the connection was lost: {error}")),
            }
        }
    }

    /// Writes until the end, last words included.
    pub(super) async fn write(self: Rc<Self>, mut to: impl AsyncWrite + Unpin) {
        loop {
            let bytes = std::mem::take(&mut *self.out.borrow_mut());
            if bytes.is_empty() {
                if self.is_lost() {
                    let _ = to.shutdown().await;
                    return;
                }
                self.to_write.notified().await;
                continue;
            }
            let written = async {
                to.write_all(&bytes).await?;
                to.flush().await
            };
            let given_up = async {
                self.ended().await;
                tokio::time::sleep(LAST_WORDS_MAX).await;
            };
            tokio::select! {
                written = written => if let Err(error) = written {
                    return self.lose(format!("the connection was lost: {error}"));
                },
                () = given_up => return,
            }
        }
    }

    /// Ends the connection if nothing is heard for `silence_max`; asks for a sign before.
    pub(super) async fn listen(self: Rc<Self>, silence_max: Duration) {
        while !self.is_lost() {
            tokio::time::sleep(silence_max / LOOKS).await;
            if self.heard.get().elapsed() > silence_max && !self.full.get() {
                return self.lose(format!("nothing was heard for {} s", silence_max.as_secs_f32()));
            }
            self.say(&self.scribe.alive(true));
        }
    }
}
