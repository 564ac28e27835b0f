//! An open queue file: shared by everyone in the process who reads from it or publishes to it, so that there is
//! one keeper per file.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use super::claims::Consumer;
use super::inode::Inode;
use super::keeper::Keeper;
use super::request::{Reply, Request};
use super::schema::{self, Durability};

/// Every file that is open in this process.
static OPEN: LazyLock<Mutex<HashMap<PathBuf, Weak<QueueFile>>>> = LazyLock::new(Mutex::default);

/// How the keeper fares: for tests and benchmarks.
#[derive(Debug, Default)]
pub struct Gauges {
    turn_us_max: AtomicU64,
    finish_us_max: AtomicU64,
    log_pages_max: AtomicU64,
    turns: AtomicU64,
}

impl Gauges {
    pub(super) fn turn(&self, took: Duration) {
        self.turns.fetch_add(1, Ordering::Relaxed);
        self.turn_us_max.fetch_max(micros(took), Ordering::Relaxed);
    }

    pub(super) fn finish(&self, took: Duration) {
        self.finish_us_max.fetch_max(micros(took), Ordering::Relaxed);
    }

    pub(super) fn log_pages(&self, pages: u64) {
        self.log_pages_max.fetch_max(pages, Ordering::Relaxed);
    }

    /// The longest transaction.
    #[must_use]
    pub fn turn_max(&self) -> Duration {
        Duration::from_micros(self.turn_us_max.load(Ordering::Relaxed))
    }

    /// The longest pause in which the keeper copied the rest of the log.
    #[must_use]
    pub fn finish_max(&self) -> Duration {
        Duration::from_micros(self.finish_us_max.load(Ordering::Relaxed))
    }

    /// The longest that the log was, in pages of 4 KiB.
    #[must_use]
    pub fn log_pages_max(&self) -> u64 {
        self.log_pages_max.load(Ordering::Relaxed)
    }

    /// Transactions.
    #[must_use]
    pub fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }
}

fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

/// An open file and its keeper, which ends with the last user.
pub(super) struct QueueFile {
    requests: flume::Sender<Request>,
    /// Where its name led when it was opened.
    inode: Inode,
    pub(super) gauges: Arc<Gauges>,
    consumers: AtomicU32,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl QueueFile {
    /// The open file of that name, or opens it.
    pub(super) fn open(path: &Path, durability: Durability) -> io::Result<Arc<Self>> {
        let path = whole(path)?;
        let mut open = OPEN.lock();
        // One that was deleted or replaced is left to those who have it: whoever comes now wants what is there.
        let known = open.get(&path).and_then(Weak::upgrade);
        if let Some(file) = known.filter(|file| file.inode.check(&path).is_ok()) {
            return Ok(file);
        }
        let file = Arc::new(Self::start(&path, durability)?);
        open.retain(|_, file| file.strong_count() > 0);
        open.insert(path, Arc::downgrade(&file));
        Ok(file)
    }

    /// A keeper of its own, as another process would have one: for tests.
    pub(super) fn open_apart(path: &Path, durability: Durability) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self::start(&whole(path)?, durability)?))
    }

    fn start(path: &Path, durability: Durability) -> io::Result<Self> {
        let conn = schema::open(path, durability)?;
        let inode = Inode::of(path)?;
        let (requests, receiver) = flume::unbounded();
        let gauges = Arc::new(Gauges::default());
        let keeper = Keeper::new(path, conn, receiver, Arc::clone(&gauges))?;
        let thread = std::thread::Builder::new().name("queue-keeper".into()).spawn(move || keeper.run())?;
        Ok(Self { requests, inode, gauges, consumers: AtomicU32::new(1), thread: Mutex::new(Some(thread)) })
    }

    /// A new consumer.
    pub(super) fn consumer(&self) -> Consumer {
        Consumer(self.consumers.fetch_add(1, Ordering::Relaxed))
    }

    /// Asks, and says where the answer will come.
    pub(super) fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> flume::Receiver<io::Result<T>> {
        let (reply, answer) = flume::bounded(1);
        // A keeper that has ended drops the request and with it the reply, which says so.
        let _ = self.requests.send(request(reply));
        answer
    }

    pub(super) fn tell(&self, request: Request) {
        let _ = self.requests.send(request);
    }
}

impl Drop for QueueFile {
    /// Waits until the keeper has given back what it had.
    fn drop(&mut self) {
        let _ = self.requests.send(Request::End);
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

/// The answer of a keeper that is gone.
pub(super) fn ended(_: flume::RecvError) -> io::Error {
    io::Error::other("the queue keeper has ended")
}

/// The same file has one name.
fn whole(path: &Path) -> io::Result<PathBuf> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    if let Ok(whole) = path.canonicalize() {
        return Ok(whole);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let name = path.file_name().ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{}: names no file", path.display()))
    })?;
    Ok(folder.unwrap_or_else(|| Path::new(".")).canonicalize().map_err(named)?.join(name))
}
