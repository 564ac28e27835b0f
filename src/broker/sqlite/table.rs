//! The queue's SQL: every statement that is run once the file is open. All inside the keeper's transactions.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Result, params};

use super::claims::{ClaimId, Foreign, decode, encode};
use super::window::{GroupKey, Pick};

/// The counters over the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// The next message's number.
    pub(super) next_seq: u64,
    /// Messages in the file.
    pub(super) messages: u64,
    /// Times that messages were put back below what was read already.
    pub(super) put_backs: u64,
}

/// A message's row.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) seq: u64,
    pub(super) group: String,
    pub(super) visible_at: u64,
    pub(super) receives: u16,
    pub(super) body: Vec<u8>,
    pub(super) generation: u64,
}

/// The statements.
#[derive(Clone, Copy)]
pub(super) struct Table<'c>(pub(super) &'c Connection);

impl Table<'_> {
    /// Changes when another connection has written.
    pub(super) fn data_version(self) -> Result<i64> {
        self.0.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
    }

    /// Tells this file from every other one.
    pub(super) fn file_id(self) -> Result<i64> {
        self.0.query_row("SELECT file_id FROM queue_state WHERE one = 1", [], |row| row.get(0))
    }

    pub(super) fn counters(self) -> Result<Counters> {
        let mut select =
            self.0.prepare_cached("SELECT next_seq, messages, put_backs FROM queue_state WHERE one = 1")?;
        select.query_row([], |row| {
            Ok(Counters {
                next_seq: unsigned(row, 0)?,
                messages: unsigned(row, 1)?,
                put_backs: unsigned(row, 2)?,
            })
        })
    }

    pub(super) fn set_counters(self, counters: Counters) -> Result<()> {
        let mut update = self.0.prepare_cached(
            "UPDATE queue_state SET next_seq = ?1, messages = ?2, put_backs = ?3 WHERE one = 1",
        )?;
        update.execute(params![
            signed(counters.next_seq),
            signed(counters.messages),
            signed(counters.put_backs)
        ])?;
        Ok(())
    }

    /// Inserts a message. False: its number is taken.
    pub(super) fn insert(
        self,
        (seq, generation): (u64, u64),
        group: &str,
        visible_at: u64,
        now: u64,
        body: &[u8],
    ) -> Result<bool> {
        let mut insert = self.0.prepare_cached(
            "INSERT OR IGNORE INTO queue_messages(seq, grp, visible_at, receives, published_at, body, generation)
             VALUES (?1, ?2, ?3, 0, ?4, ?5, ?6)",
        )?;
        let (seq, generation) = (signed(seq), signed(generation));
        let inserted =
            insert.execute(params![seq, group, signed(visible_at), signed(now), body, generation])?;
        Ok(inserted > 0)
    }

    /// The rows after `cursor`, without their bodies: number, group, when it is visible.
    pub(super) fn scan(self, cursor: u64, max: usize, mut found: impl FnMut(Pick, u64)) -> Result<()> {
        let mut select = self.0.prepare_cached(
            "SELECT seq, grp, visible_at FROM queue_messages WHERE seq > ?1 ORDER BY seq LIMIT ?2",
        )?;
        let mut rows = select.query(params![signed(cursor), signed(max as u64)])?;
        while let Some(row) = rows.next()? {
            let group = GroupKey::of(row.get_ref(1)?.as_str().unwrap_or_default());
            found(Pick { seq: unsigned(row, 0)?, group }, unsigned(row, 2)?);
        }
        Ok(())
    }

    /// Whole rows from one number to another.
    pub(super) fn read(self, from: u64, to: u64, rows_out: &mut Vec<Row>) -> Result<()> {
        let mut select = self.0.prepare_cached(
            "SELECT seq, grp, visible_at, receives, body, generation
             FROM queue_messages WHERE seq BETWEEN ?1 AND ?2",
        )?;
        let mut rows = select.query(params![signed(from), signed(to)])?;
        while let Some(row) = rows.next()? {
            rows_out.push(Row {
                seq: unsigned(row, 0)?,
                group: row.get(1)?,
                visible_at: unsigned(row, 2)?,
                receives: row.get(3)?,
                body: row.get(4)?,
                generation: unsigned(row, 5)?,
            });
        }
        Ok(())
    }

    pub(super) fn exists(self, seq: u64) -> Result<bool> {
        let mut select = self.0.prepare_cached("SELECT 1 FROM queue_messages WHERE seq = ?1")?;
        select.exists([signed(seq)])
    }

    /// Deletes messages from one number to another; says how many there were.
    pub(super) fn delete(self, from: u64, to: u64) -> Result<usize> {
        let mut delete = self.0.prepare_cached("DELETE FROM queue_messages WHERE seq BETWEEN ?1 AND ?2")?;
        delete.execute(params![signed(from), signed(to)])
    }

    /// A message that comes back. False: it is not there.
    pub(super) fn show_again(self, seq: u64, visible_at: u64, tried: bool) -> Result<bool> {
        let mut update = self.0.prepare_cached(
            "UPDATE queue_messages SET visible_at = ?2, receives = min(receives + ?3, 65535) WHERE seq = ?1",
        )?;
        Ok(update.execute(params![signed(seq), signed(visible_at), tried])? > 0)
    }

    pub(super) fn add_claim(self, owner: i64, host: &str, lease: Duration, out: &[Pick]) -> Result<ClaimId> {
        let mut insert = self.0.prepare_cached(
            "INSERT INTO claims(owner, host, lease_ms, beat, out) VALUES (?1, ?2, ?3, 0, ?4)",
        )?;
        let lease_ms = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX);
        insert.insert(params![owner, host, lease_ms, encode(out)]).map(ClaimId)
    }

    pub(super) fn write_claim(self, id: ClaimId, out: &[Pick]) -> Result<()> {
        let mut update = self.0.prepare_cached("UPDATE claims SET out = ?2 WHERE id = ?1")?;
        update.execute(params![id.0, encode(out)]).map(|_| ())
    }

    /// Extends a claim. False: it is gone.
    pub(super) fn beat(self, id: ClaimId, owner: i64) -> Result<bool> {
        let mut update =
            self.0.prepare_cached("UPDATE claims SET beat = beat + 1 WHERE id = ?1 AND owner = ?2")?;
        Ok(update.execute(params![id.0, owner])? > 0)
    }

    /// Deletes a claim whose beat is as seen, or any beat. False: it is gone or beats again.
    pub(super) fn delete_claim(self, id: ClaimId, beat: Option<i64>) -> Result<bool> {
        let mut delete =
            self.0.prepare_cached("DELETE FROM claims WHERE id = ?1 AND beat = coalesce(?2, beat)")?;
        Ok(delete.execute(params![id.0, beat])? > 0)
    }

    /// An owner's claims, with what each lists.
    pub(super) fn claims_of(self, owner: i64) -> Result<Vec<(ClaimId, Vec<Pick>)>> {
        let mut select = self.0.prepare_cached("SELECT id, out FROM claims WHERE owner = ?1")?;
        let rows = select.query_map([owner], |row| {
            let out = decode(row.get_ref(1)?.as_blob().unwrap_or_default()).unwrap_or_default();
            Ok((ClaimId(row.get(0)?), out))
        })?;
        rows.collect()
    }

    /// The claims of all others. A list that can't be read counts as empty: its lease still ends it.
    pub(super) fn claims_but_of(self, owner: i64) -> Result<Vec<(ClaimId, Foreign)>> {
        let mut select = self
            .0
            .prepare_cached("SELECT id, owner, host, lease_ms, beat, out FROM claims WHERE owner <> ?1")?;
        let rows = select.query_map([owner], |row| {
            let foreign = Foreign {
                owner: row.get(1)?,
                host: row.get(2)?,
                lease: Duration::from_millis(unsigned(row, 3)?),
                beat: row.get(4)?,
                out: decode(row.get_ref(5)?.as_blob().unwrap_or_default()).unwrap_or_default(),
            };
            Ok((ClaimId(row.get(0)?), foreign))
        })?;
        rows.collect()
    }

    /// The message published under a dedup id, while its time runs.
    pub(super) fn duplicate_of(self, id: &str, now: u64) -> Result<Option<u64>> {
        let mut select = self.0.prepare_cached("SELECT seq FROM dedup WHERE id = ?1 AND until > ?2")?;
        select.query_row(params![id, signed(now)], |row| unsigned(row, 0)).optional()
    }

    pub(super) fn remember(self, dedup: &str, seq: u64, until: u64) -> Result<()> {
        let mut insert = self.0.prepare_cached("INSERT OR REPLACE INTO dedup VALUES (?1, ?2, ?3)")?;
        insert.execute(params![dedup, signed(seq), signed(until)]).map(|_| ())
    }

    /// Forgets dedup ids past their time and put-backs before `put_back_at`.
    pub(super) fn forget(self, now: u64, put_back_at: u64) -> Result<()> {
        self.0.prepare_cached("DELETE FROM dedup WHERE until <= ?1")?.execute([signed(now)])?;
        self.0.prepare_cached("DELETE FROM put_backs WHERE at <= ?1")?.execute([signed(put_back_at)])?;
        Ok(())
    }

    /// A message's body, if it is there.
    pub(super) fn body(self, seq: u64) -> Result<Option<Vec<u8>>> {
        let mut select = self.0.prepare_cached("SELECT body FROM queue_messages WHERE seq = ?1")?;
        select.query_row([signed(seq)], |row| row.get(0)).optional()
    }

    /// A dead letter was put back under this token.
    pub(super) fn was_put_back(self, token: &str) -> Result<bool> {
        self.0.prepare_cached("SELECT 1 FROM put_backs WHERE token = ?1")?.exists([token])
    }

    pub(super) fn remember_put_back(self, token: &str, now: u64) -> Result<()> {
        let mut insert = self.0.prepare_cached("INSERT INTO put_backs VALUES (?1, ?2)")?;
        insert.execute(params![token, signed(now)]).map(|_| ())
    }
}

/// SQLite's integers are signed; ours stay below 2⁶³.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unsigned(row: &rusqlite::Row<'_>, at: usize) -> Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(at)?).unwrap_or(0))
}
