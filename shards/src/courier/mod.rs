//! Makes calls: HTTP/1.1, HTTP/2 and TLS as byte machines over connections that it pools per origin.
//! Core: its shard's. Owns: connections and the calls on them. Opens no socket and reads no clock:
//! `now` and [`Event`]s come in, [`Command`]s and [`Done`]s go out, so that the simulator can drive it.
//!
//! - C1: every started call ends in exactly one [`Done`], at most `request_timeout` after its start.
//! - C2: a connection carries one call at a time (HTTP/2: one per stream), and none before it is open and verified.
//! - C3: a connection is used again only after a whole answer, a whole request, and not one byte more.
//! - C4: a call is sent once. Only one that the peer provably did not take is sent again on its own.
//! - C5: an idle HTTP/1.1 connection in clear text holds no buffer.

mod ack;
pub mod classify;
mod conn;
mod date;
mod flow;
pub mod guard;
pub mod h1;
mod h2;
mod multiplex;
mod origin;
mod pool;
mod request;
mod spare;
mod timer;
pub mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use self::classify::Judged;
use self::conn::Conns;
use self::h1::Limits;
use self::h2::Ended;
use self::origin::{Origin, Waiting};
use self::spare::Spare;
use self::timer::{Timers, Whose};
use crate::clock::Moment;
use crate::model::{CallId, CourierTuning, HttpVersion, OriginId, Outcome, Parcel, Scheme, Target};
use crate::wire::{Command, ConnId, Event};

/// One call to make: one parcel, or several that ride in one request as a JSON array of their bodies.
pub struct Request<'a, 'r> {
    /// The parcel whose target, token and id the request carries.
    pub first: &'a Parcel,
    /// More of the same target, usually none.
    pub rest: &'r mut dyn Iterator<Item = &'a Parcel>,
    /// Number of this attempt, from 1.
    pub attempt: u16,
}

/// A call that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Which.
    pub call: CallId,
    /// How.
    pub outcome: Outcome,
    /// When it was started.
    pub started: Moment,
    /// A 2xx whose body was neither `ack: true` nor `ack: false`.
    pub unreadable: bool,
}

/// What a courier asks for and reports. The caller drains it after each call.
#[derive(Debug, Default)]
pub struct Out {
    /// For the wire, in this order.
    pub commands: Vec<Command>,
    /// Calls that ended.
    pub done: Vec<Done>,
    /// Host names (and ports) to resolve off the shard; each is answered by [`Courier::on_resolved`].
    pub lookups: Vec<(OriginId, String, u16)>,
}

/// How an origin's connections are used now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginStats {
    /// Open, without a call.
    pub idle: u32,
    /// Open, with at least one.
    pub busy: u32,
    /// Being opened.
    pub connecting: u32,
    /// Calls that wait for a connection.
    pub waiting: u32,
}

/// Makes the calls of one shard.
#[derive(Debug)]
pub struct Courier {
    tuning: CourierTuning,
    limits: Limits,
    tls: Option<Arc<rustls::ClientConfig>>,
    private_allowed: bool,
    conns: Conns,
    origins: Vec<Option<Box<Origin>>>,
    timers: Timers,
    spare: Spare,
    calls: usize,
    /// A moment and the Unix seconds it stands for.
    wall: (Moment, u64),
    /// HTTP/2 connections that were given calls and have to be driven; empty in between.
    touched: Vec<ConnId>,
    /// Decrypted bytes, the JSON parser's copy of a body, HTTP/2 calls that ended: reused, empty in between.
    plain: Vec<u8>,
    scratch: Vec<u8>,
    ended: Vec<Ended>,
}

