//! What a seed stands for: shards, sources, pools, groups and messages, drawn once before the run.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use super::rng::Rng;
use crate::clock::Moment;
use crate::desk::SourceSpec;
use crate::model::{BreakerScope, DeskTuning, Dispatch, Ordering, PoolSpec, ShardTuning};

/// No group, no track.
pub(super) const NONE: u32 = u32::MAX;

/// How a simulated broker behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Leases, and nothing more of a group while any of it is out or delayed: SQS FIFO, our SQLite queue.
    Locking,
    /// Leases, no locks: SQS standard, NATS.
    Leasing,
    /// No lease: a message is ours while the connection lives. RabbitMQ.
    Connected,
}

/// What a broker does with a receipt that is not the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stale {
    /// It says no.
    Refused,
    /// It says yes and does nothing (SQS).
    Pretended,
    /// It does as told (NATS).
    Honoured,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SourcePlan {
    pub(super) kind: Kind,
    pub(super) stale: Stale,
    /// What the desk is told.
    pub(super) spec: SourceSpec,
}

#[derive(Clone, Debug)]
pub(super) struct PoolPlan {
    pub(super) code: String,
    pub(super) spec: PoolSpec,
    /// Not configured at the start.
    pub(super) absent: bool,
}

/// A message before it is published.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draft {
    pub(super) source: u16,
    pub(super) pool: u16,
    /// [`NONE`] = no group.
    pub(super) group: u32,
    /// Where its order is checked: one number per (source, pool, group); [`NONE`] = nowhere.
    pub(super) track: u32,
    /// The number that its sender's id is made of; a twin has the number of its first.
    pub(super) app: u32,
    pub(super) target: u8,
    pub(super) body_bytes: u16,
    pub(super) dispatch: Dispatch,
    pub(super) high_priority: bool,
    pub(super) at: Moment,
}

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) shards: u8,
    /// Slots of the rings to and from each shard.
    pub(super) ring_slots: (usize, usize),
    pub(super) sources: Vec<SourcePlan>,
    pub(super) pools: Vec<PoolPlan>,
    pub(super) groups: u32,
    pub(super) drafts: Vec<Draft>,
    /// Messages of each track, in publish order.
    pub(super) tracks: Vec<Vec<u32>>,
    pub(super) desk: DeskTuning,
    pub(super) shard: ShardTuning,
    pub(super) targets: u8,
    /// A call's usual time, in microseconds.
    pub(super) call_us: (u64, u64),
    /// Nothing goes wrong from then on.
    pub(super) calm_from: Moment,
}

/// Messages of one run.
const MESSAGES: (u64, u64) = (2_400, 2_900);

impl Plan {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let calm_from = Moment::ZERO + Duration::from_secs(rng.range(40, 240));
        let sources: Vec<_> = (0..rng.range(1, 3)).map(|_| draw_source(rng)).collect();
        let pools: Vec<_> = (0..rng.range(1, 4)).map(|n| draw_pool(n, rng)).collect();
        let groups = u32::try_from(rng.pick(&[3, 20, 200, 1_000])).unwrap_or(1);
        let fast = rng.range(500, 20_000);
        let mut desk = DeskTuning::default();
        if rng.chance(300_000) {
            desk.memory_budget = usize::try_from(rng.range(8_000, 200_000)).unwrap_or(8_000);
        }
        if rng.chance(300_000) {
            desk.group_buffer_max = u32::try_from(rng.range(4, 40)).ok();
        }
        if rng.chance(100_000) {
            desk.hold_max = Duration::from_secs(rng.range(40, 120));
        }
        let mut shard = ShardTuning::default();
        if rng.chance(100_000) {
            shard.breaker_scope = BreakerScope::Global;
        }
        if rng.chance(200_000) {
            shard.starts_per_turn = u32::try_from(rng.range(1, 8)).unwrap_or(1);
        }
        let slots = |rng: &mut Rng| usize::try_from(rng.pick(&[2, 8, 64, 1_024])).unwrap_or(2);
        let mut plan = Self {
            shards: u8::try_from(rng.range(1, 3)).unwrap_or(1),
            ring_slots: (slots(rng), slots(rng)),
            sources,
            pools,
            groups,
            drafts: Vec::new(),
            tracks: Vec::new(),
            desk,
            shard,
            targets: u8::try_from(rng.range(1, 4)).unwrap_or(1),
            call_us: (fast / 2, fast * 2),
            calm_from,
        };
        plan.draw_messages(rng);
        plan
    }

    /// Trap 12: tells the desk that brokers lock groups which do not.
    pub(super) fn pretend_locks(&mut self) {
        for source in &mut self.sources {
            if source.spec.ordering == Ordering::Strict {
                source.spec.ordering = Ordering::Batch;
            }
        }
    }

    fn draw_messages(&mut self, rng: &mut Rng) {
        let count = rng.range(MESSAGES.0, MESSAGES.1);
        let plain = rng.chance(400_000); // Only BLOCK_ON_ERROR, all grouped.
        let shared_names = rng.chance(300_000);
        let twins = rng.pick(&[0, 2_000, 20_000]);
        let skewed = rng.chance(300_000);
        let burst = u32::try_from(rng.below(1_000_000)).unwrap_or(0);
        let last = self.calm_from.nanos() / 1_250;
        let mut times: Vec<u64> =
            (0..count).map(|_| if rng.chance(burst) { 0 } else { rng.below(last) }).collect();
        times.sort_unstable();
        let mut numbers = hashbrown::HashMap::new();
        for at in times {
            let me = u32::try_from(self.drafts.len()).unwrap_or(NONE);
            let twin = me > 0 && rng.chance(twins);
            let draft = if twin {
                let first = self.drafts[usize::try_from(
                    rng.range(u64::from(me.saturating_sub(8)), u64::from(me - 1)),
                )
                .unwrap_or(0)];
                Draft { at: Moment::from_nanos(at * 1_000), ..first }
            } else {
                self.draw_message(me, at, plain, skewed, shared_names, rng)
            };
            let track = self.track_key(&draft).map_or(NONE, |key| {
                let next = u32::try_from(numbers.len()).unwrap_or(NONE);
                *numbers.entry(key).or_insert(next)
            });
            if track != NONE {
                if self.tracks.len() <= track as usize {
                    self.tracks.push(Vec::new());
                }
                self.tracks[track as usize].push(me);
            }
            self.drafts.push(Draft { track, ..draft });
        }
    }

    fn draw_message(
        &self,
        me: u32,
        at_us: u64,
        plain: bool,
        skewed: bool,
        shared_names: bool,
        rng: &mut Rng,
    ) -> Draft {
        let source = u16::try_from(rng.below(self.sources.len() as u64)).unwrap_or(0);
        let per_source = if shared_names { 0 } else { u32::from(source) * self.groups };
        let among = if skewed && rng.chance(500_000) { 2 } else { u64::from(self.groups) };
        let group = per_source + u32::try_from(rng.below(among)).unwrap_or(0);
        let ungrouped = !plain && rng.chance(50_000);
        let dispatch = match rng.below(20) {
            0 if !plain => Dispatch::Immediate,
            1 if !plain => Dispatch::NextOnError,
            _ => Dispatch::BlockOnError,
        };
        Draft {
            source,
            pool: u16::try_from(u64::from(group) % (self.pools.len() as u64 * 2) / 2).unwrap_or(0),
            group: if ungrouped { NONE } else { group },
            track: NONE,
            app: me,
            target: u8::try_from(rng.below(u64::from(self.targets))).unwrap_or(0),
            body_bytes: u16::try_from(if rng.chance(20_000) {
                rng.range(1_000, 4_000)
            } else {
                rng.range(8, 80)
            })
            .unwrap_or(8),
            dispatch,
            high_priority: rng.chance(50_000),
            at: Moment::from_nanos(at_us * 1_000),
        }
    }

    /// Where the order of this message is promised: per (source, pool, group), for messages that block
    /// their group. Messages without a group share one lane per pool unless it is parallel; a broker
    /// that locks groups does not lock those, so their order is promised on the others only.
    fn track_key(&self, draft: &Draft) -> Option<(u16, u16, u32)> {
        let source = &self.sources[usize::from(draft.source)];
        let ordered = source.spec.ordering != Ordering::None && draft.dispatch == Dispatch::BlockOnError;
        let parallel = self.pools[usize::from(draft.pool)].spec.ungrouped_parallel;
        let loose = draft.group == NONE && (parallel || source.kind == Kind::Locking);
        (ordered && !loose).then_some((draft.source, draft.pool, draft.group))
    }
}

