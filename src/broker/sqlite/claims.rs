//! Who has what: this keeper's own claims, and those of other consumers as the file shows them. Pure.
//!
//! A claim is one row for one batch. It carries which messages are still out, and a beat that its owner
//! raises to extend it. A beat that stands still for a whole lease, by the clock of whoever looks, ends the
//! claim: no clock of another host or a wall clock that someone set is trusted.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use shards::clock::Moment;

use super::window::{GroupKey, Pick};

/// A claim, by its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ClaimId(pub(super) i64);

/// A consumer of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Consumer(pub(super) u32);

/// Has what no consumer asked for: such a claim ends at once.
const NOBODY: Consumer = Consumer(0);

/// How long a claim of ours must be overdue before it ends. After a pause of the whole process the keeper may
/// run before the consumer that would have extended it: that one gets so long to do it.
const OVERDUE_MIN: Duration = Duration::from_secs(1);

/// One of ours.
#[derive(Debug)]
struct Claim {
    consumer: Consumer,
    lease: Duration,
    until: Moment,
    /// When it was first seen to be overdue.
    overdue_at: Option<Moment>,
    /// All that it began with, by number.
    picks: Vec<Pick>,
    out: usize,
    /// Messages that the row still lists.
    written: usize,
    nacked: bool,
}

/// What the row of a claim needs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing is out any more.
    Delete,
    /// This is still out.
    Write(Vec<Pick>),
}

/// Our claims.
#[derive(Debug, Default)]
pub(super) struct Claims {
    open: BTreeMap<ClaimId, Claim>,
    by_seq: HashMap<u64, ClaimId>,
    /// Whose the claims were that ended in a transaction that has not been committed yet.
    ended: Vec<(ClaimId, Consumer, Duration)>,
}

impl Claims {
    /// What was done since the last call is in the file.
    pub(super) fn on_commit(&mut self) {
        self.ended.clear();
    }

    /// What was done since [`Claims::on_commit`] is not in the file: starts again from what is.
    pub(super) fn reload(&mut self, rows: Vec<(ClaimId, Vec<Pick>)>, now: Moment) {
        let open = std::mem::take(&mut self.open).into_iter();
        let mut known: BTreeMap<ClaimId, (Consumer, Duration)> =
            open.map(|(id, claim)| (id, (claim.consumer, claim.lease))).collect();
        known.extend(self.ended.drain(..).map(|(id, consumer, lease)| (id, (consumer, lease))));
        self.by_seq.clear();
        for (id, picks) in rows {
            let (consumer, lease) = known.get(&id).copied().unwrap_or((NOBODY, Duration::ZERO));
            self.open(id, consumer, picks, lease, now);
        }
    }

    /// A batch was handed over.
    pub(super) fn open(
        &mut self,
        id: ClaimId,
        consumer: Consumer,
        mut picks: Vec<Pick>,
        lease: Duration,
        now: Moment,
    ) {
        picks.sort_unstable_by_key(|pick| pick.seq);
        for pick in &picks {
            self.by_seq.insert(pick.seq, id);
        }
        let (out, written) = (picks.len(), picks.len());
        let until = now + lease;
        // What is nobody's is not waited for.
        let overdue_at = (consumer == NOBODY).then_some(Moment::ZERO);
        let claim = Claim { consumer, lease, until, overdue_at, picks, out, written, nacked: false };
        self.open.insert(id, claim);
    }

    /// Messages that are out.
    pub(super) fn out(&self) -> usize {
        self.by_seq.len()
    }

    /// Is it out, and with this consumer? Then where.
    pub(super) fn find(&self, seq: u64, consumer: Consumer) -> Option<ClaimId> {
        let id = *self.by_seq.get(&seq)?;
        (self.open.get(&id)?.consumer == consumer).then_some(id)
    }

    /// Is it out with any consumer of this process?
    pub(super) fn has(&self, seq: u64) -> bool {
        self.by_seq.contains_key(&seq)
    }

