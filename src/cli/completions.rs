//! `corelane completions`: what a shell needs to complete our commands.

use std::io;

use clap::CommandFactory;
use clap_complete::Shell;

const EXAMPLES: &str = "\
Examples:
  corelane completions bash > ~/.local/share/bash-completion/completions/corelane
  corelane completions zsh > ~/.zfunc/_corelane
  corelane completions fish > ~/.config/fish/completions/corelane.fish";

/// Prints completions for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Which shell
    shell: Shell,
}

/// Prints them.
pub fn run(args: &Args) {
    let mut command = super::Cli::command();
    clap_complete::generate(args.shell, &mut command, "corelane", &mut io::stdout());
}
