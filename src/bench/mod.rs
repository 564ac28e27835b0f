//! Measures the engine: a source in memory or in a SQLite file, the real desk, shards and courier, and a sink in a
//! process of its own.

mod durable;
mod sink;
mod source;

use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use shards::clock::Clock;
use shards::courier::tls;
use shards::engine::available_cores;
use shards::model::{CourierTuning, DeskTuning, HttpVersion, PoolSpec, ShardTuning};
use shards::placement::{Wishes, plan};
use shards::wire::probe::{Io, choose};

use crate::broker::feed::{Counted, Feed, Tally};
use crate::core::{Core, CoreSpec};
use crate::ingress::IngressSnapshot;
use crate::report::{Run, process};
use durable::Durable;
pub use sink::SinkProcess;
use source::BenchQueue;
pub use source::SourceKind;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Names the row.
    pub name: String,
    /// Where messages come from.
    pub source: SourceKind,
    /// Which wire.
    pub io: Io,
    /// Which cores.
    pub wishes: Wishes,
    /// Groups the messages are spread over.
    pub groups: u64,
    /// Share of the messages that goes to one group in a hundred.
    pub skew: f64,
    /// Calls in flight at most.
    pub concurrency: NonZeroU16,
    /// The target's delay.
    pub delay: Duration,
    /// Share of calls that the target fails.
    pub error_rate: f64,
    /// How long to measure.
    pub duration: Duration,
    /// How long to run before that.
    pub warm_up: Duration,
    /// Bytes of a message's body.
    pub body_bytes: usize,
    /// HTTP/2.
    pub http2: bool,
    /// TLS.
    pub tls: bool,
    /// Answer calls inside the shard: the engine alone.
    pub loopback: bool,
    /// Messages per second; `None` = as fast as it goes.
    pub pace: Option<u32>,
    /// How long a shard looks for work before it sleeps.
    pub spin: Duration,
    /// Core of the sink.
    pub sink_core: Option<usize>,
    /// Waiting messages per call in flight that are asked for while all calls are in use.
    pub prefetch: u32,
    /// Deliver here instead of to a sink of its own.
    pub target: Option<String>,
}

/// Time the engine has to hand back what it holds at the end.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// Runs one scenario. `progress` is told the share that is done.
///
/// # Errors
/// The sink or the engine could not be started.
pub fn run(scenario: &Scenario, progress: &dyn Fn(f64)) -> anyhow::Result<Run> {
    let sink = match &scenario.target {
        None if !scenario.loopback => Some(SinkProcess::start(scenario)?),
        _ => None,
    };
    let base = match (&sink, &scenario.target) {
        (Some(sink), _) => sink.url.clone(),
        (None, Some(target)) => target.clone(),
        (None, None) => "http://127.0.0.1:9".to_owned(),
    };
    let tally = Tally::new();
    let rig = Rig::start(scenario, &base, &tally, sink.as_ref().and_then(|sink| sink.cert_pem.clone()))?;
    let run = rig.measure(scenario, &tally, progress);
    let stopping = Clock.now();
    rig.stop();
    tally.stop();
    run.map(|mut run| {
        run.extras.insert("drain_ms".into(), (Clock.now().since(stopping).as_secs_f64() * 1e3).into());
        run
    })
}

/// The data plane with a source of messages.
pub struct Rig {
    core: Core<BenchQueue>,
    /// The SQLite queue's file and its publisher, where there is one.
    durable: Option<Durable>,
    io: Io,
    shards: usize,
}

impl Rig {
    /// The wire in use.
    #[must_use]
    pub const fn io(&self) -> Io {
        self.io
    }
}

impl Rig {
    /// Starts everything, delivering to `base`.
    ///
    /// # Errors
    /// The engine can't run here as asked; the error says what to change.
    pub fn start(
        scenario: &Scenario,
        base: &str,
        tally: &Arc<Tally>,
        cert_pem: Option<Vec<u8>>,
    ) -> anyhow::Result<Self> {
        let feed = feed(scenario, base);
        let (queue, durable) = BenchQueue::open(scenario.source, feed, tally)?;
        let chosen = choose(scenario.io).context("choose how to do I/O")?;
        if let Some(note) = &chosen.note {
            eprintln!("{note}");
        }
        let plan = plan(&available_cores(), &scenario.wishes).context("place the threads on cores")?;
        let tls = match cert_pem {
            Some(pem) => Some(
                tls::config(tls::Roots { native: false, extra_pem: &pem })
                    .context("trust the sink's certificate")?,
            ),
            None => None,
        };
        let http = match (scenario.http2, scenario.tls) {
            (false, _) => HttpVersion::Http1,
            (true, false) => HttpVersion::Http2PriorKnowledge,
            (true, true) => HttpVersion::Negotiate,
        };
        let spec = CoreSpec {
            plan: plan.clone(),
            io: chosen.io,
            spin: scenario.spin,
            pin: true,
            shard: ShardTuning::default(),
            courier: CourierTuning { http, loopback: scenario.loopback, ..CourierTuning::default() },
            desk: DeskTuning { prefetch: scenario.prefetch, ..DeskTuning::default() },
            tls: tls.map(Arc::new),
        };
        let aside = Counted(Arc::clone(tally));
        let core = Core::start(&spec, move || aside)?;
        core.handle().set_pool("BENCH", PoolSpec::new(scenario.concurrency))?;
        core.handle().add_source("bench", "", Box::new(move || Ok(queue)), false)?;
        Ok(Self { core, durable, io: chosen.io, shards: plan.shards.len() })
    }

