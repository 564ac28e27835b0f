//! The SQLite queue: no server, a file per queue.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use corelane::broker::sqlite::{Durability, NewMessage, SqliteWriter};
use rusqlite::Connection;

use crate::broker::{Broker, Counts, Draft};
use crate::support::router::Dir;

const SERVERLESS: &str = "no server: the queue is a file";

struct Sqlite {
    dir: Dir,
}

/// A directory for the files.
pub(crate) fn start() -> Box<dyn Broker> {
    Box::new(Sqlite { dir: Dir::new() })
}

impl Sqlite {
    fn file(&self, queue: &str) -> PathBuf {
        self.dir.join(&format!("{queue}.db"))
    }
}

impl Broker for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn version(&self) -> String {
        format!("SQLite {}", rusqlite::version())
    }

    fn lacks(&self, case: &str) -> Option<&'static str> {
        matches!(
            case,
            "broker restart"
                | "connection cut in mid-batch"
                | "broker absent at start"
                | "wrong credentials"
                | "stalled consumer"
                | "broker kills under load"
        )
        .then_some(SERVERLESS)
    }

    fn lease_min(&self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }

    fn make_queue(&mut self, queue: &str, _lease: Duration) {
        drop(
            SqliteWriter::open_apart(&self.file(queue), Durability::Full).expect("sqlite: the file is made"),
        );
    }

    fn delete_queue(&mut self, queue: &str) {
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(self.dir.join(&format!("{queue}.db{end}")));
        }
    }

    fn uri(&self, queue: &str) -> String {
        format!("sqlite:{}", self.file(queue).display())
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
        let writer = SqliteWriter::open_apart(&self.file(queue), Durability::Full).expect("sqlite: it opens");
        let message = |draft: &Draft| NewMessage {
            body: draft.body.clone(),
            group: Some(draft.group.clone()).filter(|group| !group.is_empty()),
            ..NewMessage::default()
        };
        writer.publish_blocking(drafts.iter().map(message).collect()).expect("sqlite: it takes them");
    }

    fn counts(&mut self, queue: &str) -> Counts {
        let file = Connection::open(self.file(queue)).expect("sqlite: the file opens");
        file.busy_timeout(Duration::from_secs(10)).expect("sqlite: a timeout can be set");
        let number = |query: &str| -> u64 {
            let counted: i64 = file.query_row(query, [], |row| row.get(0)).expect("sqlite: a count");
            counted.unsigned_abs()
        };
        let held = number("SELECT EXISTS (SELECT 1 FROM claims)");
        Counts { left: number("SELECT count(*) FROM queue_messages"), held }
    }

    fn kill(&mut self) {}

    fn start(&mut self) {}
}
