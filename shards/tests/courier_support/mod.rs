//! A courier with a scripted peer instead of a wire: bytes in memory, virtual time. It holds the courier
//! to the wire's rules: one open send per connection, and nothing after a close.
#![allow(dead_code, reason = "each test binary uses its part of this")]

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use shards::clock::Moment;
use shards::courier::{Courier, Done, Out, Request};
use shards::model::{CallId, CourierTuning, OriginId, Outcome, Parcel, Parts};
use shards::wire::{Command, ConnId, Event};

pub(crate) const ACK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{\"ack\":true}";
pub(crate) const URL: &str = "http://127.0.0.1:8080/hook";

/// What the peer's side of a connection has seen.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) received: Vec<u8>,
    pub(crate) unsent: Option<Vec<u8>>,
}

pub(crate) struct World {
    pub(crate) courier: Courier,
    pub(crate) now: Moment,
    pub(crate) peers: BTreeMap<ConnId, Peer>,
    pub(crate) opened: Vec<ConnId>,
    pub(crate) closed: Vec<ConnId>,
    pub(crate) done: Vec<Done>,
    pub(crate) lookups: Vec<(OriginId, String, u16)>,
    /// Connects are answered at once.
    pub(crate) connects: bool,
    /// Sends are answered at once.
    pub(crate) sends: bool,
    out: Out,
    origins: HashMap<String, OriginId>,
    calls: u32,
}

impl World {
    pub(crate) fn new(tuning: CourierTuning) -> Self {
        Self::with_tls(tuning, None)
    }

    pub(crate) fn with_tls(tuning: CourierTuning, tls: Option<Arc<rustls::ClientConfig>>) -> Self {
        Self {
            courier: Courier::new(tuning, tls),
            now: Moment::from_nanos(1_000_000_000),
            peers: BTreeMap::new(),
            opened: Vec::new(),
            closed: Vec::new(),
            done: Vec::new(),
            lookups: Vec::new(),
            connects: true,
            sends: true,
            out: Out::default(),
            origins: HashMap::new(),
            calls: 0,
        }
    }

    pub(crate) fn origin(&mut self, url: &str) -> OriginId {
        let parcel = parcel(url, b"{}");
        let next = OriginId(u32::try_from(self.origins.len()).expect("few origins"));
        *self.origins.entry(String::from_utf8_lossy(parcel.origin()).into_owned()).or_insert(next)
    }

    pub(crate) fn start(&mut self, url: &str) -> CallId {
        self.start_with(url, b"{}")
    }

    pub(crate) fn start_with(&mut self, url: &str, body: &[u8]) -> CallId {
        let call = CallId(self.calls);
        self.calls += 1;
        let (origin, parcel) = (self.origin(url), parcel(url, body));
        let request = Request { first: &parcel, rest: &mut std::iter::empty(), attempt: 1 };
        self.courier.start(self.now, call, origin, request, &mut self.out);
        self.settle();
        call
    }

    /// Carries out the courier's commands until there are none.
    pub(crate) fn settle(&mut self) {
        loop {
            self.done.append(&mut self.out.done);
            self.lookups.append(&mut self.out.lookups);
            let commands = std::mem::take(&mut self.out.commands);
            if commands.is_empty() {
                return;
            }
            for command in commands {
                self.obey(command);
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Connect(id, address) => {
                let fresh = self.peers.insert(id, Peer { address: Some(address), ..Peer::default() });
                assert!(fresh.is_none(), "{id:?} is opened twice");
                self.opened.push(id);
                if self.connects {
                    self.courier.on_event(self.now, Event::Connected(id), &mut self.out);
                }
            }
            Command::Send(id, bytes) => {
                assert!(!bytes.is_empty(), "an empty send");
                let Some(peer) = self.peers.get_mut(&id) else { panic!("{id:?} sends after its close") };
                assert!(peer.unsent.is_none(), "{id:?} has two sends open");
                peer.received.extend_from_slice(&bytes);
                peer.unsent = Some(bytes);
                if self.sends {
                    self.sent(id);
                }
            }
            Command::Close(id) => {
                assert!(self.peers.remove(&id).is_some(), "{id:?} is closed twice");
                self.closed.push(id);
            }
        }
    }

    /// Ends the open send. Ignored, as a wire would, once the connection is closed.
    pub(crate) fn sent(&mut self, id: ConnId) {
        if let Some(bytes) = self.peers.get_mut(&id).and_then(|peer| peer.unsent.take()) {
            self.courier.on_event(self.now, Event::Sent(id, bytes), &mut self.out);
        }
    }

    pub(crate) fn connected(&mut self, id: ConnId) {
        self.event(id, Event::Connected(id));
    }

    pub(crate) fn feed(&mut self, id: ConnId, bytes: &[u8]) {
        self.event(id, Event::Received(id, bytes));
    }

    pub(crate) fn eof(&mut self, id: ConnId) {
        self.event(id, Event::Eof(id));
    }

    pub(crate) fn reset(&mut self, id: ConnId) {
        self.event(id, Event::Failed(id, io::ErrorKind::ConnectionReset));
    }

    fn event(&mut self, id: ConnId, event: Event<'_>) {
        if self.peers.contains_key(&id) {
            self.courier.on_event(self.now, event, &mut self.out);
            self.settle();
        }
    }

    pub(crate) fn resolved(&mut self, origin: OriginId, addresses: Result<Vec<SocketAddr>, ()>) {
        self.courier.on_resolved(self.now, origin, addresses, &mut self.out);
        self.settle();
    }

    pub(crate) fn forget(&mut self, origin: OriginId) -> bool {
        let forgotten = self.courier.forget(origin, &mut self.out);
        self.settle();
        forgotten
    }

    /// Lets time pass, stopping at every deadline on the way.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..1_000_000 {
            let next = self.courier.next_deadline().filter(|next| *next <= end);
            self.now = next.unwrap_or(end).max(self.now);
            self.courier.on_time(self.now, &mut self.out);
            self.settle();
            if next.is_none() {
                return;
            }
        }
        panic!("time stands still at {:?}", self.now);
    }

    /// The connection opened last.
    pub(crate) fn last(&self) -> ConnId {
        *self.opened.last().expect("a connection was opened")
    }

    /// The outcome of the call that ended last.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.done.last().map(|done| done.outcome)
    }

    /// C1: every started call has ended once.
    pub(crate) fn assert_all_done(&self, what: &str) {
        let mut ended: Vec<_> = self.done.iter().map(|done| done.call.0).collect();
        ended.sort_unstable();
        assert_eq!(ended, (0..self.calls).collect::<Vec<_>>(), "C1 broken: {what}");
        assert_eq!(self.courier.calls(), 0, "{what}");
    }
}

pub(crate) fn parcel(url: &str, body: &[u8]) -> Parcel {
    Parcel::new(&Parts { id: "m-1", target: url, token: "t", body, ..Parts::default() }).expect("valid parts")
}

/// A small generator: the same seed gives the same run.
pub(crate) struct Dice(pub u64);

impl Dice {
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.roll() >> 33).unwrap_or(0) % end.max(1)
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}
