//! A pipe in memory: what hyper takes for a socket.
//! Core: its shard's. Owns: bytes on their way to and from hyper.
//!
//! - I1: both ways are bounded: hyper stops writing, and then reading, while the wire is busy; a peer that
//!   goes on sending breaks its connection.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use hyper::rt::{Read, ReadBufCursor, Write};

/// A buffer that grew beyond this is given back when it is empty.
const BUFFER_BYTES_MAX: usize = 16 << 10;

/// Bytes that wait for the wire before hyper is told to wait.
const OUTGOING_BYTES_MAX: usize = 64 << 10;
/// Bytes that hyper may leave unread: both windows that we grant are smaller.
const INCOMING_BYTES_MAX: usize = 2 << 20;

#[derive(Default)]
struct Bytes {
    incoming: Vec<u8>,
    taken: usize,
    outgoing: Vec<u8>,
    ended: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// Both ends of the pipe.
#[derive(Clone, Default)]
pub(super) struct Pipe(Rc<RefCell<Bytes>>);

impl Pipe {
    /// Bytes for hyper.
    pub(super) fn receive(&self, bytes: &[u8]) {
        let mut pipe = self.0.borrow_mut();
        pipe.incoming.extend_from_slice(bytes);
        let reader = pipe.reader.take();
        drop(pipe);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// No more bytes for hyper. What a flood left is dropped; what an orderly peer sent is still read.
    pub(super) fn end(&self) {
        if self.is_flooded() {
            let mut pipe = self.0.borrow_mut();
            (pipe.incoming, pipe.taken) = (Vec::new(), 0);
        }
        self.0.borrow_mut().ended = true;
        self.receive(&[]);
    }

    /// Hyper has left more unread than a peer that keeps to our windows can send.
    pub(super) fn is_flooded(&self) -> bool {
        let pipe = self.0.borrow();
        pipe.incoming.len() - pipe.taken > INCOMING_BYTES_MAX
    }

    /// Bytes from hyper.
    pub(super) fn take_output(&self, out: &mut Vec<u8>) {
        let mut pipe = self.0.borrow_mut();
        out.append(&mut pipe.outgoing);
        if pipe.outgoing.capacity() > BUFFER_BYTES_MAX {
            pipe.outgoing = Vec::new();
        }
        let writer = pipe.writer.take();
        drop(pipe);
        if let Some(writer) = writer {
            writer.wake();
        }
    }
}

impl Read for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut pipe = self.0.borrow_mut();
        let rest = &pipe.incoming[pipe.taken..];
        if rest.is_empty() {
            if pipe.ended {
                return Poll::Ready(Ok(()));
            }
            pipe.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let take = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..take]);
        pipe.taken += take;
        if pipe.taken == pipe.incoming.len() {
            pipe.taken = 0;
            pipe.incoming.clear();
            if pipe.incoming.capacity() > BUFFER_BYTES_MAX {
                pipe.incoming = Vec::new();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Write for Pipe {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut pipe = self.0.borrow_mut();
        let take = bytes.len().min(OUTGOING_BYTES_MAX.saturating_sub(pipe.outgoing.len()));
        if take == 0 && !bytes.is_empty() {
            pipe.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        pipe.outgoing.extend_from_slice(&bytes[..take]);
        Poll::Ready(Ok(take))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
