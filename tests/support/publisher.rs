//! A publisher that writes to the queue's file itself and keeps a log of what it sent and what was confirmed,
//! so that a router can be killed at any moment; and the judge, a program of its own, over that log and the sink's.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use corelane::broker::sqlite::{Durability, NewMessage, SqliteWriter};
use serde_json::Value;

use super::router::Dir;
use super::wait::until;

/// Messages published at once.
const BATCH: u64 = 20;
/// Of those that go ahead.
const AHEAD_BATCH: u64 = 1_000;
const AHEAD_MAX: Duration = Duration::from_secs(60);

/// What to publish.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// Messages in all.
    pub(crate) messages: u64,
    /// Groups they are spread over.
    pub(crate) groups: u64,
    /// Between two batches.
    pub(crate) pause: Duration,
    /// Where they go.
    pub(crate) target: String,
    /// Their pool.
    pub(crate) pool: &'static str,
    /// Published at once, before the paced ones.
    pub(crate) ahead: u64,
}

/// A publisher at work in a thread of the test's process.
pub(crate) struct Publisher {
    thread: JoinHandle<u64>,
    stop: Arc<AtomicBool>,
    published: Arc<AtomicU64>,
    ahead: u64,
    pub(crate) log: PathBuf,
}

impl Publisher {
    pub(crate) fn start(dir: &Dir, load: Load) -> Self {
        let log = dir.join("published.log");
        let (queue, path) = (dir.join("corelane.db"), log.clone());
        let stop = Arc::new(AtomicBool::new(false));
        let published = Arc::new(AtomicU64::new(0));
        let (stopped, counted, ahead) = (Arc::clone(&stop), Arc::clone(&published), load.ahead);
        let thread = std::thread::spawn(move || publish(&queue, &path, &load, &stopped, &counted));
        Self { thread, stop, published, ahead, log }
    }

    /// Waits for what goes ahead, and for the file to be there.
    pub(crate) fn wait_ahead(&self) {
        let published = || self.published.load(Ordering::Relaxed);
        until(AHEAD_MAX, "the first messages", || published() >= self.ahead.max(1), published);
    }

    /// Ends it after the batch at hand; how many were published.
    pub(crate) fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the publisher ends well")
    }
}

fn publish(queue: &Path, log: &Path, load: &Load, stop: &AtomicBool, count: &AtomicU64) -> u64 {
    let writer = SqliteWriter::open_apart(queue, Durability::Full).expect("the queue's file opens");
    let mut log = File::create(log).expect("a log");
    let mut number = 0;
    while number < load.messages && !stop.load(Ordering::Relaxed) {
        let size = if number < load.ahead { AHEAD_BATCH.min(load.ahead - number) } else { BATCH };
        let batch: Vec<u64> = (number..load.messages.min(number + size)).collect();
        number += batch.len() as u64;
        let mut lines = String::new();
        let mut messages = Vec::new();
        for &n in &batch {
            let group = format!("g{}", n % load.groups);
            writeln!(lines, "0\tsent\tm{n}\t{group}").expect("a text takes all");
            let body = serde_json::json!({
                "id": format!("m{n}"), "poolCode": load.pool, "mediationTarget": load.target,
                "messageGroupId": group,
            });
            messages.push(NewMessage { body: body.to_string().into_bytes(), ..NewMessage::default() });
        }
        log.write_all(lines.as_bytes()).expect("the log is written");
        writer.publish_blocking(messages).expect("the queue takes them");
        let mut kept = String::new();
        for n in &batch {
            writeln!(kept, "0\tkept\tm{n}").expect("a text takes all");
        }
        log.write_all(kept.as_bytes()).expect("the log is written");
        count.store(number, Ordering::Relaxed);
        if number >= load.ahead {
            std::thread::park_timeout(load.pause);
        }
    }
    number
}

/// The judge's verdict; the judge is another program and reads nothing but the logs.
pub(crate) fn judge(published: &Path, answered: &Path, duplicates_max: usize) -> Value {
    let output = Command::new(env!("CARGO"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["run", "-q", "-p", "judge", "--", "--duplicates-max", &duplicates_max.to_string()])
        .arg("--published")
        .arg(published)
        .arg("--answered")
        .arg(answered)
        .output()
        .expect("the judge runs");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "the judge says no: {said}{errors}");
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}{errors}"))
}
