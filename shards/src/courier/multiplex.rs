//! The courier's HTTP/2 connections: calls onto streams, and what comes of them.
//! Core: its shard's. Part of [`Courier`].

use std::mem;

use super::classify::{Reply, classify};
use super::conn::Phase;
use super::h2::{End, Ended, Http2};
use super::origin::Waiting;
use super::pool::{NETWORK, TIMEOUT};
use super::{Courier, Out};
use crate::clock::Moment;
use crate::model::OriginId;
use crate::wire::ConnId;

/// Times a call is moved to another connection because the peer did not take it. A peer that refuses
/// every stream must not keep a call for ever.
const MOVES_MAX: u8 = 8;

impl Courier {
    /// The connection speaks HTTP/2.
    pub(super) fn open_streams(&mut self, now: Moment, id: ConnId, out: &mut Out) {
        let (limits, streams_max) = (self.limits, self.tuning.streams_max.max(1));
        let (Some(http2), Some(conn)) = (Http2::new(now, limits, streams_max), self.conns.get(id)) else {
            return self.on_unreachable(now, id, out);
        };
        conn.http2 = Some(Box::new(http2));
        // The connect timeout covers the peer's first word.
        conn.warm_by = Some(conn.deadline);
        let (origin, deadline) = (conn.origin, conn.deadline);
        if let Some(known) = self.origin(origin).filter(|known| known.calls_each <= 1) {
            known.calls_each = streams_max;
        }
        self.set_phase(id, Phase::Multiplexed, deadline);
        self.drive(now, id, out);
    }

    /// Puts a call on a stream. The connection is driven once all calls of this moment are.
    pub(super) fn assign_stream(&mut self, id: ConnId, waiting: Waiting) {
        let deadline = waiting.started + self.tuning.request_timeout;
        let Some(origin) = self.conns.get(id).map(|conn| conn.origin) else { return };
        let https = self.origin(origin).is_some_and(|known| known.https);
        let Some(conn) = self.conns.get(id) else { return };
        let replaces = conn.is_idle() && conn.warm_by.is_none();
        let deadline = if replaces { deadline } else { deadline.min(conn.deadline) };
        let mut room = false;
        if let Some(http2) = conn.http2.as_mut() {
            http2.start(waiting, https);
            room = http2.has_room();
        }
        self.set_phase(id, Phase::Multiplexed, deadline);
        if !room {
            self.unlist(id);
        }
        if self.touched.last() != Some(&id) {
            self.touched.push(id);
        }
    }

    pub(super) fn on_stream_bytes(&mut self, now: Moment, id: ConnId, bytes: &[u8], out: &mut Out) {
        if self.conns.get(id).is_some_and(|conn| conn.warm_by.is_some()) {
            self.end_connecting(id);
            self.renew_deadline(now, id);
        }
        if let Some(http2) = self.conns.get(id).and_then(|conn| conn.http2.as_mut()) {
            http2.receive(now, bytes);
        }
        self.drive(now, id, out);
    }

    /// A stream, or the whole connection where it is idle, has run out of time.
    pub(super) fn on_streams_due(&mut self, now: Moment, id: ConnId, out: &mut Out) {
        let mut ended = mem::take(&mut self.ended);
        let timeout = self.tuning.request_timeout;
        let mut warm = true;
        if let Some(conn) = self.conns.get(id) {
            warm = conn.warm_by.is_none();
            if let Some(http2) = conn.http2.as_mut() {
                http2.expire(now - timeout, &mut ended);
            }
        }
        self.ended = ended;
        if !warm {
            return self.on_streams_broken(now, id, out);
        }
        if self.ended.is_empty() && self.conns.get(id).is_some_and(|conn| conn.is_idle()) {
            return self.close(id, out);
        }
        self.renew_deadline(now, id);
        self.drive(now, id, out);
    }

    /// The deadline of the oldest call, or of idling.
    fn renew_deadline(&mut self, now: Moment, id: ConnId) {
        let (request_timeout, idle_timeout) = (self.tuning.request_timeout, self.tuning.idle_timeout);
        let Some(http2) = self.conns.get(id).and_then(|conn| conn.http2.as_ref()) else { return };
        let deadline = http2.oldest().map_or(now + idle_timeout, |oldest| oldest + request_timeout);
        self.set_phase(id, Phase::Multiplexed, deadline);
    }

