//! Keeps the write-ahead log short without holding up the keeper: a second thread copies the log into the file
//! while the keeper writes on; when little is left the keeper copies the rest itself, between two transactions,
//! and so starts the log anew. Without that last step a log that is always written to would grow for ever.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use rusqlite::Connection;
use shards::clock::Clock;

use super::file::Gauges;
use super::schema;

/// Pages in the log (of 4 KiB) from which on it is copied.
const COPY_FROM: u64 = 4_096;
/// Pages left to copy that the keeper takes upon itself.
const FINISH_MAX: u64 = 1_024;
/// Pages in the log at which the keeper copies whatever is left: the log never gets much longer.
const LOG_MAX: u64 = 32_768;

/// The keeper's side.
pub(super) struct Checkpoints {
    /// Pages in the log, as of the last commit.
    pages: Arc<AtomicU64>,
    /// Pages of it that are copied.
    copied: Arc<AtomicU64>,
    wake: Option<flume::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    gauges: Arc<Gauges>,
}

impl Checkpoints {
    /// Starts the second thread and counts the log's pages from now on.
    pub(super) fn start(path: &Path, conn: &mut Connection, gauges: Arc<Gauges>) -> io::Result<Self> {
        let (pages, copied) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&pages);
        conn.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, frames: std::ffi::c_int| {
            count.store(u64::try_from(frames).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))
        .map_err(io::Error::other)?;
        let second = schema::open_for_checkpoints(path).map_err(io::Error::other)?;
        let (wake, woken) = flume::bounded(1);
        let told = Arc::clone(&copied);
        let thread = std::thread::Builder::new().name("queue-copier".into()).spawn(move || {
            while woken.recv().is_ok() {
                // Not copied this time: the next commit asks again, and at `LOG_MAX` the keeper does it.
                if let Ok((_, done)) = copy(&second) {
                    told.store(done, Ordering::Relaxed);
                }
            }
        })?;
        Ok(Self { pages, copied, wake: Some(wake), thread: Some(thread), gauges })
    }

    /// After every commit.
    pub(super) fn after_commit(&self, conn: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        self.gauges.log_pages(pages);
        if pages < COPY_FROM {
            self.copied.store(0, Ordering::Relaxed);
            return;
        }
        let left = pages.saturating_sub(self.copied.load(Ordering::Relaxed));
        if left <= FINISH_MAX || pages >= LOG_MAX {
            let start = Clock.now();
            // Not all copied (a reader is in the way): the next commit tries again.
            if let Ok((all, done)) = copy(conn)
                && all == done
            {
                self.copied.store(0, Ordering::Relaxed);
            }
            self.gauges.finish(Clock.now().since(start));
        } else if let Some(wake) = &self.wake {
            // Full: it is at it.
            let _ = wake.try_send(());
        }
    }

    /// Ends the second thread and leaves a short log behind.
    pub(super) fn end(mut self, conn: &Connection) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = copy(conn);
    }
}

/// Copies what can be copied without waiting for anyone: pages in the log, and how many of them are copied.
fn copy(conn: &Connection) -> rusqlite::Result<(u64, u64)> {
    conn.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?.query_row([], |row| {
        let count = |at| row.get::<_, i64>(at).map(|pages| u64::try_from(pages).unwrap_or(0));
        Ok((count(1)?, count(2)?))
    })
}
