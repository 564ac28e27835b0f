//! The fast sink: HTTP/1.1 in clear text, one thread per core, no task per connection.
//!
//! It shares the machine with what it measures, so a request costs one read and one write at most. A turn: wait,
//! read what came, take the answers that fell due, append the log, write each touched connection once.
//!
//! - E1: a key names one connection for ever: it carries the slot's generation, so a late timer finds nobody.
//! - E2: the log is appended before the answers leave (L1).

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};

use super::answer::{self, After};
use super::book::Bookmark;
use super::conn::{Conn, Request, Step};
use super::delays::Delays;
use super::log::Log;
use super::script::Shape;
use super::slots::Slots;
use super::stats::Counters;

const LISTENER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);
/// Events a turn: enough that a wait is shared by many requests, few enough that answers do not linger.
const TURN_EVENTS_MAX: usize = 256;
/// Bytes a read may bring: many pipelined requests, or a good piece of a large body.
const READ_BYTES: usize = 64 << 10;
/// How long to leave a listener alone that cannot accept, usually for want of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(10);

/// A way to hand connections to a thread, or to wake it.
#[derive(Debug, Clone)]
pub(super) struct Door {
    pub(super) connections: Sender<TcpStream>,
    pub(super) waker: Arc<Waker>,
}

/// A serving thread's state.
pub(super) struct Worker {
    poll: Poll,
    /// Only the first thread has one; it deals the connections out in turn.
    listener: Option<TcpListener>,
    doors: Vec<Door>,
    door_next: usize,
    accept_again: bool,
    arrivals: Receiver<TcpStream>,
    stop: Arc<AtomicBool>,
    desk: Desk,
    dirty: Vec<usize>,
    due: Vec<usize>,
    read_buffer: Vec<u8>,
}

/// What a request meets: scripts, counters, delays, log.
struct Desk {
    slots: Slots<Line>,
    marks: Bookmark,
    counters: Arc<Counters>,
    delays: Delays,
    log: Option<Log>,
    now: Instant,
}

/// A connection and its socket.
struct Line {
    stream: TcpStream,
    conn: Conn,
    /// On the list of connections to write.
    dirty: bool,
    /// Registered for writability, too.
    wants_write: bool,
}

/// What a thread is made of.
pub(super) struct Parts {
    pub(super) poll: Poll,
    pub(super) listener: Option<TcpListener>,
    pub(super) doors: Vec<Door>,
    pub(super) arrivals: Receiver<TcpStream>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) marks: Bookmark,
    pub(super) counters: Arc<Counters>,
    pub(super) log: Option<Log>,
}

/// The token a thread's waker must be registered with.
pub(super) const fn waker_token() -> Token {
    WAKER
}

impl Worker {
    pub(super) fn new(parts: Parts) -> io::Result<Self> {
        let Parts { poll, mut listener, doors, arrivals, stop, marks, counters, log } = parts;
        if let Some(listener) = &mut listener {
            poll.registry().register(listener, LISTENER, Interest::READABLE)?;
        }
        let now = Instant::now();
        let desk = Desk { slots: Slots::new(), marks, counters, delays: Delays::new(), log, now };
        Ok(Self {
            poll,
            listener,
            doors,
            door_next: 0,
            accept_again: false,
            arrivals,
            stop,
            desk,
            dirty: Vec::new(),
            due: Vec::new(),
            read_buffer: vec![0; READ_BYTES],
        })
    }

    /// Serves until it is told to stop.
    pub(super) fn drive(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(TURN_EVENTS_MAX);
        while !self.stop.load(Ordering::Acquire) {
            match self.poll.poll(&mut events, self.wait_max()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            self.desk.now = Instant::now();
            if self.accept_again {
                self.accept()?;
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept()?,
                    WAKER => self.welcome_arrivals()?,
                    Token(key) => {
                        if event.is_readable() || event.is_read_closed() || event.is_error() {
                            self.read(key, event.is_read_closed() || event.is_error());
                        }
                        if event.is_writable() {
                            self.touch(key);
                        }
                    }
                }
            }
            self.answer_due();
            self.write_answers()?;
        }
        Ok(())
    }

    fn wait_max(&self) -> Option<Duration> {
        let until_due = self.desk.delays.next_due().map(|due| due.saturating_duration_since(Instant::now()));
        let until_accept = self.accept_again.then_some(ACCEPT_RETRY);
        [until_due, until_accept].into_iter().flatten().min()
    }

