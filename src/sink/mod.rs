//! A scripted HTTP target for tests and benchmarks: the path of a request says how it is answered.
//!
//! Two servers behind one handle: a lean one for HTTP/1.1 in clear text (`epoll`), which must cost less than what
//! it measures, and one on hyper for HTTP/2 and TLS (`streams`). `corelane sink --help` lists the scripts.

mod answer;
mod book;
mod conn;
mod delays;
mod epoll;
mod log;
mod script;
mod slots;
mod stats;
mod streams;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mio::{Poll, Waker};
use rustix::thread::{CpuSet, sched_setaffinity};
use thiserror::Error;

use book::{Book, Bookmark};
use epoll::{Door, Parts, Worker};
use log::Log;
use stats::Counters;
pub use stats::Stats;

/// Connections that may wait to be accepted: thousands come at once when a benchmark starts, and one that finds
/// no room tries again only after a second.
const BACKLOG: i32 = 8192;

/// What the sink speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 in clear text: the fast server, every script.
    Http1,
    /// HTTP/2 in clear text, by prior knowledge.
    Http2,
    /// HTTP/1.1 over TLS.
    Http1Tls,
    /// HTTP/2 or HTTP/1.1 over TLS, as ALPN decides.
    Http2Tls,
}

/// How to start a sink.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Serving threads; only [`Protocol::Http1`] uses more than one.
    pub threads: NonZeroUsize,
    /// Cores to pin the threads to, in turn; empty: not pinned.
    pub cores: Vec<usize>,
    /// What it speaks.
    pub protocol: Protocol,
    /// Delay of answers whose script names none.
    pub delay: Duration,
    /// Where to append a line per answer.
    pub log: Option<PathBuf>,
}

impl Default for Options {
    /// HTTP/1.1 on a free port of 127.0.0.1, one unpinned thread, no delay, no log.
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            threads: NonZeroUsize::MIN,
            cores: Vec::new(),
            protocol: Protocol::Http1,
            delay: Duration::ZERO,
            log: None,
        }
    }
}

/// Why a sink does not run. Whoever started it mends it.
#[derive(Debug, Error)]
pub enum SinkError {
    /// The address is taken or not ours.
    #[error("listen on {address}")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The log file cannot be opened.
    #[error("open log {path}")]
    Log {
        /// The file asked for.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// No such core, or not ours to use.
    #[error("pin a thread to core {core}")]
    Pin {
        /// The core asked for.
        core: usize,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The self-signed certificate could not be made.
    #[error("make a certificate: {0}")]
    Certificate(String),
    /// Starting or running a serving thread.
    #[error("serve")]
    Serve(#[from] io::Error),
}

/// A running sink. Dropping it stops it.
#[derive(Debug)]
pub struct Sink {
    address: SocketAddr,
    cert_pem: Option<String>,
    counters: Arc<Counters>,
    stop: Stop,
    threads: Vec<JoinHandle<Result<(), SinkError>>>,
}

#[derive(Debug)]
enum Stop {
    Epoll(Arc<AtomicBool>, Vec<Door>),
    Streams(Option<tokio::sync::oneshot::Sender<()>>),
}

/// Starts a sink; it listens when this returns.
///
/// # Errors
/// When the address, the log, a core or a certificate cannot be had.
pub fn start(options: &Options) -> Result<Sink, SinkError> {
    let listen_error = |source| SinkError::Listen { address: options.listen, source };
    let listener = TcpListener::bind(options.listen).map_err(listen_error)?;
    listener.set_nonblocking(true).map_err(listen_error)?;
    rustix::net::listen(&listener, BACKLOG).map_err(|error| listen_error(error.into()))?;
    let address = listener.local_addr().map_err(listen_error)?;
    match options.protocol {
        Protocol::Http1 => start_epoll(options, listener, address),
        Protocol::Http2 | Protocol::Http1Tls | Protocol::Http2Tls => {
            start_streams(options, listener, address)
        }
    }
}

fn start_epoll(options: &Options, listener: TcpListener, address: SocketAddr) -> Result<Sink, SinkError> {
    let counters = Arc::new(Counters::default());
    let book = Arc::new(Book::new(options.delay));
    let stop = Arc::new(AtomicBool::new(false));
    let (mut doors, mut insides) = (Vec::new(), Vec::new());
    for _ in 0..options.threads.get() {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), epoll::waker_token())?);
        let (connections, arrivals) = mpsc::channel();
        doors.push(Door { connections, waker });
        insides.push((poll, arrivals));
    }
    let mut listener = Some(mio::net::TcpListener::from_std(listener));
    // Made before its threads, so that those already running end if a later one cannot be had.
    let mut sink = Sink {
        address,
        cert_pem: None,
        counters: Arc::clone(&counters),
        stop: Stop::Epoll(Arc::clone(&stop), doors.clone()),
        threads: Vec::new(),
    };
    for (n, (poll, arrivals)) in insides.into_iter().enumerate() {
        let worker = Worker::new(Parts {
            poll,
            listener: listener.take(),
            doors: doors.clone(),
            arrivals,
            stop: Arc::clone(&stop),
            marks: Bookmark::new(Arc::clone(&book)),
            counters: Arc::clone(&counters),
            log: open_log(options)?,
        })?;
        let (stop, doors) = (Arc::clone(&stop), doors.clone());
        sink.threads.push(spawn(options, n, move || {
            let ended = worker.drive();
            // A sink that lost a thread would hang some of its clients: better none.
            stop_all(&stop, &doors);
            Ok(ended?)
        })?);
    }
    Ok(sink)
}

