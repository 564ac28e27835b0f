//! A SQLite queue in the temporary folder and a thread that publishes to it, always a little ahead of the acks.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use shards::clock::Clock;

use crate::broker::feed::{Feed, Tally};
use crate::broker::sqlite::{Consume, Durability, NewMessage, SqliteQueue, SqliteWriter};

/// Messages published at once.
const BATCH: u64 = 2_000;
/// Messages that are published and not acked at most: enough to find free groups, few enough to stay in memory.
const AHEAD_MAX: u64 = 20_000;
/// How soon the publisher looks again whether it may go on.
const AHEAD_LOOK: Duration = Duration::from_millis(2);

/// The file and its publisher. Both end with it.
pub(super) struct Durable {
    writer: Option<SqliteWriter>,
    publisher: Option<JoinHandle<()>>,
    tally: Arc<Tally>,
    published: Arc<AtomicU64>,
    path: PathBuf,
}

impl Durable {
    /// Makes the file and starts to publish.
    pub(super) fn start(feed: Feed, tally: &Arc<Tally>) -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("corelane-bench-{}.db", std::process::id()));
        remove(&path);
        let writer = SqliteWriter::open(&path, Durability::Full)?;
        let published = Arc::new(AtomicU64::new(0));
        let (to, counted, told) = (writer.clone(), Arc::clone(&published), Arc::clone(tally));
        let thread = std::thread::Builder::new()
            .name("publisher".into())
            .spawn(move || publish(&to, &feed, &told, &counted))?;
        let tally = Arc::clone(tally);
        Ok(Self { writer: Some(writer), publisher: Some(thread), tally, published, path })
    }

    /// A consumer of the file.
    pub(super) fn consume(&self) -> SqliteQueue {
        let writer = self.writer.as_ref().expect("there until it is dropped");
        writer.consume(Consume::default())
    }

    /// What the keeper has to say.
    pub(super) fn add_to(&self, extras: &mut BTreeMap<String, serde_json::Value>) {
        let Some(writer) = &self.writer else { return };
        let gauges = writer.gauges();
        let turns = gauges.turns().max(1);
        let published = self.published.load(Ordering::Relaxed);
        extras.insert("published_per_turn".into(), (published / turns).into());
        extras.insert("turn_max_ms".into(), (gauges.turn_max().as_secs_f64() * 1e3).into());
        extras.insert("finish_max_ms".into(), (gauges.finish_max().as_secs_f64() * 1e3).into());
        extras.insert("log_pages_max".into(), gauges.log_pages_max().into());
    }
}

impl Drop for Durable {
    fn drop(&mut self) {
        self.tally.stop();
        if let Some(publisher) = self.publisher.take() {
            let _ = publisher.join();
        }
        self.writer = None;
        remove(&self.path);
    }
}

fn remove(path: &std::path::Path) {
    for end in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        let _ = std::fs::remove_file(name);
    }
}

/// Publishes until the tally is stopped.
fn publish(writer: &SqliteWriter, feed: &Feed, tally: &Tally, published: &AtomicU64) {
    let (start, mut number) = (Clock.now(), 0);
    while !tally.is_stopped() {
        let allowed = feed.pace.map_or(u64::MAX, |pace| {
            let passed = Clock.now().since(start).as_micros() * u128::from(pace) / 1_000_000;
            u64::try_from(passed).unwrap_or(u64::MAX)
        });
        let ahead = tally.acked.load(Ordering::Relaxed) + AHEAD_MAX;
        let upto = (number + BATCH).min(allowed).min(ahead);
        if upto <= number {
            std::thread::sleep(AHEAD_LOOK);
            continue;
        }
        let batch = (number..upto).map(|number| message(feed, number)).collect();
        if let Err(error) = writer.publish_blocking(batch) {
            eprintln!("publish: {error}");
            return;
        }
        number = upto;
        published.store(number, Ordering::Relaxed);
    }
}

fn message(feed: &Feed, number: u64) -> NewMessage {
    let body = format!(
        r#"{{"id":"{number}","poolCode":"{}","mediationType":"HTTP","mediationTarget":"{}"}}"#,
        feed.pool, feed.target
    );
    let group = Some(feed.group_of(number).to_string());
    NewMessage { body: body.into_bytes(), group, ..NewMessage::default() }
}