    /// Takes a message out of its claim. `None`: it is not (or no longer) this consumer's.
    pub(super) fn take(&mut self, seq: u64, consumer: Consumer, nacked: bool) -> Option<(ClaimId, GroupKey)> {
        let id = self.find(seq, consumer)?;
        self.by_seq.remove(&seq);
        let claim = self.open.get_mut(&id)?;
        claim.out -= 1;
        claim.nacked |= nacked;
        let at = claim.picks.binary_search_by_key(&seq, |pick| pick.seq).ok()?;
        Some((id, claim.picks[at].group))
    }

    /// Takes a whole claim away: what was still out.
    pub(super) fn close(&mut self, id: ClaimId) -> Vec<Pick> {
        let Some(claim) = self.open.remove(&id) else { return Vec::new() };
        self.ended.push((id, claim.consumer, claim.lease));
        let by_seq = &mut self.by_seq;
        let out = claim.picks.into_iter().filter(|pick| by_seq.get(&pick.seq) == Some(&id));
        let out: Vec<Pick> = out.collect();
        for pick in &out {
            self.by_seq.remove(&pick.seq);
        }
        out
    }

    /// Its owner still lives.
    pub(super) fn extend(&mut self, id: ClaimId, now: Moment) {
        if let Some(claim) = self.open.get_mut(&id) {
            claim.until = now + claim.lease;
            claim.overdue_at = None;
        }
    }

    /// Claims whose lease ran out, and was seen to have run out before.
    pub(super) fn due(&mut self, now: Moment) -> Vec<ClaimId> {
        let mut due = Vec::new();
        for (id, claim) in self.open.iter_mut().filter(|(_, claim)| claim.until <= now) {
            if *claim.overdue_at.get_or_insert(now) + OVERDUE_MIN <= now {
                due.push(*id);
            }
        }
        due
    }

    /// When claims must be looked at next.
    pub(super) fn next_due(&self) -> Option<Moment> {
        let look =
            |claim: &Claim| claim.overdue_at.map_or(claim.until, |at| claim.until.max(at + OVERDUE_MIN));
        self.open.values().map(look).min()
    }

    /// One consumer's claims.
    pub(super) fn of(&self, consumer: Consumer) -> Vec<ClaimId> {
        self.open.iter().filter(|(_, claim)| claim.consumer == consumer).map(|(id, _)| *id).collect()
    }

    /// What one consumer has.
    pub(super) fn all_of(&self, consumer: Consumer) -> Vec<u64> {
        let is_its = |id: &ClaimId| self.open.get(id).is_some_and(|claim| claim.consumer == consumer);
        self.by_seq.iter().filter(|(_, id)| is_its(id)).map(|(seq, _)| *seq).collect()
    }

    /// Every consumer that has anything.
    pub(super) fn consumers(&self) -> Vec<Consumer> {
        let consumers: HashSet<Consumer> = self.open.values().map(|claim| claim.consumer).collect();
        consumers.into_iter().collect()
    }

    /// Every claim's id.
    pub(super) fn ids(&self) -> Vec<ClaimId> {
        self.open.keys().copied().collect()
    }

    /// Everything that is out.
    pub(super) fn all(&self) -> impl Iterator<Item = Pick> {
        self.open.iter().flat_map(|(id, claim)| {
            claim.picks.iter().filter(|pick| self.by_seq.get(&pick.seq) == Some(id)).copied()
        })
    }

    /// What the row of a claim needs after messages were taken out. Acked messages are gone from the file,
    /// so that the row may go on listing some of them: it is written again when a quarter of the list is
    /// gone, when something went back, or at once where `others` look at it.
    pub(super) fn change(&mut self, id: ClaimId, others: bool) -> Option<Change> {
        let claim = self.open.get_mut(&id)?;
        if claim.out == 0 {
            self.ended.push((id, claim.consumer, claim.lease));
            self.open.remove(&id);
            return Some(Change::Delete);
        }
        if !others && !claim.nacked && (claim.written - claim.out) * 4 < claim.written {
            return None;
        }
        let by_seq = &self.by_seq;
        claim.picks.retain(|pick| by_seq.get(&pick.seq) == Some(&id));
        claim.written = claim.out;
        claim.nacked = false;
        Some(Change::Write(claim.picks.clone()))
    }
}

