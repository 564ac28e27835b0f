//! Arguments → a command. The only exit.

use std::process::ExitCode;

use clap::Parser;
use corelane::cli::Cli;

fn main() -> anyhow::Result<ExitCode> {
    Cli::parse().run()
}