    fn accept(&mut self) -> io::Result<()> {
        self.accept_again = false;
        loop {
            let Some(listener) = &self.listener else { return Ok(()) };
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => continue,
                    _ => {
                        self.accept_again = true;
                        return Ok(());
                    }
                },
            };
            let chosen = self.door_next;
            self.door_next = (chosen + 1) % self.doors.len();
            // The first thread is the one that accepts: its own share needs no door.
            if chosen == 0 {
                self.welcome(stream)?;
            } else if self.doors[chosen].connections.send(stream).is_ok() {
                self.doors[chosen].waker.wake()?;
            }
        }
    }

    fn welcome_arrivals(&mut self) -> io::Result<()> {
        while let Ok(stream) = self.arrivals.try_recv() {
            self.welcome(stream)?;
        }
        Ok(())
    }

    fn welcome(&mut self, stream: TcpStream) -> io::Result<()> {
        // Fails only for a connection that is gone already; the first read will tell.
        let _ = stream.set_nodelay(true);
        self.desk.counters.on_connect();
        let key =
            self.desk.slots.insert(Line { stream, conn: Conn::default(), dirty: false, wants_write: false });
        if let Some(line) = self.desk.slots.get(key) {
            self.poll.registry().register(&mut line.stream, Token(key), Interest::READABLE)?;
        }
        Ok(())
    }

    /// Reads what a connection has. A read that does not fill the buffer emptied the socket, and epoll reports
    /// whatever comes later: no second read to see nothing, unless the event said that the end is in sight.
    fn read(&mut self, key: usize, to_the_end: bool) {
        loop {
            let Some(Line { stream, conn, .. }) = self.desk.slots.get(key) else { return };
            let count = match stream.read(&mut self.read_buffer) {
                Ok(0) => {
                    conn.peer_done = true;
                    // Nobody waits for a pending answer any more; one that is laid out still goes.
                    if conn.outbox.is_empty() || conn.pending.is_some() {
                        self.desk.close(key);
                    }
                    return;
                }
                Ok(count) => count,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::Interrupted => continue,
                    _ => return self.desk.close(key),
                },
            };
            self.desk.take(key, &self.read_buffer[..count]);
            self.touch(key);
            if count < self.read_buffer.len() && !to_the_end {
                return;
            }
        }
    }

    /// Puts a connection with something to send, or to close, on the list.
    fn touch(&mut self, key: usize) {
        if let Some(Line { conn, dirty, .. }) = self.desk.slots.get(key)
            && !*dirty
            && (!conn.outbox.is_empty() || conn.closing)
        {
            *dirty = true;
            self.dirty.push(key);
        }
    }

    fn answer_due(&mut self) {
        let mut due = std::mem::take(&mut self.due);
        self.desk.delays.take_due(self.desk.now, &mut due);
        for key in due.drain(..) {
            self.desk.answer(key);
            self.desk.take(key, &[]);
            self.touch(key);
        }
        self.due = due;
    }

    fn write_answers(&mut self) -> io::Result<()> {
        // A flushed connection may have pipelined requests left, and those come round again.
        while !self.dirty.is_empty() {
            if let Some(log) = &mut self.desk.log {
                log.flush()?;
            }
            let mut dirty = std::mem::take(&mut self.dirty);
            for key in dirty.drain(..) {
                if self.desk.write(key, &self.poll) {
                    self.desk.take(key, &[]);
                    self.touch(key);
                }
            }
            if self.dirty.is_empty() {
                self.dirty = dirty; // Keeps the allocation.
            }
        }
        Ok(())
    }
}

impl Desk {
    /// Feeds a connection, or lets it go on with the bytes it kept.
    fn take(&mut self, key: usize, bytes: &[u8]) {
        let Some(Line { conn, .. }) = self.slots.get(key) else { return };
        if bytes.is_empty() && !conn.has_work() {
            return;
        }
        let wants_labels = self.log.is_some();
        let (counters, delays, log, now) = (&self.counters, &mut self.delays, &mut self.log, self.now);
        let mut abrupt = None;
        let fits = conn.take(bytes, &mut self.marks, wants_labels, |conn, step| match step {
            Step::NeedMore => {}
            Step::Refuse(status) => {
                conn.outbox.extend_from_slice(&answer::plain(status, "", After::Close).bytes);
                conn.closing = true;
            }
            Step::Request(request) if request.play.script.shape == Shape::Stats => {
                conn.outbox.extend_from_slice(&answer::plain(200, &counters.json(), After::Keep).bytes);
                conn.closing = request.close;
            }
            Step::Request(request) => {
                counters.on_request();
                let delay = request.play.delay();
                conn.pending = Some(request);
                if delay.is_zero() {
                    abrupt = give_answer(conn, log).or(abrupt);
                } else {
                    delays.push(now, delay, key);
                }
            }
        });
        self.follow(key, if fits { abrupt } else { Some(Abrupt::Close) });
    }

