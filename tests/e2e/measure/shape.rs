//! The shapes: how many queues, pools and messages, and a target that takes so long.

use std::fmt::Write as _;

/// A shape.
pub(crate) struct Shape {
    /// The table's row.
    pub(super) name: &'static str,
    /// Brokers that it is measured on.
    pub(super) kinds: &'static [&'static str],
    /// Queues, each with a pool of its own.
    pub(super) queues: u64,
    /// Calls in flight of a pool.
    pub(super) concurrency: u16,
    /// All of them, before anything is received.
    pub(super) messages: u64,
    /// Groups of a queue.
    pub(super) groups: u64,
    /// What the sink is asked for.
    pub(super) script: &'static str,
    /// The sink's flags.
    pub(super) sink: &'static [&'static str],
    /// Set beside the plain client, or judged by time alone.
    pub(super) has_ceiling: bool,
}

const HTTP1: &[&str] = &["--cores", "1"];
const HTTP2: &[&str] = &["--cores", "1", "--http2"];

/// All of them.
pub(crate) const SHAPES: &[Shape] = &[
    Shape {
        name: "one queue, 512 in flight",
        kinds: &["nats", "rabbitmq", "rabbitmq-quorum"],
        queues: 1,
        concurrency: 512,
        messages: 200_000,
        groups: 10_000,
        script: "/ok",
        sink: HTTP1,
        has_ceiling: true,
    },
    Shape {
        name: "one queue, 512 in flight",
        kinds: &["sqs", "sqs-standard", "activemq"],
        queues: 1,
        concurrency: 512,
        messages: 40_000,
        groups: 10_000,
        script: "/ok",
        sink: HTTP1,
        has_ceiling: true,
    },
    Shape {
        name: "100 queues × 100 pools of 64, HTTP/2",
        kinds: &["nats"],
        queues: 100,
        concurrency: 64,
        messages: 500_000,
        groups: 1_000,
        script: "/ok",
        sink: HTTP2,
        has_ceiling: true,
    },
    Shape {
        name: "100 queues × 100 pools of 64, HTTP/2",
        kinds: &["sqs"],
        queues: 100,
        concurrency: 64,
        messages: 50_000,
        groups: 1_000,
        script: "/ok",
        sink: HTTP2,
        has_ceiling: true,
    },
    Shape {
        name: "slow: 100 queues × 100 pools of 2, 20 ms",
        kinds: &["nats"],
        queues: 100,
        concurrency: 2,
        messages: 100_000,
        groups: 1_000,
        script: "/slow?ms=20",
        sink: HTTP1,
        has_ceiling: false,
    },
];

impl Shape {
    /// HTTP/2 to the sink.
    pub(super) fn is_http2(&self) -> bool {
        self.sink.contains(&"--http2")
    }

    /// The router's config.
    pub(super) fn config(&self, queues: &[String], uri: impl Fn(&str) -> String) -> String {
        let mut config = String::new();
        if self.is_http2() {
            config.push_str("[mediator.http]\nversion = \"HTTP_2_PRIOR_KNOWLEDGE\"\n\n");
        }
        for (at, queue) in queues.iter().enumerate() {
            let (uri, concurrency) = (uri(queue), self.concurrency);
            let _ = writeln!(config, "[[pool]]\ncode = \"P{at}\"\nconcurrency = {concurrency}\n");
            let _ = writeln!(config, "[[queue]]\nname = {queue:?}\nuri = {uri:?}\n");
        }
        config
    }
}
