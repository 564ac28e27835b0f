//! Looks up host names off the shards: a lookup may block for seconds, a shard may not. One thread that
//! hands each lookup to a short-lived one. Core: unpinned.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc;

use crate::link::{Bell, Rx, Tx};
use crate::model::OriginId;

/// Lookups under way at once; more wait in their rings.
const LOOKUPS_MAX: usize = 16;

/// A name to look up.
#[derive(Debug)]
pub struct Lookup {
    /// For whom.
    pub origin: OriginId,
    /// The name.
    pub host: String,
    /// The port, for the addresses.
    pub port: u16,
}

/// What became of a lookup.
#[derive(Debug)]
pub struct Resolved {
    /// For whom.
    pub origin: OriginId,
    /// Addresses, or why not.
    pub addresses: Result<Vec<SocketAddr>, ()>,
}

/// One shard's line to the resolver.
pub struct Line {
    /// Names come in.
    pub lookups: Rx<Lookup>,
    /// Addresses go out.
    pub answers: Tx<Resolved>,
}

/// Serves all shards until every one has hung up.
pub fn serve(mut lines: Vec<Line>, bell: &Arc<Bell>) {
    let (send, receive) = mpsc::channel::<(usize, Resolved)>();
    let mut under_way = 0;
    loop {
        while let Ok((line, answer)) = receive.try_recv() {
            under_way -= 1;
            deliver(&mut lines[line].answers, answer);
        }
        for (at, line) in lines.iter_mut().enumerate() {
            while under_way < LOOKUPS_MAX
                && let Some(lookup) = line.lookups.pop()
            {
                under_way += 1;
                look_up(at, lookup, &send, bell);
            }
        }
        if lines.iter().all(|line| line.lookups.is_closed()) {
            return;
        }
        // A message in the channel is always followed by a ring, so only the rings need a second look.
        let has_work = || under_way < LOOKUPS_MAX && lines.iter().any(|line| !line.lookups.is_empty());
        if bell.flag().try_sleep(has_work) {
            bell.wait_blocking();
            bell.flag().wake();
        }
    }
}

/// Waits for a slot: the shard empties its ring every turn.
fn deliver(answers: &mut Tx<Resolved>, answer: Resolved) {
    let mut answer = answer;
    while let Err(back) = answers.push(answer) {
        if answers.is_closed() {
            return;
        }
        answers.ring_if_dirty();
        std::thread::yield_now();
        answer = back;
    }
    answers.ring_if_dirty();
}

fn look_up(line: usize, lookup: Lookup, send: &mpsc::Sender<(usize, Resolved)>, bell: &Arc<Bell>) {
    let Lookup { origin, host, port } = lookup;
    let failed = Resolved { origin, addresses: Err(()) };
    let (reply, ring) = (send.clone(), Arc::clone(bell));
    let thread = std::thread::Builder::new().name("lookup".into()).spawn(move || {
        let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect).map_err(|_| ());
        let _ = reply.send((line, Resolved { origin, addresses: found }));
        ring.ring();
    });
    if thread.is_err() {
        let _ = send.send((line, failed));
        bell.ring();
    }
}
