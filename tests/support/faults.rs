//! What the fault tests share: counts from the environment, seeded chance, time that passes, and a queue's file as
//! another process sees it.

use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::router::Dir;
use super::wait::until;

/// A count that `make faults` raises through the environment.
pub(crate) fn count(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Seeded chance (xorshift); the seed differs from run to run and is printed, so that a failure can be repeated
/// with `SEED`.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = count("SEED", now.map_or(1, |now| u64::from(now.subsec_nanos()) | 1));
        println!("SEED={seed}");
        Self(seed)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    /// So many milliseconds, and up to `more` on top.
    pub(crate) fn millis(&mut self, least: u64, more: u64) -> Duration {
        Duration::from_millis(least + self.below(more))
    }
}

/// Lets the program work for so long: what is waited for is time itself.
pub(crate) fn let_work(time: Duration) {
    let start = Instant::now();
    until(time * 2 + Duration::from_secs(5), "time passes", || start.elapsed() >= time, || ());
}

/// A queue's file, read next to the routers that use it.
pub(crate) struct QueueLook(Connection);

impl QueueLook {
    pub(crate) fn open(dir: &Dir) -> Self {
        let file = Connection::open(dir.join("corelane.db")).expect("the queue's file");
        file.busy_timeout(Duration::from_secs(10)).expect("a timeout can be set");
        Self(file)
    }

    fn number(&self, query: &str) -> i64 {
        self.0.query_row(query, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{query}: {error}"))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.number("SELECT NOT EXISTS (SELECT 1 FROM queue_messages)") == 1
    }

    pub(crate) fn depth(&self) -> i64 {
        self.number("SELECT count(*) FROM queue_messages")
    }

    /// Claims that some process has, or had when it died.
    pub(crate) fn claims(&self) -> i64 {
        self.number("SELECT count(*) FROM claims")
    }

    /// Processes that have messages, or had when they died.
    pub(crate) fn owners(&self) -> u64 {
        self.number("SELECT count(DISTINCT owner) FROM claims").unsigned_abs()
    }

    /// Messages that nobody may have for more than a second from now.
    pub(crate) fn hidden(&self) -> i64 {
        self.number("SELECT count(*) FROM queue_messages WHERE visible_at > (unixepoch('subsec') + 1) * 1000")
    }
}