    /// A look at the whole engine.
    ///
    /// # Errors
    /// The ingress did not answer.
    pub fn snapshot(&self) -> anyhow::Result<IngressSnapshot> {
        self.core.handle().snapshot().context("ask the engine for its counters")
    }

    fn measure(&self, scenario: &Scenario, tally: &Tally, progress: &dyn Fn(f64)) -> anyhow::Result<Run> {
        let total = (scenario.warm_up + scenario.duration).as_secs_f64();
        let wait = |length: Duration, before: f64| {
            let from = Clock.now();
            while Clock.now().since(from) < length {
                std::thread::sleep(Duration::from_millis(100).min(length));
                progress((before + Clock.now().since(from).as_secs_f64()) / total);
            }
        };
        wait(scenario.warm_up, 0.0);
        let before = self.snapshot()?;
        let rss_before = process::rss_own().context("read the memory in use")?;
        tally.latency_us.lock().reset();
        let (start, cpu, acked) = (Clock.now(), process::cpu_own(), tally.acked.load(Ordering::Relaxed));
        wait(scenario.duration, scenario.warm_up.as_secs_f64());
        let (took, cpu) = (Clock.now().since(start).as_secs_f64(), process::cpu_own().saturating_sub(cpu));
        let acked = tally.acked.load(Ordering::Relaxed) - acked;
        let after = self.snapshot()?;
        let rss = process::rss_own().context("read the memory in use")?;
        let calls = after.latency_since(&before);
        let whole = tally.latency_us.lock();
        let shown = if scenario.pace.is_some() && self.durable.is_none() { &*whole } else { &calls };
        let mut run = Run {
            name: scenario.name.clone(),
            deliveries_per_s: ratio(acked, took),
            cpu_us_per_delivery: cpu.as_secs_f64() * 1e6 / ratio(acked.max(1), 1.0),
            p50_us: shown.value_at_quantile(0.5),
            p99_us: shown.value_at_quantile(0.99),
            p999_us: shown.value_at_quantile(0.999),
            rss_mb: rss.peak_mb(),
            io: self.io.to_string(),
            shards: u32::try_from(self.shards).unwrap_or(u32::MAX),
            groups: scenario.groups,
            concurrency: u32::from(scenario.concurrency.get()),
            ..Run::default()
        };
        run.extras.insert("rss_grew_mb".into(), (rss.now_mb() - rss_before.now_mb()).into());
        run.extras.insert("held".into(), after.held.into());
        run.extras.insert("cpu_share".into(), (cpu.as_secs_f64() / took).into());
        run.extras.insert("shard_busy".into(), busy_between(&before, &after).into());
        if scenario.pace.is_some() {
            run.extras.insert("call_p50_us".into(), calls.value_at_quantile(0.5).into());
            run.extras.insert("call_p99_us".into(), calls.value_at_quantile(0.99).into());
        }
        if let Some(durable) = &self.durable {
            durable.add_to(&mut run.extras);
        }
        if scenario.error_rate > 0.0 {
            let retried =
                |snapshot: &IngressSnapshot| snapshot.shards.iter().map(|s| s.counts.retried).sum::<u64>();
            run.extras.insert("retried_per_s".into(), ratio(retried(&after) - retried(&before), took).into());
        }
        Ok(run)
    }

    /// Hands back what is held and ends all threads.
    pub fn stop(self) {
        let _ = self.core.drain(DRAIN_MAX);
        drop(self.durable);
    }
}

fn feed(scenario: &Scenario, base: &str) -> Feed {
    let path = if scenario.error_rate > 0.0 {
        format!("/ok?error_rate={}&status=503", scenario.error_rate)
    } else {
        "/ok".to_owned()
    };
    Feed {
        groups: scenario.groups,
        skew: scenario.skew,
        target: format!("{base}{path}"),
        pool: "BENCH".into(),
        body_bytes: scenario.body_bytes,
        limit: None,
        pace: scenario.pace,
    }
}

/// The busiest shard's share of its core.
fn busy_between(before: &IngressSnapshot, after: &IngressSnapshot) -> f64 {
    let pairs = before.shards.iter().zip(&after.shards);
    pairs.map(|(b, a)| ratio(a.busy_ns - b.busy_ns, ratio(a.age_ns - b.age_ns, 1.0))).fold(0.0, f64::max)
}

#[expect(clippy::cast_precision_loss, reason = "rates need no more than 52 bits")]
fn ratio(count: u64, per: f64) -> f64 {
    count as f64 / per
}
