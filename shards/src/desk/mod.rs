//! The desk: the ingress thread's brain. Takes batches from sources, dedupes, finds room, sends each
//! message to its group's shard, keeps leases, and tells sources what became of their messages.
//! Core: the ingress. Owns: the tracker, pool capacities, owed groups, delivered ids. No I/O, no clock.
//!
//! - D1, D2: see `track.rs`. N1: `capacity.rs`. O1: `owed.rs`.
//! - D3: a message is told to its source at most once per receipt as acked, and never nacked after that.
//! - D4: a receipt of another epoch than the source's is never used.
//! - D5: at idle nothing is held.
//! - D6: where the broker does not lock groups, nothing is asked for while older messages may be hidden from us, and an end
//!   meanwhile is not clean.

mod admit;
mod capacity;
mod completed;
mod lease;
mod look;
mod owed;
mod park;
mod settle;
mod source;
#[cfg(test)]
mod tests;
mod track;
mod tried;
mod twin;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;

pub use capacity::{DEFAULT_POOL, POOLS_MAX, PoolDesk};
pub use completed::Completed;
pub use owed::{Claim, OwedGroups};
pub use source::{Arrival, SourceSpec, Tell};
pub use track::{Entry, Newcomer, Receipt, Stage, Tracker};

use crate::clock::Moment;
use crate::model::{
    BatchId, Control, DeskTuning, Envelope, IdHash, IdHasher, LaneKey, Ordering, PoolId, PoolSpec, ShardId,
    SourceId, ToShard,
};
use crate::shard::PoolShared;
use capacity::Pools;
use source::HIDDEN_MAX;
use tried::Tried;

/// How long a source without leases is waited for where a lease would say.
pub const LEASE_ASSUMED: Duration = Duration::from_secs(30);
/// Pools that a source's recent messages went to: what decides whether to poll it.
const RECENT_POOLS: usize = 16;

/// Something an operator should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// `ROUTING`: no pool has this code; the message went to the default pool.
    Routing {
        /// The unknown code.
        code: String,
    },
    /// `QUEUE_FULL`: a pool's share of a batch went back.
    QueueFull {
        /// The pool's code.
        code: String,
        /// Messages that went back.
        count: u32,
    },
    /// `POOL_LIMIT`: there are too many pools.
    PoolLimit,
    /// A message that went back did not return in time; its group goes on without it.
    OwedExpired {
        /// Groups concerned.
        count: usize,
    },
    /// A lease could not be extended in time.
    LeaseLost {
        /// Whose.
        source: SourceId,
    },
    /// A broker is about to drop a message that was never tried; it is held instead.
    NearLimit {
        /// Whose.
        source: SourceId,
    },
}

/// What the desk wants done. Reused from turn to turn.
#[derive(Debug, Default)]
pub struct DeskEffects {
    /// To be pushed to shards, in this order.
    pub runs: Vec<(ShardId, ToShard)>,
    /// To be told to sources, in this order.
    pub tells: Vec<(SourceId, Receipt, Tell)>,
    /// For the log and the warnings list.
    pub warnings: Vec<Warning>,
}

#[derive(Debug)]
struct Source {
    spec: SourceSpec,
    epoch: u32,
    /// It was added after an unclean stop, and its broker does not lock groups.
    quarantined_at: Option<Moment>,
    /// What its broker handed over until then may never have come, and its broker does not lock groups.
    unheard_until: Option<Moment>,
    /// Nothing is asked for before then: older messages may still be hidden because of one of these.
    quiet_until: Moment,
    /// A lease was lost lately: take no more for a while.
    strained_until: Moment,
    recent: VecDeque<PoolId>,
    /// Nothing more is asked for; what is held is still told to it.
    retired: bool,
}

impl Source {
    /// Waits until what may be hidden can be seen again. A source without leases sees to that itself.
    fn be_quiet(&mut self) {
        let quarantine = self.quarantined_at.zip(self.spec.hidden_max());
        let unheard = self.unheard_until.zip(self.spec.lease);
        for (since, hidden) in quarantine.into_iter().chain(unheard) {
            self.quiet_until = self.quiet_until.max(since + hidden);
        }
    }

