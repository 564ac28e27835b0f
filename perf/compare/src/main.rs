//! Sets corelane's figures beside the budgets: each taken by a command that anyone can repeat, ratios
//! from interleaved rounds of one run, everything written to a folder of its own.

mod checks;
mod memory;
mod run;
mod write;

use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;

use checks::Check;
use run::Lab;

/// Runs the yardstick, corelane and the baseline interleaved; prints figures beside their budgets
#[derive(Debug, Parser)]
#[command(after_help = "\
Examples:
  compare                              # all checks, about 6 minutes
  compare --only cpu --rounds 7
  compare --only slow --seconds 60 --out perf/runs/mine")]
struct Args {
    /// Folder of the release programs
    #[arg(long, default_value = "target/release")]
    bin: PathBuf,
    /// Interleaved rounds of the ratio checks
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measured window
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Seconds of the long runs: 100 ms target, soak
    #[arg(long, default_value_t = 60)]
    long_seconds: u64,
    /// Only these: cpu, slow, engine, latency, groups, memory, drain
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Write raw data and a report here
    #[arg(long)]
    out: Option<PathBuf>,
    /// Internal: hold so many messages in so many groups and print the memory in use
    #[arg(long, hide = true)]
    memory_probe: Option<u64>,
}

/// Takes one budget's figures.
type Measure = fn(&Lab) -> anyhow::Result<Vec<Check>>;

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if let Some(groups) = args.memory_probe {
        return memory::probe(groups);
    }
    let lab =
        Lab { bin: args.bin.clone(), rounds: args.rounds, seconds: args.seconds, long: args.long_seconds };
    let all: [(&str, Measure); 7] = [
        ("cpu", checks::cpu),
        ("slow", checks::slow),
        ("engine", checks::engine),
        ("latency", checks::latency),
        ("groups", checks::groups),
        ("memory", checks::memory),
        ("drain", checks::drain),
    ];
    let mut found = Vec::new();
    for (name, check) in all {
        if args.only.is_empty() || args.only.iter().any(|only| only == name) {
            eprintln!("== {name}");
            found.extend(check(&lab).with_context(|| format!("run the check {name}"))?);
        }
    }
    let report = write::report(&found);
    println!("{report}");
    if let Some(out) = &args.out {
        write::folder(out, &report, &found).context("write the run's folder")?;
        eprintln!("written to {}", out.display());
    }
    Ok(())
}
