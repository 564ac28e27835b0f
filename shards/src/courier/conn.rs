//! Connections: what one is doing, the table of all, and each origin's list of those that can take a call.
//! Core: its shard's. Owns: the table.
//!
//! - N1: a slot's tenant grows with every use, so that a late event never reaches the next connection.
//! - N2: a connection is on its origin's list exactly while it can take a call.

use super::h1::Reader;
use super::h2::Http2;
use super::tls::Tls;
use crate::clock::Moment;
use crate::model::{CallId, OriginId};
use crate::wire::ConnId;

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing: the slot is free.
    Free,
    /// The wire opens it.
    Connecting,
    /// TLS is being negotiated.
    Handshaking,
    /// HTTP/1.1, waiting for a call.
    Idle,
    /// HTTP/1.1, carrying a call.
    Busy,
    /// HTTP/1.1, answered before the request was fully sent: of use again once it is.
    Draining,
    /// HTTP/2.
    Multiplexed,
}

/// A call on an HTTP/1.1 connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) id: CallId,
    pub(super) started: Moment,
}

/// One connection. An idle one in clear text holds no heap memory.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) id: ConnId,
    pub(super) origin: OriginId,
    pub(super) phase: Phase,
    /// When its phase has lasted too long.
    pub(super) deadline: Moment,
    /// Its timer entry.
    pub(super) armed: Moment,
    /// HTTP/2: open, but the peer has yet to say how many calls it takes, by this moment.
    pub(super) warm_by: Option<Moment>,
    /// It has carried an answer, so that the peer may close it any time.
    pub(super) reused: bool,
    /// A send is open.
    pub(super) sending: bool,
    /// Bytes that wait for the open send to end.
    pub(super) outbox: Vec<u8>,
    pub(super) call: Option<Call>,
    /// The answer so far, if it came in pieces.
    pub(super) reader: Option<Box<Reader>>,
    pub(super) tls: Option<Box<Tls>>,
    pub(super) http2: Option<Box<Http2>>,
    listed: bool,
    before: u32,
    after: u32,
}

impl Conn {
    fn new(id: ConnId, origin: OriginId) -> Self {
        Self {
            id,
            origin,
            phase: Phase::Connecting,
            deadline: Moment::NEVER,
            armed: Moment::NEVER,
            warm_by: None,
            reused: false,
            sending: false,
            outbox: Vec::new(),
            call: None,
            reader: None,
            tls: None,
            http2: None,
            listed: false,
            before: NONE,
            after: NONE,
        }
    }

    /// Still being opened.
    pub(super) const fn is_connecting(&self) -> bool {
        matches!(self.phase, Phase::Connecting | Phase::Handshaking)
    }

    /// Calls that wait may expect room on it soon.
    pub(super) const fn is_promising(&self) -> bool {
        self.is_connecting() || self.warm_by.is_some()
    }

    /// Open and without a call.
    pub(super) fn is_idle(&self) -> bool {
        match self.phase {
            Phase::Idle => true,
            Phase::Multiplexed => self.http2.as_ref().is_none_or(|http2| http2.is_empty()),
            _ => false,
        }
    }
}

/// All connections of a courier, by slot.
#[derive(Debug, Default)]
pub(super) struct Conns {
    list: Vec<Conn>,
    free: Vec<u32>,
}

impl Conns {
    /// A new connection, in [`Phase::Connecting`].
    pub(super) fn add(&mut self, origin: OriginId) -> ConnId {
        if let Some(slot) = self.free.pop() {
            let conn = &mut self.list[slot as usize];
            let id = ConnId { slot, tenant: conn.id.tenant.wrapping_add(1) };
            *conn = Conn::new(id, origin);
            return id;
        }
        let slot = u32::try_from(self.list.len()).expect("N1: connections_max keeps slots in 32 bits");
        let id = ConnId { slot, tenant: 0 };
        self.list.push(Conn::new(id, origin));
        id
    }

    /// Frees the slot. The connection must not be listed.
    pub(super) fn remove(&mut self, id: ConnId) {
        if let Some(conn) = self.get(id) {
            debug_assert!(!conn.listed, "N2: a closed connection takes no call");
            conn.phase = Phase::Free;
            conn.tls = None;
            conn.http2 = None;
            conn.outbox = Vec::new();
            self.free.push(id.slot);
        }
    }

    /// The connection, unless it is gone.
    pub(super) fn get(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.list.get_mut(id.slot as usize).filter(|conn| conn.id == id && conn.phase != Phase::Free)
    }

    /// Connections in use.
    pub(super) fn len(&self) -> usize {
        self.list.len() - self.free.len()
    }

    /// Those of one origin. Walks the table: for rare occasions.
    pub(super) fn of(&self, origin: OriginId) -> impl Iterator<Item = &Conn> {
        self.list.iter().filter(move |conn| conn.origin == origin && conn.phase != Phase::Free)
    }

    /// Open ones of every origin, by the origin's place.
    pub(super) fn by_origin(&self) -> Vec<u32> {
        let mut counts = Vec::new();
        for conn in self.list.iter().filter(|conn| conn.phase != Phase::Free) {
            let at = conn.origin.0 as usize;
            if counts.len() <= at {
                counts.resize(at + 1, 0);
            }
            counts[at] += 1;
        }
        counts
    }

    /// The connection at the head of a list.
    pub(super) fn at(&self, slot: u32) -> Option<ConnId> {
        self.list.get(slot as usize).map(|conn| conn.id)
    }

    /// Puts it at the head of its origin's list: the last used is the likeliest to be open.
    pub(super) fn link(&mut self, id: ConnId, head: &mut u32) {
        let first = *head;
        let Some(conn) = self.get(id) else { return };
        if conn.listed {
            return;
        }
        (conn.listed, conn.before, conn.after) = (true, NONE, first);
        *head = id.slot;
        if let Some(next) = self.list.get_mut(first as usize) {
            next.before = id.slot;
        }
    }

    /// Takes it off its origin's list.
    pub(super) fn unlink(&mut self, id: ConnId, head: &mut u32) {
        let Some(conn) = self.get(id) else { return };
        if !conn.listed {
            return;
        }
        conn.listed = false;
        let (before, after) = (conn.before, conn.after);
        match self.list.get_mut(before as usize) {
            Some(previous) => previous.after = after,
            None => *head = after,
        }
        if let Some(next) = self.list.get_mut(after as usize) {
            next.before = before;
        }
    }
}
