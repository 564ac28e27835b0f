//! Keeps leases: everything held is extended at a third of its lease, and given back where that fails.

use super::{Desk, DeskEffects, Stage, Tell, Warning};
use crate::clock::Moment;
use crate::model::{Control, IdHash, SourceId, Ticket, ToShard};
use std::time::Duration;

/// Extended at a third of the lease: two tries fail before the third comes too late.
const EXTEND_AT: u32 = 3;
/// Failed tries after which a message goes back while its lease still runs.
const EXTENSIONS_FAILED_MAX: u8 = 2;
/// How long a message that is due back is waited for before its tries are forgotten: polling may pause.
const TRIES_KEPT: Duration = Duration::from_secs(900);
/// How often delivered ids and owed groups are looked through.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Desk {
    pub(super) fn start_lease(&mut self, slot: u32, now: Moment) {
        let source = self.tracker.at(slot).source;
        if let Some(lease) = self.sources[usize::from(source.0)].spec.lease {
            self.tracker.lease(slot, now + lease / EXTEND_AT, now + lease);
        }
    }

    /// Extends leases that come up, and forgets what is past its time.
    pub fn on_time(&mut self, now: Moment, out: &mut DeskEffects) {
        for source in 0..self.sources.len() {
            let source = SourceId(u16::try_from(source).expect("as many as were added"));
            self.extend_due(source, now, out);
        }
        if now < self.next_look {
            return;
        }
        let elapsed = (now.since(self.next_look) + LOOK_EVERY).min(LOOK_EVERY * 2);
        self.next_look = now + LOOK_EVERY;
        self.completed.expire(now);
        self.tried.expire(now);
        let gone = if self.owed.is_empty() {
            Vec::new()
        } else {
            let sources = 0..u16::try_from(self.sources.len()).unwrap_or(u16::MAX);
            let idle: Vec<bool> = sources.map(|source| self.room(SourceId(source), now) == 0).collect();
            let paused =
                |source: SourceId| if idle[usize::from(source.0)] { elapsed } else { Duration::ZERO };
            self.owed.expire(now, paused)
        };
        if !gone.is_empty() {
            out.warnings.push(Warning::OwedExpired { count: gone.len() });
            for lane in gone {
                self.unpark_first(lane, out);
            }
        }
    }

    fn extend_due(&mut self, source: SourceId, now: Moment, out: &mut DeskEffects) {
        while let Some(slot) = self.tracker.next_lease(source) {
            let entry = self.tracker.at(slot);
            if entry.extend_at > now {
                return;
            }
            let (receipt, until, lane, first_at) =
                (entry.receipt, entry.lease_until, entry.lane, entry.first_at);
            let out_there = entry.stage == Stage::Out;
            let ticket = self.tracker.ticket(slot);
            let lease = self.lease_of(source);
            self.tracker.lease(slot, now + lease / EXTEND_AT, until);
            #[cfg(feature = "sim")]
            if self.traps.forget_leases {
                continue;
            }
            if !self.is_live(source, receipt) {
                continue; // No lease to keep: the broker hands it over again.
            }
            let too_long = now.since(first_at) >= self.tuning.hold_max;
            if out_there && (too_long || entry_failed(self.tracker.at(slot).extensions_failed)) {
                self.owe_ahead(slot, now);
                out.runs.push((
                    self.shard_of(lane),
                    ToShard::Control(Box::new(Control::GiveBack { lane, ticket })),
                ));
            }
            out.tells.push((source, receipt, Tell::Extend { ticket }));
        }
    }

    /// A source answered an extension. `sent`: when it was asked.
    pub fn on_extended(&mut self, ticket: Ticket, done: bool, sent: Moment, out: &mut DeskEffects) {
        let Some(slot) = self.tracker.slot(ticket) else { return };
        let source = self.tracker.at(slot).source;
        let lease = self.lease_of(source);
        let entry = self.tracker.at_mut(slot);
        if done {
            entry.extensions_failed = 0;
            entry.lease_until = entry.lease_until.max(sent + lease);
            return;
        }
        entry.extensions_failed = entry.extensions_failed.saturating_add(1);
        // Once: what is lost stays lost until its source hands it over again, for which it must be asked.
        if entry.extensions_failed == EXTENSIONS_FAILED_MAX {
            out.warnings.push(Warning::LeaseLost { source });
            self.sources[usize::from(source.0)].strained_until = sent + lease;
        }
    }

    /// When [`Desk::on_time`] must be called next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Moment> {
        let sources = (0..self.sources.len()).filter_map(|at| {
            let slot = self.tracker.next_lease(SourceId(u16::try_from(at).ok()?))?;
            Some(self.tracker.at(slot).extend_at)
        });
        let quiet = self.sources.iter().flat_map(|source| [source.quiet_until, source.strained_until]);
        let quiet = quiet.filter(|&until| until > Moment::ZERO && until >= self.next_look);
        let look = (!self.completed.is_empty() || !self.owed.is_empty() || !self.tried.is_empty())
            .then_some(self.next_look);
        sources.chain(quiet).chain(look).min()
    }

    /// Remembers how often a message that goes back was tried, where that is limited.
    pub(super) fn remember_tries(
        &mut self,
        source: SourceId,
        id: IdHash,
        attempts: u16,
        delay_s: u32,
        now: Moment,
    ) {
        let spec = &self.sources[usize::from(source.0)].spec;
        if spec.attempts_max > 0 {
            let back = now + Duration::from_secs(u64::from(delay_s));
            self.tried.remember(id, attempts, back + TRIES_KEPT);
        }
    }

    /// Attempts of an arrival: as remembered, else as often as its broker handed it over before.
    pub(super) fn tries_of(&self, id: IdHash, deliveries: u16) -> u16 {
        self.tried.get(id).unwrap_or(deliveries.saturating_sub(1))
    }
}

const fn entry_failed(failed: u8) -> bool {
    failed >= EXTENSIONS_FAILED_MAX
}
