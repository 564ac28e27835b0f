//! A pool as one shard sees it: its ready lanes, and the permits and tokens it has in hand this turn.
//! Core: its shard's; [`PoolShared`] is the part that all shards share.

use std::collections::VecDeque;

use super::limit::{Borrow, Rate, Tokens};
use super::permit::{Permits, Release};
use crate::clock::Moment;
use crate::meter::{Latency, PoolCounts};
use crate::model::{PoolSpec, ShardId};

/// Tokens borrowed at once: a turn's worth for a busy pool, given back when unused.
const BORROW_MAX: u32 = 32;

/// What all shards share of a pool: two atomic words.
#[derive(Debug)]
pub struct PoolShared {
    /// Calls in flight.
    pub permits: Permits,
    /// Starts per window.
    pub rate: Rate,
}

impl PoolShared {
    /// For a pool with these settings that starts now.
    #[must_use]
    pub fn new(spec: &PoolSpec, shards: usize, now: Moment) -> Self {
        Self {
            permits: Permits::new(spec.concurrency.get(), shards),
            rate: Rate::new(spec.rate_per_minute.map(std::num::NonZero::get), now),
        }
    }
}

/// Lanes that may run, in three lists: those in the middle of a delivery, urgent heads, others.
#[derive(Debug, Default)]
pub(super) struct Ready {
    resumed: VecDeque<u32>,
    urgent: VecDeque<u32>,
    normal: VecDeque<u32>,
}

impl Ready {
    pub(super) fn push(&mut self, lane: u32, urgent: bool) {
        if urgent { self.urgent.push_back(lane) } else { self.normal.push_back(lane) }
    }

    pub(super) fn push_resumed(&mut self, lane: u32) {
        self.resumed.push_back(lane);
    }

    fn first(&mut self) -> &mut VecDeque<u32> {
        match (self.resumed.is_empty(), self.urgent.is_empty()) {
            (false, _) => &mut self.resumed,
            (true, false) => &mut self.urgent,
            (true, true) => &mut self.normal,
        }
    }

    pub(super) fn peek(&mut self) -> Option<u32> {
        self.first().front().copied()
    }

    pub(super) fn pop(&mut self) {
        self.first().pop_front();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.resumed.is_empty() && self.urgent.is_empty() && self.normal.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.resumed.len() + self.urgent.len() + self.normal.len()
    }

    /// Takes one lane out. Linear: only for rare commands.
    pub(super) fn remove(&mut self, lane: u32) {
        for list in [&mut self.resumed, &mut self.urgent, &mut self.normal] {
            list.retain(|&other| other != lane);
        }
    }

    pub(super) fn clear(&mut self) {
        for list in [&mut self.resumed, &mut self.urgent, &mut self.normal] {
            list.clear();
        }
    }
}

/// May a message start?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grant {
    Yes,
    /// When a permit is handed over.
    WaitForPermit,
    /// When the next window starts.
    WaitUntil(Moment),
}

/// One pool on one shard.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says in which of the shard's lists the pool is")]
pub(super) struct Pool {
    pub(super) spec: PoolSpec,
    pub(super) shared: std::sync::Arc<PoolShared>,
    pub(super) ready: Ready,
    /// Permits of calls that ended this turn, to be used again or released by its end.
    pub(super) spare: u32,
    /// Permits that another shard handed over: this shard's turn has come, whoever else waits.
    pub(super) handed: u32,
    /// It has a place in the shard's list of pools with something in hand.
    pub(super) in_hand: bool,
    tokens: Tokens,
    /// Lanes of this pool that exist here.
    pub(super) lanes: u32,
    pub(super) queued: u32,
    pub(super) running: u32,
    /// Permits of calls that ended, in use until their messages' acks are kept.
    pub(super) unkept: u32,
    pub(super) counts: PoolCounts,
    pub(super) latency: Latency,
    /// It has a place in the shard's list of pools to start from.
    pub(super) active: bool,
    /// It has a place in the shard's list of pools that wait to be handed a permit.
    pub(super) waits_for_permit: bool,
    /// A timer is set for the next window.
    pub(super) waits_for_rate: bool,
    pub(super) draining: bool,
}

