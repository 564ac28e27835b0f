//! The dead-letter store's SQL, and what stands in its rows.

use std::fmt::Write as _;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Result, Row, params, params_from_iter};
use shards::model::{DeadReason, Dispatch};

use super::store::{Kept, Page};
use crate::ingress::Letter;
use crate::message::dispatch_name;
use crate::view::{DeadLetterFilter, DeadLetterView};

const COLUMNS: &str = "number, id, queue, pool, grp, target, reason, detail, status, attempts, at";

/// Keeps letters. One that is there already is kept once, as it is now. Another message under the same key, as
/// a replaced queue file brings it, is another letter.
pub(super) fn keep(conn: &Connection, letters: &[Letter], at: u64) -> Result<()> {
    let tx = rusqlite::Transaction::new_unchecked(conn, rusqlite::TransactionBehavior::Immediate)?;
    let sql = "INSERT INTO dead_letters(queue, key, id, grp, pool, target, token, dispatch, high_priority,
            reason, detail, status, attempts, at, body)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
        ON CONFLICT(queue, key, id, grp, target, token, body) DO UPDATE SET edition = edition + 1, reason = excluded.reason,
            detail = excluded.detail, status = excluded.status, attempts = excluded.attempts, at = excluded.at";
    for letter in letters {
        tx.prepare_cached(sql)?.execute(params![
            letter.queue,
            letter.key.cast_signed(),
            letter.id,
            letter.group,
            letter.pool,
            letter.target,
            letter.token,
            dispatch_name(letter.dispatch),
            letter.high_priority,
            reason_name(letter.reason),
            letter.detail,
            letter.status,
            letter.attempts,
            at.cast_signed(),
            letter.body,
        ])?;
    }
    tx.commit()
}

/// A page of letters, newest first, without their bodies.
pub(super) fn list(conn: &Connection, filter: &DeadLetterFilter, page: Page) -> Result<Vec<DeadLetterView>> {
    let (mut clause, mut values) = clause(filter);
    if let Some(below) = page.below {
        values.push(below.into());
        let _ = write!(clause, " AND number < ?{}", values.len());
    }
    let limit = i64::try_from(page.limit).unwrap_or(i64::MAX);
    let sql = format!("SELECT {COLUMNS} FROM dead_letters WHERE {clause} ORDER BY number DESC LIMIT {limit}");
    let mut select = conn.prepare(&sql)?;
    select.query_map(params_from_iter(values), view)?.collect()
}

/// One letter with its body.
pub(super) fn show(conn: &Connection, number: i64) -> Result<Option<DeadLetterView>> {
    let mut select = conn.prepare(&format!("SELECT {COLUMNS}, body FROM dead_letters WHERE number = ?1"))?;
    let shown = select.query_row([number], |row| {
        let body: Vec<u8> = row.get(11)?;
        let body = super::redrive::shown(&body);
        Ok(DeadLetterView { body: Some(body), ..view(row)? })
    });
    shown.optional()
}

/// How many letters there are. Without a filter none has to be looked at.
pub(super) fn count(conn: &Connection, filter: &DeadLetterFilter) -> Result<u64> {
    if *filter == DeadLetterFilter::default() {
        let letters = conn.query_row("SELECT letters FROM store", [], |row| row.get::<_, i64>(0));
        return letters.map(i64::cast_unsigned);
    }
    let (clause, values) = clause(filter);
    let sql = format!("SELECT count(*) FROM dead_letters WHERE {clause}");
    conn.query_row(&sql, params_from_iter(values), |row| row.get::<_, i64>(0)).map(i64::cast_unsigned)
}

/// The newest letter's number; 0 if there is none.
pub(super) fn newest(conn: &Connection) -> Result<i64> {
    conn.query_row("SELECT coalesce(max(number), 0) FROM dead_letters", [], |row| row.get(0))
}

/// Deletes up to `max` letters with numbers up to `newest`; says how many.
pub(super) fn purge(conn: &Connection, filter: &DeadLetterFilter, newest: i64, max: usize) -> Result<usize> {
    let (clause, values) = clause(filter);
    let sql = format!(
        "DELETE FROM dead_letters WHERE number IN
            (SELECT number FROM dead_letters WHERE {clause} AND number <= {newest} ORDER BY number LIMIT {max})"
    );
    conn.execute(&sql, params_from_iter(values))
}

