//! Warnings: things an operator should know, kept for eight hours. The same one again is counted, not listed
//! twice. Control plane only: there is a lock in it. Time arrives as an argument.
//!
//! [`TABLE`] is the one place that says which codes exist, how severe each is and what it means.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// A warning goes this long after it was last seen (the router document's number).
pub const KEPT_MS: u64 = 8 * 60 * 60 * 1_000;
/// Warnings kept at most; what makes room is chosen by [`Warnings::add`].
pub const WARNINGS_MAX: usize = 1_000;
/// Bytes of a message or a source that are kept: both may come from outside.
pub const TEXT_BYTES_MAX: usize = 1_000;

/// How bad. The order is from harmless to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Severity {
    /// Good to know.
    Info,
    /// Odd, but work goes on.
    Warn,
    /// Something was refused or given up.
    Error,
    /// A person must look now.
    Critical,
}

/// What a warning is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(missing_docs, reason = "TABLE says what each means, and is what people are shown")]
pub enum WarningCode {
    ConfigSyncFailed,
    Routing,
    QueueFull,
    PoolLimit,
    PipelineMapLeak,
    ConsumerRestart,
    ConsumerRestartFailed,
    ShutdownCleanupErrors,
    GroupThreadRestart,
    GroupThreadExitWithMessages,
    SemaphoreReleaseFailed,
    MediatorNullResult,
    Processing,
    Configuration,
    BreakerTripped,
    LeaseLost,
    OwedExpired,
    NearLimit,
    DeadLetterFailed,
    ConfigRefused,
    QueueInvalid,
    StalledPool,
    PoolStillAbove,
    IoFallback,
}

/// Every code with each severity it may have, and what it means. The first rows are the router document's.
#[rustfmt::skip]
pub const TABLE: [(WarningCode, Severity, &str); 27] = {
    use {Severity::*, WarningCode::*};
    [
        (ConfigSyncFailed,            Critical, "The first config sync failed after all attempts: the process ends."),
        (ConfigSyncFailed,            Warn,     "A later config sync failed: the last good config stays."),
        (Routing,                     Warn,     "No pool has this code: the message went to DEFAULT-POOL."),
        (QueueFull,                   Warn,     "A pool is full: its share of a batch was given back."),
        (PoolLimit,                   Critical, "max-pools is reached: the pool was not made."),
        (PoolLimit,                   Warn,     "The number of pools comes near max-pools."),
        (PipelineMapLeak,             Warn,     "More messages are tracked than all pools can hold."),
        (ConsumerRestart,             Warn,     "A queue was not polled for 60 s: its consumer was restarted."),
        (ConsumerRestartFailed,       Critical, "A consumer could not be restarted."),
        (ShutdownCleanupErrors,       Warn,     "Some messages could not be given back at the end; their leases will run out."),
        (GroupThreadRestart,          Warn,     "A group that stood still was made ready again."),
        (GroupThreadExitWithMessages, Warn,     "A group has messages and nothing to wait for."),
        (SemaphoreReleaseFailed,      Critical, "The audit of a pool's permits found a mismatch."),
        (MediatorNullResult,          Critical, "A call had no outcome 5 s after its timeout."),
        (Processing,                  Warn,     "Something unexpected happened to a message."),
        (Configuration,               Critical, "A target answered 501: the message was set aside."),
        (Configuration,               Error,    "A target refused a message (4xx): it was set aside."),
        (BreakerTripped,              Warn,     "A target gives no answers: calls to it wait."),
        (LeaseLost,                   Error,    "A lease ended while its message was held: it may be delivered twice."),
        (OwedExpired,                 Warn,     "A message that went back did not come again within two leases: its group goes on."),
        (NearLimit,                   Warn,     "A broker would soon drop a message by its own count: it is held instead."),
        (DeadLetterFailed,            Critical, "A message could not be set aside: it was given back."),
        (ConfigRefused,               Error,    "A config would remove too much or is wrong: it was not used."),
        (QueueInvalid,                Error,    "A queue can't be used as it is configured."),
        (StalledPool,                 Error,    "A pool has messages and delivered none for 60 s."),
        (PoolStillAbove,              Warn,     "A pool has more calls in flight than its new concurrency, after 60 s."),
        (IoFallback,                  Info,     "Bytes are moved in another way than the best: io_uring can't run here."),
    ]
};

impl WarningCode {
    /// The name people see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ConfigSyncFailed => "CONFIG_SYNC_FAILED",
            Self::Routing => "ROUTING",
            Self::QueueFull => "QUEUE_FULL",
            Self::PoolLimit => "POOL_LIMIT",
            Self::PipelineMapLeak => "PIPELINE_MAP_LEAK",
            Self::ConsumerRestart => "CONSUMER_RESTART",
            Self::ConsumerRestartFailed => "CONSUMER_RESTART_FAILED",
            Self::ShutdownCleanupErrors => "SHUTDOWN_CLEANUP_ERRORS",
            Self::GroupThreadRestart => "GROUP_THREAD_RESTART",
            Self::GroupThreadExitWithMessages => "GROUP_THREAD_EXIT_WITH_MESSAGES",
            Self::SemaphoreReleaseFailed => "SEMAPHORE_RELEASE_FAILED",
            Self::MediatorNullResult => "MEDIATOR_NULL_RESULT",
            Self::Processing => "PROCESSING",
            Self::Configuration => "CONFIGURATION",
            Self::BreakerTripped => "BREAKER_TRIPPED",
            Self::LeaseLost => "LEASE_LOST",
            Self::OwedExpired => "OWED_EXPIRED",
            Self::NearLimit => "NEAR_LIMIT",
            Self::DeadLetterFailed => "DEAD_LETTER_FAILED",
            Self::ConfigRefused => "CONFIG_REFUSED",
            Self::QueueInvalid => "QUEUE_INVALID",
            Self::StalledPool => "STALLED_POOL",
            Self::PoolStillAbove => "POOL_STILL_ABOVE",
            Self::IoFallback => "IO_FALLBACK",
        }
    }

    /// The severity of its first row in [`TABLE`]; for a code with two, say which one with [`Warnings::add`].
    #[must_use]
    pub fn severity(self) -> Severity {
        TABLE.iter().find(|row| row.0 == self).map_or(Severity::Warn, |row| row.1)
    }
}

