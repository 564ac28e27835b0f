//! ActiveMQ Classic: messages come by its own JMS client, counts from its statistics.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use crate::broker::{Broker, Counts, Draft};
use crate::support::activemq::{ActiveMqServer, PASSWORD, Post, Setup, USER};

struct ActiveMq(ActiveMqServer);

/// A server of its own.
pub(crate) fn start() -> Box<dyn Broker> {
    Box::new(ActiveMq(ActiveMqServer::start(&Setup::default())))
}

impl Broker for ActiveMq {
    fn name(&self) -> &'static str {
        "activemq"
    }

    fn version(&self) -> String {
        let asked = Command::new("dpkg-query").args(["-W", "-f", "${Version}", "activemq"]).output();
        let version = asked.expect("activemq: Debian's package").stdout;
        format!("ActiveMQ {}", String::from_utf8_lossy(&version))
    }

    fn lease_min(&self) -> Option<Duration> {
        None
    }

    fn make_queue(&mut self, queue: &str, _lease: Duration) {
        self.0.jms(&["make", queue], &[]);
    }

    fn delete_queue(&mut self, queue: &str) {
        self.0.jms(&["delete", queue], &[]);
    }

    fn uri(&self, queue: &str) -> String {
        self.uri_at(queue, self.0.address)
    }

    fn uri_at(&self, queue: &str, at: SocketAddr) -> String {
        format!("activemq://{USER}:{PASSWORD}@{at}/{queue}")
    }

    fn uri_refused(&self, queue: &str) -> String {
        format!("activemq://{USER}:wrong-secret@{}/{queue}", self.0.address)
    }

    fn address(&self) -> SocketAddr {
        self.0.address
    }

    fn publish(&mut self, queue: &str, drafts: &[Draft]) {
        // Text and bytes by turns: senders use both.
        let kinds = ["text", "bytes"].into_iter().cycle();
        let posts: Vec<Post<'_>> = drafts
            .iter()
            .zip(kinds)
            .map(|(draft, kind)| Post {
                kind,
                group: if draft.group_in_body { "" } else { &draft.group },
                body: &draft.body,
                properties: &[],
            })
            .collect();
        self.0.publish(queue, &posts, false);
    }

    fn counts(&mut self, queue: &str) -> Counts {
        let [left, held, _] = self.0.counts(queue);
        Counts { left, held }
    }

    /// By its own JMS client, in a process of its own.
    fn plain(&mut self, queues: &[String], messages: u64) {
        let each = (messages / queues.len() as u64).to_string();
        for queue in queues {
            self.0.jms(&["drain", queue, &each], &[]);
        }
    }

    fn kill(&mut self) {
        self.0.kill();
    }

    fn start(&mut self) {
        self.0.launch();
    }
}
