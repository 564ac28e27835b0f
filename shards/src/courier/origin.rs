//! An origin: how it is addressed, which calls wait for a connection to it.
//! Core: its shard's. Owns: the queue of waiting calls.
//!
//! - O1: calls wait in the order in which they were started, so the front has the earliest deadline.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustls::pki_types::ServerName;

use super::conn::NONE;
use super::{guard, request};
use crate::clock::Moment;
use crate::model::{CallId, Scheme, Target};

/// New connections use an answer of the resolver for this long. Short, because targets move.
const RESOLVED_FOR: Duration = Duration::from_secs(30);

/// A call that waits for a connection, its request written.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) call: CallId,
    pub(super) started: Moment,
    /// Times it was moved from a connection that had not taken it.
    pub(super) moves: u8,
    pub(super) bytes: Vec<u8>,
}

/// What a new connection can be opened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    At(SocketAddr),
    /// A lookup has to be asked for.
    Ask,
    /// A lookup is under way.
    Asked,
    /// Nothing there that may be connected to.
    Nowhere,
}

/// One origin.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) host: Box<str>,
    pub(super) port: u16,
    /// `None` in clear text.
    pub(super) server_name: Option<ServerName<'static>>,
    pub(super) https: bool,
    /// See [`request::constant_lines`].
    pub(super) lines: Vec<u8>,
    pub(super) waiting: VecDeque<Waiting>,
    /// Head of the list of connections that can take a call.
    pub(super) ready: u32,
    /// Connections that calls may wait for: see `Conn::is_promising`.
    pub(super) connecting: u32,
    pub(super) connections: u32,
    /// Calls that wait or run.
    pub(super) calls: u32,
    /// Calls that one connection carries at a time; 0 until the first one told.
    pub(super) calls_each: u32,
    /// Its timer entry.
    pub(super) armed: Moment,
    pub(super) lookup_since: Option<Moment>,
    /// Lookups that were asked for and not answered, in time or not.
    pub(super) lookups_open: u32,
    addresses: Vec<SocketAddr>,
    turn: usize,
    resolved_at: Moment,
    suspect: bool,
    literal: bool,
}

impl Origin {
    pub(super) fn new(target: &Target<'_>, calls_each: u32, private_allowed: bool) -> Self {
        let literal = target.host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, target.port));
        let https = target.scheme == Scheme::Https;
        Self {
            host: target.host.into(),
            port: target.port,
            server_name: ServerName::try_from(target.host.to_owned()).ok().filter(|_| https),
            https,
            lines: request::constant_lines(target),
            waiting: VecDeque::new(),
            ready: NONE,
            connecting: 0,
            connections: 0,
            calls: 0,
            calls_each,
            armed: Moment::NEVER,
            lookup_since: None,
            lookups_open: 0,
            addresses: literal.into_iter().filter(|at| guard::admits(&[*at], private_allowed)).collect(),
            turn: 0,
            resolved_at: Moment::ZERO,
            suspect: false,
            literal: literal.is_some(),
        }
    }

    /// Where to connect next. Addresses take turns.
    pub(super) fn place(&mut self, now: Moment) -> Place {
        if self.lookup_since.is_some() {
            return Place::Asked;
        }
        let old = self.suspect || self.addresses.is_empty() || now >= self.resolved_at + RESOLVED_FOR;
        if old && !self.literal {
            return Place::Ask;
        }
        match self.addresses.get(self.turn % self.addresses.len().max(1)) {
            Some(address) => {
                self.turn = self.turn.wrapping_add(1);
                Place::At(*address)
            }
            None => Place::Nowhere,
        }
    }

    /// The resolver answered. A failed lookup leaves the old addresses in use; a refused answer does not.
    /// False if there is nothing to connect to.
    pub(super) fn on_resolved(
        &mut self,
        now: Moment,
        addresses: Result<Vec<SocketAddr>, ()>,
        private_allowed: bool,
    ) -> bool {
        self.lookup_since = None;
        match addresses {
            Ok(addresses) if guard::admits(&addresses, private_allowed) => self.addresses = addresses,
            Ok(_) => self.addresses.clear(),
            Err(()) => {}
        }
        self.resolved_at = now;
        self.suspect = false;
        !self.addresses.is_empty()
    }

    /// An address could not be connected to: ask again before the next one.
    pub(super) fn on_unreachable(&mut self) {
        self.suspect = true;
    }

    /// Connections that should be opening for the calls that wait.
    pub(super) fn connections_wanted(&self) -> u32 {
        let waiting = u32::try_from(self.waiting.len()).unwrap_or(u32::MAX);
        match self.calls_each {
            // Not known yet: the first connection tells.
            0 => waiting.min(1),
            each => waiting.div_ceil(each),
        }
    }
}
