//! The flags that `corelane run` and `corelane check` share, as sources of settings.

use std::fmt;
use std::path::PathBuf;

use clap::ArgAction;

use crate::config::{ConfigError, Sources};

/// Flags that set something. They win over the environment and the file.
#[derive(Clone, Default, clap::Args)]
pub struct RunFlags {
    /// Config file (default: corelane.toml in the working directory, if it is there)
    #[arg(long, value_name = "FILE", env = "CORELANE_CONFIG")]
    config: Option<PathBuf>,
    /// Shards (default: 1 on one or two cores, else one per core left)
    #[arg(long, value_name = "N")]
    shards: Option<String>,
    /// Core of the ingress thread
    #[arg(long, value_name = "N")]
    ingress_core: Option<String>,
    /// Cores of the shards, such as 1 or 2-7
    #[arg(long, value_name = "LIST")]
    shard_cores: Option<String>,
    /// How bytes are moved: auto, uring, glommio or epoll
    #[arg(long, value_name = "WIRE")]
    io: Option<String>,
    /// How long threads look for work before they sleep, in microseconds
    #[arg(long, value_name = "N")]
    spin_us: Option<u32>,
    /// Where the admin API and dashboard listen; anything but loopback needs a token
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Consume this queue (repeatable), such as orders=sqlite:orders.db
    #[arg(long, value_name = "NAME=URI")]
    queue: Vec<String>,
    /// A pool (repeatable), such as ORDERS=20 or ORDERS=20,600/min
    #[arg(long, value_name = "CODE=CONCURRENCY[,RATE/min]")]
    pool: Vec<String>,
    /// Fetch pools and queues from this URL
    #[arg(long, value_name = "URL")]
    config_url: Option<String>,
    /// Let a fetched config remove more than 30 % of the pools or queues
    #[arg(long, action = ArgAction::SetTrue)]
    allow_mass_removal: bool,
    /// From the first signal to the end of the process, such as 35s
    #[arg(long, value_name = "DURATION")]
    grace: Option<String>,
    /// What is logged: a level, or a filter such as info,corelane=debug
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// How a log line looks: auto, text or json
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Any setting (repeatable), such as memory.budget=1GiB; `corelane check` lists them
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Read no config file.
    #[arg(skip)]
    alone: bool,
}

impl fmt::Debug for RunFlags {
    /// Only the file: any other flag may hold a secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RunFlags").field("config", &self.config).finish_non_exhaustive()
    }
}

impl RunFlags {
    /// One queue with its pool, and no config file.
    #[must_use]
    pub(super) fn alone(queue: String, pool: String) -> Self {
        Self { queue: vec![queue], pool: vec![pool], alone: true, ..Self::default() }
    }

    /// Where the admin API listens.
    #[must_use]
    pub(super) fn listening(mut self, listen: Option<String>) -> Self {
        self.listen = listen;
        self
    }

    /// How long an end may take.
    #[must_use]
    pub(super) fn within(mut self, grace: Option<String>) -> Self {
        self.grace = grace;
        self
    }

    /// What is logged, and how.
    #[must_use]
    pub(super) fn logging(mut self, filter: Option<String>, format: Option<String>) -> Self {
        (self.log, self.log_format) = (filter, format);
        self
    }

    /// Any settings.
    #[must_use]
    pub(super) fn setting(mut self, set: Vec<String>) -> Self {
        self.set = set;
        self
    }

    /// The config file, the environment and these flags.
    ///
    /// # Errors
    /// The config file can't be read.
    pub fn sources(&self) -> Result<Sources, ConfigError> {
        let mut sources = Sources::gather(self.config.as_deref())?;
        if self.alone {
            sources.file = None;
        }
        sources.flags = self.keys();
        sources.sets.clone_from(&self.set);
        sources.queues.clone_from(&self.queue);
        sources.pools.clone_from(&self.pool);
        Ok(sources)
    }

    /// Flag, key and value.
    fn keys(&self) -> Vec<(String, String, String)> {
        let mut keys = Vec::new();
        let mut put = |flag: &str, key: &str, value: Option<String>| {
            keys.extend(value.map(|value| (flag.to_owned(), key.to_owned(), value)));
        };
        put("--shards", "engine.shards", self.shards.clone());
        put("--ingress-core", "engine.ingress-core", self.ingress_core.clone());
        put("--shard-cores", "engine.shard-cores", self.shard_cores.clone());
        put("--io", "engine.io", self.io.clone());
        put("--spin-us", "engine.spin", self.spin_us.map(|count| format!("{count}us")));
        put("--listen", "admin.listen", self.listen.clone());
        put("--config-url", "message-router.config-url", self.config_url.clone());
        let allowed = self.allow_mass_removal.then(|| "true".to_owned());
        put("--allow-mass-removal", "sync.allow-mass-removal", allowed);
        put("--grace", "shutdown.grace", self.grace.clone());
        put("--log", "log.filter", self.log.clone());
        put("--log-format", "log.format", self.log_format.clone());
        keys
    }
}
