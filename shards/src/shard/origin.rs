//! The targets a shard calls: one entry per origin with its breaker and the lanes that wait for it.
//! Pure. Core: its shard's. Entries unused for [`ORIGIN_IDLE_MAX`] are forgotten.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::time::Duration;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::breaker::Breaker;
use super::lane::NONE;
use crate::clock::Moment;
use crate::meter::{Latency, TargetSnapshot};
use crate::model::{BreakerScope, OriginId};

/// A target that is not called for this long is forgotten with its breaker and connections.
pub const ORIGIN_IDLE_MAX: Duration = Duration::from_secs(300);

/// One target.
pub(super) struct Origin {
    pub(super) bytes: Box<[u8]>,
    pub(super) breaker: Breaker,
    /// Lanes whose heads wait for the breaker, longest wait first.
    pub(super) held: VecDeque<u32>,
    /// Calls under way.
    pub(super) calls: u32,
    pub(super) used: Moment,
    /// A refusal was last reported then: a 4xx, a 501.
    pub(super) noticed: [Option<Moment>; 2],
    /// Calls that ended.
    pub(super) ended: u64,
    /// Of those, without an answer.
    pub(super) failures: u64,
    pub(super) latency: Latency,
}

/// All targets of a shard.
pub(super) struct Origins {
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
    all: Vec<Option<Origin>>,
    free: Vec<u32>,
    scope: BreakerScope,
    global: Breaker,
    last: u32,
}

impl Origins {
    pub(super) fn new(scope: BreakerScope) -> Self {
        Self {
            table: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            all: Vec::new(),
            free: Vec::new(),
            scope,
            global: Breaker::default(),
            last: NONE,
        }
    }

    /// The entry for these bytes. Runs of messages to one target find it by one comparison.
    pub(super) fn intern(&mut self, bytes: &[u8], now: Moment) -> OriginId {
        if let Some(Some(origin)) = self.all.get(self.last as usize)
            && *origin.bytes == *bytes
        {
            return OriginId(self.last);
        }
        let hash = self.hasher.hash_one(bytes);
        let all = &self.all;
        let is = |at: &u32| all[*at as usize].as_ref().is_some_and(|origin| *origin.bytes == *bytes);
        if let Some(&at) = self.table.find(hash, is) {
            self.last = at;
            return OriginId(at);
        }
        let entry = Origin {
            bytes: bytes.into(),
            breaker: Breaker::default(),
            held: VecDeque::new(),
            calls: 0,
            used: now,
            noticed: [None; 2],
            ended: 0,
            failures: 0,
            latency: Latency::default(),
        };
        let at = if let Some(at) = self.free.pop() {
            self.all[at as usize] = Some(entry);
            at
        } else {
            self.all.push(Some(entry));
            u32::try_from(self.all.len() - 1).expect("bounded by messages held")
        };
        let (all, hasher) = (&self.all, &self.hasher);
        self.table.insert_unique(hash, at, |at| {
            hasher.hash_one(all[*at as usize].as_ref().map_or(&[][..], |origin| &origin.bytes))
        });
        self.last = at;
        OriginId(at)
    }

    pub(super) fn get(&self, id: OriginId) -> &Origin {
        self.all[id.0 as usize].as_ref().expect("an origin in use is kept")
    }

    pub(super) fn get_mut(&mut self, id: OriginId) -> &mut Origin {
        self.all[id.0 as usize].as_mut().expect("an origin in use is kept")
    }

    /// The breaker that guards this origin.
    pub(super) fn breaker(&self, id: OriginId) -> &Breaker {
        match self.scope {
            BreakerScope::Origin => &self.get(id).breaker,
            BreakerScope::Global => &self.global,
        }
    }

    pub(super) fn breaker_mut(&mut self, id: OriginId) -> &mut Breaker {
        match self.scope {
            BreakerScope::Origin => &mut self.get_mut(id).breaker,
            BreakerScope::Global => &mut self.global,
        }
    }

    /// Origins behind the same breaker as `id`.
    pub(super) fn guarded_with(&self, id: OriginId) -> Vec<OriginId> {
        match self.scope {
            BreakerScope::Origin => vec![id],
            BreakerScope::Global => self.iter().map(|(id, _)| id).collect(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (OriginId, &Origin)> {
        self.all
            .iter()
            .enumerate()
            .filter_map(|(at, origin)| Some((OriginId(u32::try_from(at).ok()?), origin.as_ref()?)))
    }

    /// All of them, for people.
    pub(super) fn look(&self) -> Vec<TargetSnapshot> {
        let look = |(id, origin): (OriginId, &Origin)| TargetSnapshot {
            id,
            origin: String::from_utf8_lossy(&origin.bytes).into_owned(),
            breaker: self.breaker(id).look(),
            active: origin.calls,
            held: u32::try_from(origin.held.len()).unwrap_or(u32::MAX),
            calls: origin.ended,
            failures: origin.failures,
            connections: 0,
            latency: origin.latency,
        };
        self.iter().map(look).collect()
    }

    /// Origins that nothing has used for a while.
    pub(super) fn idle(&self, now: Moment) -> impl Iterator<Item = OriginId> {
        self.iter().filter_map(move |(id, origin)| {
            let unused = origin.calls == 0 && origin.held.is_empty() && !origin.breaker.is_tripped();
            (unused && now.since(origin.used) > ORIGIN_IDLE_MAX).then_some(id)
        })
    }

    /// Forgets an idle origin; its id may name another from now on.
    pub(super) fn forget(&mut self, id: OriginId) {
        let Some(origin) = self.all[id.0 as usize].take() else { return };
        let hash = self.hasher.hash_one(&*origin.bytes);
        if let Ok(entry) = self.table.find_entry(hash, |&at| at == id.0) {
            entry.remove();
        }
        self.free.push(id.0);
        self.last = NONE;
    }
}
