//! `corelane status`: a running router at a glance.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;

use super::api::{Api, Reach};
use super::table::{Table, clean};
use crate::telemetry::warnings::Warning;
use crate::view::{BreakerState, State, View};

const EXAMPLES: &str = "\
Examples:
  corelane status
  corelane status --watch
  corelane status --json | jq '.pools[] | {code, queued}'
  CORELANE_TOKEN=… corelane status --url http://10.0.0.5:8080";

/// Warnings shown.
const WARNINGS_SHOWN: usize = 10;

/// Shows a running router: state, pools, queues, shards, targets, warnings
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    reach: Reach,
    /// Look again every second until interrupted
    #[arg(long)]
    watch: bool,
    /// Print the view as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
struct Listed {
    warnings: Vec<Warning>,
}

/// Shows it once, or again and again.
///
/// # Errors
/// Nothing answers, or it does not let us in.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let api = Api::new(&args.reach)?;
    let terminal = io::stdout().is_terminal();
    loop {
        let text = if args.json {
            let view: serde_json::Value = api.get("/api/view")?;
            format!("{view:#}\n")
        } else {
            let view: View = api.get("/api/view?since=18446744073709551615")?;
            let listed: Listed = api.get("/api/warnings")?;
            shown(&view, &listed.warnings)
        };
        let start = if args.watch && terminal { "\u{1b}[H\u{1b}[2J" } else { "" };
        let mut stdout = io::stdout();
        write!(stdout, "{start}{text}").and_then(|()| stdout.flush()).context("print")?;
        if !args.watch || !api.pause(Duration::from_secs(1)) {
            return Ok(());
        }
    }
}

/// All of it as text.
fn shown(view: &View, warnings: &[Warning]) -> String {
    let mut out = String::new();
    let state = match view.state {
        State::Starting => "starting",
        State::Running => "running",
        State::Disabled => "disabled",
        State::Draining => "draining",
    };
    let ready = if view.ready { "ready" } else { "NOT READY" };
    let uptime = (view.at_unix_ms / 1_000).saturating_sub(view.started_unix_s);
    let _ = writeln!(
        out,
        "corelane {} ({}): {state}, {ready}, up {}",
        clean(&view.version),
        clean(&view.io),
        humantime::format_duration(Duration::from_secs(uptime))
    );
    for reason in &view.not_ready {
        let _ = writeln!(out, "  not ready: {}", clean(reason));
    }
    let _ = writeln!(
        out,
        "{:.0}/s delivered, p50 {}, p99 {}, {} in flight, {} owed, {} dead letters, {} warnings\n",
        view.delivered_per_s,
        millis(view.latency.p50_us),
        millis(view.latency.p99_us),
        view.inflight,
        view.owed,
        view.dead_letters,
        view.warnings
    );
    for table in [pools(view), queues(view), shards(view), targets(view)] {
        let _ = writeln!(out, "{}", table.text());
    }
    for warning in warnings.iter().filter(|warning| !warning.acknowledged).take(WARNINGS_SHOWN) {
        let severity = format!("{:?}", warning.severity).to_uppercase();
        let (source, message) = (clean(&warning.source), clean(&warning.message));
        let _ =
            writeln!(out, "  {severity:<8} {} {source}: {message} (×{})", warning.code.name(), warning.count);
    }
    out
}

fn pools(view: &View) -> Table {
    let mut table =
        Table::new(&["POOL", ">CALLS", ">LIMIT", ">WAITING", ">ROOM", ">GROUPS", ">/MIN", ">DELIVERED/S"]);
    for pool in &view.pools {
        let code = if pool.draining { format!("{} (draining)", pool.code) } else { pool.code.clone() };
        table.row(&[
            code,
            pool.active.to_string(),
            pool.concurrency.to_string(),
            pool.queued.to_string(),
            pool.capacity.to_string(),
            pool.groups.to_string(),
            pool.rate_limit_per_minute.map_or_else(|| "-".into(), |rate| rate.to_string()),
            format!("{:.0}", pool.delivered_per_s),
        ]);
    }
    table
}

fn queues(view: &View) -> Table {
    let mut table = Table::new(&["QUEUE", "BROKER", "STATE", ">WAITING", ">RECEIVED", ">ACKED", ">BACK"]);
    for queue in &view.queues {
        let state = match (queue.healthy, queue.paused, &queue.error) {
            (false, _, Some(error)) => format!("UNHEALTHY: {error}"),
            (false, _, None) => format!("UNHEALTHY: silent for {:.0} s", queue.since_poll_s),
            (true, true, _) => "paused: no room".into(),
            (true, false, _) => "polling".into(),
        };
        table.row(&[
            queue.name.clone(),
            queue.broker.clone(),
            state,
            queue.depth.map_or_else(|| "-".into(), |depth| depth.to_string()),
            queue.received_total.to_string(),
            queue.acked_total.to_string(),
            queue.nacked_total.to_string(),
        ]);
    }
    table
}

fn shards(view: &View) -> Table {
    let mut table = Table::new(&["SHARD", ">CORE", ">BUSY", ">RING", ">GROUPS", ">CALLS", ">CONNECTIONS"]);
    for shard in &view.shards {
        table.row(&[
            shard.shard.to_string(),
            shard.core.to_string(),
            format!("{:.0} %", shard.busy_ratio * 100.0),
            shard.ring_depth.to_string(),
            shard.groups.to_string(),
            shard.active.to_string(),
            shard.connections.to_string(),
        ]);
    }
    table
}

fn targets(view: &View) -> Table {
    let mut table = Table::new(&["TARGET", "BREAKER", ">CALLS", ">CONNECTIONS", ">ENDED", ">NO ANSWER"]);
    for target in view.targets.iter().take(20) {
        let breaker = match (target.breaker, target.retry_in_ms) {
            (BreakerState::Admitting, _) => "admitting".into(),
            (BreakerState::Probing, _) => "PROBING".into(),
            (BreakerState::Tripped, None) => "TRIPPED".into(),
            (BreakerState::Tripped, Some(left)) => format!("TRIPPED, {} s left", left.div_ceil(1_000)),
        };
        table.row(&[
            target.origin.clone(),
            breaker,
            target.active.to_string(),
            target.connections.to_string(),
            target.calls_total.to_string(),
            target.failures_total.to_string(),
        ]);
    }
    table
}

fn millis(us: u64) -> String {
    format!("{}.{} ms", us / 1_000, us % 1_000 / 100)
}
