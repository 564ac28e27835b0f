//! The keys: one table that says what each is called, what it takes and where its value goes. The file reader,
//! the environment, `--set`, `corelane check` and `docs/CONFIG.md` all follow from it.

mod table;

use super::settings::Settings;
use crate::secret::{HIDDEN, without_credentials};

pub(super) use table::KEYS;

/// The prefix that makes an environment variable ours.
pub(super) const PREFIX: &str = "CORELANE_";

/// A setting.
#[derive(Debug)]
pub struct Key {
    /// Dotted, as in the file.
    pub name: &'static str,
    /// What may be written.
    pub takes: &'static str,
    /// What it means.
    pub about: &'static str,
    /// It is the requirements' own name, so that the plain upper-snake variable works too.
    is_seed: bool,
    shown: Shown,
    set: fn(&mut Settings, &str) -> Result<(), String>,
}

/// How much of a value may be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Whole,
    WithoutCredentials,
    Hidden,
}

impl Key {
    const fn own(
        name: &'static str,
        takes: &'static str,
        about: &'static str,
        set: fn(&mut Settings, &str) -> Result<(), String>,
    ) -> Self {
        Self { name, takes, about, is_seed: false, shown: Shown::Whole, set }
    }

    const fn seed(
        name: &'static str,
        takes: &'static str,
        about: &'static str,
        set: fn(&mut Settings, &str) -> Result<(), String>,
    ) -> Self {
        Self { name, takes, about, is_seed: true, shown: Shown::Whole, set }
    }

    const fn shown(self, shown: Shown) -> Self {
        Self { shown, ..self }
    }

    /// Its environment variables; a later one wins.
    #[must_use]
    pub fn variables(&self) -> Vec<String> {
        let plain = upper_snake(self.name);
        let own = format!("{PREFIX}{plain}");
        if self.is_seed { vec![plain, own] } else { vec![own] }
    }

    /// The value as it may be seen.
    #[must_use]
    pub fn show(&self, text: &str) -> String {
        match self.shown {
            Shown::Whole => text.to_owned(),
            Shown::WithoutCredentials => without_credentials(text),
            Shown::Hidden => HIDDEN.to_owned(),
        }
    }

    /// Reads the value and puts it where it belongs.
    pub(super) fn set(&self, settings: &mut Settings, text: &str) -> Result<(), String> {
        (self.set)(settings, text)
    }
}

/// Every key, in the order of the reference.
#[must_use]
pub const fn keys() -> &'static [Key] {
    KEYS
}

/// The key of this name. `_` and `-` are the same, and a seed's variable names its key in the file too.
pub(super) fn find(written: &str) -> Option<&'static Key> {
    let plain = written.replace('_', "-");
    KEYS.iter().find(|key| key.name == plain || (key.is_seed && upper_snake(key.name) == written))
}

/// Dots and dashes to underscores, in capitals.
pub(super) fn upper_snake(name: &str) -> String {
    name.replace(['.', '-'], "_").to_ascii_uppercase()
}

/// Names that the requirements give to parts this version does not have yet. A trailing dot stands for all below.
const LATER: [&str; 11] = [
    "outbox-processor.",
    "gateway.",
    "queue-warn",
    "queue-crit",
    "queue-overload",
    "latency-warn-ms",
    "latency-crit-ms",
    "latency-overload-ms",
    "inflight-warn",
    "inflight-crit",
    "inflight-overload",
];

/// The file key, or the variable, is one of those names.
pub(super) fn is_for_later(written: &str) -> bool {
    let plain = written.replace('_', "-").to_ascii_lowercase();
    LATER.iter().any(|name| match name.strip_suffix('.') {
        Some(section) => {
            plain.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
        }
        None => plain == *name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requirements_names_are_found_as_they_write_them() {
        let rows = [
            ("message-router.enabled", "MESSAGE_ROUTER_ENABLED"),
            ("message-router.sync-interval", "MESSAGE_ROUTER_SYNC_INTERVAL"),
            ("message-router.max-pools", "MESSAGE_ROUTER_MAX_POOLS"),
            ("message-router.pool-warning-threshold", "MESSAGE_ROUTER_POOL_WARNING_THRESHOLD"),
            ("message-router.sqs.max-messages-per-poll", "MESSAGE_ROUTER_SQS_MAX_MESSAGES_PER_POLL"),
            ("message-router.sqs.wait-time-seconds", "MESSAGE_ROUTER_SQS_WAIT_TIME_SECONDS"),
            ("message-router.config-url", "MESSAGE_ROUTER_CONFIG_URL"),
            ("sqs.endpoint-override", "SQS_ENDPOINT_OVERRIDE"),
            ("sqs.partial-batch-pause", "SQS_PARTIAL_BATCH_PAUSE"),
            ("mediator.http.timeout.ms", "MEDIATOR_HTTP_TIMEOUT_MS"),
            ("mediator.http.version", "MEDIATOR_HTTP_VERSION"),
        ];
        for (name, variable) in rows {
            let key = find(name).unwrap_or_else(|| panic!("{name} is a key"));
            assert!(key.variables().iter().any(|own| own == variable), "{name}: {:?}", key.variables());
            assert_eq!(find(variable).map(|key| key.name), Some(name), "{variable} names it in a file too");
        }
        assert_eq!(find("memory.group_buffer_max").map(|key| key.name), Some("memory.group-buffer-max"));
        assert!(find("MEMORY_BUDGET").is_none(), "our own keys have no unmarked variable");
    }

    #[test]
    fn no_two_keys_share_a_name_or_a_variable() {
        let mut names: Vec<String> = KEYS.iter().flat_map(Key::variables).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn names_of_later_parts_are_known_as_such() {
        for name in [
            "outbox-processor.poll-interval",
            "OUTBOX_PROCESSOR_API_TOKEN",
            "GATEWAY_ROUTER_METRICS_URL",
            "gateway.backpressure.timeout",
            "queue_warn",
            "latency_overload_ms",
        ] {
            assert!(is_for_later(name), "{name}");
        }
        for name in ["outbox", "gateways.x", "queue", "admin.token"] {
            assert!(!is_for_later(name), "{name}");
        }
    }
}