    /// The delay of a connection's pending answer is over.
    fn answer(&mut self, key: usize) {
        let Some(Line { conn, .. }) = self.slots.get(key) else { return };
        let abrupt = give_answer(conn, &mut self.log);
        self.follow(key, abrupt);
    }

    fn follow(&mut self, key: usize, abrupt: Option<Abrupt>) {
        match abrupt {
            None => {}
            Some(Abrupt::Close) => self.close(key),
            Some(Abrupt::Reset) => {
                if let Some(Line { stream, .. }) = self.slots.get(key) {
                    // If it cannot be set, the client sees a close: still no answer.
                    let _ = rustix::net::sockopt::set_socket_linger(&*stream, Some(Duration::ZERO));
                }
                self.close(key);
            }
            Some(Abrupt::NextByte(pause)) => self.delays.push(self.now, pause, key),
        }
    }

    /// Sends what a connection has to send. True if it may go on with its next request.
    fn write(&mut self, key: usize, poll: &Poll) -> bool {
        let Some(Line { stream, conn, dirty, wants_write }) = self.slots.get(key) else { return false };
        *dirty = false;
        while conn.sent < conn.outbox.len() {
            match stream.write(&conn.outbox[conn.sent..]) {
                Ok(count) => conn.sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let both = Interest::READABLE | Interest::WRITABLE;
                    if !*wants_write {
                        *wants_write = poll.registry().reregister(stream, Token(key), both).is_ok();
                    }
                    return false;
                }
                Err(_) => {
                    self.close(key);
                    return false;
                }
            }
        }
        self.counters.on_answers(std::mem::take(&mut conn.answers_unsent));
        conn.outbox.clear();
        conn.outbox.shrink_to(READ_BYTES); // A big answer must not stay allocated.
        conn.sent = 0;
        if conn.closing || conn.peer_done {
            self.close(key);
            return false;
        }
        true
    }

    fn close(&mut self, key: usize) {
        if let Some(Line { conn, .. }) = self.slots.remove(key) {
            self.counters.on_give_up(conn.answers_unsent + u64::from(conn.pending.is_some()));
            self.counters.on_disconnect();
        }
    }
}

/// What a connection needs besides bytes in its outbox.
#[derive(Clone, Copy)]
enum Abrupt {
    Close,
    Reset,
    NextByte(Duration),
}

/// Lays the pending request's answer, or the next byte of it, into the outbox.
fn give_answer(conn: &mut Conn, log: &mut Option<Log>) -> Option<Abrupt> {
    let request = conn.pending.take()?;
    if request.play.script.shape == Shape::Drip {
        return drip(conn, request, log);
    }
    let answer = request.play.answer();
    match answer.after {
        After::Silence => {
            conn.pending = Some(request);
            return None;
        }
        After::Reset | After::Close if answer.bytes.is_empty() => {
            let abrupt = if answer.after == After::Reset { Abrupt::Reset } else { Abrupt::Close };
            conn.pending = Some(request); // It ends unanswered: closing counts it so.
            return Some(abrupt);
        }
        After::Close => conn.closing = true,
        After::Keep | After::Drip | After::Reset => conn.closing = request.close,
    }
    conn.outbox.extend_from_slice(&answer.bytes);
    conn.answers_unsent += 1;
    note(log, &request, answer.status);
    None
}

/// The next byte of a dripping answer, which never is a failing one: its bytes must not change on the way.
fn drip(conn: &mut Conn, request: Request, log: &mut Option<Log>) -> Option<Abrupt> {
    let answer = request.play.usual();
    conn.outbox.push(answer.bytes[conn.dripped]);
    conn.dripped += 1;
    if conn.dripped < answer.bytes.len() {
        let pause = request.play.delay();
        conn.pending = Some(request);
        return Some(Abrupt::NextByte(pause));
    }
    conn.dripped = 0;
    conn.answers_unsent += 1;
    conn.closing = request.close;
    note(log, &request, answer.status);
    None
}

fn note(log: &mut Option<Log>, request: &Request, status: u16) {
    if let (Some(log), Some(labels)) = (log, &request.labels) {
        log.note(labels, status, request.body_bytes);
    }
}
