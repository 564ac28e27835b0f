//! `corelane bench`: measures the engine with a source in memory or in a SQLite file and its own sink process.

use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use shards::engine::available_cores;
use shards::placement::Wishes;
use shards::wire::probe::Io;

use super::cores::Cores;
use crate::bench::{self, Scenario, SourceKind};
use crate::report;

const EXAMPLES: &str = "\
Examples:
  corelane bench
  corelane bench --groups 10000 --concurrency 6000 --delay-ms 100 --seconds 60
  corelane bench --loopback --ingress-core 0 --shard-cores 1     # the engine alone
  corelane bench --source sqlite --groups 10000                  # durable: published, delivered, acked
  corelane bench --pace 20000 --spin-us 50                       # latency at a set pace
  corelane bench --tls --http2 --error-rate 0.02 --skew 0.5
  corelane bench --sweep shards=1,2 io=uring,glommio,epoll --svg sweep.svg";

/// Measures deliveries per second, CPU per delivery and latency of the engine
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct Args {
    /// Where messages come from: memory, or a durable SQLite queue in the temporary folder
    #[arg(long, value_enum, default_value = "memory")]
    source: SourceKind,
    /// How bytes are moved: auto, uring, glommio or epoll
    #[arg(long, default_value = "auto")]
    io: Io,
    /// Shards (default: 1 on one or two cores, else one per core left)
    #[arg(long)]
    shards: Option<u8>,
    /// Core of the ingress thread
    #[arg(long)]
    ingress_core: Option<usize>,
    /// Cores of the shards, such as 1 or 2-7
    #[arg(long)]
    shard_cores: Option<Cores>,
    /// Core of the sink process (default: the last one, where there are several)
    #[arg(long)]
    sink_core: Option<usize>,
    /// Groups that the messages are spread over
    #[arg(long, default_value_t = 1_000)]
    groups: u64,
    /// Share of the messages that goes to one group in a hundred, 0 to 1
    #[arg(long, default_value_t = 0.0)]
    skew: f64,
    /// Calls in flight at most
    #[arg(long, default_value = "512")]
    concurrency: NonZeroU16,
    /// How long the target takes to answer, in milliseconds
    #[arg(long, default_value_t = 0, value_name = "N")]
    delay_ms: u64,
    /// Share of calls that the target answers with 503, 0 to 1
    #[arg(long, default_value_t = 0.0)]
    error_rate: f64,
    /// How long to measure, in seconds
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// How long to run before measuring, in seconds
    #[arg(long, default_value_t = 2)]
    warm_up: u64,
    /// Bytes of a message's body
    #[arg(long, default_value_t = 50)]
    body_bytes: usize,
    /// HTTP/2: by prior knowledge, or by ALPN with --tls
    #[arg(long)]
    http2: bool,
    /// TLS
    #[arg(long)]
    tls: bool,
    /// Answer calls inside the shard: measures the engine alone
    #[arg(long)]
    loopback: bool,
    /// Messages per second (default: as fast as it goes); latency is then from published to acked
    #[arg(long)]
    pace: Option<u32>,
    /// How long a shard looks for work before it sleeps, in microseconds
    #[arg(long, default_value_t = 0)]
    spin_us: u64,
    /// Waiting messages per call in flight that are asked for while all calls are in use, up to 20
    #[arg(long, default_value_t = 2)]
    prefetch: u32,
    /// Deliver to this base URL instead of a sink of its own
    #[arg(long)]
    target: Option<String>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Write a plot here
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Run every combination: KEY=A,B,… of shards, io, groups, concurrency, delay-ms, body-bytes
    #[arg(long, num_args = 1.., value_name = "KEY=A,B")]
    sweep: Vec<String>,
}

/// Measures, and prints what it found.
///
/// # Errors
/// A flag makes no sense, or the engine or the sink could not be started.
pub fn run(args: &Args) -> anyhow::Result<()> {
    anyhow::ensure!((0.0..=1.0).contains(&args.skew), "--skew {}: give a share from 0 to 1", args.skew);
    anyhow::ensure!(
        (0.0..1.0).contains(&args.error_rate),
        "--error-rate {}: give a share from 0 to 1",
        args.error_rate
    );
    anyhow::ensure!(args.groups > 0, "--groups 0: at least one group is needed");
    anyhow::ensure!(args.seconds > 0, "--seconds 0: measure for at least one second");
    let variants = variants(args)?;
    let mut runs = Vec::new();
    for (at, (name, args)) in variants.iter().enumerate() {
        let bar = progress_bar(args.json);
        bar.set_prefix(format!("{}/{} {name}", at + 1, variants.len()));
        let scenario = scenario(name, args);
        let run = bench::run(&scenario, &|share| bar.set_position(permille(share)))
            .with_context(|| format!("run the benchmark {name}"))?;
        bar.finish_and_clear();
        runs.push(run);
    }
    if args.json {
        println!("{}", report::json(&runs));
    } else {
        print!("{}", report::table(&runs));
    }
    let plot = args.svg.clone().or_else(|| (!args.sweep.is_empty()).then(|| PathBuf::from("sweep.svg")));
    if let Some(path) = plot {
        report::svg(&runs, &path).context("write the plot")?;
        eprintln!("plot: {}", path.display());
    }
    Ok(())
}

