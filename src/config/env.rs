//! Environment variables → what they give. Pure: the variables come in as pairs.

use super::error::{ConfigError, Notice, Place, meant};
use super::file::Given;
use super::keys::{KEYS, Key, PREFIX, is_for_later};

/// Variables under our prefix that are no settings: clap's own, and those of the tests.
const NO_SETTINGS: [&str; 2] = ["CORELANE_CONFIG", "CORELANE_TEST_"];

/// Prefixes under which a variable was probably meant for us.
const OURS: [&str; 3] = [PREFIX, "MESSAGE_ROUTER_", "MEDIATOR_"];

/// What the variables give, and a word on those that look like ours and are not. An empty variable counts as
/// unset: that is how compose files and shells take one away.
pub(super) fn read(variables: &[(String, String)]) -> (Vec<Given>, Vec<Notice>) {
    let value_of = |name: &str| {
        let found = variables.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value).filter(|value| !value.is_empty())
    };
    let mut given = Vec::new();
    for key in KEYS {
        for name in key.variables() {
            if let Some(value) = value_of(&name) {
                given.push(Given { key: key.name.into(), text: value.clone(), place: Place::Env(name) });
            }
        }
    }
    let known: Vec<String> = KEYS.iter().flat_map(Key::variables).collect();
    let mut notices = Vec::new();
    for (name, _) in variables {
        let is_ours = OURS.iter().any(|prefix| name.starts_with(prefix));
        if known.contains(name) || NO_SETTINGS.iter().any(|other| name.starts_with(other)) {
            continue;
        }
        let place = Place::Env(name.clone());
        if is_for_later(name) {
            notices.push(ConfigError::new(&place, name, "is not used by this version"));
        } else if is_ours {
            // No error: Kubernetes sets CORELANE_SERVICE_HOST and the like beside a service of our name.
            let hint = meant(name, known.iter().map(String::as_str));
            notices.push(ConfigError::new(&place, name, format!("is no setting and is ignored{hint}")));
        }
    }
    notices.sort_by(|left, right| left.key.cmp(&right.key));
    (given, notices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_name_keys_and_strangers_are_told() {
        let variables: Vec<(String, String)> = [
            ("MEDIATOR_HTTP_TIMEOUT_MS", "5"),
            ("CORELANE_MEDIATOR_HTTP_TIMEOUT_MS", "6"),
            ("CORELANE_MEMORY_BUDGET", "1MiB"),
            ("MEMORY_BUDGET", "2MiB"),
            ("CORELANE_ADMIN_TOKNE", "hunter2"),
            ("CORELANE_ADMIN_LISTEN", ""),
            ("CORELANE_CONFIG", "x.toml"),
            ("GATEWAY_BACKPRESSURE_TIMEOUT_MS", "1"),
            ("PATH", "/bin"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
        let (given, notices) = read(&variables);
        let given: Vec<_> = given.iter().map(|given| (given.key.as_str(), given.text.as_str())).collect();
        let timeout = "mediator.http.timeout.ms";
        assert_eq!(given, [(timeout, "5"), (timeout, "6"), ("memory.budget", "1MiB")], "the last one wins");
        let said: Vec<String> = notices.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].contains("did you mean `CORELANE_ADMIN_TOKEN`?"), "{said:?}");
        assert!(!said[0].contains("hunter2") && said[1].contains("not used by this version"), "{said:?}");
    }
}
