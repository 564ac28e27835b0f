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

pub use error::{ConfigError, Notice, Place};
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
    pub place: Place,
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
        load.take(file::parse(Path::new("default.toml"), DEFAULT_TOML), Some(&Place::Default));
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

impl Provenance {
    /// Keys whose value is another one in `newer`, after a reload. Pools and queues are left out, and a secret that
    /// changed is not noticed.
    #[must_use]
    pub fn changed_keys(&self, newer: &Self) -> Vec<&'static str> {
        let value = |rows: &[Row], name: &str| {
            rows.iter().find(|row| row.key == name).map(|row| row.value.clone()).unwrap_or_default()
        };
        let is_changed = |name: &&str| value(&self.settings, name) != value(&newer.settings, name);
        keys().iter().map(|key| key.name).filter(is_changed).collect()
    }
}

/// Settings on the way.
#[derive(Default)]
struct Load {
    settings: Settings,
    shown: BTreeMap<&'static str, (String, Place)>,
    entries: Vec<file::GivenEntry>,
    errors: Vec<ConfigError>,
    notices: Vec<Notice>,
}

impl Load {
    fn take(&mut self, parsed: Parsed, place: Option<&Place>) {
        self.errors.extend(parsed.errors);
        self.values(parsed.values, place);
        self.entries.extend(parsed.entries);
    }

    /// Sets each value; `place` stands for the values' own where it is given.
    fn values(&mut self, values: Vec<Given>, place: Option<&Place>) {
        let mut before: BTreeMap<&str, Place> = BTreeMap::new();
        for Given { key: written, text, place: own } in values {
            let place = place.unwrap_or(&own);
            let Some(key) = keys::find(&written) else {
                self.unknown(&written, place);
                continue;
            };
            if let (Some(first), Place::File { .. }) = (before.insert(key.name, own.clone()), place) {
                let problem = format!("stands at {first} already; take one of the two away");
                self.errors.push(ConfigError::new(place, &written, problem));
            }
            match key.set(&mut self.settings, text.trim()) {
                Ok(()) => drop(self.shown.insert(key.name, (key.show(text.trim()), place.clone()))),
                Err(problem) => self.errors.push(ConfigError::new(place, key.name, problem)),
            }
        }
    }

    fn unknown(&mut self, written: &str, place: &Place) {
        if keys::is_for_later(written) {
            self.notices.push(ConfigError::new(place, written, "is not used by this version"));
            return;
        }
        let hint = match meant(written, keys().iter().map(|key| key.name)) {
            hint if hint.is_empty() => "; `corelane check` lists all keys".to_owned(),
            hint => hint,
        };
        self.errors.push(ConfigError::new(place, written, format!("is no setting{hint}")));
    }

    fn finish(mut self) -> Result<(Settings, Provenance), Vec<ConfigError>> {
        let Local { topology, mut places } =
            entries::read_all(&self.entries, self.settings.pools_max, &mut self.errors);
        self.settings.topology = topology;
        let shown = &self.shown;
        let place_of = |key: &str| shown.get(key).map_or(Place::Default, |(_, place)| place.clone());
        check::check(&self.settings, &place_of, &mut self.errors);
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        self.notices.extend(check::notices(&self.settings, &place_of));
        if self.settings.topology.queues.is_empty() && self.settings.sync.url.is_none() {
            let queue = entries::default_queue();
            places.insert(("queue", queue.name.clone()), Place::Default);
            self.settings.topology.queues.push(queue);
        }
        let mut settings = Vec::new();
        for key in keys() {
            let (value, place) = self.shown.remove(key.name).unwrap_or((String::new(), Place::Default));
            settings.push(Row { key: key.name.to_owned(), value, place });
        }
        let mut entry = |kind: &'static str, name: &str, value: String| {
            let place = places.get(&(kind, name.to_owned())).cloned().unwrap_or(Place::Default);
            settings.push(Row { key: format!("{kind}.{name}"), value, place });
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