impl Pool {
    pub(super) fn new(spec: PoolSpec, shared: std::sync::Arc<PoolShared>) -> Self {
        Self {
            spec,
            shared,
            ready: Ready::default(),
            spare: 0,
            handed: 0,
            in_hand: false,
            tokens: Tokens::default(),
            lanes: 0,
            queued: 0,
            running: 0,
            unkept: 0,
            counts: PoolCounts::default(),
            latency: Latency::default(),
            active: false,
            waits_for_permit: false,
            waits_for_rate: false,
            draining: false,
        }
    }

    /// Takes a permit and, for a new delivery, a token: both or neither.
    pub(super) fn take(&mut self, shard: ShardId, now: Moment, needs_token: bool) -> Grant {
        if needs_token && let Some(until) = self.lacks_token(now) {
            return Grant::WaitUntil(until);
        }
        if !self.take_permit(shard) {
            return Grant::WaitForPermit;
        }
        if needs_token && self.tokens.count > 0 {
            self.tokens.count -= 1;
        }
        Grant::Yes
    }

    /// Takes tokens for messages that ride along: a rate counts messages, not calls. Returns how many may.
    pub(super) fn take_tokens(&mut self, now: Moment, want: u16) -> u16 {
        let rate = &self.shared.rate;
        if rate.limit().is_none() {
            return want;
        }
        let in_hand = u32::from(want).min(self.tokens.count);
        self.tokens.count -= in_hand;
        let lacking = u32::from(want) - in_hand;
        if lacking == 0 {
            return want;
        }
        let borrowed = match rate.borrow(now, lacking) {
            Borrow::Granted(tokens) => tokens.count,
            Borrow::Unlimited => lacking,
            Borrow::WaitUntil(_) => 0,
        };
        u16::try_from(in_hand + borrowed).unwrap_or(want)
    }

    pub(super) const fn has_tokens(&self) -> bool {
        self.tokens.count > 0
    }

    /// Makes sure that a token is in hand, where the pool has a rate.
    fn lacks_token(&mut self, now: Moment) -> Option<Moment> {
        let rate = &self.shared.rate;
        if rate.limit().is_none() {
            self.tokens.count = 0;
            return None;
        }
        if self.tokens.count > 0 && self.tokens.window == rate.window(now) {
            return None;
        }
        // Tokens of another window are void; of this one, another shard can use them.
        rate.give_back(std::mem::take(&mut self.tokens));
        let want = u32::try_from(self.ready.len()).unwrap_or(BORROW_MAX).clamp(1, BORROW_MAX);
        match rate.borrow(now, want) {
            Borrow::Unlimited => None,
            Borrow::Granted(tokens) => {
                self.tokens = tokens;
                None
            }
            Borrow::WaitUntil(until) => Some(until),
        }
    }

    fn take_permit(&mut self, shard: ShardId) -> bool {
        // A permit that was handed over while the limit was lowered starts nothing.
        if self.handed > 0 {
            if self.shared.permits.is_above_limit() {
                return false;
            }
            self.handed -= 1;
            return true;
        }
        // A permit in hand is reused without touching the shared word, unless another shard waits
        // for one or the limit was lowered below what is in use.
        if self.spare > 0 {
            let permits = &self.shared.permits;
            if !permits.others_wait(shard) && !permits.is_above_limit() {
                self.spare -= 1;
                return true;
            }
            return false;
        }
        self.shared.permits.try_take(shard)
    }

    /// Releases permits and tokens that the turn did not use. Returns the shards to wake, as bits.
    pub(super) fn release_unused(&mut self, shard: ShardId) -> u32 {
        self.shared.rate.give_back(self.tokens);
        self.tokens.count = 0;
        let mut wake = 0;
        self.spare += std::mem::take(&mut self.handed);
        while self.spare > 0 {
            match self.shared.permits.release(shard) {
                Release::Free => self.spare -= 1,
                Release::HandedTo(other) => {
                    self.spare -= 1;
                    wake |= 1 << other.0;
                }
                // Only this shard waits: its bit is cleared now, so the next release frees it.
                Release::Kept => {}
            }
        }
        wake
    }
}