impl Courier {
    /// A courier without connections. Without `tls` a call to an `https` target fails as unreachable.
    #[must_use]
    pub fn new(tuning: CourierTuning, tls: Option<Arc<rustls::ClientConfig>>) -> Self {
        Self {
            tuning,
            limits: Limits { head_bytes: tuning.head_bytes_max, body_bytes: tuning.body_bytes_max },
            tls: tls.map(|config| tls::for_courier(&config, tuning.http)),
            private_allowed: true,
            conns: Conns::default(),
            origins: Vec::new(),
            timers: Timers::default(),
            spare: Spare::default(),
            calls: 0,
            wall: (Moment::ZERO, 0),
            touched: Vec::new(),
            plain: Vec::new(),
            scratch: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Tells the wall clock's time, which a `Retry-After` date needs. Once is enough; again after it was set.
    pub fn set_wall(&mut self, now: Moment, unix_s: u64) {
        self.wall = (now, unix_s);
    }

    /// Whether private and loopback addresses may be connected to (by default they may). Holds for
    /// addresses that are resolved from now on.
    pub fn allow_private(&mut self, allowed: bool) {
        self.private_allowed = allowed;
    }

    /// Starts a call. `origin` names the target of `request.first`: same id ⇔ same `scheme://host:port` bytes.
    pub fn start(
        &mut self,
        now: Moment,
        call: CallId,
        origin: OriginId,
        request: Request<'_, '_>,
        out: &mut Out,
    ) {
        if self.tuning.loopback {
            let outcome = Outcome::success(200);
            out.done.push(Done { call, outcome, started: now, unreadable: false });
            return;
        }
        let Request { first, rest, attempt } = request;
        self.calls += 1;
        let mut bytes = self.spare.buffer();
        let known = self.origin_or_new(origin, first);
        known.calls += 1;
        request::write(&mut bytes, &known.lines, first, rest, attempt);
        known.waiting.push_back(Waiting { call, started: now, moves: 0, bytes });
        self.pump(now, origin, out);
    }

    /// Takes what the wire reports. Events of connections that are gone are ignored.
    pub fn on_event(&mut self, now: Moment, event: Event<'_>, out: &mut Out) {
        match event {
            Event::Connected(id) => self.on_connected(now, id, out),
            Event::Sent(id, buffer) => {
                self.spare.give_buffer(buffer);
                self.on_sent(now, id, out);
            }
            Event::Received(id, bytes) => self.on_received(now, id, bytes, out),
            Event::Eof(id) => self.on_eof(now, id, out),
            Event::Failed(id, _) => self.on_failed(now, id, out),
        }
    }

    /// Takes the answer to a lookup. Every lookup has to be answered once, however late.
    pub fn on_resolved(
        &mut self,
        now: Moment,
        origin: OriginId,
        addresses: Result<Vec<SocketAddr>, ()>,
        out: &mut Out,
    ) {
        let Some(known) = self.origin(origin) else { return };
        known.lookups_open = known.lookups_open.saturating_sub(1);
        self.take_addresses(now, origin, addresses, out);
    }

    fn take_addresses(
        &mut self,
        now: Moment,
        origin: OriginId,
        addresses: Result<Vec<SocketAddr>, ()>,
        out: &mut Out,
    ) {
        let private_allowed = self.private_allowed;
        let Some(known) = self.origin(origin) else { return };
        if known.on_resolved(now, addresses, private_allowed) {
            self.pump(now, origin, out);
        } else {
            self.fail_waiting(origin, out);
        }
    }

    /// Ends what has lasted too long.
    pub fn on_time(&mut self, now: Moment, out: &mut Out) {
        while let Some((at, whose)) = self.timers.pop(now) {
            match whose {
                Whose::Conn(id) => self.on_conn_due(now, at, id, out),
                Whose::Origin(id) => self.on_origin_due(now, at, id, out),
            }
        }
    }

    /// When [`Courier::on_time`] should be called next. May be early.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Moment> {
        self.timers.next()
    }

    /// Connections open or being opened.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.conns.len()
    }

    /// Calls that have not ended.
    #[must_use]
    pub const fn calls(&self) -> usize {
        self.calls
    }

    /// Connections of every origin, by the origin's place. Walks all connections: for people.
    #[must_use]
    pub fn connections_by_origin(&self) -> Vec<u32> {
        self.conns.by_origin()
    }

    /// How an origin's connections are used. Walks all connections: for people, not for the hot path.
    #[must_use]
    pub fn origin_stats(&self, origin: OriginId) -> OriginStats {
        let mut stats = OriginStats::default();
        for conn in self.conns.of(origin) {
            match conn {
                conn if conn.is_connecting() => stats.connecting += 1,
                conn if conn.is_idle() => stats.idle += 1,
                _ => stats.busy += 1,
            }
        }
        let known = self.origins.get(origin.0 as usize).and_then(Option::as_ref);
        stats.waiting = known.map_or(0, |known| u32::try_from(known.waiting.len()).unwrap_or(u32::MAX));
        stats
    }

    /// Forgets an origin that has no call, closing its connections, so that its id can be reused.
    /// False, and nothing happens, if it has one, or if a lookup of its name is still to be answered:
    /// the answer would go to the id's next owner.
    pub fn forget(&mut self, origin: OriginId, out: &mut Out) -> bool {
        match self.origin(origin) {
            None => return true,
            Some(known) if known.calls > 0 || known.lookups_open > 0 => return false,
            Some(_) => {}
        }
        let ids: Vec<_> = self.conns.of(origin).map(|conn| conn.id).collect();
        for id in ids {
            self.close(id, out);
        }
        self.origins[origin.0 as usize] = None;
        true
    }

    fn origin(&mut self, origin: OriginId) -> Option<&mut Origin> {
        self.origins.get_mut(origin.0 as usize)?.as_deref_mut()
    }

    fn origin_or_new(&mut self, origin: OriginId, parcel: &Parcel) -> &mut Origin {
        let at = origin.0 as usize;
        if at >= self.origins.len() {
            self.origins.resize_with(at + 1, || None);
        }
        let (tuning, private_allowed) = (self.tuning, self.private_allowed);
        self.origins[at].get_or_insert_with(|| {
            let target = Target::parse(parcel.target()).expect("P1: a parcel's target was checked");
            let calls_each = match (tuning.http, target.scheme) {
                (HttpVersion::Http2PriorKnowledge, Scheme::Http) => tuning.streams_max,
                (HttpVersion::Http1, _) | (HttpVersion::Negotiate, Scheme::Http) => 1,
                (_, Scheme::Https) => 0,
            };
            Box::new(Origin::new(&target, calls_each, private_allowed))
        })
    }

    fn wall_now_s(&self, now: Moment) -> u64 {
        self.wall.1 + now.since(self.wall.0).as_secs()
    }

    /// C1: the one place where a call ends.
    fn finish(&mut self, origin: OriginId, call: CallId, started: Moment, judged: Judged, out: &mut Out) {
        debug_assert!(self.calls > 0, "C1: a call ends once");
        self.calls -= 1;
        if let Some(known) = self.origin(origin) {
            known.calls -= 1;
        }
        out.done.push(Done { call, outcome: judged.outcome, started, unreadable: judged.unreadable });
    }

    /// How long a timer entry may sleep: no deadline is ever set nearer than this.
    fn tick(&self) -> Duration {
        self.tuning.connect_timeout.min(self.tuning.request_timeout).min(self.tuning.idle_timeout)
    }
}
