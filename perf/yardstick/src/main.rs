//! The floor: what a POST costs when nothing but the POST is done. One thread, one ring, N connections, each with
//! one request in flight; the request is byte for byte what corelane sends.

mod buffers;
mod client;
mod request;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use rustix::thread::{CpuSet, sched_setaffinity};

/// A bare `io_uring` POST loop; prints its figures as JSON
#[derive(Debug, Parser)]
#[command(after_help = "\
Examples:
  corelane sink --listen 127.0.0.1:9000 --cores 1
  yardstick --url http://127.0.0.1:9000/ok --connections 512 --seconds 10 --core 0
  yardstick --url 'http://127.0.0.1:9000/slow?ms=100' --connections 6000")]
struct Args {
    /// Where to post; http and an address, no name
    #[arg(long)]
    url: String,
    /// Connections, each with one request in flight
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    connections: u32,
    /// Length of the measured window, after a warm-up of one second
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Core to run on
    #[arg(long)]
    core: Option<usize>,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let (address, path) = split_url(&args.url)?;
    if let Some(core) = args.core {
        let mut only = CpuSet::new();
        only.set(core);
        sched_setaffinity(None, &only).with_context(|| format!("pin to core {core}"))?;
    }
    let figures = client::drive(address, path, args.connections, Duration::from_secs(args.seconds))?;
    println!("{}", serde_json::to_string_pretty(&figures).context("print figures")?);
    Ok(())
}

fn split_url(url: &str) -> anyhow::Result<(SocketAddr, &str)> {
    let Some(rest) = url.strip_prefix("http://") else { bail!("{url} does not start with http://") };
    let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let address = authority.parse().with_context(|| format!("read {authority} as an address and port"))?;
    Ok((address, path))
}
