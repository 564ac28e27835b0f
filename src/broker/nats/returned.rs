//! What came back while no one received. The server hands that over first, but in the order in which it came back: by
//! a nak, or by the end of a lease, and a lease that was extended ends later. So all of it is taken before the first is
//! passed on, and passed on in the stream's order.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use async_nats::{Message, Subject};
use bytes::Bytes;
use shards::clock::{Clock, Moment};

use super::BATCH_MAX;
use super::client::{Pulled, Session};
use super::settle::deadline;
use super::wire::{self, Delivery};

/// Bytes of bodies that are kept; the others are fetched from the stream when their turn comes.
const KEPT_BYTES_MAX: usize = 64 << 20;
/// Leases are extended after this part of one.
const EXTEND_AFTER: u32 = 3;
/// What is passed on has at least so many parts of its lease left, less one.
const FRESH: u32 = 10;

struct Kept {
    message: Message,
    /// Its body is not here.
    bare: bool,
}

/// Messages that came back, by their place in the stream.
#[derive(Default)]
pub(super) struct Returned {
    messages: BTreeMap<u64, Kept>,
    bytes: usize,
    /// Their leases began then at the earliest.
    leased_at: Moment,
}

impl Returned {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Takes one; of two hand-overs of a message the later one counts. False if it is new.
    fn put(&mut self, mut message: Message) -> bool {
        let Some(delivery) = message.reply.as_ref().and_then(|reply| Delivery::read(reply)) else {
            return true;
        };
        let bare = self.bytes + message.payload.len() > KEPT_BYTES_MAX;
        if bare {
            message.payload = Bytes::new();
            // Copies: the client's own are slices of what it read at once.
            message.subject = message.subject.as_str().into();
            message.reply = message.reply.map(|reply| reply.as_str().into());
        }
        self.bytes += message.payload.len();
        if let Some(before) = self.messages.insert(delivery.stream_seq, Kept { message, bare }) {
            self.bytes -= before.message.payload.len();
        }
        delivery.count > 1
    }

    fn pop(&mut self) -> Option<Message> {
        let (_, Kept { message, .. }) = self.messages.pop_first()?;
        self.bytes -= message.payload.len();
        Some(message)
    }

    /// The oldest, if its body must be fetched.
    fn first_bare(&self) -> Option<u64> {
        self.messages.first_key_value().filter(|(_, kept)| kept.bare).map(|(&stream_seq, _)| stream_seq)
    }

    /// Takes all of them.
    pub(super) fn take_all(&mut self) -> Vec<Message> {
        self.bytes = 0;
        std::mem::take(&mut self.messages).into_values().map(|kept| kept.message).collect()
    }
}

impl Session {
    /// Takes up to `count` messages that came back, until there are no more, or new ones come. Keeps their leases until
    /// they are passed on.
    pub(super) async fn collect(self: &Rc<Self>, count: usize, lease: Duration) -> Pulled {
        self.returned.borrow_mut().leased_at = Clock.now();
        let (mut came, mut is_new) = (0, false);
        let pulled = loop {
            let (before, max) = (came, self.consumer.config.batch_max(BATCH_MAX).min(count - came));
            let take = |message| {
                came += 1;
                is_new |= !self.returned.borrow_mut().put(message);
            };
            match self.pull(max, take).await {
                Pulled::Messages if !is_new && came > before && came < count => {}
                pulled => break pulled,
            }
        };
        tracing::info!(stream = self.stream, came, "what came back is passed on in the stream's order");
        let session = Rc::downgrade(self);
        tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(lease / EXTEND_AFTER).await;
                match session.upgrade() {
                    Some(session) if !session.returned.borrow().is_empty() => session.extend_returned().await,
                    _ => return,
                }
            }
        });
        pulled
    }

    async fn extend_returned(&self) {
        let now = Clock.now();
        let word = |kept: &Kept| Some((kept.message.reply.clone()?, wire::WORKING));
        let words: Vec<(Subject, Bytes)> =
            self.returned.borrow().messages.values().filter_map(word).collect();
        if self.tell(words, deadline()).await.iter().all(|&taken| taken) {
            self.returned.borrow_mut().leased_at = now;
        }
    }

    /// Passes on up to `max` messages that came back, oldest first, with nearly a whole lease left.
    pub(super) async fn pass_on(
        &self,
        max: usize,
        lease: Duration,
        mut take: impl FnMut(&Message),
    ) -> Result<(), String> {
        let leased_at = self.returned.borrow().leased_at;
        if Clock.now().since(leased_at) > lease / FRESH {
            self.extend_returned().await;
        }
        for _ in 0..max {
            let bare = self.returned.borrow().first_bare();
            let stored = match bare {
                Some(stream_seq) => Some(self.stored(stream_seq).await?),
                None => None,
            };
            let Some(mut message) = self.returned.borrow_mut().pop() else { break };
            match stored {
                Some(Some(stored)) => message.payload = stored.payload,
                // It was deleted from the stream meanwhile.
                Some(None) => continue,
                None => {}
            }
            take(&message);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(count: u64, stream_seq: u64, bytes: usize) -> Message {
        Message {
            subject: "orders".into(),
            reply: Some(wire::ack_subject("s", "c", count, stream_seq).into()),
            payload: vec![b'x'; bytes].into(),
            headers: None,
            status: None,
            description: None,
            length: 0,
        }
    }

    #[test]
    fn they_are_passed_on_in_the_streams_order_each_once() {
        let mut returned = Returned::default();
        for (count, seq) in [(2, 9), (2, 4), (3, 7), (3, 4)] {
            assert!(returned.put(message(count, seq, 1)));
        }
        assert!(!returned.put(message(1, 11, 1)), "a new one is told apart");
        let seq = |message: Message| {
            let delivery = Delivery::read(message.reply.as_deref().expect("one")).expect("well-formed");
            (delivery.stream_seq, delivery.count)
        };
        let passed: Vec<_> = std::iter::from_fn(|| returned.pop().map(seq)).collect();
        assert_eq!(passed, [(4, 3), (7, 3), (9, 2), (11, 1)], "the later hand-over of 4 counts");
        assert_eq!((returned.bytes, returned.is_empty()), (0, true));
    }

    #[test]
    fn bodies_beyond_a_bound_are_not_kept() {
        let mut returned = Returned::default();
        returned.put(message(2, 2, KEPT_BYTES_MAX));
        returned.put(message(2, 1, 1));
        assert_eq!((returned.bytes, returned.first_bare()), (KEPT_BYTES_MAX, Some(1)));
        assert_eq!(returned.pop().map(|message| message.payload.len()), Some(0));
        assert_eq!(returned.first_bare(), None);
        assert_eq!(returned.take_all().len(), 1);
        assert_eq!((returned.bytes, returned.is_empty()), (0, true));
    }
}
