//! A connection with its consumer: how many messages may be here, what the queue's depth is, and how it ends.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use shards::clock::{Clock, Moment};

use super::address::Address;
use super::connect::{Connection, away, connect, refused};
use super::line::{Fault, Line, MESSAGES, REPLIES};
use super::shelf::Held;
use super::window::Window;
use super::wire::{Command, Map, Message, Place, Told, Value};
use crate::ingress::ReceiveError;

/// Fewer messages are no full page of a broker's (200 where its `maxPageSize` does not say).
const PAGE_LEAST: usize = 32;
/// How long the broker may take to say how much waits.
const DEPTH_MAX: Duration = Duration::from_secs(4);
/// A question about the depth that nobody answers goes away by itself.
const QUESTION_KEPT_MS: i64 = 10_000;
/// How long the broker may take to close a consumer.
const CLOSE_MAX: Duration = Duration::from_secs(4);
/// Messages that answer questions, at most, before they are read.
const REPLIES_WINDOW: u16 = 8;

/// Whether the broker can say how much waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Statistics {
    Unknown,
    Ready,
    Lacking,
}

/// A connection, consuming from its queue.
pub(super) struct Session {
    connection: Connection,
    queue: String,
    /// Receipts of other epochs are void.
    pub(super) epoch: u32,
    /// Its source has said that it connected.
    pub(super) announced: Cell<bool>,
    window: Cell<Window>,
    /// Messages that came since the broker was last told to look for more.
    came: Cell<usize>,
    statistics: Cell<Statistics>,
    reply_to: String,
}

impl Session {
    /// Connects to one of the brokers, `first` before the others, and consumes. Says which one it was.
    pub(super) async fn open(
        address: &Address,
        first: usize,
        [client, name]: [&str; 2],
        epoch: u32,
    ) -> Result<(Self, usize), ReceiveError> {
        let (connection, at) = connect(address, first, [client, name]).await?;
        let line = &connection.line;
        line.say(&line.scribe.session());
        line.say(&line.scribe.producer());
        let consumer = line.scribe.consumer(MESSAGES, Place::Queue(&address.queue), address.prefetch);
        line.ask(&consumer).await.map_err(|fault| match fault {
            Fault::Refused(why) => refused(address, &why),
            Fault::Lost(why) => away(address, why),
        })?;
        let statistics = if address.statistics { Statistics::Unknown } else { Statistics::Lacking };
        let session = Self {
            queue: address.queue.clone(),
            epoch,
            announced: Cell::new(false),
            window: Cell::new(Window::new(address.prefetch, Clock.now())),
            came: Cell::new(0),
            statistics: Cell::new(statistics),
            reply_to: format!("{name}:1"),
            connection,
        };
        Ok((session, at))
    }

    pub(super) const fn line(&self) -> &Rc<Line> {
        &self.connection.line
    }

    pub(super) fn is_lost(&self) -> bool {
        self.line().is_lost()
    }

