//! A wire under test and everything it reported. Conditions are polled, with a deadline.

use std::io;
use std::net::SocketAddr;
use std::process::Command as Process;
use std::sync::Arc;
use std::time::Duration;

use shards::clock::Clock;
use shards::link::Bell;
use shards::wire::{Command, ConnId, Event, Patience, Wire};

/// No condition takes longer on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// One turn's wait: short, so that a condition outside the wire is seen soon.
const TURN: Duration = Duration::from_millis(5);
/// Turns in which a wire has the chance to say what it must not say.
const QUIET_TURNS: usize = 10;

/// An event, owned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Connected(ConnId),
    /// Bytes left in the buffer, and whether it was the one handed in (by its capacity).
    Sent(ConnId, Vec<u8>),
    Received(ConnId, Vec<u8>),
    Eof(ConnId),
    Failed(ConnId, io::ErrorKind),
}

impl Seen {
    pub(crate) fn conn(&self) -> ConnId {
        match self {
            Self::Connected(conn) | Self::Sent(conn, _) | Self::Received(conn, _) => *conn,
            Self::Eof(conn) | Self::Failed(conn, _) => *conn,
        }
    }

    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::Eof(_) | Self::Failed(..))
    }
}

pub(crate) struct Rig<W> {
    pub(crate) wire: W,
    pub(crate) bell: Arc<Bell>,
    pub(crate) seen: Vec<Seen>,
}

impl<W: Wire> Rig<W> {
    pub(crate) fn new(make: impl FnOnce(Arc<Bell>, usize) -> io::Result<W>) -> Self {
        let bell = Arc::new(Bell::new().expect("descriptors are left"));
        let wire = make(Arc::clone(&bell), 16).expect("the wire can run here");
        Self { wire, bell, seen: Vec::new() }
    }

    pub(crate) fn connect(&mut self, conn: ConnId, address: SocketAddr) {
        self.wire.submit(Command::Connect(conn, address));
    }

    pub(crate) fn send(&mut self, conn: ConnId, bytes: Vec<u8>) {
        self.wire.submit(Command::Send(conn, bytes));
    }

    pub(crate) fn close(&mut self, conn: ConnId) {
        self.wire.submit(Command::Close(conn));
    }

    /// Takes without waiting.
    pub(crate) fn take(&mut self) {
        let seen = &mut self.seen;
        self.wire.take(&mut |event| {
            seen.push(match event {
                Event::Connected(conn) => Seen::Connected(conn),
                Event::Sent(conn, buffer) => Seen::Sent(conn, buffer),
                Event::Received(conn, bytes) => Seen::Received(conn, bytes.to_vec()),
                Event::Eof(conn) => Seen::Eof(conn),
                Event::Failed(conn, kind) => Seen::Failed(conn, kind),
            });
        });
    }

    pub(crate) async fn turn(&mut self) {
        self.wire.wait(Patience::Until(Clock.now() + TURN)).await;
        self.take();
    }

    /// Turns until the condition holds.
    pub(crate) async fn until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let deadline = Clock.now() + DEADLINE;
        while !condition(self) {
            assert!(Clock.now() < deadline, "never happened: {what}; open: {}", self.wire.open());
            self.turn().await;
        }
    }

    pub(crate) async fn until_connected(&mut self, conn: ConnId) {
        self.until("connected", |rig| rig.seen.contains(&Seen::Connected(conn))).await;
    }

    /// Some more turns, for what should not come.
    pub(crate) async fn linger(&mut self) {
        for _ in 0..QUIET_TURNS {
            self.turn().await;
        }
    }

    /// All bytes received on a connection.
    pub(crate) fn received(&self, conn: ConnId) -> Vec<u8> {
        let mut all = Vec::new();
        for seen in &self.seen {
            if let Seen::Received(of, bytes) = seen
                && *of == conn
            {
                all.extend_from_slice(bytes);
            }
        }
        all
    }

    pub(crate) fn received_bytes(&self, conn: ConnId) -> usize {
        let bytes = |seen: &Seen| match seen {
            Seen::Received(of, bytes) if *of == conn => bytes.len(),
            _ => 0,
        };
        self.seen.iter().map(bytes).sum()
    }

    pub(crate) fn ends(&self, conn: ConnId) -> usize {
        self.seen.iter().filter(|seen| seen.conn() == conn && seen.is_end()).count()
    }

    /// W2: closes, then hears nothing more of it; in the end all is given back.
    pub(crate) async fn close_in_silence(&mut self, conns: &[ConnId]) {
        for conn in conns {
            self.close(*conn);
        }
        self.seen.clear();
        self.until("everything given back", |rig| rig.wire.open() == 0).await;
        self.linger().await;
        let late: Vec<_> = self.seen.iter().filter(|seen| conns.contains(&seen.conn())).collect();
        assert!(late.is_empty(), "W2 broken: {late:?}");
    }
}

pub(crate) fn conn(slot: u32, tenant: u32) -> ConnId {
    ConnId { slot, tenant }
}

/// Bytes that differ from place to place, so that a swapped or lost piece is noticed.
pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

/// True in the child. Runs the named test again in a process of its own, for what belongs to a
/// process: open files, limits, system call filters.
pub(crate) fn in_own_process(test: &str) -> bool {
    const MARK: &str = "WIRES_OWN_PROCESS";
    if std::env::var(MARK).as_deref() == Ok(test) {
        return true;
    }
    let program = std::env::current_exe().expect("a test has its file");
    let output = Process::new(program)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(MARK, test)
        .output()
        .expect("the test can run itself");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && printed.contains("1 passed"),
        "{printed}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}
