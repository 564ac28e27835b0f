//! What the suite asks of a broker under test. One file in `brokers/` per kind; each starts the real server privately:
//! its own directory, free ports on loopback, nothing shared with what else runs on the machine.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

/// A message as a sender would publish it with this broker's own client.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    /// The sender's id, in the body.
    pub(crate) id: String,
    /// The group, told in the broker's own way (an attribute, a header); empty = none.
    pub(crate) group: String,
    /// The body tells it too, and a broker that would keep a group with one consumer need not know of it.
    pub(crate) group_in_body: bool,
    /// The whole body.
    pub(crate) body: Vec<u8>,
}

impl Draft {
    /// A well-formed message: the group is told by the broker, and the body names none.
    pub(crate) fn new(id: &str, group: &str, pool: &str, target: &str) -> Self {
        let mut body = json!({ "id": id, "mediationTarget": target });
        if !pool.is_empty() {
            body["poolCode"] = Value::from(pool);
        }
        Self {
            id: id.to_owned(),
            group: group.to_owned(),
            group_in_body: false,
            body: body.to_string().into_bytes(),
        }
    }

    /// The same with its group in the body.
    pub(crate) fn with_group_in_body(self) -> Self {
        let mut body: Value = serde_json::from_slice(&self.body).expect("our own");
        body["messageGroupId"] = Value::from(self.group.as_str());
        Self { group_in_body: true, body: body.to_string().into_bytes(), ..self }
    }
}

/// A queue's messages as the broker itself counts them, read anew and not from a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    /// All that it still keeps, handed over or not.
    pub(crate) left: u64,
    /// Of those, handed over and neither acked nor given back. A broker that can't count them says 1 for "some".
    pub(crate) held: u64,
}

/// A broker under test. Everything panics with the broker's name and what went wrong.
pub(crate) trait Broker {
    /// The table's column.
    fn name(&self) -> &'static str;

    /// What the server says of itself, such as `nats-server 2.15.1`.
    fn version(&self) -> String;

    /// Why a case can't apply to this broker, in words for the table. `None` = it must pass.
    fn lacks(&self, _case: &str) -> Option<&'static str> {
        None
    }

    /// The shortest lease that a queue can have here; `None` = a message is held as long as the connection.
    fn lease_min(&self) -> Option<Duration>;

    /// Makes an empty queue. `lease`: where the broker, not its consumer, sets it.
    fn make_queue(&mut self, queue: &str, lease: Duration);

    /// Deletes it with all it holds.
    fn delete_queue(&mut self, queue: &str);

    /// Where the router finds it.
    fn uri(&self, queue: &str) -> String;

    /// The same through a proxy at `at`.
    fn uri_at(&self, queue: &str, at: SocketAddr) -> String;

    /// The same with credentials that the server refuses.
    fn uri_refused(&self, queue: &str) -> String;

    /// Where the server listens, for a proxy. Not asked where a case of a proxy is lacking.
    fn address(&self) -> SocketAddr;

    /// What the router's environment must hold, such as credentials.
    fn env(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Publishes in order and returns when the broker has confirmed all of them as durable.
    fn publish(&mut self, queue: &str, drafts: &[Draft]);

    /// Counts a queue's messages.
    fn counts(&mut self, queue: &str) -> Counts;

    /// Receives and acks so many messages with the broker's own client, delivering nothing, on this thread alone: the
    /// ceiling that the router is measured against.
    fn plain(&mut self, _queues: &[String], _messages: u64) {
        panic!("{} has no plain client to be measured against", self.name());
    }

    /// Requests that the server counted, by name; null where it does not count.
    fn requests(&self) -> Value {
        Value::Null
    }

    /// Acks of a busy pool that are on their way to the broker at most, when its router is killed (ADR 0013).
    fn acks_under_way(&self) -> u64 {
        34
    }

    /// Acks that the server has read and forgets when their sender is gone before they are on its disk.
    fn acks_forgotten(&self) -> u64 {
        0
    }

    /// Kills the server: SIGKILL, as a crash does.
    fn kill(&mut self);

    /// Starts it again, at the same ports and on the same data; returns when it serves.
    fn start(&mut self);
}
