//! The wire on epoll, by mio: for hosts where io_uring is blocked.
//! Core: its shard's. Owns: the poll, the sockets, one buffer that every read goes through.
//!
//! - E1: readiness is edge-triggered: a connection stays on the ready list until a read or write of it
//!   said "would block", or it was closed.
//! - E2: a closed connection's socket is closed at once, and every list entry names a tenant, so a late
//!   entry meets no one (W1, W2).
//! - E3: one connection's turn is bounded; what it has left waits behind the others.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::{Command, ConnId, Event, Patience, Wire};
use crate::clock::{Clock, Moment};
use crate::link::Bell;

/// Readiness reports fetched by one poll.
const POLL_EVENTS_MAX: usize = 1_024;
/// Connections handled by one `take`.
const TAKE_MAX: usize = 1_024;
/// One read's worth; shared by all connections, so it may be ample.
const READ_BYTES: usize = 64 * 1_024;
/// E3: reads of one connection in one `take`.
const READS_MAX: usize = 4;
/// E3: writes of one connection in one `take`; the kernel takes up to its send buffer each time.
const WRITES_MAX: usize = 16;
/// No connection has it: the courier's slots do not reach 2³² − 1.
const BELL: Token = Token(usize::MAX);

/// Something to report that no socket will say again.
enum Report {
    Sent(ConnId, Vec<u8>),
    Failed(ConnId, io::ErrorKind),
}

/// Where a connection is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Connecting,
    Open,
    /// Its end was reported: nothing more is, until it is closed.
    Ended,
}

struct Conn {
    tenant: u32,
    phase: Phase,
    /// None: the kernel refused it at once.
    stream: Option<TcpStream>,
    /// Bytes being sent, and how many of them the kernel has taken.
    outgoing: Option<(Vec<u8>, usize)>,
    /// It is on the ready list.
    listed: bool,
    /// Why sending failed; reported after the bytes that arrived before.
    broken: Option<io::ErrorKind>,
}

/// Moves bytes with epoll.
pub struct EpollWire {
    poll: Poll,
    events: Events,
    conns: Vec<Option<Conn>>,
    open: usize,
    /// Connections that may have something to do (E1).
    ready: VecDeque<ConnId>,
    reports: VecDeque<Report>,
    scratch: Box<[u8]>,
    bell: Arc<Bell>,
}

impl EpollWire {
    /// A wire for about `connections_hint` connections, woken by `bell`.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new(bell: Arc<Bell>, connections_hint: usize) -> io::Result<Self> {
        let poll = Poll::new()?;
        let descriptor = bell.as_fd().as_raw_fd();
        poll.registry().register(&mut SourceFd(&descriptor), BELL, Interest::READABLE)?;
        Ok(Self {
            poll,
            events: Events::with_capacity(POLL_EVENTS_MAX),
            conns: Vec::with_capacity(connections_hint),
            open: 0,
            ready: VecDeque::with_capacity(connections_hint),
            reports: VecDeque::new(),
            scratch: vec![0; READ_BYTES].into_boxed_slice(),
            bell,
        })
    }

    fn connect(&mut self, id: ConnId, address: SocketAddr) {
        let stream = match self.open_stream(id, address) {
            Ok(stream) => Some(stream),
            Err(error) => {
                self.reports.push_back(Report::Failed(id, error.kind()));
                None
            }
        };
        let phase = if stream.is_some() { Phase::Connecting } else { Phase::Ended };
        let slot = id.slot as usize;
        if slot >= self.conns.len() {
            self.conns.resize_with(slot + 1, || None);
        }
        debug_assert!(self.conns[slot].is_none(), "a slot's last connection is closed first");
        self.open += usize::from(self.conns[slot].is_none());
        let conn = Conn { tenant: id.tenant, phase, stream, outgoing: None, listed: false, broken: None };
        self.conns[slot] = Some(conn);
    }

    fn open_stream(&self, id: ConnId, address: SocketAddr) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        self.poll.registry().register(&mut stream, token(id), Interest::READABLE | Interest::WRITABLE)?;
        Ok(stream)
    }

    fn send(&mut self, id: ConnId, bytes: Vec<u8>) {
        let Some(conn) = find(&mut self.conns, id) else { return };
        if conn.phase == Phase::Ended {
            return; // W4: the connection's end was the send's.
        }
        debug_assert!(conn.outgoing.is_none(), "W4: one send at a time");
        conn.outgoing = Some((bytes, 0));
        if conn.phase == Phase::Connecting {
            return;
        }
        match conn.write() {
            Progress::Done(buffer) => self.reports.push_back(Report::Sent(id, buffer)),
            Progress::Blocked => {}
            Progress::More => self.list(id),
        }
    }

    fn close(&mut self, id: ConnId) {
        let Some(conn) = find(&mut self.conns, id) else { return };
        if let Some(stream) = &mut conn.stream {
            // Closing the only descriptor of the socket would do the same.
            let _ = self.poll.registry().deregister(stream);
        }
        self.conns[id.slot as usize] = None;
        self.open -= 1;
        self.reports.retain(|report| {
            let (Report::Sent(conn, _) | Report::Failed(conn, _)) = report;
            *conn != id
        });
    }

    fn list(&mut self, id: ConnId) {
        if let Some(conn) = find(&mut self.conns, id)
            && !std::mem::replace(&mut conn.listed, true)
        {
            self.ready.push_back(id);
        }
    }

    /// One bounded turn of a ready connection. True = it may have more to do.
    fn serve(&mut self, id: ConnId, on_event: &mut dyn FnMut(Event<'_>)) -> bool {
        let Some(conn) = find(&mut self.conns, id) else { return false };
        conn.listed = false;
        if conn.phase == Phase::Connecting {
            match conn.try_finish_connect() {
                Ok(false) => return false,
                Ok(true) => {
                    conn.phase = Phase::Open;
                    on_event(Event::Connected(id));
                }
                Err(kind) => {
                    conn.phase = Phase::Ended;
                    on_event(Event::Failed(id, kind));
                }
            }
        }
        if conn.phase == Phase::Ended {
            return false;
        }
        let mut more = false;
        if conn.outgoing.is_some() {
            match conn.write() {
                Progress::Done(buffer) => on_event(Event::Sent(id, buffer)),
                Progress::Blocked => {}
                Progress::More => more = true,
            }
        }
        more | conn.read(id, &mut self.scratch, on_event)
    }
}

