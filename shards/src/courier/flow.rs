//! The courier's byte flow: from the wire through TLS to HTTP/1.1 and back.
//! Core: its shard's. Part of [`Courier`].

use std::mem;

use super::classify::{Reply, classify};
use super::conn::Phase;
use super::h1::{Answer, Progress};
use super::pool::{NETWORK, STALE};
use super::tls::Tls;
use super::{Courier, Out};
use crate::clock::Moment;
use crate::model::HttpVersion;
use crate::wire::{Command, ConnId};

/// What an HTTP/1.1 connection's bytes came to.
enum Heard {
    More,
    Answered { judged: super::Judged, keep: bool },
    Broken,
}

impl Courier {
    pub(super) fn on_connected(&mut self, now: Moment, id: ConnId, out: &mut Out) {
        let Some(conn) = self.conns.get(id).filter(|conn| conn.phase == Phase::Connecting) else { return };
        let (origin, deadline) = (conn.origin, conn.deadline);
        let name = self.origin(origin).and_then(|known| known.server_name.clone());
        let Some(name) = name else {
            let http2 = self.tuning.http == HttpVersion::Http2PriorKnowledge;
            return self.on_open(now, id, http2, out);
        };
        let session = self.tls.as_ref().and_then(|config| Tls::new(config, name).ok());
        let (Some(session), Some(conn)) = (session, self.conns.get(id)) else {
            return self.on_unreachable(now, id, out);
        };
        conn.tls = Some(Box::new(session));
        // The connect timeout covers the handshake.
        self.set_phase(id, Phase::Handshaking, deadline);
        self.flush(id, out);
    }

    /// Open and, where there is TLS, verified.
    fn on_open(&mut self, now: Moment, id: ConnId, http2: bool, out: &mut Out) {
        if http2 {
            return self.open_streams(now, id, out);
        }
        self.end_connecting(id);
        let Some(origin) = self.conns.get(id).map(|conn| conn.origin) else { return };
        if let Some(known) = self.origin(origin) {
            known.calls_each = 1;
        }
        self.make_ready(now, id);
        self.pump(now, origin, out);
    }

    pub(super) fn on_sent(&mut self, now: Moment, id: ConnId, out: &mut Out) {
        let Some(conn) = self.conns.get(id) else { return };
        conn.sending = false;
        if !conn.outbox.is_empty() {
            let bytes = mem::take(&mut conn.outbox);
            return self.send_raw(id, bytes, out);
        }
        if conn.phase == Phase::Multiplexed {
            return self.drive(now, id, out);
        }
        if conn.phase == Phase::Draining {
            let origin = conn.origin;
            self.make_ready(now, id);
            self.pump(now, origin, out);
        }
    }

    pub(super) fn on_received(&mut self, now: Moment, id: ConnId, bytes: &[u8], out: &mut Out) {
        let Some(conn) = self.conns.get(id) else { return };
        let Some(session) = conn.tls.as_mut() else {
            return self.on_plain(now, id, bytes, out);
        };
        let mut plain = mem::take(&mut self.plain);
        let read = session.read(bytes, &mut plain);
        let (open, http2, closed) = (!session.is_handshaking(), session.is_http2(), session.is_closed());
        let handshaking = conn.phase == Phase::Handshaking;
        self.flush(id, out);
        if read.is_ok() && handshaking && open {
            self.on_open(now, id, http2, out);
        }
        if !plain.is_empty() {
            self.on_plain(now, id, &plain, out);
        }
        plain.clear();
        self.plain = plain;
        if read.is_err() {
            self.on_failed(now, id, out);
        } else if closed {
            self.on_eof(now, id, out);
        }
    }

    /// Bytes for HTTP.
    fn on_plain(&mut self, now: Moment, id: ConnId, bytes: &[u8], out: &mut Out) {
        let Some(conn) = self.conns.get(id) else { return };
        match conn.phase {
            Phase::Busy => {}
            Phase::Multiplexed => return self.on_stream_bytes(now, id, bytes, out),
            // C3: bytes that answer nothing make the connection useless.
            _ => return self.close(id, out),
        }
        match self.read(now, id, bytes) {
            Heard::More => {}
            Heard::Broken => self.fail_call(now, id, NETWORK, out),
            Heard::Answered { judged, keep } => self.on_answer(now, id, judged, keep, out),
        }
    }