fn scenario(name: &str, args: &Args) -> Scenario {
    Scenario {
        name: name.to_owned(),
        source: args.source,
        io: args.io,
        wishes: Wishes {
            shards: args.shards,
            ingress_core: args.ingress_core,
            shard_cores: args.shard_cores.clone().unwrap_or_default().0,
        },
        groups: args.groups,
        skew: args.skew,
        concurrency: args.concurrency,
        delay: Duration::from_millis(args.delay_ms),
        error_rate: args.error_rate,
        duration: Duration::from_secs(args.seconds),
        warm_up: Duration::from_secs(args.warm_up),
        body_bytes: args.body_bytes,
        http2: args.http2,
        tls: args.tls,
        loopback: args.loopback,
        pace: args.pace,
        spin: Duration::from_micros(args.spin_us),
        sink_core: args.sink_core.or_else(last_core),
        target: args.target.clone(),
        prefetch: args.prefetch,
    }
}

fn last_core() -> Option<usize> {
    let cores = available_cores();
    cores.last().copied().filter(|_| cores.len() > 1)
}

/// Every combination of the sweep's values, each with its name.
fn variants(args: &Args) -> anyhow::Result<Vec<(String, Args)>> {
    let mut variants = vec![(String::new(), args.clone())];
    for axis in &args.sweep {
        let (key, values) = axis.split_once('=').with_context(|| format!("--sweep {axis}: write KEY=A,B"))?;
        let mut next = Vec::new();
        for (name, base) in &variants {
            for value in values.split(',') {
                let mut variant = base.clone();
                set(&mut variant, key, value).with_context(|| format!("--sweep {axis}: `{value}`"))?;
                next.push((format!("{name} {key}={value}").trim().to_owned(), variant));
            }
        }
        variants = next;
    }
    if args.sweep.is_empty() {
        variants[0].0 = if args.loopback { "engine alone".into() } else { "corelane".into() };
    }
    Ok(variants)
}

fn set(args: &mut Args, key: &str, value: &str) -> anyhow::Result<()> {
    match key {
        "shards" => args.shards = Some(value.parse()?),
        "io" => args.io = value.parse()?,
        "groups" => args.groups = value.parse()?,
        "concurrency" => args.concurrency = value.parse()?,
        "delay-ms" => args.delay_ms = value.parse()?,
        "body-bytes" => args.body_bytes = value.parse()?,
        _ => anyhow::bail!("can sweep over shards, io, groups, concurrency, delay-ms and body-bytes"),
    }
    Ok(())
}

fn progress_bar(hidden: bool) -> ProgressBar {
    if hidden {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{prefix} [{bar:40}] {percent}%").expect("a constant template");
    ProgressBar::new(1_000).with_style(style.progress_chars("=> "))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share from 0 to 1")]
fn permille(share: f64) -> u64 {
    (share.clamp(0.0, 1.0) * 1_000.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Args {
        Line::parse_from(line.split(' ')).args
    }

    #[test]
    fn a_sweep_runs_every_combination() {
        let variants = variants(&parse("bench --sweep shards=1,2 io=uring,epoll")).expect("a good sweep");
        let names: Vec<&str> = variants.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            ["shards=1 io=uring", "shards=1 io=epoll", "shards=2 io=uring", "shards=2 io=epoll"]
        );
        assert_eq!(variants[2].1.shards, Some(2));
    }

    #[test]
    fn a_bad_sweep_is_refused_by_name() {
        for (line, word) in [("shards", "KEY=A,B"), ("shards=x", "`x`"), ("colour=red", "can sweep over")] {
            let error = variants(&parse(&format!("bench --sweep {line}"))).expect_err(line);
            assert!(format!("{error:#}").contains(word), "{error:#}");
        }
    }
}
