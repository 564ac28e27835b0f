//! The courier's pool: which connection takes which call, when one is opened, and when one is closed.
//! Core: its shard's. Part of [`Courier`]; the byte machines' side is in `flow.rs` and `multiplex.rs`.
//!
//! - Q1: while a call waits, a connection is opening, a lookup is under way, or all that are allowed are busy.

use super::classify::Judged;
use super::conn::{Call, Phase};
use super::origin::{Place, Waiting};
use super::timer::Whose;
use super::{Courier, Out};
use crate::clock::Moment;
use crate::model::{OriginId, Outcome};
use crate::wire::{Command, ConnId};

pub(super) const NETWORK: Judged = Judged { outcome: Outcome::network(), unreadable: false };
pub(super) const STALE: Judged = Judged { outcome: Outcome::stale(), unreadable: false };
pub(super) const TIMEOUT: Judged = Judged { outcome: Outcome::timeout(), unreadable: false };

impl Courier {
    /// Gives waiting calls to connections, and opens connections for the rest.
    pub(super) fn pump(&mut self, now: Moment, origin: OriginId, out: &mut Out) {
        loop {
            while let Some((id, waiting)) = self.match_waiting(origin) {
                self.assign(id, waiting, out);
            }
            if self.touched.is_empty() {
                break;
            }
            // Driving may bring calls back that were not taken, each a bounded number of times.
            while let Some(id) = self.touched.pop() {
                self.drive_once(now, id, out);
            }
        }
        self.open_for_waiting(now, origin, out);
    }

    /// The call that has waited longest, and a connection for it.
    fn match_waiting(&mut self, origin: OriginId) -> Option<(ConnId, Waiting)> {
        let ready = self.origin(origin)?.ready;
        let id = self.conns.at(ready)?;
        Some((id, self.origin(origin)?.waiting.pop_front()?))
    }

    fn open_for_waiting(&mut self, now: Moment, origin: OriginId, out: &mut Out) {
        let (connections_max, has_tls) = (self.tuning.connections_max.max(1), self.tls.is_some());
        loop {
            let Some(known) = self.origin(origin) else { return };
            if known.waiting.is_empty() {
                return;
            }
            if known.connecting >= known.connections_wanted() || known.connections >= connections_max {
                break;
            }
            if known.https && (!has_tls || known.server_name.is_none()) {
                return self.fail_waiting(origin, out);
            }
            match known.place(now) {
                Place::At(address) => self.open(now, origin, address, out),
                Place::Asked => break,
                Place::Ask => {
                    known.lookup_since = Some(now);
                    known.lookups_open += 1;
                    out.lookups.push((origin, known.host.to_string(), known.port));
                }
                Place::Nowhere => return self.fail_waiting(origin, out),
            }
        }
        self.arm_origin(origin);
    }

    fn open(&mut self, now: Moment, origin: OriginId, address: std::net::SocketAddr, out: &mut Out) {
        let id = self.conns.add(origin);
        if let Some(known) = self.origin(origin) {
            known.connecting += 1;
            known.connections += 1;
        }
        self.set_phase(id, Phase::Connecting, now + self.tuning.connect_timeout);
        out.commands.push(Command::Connect(id, address));
    }

    /// Gives a call to a connection that can take one.
    fn assign(&mut self, id: ConnId, waiting: Waiting, out: &mut Out) {
        let deadline = waiting.started + self.tuning.request_timeout;
        let Some(conn) = self.conns.get(id) else { return };
        if conn.phase == Phase::Multiplexed {
            return self.assign_stream(id, waiting);
        }
        conn.call = Some(Call { id: waiting.call, started: waiting.started });
        self.unlist(id);
        self.set_phase(id, Phase::Busy, deadline);
        self.send(id, waiting.bytes, out);
    }

    /// A connection that can take a call (again): lists it. [`Courier::pump`] should follow.
    pub(super) fn make_ready(&mut self, now: Moment, id: ConnId) {
        self.set_phase(id, Phase::Idle, now + self.tuning.idle_timeout);
        self.list(id);
    }

    pub(super) fn list(&mut self, id: ConnId) {
        let Some(origin) = self.conns.get(id).map(|conn| conn.origin) else { return };
        if let Some(Some(known)) = self.origins.get_mut(origin.0 as usize) {
            self.conns.link(id, &mut known.ready);
        }
    }

    pub(super) fn unlist(&mut self, id: ConnId) {
        let Some(origin) = self.conns.get(id).map(|conn| conn.origin) else { return };
        if let Some(Some(known)) = self.origins.get_mut(origin.0 as usize) {
            self.conns.unlink(id, &mut known.ready);
        }
    }

    pub(super) fn set_phase(&mut self, id: ConnId, phase: Phase, deadline: Moment) {
        if let Some(conn) = self.conns.get(id) {
            conn.phase = phase;
            conn.deadline = deadline;
            self.timers.arm(&mut conn.armed, deadline, Whose::Conn(id));
        }
    }

    /// The connection takes calls from now on, or it is about to be closed: none waits for it.
    pub(super) fn end_connecting(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get(id).filter(|conn| conn.is_promising()) else { return };
        conn.warm_by = None;
        let origin = conn.origin;
        if let Some(known) = self.origin(origin) {
            known.connecting -= 1;
        }
    }

