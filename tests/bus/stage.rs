//! What a case plays on: a prefix of its own at the broker, a directory, and the program.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::hand::Hand;
use crate::support::rabbitmq::RabbitServer;
use crate::support::router::{Dir, Router, program};
use crate::support::wait::until;

/// Long enough for anything but ten retries.
pub(crate) const SOON: Duration = Duration::from_secs(40);

/// The stage of one case.
pub(crate) struct Stage {
    pub(crate) dir: Dir,
    pub(crate) hand: Hand,
    pub(crate) address: SocketAddr,
    /// What the services of this case share.
    pub(crate) prefix: String,
}

/// What a command did.
pub(crate) struct Said {
    pub(crate) ok: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Stage {
    pub(crate) fn new(server: &RabbitServer, number: usize) -> Self {
        let address = server.address;
        Self { dir: Dir::new(), hand: Hand::new(address), address, prefix: format!("p{number}") }
    }

    /// A service of this case.
    pub(crate) fn service(&self, word: &str) -> String {
        format!("{}-{word}", self.prefix)
    }

    /// A name at the broker: `queue`, `retry-queue`, `dlq` of a service.
    pub(crate) fn named(&self, what: &str, word: &str) -> String {
        format!("{}.{what}.{}", self.prefix, self.service(word))
    }

    pub(crate) fn main_exchange(&self) -> String {
        format!("{}.main-exchange", self.prefix)
    }

    pub(crate) fn vhost(&self) -> String {
        format!("amqp://guest:guest@{}/%2F", self.address)
    }

    /// The URI of a service's queue in a config, at a server or a proxy.
    pub(crate) fn uri(&self, at: SocketAddr, word: &str, target: &str) -> String {
        format!("amqp://guest:guest@{at}/%2F?service={}&target={target}", self.service(word))
    }

    /// Starts `corelane run` over these services and targets, and waits until it consumes.
    pub(crate) fn router(&self, services: &[(&str, &str)], flags: &[&str]) -> Router {
        self.router_at(self.address, services, flags)
    }

    /// The same, with the broker behind another address.
    pub(crate) fn router_at(&self, at: SocketAddr, services: &[(&str, &str)], flags: &[&str]) -> Router {
        let mut config = String::new();
        for (word, target) in services {
            let (name, uri) = (self.service(word), self.uri(at, word, target));
            writeln!(config, "[[queue]]\nname = {name:?}\nuri = {uri:?}\n").expect("a text takes all");
        }
        std::fs::write(self.dir.join("corelane.toml"), config).expect("the config is written");
        let router = Router::start(&self.dir, flags);
        for (word, _) in services {
            self.wait_queue(word);
        }
        router
    }

    /// Waits until a service is declared and consumed.
    pub(crate) fn wait_queue(&self, word: &str) {
        let queue = self.named("queue", word);
        until(SOON, "it is consumed", || self.hand.is_consumed(&queue), || self.dir.logs());
    }

    /// Waits until so many messages wait in a queue of a service.
    pub(crate) fn wait_depth(&self, what: &str, word: &str, count: u32) {
        self.wait_depth_within(what, word, count, SOON);
    }

    pub(crate) fn wait_depth_within(&self, what: &str, word: &str, count: u32, max: Duration) {
        let queue = self.named(what, word);
        let depth = || self.hand.depth(&queue);
        let name = format!("{count} in {queue}");
        until(max, &name, || depth() == Some(count), || (depth(), self.dir.logs()));
    }

    /// Nothing of a service is left at the broker: acked, not only handed over.
    pub(crate) fn wait_gone(&self, router: Router, word: &str) {
        let (status, _) = router.stop();
        assert!(status.success(), "{status:?}: {}", self.dir.logs());
        for what in ["queue", "retry-queue", "dlq"] {
            assert_eq!(self.hand.depth(&self.named(what, word)), Some(0), "{what}: {}", self.dir.logs());
        }
    }

    /// Runs a command to its end.
    pub(crate) fn corelane(&self, arguments: &[&str], input: &str) -> Said {
        let mut child = Command::new(program())
            .current_dir(self.dir.path())
            .args(arguments)
            .env_clear()
            .env("CORELANE_BUS", self.vhost())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut stdin = child.stdin.take().expect("piped");
        // One that ends early does not read all of it.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let Output { status, stdout, stderr } = child.wait_with_output().expect("our own child");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Said { ok: status.success(), out: text(&stdout), err: text(&stderr) }
    }

    /// A command that must work; what it printed.
    pub(crate) fn done(&self, arguments: &[&str], input: &str) -> String {
        let Said { ok, out, err } = self.corelane(arguments, input);
        assert!(ok, "{arguments:?}: {out}{err}");
        out
    }

    /// `corelane dlq …` on a service's DLQ.
    pub(crate) fn dlq(&self, action: &[&str], word: &str) -> String {
        let (vhost, service) = (self.vhost(), self.service(word));
        let place = ["--bus", &vhost, "--service", &service];
        self.done(&[&["dlq"], action, &place[..]].concat(), "")
    }

    /// Publishes these lines to the case's prefix.
    pub(crate) fn publish(&self, lines: &str) {
        self.done(&["bus", "publish", "--prefix", &self.prefix], lines);
    }
}

/// `{"n":0}` and so on, a line each.
pub(crate) fn lines(count: usize) -> String {
    let mut all = String::new();
    for n in 0..count {
        writeln!(all, "{{\"n\":{n}}}").expect("a text takes all");
    }
    all
}
