//! `corelane seed`: publishes made-up messages through a running router, to try things out.

use std::fmt::Write;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::api::{Api, Reach, encoded};
use super::table::plain;
use crate::admin::seed::{GroupMode, Seeded};

/// Messages asked for at once: small enough that the bar moves.
const STEP: u64 = 5_000;

const EXAMPLES: &str = "\
Examples:
  corelane seed --count 50 --endpoint fast --mode unique    # most parallel
  corelane seed --count 50 --endpoint faulty --mode 1of8    # eight groups, some failures
  corelane seed --count 50 --endpoint http://127.0.0.1:9000/ok --mode single --queue high";

/// Publishes made-up messages through a running router
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// How many messages
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Where they are posted: fast, slow, faulty, fail, throttled (the router's practice targets), or a URL
    #[arg(long, default_value = "fast")]
    endpoint: String,
    /// The queue they are put on (default: the first)
    #[arg(long)]
    queue: Option<String>,
    /// The pool that delivers them (default: the default pool)
    #[arg(long)]
    pool: Option<String>,
    /// How they are spread over groups
    #[arg(long, value_enum, default_value_t)]
    mode: GroupMode,
    #[command(flatten)]
    reach: Reach,
}

/// Publishes all of them, in order.
///
/// # Errors
/// Nothing answers, or the router refuses; what was published before stays published.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let api = Api::new(&args.reach)?;
    let style = ProgressStyle::with_template("{bar:40} {human_pos}/{human_len} {per_sec} {eta}");
    let bar = ProgressBar::new(args.count).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    let mut last = Seeded::default();
    while bar.position() < args.count {
        last = api.post(&path(args, STEP.min(args.count - bar.position())))?;
        bar.inc(last.count);
    }
    bar.finish_and_clear();
    println!(
        "{} messages on queue {}, to {}, groups: {}",
        bar.position(),
        plain(&last.queue),
        plain(&last.target),
        args.mode.name()
    );
    Ok(())
}

fn path(args: &Args, count: u64) -> String {
    let mut path = format!(
        "/api/seed/messages?count={count}&endpoint={}&messageGroupMode={}",
        encoded(&args.endpoint),
        args.mode.name()
    );
    for (name, value) in [("queue", &args.queue), ("pool", &args.pool)] {
        if let Some(value) = value {
            let _ = write!(path, "&{name}={}", encoded(value));
        }
    }
    path
}