/// How far a write came.
enum Progress {
    Done(Vec<u8>),
    /// The kernel will say when it can go on, or why it never can.
    Blocked,
    More,
}

impl Conn {
    /// True = it is open, false = not decided yet.
    fn try_finish_connect(&mut self) -> Result<bool, io::ErrorKind> {
        let stream = self.stream.as_ref().expect("only a connection with a socket is connecting");
        if let Some(error) = stream.take_error().map_err(|error| error.kind())? {
            return Err(error.kind());
        }
        match stream.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error.kind()),
        }
    }

    fn write(&mut self) -> Progress {
        let (Some(stream), Some((mut bytes, mut sent))) = (self.stream.as_mut(), self.outgoing.take()) else {
            return Progress::Blocked;
        };
        for _ in 0..WRITES_MAX {
            if sent == bytes.len() {
                bytes.clear();
                return Progress::Done(bytes);
            }
            match stream.write(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.outgoing = Some((bytes, sent));
                    return Progress::Blocked;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.broken = Some(error.kind());
                    return Progress::More; // To read what arrived before, then report.
                }
            }
        }
        self.outgoing = Some((bytes, sent));
        Progress::More
    }

    /// True = there may be more to read.
    fn read(&mut self, id: ConnId, scratch: &mut [u8], on_event: &mut dyn FnMut(Event<'_>)) -> bool {
        let Some(stream) = self.stream.as_mut() else { return false };
        for _ in 0..READS_MAX {
            let end = match stream.read(scratch) {
                Ok(0) => self.broken.map_or(Event::Eof(id), |kind| Event::Failed(id, kind)),
                Ok(count) => {
                    on_event(Event::Received(id, &scratch[..count]));
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match self.broken {
                    None => return false,
                    Some(kind) => Event::Failed(id, kind),
                },
                Err(error) => Event::Failed(id, self.broken.unwrap_or(error.kind())),
            };
            self.phase = Phase::Ended;
            self.outgoing = None;
            on_event(end);
            return false;
        }
        true
    }
}

impl Wire for EpollWire {
    fn submit(&mut self, command: Command) {
        match command {
            Command::Connect(id, address) => self.connect(id, address),
            Command::Send(id, bytes) => self.send(id, bytes),
            Command::Close(id) => self.close(id),
        }
    }

    /// Blocks the thread, which is the shard's own: nothing else waits for it. Wakes up to a
    /// millisecond late: epoll's timeout counts milliseconds.
    async fn wait(&mut self, patience: Patience) {
        let limit = match patience {
            _ if !self.ready.is_empty() || !self.reports.is_empty() => Some(Duration::ZERO),
            Patience::None => Some(Duration::ZERO),
            Patience::Until(Moment::NEVER) => None,
            Patience::Until(deadline) => Some(deadline.since(Clock.now())),
        };
        if let Err(error) = self.poll.poll(&mut self.events, limit) {
            let kind = error.kind();
            assert!(kind == io::ErrorKind::Interrupted, "epoll_wait refused its own poll: {error}");
            return;
        }
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in events.iter().filter(|event| event.token() != BELL) {
            self.list(conn_of(event.token()));
        }
        self.events = events;
    }

    fn take(&mut self, on_event: &mut dyn FnMut(Event<'_>)) {
        for _ in 0..TAKE_MAX.min(self.reports.len()) {
            match self.reports.pop_front() {
                Some(Report::Sent(id, buffer)) => on_event(Event::Sent(id, buffer)),
                Some(Report::Failed(id, kind)) => on_event(Event::Failed(id, kind)),
                None => break,
            }
        }
        for _ in 0..TAKE_MAX.min(self.ready.len()) {
            let Some(id) = self.ready.pop_front() else { break };
            if self.serve(id, on_event) {
                self.list(id); // E3: behind those that wait already.
            }
        }
    }

    fn open(&self) -> usize {
        self.open
    }
}

impl Drop for EpollWire {
    fn drop(&mut self) {
        let descriptor = self.bell.as_fd().as_raw_fd();
        // The poll goes away with us: nothing is lost if this fails.
        let _ = self.poll.registry().deregister(&mut SourceFd(&descriptor));
    }
}

fn find(conns: &mut [Option<Conn>], id: ConnId) -> Option<&mut Conn> {
    conns.get_mut(id.slot as usize)?.as_mut().filter(|conn| conn.tenant == id.tenant)
}

fn token(id: ConnId) -> Token {
    Token((id.slot as usize) << 32 | id.tenant as usize)
}

fn conn_of(token: Token) -> ConnId {
    let half = |bits: usize| u32::try_from(bits & 0xffff_ffff).expect("masked to 32 bits");
    ConnId { slot: half(token.0 >> 32), tenant: half(token.0) }
}
