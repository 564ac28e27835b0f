//! The command line: one file per subcommand, each with its `Args` and a `run`.

pub mod api;
pub mod bench;
pub mod cores;
pub mod demo;
pub mod explain;
pub mod seed;
pub mod sink;
pub mod status;
mod table;

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
    Demo(demo::Args),
    Explain(explain::Args),
    Seed(seed::Args),
    Sink(sink::Args),
    Status(status::Args),
}

impl Cli {
    /// Runs the chosen subcommand to its end.
    ///
    /// # Errors
    /// Whatever stopped the subcommand; meant for a person to read.
    pub fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Bench(args) => bench::run(&args),
            Command::Demo(args) => demo::run(&args),
            Command::Explain(args) => explain::run(&args),
            Command::Seed(args) => seed::run(&args),
            Command::Sink(args) => sink::run(&args),
            Command::Status(args) => status::run(&args),
        }
    }
}