    /// Another process may be overtaken until then.
    fn hides_until(&self) -> Moment {
        let unheard = self.unheard_until.map(|until| until + self.spec.unheard_hidden());
        self.quiet_until.max(unheard.unwrap_or(Moment::ZERO))
    }
}

/// A group with messages here.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    held: u32,
    /// The batch in which a message of this group was last marked or turned away.
    last_of: BatchId,
    blocked_in: BatchId,
}

/// Wrong behaviour that can be switched on, to show that the simulator's oracle notices.
#[cfg(feature = "sim")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub struct Traps {
    /// Trap 1: a redelivery is nacked with its new receipt and the old one is kept.
    pub nack_redelivered: bool,
    /// Trap 2: leases are not extended.
    pub forget_leases: bool,
    /// Trap 10: a full pool is polled on and nacks without end.
    pub nack_as_backpressure: bool,
    /// Trap 13: polling starts at once after an unclean stop.
    pub no_quarantine: bool,
    /// Polling goes on at once after a lost answer.
    pub no_wait_for_unheard: bool,
}

/// The ingress state machine.
#[derive(Debug)]
pub struct Desk {
    tuning: DeskTuning,
    shards: u8,
    hasher: IdHasher,
    tracker: Tracker,
    completed: Completed,
    owed: OwedGroups,
    tried: Tried,
    parked: HashMap<IdHash, Envelope>,
    pools: Pools,
    sources: Vec<Source>,
    groups: HashMap<LaneKey, Group>,
    batch: BatchId,
    bytes: usize,
    default_used: u64,
    draining: bool,
    /// Time was up: all that was left went back, started or not.
    gave_back: bool,
    drain_from: Moment,
    /// Messages of pools that are gone may be hidden until then.
    hidden_until: Moment,
    /// When the first source came whose messages may be hidden since an unclean stop.
    unclean_at: Option<Moment>,
    next_look: Moment,
    #[cfg(feature = "sim")]
    traps: Traps,
}

impl Desk {
    /// A desk for `shards` shards.
    #[must_use]
    pub fn new(tuning: DeskTuning, shards: u8) -> Self {
        assert!(shards > 0, "an engine has at least one shard");
        Self {
            tuning,
            shards,
            hasher: IdHasher::new(tuning.hash_key),
            tracker: Tracker::new(),
            completed: Completed::new(tuning.completed_max),
            owed: OwedGroups::default(),
            tried: Tried::new(tuning.owed_max),
            parked: HashMap::new(),
            pools: Pools::default(),
            sources: Vec::new(),
            groups: HashMap::new(),
            batch: BatchId(0),
            bytes: 0,
            default_used: 0,
            draining: false,
            gave_back: false,
            drain_from: Moment::NEVER,
            hidden_until: Moment::ZERO,
            unclean_at: None,
            next_look: Moment::ZERO,
            #[cfg(feature = "sim")]
            traps: Traps::default(),
        }
    }

    /// Switches wrong behaviour on.
    #[cfg(feature = "sim")]
    pub const fn set_traps(&mut self, traps: Traps) {
        self.traps = traps;
    }

    /// Makes the ids that [`Arrival`]s carry.
    #[must_use]
    pub const fn hasher(&self) -> IdHasher {
        self.hasher
    }

    /// A new source. `unclean`: the process before ended without giving back what it held; where the broker does
    /// not lock groups, nothing is asked for until those leases and give-back delays have run out. They have run
    /// since the first such source came: one that replaces it does not wait anew.
    pub fn add_source(&mut self, spec: SourceSpec, unclean: bool, now: Moment) -> SourceId {
        let quarantined = unclean && spec.ordering == Ordering::Strict;
        #[cfg(feature = "sim")]
        let quarantined = quarantined && !self.traps.no_quarantine;
        let mut source = Source {
            spec,
            epoch: 0,
            quarantined_at: quarantined.then(|| *self.unclean_at.get_or_insert(now)),
            unheard_until: None,
            quiet_until: Moment::ZERO,
            strained_until: Moment::ZERO,
            recent: VecDeque::new(),
            retired: false,
        };
        source.be_quiet();
        self.sources.push(source);
        SourceId(u16::try_from(self.sources.len() - 1).expect("queues are far fewer than 65,536"))
    }