    /// The connection is gone.
    pub(super) fn on_streams_broken(&mut self, now: Moment, id: ConnId, out: &mut Out) {
        if let Some(http2) = self.conns.get(id).and_then(|conn| conn.http2.as_mut()) {
            http2.end();
            http2.drive(&mut self.ended);
            // What hyper has not told of by now it never will.
            http2.fail(&mut self.ended);
        }
        if let Some(conn) = self.conns.get(id).filter(|conn| conn.warm_by.is_some()) {
            let origin = conn.origin;
            for ended in mem::take(&mut self.ended) {
                self.on_stream_end(now, origin, ended, out);
            }
            return self.on_unreachable(now, id, out);
        }
        self.drive(now, id, out);
    }

    /// Lets hyper work; then calls may have been moved, or room may have come.
    pub(super) fn drive(&mut self, now: Moment, id: ConnId, out: &mut Out) {
        let Some(origin) = self.conns.get(id).map(|conn| conn.origin) else { return };
        self.drive_once(now, id, out);
        self.pump(now, origin, out);
    }

    /// Lets hyper work, sends what it wrote, and takes care of the calls that ended.
    pub(super) fn drive_once(&mut self, now: Moment, id: ConnId, out: &mut Out) {
        let mut bytes = self.spare.buffer();
        let Some(conn) = self.conns.get(id) else { return };
        let (origin, Some(http2)) = (conn.origin, conn.http2.as_mut()) else { return };
        let mut ended = mem::take(&mut self.ended);
        http2.drive(&mut ended);
        let flooded = http2.is_flooded();
        // While a send is open hyper's output stays in the pipe, where it is bounded.
        if !conn.sending {
            http2.take_output(&mut bytes);
        }
        self.send(id, bytes, out);
        let any_ended = !ended.is_empty();
        for ended in ended.drain(..) {
            self.on_stream_end(now, origin, ended, out);
        }
        self.ended = ended;
        if flooded {
            return self.on_streams_broken(now, id, out);
        }
        self.settle_streams(now, id, any_ended, out);
    }

    /// Lists, unlists or closes the connection by what it can still carry, and sets its deadline.
    fn settle_streams(&mut self, now: Moment, id: ConnId, any_ended: bool, out: &mut Out) {
        let Some(conn) = self.conns.get(id) else { return };
        let Some(http2) = conn.http2.as_ref() else { return };
        let (origin, idle, streams) = (conn.origin, http2.is_empty(), http2.streams_known());
        if idle && (http2.is_retired() || streams == Some(0)) {
            // One that takes no call at all is as good as none.
            return if streams == Some(0) { self.on_unreachable(now, id, out) } else { self.close(id, out) };
        }
        let room = http2.has_room();
        if any_ended {
            self.renew_deadline(now, id);
        }
        if let (Some(streams), Some(known)) = (streams, self.origin(origin)) {
            known.calls_each = u32::try_from(streams).unwrap_or(u32::MAX).max(1);
        }
        if room {
            self.list(id);
        } else {
            self.unlist(id);
        }
    }

    fn on_stream_end(&mut self, now: Moment, origin: OriginId, ended: Ended, out: &mut Out) {
        let Ended { call, started, moves, bytes, end } = ended;
        let judged = match end {
            End::Untaken if moves < MOVES_MAX => {
                let waiting = Waiting { call, started, moves: moves + 1, bytes: bytes.into() };
                if let Some(known) = self.origin(origin) {
                    // O1: put back where its age belongs; it is older than most.
                    let at = known.waiting.partition_point(|other| other.started <= started);
                    known.waiting.insert(at, waiting);
                }
                return;
            }
            End::Untaken | End::Failed => NETWORK,
            End::TimedOut => TIMEOUT,
            End::Answered { status, retry_after, body } => {
                let retry_after = retry_after.as_ref().map(http::HeaderValue::as_bytes);
                let reply = Reply { status, retry_after, body: &body };
                classify(reply, self.tuning.ack_mode, self.wall_now_s(now), &mut self.scratch)
            }
        };
        self.finish(origin, call, started, judged, out);
    }
}
