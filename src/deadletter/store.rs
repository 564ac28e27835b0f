//! The dead-letter store: a SQLite file of its own, behind threads of its own, so that neither the ingress nor the
//! control thread ever waits for the disk. One thread writes and another reads, so that a long list never holds up
//! a letter. Every call may come from several processes at once.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use rusqlite::Connection;
use shards::clock::Clock;

use super::{rows, schema};
use crate::ingress::{Letter, SetAside};
use crate::view::{DeadLetterFilter, DeadLetterView};

/// Letters removed in one transaction: a purge never holds up the router for long.
const PURGE_STEP: usize = 1_000;

/// Something to do with the file.
type Job = Box<dyn FnOnce(&Connection) + Send>;

/// Which part of a list.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Only letters with smaller numbers: the last number of the page before.
    pub below: Option<i64>,
    /// At most so many.
    pub limit: usize,
}

/// A letter with what a retry must know of it.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Its number in the store.
    pub number: i64,
    /// How often it was set aside again.
    pub edition: i64,
    /// The letter.
    pub letter: Letter,
}

/// A handle on the store. Clones share it; it is closed with the last one.
#[derive(Clone)]
pub struct DeadLetterStore(Arc<Shared>);

struct Shared {
    writer: Clerk,
    reader: Clerk,
    name: String,
}

/// A connection and its thread, which ends with it.
struct Clerk {
    jobs: Option<flume::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Clerk {
    fn start(conn: Connection, name: &str) -> io::Result<Self> {
        let (jobs, receiver) = flume::unbounded::<Job>();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            while let Ok(job) = receiver.recv() {
                job(&conn);
            }
        })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    fn ask<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> flume::Receiver<io::Result<T>> {
        let (reply, answer) = flume::bounded(1);
        let job: Job = Box::new(move |conn| drop(reply.send(job(conn).map_err(io::Error::other))));
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
        answer
    }

    async fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.ask(job).recv_async().await.map_err(|_| ended())?
    }

    fn call_blocking<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.ask(job).recv().map_err(|_| ended())?
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl DeadLetterStore {
    /// Opens the store, creates it if there is none. Blocks.
    ///
    /// # Errors
    /// It can't be opened, is not a store, or was written by a newer version.
    pub fn open(path: &Path) -> io::Result<Self> {
        let conn = schema::open(path)?;
        let name = rows::name(&conn).map_err(io::Error::other)?;
        let reader = Clerk::start(schema::open_to_read(path)?, "letters-reader")?;
        let writer = Clerk::start(conn, "dead-letters")?;
        Ok(Self(Arc::new(Shared { writer, reader, name })))
    }

    /// The store's own name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// A page of letters, newest first, without bodies.
    ///
    /// # Errors
    /// The file can't be read.
    pub async fn list(&self, filter: DeadLetterFilter, page: Page) -> io::Result<Vec<DeadLetterView>> {
        self.0.reader.call(move |conn| rows::list(conn, &filter, page)).await
    }

    /// The same for a thread that may block.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn list_blocking(&self, filter: DeadLetterFilter, page: Page) -> io::Result<Vec<DeadLetterView>> {
        self.0.reader.call_blocking(move |conn| rows::list(conn, &filter, page))
    }

    /// How many letters there are.
    ///
    /// # Errors
    /// The file can't be read.
    pub async fn count(&self, filter: DeadLetterFilter) -> io::Result<u64> {
        self.0.reader.call(move |conn| rows::count(conn, &filter)).await
    }

    /// The same for a thread that may block.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn count_blocking(&self, filter: DeadLetterFilter) -> io::Result<u64> {
        self.0.reader.call_blocking(move |conn| rows::count(conn, &filter))
    }

    /// One letter with its body; `None` if there is none of that number.
    ///
    /// # Errors
    /// The file can't be read.
    pub async fn show(&self, number: i64) -> io::Result<Option<DeadLetterView>> {
        self.0.reader.call(move |conn| rows::show(conn, number)).await
    }

    /// The same for a thread that may block.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn show_blocking(&self, number: i64) -> io::Result<Option<DeadLetterView>> {
        self.0.reader.call_blocking(move |conn| rows::show(conn, number))
    }

    /// Deletes letters for good, a step at a time; `progress` is told how many are gone. What is set aside
    /// meanwhile stays: no one has seen it yet. Blocks.
    ///
    /// # Errors
    /// The file can't be written; what was deleted before stays deleted.
    pub fn purge_blocking(&self, filter: &DeadLetterFilter, progress: &dyn Fn(u64)) -> io::Result<u64> {
        let newest = self.0.writer.call_blocking(rows::newest)?;
        let mut gone = 0;
        loop {
            let step = filter.clone();
            let deleted =
                self.0.writer.call_blocking(move |conn| rows::purge(conn, &step, newest, PURGE_STEP))?;
            gone += deleted as u64;
            progress(gone);
            if deleted == 0 {
                return Ok(gone);
            }
        }
    }

    /// Deletes letters for good, a step at a time. What is set aside meanwhile stays.
    ///
    /// # Errors
    /// The file can't be written; what was deleted before stays deleted.
    pub async fn purge(&self, filter: DeadLetterFilter) -> io::Result<u64> {
        let newest = self.0.writer.call(rows::newest).await?;
        let mut gone = 0;
        loop {
            let step = filter.clone();
            let deleted =
                self.0.writer.call(move |conn| rows::purge(conn, &step, newest, PURGE_STEP)).await?;
            gone += deleted as u64;
            if deleted == 0 {
                return Ok(gone);
            }
        }
    }

    /// Whole letters after a place, by queue and place. Blocks.
    pub(super) fn whole(
        &self,
        filter: &DeadLetterFilter,
        after: (String, i64, i64),
        max: usize,
    ) -> io::Result<Vec<Kept>> {
        let filter = filter.clone();
        self.0.reader.call_blocking(move |conn| rows::whole(conn, &filter, (&after.0, after.1, after.2), max))
    }

    /// Removes letters that are back in their queue. Blocks.
    pub(super) fn remove(&self, letters: Vec<(i64, i64)>) -> io::Result<usize> {
        self.0.writer.call_blocking(move |conn| rows::remove(conn, &letters))
    }
}