/// Another consumer's claim, as its row shows it.
#[derive(Clone, Debug)]
pub(super) struct Foreign {
    pub(super) owner: i64,
    pub(super) host: String,
    pub(super) lease: Duration,
    pub(super) beat: i64,
    pub(super) out: Vec<Pick>,
}

/// Other consumers' claims, and since when each one's beat stands still.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    seen: BTreeMap<ClaimId, (Foreign, Moment)>,
}

impl Elsewhere {
    /// The rows as they are now.
    pub(super) fn update(&mut self, rows: Vec<(ClaimId, Foreign)>, now: Moment) {
        let mut seen = BTreeMap::new();
        for (id, row) in rows {
            let since = match self.seen.get(&id) {
                Some((before, since)) if before.beat == row.beat => *since,
                _ => now,
            };
            seen.insert(id, (row, since));
        }
        self.seen = seen;
    }

    /// There are none.
    pub(super) fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// Groups that others have messages of.
    pub(super) fn groups(&self) -> HashSet<GroupKey> {
        self.seen.values().flat_map(|(row, _)| row.out.iter().map(|pick| pick.group)).collect()
    }

    /// Messages that others have.
    pub(super) fn out(&self) -> usize {
        self.seen.values().map(|(row, _)| row.out.len()).sum()
    }

    /// Claims whose beat stood still for a lease.
    pub(super) fn due(&self, now: Moment) -> Vec<ClaimId> {
        let is_due = |row: &Foreign, since: Moment| since + row.lease <= now;
        self.seen.iter().filter(|(_, (row, since))| is_due(row, *since)).map(|(id, _)| *id).collect()
    }

    /// When the next one ends if its beat goes on standing still.
    pub(super) fn next_due(&self) -> Option<Moment> {
        self.seen.values().map(|(row, since)| *since + row.lease).min()
    }

    /// Every owner, with its host and claims.
    pub(super) fn owners(&self) -> BTreeMap<(i64, String), Vec<ClaimId>> {
        let mut owners: BTreeMap<(i64, String), Vec<ClaimId>> = BTreeMap::new();
        for (id, (row, _)) in &self.seen {
            owners.entry((row.owner, row.host.clone())).or_default().push(*id);
        }
        owners
    }

    /// A claim's beat.
    pub(super) fn beat(&self, id: ClaimId) -> Option<i64> {
        self.seen.get(&id).map(|(row, _)| row.beat)
    }

    /// Takes a claim away: what was out.
    pub(super) fn close(&mut self, id: ClaimId) -> Vec<Pick> {
        self.seen.remove(&id).map(|(row, _)| row.out).unwrap_or_default()
    }
}

/// A claim's list as it stands in its row: per message the step from the number before (LEB128) and the
/// group's hash.
pub(super) fn encode(picks: &[Pick]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(picks.len() * 10);
    let mut last = 0;
    for pick in picks {
        let mut step = pick.seq.wrapping_sub(last);
        last = pick.seq;
        while step >= 0x80 {
            bytes.push((step & 0x7f) as u8 | 0x80);
            step >>= 7;
        }
        bytes.push((step & 0x7f) as u8);
        bytes.extend_from_slice(&pick.group.0.to_le_bytes());
    }
    bytes
}

/// Reads a claim's list. `None`: it is not one.
pub(super) fn decode(mut bytes: &[u8]) -> Option<Vec<Pick>> {
    let (mut picks, mut last) = (Vec::with_capacity(bytes.len() / 9), 0_u64);
    while !bytes.is_empty() {
        let (mut step, mut shift) = (0_u64, 0_u32);
        loop {
            let (&byte, rest) = bytes.split_first()?;
            bytes = rest;
            step |= u64::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        let (group, rest) = bytes.split_first_chunk::<8>()?;
        bytes = rest;
        last = last.wrapping_add(step);
        picks.push(Pick { seq: last, group: GroupKey(u64::from_le_bytes(*group)) });
    }
    Some(picks)
}

#[cfg(test)]
#[path = "claims/tests.rs"]
mod tests;