    /// Asks this source for nothing more. What it handed over is delivered and told to it as ever.
    pub fn retire_source(&mut self, source: SourceId) {
        self.sources[usize::from(source.0)].retired = true;
    }

    /// The source connected, perhaps anew: receipts of other epochs are void, and its broker may have said more.
    pub fn on_connected(&mut self, source: SourceId, epoch: u32, spec: SourceSpec) {
        let state = &mut self.sources[usize::from(source.0)];
        state.epoch = epoch;
        state.spec = spec;
        state.be_quiet();
    }

    /// What a consumer of this queue was handed over until `until` may never have come to it. Where the broker does not lock
    /// groups, nothing is asked for until it can be seen again, and a stop before that is not clean.
    pub fn on_unheard(&mut self, source: SourceId, until: Moment) {
        #[cfg(feature = "sim")]
        if self.traps.no_wait_for_unheard {
            return;
        }
        let state = &mut self.sources[usize::from(source.0)];
        if state.spec.ordering == Ordering::Strict {
            state.unheard_until = state.unheard_until.max(Some(until));
            state.be_quiet();
        }
    }

    /// Adds or changes a pool. False if there are too many.
    pub fn set_pool(&mut self, code: &[u8], spec: PoolSpec, now: Moment, out: &mut DeskEffects) -> bool {
        if let Some(id) = self.pools.find(code) {
            let Some(pool) = self.pools.get_mut(id) else { return false };
            if pool.draining > 0 {
                pool.successor = Some(spec);
                return true;
            }
            pool.spec = spec;
            pool.shared.permits.set_limit(spec.concurrency.get());
            pool.shared.rate.set_limit(spec.rate_per_minute.map(std::num::NonZero::get));
            self.tell_shards(out, || Control::PoolChanged { pool: id, spec });
            return true;
        }
        let shared = Arc::new(PoolShared::new(&spec, usize::from(self.shards), now));
        let Some(id) = self.pools.add(PoolDesk::new(code, spec, Arc::clone(&shared), now)) else {
            out.warnings.push(Warning::PoolLimit);
            return false;
        };
        self.tell_shards(out, || Control::PoolAdd { pool: id, spec, shared: Arc::clone(&shared) });
        true
    }

    /// Removes a pool: what has not started goes back, the rest finishes.
    pub fn remove_pool(&mut self, code: &[u8], now: Moment, out: &mut DeskEffects) {
        let Some(id) = self.pools.find(code) else { return };
        let shards = self.shards;
        let Some(pool) = self.pools.get_mut(id) else { return };
        pool.successor = None;
        if pool.draining == 0 {
            pool.draining = shards;
            let parked = self.parked.extract_if(|_, envelope| envelope.lane.pool == id);
            let parked: Vec<Envelope> = parked.map(|(_, envelope)| envelope).collect();
            self.give_back_parked(&parked, now, out);
            self.tell_shards(out, || Control::PoolDrain { pool: id });
        }
    }

    /// A shard has nothing of this pool any more.
    pub fn on_pool_drained(&mut self, id: PoolId, now: Moment, out: &mut DeskEffects) {
        let Some(pool) = self.pools.get_mut(id) else { return };
        pool.draining = pool.draining.saturating_sub(1);
        if pool.draining > 0 {
            return;
        }
        debug_assert_eq!(pool.held, 0, "a drained pool holds nothing");
        if let Some(spec) = pool.successor.take() {
            // The same pool to its groups: what they are owed still counts.
            let shared = Arc::new(PoolShared::new(&spec, usize::from(self.shards), now));
            pool.spec = spec;
            pool.shared = Arc::clone(&shared);
            self.tell_shards(out, || Control::PoolAdd { pool: id, spec, shared: Arc::clone(&shared) });
            return;
        }
        if self.owed.forget_pool(id) {
            let leases = (0..self.sources.len()).map(|at| self.sources[at].spec.lease.unwrap_or_default());
            self.hidden_until = now + leases.max().unwrap_or_default().max(HIDDEN_MAX);
        }
        for source in &mut self.sources {
            source.recent.retain(|&other| other != id);
        }
        self.pools.remove(id);
    }