    /// Closes a connection, in whatever state. Its calls must have ended.
    pub(super) fn close(&mut self, id: ConnId, out: &mut Out) {
        self.end_connecting(id);
        self.unlist(id);
        let Some(conn) = self.conns.get(id) else { return };
        debug_assert!(conn.call.is_none(), "C1: a closed connection leaves no call behind");
        let (origin, reader) = (conn.origin, conn.reader.take());
        if let Some(tls) = conn.tls.as_mut().filter(|_| !conn.sending) {
            let mut farewell = self.spare.buffer();
            tls.close();
            tls.take(&mut farewell);
            if !farewell.is_empty() {
                out.commands.push(Command::Send(id, farewell));
            }
        }
        out.commands.push(Command::Close(id));
        self.conns.remove(id);
        if let Some(reader) = reader {
            self.spare.give_reader(reader);
        }
        if let Some(known) = self.origin(origin) {
            known.connections -= 1;
        }
    }

    /// A connection could not be opened: the calls that it was opened for learn of it, oldest first.
    pub(super) fn on_unreachable(&mut self, now: Moment, id: ConnId, out: &mut Out) {
        let Some(origin) = self.conns.get(id).map(|conn| conn.origin) else { return };
        let Some(known) = self.origin(origin) else { return };
        known.on_unreachable();
        let share = match known.connections - known.connecting {
            // Nothing is open: what waits is shared out among the connections being opened.
            0 => known.waiting.len().div_ceil(known.connecting.max(1) as usize),
            _ => 1,
        };
        self.close(id, out);
        for _ in 0..share {
            if let Some(waiting) = self.origin(origin).and_then(|known| known.waiting.pop_front()) {
                self.drop_waiting(origin, waiting, out);
            }
        }
        self.pump(now, origin, out);
    }

    /// Ends a call that was never sent.
    fn drop_waiting(&mut self, origin: OriginId, waiting: Waiting, out: &mut Out) {
        self.spare.give_buffer(waiting.bytes);
        self.finish(origin, waiting.call, waiting.started, NETWORK, out);
    }

    /// There is nothing to connect to.
    pub(super) fn fail_waiting(&mut self, origin: OriginId, out: &mut Out) {
        while let Some(waiting) = self.origin(origin).and_then(|known| known.waiting.pop_front()) {
            self.drop_waiting(origin, waiting, out);
        }
    }

    /// O1: the front of the queue is the first to run out of time.
    fn arm_origin(&mut self, origin: OriginId) {
        let (request_timeout, connect_timeout) = (self.tuning.request_timeout, self.tuning.connect_timeout);
        let Some(Some(known)) = self.origins.get_mut(origin.0 as usize) else { return };
        let waiting = known.waiting.front().map(|waiting| waiting.started + request_timeout);
        let lookup = known.lookup_since.map(|since| since + connect_timeout);
        if let Some(deadline) = waiting.into_iter().chain(lookup).min() {
            self.timers.arm(&mut known.armed, deadline, Whose::Origin(origin));
        }
    }

    pub(super) fn on_origin_due(&mut self, now: Moment, at: Moment, origin: OriginId, out: &mut Out) {
        let (request_timeout, connect_timeout) = (self.tuning.request_timeout, self.tuning.connect_timeout);
        let Some(known) = self.origin(origin).filter(|known| known.armed == at) else { return };
        known.armed = Moment::NEVER;
        if known.lookup_since.is_some_and(|since| since + connect_timeout <= now) {
            // As if the resolver had failed; a late answer is still of use.
            return self.take_addresses(now, origin, Err(()), out);
        }
        while let Some(known) = self.origin(origin)
            && known.waiting.front().is_some_and(|waiting| waiting.started + request_timeout <= now)
        {
            if let Some(waiting) = known.waiting.pop_front() {
                self.drop_waiting(origin, waiting, out);
            }
        }
        self.arm_origin(origin);
    }

    pub(super) fn on_conn_due(&mut self, now: Moment, at: Moment, id: ConnId, out: &mut Out) {
        let tick = self.tick();
        let Some(conn) = self.conns.get(id).filter(|conn| conn.armed == at) else { return };
        conn.armed = Moment::NEVER;
        if conn.deadline > now {
            // T1: whatever deadline is set until then lies at least a tick ahead.
            let next = conn.deadline.min(now + tick);
            return self.timers.arm(&mut conn.armed, next, Whose::Conn(id));
        }
        match conn.phase {
            Phase::Free => {}
            Phase::Connecting | Phase::Handshaking => self.on_unreachable(now, id, out),
            Phase::Idle | Phase::Draining => self.close(id, out),
            Phase::Busy => self.fail_call(now, id, TIMEOUT, out),
            Phase::Multiplexed => self.on_streams_due(now, id, out),
        }
    }

    /// Ends an HTTP/1.1 connection and the call on it, if there is one.
    pub(super) fn fail_call(&mut self, now: Moment, id: ConnId, judged: Judged, out: &mut Out) {
        let Some(conn) = self.conns.get(id) else { return };
        let (origin, call) = (conn.origin, conn.call.take());
        self.close(id, out);
        if let Some(call) = call {
            self.finish(origin, call.id, call.started, judged, out);
        }
        self.pump(now, origin, out);
    }
}
