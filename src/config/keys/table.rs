//! The rows of the key table, in the order of the reference.

use std::time::Duration;

use shards::model::{AckMode, BreakerScope, HttpVersion};

use super::{Key, Shown};
use crate::cli::cores::Cores;
use crate::config::read::{duration, duration_from, number, parse, secret, size, switch, url, word};
use crate::config::settings::LogFormat;
use crate::secret::Secret;

/// Calls that a breaker's history has bits for.
const WINDOW_MAX: u64 = 31;
/// A duration that a loop repeats must not be nothing.
const TICK_MIN: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn put<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

/// Every key.
pub(in crate::config) const KEYS: &[Key] = &[
    Key::seed(
        "message-router.enabled",
        "true, false",
        "Consume and deliver. `false` starts the admin API alone.",
        |s, t| put(&mut s.enabled, switch(t)),
    ),
    Key::seed(
        "message-router.config-url",
        "http(s) URL",
        "Where the platform's pools and queues are fetched. Unset: the local `[[pool]]` and \
         `[[queue]]` rule.",
        |s, t| put(&mut s.sync.url, url(t).map(|()| Some(Secret::new(t.to_owned())))),
    )
    .shown(Shown::WithoutCredentials),
    Key::seed("message-router.sync-interval", "duration", "From one config sync to the next.", |s, t| {
        put(&mut s.sync.interval, duration_from(t, SECOND))
    }),
    Key::seed(
        "message-router.max-pools",
        "1 to 10000",
        "Most pools; further ones are left out with a warning.",
        |s, t| put(&mut s.pools_max, number(t, 1, 10_000)),
    ),
    Key::seed(
        "message-router.pool-warning-threshold",
        "1 to 10000",
        "From this number of pools on there is a warning.",
        |s, t| put(&mut s.pools_warn_at, number(t, 1, 10_000)),
    ),
    Key::own(
        "message-router.requeued",
        "chain, ack",
        "A message sent twice under one id: `chain` lets the second share the first one's fate, \
         `ack` acks it at once.",
        |s, t| put(&mut s.desk.ack_requeued, word(t, &[("chain", false), ("ack", true)])),
    ),
    Key::own(
        "message-router.hold-max",
        "duration, 1m to 11h 30m",
        "A message held for this long is handed back (SQS ends a lease at 12 h).",
        |s, t| {
            let held = duration_from(t, Duration::from_secs(60))?;
            if held > Duration::from_secs(41_400) {
                return Err(format!("{t:?} is more than 11h 30m, and SQS ends a lease at 12 h"));
            }
            put(&mut s.desk.hold_max, Ok(held))
        },
    ),
    Key::own(
        "message-router.cascade-delay-seconds",
        "0 to 43200",
        "Followers of a failed message in one batch come back no sooner.",
        |s, t| put(&mut s.shard.cascade_delay_s, number(t, 0, 43_200)),
    ),
    Key::seed(
        "message-router.sqs.max-messages-per-poll",
        "1 to 10",
        "Messages asked for in one SQS receive.",
        |s, t| put(&mut s.sqs.messages_per_poll, number(t, 1, 10)),
    ),
    Key::seed("message-router.sqs.wait-time-seconds", "0 to 20", "SQS long poll.", |s, t| {
        put(&mut s.sqs.wait, number(t, 0, 20).map(Duration::from_secs))
    }),
    Key::seed(
        "sqs.endpoint-override",
        "http(s) URL",
        "Speak to this SQS instead of AWS's (LocalStack, ElasticMQ).",
        |s, t| put(&mut s.sqs.endpoint, url(t).map(|()| Some(t.to_owned()))),
    )
    .shown(Shown::WithoutCredentials),
    Key::seed(
        "sqs.partial-batch-pause",
        "duration",
        "Pause after a receive that was not full. `100ms` is the router document's.",
        |s, t| put(&mut s.sqs.partial_batch_pause, duration(t)),
    ),
    Key::seed(
        "mediator.http.timeout.ms",
        "1 to 86400000",
        "From the start of a call to its answer's last byte, in milliseconds.",
        |s, t| put(&mut s.courier.request_timeout, number(t, 1, 86_400_000).map(Duration::from_millis)),
    ),
    Key::seed(
        "mediator.http.version",
        "HTTP_2, HTTP_1_1, HTTP_2_PRIOR_KNOWLEDGE",
        "`HTTP_2`: where TLS negotiates it, else HTTP/1.1. `HTTP_2_PRIOR_KNOWLEDGE`: on clear \
         text too.",
        |s, t| {
            let words = [
                ("HTTP_2", HttpVersion::Negotiate),
                ("HTTP_1_1", HttpVersion::Http1),
                ("HTTP_2_PRIOR_KNOWLEDGE", HttpVersion::Http2PriorKnowledge),
            ];
            put(&mut s.courier.http, word(t, &words))
        },
    ),
    Key::own("mediator.http.connect-timeout", "duration", "To open a connection, TLS included.", |s, t| {
        put(&mut s.courier.connect_timeout, duration_from(t, TICK_MIN))
    }),
    Key::own(
        "mediator.http.idle-timeout",
        "duration",
        "An unused connection is closed after this.",
        |s, t| put(&mut s.courier.idle_timeout, duration_from(t, TICK_MIN)),
    ),
    Key::own(
        "mediator.http.connections-max",
        "1 to 65535",
        "Connections to one origin from one shard; further calls wait in line.",
        |s, t| put(&mut s.courier.connections_max, number(t, 1, 65_535)),
    ),
    Key::own(
        "mediator.http.streams-max",
        "1 to 10000",
        "HTTP/2 streams on one connection; the peer may ask for fewer.",
        |s, t| put(&mut s.courier.streams_max, number(t, 1, 10_000)),
    ),
    Key::own(
        "mediator.http.head-bytes-max",
        "size, 1KiB to 1MiB",
        "Longest answer head that is read.",
        |s, t| put(&mut s.courier.head_bytes_max, size(t, 1 << 10, 1 << 20)),
    ),
    Key::own(
        "mediator.http.body-bytes-max",
        "size, 1KiB to 16MiB",
        "Longest answer body that is read.",
        |s, t| put(&mut s.courier.body_bytes_max, size(t, 1 << 10, 16 << 20)),
    ),
    Key::own(
        "mediator.ack-mode",
        "lenient, strict",
        "When a 2xx counts as delivered: unless it says `ack: false`, or only if it says `ack: \
         true`.",
        |s, t| {
            put(
                &mut s.courier.ack_mode,
                word(t, &[("lenient", AckMode::Lenient), ("strict", AckMode::Strict)]),
            )
        },
    ),
    Key::own("mediator.calls-max", "1 to 10", "Calls per delivery.", |s, t| {
        put(&mut s.shard.calls_max, number(t, 1, 10))
    }),
    Key::own(
        "mediator.retry-pause",
        "duration",
        "Pause after the n-th call of a delivery: n × this.",
        |s, t| put(&mut s.shard.retry_pause, duration(t)),
    ),
    Key::own(
        "breaker.scope",
        "origin, global",
        "What one breaker guards. `global` is the router document's: one for all targets.",
        |s, t| {
            let words = [("origin", BreakerScope::Origin), ("global", BreakerScope::Global)];
            put(&mut s.shard.breaker_scope, word(t, &words))
        },
    ),
    Key::own("breaker.window", "1 to 31", "Calls that a breaker looks back on.", |s, t| {
        put(&mut s.shard.breaker_window, number(t, 1, WINDOW_MAX))
    }),
    Key::own("breaker.failures", "1 to 31", "Calls without an answer, among them, that trip it.", |s, t| {
        put(&mut s.shard.breaker_failures, number(t, 1, WINDOW_MAX))
    }),
    Key::own("breaker.wait", "duration", "How long it stays tripped.", |s, t| {
        put(&mut s.shard.breaker_wait, duration_from(t, TICK_MIN))
    }),
    Key::own("breaker.probes", "1 to 64", "Probes that must succeed before it admits all again.", |s, t| {
        put(&mut s.shard.breaker_probes, number(t, 1, 64))
    }),
    Key::own("memory.budget", "size, 1MiB to 1024GiB", "Bytes of messages held, over all pools.", |s, t| {
        put(&mut s.desk.memory_budget, size(t, 1 << 20, 1 << 40))
    }),
    Key::own(
        "memory.group-buffer-max",
        "1 to 1000000",
        "Messages of one group held. Unset: half the pool's capacity.",
        |s, t| put(&mut s.desk.group_buffer_max, number(t, 1, 1_000_000).map(Some)),
    ),
    Key::own(
        "memory.prefetch",
        "1 to 20",
        "Messages that wait per permit while every permit of a pool is in use. 20 is all that \
         the pool may hold.",
        |s, t| put(&mut s.desk.prefetch, number(t, 1, 20)),
    ),
    Key::own(
        "memory.completed-max",
        "1024 to 100000000",
        "Delivered ids that are remembered, at most; the oldest make room. About 17 bytes each.",
        |s, t| put(&mut s.desk.completed_max, number(t, 1_024, 100_000_000)),
    ),
    Key::own(
        "memory.owed-max",
        "1 to 10000000",
        "Given-back messages that later ones of their group wait for; at this number polling stops.",
        |s, t| put(&mut s.desk.owed_max, number(t, 1, 10_000_000)),
    ),
    Key::own(
        "engine.shards",
        "1 to 32",
        "Shards. Unset: 1 on one or two cores, else one per core that is left.",
        |s, t| put(&mut s.engine.wishes.shards, number(t, 1, 32).map(Some)),
    ),
    Key::own(
        "engine.ingress-core",
        "0 to 1023",
        "Core of the ingress thread. Unset: the first one.",
        |s, t| put(&mut s.engine.wishes.ingress_core, number(t, 0, 1023).map(Some)),
    ),
    Key::own(
        "engine.shard-cores",
        "cores such as 1 or 2-7",
        "Cores of the shards, in order. Unset: the others.",
        |s, t| {
            let cores = t.parse::<Cores>().map_err(|error| error.to_string());
            put(&mut s.engine.wishes.shard_cores, cores.map(|cores| cores.0))
        },
    ),
    Key::own(
        "engine.io",
        "auto, uring, glommio, epoll",
        "How bytes are moved. `auto` tries io_uring out and falls back to epoll.",
        |s, t| put(&mut s.engine.io, parse(t, "one of: auto, uring, glommio, epoll")),
    ),
    Key::own(
        "engine.spin",
        "duration, at most 10ms",
        "How long a thread looks for work before it sleeps. Costs a core, saves a wake.",
        |s, t| {
            let spin = duration(t)?;
            if spin > Duration::from_millis(10) {
                return Err(format!("{t:?} would keep a core busy for nothing; write at most 10ms"));
            }
            put(&mut s.engine.spin, Ok(spin))
        },
    ),
    Key::own("engine.pin", "true, false", "Pin threads to their cores.", |s, t| {
        put(&mut s.engine.pin, switch(t))
    }),
    Key::own(
        "admin.listen",
        "address and port",
        "Where the admin API and dashboard listen. Anything but loopback needs `admin.token`.",
        |s, t| put(&mut s.admin.listen, parse(t, "an address with a port; write one such as 127.0.0.1:8080")),
    ),
    Key::own(
        "admin.token",
        "visible ASCII, at least 16 characters",
        "What clients of the admin API must bring as a bearer token.",
        |s, t| {
            let token = secret(t)?;
            if token.len() < 16 {
                return Err("is shorter than 16 characters; write a random one".into());
            }
            put(&mut s.admin.token, Ok(Some(Secret::new(token))))
        },
    )
    .shown(Shown::Hidden),
    Key::own(
        "admin.hosts",
        "host names, by commas",
        "Names, besides loopback's, that requests may be addressed to.",
        |s, t| put(&mut s.admin.hosts, hosts(t)),
    ),
    Key::own("sync.token", "visible ASCII", "Bearer token for `message-router.config-url`.", |s, t| {
        put(&mut s.sync.token, secret(t).map(|token| Some(Secret::new(token))))
    })
    .shown(Shown::Hidden),
    Key::own("sync.attempts", "1 to 1000", "Tries per sync.", |s, t| {
        put(&mut s.sync.attempts, number(t, 1, 1_000))
    }),
    Key::own("sync.pause", "duration", "Between two tries.", |s, t| put(&mut s.sync.pause, duration(t))),
    Key::own("sync.first-delay", "duration", "Before the first sync.", |s, t| {
        put(&mut s.sync.first_delay, duration(t))
    }),
    Key::own("sync.timeout", "duration", "Of one try, connecting included.", |s, t| {
        put(&mut s.sync.timeout, duration_from(t, TICK_MIN))
    }),
    Key::own(
        "sync.body-max",
        "size, 1KiB to 256MiB",
        "Largest document; a larger one is a failed try.",
        |s, t| put(&mut s.sync.body_bytes_max, size(t, 1 << 10, 256 << 20)),
    ),
    Key::own(
        "sync.cache",
        "file",
        "Where the last good document is kept; relative to `data-dir`.",
        |s, t| put(&mut s.sync.cache, path(t)),
    ),
    Key::own(
        "sync.start-from-cache",
        "true, false",
        "Where the first sync fails: start from the last good document instead of ending.",
        |s, t| put(&mut s.sync.start_from_cache, switch(t)),
    ),
    Key::own(
        "sync.allow-mass-removal",
        "true, false",
        "Let a document remove more than 30 % of the pools or queues.",
        |s, t| put(&mut s.sync.allow_mass_removal, switch(t)),
    ),
    Key::own("dead-letters.file", "file", "The dead-letter store.", |s, t| put(&mut s.dead_letters, path(t))),
    Key::own("data-dir", "directory", "Where the cache and markers live.", |s, t| {
        put(&mut s.data_dir, path(t))
    }),
    Key::own("health.interval", "duration, 1s or more", "How often consumers are checked.", |s, t| {
        put(&mut s.health.interval, duration_from(t, SECOND))
    }),
    Key::own(
        "health.poll-age-max",
        "duration, 1s or more",
        "A consumer that was not polled for this long is restarted.",
        |s, t| put(&mut s.health.poll_age_max, duration_from(t, SECOND)),
    ),
    Key::own(
        "shutdown.grace",
        "duration, 1s or more",
        "From the first signal to the end of the process.",
        |s, t| put(&mut s.grace, duration_from(t, SECOND)),
    ),
    Key::own("warnings.expire", "duration, 1s or more", "A warning is forgotten after this.", |s, t| {
        put(&mut s.warnings_expire, duration_from(t, SECOND))
    }),
    Key::own(
        "log.filter",
        "level or filter",
        "What is logged: `error`, `warn`, `info`, `debug`, `trace`, or a filter such as \
         `info,corelane::sync=debug`.",
        |s, t| {
            let filter = t.parse::<tracing_subscriber::filter::Targets>();
            let filter = filter
                .map_err(|_| format!("{t:?} is not a log filter; write info, or info,corelane::sync=debug"));
            put(&mut s.log.filter, filter.map(|_| t.to_owned()))
        },
    ),
    Key::own("log.format", "auto, text, json", "`auto`: text on a terminal, JSON elsewhere.", |s, t| {
        let words = [("auto", LogFormat::Auto), ("text", LogFormat::Text), ("json", LogFormat::Json)];
        put(&mut s.log.format, word(t, &words))
    }),
    Key::own(
        "metrics.label-values-max",
        "1 to 100000",
        "Values that one label of a metric may take; the rest is counted together.",
        |s, t| put(&mut s.label_values_max, number(t, 1, 100_000)),
    ),
];

fn path(text: &str) -> Result<std::path::PathBuf, String> {
    if text.is_empty() || text.contains('\0') {
        return Err("names no file; write a path".into());
    }
    Ok(text.into())
}

fn hosts(text: &str) -> Result<Vec<String>, String> {
    let hosts = text.split(',').map(str::trim).filter(|host| !host.is_empty());
    hosts
        .map(|host| match host.parse::<http::uri::Authority>() {
            Ok(authority) if authority.host() == host => Ok(host.to_ascii_lowercase()),
            _ => Err(format!("{host:?} is not a host name; write it without scheme and port")),
        })
        .collect()
}
