//! `corelane run`: the router.

use std::process::ExitCode;

use super::flags::RunFlags;
use crate::app;
use crate::config::{LogFormat, Settings};
use crate::telemetry::log::{self, Shape};

const EXAMPLES: &str = "\
Examples:
  corelane run                                   # a queue in corelane.db, dashboard on 127.0.0.1:8080
  corelane run --config router.toml
  corelane run --pool EMAIL=50,600/min --queue orders=sqlite:orders.db
  corelane run --config-url https://platform.example/router --shards 6 --shard-cores 2-7
Ends with 0 when all was given back, 1 when it could not start or had no config, 2 when the config is wrong,
3 when time ran out while ending, 130 on a second signal. SIGHUP reads the config again.";

/// Routes messages: from queues, in order per group, to HTTP services
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    flags: RunFlags,
}

impl Args {
    /// As another command asks for it.
    pub(super) const fn new(flags: RunFlags) -> Self {
        Self { flags }
    }
}

/// Runs until it is told to end.
///
/// # Errors
/// It can't run here as configured.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (settings, provenance) = match load(&args.flags) {
        Ok(loaded) => loaded,
        Err(text) => {
            eprintln!("{text}\nnothing was started; `corelane check` shows the whole configuration");
            return Ok(ExitCode::from(app::EXIT_CONFIG));
        }
    };
    let shape = match settings.log.format {
        LogFormat::Auto => Shape::Auto,
        LogFormat::Text => Shape::Text,
        LogFormat::Json => Shape::Json,
    };
    log::start(&settings.log.filter, shape).map_err(anyhow::Error::msg)?;
    for notice in &provenance.notices {
        tracing::info!("{notice}");
    }
    let flags = args.flags;
    let reload = move || load(&flags).map(|(settings, _)| settings);
    app::run(settings, &provenance, Box::new(reload))
}

fn load(flags: &RunFlags) -> Result<(Settings, crate::config::Provenance), String> {
    let loaded = flags.sources().map_err(|error| vec![error]).and_then(|sources| Settings::load(&sources));
    loaded.map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}
