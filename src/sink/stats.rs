//! What the sink counted. Shared by all threads; the counters are independent, so relaxed order suffices.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::{Deserialize, Serialize};

/// A reading of the counters, as `/_stats` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Whole requests received, `/_stats` left out.
    pub requests: u64,
    /// Answers sent; a reset, a close or silence is none.
    pub answers: u64,
    /// Connections accepted since the start.
    pub connections: u64,
    /// Connections open now.
    pub connections_open: u64,
    /// Requests received and not answered yet.
    pub in_flight: u64,
    /// The most requests that were in flight at once.
    pub in_flight_max: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    requests: AtomicU64,
    answers: AtomicU64,
    connections: AtomicU64,
    connections_open: AtomicU64,
    in_flight: AtomicU64,
    in_flight_max: AtomicU64,
}

impl Counters {
    pub(super) fn on_connect(&self) {
        self.connections.fetch_add(1, Relaxed);
        self.connections_open.fetch_add(1, Relaxed);
    }

    pub(super) fn on_disconnect(&self) {
        self.connections_open.fetch_sub(1, Relaxed);
    }

    pub(super) fn on_request(&self) {
        self.requests.fetch_add(1, Relaxed);
        let in_flight = self.in_flight.fetch_add(1, Relaxed) + 1;
        if in_flight > self.in_flight_max.load(Relaxed) {
            self.in_flight_max.fetch_max(in_flight, Relaxed);
        }
    }

    /// `count` requests were answered.
    pub(super) fn on_answers(&self, count: u64) {
        self.answers.fetch_add(count, Relaxed);
        self.in_flight.fetch_sub(count, Relaxed);
    }

    /// `count` requests ended without an answer.
    pub(super) fn on_give_up(&self, count: u64) {
        self.in_flight.fetch_sub(count, Relaxed);
    }

    pub(super) fn read(&self) -> Stats {
        Stats {
            requests: self.requests.load(Relaxed),
            answers: self.answers.load(Relaxed),
            connections: self.connections.load(Relaxed),
            connections_open: self.connections_open.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            in_flight_max: self.in_flight_max.load(Relaxed),
        }
    }

    pub(super) fn json(&self) -> String {
        serde_json::to_string(&self.read()).expect("numbers always serialize")
    }
}
