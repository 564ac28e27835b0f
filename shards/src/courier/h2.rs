//! HTTP/2 as a byte machine: hyper's client over a pipe in memory, polled only when something happened.
//! Core: its shard's. Owns: one connection's hyper state and its calls.
//!
//! - M1: every call that was started comes out of [`Http2::drive`] or [`Http2::expire`] exactly once.
//! - M2: nothing is polled unless its bell was rung, and all ringing comes from our own calls.
//! - M3: a call that the peer says it never took comes out as [`End::Untaken`].

mod exec;
mod pipe;
mod stream;

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http2::{Builder, Connection, SendRequest};

use self::exec::{Bit, Exec, Slots};
use self::pipe::Pipe;
use self::stream::Stream;
pub(super) use self::stream::{End, Ended};
use super::h1::Limits;
use super::origin::Waiting;
use crate::clock::Moment;

/// Streams used before the peer has said how many it takes.
const STREAMS_BEFORE_SETTINGS: usize = 16;
/// Rounds of polling in one drive; each must be rung for by the one before, which ends by itself.
const ROUNDS_MAX: u32 = 10_000;

type Body = Full<Bytes>;

/// One HTTP/2 connection.
pub(super) struct Http2 {
    // Dropped first: hyper must not see its connection go before the calls.
    streams: Slots<Stream>,
    sender: SendRequest<Body>,
    connection: Slots<Connection<Pipe, Body, Exec>>,
    tasks: Slots<Pin<Box<dyn Future<Output = ()>>>>,
    pipe: Pipe,
    exec: Exec,
    bit: Bit,
    limits: Limits,
    streams_max: usize,
    /// Streams the peer takes, as last seen.
    peer_max: usize,
    /// When the peer last sent something.
    heard: Moment,
    /// The peer has said how many streams it takes: that comes first.
    told: bool,
    /// It takes no more calls.
    retired: bool,
}

impl Http2 {
    /// A new connection; its preface is the first output. `None` if hyper refuses, which it has no reason to.
    pub(super) fn new(now: Moment, limits: Limits, streams_max: u32) -> Option<Self> {
        let (pipe, exec, bit) = (Pipe::default(), Exec::default(), Bit::default());
        let mut builder = Builder::new(exec.clone());
        builder
            .initial_max_send_streams(STREAMS_BEFORE_SETTINGS)
            .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
            // As much as we keep of a body: a larger window would only bring what is thrown away.
            .initial_stream_window_size(u32::try_from(limits.body_bytes).unwrap_or(u32::MAX).max(65_535))
            .initial_connection_window_size(1 << 20);
        let handshake = pin!(builder.handshake(pipe.clone()));
        // The pipe takes everything at once, so the handshake has nothing to wait for.
        let Poll::Ready(Ok((sender, connection))) = handshake.poll(&mut Context::from_waker(Waker::noop()))
        else {
            return None;
        };
        let mut only = Slots::default();
        only.add(connection, &bit);
        Some(Self {
            streams: Slots::default(),
            sender,
            connection: only,
            tasks: Slots::default(),
            pipe,
            exec,
            bit,
            limits,
            streams_max: streams_max.max(1) as usize,
            peer_max: STREAMS_BEFORE_SETTINGS,
            heard: now,
            told: false,
            retired: false,
        })
    }

    /// No call is on it.
    pub(super) fn is_empty(&self) -> bool {
        self.streams.len() == 0
    }

    /// Calls it carries at a time, once the peer has told.
    pub(super) fn streams_known(&self) -> Option<usize> {
        self.told.then(|| self.streams_max.min(self.peer_max))
    }

    /// It takes no more calls: the peer is leaving, or does not answer.
    pub(super) const fn is_retired(&self) -> bool {
        self.retired
    }

    /// It takes another call now.
    pub(super) fn has_room(&self) -> bool {
        !self.retired && self.streams.len() < self.streams_max.min(self.peer_max)
    }

    /// Starts a call. [`Http2::drive`] must follow.
    pub(super) fn start(&mut self, waiting: Waiting, https: bool) {
        let stream = Stream::new(&mut self.sender, waiting, https);
        self.streams.add(stream, &self.bit);
    }

    /// Bytes from the peer. [`Http2::drive`] must follow.
    pub(super) fn receive(&mut self, now: Moment, bytes: &[u8]) {
        self.heard = now;
        self.told = true;
        self.pipe.receive(bytes);
    }

    /// The peer is gone: whatever is left fails. [`Http2::drive`] must follow.
    pub(super) fn end(&mut self) {
        self.retired = true;
        self.pipe.end();
    }

    /// Polls what was rung for until nothing rings; calls that ended go to `ended`.
    pub(super) fn drive(&mut self, ended: &mut Vec<Ended>) {
        for _ in 0..ROUNDS_MAX {
            if !self.bit.take() {
                break;
            }
            // Finished either way: gracefully after GOAWAY, or broken. Its streams may still finish.
            self.connection.poll(|connection, cx| Pin::new(connection).poll(cx).map(|_| ()), |()| {});
            for task in self.exec.take() {
                self.tasks.add(task, &self.bit);
            }
            self.tasks.poll(|task, cx| task.as_mut().poll(cx), |()| {});
            let limits = self.limits;
            self.streams.poll(|stream, cx| stream.poll(cx, limits), |end| ended.push(end));
        }
        match self.connection.first() {
            Some(connection) => self.peer_max = connection.current_max_send_streams(),
            None => self.retired = true,
        }
    }

    /// Takes out the calls that were started at `before` or earlier, resetting their streams. A peer that
    /// has been silent since is not trusted with more. [`Http2::drive`] must follow.
    pub(super) fn expire(&mut self, before: Moment, ended: &mut Vec<Ended>) {
        let heard = self.heard;
        let retired = &mut self.retired;
        self.streams.retain(&self.bit, |stream| {
            if stream.started() > before {
                return true;
            }
            *retired |= heard <= stream.started();
            ended.push(stream.end(End::TimedOut));
            false
        });
    }

    /// Takes out all calls, as failed.
    pub(super) fn fail(&mut self, ended: &mut Vec<Ended>) {
        self.streams.retain(&self.bit, |stream| {
            ended.push(stream.end(End::Failed));
            false
        });
    }

    /// When its oldest call was started.
    pub(super) fn oldest(&self) -> Option<Moment> {
        self.streams.iter().map(Stream::started).min()
    }

    /// The peer sends more than it may.
    pub(super) fn is_flooded(&self) -> bool {
        self.pipe.is_flooded()
    }

    /// Appends what has to go to the wire. [`Http2::drive`] must follow before the next time.
    pub(super) fn take_output(&mut self, out: &mut Vec<u8>) {
        self.pipe.take_output(out);
    }
}

impl fmt::Debug for Http2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http2")
            .field("streams", &self.streams.len())
            .field("retired", &self.retired)
            .finish_non_exhaustive()
    }
}
