//! The texts that settings are read from, and the thin edge that gathers them.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::entries::{pool_flag, queue_flag};
use super::error::{ConfigError, Place};
use super::file::{Given, Parsed};

/// The file that is read where no other is named.
pub const FILE_DEFAULT: &str = "corelane.toml";
/// Largest config file: ten thousand pools fit many times.
pub const FILE_BYTES_MAX: u64 = 16 << 20;

/// What settings are read from. Any of it may be a secret, so that `Debug` shows none of it.
#[derive(Clone, Default)]
pub struct Sources {
    /// The config file's path and text.
    pub file: Option<(PathBuf, String)>,
    /// Environment variables.
    pub env: Vec<(String, String)>,
    /// Flags that set a key: flag, key, value. A later one wins.
    pub flags: Vec<(String, String, String)>,
    /// `--set KEY=VALUE`. The flags above win over them.
    pub sets: Vec<String>,
    /// `--queue NAME=URI`.
    pub queues: Vec<String>,
    /// `--pool CODE=CONCURRENCY[,RATE/min]`.
    pub pools: Vec<String>,
}

impl fmt::Debug for Sources {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Sources").finish_non_exhaustive()
    }
}

impl Sources {
    /// Reads the file (`named`, or [`FILE_DEFAULT`] where it exists) and the environment.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn gather(named: Option<&Path>) -> Result<Self, ConfigError> {
        let file = match named {
            Some(path) => Some((path.to_owned(), read(path)?)),
            None if Path::new(FILE_DEFAULT).exists() => {
                Some((FILE_DEFAULT.into(), read(Path::new(FILE_DEFAULT))?))
            }
            None => None,
        };
        // A name or value that is not UTF-8 can be no setting of ours.
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Ok(Self { file, env: std::env::vars_os().filter_map(text).collect(), ..Self::default() })
    }

    /// What the flags give.
    pub(super) fn flags(&self) -> Parsed {
        let mut parsed = Parsed::default();
        for text in &self.sets {
            let place = Place::Flag("--set".into());
            if let Some((key, text)) = text.split_once('=') {
                parsed.values.push(Given { key: key.trim().into(), text: text.into(), place });
            } else {
                let problem = "has no `=`; write KEY=VALUE, memory.budget=1GiB";
                parsed.errors.push(ConfigError::new(&place, "--set", problem));
            }
        }
        for (flag, key, text) in &self.flags {
            let place = Place::Flag(flag.clone());
            parsed.values.push(Given { key: key.clone(), text: text.clone(), place });
        }
        let queues = self.queues.iter().map(|text| queue_flag(text));
        for entry in queues.chain(self.pools.iter().map(|text| pool_flag(text))) {
            match entry {
                Ok(entry) => parsed.entries.push(entry),
                Err(error) => parsed.errors.push(error),
            }
        }
        parsed
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let place = Place::File { path: path.to_owned(), line: 0 };
    let wrong = |problem: String| ConfigError::new(&place, "--config", problem);
    let unreadable = |error: io::Error| {
        let what = match error.kind() {
            io::ErrorKind::NotFound => "is not there; name another file with --config".to_owned(),
            io::ErrorKind::InvalidData => "is not UTF-8 text; save it as such".to_owned(),
            _ => format!("can't be read: {error}"),
        };
        wrong(what)
    };
    let file = File::open(path).map_err(unreadable)?;
    let mut text = String::new();
    let count = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if count as u64 > FILE_BYTES_MAX {
        return Err(wrong(format!("is larger than {} MiB", FILE_BYTES_MAX >> 20)));
    }
    Ok(text)
}
