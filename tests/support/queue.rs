//! A broker in memory for tests: holds messages by number, hands them over oldest first, takes back what is
//! nacked, and counts what it is told.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corelane::ingress::{Answer, Batch, Letter, ReceiveError, Scope, SetAside, Source};
use parking_lot::Mutex;
use shards::clock::Clock;
use shards::desk::{Arrival, Receipt, SourceSpec, Tell};
use shards::model::{DeadReason, Dispatch, NackReason, Ordering, Parcel, Parts};

/// Below what the smallest pool of these tests can hold: the first poll of a source asks for this many, whatever
/// the pools have room for, and what does not fit stays away for half a minute.
const BATCH_MAX: usize = 40;
/// A long poll's length: bounds how late a message is seen that was published meanwhile.
const POLL: Duration = Duration::from_millis(2);

/// A second of a nack's delay: shortened, so that no test waits half a minute for room.
const NACK_SECOND: Duration = Duration::from_millis(20);

/// A message as a test publishes it. Its number becomes its id.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) group: String,
    pub(crate) pool: String,
    pub(crate) target: String,
}

/// What the queue was told, in order of telling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Acked(u64),
    Nacked(u64, u32, NackReason),
    Dead(u64, DeadReason, u16),
}

#[derive(Default)]
struct State {
    messages: Vec<Message>,
    ready: BTreeSet<u64>,
    later: BTreeSet<(Instant, u64)>,
    /// Handed over and not settled.
    out: BTreeSet<u64>,
    told: Vec<Told>,
    acked: BTreeSet<u64>,
    dead: BTreeSet<u64>,
    faults: Vec<String>,
    /// What is nacked stays away.
    keeps: bool,
}

/// A handle on the queue, for the test and for the ingress.
#[derive(Clone)]
pub(crate) struct Queue {
    state: Arc<Mutex<State>>,
    ordering: Ordering,
}

impl Queue {
    pub(crate) fn new(ordering: Ordering) -> Self {
        Self { state: Arc::default(), ordering }
    }

    /// What is nacked is counted and not handed over again.
    pub(crate) fn keep_nacked(&self) {
        self.state.lock().keeps = true;
    }

    /// Publishes messages; returns the number of the first.
    pub(crate) fn publish(&self, messages: impl IntoIterator<Item = Message>) -> u64 {
        let mut state = self.state.lock();
        let first = state.messages.len() as u64;
        for message in messages {
            let number = state.messages.len() as u64;
            state.messages.push(message);
            state.ready.insert(number);
        }
        first
    }

    pub(crate) fn published(&self) -> usize {
        self.state.lock().messages.len()
    }

    pub(crate) fn acked(&self) -> usize {
        self.state.lock().acked.len()
    }

    pub(crate) fn told(&self) -> Vec<Told> {
        self.state.lock().told.clone()
    }

    pub(crate) fn told_count(&self) -> usize {
        self.state.lock().told.len()
    }

    pub(crate) fn out(&self) -> usize {
        self.state.lock().out.len()
    }

    /// Second acks, nacks after an ack, tells of messages that are not out: none of it may happen.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.state.lock().faults.clone()
    }

    fn take(&self, scope: Scope, max: usize) -> Vec<Arrival> {
        let mut state = self.state.lock();
        let now = Instant::now();
        while let Some(&(due, number)) = state.later.first()
            && due <= now
        {
            state.later.pop_first();
            state.ready.insert(number);
        }
        let mut batch = Vec::new();
        while batch.len() < max
            && let Some(number) = state.ready.pop_first()
        {
            state.out.insert(number);
            batch.push(arrival(&state.messages[index(number)], number, scope));
        }
        batch
    }

    fn tell(&self, number: u64, tell: &Tell) -> Option<Answer> {
        let mut state = self.state.lock();
        if !matches!(tell, Tell::Extend { .. }) && !state.out.remove(&number) {
            state.faults.push(format!("{number} is not out: {tell:?}"));
        }
        match *tell {
            // Its dead letter was told when it was set aside.
            Tell::Ack { ticket } if state.dead.remove(&number) => {
                ticket.map(|ticket| Answer::Closed { ticket, done: true })
            }
            Tell::Ack { ticket } => {
                if !state.acked.insert(number) {
                    state.faults.push(format!("{number} was acked twice"));
                }
                state.told.push(Told::Acked(number));
                ticket.map(|ticket| Answer::Closed { ticket, done: true })
            }
            Tell::Nack { delay_s, reason } => {
                state.told.push(Told::Nacked(number, delay_s, reason));
                if !state.keeps {
                    let due = Instant::now() + NACK_SECOND * delay_s;
                    state.later.insert((due, number));
                }
                None
            }
            Tell::Extend { ticket } => Some(Answer::Extended { ticket, done: true, sent: Clock.now() }),
            Tell::Answered { .. } => unreachable!("this source does not judge"),
            Tell::DeadLetter { .. } => unreachable!("a port sets dead letters aside and tells an ack"),
        }
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("a message's number")
}

fn arrival(message: &Message, number: u64, scope: Scope) -> Arrival {
    let parcel = Parcel::new(&Parts {
        id: &number.to_string(),
        group: &message.group,
        pool: &message.pool,
        target: &message.target,
        body: br#"{"test":true}"#,
        ..Parts::default()
    });
    Arrival {
        parcel: parcel.expect("a test's message is valid"),
        broker_id: scope.broker_id(&number.to_le_bytes()),
        receipt: Receipt { key: number, epoch: 0 },
        deliveries: 0,
        dispatch: Dispatch::BlockOnError,
        high_priority: false,
    }
}

impl Source for Queue {
    fn spec(&self) -> SourceSpec {
        SourceSpec {
            ordering: self.ordering,
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

    async fn receive(&self, scope: Scope, max: NonZeroUsize) -> Result<Batch, ReceiveError> {
        let batch = self.take(scope, max.get());
        if batch.is_empty() {
            tokio::time::sleep(POLL).await;
        }
        Ok(Batch { arrivals: batch, ..Batch::default() })
    }

    async fn settle(&self, tells: Vec<(Receipt, Tell)>) -> Vec<Answer> {
        tells.into_iter().filter_map(|(receipt, tell)| self.tell(receipt.key, &tell)).collect()
    }
}

impl SetAside for Queue {
    async fn set_aside(&self, letters: Vec<Letter>) -> std::io::Result<()> {
        let mut state = self.state.lock();
        for letter in letters {
            state.dead.insert(letter.key);
            state.told.push(Told::Dead(letter.key, letter.reason, letter.status));
        }
        Ok(())
    }
}
