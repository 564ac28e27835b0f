//! The embedded queue: no server, a file per queue, on disk or in the machine's memory.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use corelane::broker::sqlite::{NewMessage, Place, SqliteWriter};
use corelane::topology::QueueUri;
use rusqlite::Connection;

use crate::broker::{Broker, Counts, Draft};
use crate::support::router::Dir;

const SERVERLESS: &str = "no server: the queue is a file";

struct Embedded {
    name: &'static str,
    /// A queue's URI, but for the end of its name.
    stem: String,
    /// Queues made, to be deleted at the end.
    made: Vec<String>,
    _dir: Dir,
}

/// A directory for the files.
pub(crate) fn start() -> Box<dyn Broker> {
    let dir = Dir::new();
    let stem = format!("sqlite:{}", dir.join("e2e-").display());
    Box::new(Embedded { name: "sqlite", stem, made: Vec::new(), _dir: dir })
}

/// Names in memory that no other run has.
pub(crate) fn start_in_memory() -> Box<dyn Broker> {
    let stem = format!("memory:e2e-{}-", std::process::id());
    Box::new(Embedded { name: "memory", stem, made: Vec::new(), _dir: Dir::new() })
}

impl Embedded {
    fn place(&self, queue: &str) -> Place {
        let uri = QueueUri::parse(&self.uri(queue)).expect("a queue's URI");
        Place::of(&uri).expect("a place for the queue").expect("an embedded queue")
    }

    fn writer(&self, queue: &str) -> SqliteWriter {
        let Place { path, durability } = self.place(queue);
        SqliteWriter::open_apart(&path, durability).expect("the queue's file opens")
    }
}

/// Memory is given back: no one comes for these queues again.
impl Drop for Embedded {
    fn drop(&mut self) {
        for queue in &self.made {
            let path = self.place(queue).path;
            let (folder, name) = (path.parent().expect("a folder"), path.file_name().expect("a name"));
            let is_its = |file: &Path| {
                file.file_name().is_some_and(|it| it.as_encoded_bytes().starts_with(name.as_encoded_bytes()))
            };
            let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
            for file in files.filter(|file| is_its(file)) {
                let _ = std::fs::remove_file(file);
            }
        }
    }
}

impl Broker for Embedded {
    /// A call's permit is in use until its ack is in the file.
    fn acks_under_way(&self) -> u64 {
        0
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn version(&self) -> String {
        format!("SQLite {}", rusqlite::version())
    }

    fn lacks(&self, case: &str) -> Option<&'static str> {
        matches!(
            case,
            "broker restart"
                | "connection cut in mid-batch"
                | "connection cut unnoticed"
                | "broker absent at start"
                | "wrong credentials"
                | "stop while the broker hangs"
                | "stalled consumer"
                | "broker kills under load"
                | "power cuts under load"
        )
        .then_some(SERVERLESS)
    }

    fn lease_min(&self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }

    fn make_queue(&mut self, queue: &str, _lease: Duration) {
        drop(self.writer(queue));
        self.made.push(queue.to_owned());
    }

    fn delete_queue(&mut self, queue: &str) {
        let path = self.place(queue).path;
        for end in ["", "-wal", "-shm"] {
            let mut file = path.clone().into_os_string();
            file.push(end);
            let _ = std::fs::remove_file(PathBuf::from(file));
        }
    }

    fn uri(&self, queue: &str) -> String {
        format!("{}{queue}", self.stem)
    }

    fn uri_at(&self, queue: &str, _at: SocketAddr) -> String {
        self.uri(queue)
    }

    fn uri_refused(&self, queue: &str) -> String {
        self.uri(queue)
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    fn publish(&mut self, queue: &str, drafts: &[Draft]) {
        let writer = self.writer(queue);
        let message = |draft: &Draft| NewMessage {
            body: draft.body.clone(),
            group: Some(draft.group.clone()).filter(|group| !group.is_empty()),
            ..NewMessage::default()
        };
        writer.publish_blocking(drafts.iter().map(message).collect()).expect("it takes them");
    }

    fn counts(&mut self, queue: &str) -> Counts {
        let file = Connection::open(self.place(queue).path).expect("the queue's file opens");
        file.busy_timeout(Duration::from_secs(10)).expect("a timeout can be set");
        let number = |query: &str| -> u64 {
            let counted: i64 = file.query_row(query, [], |row| row.get(0)).expect("a count");
            counted.unsigned_abs()
        };
        let held = number("SELECT EXISTS (SELECT 1 FROM claims)");
        Counts { left: number("SELECT count(*) FROM queue_messages"), held }
    }

    fn kill(&mut self) {}

    fn start(&mut self) {}
}
