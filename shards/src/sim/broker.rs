//! Simulated brokers: what a queue does with the messages it keeps, hands over and is told about.
//!
//! - W1: a message is gone only by an ack that the broker's rules accept.
//! - W2: visible messages are handed over in publish order.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::time::Duration;

use super::plan::{Kind, NONE, SourcePlan, Stale};
use crate::clock::Moment;
use crate::desk::Receipt;

/// Where a message is, as its broker sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Not published.
    Unborn,
    /// To be handed over.
    Ready,
    /// To be handed over later.
    Delayed,
    /// Handed over, with this receipt.
    Out,
    /// Acked.
    Gone,
    /// Handed over too often: set aside by the broker itself.
    Dropped,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    place: Place,
    group: u32,
    /// Hand-overs so far; the newest receipt's number.
    count: u16,
    /// Which timer counts.
    stamp: u32,
    gone_at: Moment,
}

/// A message on its way to the process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handed {
    pub(super) message: u32,
    pub(super) receipt: Receipt,
    pub(super) deliveries: u16,
}

/// What a broker answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// Done.
    Done,
    /// It said so, but the receipt was not the newest and nothing happened.
    Pretended,
    /// No.
    Refused,
}

#[derive(Debug)]
pub(super) struct Broker {
    kind: Kind,
    stale: Stale,
    lease: Duration,
    deliveries_max: u16,
    pub(super) epoch: u32,
    items: Vec<Item>,
    ready: BTreeSet<u32>,
    timers: BinaryHeap<Reverse<(Moment, u32, u32)>>,
    /// Messages of each group that are out or delayed.
    locks: Vec<u32>,
    /// Leases that ran out since the last look.
    pub(super) expired: Vec<u32>,
    /// Messages that were set aside since the last look.
    pub(super) dropped: Vec<u32>,
}

impl Broker {
    pub(super) fn new(plan: &SourcePlan, messages: usize, groups: usize) -> Self {
        let item = Item { place: Place::Unborn, group: NONE, count: 0, stamp: 0, gone_at: Moment::ZERO };
        Self {
            kind: plan.kind,
            stale: plan.stale,
            lease: plan.spec.lease.unwrap_or_default(),
            deliveries_max: plan.spec.deliveries_max.unwrap_or(u16::MAX),
            epoch: 0,
            items: vec![item; messages],
            ready: BTreeSet::new(),
            timers: BinaryHeap::new(),
            locks: vec![0; groups],
            expired: Vec::new(),
            dropped: Vec::new(),
        }
    }

    pub(super) fn publish(&mut self, message: u32, group: u32) {
        self.items[message as usize].group = group;
        self.move_to(message, Place::Ready);
    }

    pub(super) fn place(&self, message: u32) -> Place {
        self.items[message as usize].place
    }

    /// Times it was handed over.
    pub(super) fn count(&self, message: u32) -> u16 {
        self.items[message as usize].count
    }

    fn move_to(&mut self, message: u32, place: Place) {
        let item = &mut self.items[message as usize];
        let before = std::mem::replace(&mut item.place, place);
        item.stamp += 1;
        let locks = |place| matches!(place, Place::Out | Place::Delayed);
        if item.group != NONE && self.kind == Kind::Locking {
            let lock = &mut self.locks[item.group as usize];
            *lock = *lock + u32::from(locks(place)) - u32::from(locks(before));
        }
        if before == Place::Ready {
            self.ready.remove(&message);
        }
        if place == Place::Ready {
            self.ready.insert(message);
        }
    }

    fn set_timer(&mut self, message: u32, at: Moment) {
        self.timers.push(Reverse((at, message, self.items[message as usize].stamp)));
    }

    /// Lets leases and delays run out.
    pub(super) fn advance(&mut self, now: Moment) {
        while let Some(&Reverse((at, message, stamp))) = self.timers.peek() {
            if at > now {
                return;
            }
            self.timers.pop();
            let item = &self.items[message as usize];
            if item.stamp != stamp {
                continue;
            }
            if item.place == Place::Out {
                self.expired.push(message);
            }
            self.move_to(message, Place::Ready);
        }
    }

