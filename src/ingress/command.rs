//! What the control thread asks of the ingress, and what it gets to see.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;
use shards::desk::Warning;
use shards::meter::ShardSnapshot;
use shards::model::{DeadReason, NackReason, Notice, Ordering, PoolSpec, SourceId};

use super::ask::{Found, Question};

/// Makes a source on the ingress thread, which it never leaves.
pub type MakeSource<S> = Box<dyn FnOnce() -> io::Result<S> + Send>;

/// A command. Ring the ingress's bell after sending one.
pub enum Command<S> {
    /// Adds or changes a pool.
    SetPool {
        /// Its code.
        code: String,
        /// Its settings.
        spec: PoolSpec,
    },
    /// Drains and removes a pool.
    RemovePool {
        /// Its code.
        code: String,
    },
    /// Adds a consumer of a queue. Consumers of one queue know each other's messages.
    AddSource {
        /// The queue's name.
        queue: String,
        /// Where the queue is. A queue of the same name elsewhere is another one: its messages are not the same.
        place: String,
        /// Makes it.
        make: MakeSource<S>,
        /// How its predecessor ended: see [`shards::desk::Desk::add_source`].
        unclean: bool,
        /// Told its id, or why there is none.
        reply: flume::Sender<io::Result<SourceId>>,
    },
    /// Receives no more from a consumer; it goes when all it handed over is settled.
    RetireSource {
        /// Which.
        source: SourceId,
    },
    /// Wants to see everything.
    Snapshot(flume::Sender<IngressSnapshot>),
    /// Wants to know about messages or groups.
    Ask(Question, flume::Sender<Found>),
    /// Takes no more, gives back what has not started, lets calls finish for so long, then ends.
    Drain {
        /// How long calls may go on.
        calls_wait: Duration,
    },
}

/// How the ingress ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Everything that was held is back where another process sees it at once.
    pub clean: bool,
    /// Messages that were still held when time was up.
    pub left: usize,
}

/// A look at the whole engine.
#[derive(Clone, Debug, Default)]
pub struct IngressSnapshot {
    /// Every shard's.
    pub shards: Vec<ShardSnapshot>,
    /// Every pool's.
    pub pools: Vec<PoolLook>,
    /// Every consumer's, those that are leaving too.
    pub sources: Vec<SourceLook>,
    /// What consumers that are gone have counted, by queue.
    pub gone: BTreeMap<String, SourceCounts>,
    /// Messages held.
    pub held: usize,
    /// Of those, chained to another with the same sender's id.
    pub twins: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Messages that sources owe.
    pub owed: usize,
    /// Messages whose pool was unknown.
    pub default_used: u64,
    /// Least time left of any lease that comes up next.
    pub lease_slack: Option<Duration>,
    /// Envelopes in the ring to each shard.
    pub rings: Vec<usize>,
    /// What the desk warned of since the last look.
    pub warnings: Vec<Warning>,
    /// What shards noticed since the last look.
    pub notices: Vec<Notice>,
}

impl IngressSnapshot {
    /// Latency of the calls that ended since an earlier look, in microseconds.
    #[must_use]
    pub fn latency_since(&self, before: &Self) -> Histogram<u64> {
        let mut all = Histogram::new_with_bounds(1, 60_000_000, 2).expect("valid bounds");
        for histogram in self.shards.iter().filter_map(|shard| shard.call_us.as_ref()) {
            let _ = all.add(histogram);
        }
        for histogram in before.shards.iter().filter_map(|shard| shard.call_us.as_ref()) {
            let _ = all.subtract(histogram);
        }
        all
    }
}

/// A pool as the desk sees it.
#[derive(Clone, Debug)]
pub struct PoolLook {
    /// Its place in the desk's table: what shards call it.
    pub id: shards::model::PoolId,
    /// Its code.
    pub code: String,
    /// Its settings.
    pub spec: PoolSpec,
    /// Messages held for it.
    pub held: u32,
    /// It is being removed.
    pub draining: bool,
    /// Permits in use.
    pub permits_used: u16,
    /// Messages given back, by [`NackReason::ALL`].
    pub nacked: [u64; NackReason::ALL.len()],
}

/// A consumer.
#[derive(Clone, Debug)]
pub struct SourceLook {
    /// Which.
    pub id: SourceId,
    /// Its queue.
    pub queue: String,
    /// How it keeps groups in order.
    pub ordering: Ordering,
    /// It is leaving.
    pub retired: bool,
    /// Nothing is asked for just now, because there is no room for it.
    pub paused: bool,
    /// Time since it last answered a receive; since it was added if never.
    pub since_poll: Duration,
    /// Why the last receive failed, if it did.
    pub error: Option<String>,
    /// It stopped for good.
    pub stopped: bool,
    /// Counters.
    pub counts: SourceCounts,
    /// Messages that wait at the broker, where it can say.
    pub depth: Option<u64>,
}

/// A consumer's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Messages received.
    pub received: u64,
    /// Of those, unreadable.
    pub unreadable: u64,
    /// Acks told.
    pub acked: u64,
    /// Nacks told.
    pub nacked: u64,
    /// Lease extensions told.
    pub extended: u64,
    /// Messages set aside, by [`DeadReason::ALL`].
    pub set_aside: [u64; DeadReason::ALL.len()],
    /// Messages that the dead-letter store did not take.
    pub not_set_aside: u64,
    /// Acks that failed.
    pub acks_failed: u64,
}

impl SourceCounts {
    /// Adds another's counts.
    pub fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.unreadable += other.unreadable;
        self.acked += other.acked;
        self.nacked += other.nacked;
        self.extended += other.extended;
        for (sum, count) in self.set_aside.iter_mut().zip(other.set_aside) {
            *sum += count;
        }
        self.not_set_aside += other.not_set_aside;
        self.acks_failed += other.acks_failed;
    }
}
