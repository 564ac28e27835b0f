//! Made-up messages, by number, as fast as they are asked for or at a set pace: for benchmarks and the demo. Nothing
//! is stored: a message is its number, and so is its receipt.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use shards::clock::{Clock, Moment};
use shards::desk::{Arrival, Receipt, SourceSpec, Tell};
use shards::link::{Bell, Rx, Tx, ring};
use shards::model::{Dispatch, Parcel, ParcelError, Parts};

use crate::ingress::{Answer, Batch, Doorbell, Letter, ReceiveError, Scope, SetAside, Source};

/// Messages handed over at once.
const BATCH_MAX: usize = 1_024;
/// Messages that may be published and not yet received, at a set pace.
const PACED_SLOTS: usize = 1 << 16;

/// What the messages look like.
#[derive(Clone, Debug)]
pub struct Feed {
    /// Groups they are spread over.
    pub groups: u64,
    /// Share of the messages that goes to one group in a hundred, 0 to 1.
    pub skew: f64,
    /// URL each is posted to.
    pub target: String,
    /// Pool code.
    pub pool: String,
    /// Bytes of the body.
    pub body_bytes: usize,
    /// Ends after so many.
    pub limit: Option<u64>,
    /// Messages per second; `None` = as fast as they are asked for.
    pub pace: Option<u32>,
}

impl Feed {
    /// The group of a message: round-robin over the groups, but for the skewed share.
    #[must_use]
    pub fn group_of(&self, number: u64) -> u64 {
        if self.skew > 0.0 {
            let noise = mix(number);
            #[expect(clippy::cast_precision_loss, reason = "a share need not be exact")]
            let is_hot = (noise >> 11) as f64 / (1_u64 << 53) as f64 <= self.skew;
            if is_hot {
                return noise % (self.groups / 100).max(1);
            }
        }
        number % self.groups
    }
}

/// What became of the messages. Shared with the thread that reports.
#[derive(Debug)]
pub struct Tally {
    /// Delivered.
    pub acked: AtomicU64,
    /// Given back.
    pub nacked: AtomicU64,
    /// Set aside.
    pub dead: AtomicU64,
    /// From published to acked, in microseconds; only at a set pace.
    pub latency_us: Mutex<Histogram<u64>>,
    stop: AtomicBool,
}

impl Tally {
    /// All zero.
    ///
    /// # Panics
    /// Never: the histogram's bounds are constants.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let latency = Histogram::new_with_bounds(1, 60_000_000, 3).expect("valid bounds");
        Arc::new(Self {
            acked: AtomicU64::new(0),
            nacked: AtomicU64::new(0),
            dead: AtomicU64::new(0),
            latency_us: Mutex::new(latency),
            stop: AtomicBool::new(false),
        })
    }

    /// Ends the feed.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The feed was ended.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A dead-letter store that only counts.
pub struct Counted(pub Arc<Tally>);

