//! Config sync: the platform's document, fetched, compared with what runs and kept on disk. Pieces for `app`, which
//! owns the clock, the running topology and the warnings.
//!
//! At start, after `sync.first_delay`:
//! ```text
//! let cached  = cache::read(&settings.cache_file(), url, sync.body_bytes_max, limits);   // on Err: warn, None
//! let fetched = fetch(sync, url, |failed| warn).await;
//! match begin(fetched, cached, sync, limits) {
//!     Begin::Fresh(accepted)          → apply accepted.changes, cache::write(…, &accepted.topology, …), warn of
//!                                       accepted.problems
//!     Begin::FromCache(accepted, why) → apply; CONFIG_SYNC_FAILED, warn: why
//!     Begin::Stop(why)                → CONFIG_SYNC_FAILED, critical: why; exit 1
//! }
//! ```
//! Every `sync.interval` after that: `fetch`, then [`accept`] over the running topology, apply and `cache::write`; on an
//! error `CONFIG_SYNC_FAILED`, warn, and nothing changes. One sync at a time: the caller awaits one before the next.
//! `cache::write` blocks for a disk sync: call it where that does no harm. SIGHUP without a URL: `Settings::load` again,
//! [`diff::diff`], [`diff::Changes::guard`].

pub mod cache;
pub mod diff;
pub mod document;
pub mod fetch;

use thiserror::Error;

use crate::config::{Settings, SyncSettings};
use crate::topology::Topology;
use cache::Cached;
use diff::{Changes, MassRemoval};
use document::{Document, PoolLimits, Problem};
use fetch::{FetchError, Fetched};

/// What to put into effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// All that runs once the changes are made.
    pub topology: Topology,
    /// What leads there.
    pub changes: Changes,
    /// What is wrong with single entries.
    pub problems: Vec<Problem>,
}

/// How to start.
#[derive(Debug)]
pub enum Begin {
    /// From the platform's document. Keep it with `cache::write`.
    Fresh(Box<Accepted>),
    /// From the last good document, because of this.
    FromCache(Box<Accepted>, SyncError),
    /// Not at all.
    Stop(SyncError),
}

/// Why a sync changed nothing.
#[derive(Debug, Error)]
pub enum SyncError {
    /// No document.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// A document that removes too much.
    #[error("the config is refused: {0}")]
    MassRemoval(#[from] MassRemoval),
}

/// How many pools a document may list.
#[must_use]
pub const fn pool_limits(settings: &Settings) -> PoolLimits {
    PoolLimits { max: settings.pools_max, warn_at: settings.pools_warn_at }
}

/// Judges a document while `running` is in effect.
///
/// # Errors
/// It would remove too much, and that is not allowed.
pub fn accept(
    document: &Document,
    running: &Topology,
    sync: &SyncSettings,
    limits: PoolLimits,
) -> Result<Accepted, MassRemoval> {
    let (topology, problems) = document.over(running, limits);
    let changes = diff::diff(running, &topology);
    changes.guard(running, sync.allow_mass_removal)?;
    Ok(Accepted { topology, changes, problems })
}

/// Judges the first sync. The cache counts as what ran before: a restart is no way around the guard against mass
/// removal, and a bad entry keeps the settings it had.
#[must_use]
pub fn begin(
    fetched: Result<Fetched, FetchError>,
    cached: Option<Cached>,
    sync: &SyncSettings,
    limits: PoolLimits,
) -> Begin {
    let last_good = cached.map(|cached| cached.topology).unwrap_or_default();
    let nothing = Topology::default();
    let why = match fetched {
        Ok(fetched) => match accept(&fetched.document, &last_good, sync, limits) {
            Ok(accepted) => {
                // Nothing runs yet, so that everything is to be made.
                let changes = diff::diff(&nothing, &accepted.topology);
                return Begin::Fresh(Box::new(Accepted { changes, ..accepted }));
            }
            Err(refused) => refused.into(),
        },
        Err(error) => SyncError::from(error),
    };
    if !sync.start_from_cache || last_good == nothing {
        return Begin::Stop(why);
    }
    let changes = diff::diff(&nothing, &last_good);
    Begin::FromCache(Box::new(Accepted { topology: last_good, changes, problems: Vec::new() }), why)
}

#[cfg(test)]
mod tests;
