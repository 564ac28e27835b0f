//! Handing out: picks from the window, checks each against its row, and claims the batch (Q4).

use std::collections::HashSet;
use std::time::Duration;

use rusqlite::Result;

use super::books::{Books, Now};
use super::claims::Consumer;
use super::request::{Identity, Taken};
use super::table::{Row, Table};
use super::window::Pick;

/// Rows read ahead at once.
const SCAN_ROWS: usize = 2_000;
/// Times that is done in one transaction at most.
const SCANS_MAX: usize = 4;
/// Rounds of picks that turn out to be gone, in one transaction.
const PICK_ROUNDS_MAX: usize = 8;

impl Books {
    /// Hands out up to `max` messages.
    pub(super) fn claim(
        &mut self,
        table: Table<'_>,
        consumer: Consumer,
        max: usize,
        lease: Duration,
        now: Now,
    ) -> Result<Vec<Taken>> {
        let mut taken = Vec::new();
        for _ in 0..PICK_ROUNDS_MAX {
            self.scan(table, max, now)?;
            let picks = self.window.pick(max, now.wall);
            if picks.is_empty() {
                break;
            }
            let kept = self.check(table, &picks, &mut taken, now)?;
            if kept.is_empty() {
                continue;
            }
            let mut listed = kept;
            listed.sort_unstable_by_key(|pick| pick.seq);
            let id = table.add_claim(self.owner, &self.host, lease, &listed)?;
            self.claims.open(id, consumer, listed, lease, now.moment);
            break;
        }
        Ok(taken)
    }

    /// Reads the rows of picks. What is gone is forgotten; what turns out to be delayed goes back, and with
    /// it what was picked behind it.
    fn check(
        &mut self,
        table: Table<'_>,
        picks: &[Pick],
        taken: &mut Vec<Taken>,
        now: Now,
    ) -> Result<Vec<Pick>> {
        let mut seqs: Vec<u64> = picks.iter().map(|pick| pick.seq).collect();
        seqs.sort_unstable();
        let mut rows = Vec::with_capacity(picks.len());
        for (from, to) in runs(&seqs) {
            table.read(from, to, &mut rows)?;
        }
        let mut rows: Vec<(u64, Option<Row>)> = rows.into_iter().map(|row| (row.seq, Some(row))).collect();
        let (mut kept, mut held) = (Vec::with_capacity(picks.len()), HashSet::new());
        for &pick in picks {
            let found = rows.binary_search_by_key(&pick.seq, |(seq, _)| *seq).ok();
            let Some(row) = found.and_then(|at| rows[at].1.take()) else {
                self.window.done(pick.group, now.wall);
                continue;
            };
            if row.visible_at > now.wall || held.contains(&pick.group) {
                held.insert(pick.group);
                self.window.give_back(pick, row.visible_at, now.wall);
                continue;
            }
            kept.push(pick);
            let receives = row.receives.saturating_add(1);
            let identity = Identity { file_id: self.file_id, seq: row.seq, generation: row.generation };
            taken.push(Taken { identity, group: row.group, receives, body: row.body });
        }
        Ok(kept)
    }

    /// Reads ahead until there is enough to hand out.
    fn scan(&mut self, table: Table<'_>, wanted: usize, now: Now) -> Result<()> {
        for _ in 0..SCANS_MAX {
            if !self.may_scan() || self.window.ready_groups() >= wanted {
                break;
            }
            let (mut last, mut count) = (self.cursor, 0);
            let (window, claims) = (&mut self.window, &self.claims);
            table.scan(self.cursor, SCAN_ROWS, |pick, visible_at| {
                (last, count) = (pick.seq, count + 1);
                if !claims.has(pick.seq) {
                    window.add(pick, visible_at, now.wall);
                }
            })?;
            self.cursor = if count < SCAN_ROWS { self.counters.next_seq - 1 } else { last };
        }
        Ok(())
    }
}

/// The runs of consecutive numbers in a sorted list.
pub(super) fn runs(sorted: &[u64]) -> impl Iterator<Item = (u64, u64)> {
    sorted.chunk_by(|a, b| a + 1 == *b || a == b).filter_map(|run| Some((*run.first()?, *run.last()?)))
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn a_run_is_unbroken() {
        type Case = (&'static [u64], &'static [(u64, u64)]);
        let rows: [Case; 4] = [
            (&[], &[]),
            (&[3], &[(3, 3)]),
            (&[1, 2, 3, 5, 7, 8], &[(1, 3), (5, 5), (7, 8)]),
            (&[4, 4, 5], &[(4, 5)]),
        ];
        for (sorted, want) in rows {
            assert_eq!(runs(sorted).collect::<Vec<_>>(), want, "{sorted:?}");
        }
    }
}
