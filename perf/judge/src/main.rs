//! `judge --published FILE --answered FILE`: the verdict as JSON; exit 1 if a promise was broken.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;

/// Judges a run from its logs: lost, out of order, duplicated
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Example:\n  judge --published sent.log --answered sink.log --duplicates-max 128"
)]
struct Args {
    /// The publisher's log: `time⇥sent⇥id⇥group`, then `time⇥kept⇥id`
    #[arg(long)]
    published: PathBuf,
    /// The sink's log (`corelane sink --log`)
    #[arg(long)]
    answered: PathBuf,
    /// Ids that were set aside, one per line
    #[arg(long)]
    set_aside: Option<PathBuf>,
    /// Duplicates that are allowed: the calls that were in flight at each kill
    #[arg(long, default_value_t = 0)]
    duplicates_max: usize,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let read =
        |path: &PathBuf| std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()));
    let aside = args.set_aside.as_ref().map(read).transpose()?.unwrap_or_default();
    let verdict = judge::judge(&read(&args.published)?, &read(&args.answered)?, &aside)?;
    println!("{}", serde_json::to_string(&verdict)?);
    Ok(if verdict.is_good(args.duplicates_max) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
