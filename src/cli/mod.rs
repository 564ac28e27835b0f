//! The command line: one file per subcommand, each with its `Args` and a `run`.

pub mod api;
pub mod bench;
pub mod bus;
pub mod check;
pub mod completions;
pub mod cores;
pub mod demo;
pub mod dlq;
pub mod explain;
pub mod flags;
pub mod run;
pub mod seed;
pub mod sink;
pub mod status;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Routes messages from brokers and outboxes to HTTP services, in order per group, on pinned cores.
#[derive(Debug, Parser)]
#[command(name = "corelane", version, about)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(Box<bench::Args>),
    Bus(Box<bus::Args>),
    Check(Box<check::Args>),
    Completions(completions::Args),
    Demo(demo::Args),
    Dlq(Box<dlq::Args>),
    Explain(explain::Args),
    Run(Box<run::Args>),
    Seed(seed::Args),
    Sink(sink::Args),
    Status(status::Args),
}

impl Cli {
    /// Runs the chosen subcommand to its end, and says what the process ends with.
    ///
    /// # Errors
    /// Whatever stopped the subcommand; meant for a person to read.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Bench(args) => bench::run(&args)?,
            Command::Bus(args) => return bus::run(*args),
            Command::Check(args) => return check::run(&args),
            Command::Completions(args) => completions::run(&args),
            Command::Demo(args) => demo::run(&args)?,
            Command::Dlq(args) => dlq::run(&args)?,
            Command::Explain(args) => explain::run(&args)?,
            Command::Run(args) => return run::run(*args),
            Command::Seed(args) => seed::run(&args)?,
            Command::Sink(args) => sink::run(&args)?,
            Command::Status(args) => status::run(&args)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
