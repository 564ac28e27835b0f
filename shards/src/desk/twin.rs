//! Which messages are twins: the same sender's id, held at the same time.

use super::Desk;
use crate::model::{IdHash, SourceId};

impl Desk {
    /// The id by which a sender's message is known. On a bus one message reaches several queues, each of which must have
    /// it delivered: there the id counts in its own queue only.
    pub(super) fn app_id_of(&self, source: SourceId, id: &[u8]) -> IdHash {
        let judges = self.sources[usize::from(source.0)].spec.judges;
        if judges { self.hasher.broker_id(source, id) } else { self.hasher.app_id(id) }
    }

    /// The message that another with this id is a twin of. There are none where the source judges: anyone may publish
    /// there, and an id that is used twice must not cost a message.
    pub(super) fn first_with(&self, source: SourceId, app_id: IdHash) -> Option<u32> {
        let judges = self.sources[usize::from(source.0)].spec.judges;
        if judges { None } else { self.tracker.by_app_id(app_id) }
    }
}
