//! How to reach what was handed over: the ack subject of each message's newest hand-over, by its place in the stream. Pure.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::Subject;
use shards::clock::Moment;

/// Below this many, those that no one asks for are not looked for.
const SWEEP_FROM: usize = 4_096;

/// The newest hand-over of a message.
#[derive(Clone, Debug)]
pub(super) struct Handle {
    /// Where to tell what became of it.
    pub(super) subject: Subject,
    /// Which hand-over of the consumer's it was.
    pub(super) consumer_seq: u64,
    /// It is ours until then, as far as we know.
    pub(super) lease_until: Moment,
    /// The server gave it up after so many hand-overs: it is not leased, and a nak would not bring it back.
    pub(super) given_up: Option<u64>,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Handles {
    by_seq: HashMap<u64, Handle>,
    sweep_at: usize,
}

impl Default for Handles {
    fn default() -> Self {
        Self { by_seq: HashMap::new(), sweep_at: SWEEP_FROM }
    }
}

impl Handles {
    pub(super) fn len(&self) -> usize {
        self.by_seq.len()
    }

    pub(super) fn get(&self, stream_seq: u64) -> Option<&Handle> {
        self.by_seq.get(&stream_seq)
    }

    /// A message was handed over, perhaps again: the newest counts. What was never settled, because its ack was lost
    /// or its epoch is over, goes when it can't be wanted any more: `kept` after its lease.
    pub(super) fn put(&mut self, stream_seq: u64, handle: Handle, now: Moment, kept: Duration) {
        self.by_seq.insert(stream_seq, handle);
        if self.by_seq.len() >= self.sweep_at {
            self.by_seq.retain(|_, handle| handle.lease_until + kept > now);
            self.sweep_at = (self.by_seq.len() * 2).max(SWEEP_FROM);
        }
    }

    /// Its lease goes on.
    pub(super) fn extend(&mut self, stream_seq: u64, until: Moment) {
        if let Some(handle) = self.by_seq.get_mut(&stream_seq) {
            handle.lease_until = handle.lease_until.max(until);
        }
    }

    /// Settled, unless it was handed over again meanwhile: then that hand-over will be told about too.
    pub(super) fn forget(&mut self, stream_seq: u64, consumer_seq: u64) {
        if self.get(stream_seq).is_some_and(|handle| handle.consumer_seq == consumer_seq) {
            self.by_seq.remove(&stream_seq);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn handle(consumer_seq: u64, lease_until: Moment) -> Handle {
        Handle { subject: Subject::from("s"), consumer_seq, lease_until, given_up: None }
    }

    #[test]
    fn a_settled_message_stays_reachable_if_it_was_handed_over_again() {
        let (mut handles, now) = (Handles::default(), Moment::ZERO);
        handles.put(7, handle(1, now), now, S);
        handles.put(7, handle(2, now), now, S);
        handles.forget(7, 1);
        assert_eq!(handles.get(7).map(|handle| handle.consumer_seq), Some(2));
        handles.forget(7, 2);
        assert!(handles.get(7).is_none());
    }

    #[test]
    fn what_is_never_settled_does_not_stay_for_ever() {
        let mut handles = Handles::default();
        for seq in 0..100_000 {
            let now = Moment::ZERO + Duration::from_millis(seq);
            handles.put(seq, handle(seq, now + S), now, S);
        }
        assert!(handles.len() <= 2 * SWEEP_FROM, "{}", handles.len());
        assert!(handles.get(99_999).is_some(), "a live one stays");
    }

    #[test]
    fn a_lease_is_never_shortened() {
        let (mut handles, now) = (Handles::default(), Moment::ZERO);
        handles.put(7, handle(1, now + S * 5), now, S);
        handles.extend(7, now + S);
        assert_eq!(handles.get(7).map(|handle| handle.lease_until), Some(now + S * 5));
        handles.extend(7, now + S * 9);
        assert_eq!(handles.get(7).map(|handle| handle.lease_until), Some(now + S * 9));
    }
}
