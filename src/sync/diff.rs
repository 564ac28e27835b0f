//! Two topologies → what to change. Pure.
//!
//! - Y3: applying the changes to the old topology gives the new one, and an unchanged entry is not touched.
//! - Y4: a change that would remove more than 30 % of the pools or of the queues is refused unless allowed.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::topology::{PoolEntry, QueueEntry, Topology};

/// Largest part of the pools, or of the queues, that a change may remove, in percent.
pub const REMOVAL_PERCENT_MAX: usize = 30;

/// What to change, in the order in which it is safe: pools before the queues that feed them, removals last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Pools to create or to change.
    pub pools_set: Vec<PoolEntry>,
    /// Queues to consume from now on.
    pub queues_added: Vec<QueueEntry>,
    /// Queues whose consumer is built anew: the new one first, then the old one drains.
    pub queues_rebuilt: Vec<QueueEntry>,
    /// Queues to drain and forget.
    pub queues_removed: Vec<String>,
    /// Pools to drain and forget.
    pub pools_removed: Vec<String>,
}

/// The change would remove too much. The operator allows it, or the platform mends its document.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "it would remove {removed} of {of} {what}, more than {REMOVAL_PERCENT_MAX} %; if that is meant, start with \
     --allow-mass-removal"
)]
pub struct MassRemoval {
    /// `pools` or `queues`.
    pub what: &'static str,
    /// How many would go.
    pub removed: usize,
    /// Of how many.
    pub of: usize,
}

/// What leads from `old` to `new`.
#[must_use]
pub fn diff(old: &Topology, new: &Topology) -> Changes {
    let old_pools: BTreeMap<&str, &PoolEntry> =
        old.pools.iter().map(|pool| (pool.code.as_str(), pool)).collect();
    let old_queues: BTreeMap<&str, &QueueEntry> =
        old.queues.iter().map(|queue| (queue.name.as_str(), queue)).collect();
    let mut changes = Changes::default();
    for pool in &new.pools {
        if old_pools.get(pool.code.as_str()) != Some(&pool) {
            changes.pools_set.push(pool.clone());
        }
    }
    for queue in &new.queues {
        match old_queues.get(queue.name.as_str()) {
            None => changes.queues_added.push(queue.clone()),
            Some(same) if *same == queue => {}
            Some(_) => changes.queues_rebuilt.push(queue.clone()),
        }
    }
    let codes: BTreeSet<&str> = new.pools.iter().map(|pool| pool.code.as_str()).collect();
    let names: BTreeSet<&str> = new.queues.iter().map(|queue| queue.name.as_str()).collect();
    let gone = |known: &BTreeSet<&str>, name: &String| (!known.contains(name.as_str())).then(|| name.clone());
    changes.pools_removed = old.pools.iter().filter_map(|pool| gone(&codes, &pool.code)).collect();
    changes.queues_removed = old.queues.iter().filter_map(|queue| gone(&names, &queue.name)).collect();
    changes
}

impl Changes {
    /// There is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses a change that removes too much of `old`.
    ///
    /// # Errors
    /// More than [`REMOVAL_PERCENT_MAX`] of the pools or of the queues would go, and that is not allowed.
    pub fn guard(&self, old: &Topology, is_allowed: bool) -> Result<(), MassRemoval> {
        let rows = [
            ("pools", self.pools_removed.len(), old.pools.len()),
            ("queues", self.queues_removed.len(), old.queues.len()),
        ];
        for (what, removed, of) in rows {
            if !is_allowed && removed * 100 > of * REMOVAL_PERCENT_MAX {
                return Err(MassRemoval { what, removed, of });
            }
        }
        Ok(())
    }

    /// A line per change, for logs and `corelane check`. Shows no password.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        lines.extend(self.pools_set.iter().map(|pool| format!("set pool {}: {pool}", pool.code)));
        lines.extend(self.queues_added.iter().map(|queue| format!("add queue {}: {queue}", queue.name)));
        lines
            .extend(self.queues_rebuilt.iter().map(|queue| format!("rebuild queue {}: {queue}", queue.name)));
        lines.extend(self.queues_removed.iter().map(|name| format!("remove queue {name}")));
        lines.extend(self.pools_removed.iter().map(|code| format!("remove pool {code}")));
        lines
    }
}

#[cfg(test)]
mod tests;