/// How long the receives of some sources wait, whether or not their process is still there.
const UNHEARD_MAX: Duration = Duration::from_secs(10);

fn draw_source(rng: &mut Rng) -> SourcePlan {
    let kind = rng.pick(&[Kind::Locking, Kind::Leasing, Kind::Leasing, Kind::Connected]);
    let lease = Duration::from_secs(rng.range(10, 60));
    let stale = match kind {
        Kind::Leasing => rng.pick(&[Stale::Refused, Stale::Pretended, Stale::Honoured]),
        Kind::Locking | Kind::Connected => Stale::Refused,
    };
    let none = rng.chance(100_000);
    let ordering = match kind {
        _ if none => Ordering::None,
        Kind::Locking => Ordering::Batch,
        Kind::Leasing | Kind::Connected => Ordering::Strict,
    };
    let limited = kind != Kind::Connected && rng.chance(300_000);
    let attempts_max = if rng.chance(200_000) { rng.range(2, 6) } else { 0 };
    let unheard_max =
        if kind == Kind::Leasing { rng.pick(&[Duration::ZERO, UNHEARD_MAX]) } else { Duration::ZERO };
    let spec = SourceSpec {
        ordering,
        lease: (kind != Kind::Connected).then_some(lease),
        unheard_max,
        attempts_max: u16::try_from(attempts_max).unwrap_or(0),
        deliveries_max: limited.then(|| u16::try_from(rng.range(6, 20)).unwrap_or(6)),
        repeats: stale == Stale::Pretended,
        judges: false,
        holds_permits: rng.chance(500_000),
        batch_max: usize::try_from(rng.pick(&[1, 10, 10, 100])).unwrap_or(10),
    };
    SourcePlan { kind, stale, spec }
}

fn draw_pool(number: u64, rng: &mut Rng) -> PoolPlan {
    let mut spec = draw_spec(rng);
    if rng.chance(150_000) {
        spec.batch_max =
            NonZeroU16::new(u16::try_from(rng.range(2, 8)).unwrap_or(2)).unwrap_or(NonZeroU16::MIN);
    }
    spec.ungrouped_parallel = rng.chance(400_000);
    PoolPlan { code: format!("P{number}"), spec, absent: number > 0 && rng.chance(100_000) }
}

/// Limits: at the start, and when they change.
pub(super) fn draw_spec(rng: &mut Rng) -> PoolSpec {
    let high = rng.pick(&[3, 12, 50]);
    let concurrency = u16::try_from(rng.range(1, high)).unwrap_or(1);
    let mut spec = PoolSpec::new(NonZeroU16::new(concurrency).unwrap_or(NonZeroU16::MIN));
    if rng.chance(200_000) {
        spec.rate_per_minute = NonZeroU32::new(u32::try_from(rng.range(300, 6_000)).unwrap_or(300));
    }
    spec
}