/// Whole letters after a place (queue, key, number), oldest place first within a queue.
pub(super) fn whole(
    conn: &Connection,
    filter: &DeadLetterFilter,
    after: (&str, i64, i64),
    max: usize,
) -> Result<Vec<Kept>> {
    let (clause, mut values) = clause(filter);
    values.push(after.0.to_owned().into());
    values.push(after.1.into());
    values.push(after.2.into());
    let at = values.len();
    let sql = format!(
        "SELECT number, edition, queue, key, id, grp, pool, target, token, dispatch, high_priority, reason, body
         FROM dead_letters WHERE {clause} AND (queue, key, number) > (?{}, ?{}, ?{at})
         ORDER BY queue, key, number LIMIT {max}",
        at - 2,
        at - 1
    );
    let mut select = conn.prepare(&sql)?;
    let kept = select.query_map(params_from_iter(values), |row| {
        let reason: String = row.get(11)?;
        let dispatch: String = row.get(9)?;
        Ok(Kept {
            number: row.get(0)?,
            edition: row.get(1)?,
            letter: Letter {
                queue: row.get(2)?,
                key: row.get::<_, i64>(3)?.cast_unsigned(),
                id: row.get(4)?,
                group: row.get(5)?,
                pool: row.get(6)?,
                target: row.get(7)?,
                token: row.get(8)?,
                dispatch: dispatch_of(&dispatch),
                high_priority: row.get(10)?,
                reason: reason_of(&reason),
                body: row.get(12)?,
                detail: String::new(),
                status: 0,
                attempts: 0,
            },
        })
    })?;
    kept.collect()
}

/// Removes letters that were put back, unless they were set aside again meanwhile.
pub(super) fn remove(conn: &Connection, letters: &[(i64, i64)]) -> Result<usize> {
    let tx = rusqlite::Transaction::new_unchecked(conn, rusqlite::TransactionBehavior::Immediate)?;
    let mut removed = 0;
    for (number, edition) in letters {
        let mut delete = tx.prepare_cached("DELETE FROM dead_letters WHERE number = ?1 AND edition = ?2")?;
        removed += delete.execute(params![number, edition])?;
    }
    tx.commit()?;
    Ok(removed)
}

/// The store's own name: tells its letters from another store's.
pub(super) fn name(conn: &Connection) -> Result<String> {
    conn.query_row("SELECT name FROM store", [], |row| row.get(0))
}

fn view(row: &Row<'_>) -> Result<DeadLetterView> {
    Ok(DeadLetterView {
        number: row.get(0)?,
        id: row.get(1)?,
        queue: row.get(2)?,
        pool: row.get(3)?,
        group: row.get(4)?,
        target: row.get(5)?,
        reason: row.get(6)?,
        detail: row.get(7)?,
        status: row.get(8)?,
        attempts: row.get(9)?,
        at_unix_s: row.get::<_, i64>(10)?.cast_unsigned(),
        body: None,
    })
}

/// A filter as SQL: a condition and its values.
fn clause(filter: &DeadLetterFilter) -> (String, Vec<Value>) {
    let (mut sql, mut values) = ("1".to_owned(), Vec::new());
    let mut add = |condition: &str, value: Value| {
        values.push(value);
        let _ = write!(sql, " AND {}", condition.replace('?', &format!("?{}", values.len())));
    };
    for (column, wanted) in [
        ("id = ?", &filter.id),
        ("queue = ?", &filter.queue),
        ("pool = ?", &filter.pool),
        ("grp = ?", &filter.group),
        ("substr(target, 1, length(?)) = ?", &filter.target),
        ("reason = upper(?)", &filter.reason),
    ] {
        if let Some(wanted) = wanted {
            add(column, wanted.clone().into());
        }
    }
    if let Some(status) = filter.status {
        add("status = ?", i64::from(status).into());
    }
    if let Some(after) = filter.after {
        add("at >= ?", after.cast_signed().into());
    }
    if let Some(before) = filter.before {
        add("at < ?", before.cast_signed().into());
    }
    if !filter.numbers.is_empty() {
        let numbers: Vec<String> = filter.numbers.iter().map(i64::to_string).collect();
        let _ = write!(sql, " AND number IN ({})", numbers.join(","));
    }
    (sql, values)
}

fn reason_name(reason: DeadReason) -> &'static str {
    match reason {
        DeadReason::Refused => "REFUSED",
        DeadReason::Exhausted => "EXHAUSTED",
        DeadReason::Malformed => "MALFORMED",
    }
}

fn reason_of(name: &str) -> DeadReason {
    match name {
        "EXHAUSTED" => DeadReason::Exhausted,
        "MALFORMED" => DeadReason::Malformed,
        _ => DeadReason::Refused,
    }
}

fn dispatch_of(name: &str) -> Dispatch {
    match name {
        "IMMEDIATE" => Dispatch::Immediate,
        "NEXT_ON_ERROR" => Dispatch::NextOnError,
        _ => Dispatch::BlockOnError,
    }
}