impl SetAside for DeadLetterStore {
    async fn set_aside(&self, letters: Vec<Letter>) -> io::Result<()> {
        let at = Clock.unix_s();
        self.0.writer.call(move |conn| rows::keep(conn, &letters, at)).await
    }
}

fn ended() -> io::Error {
    io::Error::other("the dead-letter store has ended")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// Keeps a clerk busy, in the middle of reading, until the sender is dropped.
    fn busy(clerk: &Clerk) -> flume::Sender<()> {
        let (gate, closed) = flume::bounded::<()>(0);
        let (started, start) = flume::bounded(1);
        drop(clerk.ask(move |conn| {
            conn.execute_batch("BEGIN; SELECT count(*) FROM dead_letters")?;
            let _ = started.send(());
            let _ = closed.recv();
            conn.execute_batch("COMMIT")
        }));
        start.recv_timeout(LONG).expect("it begins to read");
        gate
    }

    #[test]
    fn a_long_read_holds_up_no_letter_and_a_long_write_no_list() {
        let path = std::env::temp_dir().join(format!("corelane-clerks-{}.db", std::process::id()));
        let store = DeadLetterStore::open(&path).expect("opened");
        let reading = busy(&store.0.reader);
        let (done, set_aside) = flume::bounded(1);
        let other = store.clone();
        let writing = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let _ = done.send(runtime.block_on(other.set_aside(vec![letter()])));
        });
        set_aside.recv_timeout(LONG).expect("it does not wait for the reader").expect("kept");
        writing.join().expect("it ends");
        drop(reading);
        let writing = busy(&store.0.writer);
        let (done, counted) = flume::bounded(1);
        let other = store.clone();
        let reading = std::thread::spawn(move || {
            let page = Page { below: None, limit: 9 };
            let listed = other.list_blocking(DeadLetterFilter::default(), page).map(|list| list.len());
            let _ = done.send((listed.ok(), other.count_blocking(DeadLetterFilter::default()).ok()));
        });
        let counted = counted.recv_timeout(LONG).expect("it does not wait for the writer");
        assert_eq!(counted, (Some(1), Some(1)));
        reading.join().expect("it ends");
        drop((writing, store));
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{end}", path.display()));
        }
    }

    fn letter() -> Letter {
        Letter {
            queue: "q".into(),
            key: 1,
            id: "m".into(),
            group: String::new(),
            pool: String::new(),
            target: String::new(),
            token: String::new(),
            dispatch: shards::model::Dispatch::Immediate,
            high_priority: false,
            body: Vec::new(),
            reason: shards::model::DeadReason::Refused,
            detail: String::new(),
            status: 0,
            attempts: 0,
        }
    }
}