    fn read(&mut self, now: Moment, id: ConnId, bytes: &[u8]) -> Heard {
        let (limits, mode, wall_now_s) = (self.limits, self.tuning.ack_mode, self.wall_now_s(now));
        let Some(conn) = self.conns.get(id) else { return Heard::Broken };
        let mut reader = conn.reader.take().unwrap_or_else(|| self.spare.reader());
        let heard = match reader.read(bytes, limits) {
            Progress::More => {
                conn.reader = Some(reader);
                return Heard::More;
            }
            Progress::Broken => Heard::Broken,
            Progress::Complete(answer) => {
                let judged = classify(reply(&answer), mode, wall_now_s, &mut self.scratch);
                Heard::Answered { judged, keep: answer.keep }
            }
        };
        self.spare.give_reader(reader);
        heard
    }

    fn on_answer(&mut self, now: Moment, id: ConnId, judged: super::Judged, keep: bool, out: &mut Out) {
        let idle_timeout = self.tuning.idle_timeout;
        let Some(conn) = self.conns.get(id) else { return };
        // A peer that has said farewell takes no further request.
        let leaving = conn.tls.as_ref().is_some_and(|session| session.is_closed());
        if !keep || leaving {
            return self.fail_call(now, id, judged, out);
        }
        let (origin, call, sending) = (conn.origin, conn.call.take(), conn.sending);
        conn.reused = true;
        if let Some(call) = call {
            self.finish(origin, call.id, call.started, judged, out);
        }
        if sending {
            // The peer answered early. It may still read the rest, but not for longer than it may idle.
            return self.set_phase(id, Phase::Draining, now + idle_timeout);
        }
        self.make_ready(now, id);
        self.pump(now, origin, out);
    }

    pub(super) fn on_eof(&mut self, now: Moment, id: ConnId, out: &mut Out) {
        let (mode, wall_now_s) = (self.tuning.ack_mode, self.wall_now_s(now));
        let Some(conn) = self.conns.get(id) else { return };
        // Without TLS's own farewell anyone on the way could have cut the answer.
        let trusted = conn.tls.as_ref().is_none_or(|session| session.is_closed());
        if conn.phase == Phase::Busy
            && trusted
            && let Some(mut reader) = conn.reader.take()
        {
            let judged = match reader.on_eof() {
                Progress::Complete(answer) => classify(reply(&answer), mode, wall_now_s, &mut self.scratch),
                Progress::More | Progress::Broken => NETWORK,
            };
            self.spare.give_reader(reader);
            return self.fail_call(now, id, judged, out);
        }
        self.on_failed(now, id, out);
    }

    /// The connection broke, or ended where it must not.
    pub(super) fn on_failed(&mut self, now: Moment, id: ConnId, out: &mut Out) {
        let Some(conn) = self.conns.get(id) else { return };
        match conn.phase {
            Phase::Free => {}
            Phase::Connecting | Phase::Handshaking => self.on_unreachable(now, id, out),
            Phase::Idle | Phase::Draining => self.close(id, out),
            Phase::Multiplexed => self.on_streams_broken(now, id, out),
            Phase::Busy => {
                let unanswered = conn.reader.as_ref().is_none_or(|reader| !reader.is_touched());
                let judged = if conn.reused && unanswered { STALE } else { NETWORK };
                self.fail_call(now, id, judged, out);
            }
        }
    }

    /// Sends bytes of HTTP, through TLS where there is TLS.
    pub(super) fn send(&mut self, id: ConnId, bytes: Vec<u8>, out: &mut Out) {
        let Some(conn) = self.conns.get(id) else { return self.spare.give_buffer(bytes) };
        let Some(session) = conn.tls.as_mut() else { return self.send_raw(id, bytes, out) };
        // A session that can't encrypt reports its end with the next bytes, or times out.
        let _ended = session.write(&bytes);
        self.spare.give_buffer(bytes);
        self.flush(id, out);
    }

    /// Sends what TLS wants sent.
    pub(super) fn flush(&mut self, id: ConnId, out: &mut Out) {
        let mut bytes = self.spare.buffer();
        if let Some(session) = self.conns.get(id).and_then(|conn| conn.tls.as_mut()) {
            session.take(&mut bytes);
        }
        self.send_raw(id, bytes, out);
    }

    /// W4: one send at a time; what comes meanwhile waits in the outbox.
    fn send_raw(&mut self, id: ConnId, mut bytes: Vec<u8>, out: &mut Out) {
        let Some(conn) = self.conns.get(id).filter(|_| !bytes.is_empty()) else {
            return self.spare.give_buffer(bytes);
        };
        if conn.sending {
            conn.outbox.append(&mut bytes);
            return self.spare.give_buffer(bytes);
        }
        conn.sending = true;
        out.commands.push(Command::Send(id, bytes));
    }
}

fn reply<'a>(answer: &Answer<'a>) -> Reply<'a> {
    Reply { status: answer.status, retry_after: answer.retry_after, body: answer.body }
}