fn start_streams(options: &Options, listener: TcpListener, address: SocketAddr) -> Result<Sink, SinkError> {
    let counters = Arc::new(Counters::default());
    let (tls, cert_pem) = match options.protocol {
        Protocol::Http1 | Protocol::Http2 => (None, None),
        Protocol::Http1Tls => {
            streams::self_signed(&[b"http/1.1"]).map(|(tls, pem)| (Some(tls), Some(pem)))?
        }
        Protocol::Http2Tls => {
            streams::self_signed(&[b"h2", b"http/1.1"]).map(|(tls, pem)| (Some(tls), Some(pem)))?
        }
    };
    let server =
        streams::Server::new(Book::new(options.delay), Arc::clone(&counters), open_log(options)?, tls);
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let thread = spawn(options, 0, move || Ok(server.drive(listener, stopped)?))?;
    Ok(Sink { address, cert_pem, counters, stop: Stop::Streams(Some(stop)), threads: vec![thread] })
}

fn open_log(options: &Options) -> Result<Option<Log>, SinkError> {
    let open =
        |path: &PathBuf| Log::open(path).map_err(|source| SinkError::Log { path: path.clone(), source });
    options.log.as_ref().map(open).transpose()
}

fn spawn(
    options: &Options,
    n: usize,
    serve: impl FnOnce() -> Result<(), SinkError> + Send + 'static,
) -> Result<JoinHandle<Result<(), SinkError>>, SinkError> {
    let core = (!options.cores.is_empty()).then(|| options.cores[n % options.cores.len()]);
    let (tell, told) = mpsc::channel();
    let body = move || {
        let pinned = core.map_or(Ok(()), pin);
        let is_pinned = pinned.is_ok();
        // The starter waits for this and nothing else, so it is there to hear it.
        let _ = tell.send(pinned);
        if is_pinned { serve() } else { Ok(()) }
    };
    let thread = thread::Builder::new().name(format!("sink-{n}")).spawn(body)?;
    told.recv().map_err(io::Error::other)??;
    Ok(thread)
}

/// Keeps the calling thread on one core.
fn pin(core: usize) -> Result<(), SinkError> {
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only).map_err(|source| SinkError::Pin { core, source: source.into() })
}

fn stop_all(stop: &AtomicBool, doors: &[Door]) {
    stop.store(true, Ordering::Release);
    for door in doors {
        // A thread that cannot be woken has ended already.
        let _ = door.waker.wake();
    }
}

impl Sink {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The self-signed certificate, if it serves TLS.
    #[must_use]
    pub fn cert_pem(&self) -> Option<&str> {
        self.cert_pem.as_deref()
    }

    /// What it counted so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.counters.read()
    }

    /// Waits until a serving thread ends, which only an error makes it do.
    ///
    /// # Errors
    /// Whatever ended the thread.
    pub fn wait(mut self) -> Result<(), SinkError> {
        self.join()
    }

    /// Stops and waits for the serving threads.
    ///
    /// # Errors
    /// Whatever had ended a thread before.
    pub fn stop(mut self) -> Result<(), SinkError> {
        self.tell_to_stop();
        self.join()
    }

    fn tell_to_stop(&mut self) {
        match &mut self.stop {
            Stop::Epoll(stop, doors) => stop_all(stop, doors),
            Stop::Streams(stop) => drop(stop.take()),
        }
    }

    fn join(&mut self) -> Result<(), SinkError> {
        for thread in self.threads.drain(..) {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(())
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.tell_to_stop();
        // Whoever wants to know why a thread ended calls `stop` or `wait`.
        let _ = self.join();
    }
}
