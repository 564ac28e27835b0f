//! The last good config on disk, so that a restart finds it while the platform is away. What is kept is what ran, in
//! the platform's own layout: entries that a bad document kept alive are in it too.
//!
//! - Y5: at every moment the file is a whole document or not there: written aside, synced, renamed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thiserror::Error;

use super::document::{self, DocumentError, PoolLimits};
use crate::secret::{Secret, without_credentials};
use crate::topology::{PoolEntry, QueueEntry, Topology};

/// Layout of the file. Another number is another program's.
const LAYOUT: u32 = 1;
/// What the cache holds besides the document.
const FRAME_BYTES_MAX: usize = 4 << 10;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    layout: u32,
    /// Where it was fetched, without credentials.
    url: String,
    fetched_unix_s: u64,
    document: Value,
}

/// A config from the cache.
#[derive(Clone, Debug)]
pub struct Cached {
    /// What ran.
    pub topology: Topology,
    /// When it was fetched, in seconds since 1970.
    pub fetched_unix_s: u64,
}

/// Why the cache can't be used. Nothing is lost: the next good sync writes it anew.
#[derive(Debug, Error)]
pub enum CacheError {
    /// Reading or writing failed; the operator looks at the directory.
    #[error("use the config cache {path}: {source}; check sync.cache and data-dir")]
    Io {
        /// Which file.
        path: PathBuf,
        /// How.
        source: io::Error,
    },
    /// Not written by this version, or damaged.
    #[error("the config cache {path} can't be read: {source}; remove it, the next sync writes it anew")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// How.
        source: serde_json::Error,
    },
    /// It came from another platform.
    #[error("the config cache {path} is from {from}, not from this platform; remove it if it is of no use")]
    Foreign {
        /// Which file.
        path: PathBuf,
        /// Where it came from.
        from: String,
    },
    /// Its document is refused.
    #[error("the config cache {path}: {source}")]
    Document {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: DocumentError,
    },
}

/// Keeps a config that was put into effect. Blocks for a disk sync. The file can be read by its owner alone, since
/// queue URIs may hold passwords.
///
/// # Errors
/// The directory can't be written; the file that was there is still whole.
pub fn write(path: &Path, url: &Secret, topology: &Topology, fetched_unix_s: u64) -> Result<(), CacheError> {
    let url = without_credentials(url.reveal());
    let kept = Kept { layout: LAYOUT, url, fetched_unix_s, document: layout(topology) };
    let damaged = |source| CacheError::Damaged { path: path.to_owned(), source };
    let text = serde_json::to_vec(&kept).map_err(damaged)?;
    put(path, &text).map_err(|source| CacheError::Io { path: path.to_owned(), source })
}

/// The platform's layout, with whatever passwords the URIs hold.
fn layout(topology: &Topology) -> Value {
    let pool = |pool: &PoolEntry| {
        json!({
            "code": pool.code,
            "concurrency": pool.spec.concurrency,
            "rateLimitPerMinute": pool.spec.rate_per_minute,
        })
    };
    let queue = |queue: &QueueEntry| {
        json!({
            "queueName": queue.name,
            "queueUri": queue.uri.reveal(),
            "connections": queue.connections,
            "visibilityTimeout": queue.visibility.map(|lease| lease.as_secs()),
        })
    };
    json!({
        "processingPools": topology.pools.iter().map(pool).collect::<Vec<_>>(),
        "queues": topology.queues.iter().map(queue).collect::<Vec<_>>(),
    })
}

fn put(path: &Path, text: &[u8]) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let aside = directory.join(name);
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&aside, path)
    };
    write().inspect_err(|_| drop(fs::remove_file(&aside)))?;
    // Without this a crash may bring the old name back.
    File::open(directory)?.sync_all()
}

/// Reads it, if there is one. `body_bytes_max` is the bound of a document.
///
/// # Errors
/// There is one and it can't be used.
pub fn read(
    path: &Path,
    url: &Secret,
    body_bytes_max: usize,
    limits: PoolLimits,
) -> Result<Option<Cached>, CacheError> {
    let failed = |source| CacheError::Io { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    // A running config may be larger than the document that made it, by the entries that were kept alive.
    let max = body_bytes_max.saturating_mul(2).saturating_add(FRAME_BYTES_MAX) as u64;
    let mut text = Vec::new();
    // A longer file is cut here and then refused as damaged.
    file.take(max).read_to_end(&mut text).map_err(failed)?;
    let damaged = |source| CacheError::Damaged { path: path.to_owned(), source };
    let kept: Kept = serde_json::from_slice(&text).map_err(damaged)?;
    if kept.layout != LAYOUT {
        return Err(damaged(serde::de::Error::custom(format!(
            "its layout is {}, not {LAYOUT}",
            kept.layout
        ))));
    }
    if kept.url != without_credentials(url.reveal()) {
        return Err(CacheError::Foreign { path: path.to_owned(), from: kept.url });
    }
    let whole = serde_json::to_vec(&kept.document).map_err(damaged)?;
    match document::read(&whole) {
        Ok(document) => {
            let (topology, _) = document.over(&Topology::default(), limits);
            Ok(Some(Cached { topology, fetched_unix_s: kept.fetched_unix_s }))
        }
        Err(source) => Err(CacheError::Document { path: path.to_owned(), source }),
    }
}
