//! Receipt handles of the messages that are held: the desk's key → the newest handle. Pure.
//!
//! - H1: a key is never given out twice, so that a receipt told twice does no harm.
//! - H2: a message has one handle, its newest: SQS may refuse older ones.

use std::collections::HashMap;

use shards::model::IdHash;

/// The handles of one queue.
#[derive(Debug, Default)]
pub(super) struct Handles {
    by_key: HashMap<u64, (IdHash, String)>,
    by_id: HashMap<IdHash, u64>,
    next: u64,
}

impl Handles {
    /// Keeps the handle of a message that was received, perhaps again; returns its key.
    pub(super) fn keep(&mut self, id: IdHash, handle: String) -> u64 {
        self.next += 1;
        if let Some(old) = self.by_id.insert(id, self.next) {
            self.by_key.remove(&old);
        }
        self.by_key.insert(self.next, (id, handle));
        self.next
    }

    /// The handle of a message that is held.
    pub(super) fn get(&self, key: u64) -> Option<&str> {
        self.by_key.get(&key).map(|(_, handle)| handle.as_str())
    }

    /// Lets go of a handle.
    pub(super) fn take(&mut self, key: u64) -> Option<String> {
        let (id, handle) = self.by_key.remove(&key)?;
        if self.by_id.get(&id) == Some(&key) {
            self.by_id.remove(&id);
        }
        Some(handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_its_newest_handle_and_a_key_is_used_once() {
        let mut handles = Handles::default();
        let first = handles.keep(IdHash(1), "a".into());
        let again = handles.keep(IdHash(1), "b".into());
        assert_ne!(first, again, "H1");
        assert_eq!((handles.get(first), handles.get(again)), (None, Some("b")), "H2");
        assert_eq!(handles.take(again).as_deref(), Some("b"));
        assert_eq!(handles.take(again), None, "told twice");
        assert!(handles.by_key.is_empty() && handles.by_id.is_empty(), "nothing is left behind");
    }
}
