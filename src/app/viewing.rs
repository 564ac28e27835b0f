//! Two looks at the engine, a second apart, → what a person sees. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use hdrhistogram::Histogram;
use shards::clock::Moment;
use shards::meter::{BreakerLook, Latency, PoolCounts, ShardSnapshot};
use shards::model::{DeadReason, NackReason, PoolId};

use crate::ingress::{IngressSnapshot, PoolLook, SourceCounts, SourceLook};
use crate::topology::QueueEntry;
use crate::view::{
    BreakerState, Buckets, Percentiles, PoolView, QueueView, Sample, ShardView, TargetView, View,
};

/// Seconds of history kept: ten minutes.
const HISTORY_MAX: usize = 600;

/// What a look is compared with, and what is not in it.
#[derive(Debug)]
pub(super) struct Gallery {
    poll_age_max: Duration,
    before: Option<(Moment, IngressSnapshot)>,
    history: VecDeque<Sample>,
    /// Counts of pools that are gone or were added anew, by code: counters never go back.
    pools: BTreeMap<String, Past>,
}

/// A pool's counts as last seen, and the sum of what earlier lives of it counted.
#[derive(Clone, Debug, Default)]
struct Past {
    earlier: Totals,
    last: Totals,
}

#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    counts: PoolCounts,
    latency: Latency,
    nacked: [u64; NackReason::ALL.len()],
}

impl Totals {
    fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.latency.add(&other.latency);
        for (sum, count) in self.nacked.iter_mut().zip(other.nacked) {
            *sum += count;
        }
    }
}

/// When a look was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    /// On the engine's clock.
    pub(super) at: Moment,
    /// In milliseconds since 1970.
    pub(super) unix_ms: u64,
}

impl Gallery {
    /// Nothing seen yet. A queue that was not polled for `poll_age_max` will count as not healthy.
    pub(super) const fn new(poll_age_max: Duration) -> Self {
        Self { poll_age_max, before: None, history: VecDeque::new(), pools: BTreeMap::new() }
    }

    /// The view after this look. `frame` holds what the engine does not know: version, state, cores, budget.
    pub(super) fn show(
        &mut self,
        look: IngressSnapshot,
        queues: &[QueueEntry],
        taken: Taken,
        frame: View,
    ) -> View {
        let before = self.before.take();
        let passed = before.as_ref().map_or(0.0, |(at, _)| taken.at.since(*at).as_secs_f64());
        let empty = IngressSnapshot::default();
        let old = before.as_ref().map_or(&empty, |(_, look)| look);
        let calls = look.latency_since(old);
        let latency = percentiles(&calls);
        let delivered = rate(sum(&look, |s| s.counts.delivered), sum(old, |s| s.counts.delivered), passed);
        let failed = rate(sum(&look, |s| s.counts.failed), sum(old, |s| s.counts.failed), passed);
        if before.is_some() {
            self.history.push_back(Sample {
                unix_s: taken.unix_ms / 1_000,
                delivered_per_s: delivered,
                failed_per_s: failed,
                inflight: look.held as u64,
                p50_us: latency.p50_us,
                p99_us: latency.p99_us,
            });
        }
        while self.history.len() > HISTORY_MAX {
            self.history.pop_front();
        }
        let view = View {
            at_unix_ms: taken.unix_ms,
            delivered_per_s: delivered,
            inflight: look.held as u64,
            inflight_bytes: look.bytes as u64,
            owed: look.owed as u64,
            lease_slack_s: look.lease_slack.map(|slack| slack.as_secs_f64()),
            default_pool_used_total: look.default_used,
            latency,
            shards: shards(&look, old, &frame),
            pools: self.pools(&look, passed),
            queues: queues.iter().map(|queue| queue_view(queue, &look, self.poll_age_max)).collect(),
            dead_letters_total: dead_letters(&look),
            targets: targets(&look, taken.at),
            history: self.history.iter().copied().collect(),
            ..frame
        };
        self.before = Some((taken.at, look));
        view
    }

