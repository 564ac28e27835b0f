//! What a case plays on: a broker, a directory, a sink with its log, and routers over the case's queues.

use std::cell::Cell;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::broker::{Broker, Counts, Draft};
use crate::support::publisher::judge;
use crate::support::router::{Dir, Router, SinkProgram};
use crate::support::wait::until;

/// Long enough for any broker on a busy machine, its restart included.
pub(crate) const SOON: Duration = Duration::from_secs(90);
/// The lease of queues whose case does not care.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// Retries and breakers that do not make a case wait.
const QUICK: [&str; 6] =
    ["--set", "mediator.retry-pause=20ms", "--set", "mediator.calls-max=10", "--set", "breaker.wait=200ms"];

/// The stage of one case.
pub(crate) struct Stage<'a> {
    pub(crate) broker: &'a mut dyn Broker,
    pub(crate) dir: Dir,
    pub(crate) sink: SinkProgram,
    number: usize,
    lease: Duration,
    /// What was published, for the judge.
    published: String,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(broker: &'a mut dyn Broker, number: usize) -> Self {
        let dir = Dir::new();
        let sink = SinkProgram::start(&dir);
        Self { broker, dir, sink, number, lease: LEASE, published: String::new() }
    }

    /// A name for a queue that no other case of this run uses.
    pub(crate) fn name(&self, word: &str) -> String {
        format!("{word}-{}", self.number)
    }

    /// Makes a queue with a lease that matters; returns its name.
    pub(crate) fn queue_leased(&mut self, lease: Duration) -> String {
        self.lease = lease;
        self.queue("q")
    }

    /// Makes a queue; returns its name.
    pub(crate) fn queue(&mut self, word: &str) -> String {
        let queue = self.name(word);
        self.broker.make_queue(&queue, self.lease);
        queue
    }

    /// Writes the router's config for queues at these URIs.
    pub(crate) fn configure(&self, queues: &[(&str, String)]) {
        let mut config = String::new();
        for (name, uri) in queues {
            let lease = self.lease.as_secs();
            writeln!(config, "[[queue]]\nname = {name:?}\nuri = {uri:?}\nvisibility = \"{lease}s\"\n")
                .expect("a text takes all");
        }
        std::fs::write(self.dir.join("corelane.toml"), config).expect("the config is written");
    }

    /// Starts a router over these queues, straight at the broker.
    pub(crate) fn router(&self, queues: &[&str], flags: &[&str]) -> Router {
        let at: Vec<_> = queues.iter().map(|&queue| (queue, self.broker.uri(queue))).collect();
        self.configure(&at);
        self.start(flags)
    }

    /// Starts a router over a queue, through a proxy.
    pub(crate) fn router_at(&self, queue: &str, at: SocketAddr, flags: &[&str]) -> Router {
        self.configure(&[(queue, self.broker.uri_at(queue, at))]);
        self.start(flags)
    }

    /// Starts a router with the config as it stands.
    pub(crate) fn start(&self, flags: &[&str]) -> Router {
        let env = self.broker.env();
        let env: Vec<(&str, &str)> =
            env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let flags: Vec<&str> = QUICK.iter().chain(flags).copied().collect();
        Router::spawn(&self.dir, &flags, &env)
    }

    /// Publishes, and notes it for the judge.
    pub(crate) fn publish(&mut self, queue: &str, drafts: &[Draft]) {
        self.broker.publish(queue, drafts);
        for draft in drafts {
            writeln!(self.published, "0\tsent\t{}\t{queue}/{}\n0\tkept\t{}", draft.id, draft.group, draft.id)
                .expect("a text takes all");
        }
    }

    /// Messages `first..first + count` round-robin over groups, as `m<n>` of `g<n>`.
    pub(crate) fn drafts(&self, first: u64, count: u64, groups: u64, script: &str) -> Vec<Draft> {
        let target = self.sink.url(script);
        let draft = |n: u64| Draft::new(&format!("m{n}"), &format!("g{}", n % groups), "", &target);
        (first..first + count).map(draft).collect()
    }

    pub(crate) fn wait_delivered(&self, count: usize) {
        self.wait_delivered_within(count, SOON);
    }

    pub(crate) fn wait_delivered_within(&self, count: usize, max: Duration) {
        // First the counter, which is cheap to ask for; then the log, which is the truth.
        let answered = || usize::try_from(self.sink.stats().answers).unwrap_or(usize::MAX);
        until(max, "enough calls are answered", || answered() >= count, || (answered(), self.dir.logs()));
        let distinct = || {
            let mut ids = self.sink.delivered();
            ids.sort_unstable();
            ids.dedup();
            ids.len()
        };
        until(max, "all are delivered", || distinct() >= count, || (distinct(), self.dir.logs()));
    }

    /// Waits until the broker keeps nothing of a queue; what it said last.
    pub(crate) fn wait_empty(&mut self, queue: &str) -> Counts {
        self.wait_empty_within(queue, SOON)
    }

    pub(crate) fn wait_empty_within(&mut self, queue: &str, max: Duration) -> Counts {
        let counts = Cell::new(self.broker.counts(queue));
        let (dir, broker) = (&self.dir, &mut *self.broker);
        let mut is_empty = || {
            counts.set(broker.counts(queue));
            counts.get().left == 0
        };
        until(max, "the queue is empty", &mut is_empty, || (counts.get(), dir.logs()));
        counts.get()
    }

    /// Has all that was published judged by the program that reads nothing but logs.
    pub(crate) fn judge(&self, duplicates_max: usize) -> Value {
        let log: PathBuf = self.dir.join("published.log");
        std::fs::write(&log, &self.published).expect("the publisher's log");
        judge(&log, &self.sink.log, duplicates_max)
    }

    /// Answers of the sink to one message.
    pub(crate) fn answers_to(&self, id: &str) -> Vec<u16> {
        self.sink.answers().into_iter().filter(|(other, _)| other == id).map(|(_, status)| status).collect()
    }
}

/// Waits until the router's API shows a queue's counter at `count`: its view is up to a second old.
pub(crate) fn wait_count(router: &Router, queue: &str, counter: &str, count: u64) {
    let shown = || queue_of(router, queue);
    until(SOON, counter, || shown()[counter].as_u64() >= Some(count), shown);
    assert_eq!(shown()[counter], count, "{}", shown());
}

/// The queue as the router's API shows it.
pub(crate) fn queue_of(router: &Router, queue: &str) -> Value {
    let all = router.json("/api/queues");
    let queues = all["queues"].as_array().expect("a list of queues");
    queues.iter().find(|it| it["name"] == queue).cloned().unwrap_or_default()
}
