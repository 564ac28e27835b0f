//! A connection to a consumer: pulls, confirmations, and news of messages that the server gave up.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::RawMessageErrorKind;
use async_nats::{Message, Subject, Subscriber};
use bytes::Bytes;
use futures_lite::Stream;
use shards::clock::{Clock, Moment};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::address::Address;
use super::connect::{ask, away, bind};
use super::ledger::{Lasts, Ledger};
use super::line::{Line, line};
use super::returned::Returned;
use super::wire::{self, Consumer, GivenUp, Status};
use crate::ingress::ReceiveError;

/// How long a pull waits for a first message. A drain waits for it, and idle it costs one request each time.
pub(super) const EXPIRES: Duration = Duration::from_secs(1);
/// A pull that says nothing this long after it should have ended is stuck, and its connection with it.
const STUCK_AFTER: Duration = Duration::from_secs(4);
/// A server ends a pull a little late, and its clock starts later than ours.
const LATE: Duration = Duration::from_millis(250);
/// What the server has comes at once. Longer than this, and it holds messages back (`max_ack_pending`): those that
/// are here must be worked on, or they would wait for one another.
const LINGER: Duration = Duration::from_millis(10);
/// Most bytes of one pull, so that a batch of large messages does not burst the memory budget.
const PULL_BYTES: usize = 32 << 20;
/// Subject, headers and framing of a message count as well.
const FRAME_BYTES: usize = 64 << 10;
/// How long the depth may take; the next look is in a few seconds.
const DEPTH_MAX: Duration = Duration::from_secs(2);

/// A request for messages that the server may still answer.
#[derive(Clone, Copy, Debug)]
struct Pull {
    number: u64,
    left: usize,
    /// The server has ended it by then.
    until: Moment,
}

/// What came of waiting.
enum Heard {
    Message(Message),
    Silence,
    Gone,
}

/// What a pull brought.
pub(super) enum Pulled {
    /// Messages, perhaps none.
    Messages,
    /// Messages, perhaps none; and the connection is of no use any more.
    Broken(String),
}

/// A connection, bound to its consumer.
pub(super) struct Session {
    line: Rc<Line>,
    /// The consumer as it was when we connected.
    pub(super) consumer: Consumer,
    /// Its source has said that it connected.
    pub(super) announced: Cell<bool>,
    /// Messages that may have come back while no one received, and are to be collected first.
    pub(super) back: Cell<usize>,
    pub(super) returned: RefCell<Returned>,
    pub(super) stream: String,
    name: String,
    next: Subject,
    inbox: String,
    messages: RefCell<Subscriber>,
    ledger: Rc<Ledger>,
    /// Reads the answers.
    answers: JoinHandle<()>,
    /// Held while words are sent.
    telling: Mutex<()>,
    /// What the server gave up; `None` = that is another's to hear.
    news: RefCell<Option<Subscriber>>,
    pull: Cell<Option<Pull>>,
    pulls: Cell<u64>,
}