    /// Ends: takes no more and asks for everything that has not started.
    pub fn drain(&mut self, now: Moment, out: &mut DeskEffects) {
        self.draining = true;
        self.drain_from = now;
        let parked: Vec<Envelope> = self.parked.drain().map(|(_, envelope)| envelope).collect();
        self.give_back_parked(&parked, now, out);
        self.tell_shards(out, || Control::Drain);
    }

    /// After a drain: true if all that went back can be seen again, so that another process may start at
    /// once. While some may be hidden (it went back before the drain and is not here again, its delay runs,
    /// or the wait after an unclean stop is not over), newer messages of its group would overtake it:
    /// the stop counts as unclean.
    #[must_use]
    pub fn is_clean(&self, now: Moment) -> bool {
        let waited = self.sources.iter().all(|source| source.hides_until() <= now);
        waited && self.hidden_until <= now && self.owed.are_all_due(self.drain_from, now)
    }

    /// How many messages to ask `source` for now; 0 = do not poll it.
    #[must_use]
    pub fn room(&self, source: SourceId, now: Moment) -> usize {
        let state = &self.sources[usize::from(source.0)];
        if self.draining || state.retired || now < state.quiet_until {
            return 0;
        }
        #[cfg(feature = "sim")]
        if self.traps.nack_as_backpressure {
            return state.spec.batch_max;
        }
        if now < state.strained_until {
            return 0;
        }
        // What is parked waits for older messages that are at their source: they must come in, though the
        // parked ones fill their pool.
        if !self.parked.is_empty() {
            return state.spec.batch_max;
        }
        if self.bytes >= self.tuning.memory_budget || self.owed.len() >= self.tuning.owed_max {
            return 0;
        }
        if state.recent.is_empty() {
            // Where they go is not known yet: as few as the smallest pool can hold.
            return state.spec.batch_max.min(PoolSpec::CAPACITY_MIN as usize);
        }
        let pools = state.recent.iter().filter_map(|&pool| self.pools.get(pool));
        let free: usize =
            pools.map(|pool| pool.wants(state.spec.lease, self.tuning.prefetch, now) as usize).sum();
        free.min(state.spec.batch_max)
    }

    /// Messages held.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.tracker.len()
    }

    /// Bytes of messages held.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Messages owed by sources.
    #[must_use]
    pub const fn owed(&self) -> usize {
        self.owed.len()
    }

    /// All pools, by id.
    pub fn pools(&self) -> impl Iterator<Item = (PoolId, &PoolDesk)> {
        self.pools.iter()
    }

    /// The tracker, to look at.
    #[must_use]
    pub const fn tracker(&self) -> &Tracker {
        &self.tracker
    }

    fn tell_shards(&self, out: &mut DeskEffects, mut control: impl FnMut() -> Control) {
        for shard in 0..self.shards {
            out.runs.push((ShardId(shard), ToShard::Control(Box::new(control()))));
        }
    }

    /// Groups are spread over shards by their hash.
    #[expect(clippy::cast_possible_truncation, reason = "below the number of shards")]
    const fn shard_of(&self, lane: LaneKey) -> ShardId {
        ShardId(((lane.hash as u128 * self.shards as u128) >> 64) as u8)
    }

    fn lease_of(&self, source: SourceId) -> Duration {
        self.sources[usize::from(source.0)].spec.lease.unwrap_or(LEASE_ASSUMED)
    }

    /// Is the receipt of the source's present connection?
    fn is_live(&self, source: SourceId, receipt: Receipt) -> bool {
        self.sources[usize::from(source.0)].epoch == receipt.epoch
    }
}
