//! `corelane demo`: the engine at work on this machine, with made-up traffic and a sink of its own.

use std::num::NonZeroU16;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use shards::clock::Clock;
use shards::model::DeskTuning;
use shards::placement::Wishes;
use shards::wire::probe::Io;

use crate::bench::{Rig, Scenario, SinkProcess};
use crate::broker::feed::Tally;
use crate::ingress::IngressSnapshot;

const EXAMPLES: &str = "\
Examples:
  corelane demo                        # until Ctrl-C
  corelane demo --seconds 10 --pace 5000
  corelane demo --io epoll --error-rate 0.2";

/// Shows the engine at work: made-up traffic, a local sink, a line a second
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Messages per second
    #[arg(long, default_value_t = 2_000)]
    pace: u32,
    /// Groups that the messages are spread over
    #[arg(long, default_value_t = 500)]
    groups: u64,
    /// Calls in flight at most
    #[arg(long, default_value = "200")]
    concurrency: NonZeroU16,
    /// How long the sink takes to answer, in milliseconds
    #[arg(long, default_value_t = 20)]
    delay_ms: u64,
    /// Share of calls that the sink answers with 503
    #[arg(long, default_value_t = 0.01)]
    error_rate: f64,
    /// How bytes are moved: auto, uring, glommio or epoll
    #[arg(long, default_value = "auto")]
    io: Io,
    /// End after so many seconds (default: when interrupted)
    #[arg(long)]
    seconds: Option<u64>,
}

/// Runs until interrupted or for the given time, then drains.
///
/// # Errors
/// The engine or the sink could not be started.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let scenario = scenario(args);
    let sink = SinkProcess::start(&scenario)?;
    let tally = Tally::new();
    let rig = Rig::start(&scenario, &sink.url, &tally, None)?;
    println!("corelane demo: io {}, sink {}", rig.io(), sink.url);
    println!(
        "{} messages/s in {} groups, at most {} calls at once, {} ms a call, {:.0} % of calls fail. Ctrl-C drains and ends.",
        args.pace,
        args.groups,
        args.concurrency,
        args.delay_ms,
        args.error_rate * 100.0
    );
    println!(
        "{:>6} {:>11} {:>8} {:>8} {:>8} {:>9} {:>9} {:>6}",
        "second", "delivered/s", "waiting", "calls", "retried", "p50 ms", "p99 ms", "busy"
    );
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("watch for Ctrl-C")?;
    let mut before = rig.snapshot()?;
    let mut acked = 0;
    for second in 1.. {
        if !runtime.block_on(a_second_passes()) {
            break;
        }
        let after = rig.snapshot()?;
        let now = tally.acked.load(Ordering::Relaxed);
        show(second, now - acked, &before, &after);
        (before, acked) = (after, now);
        if args.seconds.is_some_and(|limit| second >= limit) {
            break;
        }
    }
    let stopping = Clock.now();
    rig.stop();
    tally.stop();
    let (acked, back) = (tally.acked.load(Ordering::Relaxed), tally.nacked.load(Ordering::Relaxed));
    println!(
        "drained in {:.0} ms: {acked} delivered, {back} given back",
        Clock.now().since(stopping).as_secs_f64() * 1e3
    );
    Ok(())
}

/// False if interrupted before.
async fn a_second_passes() -> bool {
    tokio::select! {
        _ = tokio::signal::ctrl_c() => false,
        () = tokio::time::sleep(Duration::from_secs(1)) => true,
    }
}

fn show(second: u64, delivered: u64, before: &IngressSnapshot, after: &IngressSnapshot) {
    let sum = |snapshot: &IngressSnapshot, count: fn(&shards::meter::ShardSnapshot) -> u64| {
        snapshot.shards.iter().map(count).sum::<u64>()
    };
    let calls = sum(after, |shard| shard.running.into());
    let waiting = sum(after, |shard| shard.queued.into()).saturating_sub(calls);
    let retried = sum(after, |shard| shard.counts.retried) - sum(before, |shard| shard.counts.retried);
    let (busy, age) = (
        sum(after, |s| s.busy_ns) - sum(before, |s| s.busy_ns),
        sum(after, |s| s.age_ns) - sum(before, |s| s.age_ns),
    );
    let latency = after.latency_since(before);
    println!(
        "{second:>6} {delivered:>11} {waiting:>8} {calls:>8} {retried:>8} {:>9} {:>9} {:>5}%",
        millis(latency.value_at_quantile(0.5)),
        millis(latency.value_at_quantile(0.99)),
        busy * 100 / age.max(1)
    );
    for notice in &after.notices {
        println!("       {notice:?}");
    }
}

fn millis(us: u64) -> String {
    format!("{}.{}", us / 1_000, us % 1_000 / 100)
}

fn scenario(args: &Args) -> Scenario {
    Scenario {
        source: crate::bench::SourceKind::Memory,
        name: "demo".into(),
        io: args.io,
        wishes: Wishes::default(),
        groups: args.groups,
        skew: 0.0,
        concurrency: args.concurrency,
        delay: Duration::from_millis(args.delay_ms),
        error_rate: args.error_rate,
        duration: Duration::ZERO,
        warm_up: Duration::ZERO,
        body_bytes: 50,
        http2: false,
        tls: false,
        loopback: false,
        pace: Some(args.pace),
        spin: Duration::ZERO,
        sink_core: None,
        target: None,
        prefetch: DeskTuning::default().prefetch,
    }
}