    fn pools(&mut self, look: &IngressSnapshot, passed: f64) -> Vec<PoolView> {
        let mut views: Vec<PoolView> = Vec::with_capacity(look.pools.len());
        for pool in &look.pools {
            let mut now = Totals { nacked: pool.nacked, ..Totals::default() };
            let (mut queued, mut active, mut groups) = (0_u64, 0_u64, 0_u64);
            for part in look.shards.iter().flat_map(|shard| &shard.pools).filter(|part| part.pool == pool.id)
            {
                now.counts.add(&part.counts);
                now.latency.add(&part.latency);
                queued += u64::from(part.queued);
                active += u64::from(part.running);
                groups += u64::from(part.lanes);
            }
            let past = self.pools.entry(pool.code.clone()).or_default();
            if now.counts.submitted < past.last.counts.submitted {
                past.earlier.add(&past.last);
            }
            let delivered = now.counts.delivered.saturating_sub(past.last.counts.delivered);
            past.last = now;
            let mut total = past.earlier;
            total.add(&now);
            views.push(pool_view(pool, &total, [queued, active, groups], rate(delivered, 0, passed)));
        }
        views.sort_by(|a, b| a.code.cmp(&b.code));
        views
    }
}

fn pool_view(pool: &PoolLook, total: &Totals, [queued, active, groups]: [u64; 3], per_s: f64) -> PoolView {
    let reasons = NackReason::ALL.into_iter().zip(total.nacked).filter(|(reason, _)| !reason.is_attempt());
    PoolView {
        code: pool.code.clone(),
        concurrency: pool.spec.concurrency.get(),
        rate_limit_per_minute: pool.spec.rate_per_minute.map(std::num::NonZero::get),
        capacity: pool.spec.capacity(),
        queued,
        active,
        groups,
        draining: pool.draining,
        delivered_per_s: per_s,
        submitted_total: total.counts.submitted,
        delivered_total: total.counts.delivered,
        failed_total: total.counts.failed,
        transient_total: total.counts.transient,
        rate_limited_total: total.counts.rate_limited,
        rejected_total: reasons.map(|(reason, count)| (reason.name().to_owned(), count)).collect(),
        latency: buckets(&total.latency),
    }
}

fn shards(look: &IngressSnapshot, old: &IngressSnapshot, frame: &View) -> Vec<ShardView> {
    let view = |shard: &ShardSnapshot| {
        let before = old.shards.iter().find(|other| other.shard == shard.shard);
        let busy = shard.busy_ns.saturating_sub(before.map_or(0, |before| before.busy_ns));
        let age = shard.age_ns.saturating_sub(before.map_or(0, |before| before.age_ns));
        let at = usize::from(shard.shard.0);
        ShardView {
            shard: shard.shard.0,
            core: frame.shards.get(at).map_or(0, |known| known.core),
            busy_ratio: ratio(busy, age).min(1.0),
            ring_depth: look.rings.get(at).copied().unwrap_or(0) as u64,
            groups: u64::from(shard.lanes),
            queued: u64::from(shard.queued.saturating_sub(shard.running)),
            active: u64::from(shard.running),
            connections: u64::from(shard.connections),
            calls_total: shard.counts.calls,
            retried_total: shard.counts.retried,
            timeouts_total: shard.counts.timeouts,
            unreachable_total: shard.counts.unreachable,
            unreadable_total: shard.counts.unreadable,
        }
    };
    look.shards.iter().map(view).collect()
}

