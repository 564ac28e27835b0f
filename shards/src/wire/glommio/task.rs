//! The task of one connection: opens it, then reads and writes until it ends or is cancelled.
//! Core: its shard's. Owns: the socket.

use std::cell::RefCell;
use std::future::{pending, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use futures_lite::{AsyncRead, AsyncWrite};
use glommio::net::TcpStream;

use super::super::ConnId;
use super::{Report, Shared, UNREPORTED_MAX};

/// One read's worth.
const READ_BYTES: usize = 16 * 1_024;
/// Reads and writes of one poll; then the other tasks have their turn.
const STEPS_MAX: usize = 16;

/// What the wire hands to a connection's task.
#[derive(Default)]
pub(super) struct Mailbox {
    outgoing: Option<Vec<u8>>,
    /// Bytes read but not yet reported.
    unreported_bytes: usize,
    waker: Option<Waker>,
}

impl Mailbox {
    pub(super) fn post(&mut self, bytes: Vec<u8>) {
        debug_assert!(self.outgoing.is_none(), "W4: one send at a time");
        self.outgoing = Some(bytes);
        self.wake();
    }

    pub(super) fn on_reported(&mut self, bytes: usize) {
        let was_full = self.unreported_bytes >= UNREPORTED_MAX;
        self.unreported_bytes -= bytes;
        if was_full && self.unreported_bytes < UNREPORTED_MAX {
            self.wake();
        }
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Counts the connection as present until its task is gone.
pub(super) struct Presence(Rc<RefCell<Shared>>);

impl Presence {
    pub(super) fn new(shared: Rc<RefCell<Shared>>) -> Self {
        shared.borrow_mut().present += 1;
        Self(shared)
    }

    fn report(&self, report: Report) {
        self.0.borrow_mut().report(report);
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.borrow_mut().present -= 1;
    }
}

/// Runs until it is cancelled: the socket stays open until the courier closes the connection.
pub(super) async fn run(id: ConnId, address: SocketAddr, mailbox: Rc<RefCell<Mailbox>>, presence: Presence) {
    let opened = match TcpStream::connect(address).await {
        Ok(stream) => stream.set_nodelay(true).map(|()| stream),
        Err(error) => Err(error),
    };
    let _stream = match opened {
        Ok(stream) => {
            presence.report(Report::Connected(id));
            let mut lane =
                Lane { id, stream, mailbox, sending: None, broken: None, scratch: vec![0; READ_BYTES] };
            let end = poll_fn(|context| lane.poll(context, &presence)).await;
            presence.report(end);
            Some(lane.stream)
        }
        Err(error) => {
            presence.report(Report::Failed(id, io::Error::from(error).kind()));
            None
        }
    };
    pending::<()>().await;
}

/// An open connection.
struct Lane {
    id: ConnId,
    stream: TcpStream,
    mailbox: Rc<RefCell<Mailbox>>,
    /// Bytes being sent, and how many of them the kernel has taken.
    sending: Option<(Vec<u8>, usize)>,
    /// Why sending failed; reported after the bytes that arrived before.
    broken: Option<io::ErrorKind>,
    scratch: Vec<u8>,
}

impl Lane {
    /// Ready with the report that ends the connection.
    fn poll(&mut self, context: &mut Context<'_>, presence: &Presence) -> Poll<Report> {
        self.mailbox.borrow_mut().waker = Some(context.waker().clone());
        let more_to_write = self.write(context, presence);
        let more_to_read = match self.read(context, presence) {
            Poll::Ready(Some(end)) => return Poll::Ready(end),
            Poll::Ready(None) => true,
            Poll::Pending => false,
        };
        if more_to_write || more_to_read {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// True = it can go on at once.
    fn write(&mut self, context: &mut Context<'_>, presence: &Presence) -> bool {
        for _ in 0..STEPS_MAX {
            if self.sending.is_none() {
                self.sending = self.mailbox.borrow_mut().outgoing.take().map(|bytes| (bytes, 0));
            }
            let Some((bytes, sent)) = &mut self.sending else { return false };
            if *sent == bytes.len() {
                let mut buffer = std::mem::take(bytes);
                buffer.clear();
                self.sending = None;
                presence.report(Report::Sent(self.id, buffer));
                continue;
            }
            match Pin::new(&mut self.stream).poll_write(context, &bytes[*sent..]) {
                Poll::Ready(Ok(count)) => *sent += count,
                Poll::Ready(Err(error)) => {
                    self.broken = Some(error.kind());
                    self.sending = None;
                    return false;
                }
                Poll::Pending => return false,
            }
        }
        true
    }

    /// Ready(None) = it can go on at once.
    fn read(&mut self, context: &mut Context<'_>, presence: &Presence) -> Poll<Option<Report>> {
        for _ in 0..STEPS_MAX {
            if self.mailbox.borrow().unreported_bytes >= UNREPORTED_MAX {
                return Poll::Pending; // `on_reported` wakes the task.
            }
            let result = Pin::new(&mut self.stream).poll_read(context, &mut self.scratch);
            if let (Poll::Pending, Some(kind)) = (&result, self.broken) {
                return Poll::Ready(Some(Report::Failed(self.id, kind)));
            }
            let end = match ready!(result) {
                Ok(0) => self.broken.map_or(Report::Eof(self.id), |kind| Report::Failed(self.id, kind)),
                Ok(count) => {
                    self.mailbox.borrow_mut().unreported_bytes += count;
                    presence.report(Report::Received(self.id, self.scratch[..count].to_vec()));
                    continue;
                }
                Err(error) => Report::Failed(self.id, self.broken.unwrap_or(error.kind())),
            };
            return Poll::Ready(Some(end));
        }
        Poll::Ready(None)
    }
}