    /// The message in a frame.
    pub(super) fn read<'a>(&self, frame: &'a [u8]) -> Result<Option<(Box<Message<'a>>, i32)>, String> {
        match Command::read(frame, self.line().scribe.version()) {
            Ok(Command::Dispatch { message: Some(message), redeliveries, .. }) => {
                let redeliveries = message.redeliveries.max(redeliveries);
                Ok(Some((message, redeliveries)))
            }
            Ok(_) => Ok(None),
            Err(error) => Err(format!("a message can't be read: {error}")),
        }
    }

    /// Acks of a message and of those that are the same.
    pub(super) fn acks(&self, held: &Held) -> impl Iterator<Item = Told> {
        let ack = |held: &Held| {
            let id = &held.frame[held.id_span.clone()];
            self.line().scribe.ack(MESSAGES, Place::Queue(&self.queue), id)
        };
        held.all().map(ack)
    }

    /// Lets the broker send as much as there is room for: `unsettled` messages are here, of so many bytes, and `room`
    /// more fit.
    pub(super) fn follow(&self, unsettled: (usize, usize), room: usize, now: Moment) {
        let mut window = self.window.get();
        let asked = window.follow(unsettled, room, now);
        self.window.set(window);
        if let Some(count) = asked {
            self.set_window(count);
        }
    }

    /// The next message that came.
    pub(super) fn take(&self) -> Option<Bytes> {
        let frame = self.line().take()?;
        self.came.set(self.came.get() + 1);
        Some(frame)
    }

    /// Nothing is here and there is room. A broker hands over a page of messages and then looks no further until something
    /// is sent or acked, however wide the window: while all calls are long that may be never. Asking for a window makes it
    /// look. Where few came since, it had no more.
    pub(super) fn ask_for_more(&self) {
        if self.came.get() >= PAGE_LEAST {
            self.came.set(0);
            self.set_window(self.window.get().now());
        }
    }

    /// The broker is to send nothing more.
    pub(super) fn shut_window(&self) {
        self.set_window(0);
    }

    fn set_window(&self, count: u16) {
        self.line().say(&self.line().scribe.window(MESSAGES, &self.queue, count));
    }

    /// Ends it: the broker takes back what is unsettled, in order, and does not count it as handed over. False if it did not
    /// answer: it may take this for a live one for a while.
    pub(super) async fn close(&self) -> bool {
        let line = self.line();
        line.flush_acks();
        let closed = tokio::time::timeout(CLOSE_MAX, line.ask(&line.scribe.close_consumer(MESSAGES))).await;
        if let Ok(Err(Fault::Refused(why))) = &closed {
            tracing::warn!(queue = self.queue, "the broker does not close the consumer: {}", why.text);
        }
        line.say(&line.scribe.shutdown());
        line.lose("the consumer was closed");
        matches!(closed, Ok(Ok(())))
    }

    /// Messages that wait and were handed to nobody; `None` = the broker does not say.
    pub(super) async fn depth(&self) -> Option<u64> {
        if self.statistics.get() == Statistics::Lacking || self.is_lost() {
            return None;
        }
        let asked = tokio::time::timeout(DEPTH_MAX, self.ask_depth()).await.unwrap_or_default();
        if asked.is_none() && self.statistics.get() == Statistics::Unknown && !self.is_lost() {
            self.statistics.set(Statistics::Lacking);
            tracing::info!(
                queue = self.queue,
                "the depth is not known: the broker has no statisticsBrokerPlugin, or it may not be asked"
            );
            // Without the plugin the question made a queue of that name.
            let question = self.question();
            let _ =
                tokio::time::timeout(DEPTH_MAX, self.line().ask(&self.line().scribe.delete_queue(&question)))
                    .await;
        }
        asked
    }

    fn question(&self) -> String {
        format!("ActiveMQ.Statistics.Destination.{}", self.queue)
    }

    fn forget_reply(&self, frame: &[u8]) {
        if let Ok(Some((message, _))) = self.read(frame) {
            let (line, place) = (self.line(), Place::Temporary(&self.reply_to));
            line.say(&line.scribe.ack(REPLIES, place, &frame[message.id_span]));
        }
    }

    async fn ask_depth(&self) -> Option<u64> {
        let line = self.line();
        if self.statistics.get() == Statistics::Unknown {
            let place = Place::Temporary(&self.reply_to);
            line.ask(&line.scribe.temporary_queue(&self.reply_to)).await.ok()?;
            line.ask(&line.scribe.consumer(REPLIES, place, REPLIES_WINDOW)).await.ok()?;
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()?;
        let now = i64::try_from(now.as_millis()).ok()?;
        let question = line.scribe.question(&self.question(), &self.reply_to, [now, now + QUESTION_KEPT_MS]);
        // Late answers to earlier questions are of no use.
        while let Some(frame) = line.take_reply() {
            self.forget_reply(&frame);
        }
        line.ask(&question).await.ok()?;
        let frame = line.reply().await?;
        self.forget_reply(&frame);
        let (message, _) = self.read(&frame).ok()??;
        self.statistics.set(Statistics::Ready);
        let map = Map::read(message.content.unwrap_or_default()).ok()?;
        let number = |name: &str| map.get(name).and_then(Value::number);
        let waiting = number("size")? - number("inflightCount").unwrap_or_default();
        Some(u64::try_from(waiting).unwrap_or_default())
    }
}
