//! Moves bytes: opens connections, sends, receives, sleeps. Knows nothing of HTTP or messages.
//! Core: its shard's. Three implementations, one conformance suite (`shards/tests/wires/`).
//!
//! - W1: a connection id is never reused while an operation of its last use can still report.
//! - W2: after [`Command::Close`] no event names that connection.
//! - W3: bytes of one connection are reported in the order they arrived, then at most one of
//!   [`Event::Eof`] and [`Event::Failed`], then nothing.
//! - W4: at most one [`Command::Send`] of a connection is open; [`Event::Sent`] ends it, or the connection does.

mod epoll;
mod glommio;
pub mod probe;
mod uring;

pub use self::epoll::EpollWire;
pub use self::glommio::GlommioWire;
pub use self::uring::UringWire;

use std::io;
use std::net::SocketAddr;

use crate::clock::Moment;

/// A connection. The courier chooses the slot, the tenant tells one use of it from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId {
    /// Slot in the courier's table.
    pub slot: u32,
    /// Counts the slot's uses.
    pub tenant: u32,
}

/// What the courier asks of a wire.
#[derive(Debug)]
pub enum Command {
    /// Open a TCP connection with `TCP_NODELAY`. Ends in [`Event::Connected`] or [`Event::Failed`].
    Connect(ConnId, SocketAddr),
    /// Send all of these bytes. Ends in [`Event::Sent`] or [`Event::Failed`].
    Send(ConnId, Vec<u8>),
    /// Close it, whatever its state. Nothing is reported.
    Close(ConnId),
}

/// What a wire reports.
#[derive(Debug)]
pub enum Event<'a> {
    /// It is open; receiving has begun.
    Connected(ConnId),
    /// All bytes are with the kernel; here is the emptied buffer, for reuse.
    Sent(ConnId, Vec<u8>),
    /// Bytes arrived. They are the wire's: copy what must stay.
    Received(ConnId, &'a [u8]),
    /// The peer will send no more. The connection still has to be closed.
    Eof(ConnId),
    /// It could not be opened, or broke. The connection still has to be closed.
    Failed(ConnId, io::ErrorKind),
}

/// How long to wait for something to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Not at all: report what is there.
    None,
    /// Until an event, a bell or this moment.
    Until(Moment),
}

/// Moves the bytes of one shard. Lives on the shard's thread and never leaves it.
#[expect(async_fn_in_trait, reason = "a wire never leaves its core: no Send bound")]
pub trait Wire {
    /// Takes a command. Never waits; the operation may begin only in the next [`Wire::wait`].
    fn submit(&mut self, command: Command);

    /// Begins what was submitted, then waits until there is an event, the shard's bell was rung, or
    /// patience ends. May return early with nothing.
    async fn wait(&mut self, patience: Patience);

    /// Reports what happened, oldest first, at most a bounded number per call.
    fn take(&mut self, on_event: &mut dyn FnMut(Event<'_>));

    /// Connections that are open or being opened or closed: 0 when everything was given back.
    fn open(&self) -> usize;
}
