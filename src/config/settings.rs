//! What can be set, as checked values. `Default` is the router document's and our own defaults; `default.toml`
//! says the same in words, and a test holds them together.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use shards::model::{CourierTuning, DeskTuning, ShardTuning};
use shards::placement::Wishes;
use shards::wire::probe::Io;

use crate::secret::Secret;
use crate::topology::Topology;

/// Everything that `corelane run` needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `false`: start, serve the admin API, consume nothing.
    pub enabled: bool,
    /// Cores and wire.
    pub engine: EngineSettings,
    /// HTTP to targets.
    pub courier: CourierTuning,
    /// Retries and breakers.
    pub shard: ShardTuning,
    /// What is held in memory. Its `hash_key` is not a setting: whoever starts the desk makes a random one.
    pub desk: DeskTuning,
    /// The admin API.
    pub admin: AdminSettings,
    /// Config sync.
    pub sync: SyncSettings,
    /// SQS clients.
    pub sqs: SqsSettings,
    /// Most pools.
    pub pools_max: usize,
    /// From this number of pools on there is a warning.
    pub pools_warn_at: usize,
    /// Local pools and queues.
    pub topology: Topology,
    /// The dead-letter store; relative to the working directory.
    pub dead_letters: PathBuf,
    /// Where the cache of the last good config and other markers live.
    pub data_dir: PathBuf,
    /// How consumers are watched.
    pub health: HealthSettings,
    /// From the first signal to the end of the process, at most.
    pub grace: Duration,
    /// A warning is forgotten after this.
    pub warnings_expire: Duration,
    /// Logs.
    pub log: LogSettings,
    /// Values that one label of a metric may take; the rest is counted together.
    pub label_values_max: usize,
}

/// Cores and wire.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Which cores.
    pub wishes: Wishes,
    /// How bytes are moved.
    pub io: Io,
    /// How long threads look for work before they sleep.
    pub spin: Duration,
    /// Pin threads to their cores.
    pub pin: bool,
}

/// The admin API.
#[derive(Clone, Debug)]
pub struct AdminSettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// What a client must bring; always set where `listen` is not a loopback address.
    pub token: Option<Secret>,
    /// Host names that requests may be addressed to, besides loopback's.
    pub hosts: Vec<String>,
}

/// Config sync.
#[derive(Clone, Debug)]
pub struct SyncSettings {
    /// Where the platform's document is; `None` = the local file rules. A secret, since it may hold a password.
    pub url: Option<Secret>,
    /// Bearer token for it.
    pub token: Option<Secret>,
    /// From one sync to the next.
    pub interval: Duration,
    /// Tries per sync.
    pub attempts: u32,
    /// Between two tries.
    pub pause: Duration,
    /// Before the first sync.
    pub first_delay: Duration,
    /// Of one try, connecting included.
    pub timeout: Duration,
    /// Largest document.
    pub body_bytes_max: usize,
    /// The last good document is kept here. Absolute, or under the data directory.
    pub cache: PathBuf,
    /// Where the first sync fails, start from the cache instead of ending.
    pub start_from_cache: bool,
    /// Let a document remove more than 30 % of the pools or queues.
    pub allow_mass_removal: bool,
}

/// How consumers are watched.
#[derive(Clone, Copy, Debug)]
pub struct HealthSettings {
    /// From one check to the next.
    pub interval: Duration,
    /// A consumer that was not polled for this long, and not paused by us, is restarted.
    pub poll_age_max: Duration,
}

/// SQS clients.
#[derive(Clone, Debug)]
pub struct SqsSettings {
    /// Messages asked for in one receive, 1 to 10.
    pub messages_per_poll: u8,
    /// Long poll.
    pub wait: Duration,
    /// Speak to this URL instead of AWS.
    pub endpoint: Option<String>,
    /// Pause after a receive that was not full.
    pub partial_batch_pause: Duration,
}

/// Logs.
#[derive(Clone, Debug)]
pub struct LogSettings {
    /// What is logged: a level, or a filter such as `info,corelane::sync=debug`.
    pub filter: String,
    /// How a line looks.
    pub format: LogFormat,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// Text.
    Text,
    /// One JSON object per line.
    Json,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            engine: EngineSettings {
                wishes: Wishes::default(),
                io: Io::Auto,
                spin: Duration::ZERO,
                pin: true,
            },
            courier: CourierTuning::default(),
            shard: ShardTuning::default(),
            desk: DeskTuning::default(),
            admin: AdminSettings {
                listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
                token: None,
                hosts: Vec::new(),
            },
            sync: SyncSettings::default(),
            sqs: SqsSettings {
                messages_per_poll: 10,
                wait: Duration::from_secs(20),
                endpoint: None,
                partial_batch_pause: Duration::ZERO,
            },
            pools_max: 10_000,
            pools_warn_at: 5_000,
            topology: Topology::default(),
            dead_letters: "corelane-dead.db".into(),
            data_dir: ".".into(),
            health: HealthSettings {
                interval: Duration::from_secs(60),
                poll_age_max: Duration::from_secs(60),
            },
            grace: Duration::from_secs(35),
            warnings_expire: Duration::from_secs(8 * 3600),
            log: LogSettings { filter: "info".into(), format: LogFormat::Auto },
            label_values_max: 1_000,
        }
    }
}

impl Default for SyncSettings {
    fn default() -> Self {
        Self {
            url: None,
            token: None,
            interval: Duration::from_secs(300),
            attempts: 12,
            pause: Duration::from_secs(5),
            first_delay: Duration::from_secs(2),
            timeout: Duration::from_secs(10),
            body_bytes_max: 8 << 20,
            cache: "corelane-config.json".into(),
            start_from_cache: true,
            allow_mass_removal: false,
        }
    }
}

impl Settings {
    /// Where the last good document is kept.
    #[must_use]
    pub fn cache_file(&self) -> PathBuf {
        self.data_dir.join(&self.sync.cache)
    }
}