impl SetAside for Counted {
    async fn set_aside(&self, letters: Vec<Letter>) -> std::io::Result<()> {
        self.0.dead.fetch_add(letters.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// The in-memory source.
pub struct FeedQueue {
    feed: Feed,
    tally: Arc<Tally>,
    body: Vec<u8>,
    next: Cell<u64>,
    /// Given back: due then.
    back: RefCell<BinaryHeap<Reverse<(Moment, u64)>>>,
    paced: Option<Paced>,
}

/// A publisher on a thread of its own.
struct Paced {
    published: RefCell<Rx<(u64, Moment)>>,
    /// When each message was published, by number modulo the ring's size.
    moments: RefCell<Vec<Moment>>,
    bell: Arc<Bell>,
    rung: Doorbell,
}

impl FeedQueue {
    /// A queue that makes its messages from `feed`.
    ///
    /// # Errors
    /// The feed's target or pool can't be in a message.
    pub fn new(feed: Feed, tally: Arc<Tally>) -> Result<Self, ParcelError> {
        let body = body_of(feed.body_bytes);
        let queue = Self { feed, tally, body, next: Cell::new(0), back: RefCell::default(), paced: None };
        queue.make(0)?;
        Ok(queue)
    }

    /// Starts the publisher, if the feed has a pace. Inside the ingress thread's runtime.
    fn start_publisher(&mut self) -> std::io::Result<()> {
        let Some(pace) = self.feed.pace else { return Ok(()) };
        let bell = Arc::new(Bell::new().map_err(std::io::Error::other)?);
        let (tx, rx) = ring(PACED_SLOTS, Arc::clone(&bell));
        let tally = Arc::clone(&self.tally);
        let limit = self.feed.limit.unwrap_or(u64::MAX);
        std::thread::Builder::new()
            .name("publisher".into())
            .spawn(move || publish(tx, pace, limit, &tally))?;
        self.paced = Some(Paced {
            published: RefCell::new(rx),
            moments: RefCell::new(vec![Moment::ZERO; PACED_SLOTS * 4]),
            rung: Doorbell::new(Arc::clone(&bell))?,
            bell,
        });
        Ok(())
    }

    fn make(&self, number: u64) -> Result<Parcel, ParcelError> {
        let (mut id, mut group) = ([0_u8; 24], [0_u8; 24]);
        let id = decimal(&mut id, number);
        let group = decimal(&mut group, self.feed.group_of(number));
        Parcel::new(&Parts {
            id,
            group,
            pool: &self.feed.pool,
            target: &self.feed.target,
            token: "",
            content_type: "",
            body: &self.body,
        })
    }

    fn arrival(&self, number: u64, scope: Scope) -> Arrival {
        let parcel = self.make(number).expect("the same fields were checked at the start");
        Arrival {
            parcel,
            broker_id: scope.broker_id(&number.to_le_bytes()),
            receipt: Receipt { key: number, epoch: 0 },
            deliveries: 0,
            dispatch: Dispatch::BlockOnError,
            high_priority: false,
        }
    }

    fn take_back(&self, max: usize, mut take: impl FnMut(u64)) -> usize {
        let mut back = self.back.borrow_mut();
        let mut taken = 0;
        while taken < max && back.peek().is_some_and(|Reverse((due, _))| *due <= Clock.now()) {
            if let Some(Reverse((_, number))) = back.pop() {
                take(number);
                taken += 1;
            }
        }
        taken
    }

    fn has_ended(&self) -> bool {
        let made = self.feed.limit.is_some_and(|limit| self.next.get() >= limit);
        made || self.tally.stop.load(Ordering::Relaxed)
    }
}

impl Source for FeedQueue {
    fn spec(&self) -> SourceSpec {
        SourceSpec {
            ordering: shards::model::Ordering::Strict,
            lease: None,
            unheard_max: Duration::ZERO,
            attempts_max: 0,
            deliveries_max: None,
            repeats: false,
            judges: false,
            holds_permits: false,
            batch_max: BATCH_MAX,
        }
    }

    fn open(&mut self, _unclean: bool) -> std::io::Result<()> {
        self.start_publisher()
    }

    async fn receive(&self, scope: Scope, max: NonZeroUsize) -> Result<Batch, ReceiveError> {
        let mut batch = Vec::with_capacity(max.get());
        loop {
            self.take_back(max.get(), |number| batch.push(self.arrival(number, scope)));
            if let Some(paced) = &self.paced {
                let mut published = paced.published.borrow_mut();
                let mut moments = paced.moments.borrow_mut();
                while batch.len() < max.get()
                    && let Some((number, at)) = published.pop()
                {
                    let slot = slot_of(number, moments.len());
                    moments[slot] = at;
                    batch.push(self.arrival(number, scope));
                }
            } else {
                while batch.len() < max.get() && !self.has_ended() {
                    let number = self.next.replace(self.next.get() + 1);
                    batch.push(self.arrival(number, scope));
                }
            }
            if !batch.is_empty() {
                return Ok(Batch { arrivals: batch, ..Batch::default() });
            }
            if self.tally.stop.load(Ordering::Relaxed) {
                return Err(ReceiveError::Ended);
            }
            self.wait_for_more().await;
        }
    }

    async fn settle(&self, tells: Vec<(Receipt, Tell)>) -> Vec<Answer> {
        let now = Clock.now();
        let mut answers = Vec::with_capacity(tells.len());
        let mut latency = self.paced.as_ref().map(|_| self.tally.latency_us.lock());
        let (mut acked, mut nacked) = (0, 0);
        for (receipt, tell) in tells {
            match tell {
                Tell::Ack { ticket } => {
                    acked += 1;
                    if let (Some(latency), Some(paced)) = (&mut latency, &self.paced) {
                        let moments = paced.moments.borrow();
                        let since = moments[slot_of(receipt.key, moments.len())];
                        latency.saturating_record(
                            u64::try_from(now.since(since).as_micros()).unwrap_or(u64::MAX),
                        );
                    }
                    answers.extend(ticket.map(|ticket| Answer::Closed { ticket, done: true }));
                }
                Tell::Answered { .. } => unreachable!("this source does not judge"),
                Tell::DeadLetter { .. } => unreachable!("a port sets dead letters aside and tells an ack"),
                Tell::Nack { delay_s, .. } => {
                    nacked += 1;
                    let due = now + Duration::from_secs(u64::from(delay_s));
                    self.back.borrow_mut().push(Reverse((due, receipt.key)));
                }
                Tell::Extend { ticket } => answers.push(Answer::Extended { ticket, done: true, sent: now }),
            }
        }
        self.tally.acked.fetch_add(acked, Ordering::Relaxed);
        self.tally.nacked.fetch_add(nacked, Ordering::Relaxed);
        answers
    }
}

impl FeedQueue {
    async fn wait_for_more(&self) {
        let nap = tokio::time::sleep(Duration::from_millis(10));
        let Some(paced) = &self.paced else { return nap.await };
        if !paced.bell.flag().try_sleep(|| !paced.published.borrow().is_empty()) {
            return;
        }
        tokio::select! {
            () = paced.rung.rung() => {}
            () = nap => {}
        }
        paced.bell.flag().wake();
    }
}

/// Publishes at a pace, a message at a time, as a steady producer does.
fn publish(mut tx: Tx<(u64, Moment)>, pace: u32, limit: u64, tally: &Tally) {
    let start = Clock.now();
    let gap = Duration::from_secs(1) / pace.max(1);
    let mut number = 0;
    while number < limit && !tally.stop.load(Ordering::Relaxed) && !tx.is_closed() {
        let due = start
            + Duration::from_nanos(u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX).saturating_mul(number));
        let now = Clock.now();
        if now < due {
            std::thread::sleep(due.since(now));
            continue;
        }
        if tx.push((number, now)).is_ok() {
            number += 1;
            tx.ring_if_dirty();
        } else {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

fn slot_of(number: u64, slots: usize) -> usize {
    usize::try_from(number).unwrap_or(0) % slots
}

/// `{"messageId":"…"}`, filled up to the wanted size.
fn body_of(bytes: usize) -> Vec<u8> {
    let shell = r#"{"messageId":"","filler":""}"#.len();
    let filler = "x".repeat(bytes.saturating_sub(shell));
    format!(r#"{{"messageId":"","filler":"{filler}"}}"#).into_bytes()
}

/// A number as text, without the formatting machinery: this runs once or twice per message.
fn decimal(buffer: &mut [u8; 24], number: u64) -> &str {
    let mut at = buffer.len();
    let mut rest = number;
    loop {
        at -= 1;
        buffer[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    std::str::from_utf8(&buffer[at..]).unwrap_or("0")
}

/// Spreads a number's bits.
const fn mix(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