    /// Hands over up to `max` messages.
    pub(super) fn receive(&mut self, max: usize, now: Moment) -> Vec<Handed> {
        self.advance(now);
        let mut chosen = Vec::new();
        for &message in &self.ready {
            if chosen.len() == max {
                break;
            }
            let group = self.items[message as usize].group;
            let locked = self.kind == Kind::Locking && group != NONE && self.locks[group as usize] > 0;
            if !locked {
                chosen.push(message);
            }
        }
        let mut batch = Vec::new();
        for message in chosen {
            if self.items[message as usize].count >= self.deliveries_max {
                self.move_to(message, Place::Dropped);
                self.dropped.push(message);
            } else {
                batch.push(self.hand_over(message, now));
            }
        }
        batch
    }

    /// Hands a message over, whatever its place: an acked one stays acked.
    pub(super) fn hand_over(&mut self, message: u32, now: Moment) -> Handed {
        let item = &mut self.items[message as usize];
        item.count = item.count.saturating_add(1);
        let count = item.count;
        if item.place != Place::Gone {
            self.move_to(message, Place::Out);
            if self.kind != Kind::Connected {
                self.set_timer(message, now + self.lease);
            }
        }
        let key = u64::from(message) << 16 | u64::from(count);
        let deliveries = if self.kind == Kind::Connected { 0 } else { count };
        Handed { message, receipt: Receipt { key, epoch: self.epoch }, deliveries }
    }

    /// A message that is out, or acked not longer ago than half a lease.
    pub(super) fn may_repeat(&self, message: u32, now: Moment) -> bool {
        let item = &self.items[message as usize];
        match item.place {
            Place::Out => item.count < self.deliveries_max,
            Place::Gone => now.since(item.gone_at) < self.lease / 2,
            _ => false,
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "made from 32 bits in `hand_over`")]
    pub(super) const fn message_of(receipt: Receipt) -> u32 {
        (receipt.key >> 16) as u32
    }

    fn is_newest(&self, receipt: Receipt) -> bool {
        let item = &self.items[Self::message_of(receipt) as usize];
        u64::from(item.count) == receipt.key & 0xffff && receipt.epoch == self.epoch
    }

    /// What becomes of a command with this receipt: `None` = do it.
    fn refuse(&self, receipt: Receipt, out_only: bool) -> Option<Reply> {
        let place = self.place(Self::message_of(receipt));
        let usable = place == Place::Out || (!out_only && self.kind == Kind::Leasing);
        if self.is_newest(receipt) {
            return (!usable).then_some(Reply::Refused);
        }
        match self.stale {
            Stale::Refused => Some(Reply::Refused),
            Stale::Pretended => Some(Reply::Pretended),
            Stale::Honoured => None,
        }
    }

    pub(super) fn ack(&mut self, receipt: Receipt, now: Moment) -> Reply {
        self.advance(now);
        let message = Self::message_of(receipt);
        if matches!(self.place(message), Place::Gone) {
            return Reply::Done;
        }
        if self.place(message) == Place::Dropped {
            return Reply::Refused;
        }
        if let Some(reply) = self.refuse(receipt, false) {
            return reply;
        }
        self.items[message as usize].gone_at = now;
        self.move_to(message, Place::Gone);
        Reply::Done
    }

    pub(super) fn nack(&mut self, receipt: Receipt, delay: Duration, now: Moment) -> Reply {
        self.advance(now);
        let message = Self::message_of(receipt);
        if self.place(message) != Place::Out {
            return Reply::Refused;
        }
        if let Some(reply) = self.refuse(receipt, true) {
            return reply;
        }
        if delay.is_zero() {
            self.move_to(message, Place::Ready);
        } else {
            self.move_to(message, Place::Delayed);
            self.set_timer(message, now + delay);
        }
        Reply::Done
    }

    pub(super) fn extend(&mut self, receipt: Receipt, now: Moment) -> Reply {
        self.advance(now);
        let message = Self::message_of(receipt);
        if self.place(message) != Place::Out {
            return Reply::Refused;
        }
        if let Some(reply) = self.refuse(receipt, true) {
            return reply;
        }
        self.move_to(message, Place::Out);
        self.set_timer(message, now + self.lease);
        Reply::Done
    }

    /// The connection is gone: everything unacked is back in its place.
    pub(super) fn lose_connection(&mut self) -> Vec<u32> {
        self.epoch += 1;
        let back = |place| matches!(place, Place::Out | Place::Delayed);
        let lost: Vec<u32> =
            (0..).zip(&self.items).filter(|(_, item)| back(item.place)).map(|(message, _)| message).collect();
        for &message in &lost {
            self.move_to(message, Place::Ready);
        }
        lost
    }
}
