//! Arguments → a command. The only exit.

use clap::Parser;
use corelane::cli::Cli;

fn main() -> anyhow::Result<()> {
    Cli::parse().run()
}
