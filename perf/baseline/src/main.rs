//! What most people write: tokio's multi-thread runtime and reqwest, doing the router's job. A queue of messages in
//! groups, a task per group that keeps its order, a semaphore for the pool's concurrency, a POST and an
//! acknowledgement per message. No straw man: one shared client, kept-alive connections for the whole concurrency.

mod router;

use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use rustix::thread::{CpuSet, sched_setaffinity};

/// The router's job on tokio and reqwest; prints its figures as JSON
#[derive(Debug, Parser)]
#[command(after_help = "\
Examples:
  corelane sink --listen 127.0.0.1:9000 --cores 1
  baseline --url http://127.0.0.1:9000/ok --concurrency 512 --groups 1000 --seconds 10 --core 0
  baseline --url 'http://127.0.0.1:9000/slow?ms=100' --concurrency 6000 --groups 10000")]
struct Args {
    /// Where to post
    #[arg(long)]
    url: String,
    /// Groups; each keeps its order, so at most one of its messages is in flight
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    groups: u32,
    /// Deliveries in flight, and so connections; --connections is the yardstick's word for it
    #[arg(long, alias = "connections", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    concurrency: u32,
    /// Length of the measured window, after a warm-up of one second
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Core to keep all its threads on; without it the system places them
    #[arg(long)]
    core: Option<usize>,
    /// Worker threads; one per core it may use unless given
    #[arg(long)]
    workers: Option<usize>,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some(core) = args.core {
        let mut only = CpuSet::new();
        only.set(core);
        // Before any thread is started, so that all of them inherit it.
        sched_setaffinity(None, &only).with_context(|| format!("pin to core {core}"))?;
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(workers) = args.workers {
        runtime.worker_threads(workers.max(1));
    }
    let runtime = runtime.enable_all().build().context("start tokio")?;
    let job = router::Job {
        url: args.url.parse().context("read the url")?,
        groups: args.groups,
        concurrency: args.concurrency,
        window: Duration::from_secs(args.seconds),
    };
    let figures = runtime.block_on(router::drive(job))?;
    println!("{}", serde_json::to_string_pretty(&figures).context("print figures")?);
    // The group tasks run until the runtime goes; what they have in flight is of no interest any more.
    runtime.shutdown_background();
    Ok(())
}