impl Session {
    /// Connects and binds. `settled_at`: nothing that a lost connection asked for is handed over after that.
    pub(super) async fn open(
        address: &Address,
        lease: Duration,
        settled_at: Moment,
    ) -> Result<Self, ReceiveError> {
        let line = line(address).await?;
        let Line { client, signs, .. } = &*line;
        tokio::time::sleep(settled_at.since(Clock.now())).await;
        let consumer = bind(client, signs, address, lease).await?;
        let inbox = client.new_inbox();
        let Address { stream, consumer: name, .. } = address;
        let news = format!("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{stream}.{name}");
        let gone = |error| away(address, error);
        let messages = client.subscribe(format!("{inbox}.pull.*")).await.map_err(gone)?;
        let answers = client.subscribe(format!("{inbox}.told.*")).await.map_err(gone)?;
        let ledger = Rc::<Ledger>::default();
        // Of several routers one hears of each.
        let news = client.queue_subscribe(news, format!("corelane-{name}")).await.map_err(gone)?;
        Ok(Self {
            next: format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}").into(),
            stream: stream.clone(),
            name: name.clone(),
            announced: Cell::new(false),
            back: Cell::new(0),
            returned: RefCell::default(),
            messages: RefCell::new(messages),
            answers: tokio::task::spawn_local(read_answers(answers, Rc::clone(&ledger))),
            telling: Mutex::new(()),
            ledger,
            news: RefCell::new(Some(news)),
            pull: Cell::new(None),
            pulls: Cell::new(0),
            consumer,
            inbox,
            line,
        })
    }

    pub(super) fn is_lost(&self) -> bool {
        self.line.is_lost()
    }

    /// It is of no use; neither is its connection to those who come.
    pub(super) fn wear(&self) {
        self.line.wear();
    }

    /// Until when the server may hand over what was asked for.
    pub(super) fn pull_until(&self) -> Option<Moment> {
        self.pull.get().map(|pull| pull.until)
    }

    async fn hear(&self, from: &RefCell<Subscriber>, wait: Duration) -> Heard {
        // Most are here already: no timer for those.
        if let Poll::Ready(message) = poll(from, &mut Context::from_waker(Waker::noop())) {
            return message.map_or(Heard::Gone, Heard::Message);
        }
        let mut signs = self.line.signs.clone();
        tokio::select! {
            biased;
            message = poll_fn(|context| poll(from, context)) => message.map_or(Heard::Gone, Heard::Message),
            _ = signs.wait_for(|signs| signs.lost) => Heard::Gone,
            () = tokio::time::sleep(wait) => Heard::Silence,
        }
    }

    /// Asks for up to `max` messages, or goes on with what was asked for before; hands each to `take`. Comes back with
    /// what there is, or with nothing after [`EXPIRES`]. Not to be cancelled.
    pub(super) async fn pull(&self, max: usize, mut take: impl FnMut(Message)) -> Pulled {
        let mut taken = 0;
        loop {
            let carried = self.pull.get();
            let Some(pull) = (match carried {
                Some(pull) => Some(pull),
                None => self.start_pull(max).await,
            }) else {
                return Pulled::Broken("the connection was lost".into());
            };
            let ended = self.read_pull(pull, max, &mut taken, &mut take).await;
            // One that was begun earlier and brought nothing: ask anew.
            match ended {
                Ok(()) if taken == 0 && carried.is_some() && self.pull.get().is_none() => {}
                Ok(()) => return Pulled::Messages,
                Err(why) => return Pulled::Broken(why),
            }
        }
    }

    async fn start_pull(&self, max: usize) -> Option<Pull> {
        let config = &self.consumer.config;
        let expires = config.expires_max(EXPIRES);
        let largest = self.line.client.max_payload() + FRAME_BYTES;
        let body = wire::pull(max, expires, config.bytes_max(PULL_BYTES.max(largest)));
        let number = self.pulls.replace(self.pulls.get() + 1);
        let pull = Pull { number, left: max, until: Clock.now() + expires + LATE };
        self.pull.set(Some(pull));
        let reply = Subject::from(format!("{}.pull.{number}", self.inbox));
        self.line.client.publish_with_reply(self.next.clone(), reply, body).await.ok()?;
        Some(pull)
    }

    /// Reads until the pull ends, enough came, or the server has no more for now.
    async fn read_pull(
        &self,
        mut pull: Pull,
        max: usize,
        taken: &mut usize,
        take: &mut impl FnMut(Message),
    ) -> Result<(), String> {
        while *taken < max {
            let wait = if *taken > 0 { LINGER } else { pull.until.since(Clock.now()) + STUCK_AFTER };
            let message = match self.hear(&self.messages, wait).await {
                Heard::Message(message) => message,
                Heard::Silence if *taken > 0 => return Ok(()),
                Heard::Silence => return Err("a pull was not answered: the consumer is stuck".into()),
                Heard::Gone => return Err("the connection was lost".into()),
            };
            let Some(code) = message.status else {
                *taken += 1;
                pull.left = pull.left.saturating_sub(1);
                self.pull.set((pull.left > 0).then_some(pull));
                take(message);
                if pull.left == 0 {
                    return Ok(());
                }
                continue;
            };
            if number_of(&message.subject) != Some(pull.number) {
                continue; // The end of a pull that was full.
            }
            let code: u16 = code.as_u16();
            match wire::status(code, message.description.as_deref().unwrap_or_default()) {
                Status::Alive => continue,
                Status::TooLarge if *taken == 0 => {
                    return Err("the next message is larger than the consumer's max_bytes: raise it".into());
                }
                Status::Over | Status::TooLarge => self.pull.set(None),
                Status::Broken(why) => return Err(why),
            }
            return Ok(());
        }
        Ok(())
    }

    /// What the server handed over and no one took, once it hands over no more.
    pub(super) async fn leftovers(&self) -> Vec<Message> {
        let mut left = Vec::new();
        while let Some(pull) = self.pull.get() {
            let mut take = |message| left.push(message);
            if self.read_pull(pull, pull.left, &mut 0, &mut take).await.is_err() {
                break;
            }
        }
        left
    }

    /// Tells the server what became of messages, all at once, and waits until it has answered. `true`: it has taken it.
    /// The server works a consumer's words off in order, so the last is asked about and stands for those before it: the
    /// last ack and the last of the rest, because a cluster keeps acks by another way. Several may be under way; they are
    /// told in the order in which they began.
    pub(super) async fn tell(&self, words: Vec<(Subject, Bytes)>, until: Instant) -> Vec<bool> {
        let lasts = Lasts::of(words.iter().map(|(_, word)| *word == wire::ACK));
        let one_after_another = self.telling.lock().await;
        let (turn, first) = self.ledger.open(lasts.count());
        let (mut sent, mut number) = (true, first);
        for (at, (subject, word)) in words.into_iter().enumerate() {
            let told = if lasts.is_asked_about(at) {
                let reply = Subject::from(format!("{}.told.{number}", self.inbox));
                number += 1;
                self.line.client.publish_with_reply(subject, reply, word).await
            } else {
                self.line.client.publish(subject, word).await
            };
            sent &= told.is_ok();
        }
        drop(one_after_another);
        let mut signs = self.line.signs.clone();
        tokio::select! {
            biased;
            () = turn.answered(), if sent => {}
            _ = signs.wait_for(|signs| signs.lost) => {}
            () = tokio::time::sleep_until(until) => {}
        }
        let answers = self.ledger.close(&turn);
        lasts.taken(if sent { &answers } else { &[] })
    }

    /// Messages that wait; `None` = the server does not say.
    pub(super) async fn depth(&self) -> Option<u64> {
        let what = format!("CONSUMER.INFO.{}.{}", self.stream, self.name);
        let asked = ask(&self.line.client, &self.line.signs, what, Bytes::new());
        let answer = tokio::time::timeout(DEPTH_MAX, asked).await.ok()?.ok()?;
        Some(answer.num_pending)
    }

    /// A message that the server gave up since the last call. Does not wait.
    pub(super) fn given_up(&self) -> Option<GivenUp> {
        let mut context = Context::from_waker(Waker::noop());
        let mut news = self.news.borrow_mut();
        let Poll::Ready(Some(news)) = Pin::new(news.as_mut()?).poll_next(&mut context) else { return None };
        match serde_json::from_slice(&news.payload) {
            Ok(given_up) => Some(given_up),
            Err(error) => {
                tracing::warn!(stream = self.stream, %error, "an advisory of JetStream can't be read");
                None
            }
        }
    }

    /// Hears no more of what the server gives up, so that another consumer does.
    pub(super) fn stop_listening(&self) {
        self.news.take();
    }

    /// A message by its place in the stream; `Ok(None)` = it is not there any more.
    pub(super) async fn stored(&self, stream_seq: u64) -> Result<Option<StreamMessage>, String> {
        let jetstream = async_nats::jetstream::new(self.line.client.clone());
        let stream = jetstream.get_stream_no_info(&self.stream).await.map_err(|error| error.to_string())?;
        match stream.get_raw_message(stream_seq).await {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for Session {
    /// Its subscription would keep the connection open.
    fn drop(&mut self) {
        self.answers.abort();
    }
}

async fn read_answers(answers: Subscriber, ledger: Rc<Ledger>) {
    let answers = RefCell::new(answers);
    while let Some(answer) = poll_fn(|context| poll(&answers, context)).await {
        if let Some(number) = number_of(&answer.subject) {
            // A status means that no one took it: the consumer is gone.
            ledger.answer(number, answer.status.is_none());
        }
    }
}

fn poll(from: &RefCell<Subscriber>, context: &mut Context<'_>) -> Poll<Option<Message>> {
    Pin::new(&mut *from.borrow_mut()).poll_next(context)
}

/// The number at the end of one of our inboxes.
fn number_of(subject: &str) -> Option<u64> {
    subject.rsplit('.').next()?.parse().ok()
}