/// One row per origin, over all shards; the busiest first.
fn targets(look: &IngressSnapshot, now: Moment) -> Vec<TargetView> {
    let mut all: BTreeMap<&str, (TargetView, Latency, BreakerLook)> = BTreeMap::new();
    for part in look.shards.iter().flat_map(|shard| &shard.targets) {
        let (view, latency, worst) = all.entry(&part.origin).or_default();
        view.connections += u64::from(part.connections);
        view.active += u64::from(part.active);
        view.calls_total += part.calls;
        view.failures_total += part.failures;
        latency.add(&part.latency);
        *worst = (*worst).max(part.breaker);
    }
    let finish = |(origin, (view, latency, worst)): (&str, (TargetView, Latency, BreakerLook))| {
        let (breaker, retry_in_ms) = match worst {
            BreakerLook::Admitting => (BreakerState::Admitting, None),
            BreakerLook::Probing => (BreakerState::Probing, None),
            BreakerLook::Tripped(until) => {
                (BreakerState::Tripped, u64::try_from(until.since(now).as_millis()).ok())
            }
        };
        TargetView { origin: origin.to_owned(), breaker, retry_in_ms, latency: buckets(&latency), ..view }
    };
    let mut views: Vec<TargetView> = all.into_iter().map(finish).collect();
    views.sort_by(|a, b| (b.calls_total, &a.origin).cmp(&(a.calls_total, &b.origin)));
    views
}

/// A queue is the sum of its consumers; its health is its present one's.
fn queue_view(queue: &QueueEntry, look: &IngressSnapshot, poll_age_max: Duration) -> QueueView {
    let mut view = QueueView {
        name: queue.name.clone(),
        uri: queue.uri.to_string(),
        broker: queue.uri.broker().to_owned(),
        ..QueueView::default()
    };
    let mut counts = look.gone.get(&queue.name).copied().unwrap_or_default();
    for source in look.sources.iter().filter(|source| source.queue == queue.name) {
        counts.add(&source.counts);
        if source.retired {
            view.draining += 1;
        } else {
            view.since_poll_s = source.since_poll.as_secs_f64();
            view.paused = source.paused;
            view.healthy = is_healthy(source, poll_age_max);
            view.error.clone_from(&source.error);
            view.depth = source.depth;
            view.ordering = format!("{:?}", source.ordering).to_uppercase();
        }
    }
    view.received_total = counts.received;
    view.acked_total = counts.acked;
    view.nacked_total = counts.nacked;
    view.extended_total = counts.extended;
    view.acks_failed_total = counts.acks_failed;
    view.unreadable_total = counts.unreadable;
    view
}

fn dead_letters(look: &IngressSnapshot) -> BTreeMap<String, u64> {
    let mut sum = SourceCounts::default();
    look.gone
        .values()
        .chain(look.sources.iter().map(|source| &source.counts))
        .for_each(|counts| sum.add(counts));
    DeadReason::ALL
        .into_iter()
        .zip(sum.set_aside)
        .map(|(reason, count)| (reason.name().to_owned(), count))
        .collect()
}

/// The router document's rule: polled lately, or paused by ourselves.
#[must_use]
pub(super) fn is_healthy(source: &SourceLook, poll_age_max: Duration) -> bool {
    !source.stopped && (source.paused || source.since_poll < poll_age_max)
}

fn buckets(latency: &Latency) -> Buckets {
    Buckets { counts: latency.counts.to_vec(), sum_us: latency.sum_us }
}

fn percentiles(calls: &Histogram<u64>) -> Percentiles {
    if calls.is_empty() {
        return Percentiles::default();
    }
    Percentiles {
        p50_us: calls.value_at_quantile(0.5),
        p95_us: calls.value_at_quantile(0.95),
        p99_us: calls.value_at_quantile(0.99),
        p999_us: calls.value_at_quantile(0.999),
    }
}

fn sum(look: &IngressSnapshot, count: fn(&ShardSnapshot) -> u64) -> u64 {
    look.shards.iter().map(count).sum()
}

fn rate(now: u64, before: u64, passed: f64) -> f64 {
    if passed <= 0.0 { 0.0 } else { ratio(now.saturating_sub(before), 1) / passed }
}

#[expect(clippy::cast_precision_loss, reason = "for people: 52 bits are plenty")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The code of a pool, for notices that name it by its place.
#[must_use]
pub(super) fn pool_code(look: &IngressSnapshot, id: PoolId) -> String {
    let pool = look.pools.iter().find(|pool| pool.id == id);
    pool.map_or_else(|| format!("#{}", id.0), |pool| pool.code.clone())
}
