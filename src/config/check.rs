//! Rules that join several keys. Pure.

use super::error::{ConfigError, Notice, Place};
use super::settings::Settings;

/// Complaints about values that are fine alone and wrong together. `place_of` says where a key's value stands.
pub(super) fn check(settings: &Settings, place_of: &dyn Fn(&str) -> Place, errors: &mut Vec<ConfigError>) {
    let mut complain = |key: &str, problem: String| {
        errors.push(ConfigError::new(&place_of(key), key, problem));
    };
    let listen = settings.admin.listen;
    if !listen.ip().is_loopback() && settings.admin.token.is_none() {
        complain(
            "admin.listen",
            format!(
                "{listen} can be reached from outside and there is no admin.token; set one, or listen on 127.0.0.1"
            ),
        );
    }
    let shard = &settings.shard;
    if shard.breaker_failures > shard.breaker_window {
        complain(
            "breaker.failures",
            format!(
                "{} failures never come among {} calls; write at most breaker.window",
                shard.breaker_failures, shard.breaker_window
            ),
        );
    }
    let wishes = &settings.engine.wishes;
    if let Some(shards) = wishes.shards
        && !wishes.shard_cores.is_empty()
        && wishes.shard_cores.len() < usize::from(shards)
    {
        complain(
            "engine.shard-cores",
            format!("names {} cores for {shards} shards; name one core per shard", wishes.shard_cores.len()),
        );
    }
}

/// Words on values that work and may surprise.
pub(super) fn notices(settings: &Settings, place_of: &dyn Fn(&str) -> Place) -> Vec<Notice> {
    let mut notices = Vec::new();
    let mut say = |key: &str, text: &str| notices.push(ConfigError::new(&place_of(key), key, text));
    let Some(url) = &settings.sync.url else {
        if settings.sync.token.is_some() {
            say("sync.token", "is not used without message-router.config-url");
        }
        return notices;
    };
    let is_clear = url.reveal().starts_with("http://");
    let is_local =
        ["http://127.", "http://localhost", "http://[::1]"].iter().any(|it| url.reveal().starts_with(it));
    if settings.sync.token.is_some() && is_clear && !is_local {
        say(
            "sync.token",
            "goes over the network in clear text; write an https URL in message-router.config-url",
        );
    }
    if settings.topology.pools.len() + settings.topology.queues.len() > 0 {
        let text = "rules, so that the local [[pool]] and [[queue]] are not used";
        say("message-router.config-url", text);
    }
    notices
}