/// A warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Warning {
    /// Its number.
    pub id: u64,
    /// What it is about.
    pub code: WarningCode,
    /// How bad.
    pub severity: Severity,
    /// Which pool, queue, target or part it is about.
    pub source: String,
    /// What happened, in words.
    pub message: String,
    /// Times it was seen.
    pub count: u64,
    /// When it was first seen, in milliseconds since 1970.
    pub first_unix_ms: u64,
    /// When it was last seen, in milliseconds since 1970.
    pub last_unix_ms: u64,
    /// A person has seen it.
    pub acknowledged: bool,
}

/// All warnings.
#[derive(Debug)]
pub struct Warnings {
    kept_ms: u64,
    state: Mutex<State>,
}

impl Default for Warnings {
    fn default() -> Self {
        Self { kept_ms: KEPT_MS, state: Mutex::default() }
    }
}

#[derive(Debug, Default)]
struct State {
    last_id: u64,
    list: BTreeMap<u64, Warning>,
    /// The same warning again is found here. Severity is part of it: worse is another warning.
    ids: BTreeMap<(WarningCode, Severity, String, String), u64>,
}

impl Warnings {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// None yet; one goes so long after it was last seen.
    #[must_use]
    pub fn keeping(kept: std::time::Duration) -> Self {
        Self { kept_ms: u64::try_from(kept.as_millis()).unwrap_or(u64::MAX), ..Self::default() }
    }

    /// Adds a warning, or counts it if it is there already; it then stays acknowledged if it was. Where there
    /// are [`WARNINGS_MAX`], the acknowledged, then the least severe, then the oldest makes room.
    pub fn add(&self, code: WarningCode, severity: Severity, source: &str, message: &str, now_unix_ms: u64) {
        let (source, message) = (cut(source), cut(message));
        let mut state = self.state.lock();
        state.expire(now_unix_ms, self.kept_ms);
        let key = (code, severity, source.to_owned(), message.to_owned());
        if let Some(warning) = state.ids.get(&key).copied().and_then(|id| state.list.get_mut(&id)) {
            warning.count += 1;
            warning.last_unix_ms = now_unix_ms;
            return;
        }
        if state.list.len() >= WARNINGS_MAX {
            state.make_room();
        }
        state.last_id += 1;
        let id = state.last_id;
        let warning = Warning {
            id,
            code,
            severity,
            source: key.2.clone(),
            message: key.3.clone(),
            count: 1,
            first_unix_ms: now_unix_ms,
            last_unix_ms: now_unix_ms,
            acknowledged: false,
        };
        state.list.insert(id, warning);
        state.ids.insert(key, id);
    }

    /// All that have not expired: not acknowledged first, then the worst, then the latest.
    #[must_use]
    pub fn list(&self, now_unix_ms: u64) -> Vec<Warning> {
        let mut state = self.state.lock();
        state.expire(now_unix_ms, self.kept_ms);
        let mut list: Vec<Warning> = state.list.values().cloned().collect();
        list.sort_by_key(|warning| {
            (
                warning.acknowledged,
                std::cmp::Reverse(warning.severity),
                std::cmp::Reverse(warning.last_unix_ms),
                warning.id,
            )
        });
        list
    }

    /// Marks one as seen by a person; false if there is none of this id.
    #[must_use]
    pub fn acknowledge(&self, id: u64) -> bool {
        self.state.lock().list.get_mut(&id).map(|warning| warning.acknowledged = true).is_some()
    }

    /// Removes one; false if there is none of this id.
    #[must_use]
    pub fn clear(&self, id: u64) -> bool {
        self.state.lock().remove(id)
    }

    /// Removes all, and says how many there were.
    pub fn clear_all(&self) -> usize {
        let mut state = self.state.lock();
        state.ids.clear();
        std::mem::take(&mut state.list).len()
    }

    /// How many wait for a person.
    #[must_use]
    pub fn unacknowledged(&self, now_unix_ms: u64) -> u64 {
        let mut state = self.state.lock();
        state.expire(now_unix_ms, self.kept_ms);
        state.list.values().filter(|warning| !warning.acknowledged).count() as u64
    }
}

impl State {
    fn expire(&mut self, now_unix_ms: u64, kept_ms: u64) {
        let over = |warning: &Warning| warning.last_unix_ms.saturating_add(kept_ms) <= now_unix_ms;
        let gone: Vec<u64> = self.list.values().filter(|one| over(one)).map(|one| one.id).collect();
        for id in gone {
            self.remove(id);
        }
    }

    fn make_room(&mut self) {
        let least = self
            .list
            .values()
            .min_by_key(|warning| (!warning.acknowledged, warning.severity, warning.last_unix_ms, warning.id))
            .map(|warning| warning.id);
        if let Some(id) = least {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: u64) -> bool {
        let Some(warning) = self.list.remove(&id) else { return false };
        self.ids.remove(&(warning.code, warning.severity, warning.source, warning.message));
        true
    }
}

/// At most [`TEXT_BYTES_MAX`] bytes, whole characters only.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests;
