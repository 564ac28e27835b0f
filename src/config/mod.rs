//! Settings from defaults < file < environment < flags, checked all at once. `app` and `corelane check` read
//! them here; everyone else receives checked specs.
//!
//! A key is one row of `keys/table.rs`. [`Sources`] holds the texts, [`Settings::load`] is pure: it gives the
//! settings and where each came from, or every problem. To add a key: a field in `settings.rs`, a row in the
//! table, a line in `default.toml` and one in `docs/CONFIG.md`; tests ask for all four.

mod check;
mod entries;
mod env;
mod error;
mod file;
mod keys;
mod read;
mod settings;
mod source;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

pub use error::{ConfigError, Notice, Origin};
pub use keys::{Key, keys};
pub use settings::{
    AdminSettings, EngineSettings, LogFormat, LogSettings, Settings, SqsSettings, SyncSettings,
};
pub use source::{FILE_BYTES_MAX, FILE_DEFAULT, Sources};

use entries::Local;
use error::meant;
use file::{Given, Parsed};

/// The reference of every key, with its default.
pub const DEFAULT_TOML: &str = include_str!("default.toml");

/// One effective value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The key, `pool.CODE` or `queue.NAME`.
    pub key: String,
    /// As it may be seen; empty = unset.
    pub value: String,
    /// Where it came from.
    #[serde(rename = "from")]
    pub origin: Origin,
}

/// Every effective value and where it came from. Holds no secret, so that it may be shown and served.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Provenance {
    /// Keys in the order of the reference, then pools, then queues.
    pub settings: Vec<Row>,
    /// What is ignored or may surprise.
    pub notices: Vec<Notice>,
}

impl Settings {
    /// Puts the sources on top of each other and checks the result.
    ///
    /// # Errors
    /// Every problem of every source.
    pub fn load(sources: &Sources) -> Result<(Self, Provenance), Vec<ConfigError>> {
        let mut load = Load::default();
        load.take(file::parse(Path::new("default.toml"), DEFAULT_TOML), Some(&Origin::Default));
        if let Some((path, text)) = &sources.file {
            load.take(file::parse(path, text), None);
        }
        let (given, notices) = env::read(&sources.env);
        load.notices.extend(notices);
        load.values(given, None);
        load.take(sources.flags(), None);
        load.finish()
    }
}

/// Settings on the way.
#[derive(Default)]
struct Load {
    settings: Settings,
    shown: BTreeMap<&'static str, (String, Origin)>,
    entries: Vec<file::GivenEntry>,
    errors: Vec<ConfigError>,
    notices: Vec<Notice>,
}

impl Load {
    fn take(&mut self, parsed: Parsed, origin: Option<&Origin>) {
        self.errors.extend(parsed.errors);
        self.values(parsed.values, origin);
        self.entries.extend(parsed.entries);
    }

    /// Sets each value; `origin` stands for the values' own where it is given.
    fn values(&mut self, values: Vec<Given>, origin: Option<&Origin>) {
        let mut before: BTreeMap<&str, Origin> = BTreeMap::new();
        for Given { key: written, text, origin: own } in values {
            let origin = origin.unwrap_or(&own);
            let Some(key) = keys::find(&written) else {
                self.unknown(&written, origin);
                continue;
            };
            if let (Some(first), Origin::File { .. }) = (before.insert(key.name, own.clone()), origin) {
                let problem = format!("stands at {first} already; take one of the two away");
                self.errors.push(ConfigError::new(origin, &written, problem));
            }
            match key.set(&mut self.settings, text.trim()) {
                Ok(()) => drop(self.shown.insert(key.name, (key.show(text.trim()), origin.clone()))),
                Err(problem) => self.errors.push(ConfigError::new(origin, key.name, problem)),
            }
        }
    }

    fn unknown(&mut self, written: &str, origin: &Origin) {
        if keys::is_for_later(written) {
            self.notices.push(ConfigError::new(origin, written, "is not used by this version"));
            return;
        }
        let hint = match meant(written, keys().iter().map(|key| key.name)) {
            hint if hint.is_empty() => "; `corelane check` lists all keys".to_owned(),
            hint => hint,
        };
        self.errors.push(ConfigError::new(origin, written, format!("is no setting{hint}")));
    }

    fn finish(mut self) -> Result<(Settings, Provenance), Vec<ConfigError>> {
        let Local { topology, mut origins } =
            entries::read_all(&self.entries, self.settings.pools_max, &mut self.errors);
        self.settings.topology = topology;
        let shown = &self.shown;
        let origin_of = |key: &str| shown.get(key).map_or(Origin::Default, |(_, origin)| origin.clone());
        check::check(&self.settings, &origin_of, &mut self.errors);
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        self.notices.extend(check::notices(&self.settings, &origin_of));
        if self.settings.topology.queues.is_empty() && self.settings.sync.url.is_none() {
            let queue = entries::default_queue();
            origins.insert(("queue", queue.name.clone()), Origin::Default);
            self.settings.topology.queues.push(queue);
        }
        let mut settings = Vec::new();
        for key in keys() {
            let (value, origin) = self.shown.remove(key.name).unwrap_or((String::new(), Origin::Default));
            settings.push(Row { key: key.name.to_owned(), value, origin });
        }
        let mut entry = |kind: &'static str, name: &str, value: String| {
            let origin = origins.get(&(kind, name.to_owned())).cloned().unwrap_or(Origin::Default);
            settings.push(Row { key: format!("{kind}.{name}"), value, origin });
        };
        for pool in &self.settings.topology.pools {
            entry("pool", &pool.code, pool.to_string());
        }
        for queue in &self.settings.topology.queues {
            entry("queue", &queue.name, queue.to_string());
        }
        Ok((self.settings, Provenance { settings, notices: self.notices }))
    }
}
