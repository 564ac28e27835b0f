//! Opens the dead-letter store's file: its settings, its version, and the steps from older versions.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Result};

/// Says that a SQLite file is a corelane dead-letter store: "cld" and a one.
const APPLICATION_ID: i64 = 0x636c_6401;
/// How long to wait for another process's transaction.
const BUSY_MAX: Duration = Duration::from_secs(10);

/// What each version added. A file of version n needs the steps from n on.
const STEPS: [&str; 3] = [
    // 1: the letters. `edition` counts how often the same message was set aside: a retry removes only the one
    // that it put back.
    "CREATE TABLE dead_letters(
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        edition INTEGER NOT NULL DEFAULT 0,
        queue TEXT NOT NULL,
        key INTEGER NOT NULL,
        id TEXT NOT NULL,
        grp TEXT NOT NULL,
        pool TEXT NOT NULL,
        target TEXT NOT NULL,
        token TEXT NOT NULL,
        dispatch TEXT NOT NULL,
        high_priority INTEGER NOT NULL,
        reason TEXT NOT NULL,
        detail TEXT NOT NULL,
        status INTEGER NOT NULL,
        attempts INTEGER NOT NULL,
        at INTEGER NOT NULL,
        body BLOB NOT NULL,
        UNIQUE(queue, key));
     CREATE TABLE store(one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL);
     INSERT INTO store VALUES (1, lower(hex(randomblob(8))));",
    // 2: a letter is the same only if its content is, because a queue's file may be replaced by one that
    // counts its keys anew. The table is made anew to lose its constraint; numbers go on where they were,
    // because a number that was used names a put-back for good.
    "CREATE TABLE dead_letters_new(
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        edition INTEGER NOT NULL DEFAULT 0,
        queue TEXT NOT NULL,
        key INTEGER NOT NULL,
        id TEXT NOT NULL,
        grp TEXT NOT NULL,
        pool TEXT NOT NULL,
        target TEXT NOT NULL,
        token TEXT NOT NULL,
        dispatch TEXT NOT NULL,
        high_priority INTEGER NOT NULL,
        reason TEXT NOT NULL,
        detail TEXT NOT NULL,
        status INTEGER NOT NULL,
        attempts INTEGER NOT NULL,
        at INTEGER NOT NULL,
        body BLOB NOT NULL,
        UNIQUE(queue, key, id, grp, target, token, body));
     INSERT INTO sqlite_sequence(name, seq)
        SELECT 'dead_letters_new', seq FROM sqlite_sequence WHERE name = 'dead_letters';
     INSERT INTO dead_letters_new SELECT * FROM dead_letters;
     DROP TABLE dead_letters;
     ALTER TABLE dead_letters_new RENAME TO dead_letters;",
    // 3: how many letters there are, so that no one has to count them.
    "ALTER TABLE store ADD COLUMN letters INTEGER NOT NULL DEFAULT 0;
     UPDATE store SET letters = (SELECT count(*) FROM dead_letters);
     CREATE TRIGGER letter_kept AFTER INSERT ON dead_letters
        BEGIN UPDATE store SET letters = letters + 1; END;
     CREATE TRIGGER letter_gone AFTER DELETE ON dead_letters
        BEGIN UPDATE store SET letters = letters - 1; END;",
];

/// Opens the store's file, creates it if there is none or brings it up to date.
pub(super) fn open(path: &Path) -> io::Result<Connection> {
    let said = |error: rusqlite::Error| io::Error::other(format!("{}: {error}", path.display()));
    // Messages hold tokens: a new file is for its owner's eyes only. SQLite gives its log the same mode.
    let _ = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let conn = Connection::open(path).map_err(said)?;
    conn.busy_timeout(BUSY_MAX).map_err(said)?;
    conn.pragma_update(None, "journal_mode", "WAL").map_err(said)?;
    conn.pragma_update(None, "synchronous", "FULL").map_err(said)?;
    let upgraded = upgrade(&conn, STEPS.len()).map_err(said)?;
    upgraded.map_err(|what| io::Error::other(format!("{}: {what}", path.display())))?;
    Ok(conn)
}

/// A second connection that only reads.
pub(super) fn open_to_read(path: &Path) -> io::Result<Connection> {
    let said = |error: rusqlite::Error| io::Error::other(format!("{}: {error}", path.display()));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(said)?;
    conn.busy_timeout(BUSY_MAX).map_err(said)?;
    Ok(conn)
}

/// Takes the missing steps up to `wanted`, in one transaction.
fn upgrade(conn: &Connection, wanted: usize) -> Result<std::result::Result<(), String>> {
    let tx = rusqlite::Transaction::new_unchecked(conn, rusqlite::TransactionBehavior::Immediate)?;
    let number = |pragma: &str| tx.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, u32>(0));
    let (version, id) = (number("user_version")? as usize, i64::from(number("application_id")?));
    let tables: i64 = tx.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if version > STEPS.len() {
        return Ok(Err(format!(
            "its format has version {version}, this program knows up to {}: use a newer corelane",
            STEPS.len()
        )));
    }
    if (version > 0 && id != APPLICATION_ID) || (version == 0 && tables > 0) {
        return Ok(Err("a SQLite file, but not a corelane dead-letter store: name another file".to_owned()));
    }
    if version < wanted {
        for sql in &STEPS[version..wanted] {
            tx.execute_batch(sql)?;
        }
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.pragma_update(None, "user_version", u32::try_from(wanted).unwrap_or(u32::MAX))?;
    }
    tx.commit()?;
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_store_keeps_its_letters_and_never_gives_out_a_number_again() {
        let conn = Connection::open_in_memory().expect("memory");
        assert_eq!(upgrade(&conn, 1), Ok(Ok(())));
        let keep = |number: &str, key: i64, id: &str| {
            let sql = format!(
                "INSERT INTO dead_letters VALUES ({number}, 3, 'q', {key}, '{id}', 'g', 'p', 't', '', 'IMMEDIATE',
                    0, 'REFUSED', '', 404, 1, 0, x'7b7d')"
            );
            conn.execute(&sql, [])
        };
        keep("4", 1, "kept").expect("version 1 has these");
        keep("9", 2, "purged").expect("version 1 has these");
        conn.execute("DELETE FROM dead_letters WHERE number = 9", []).expect("deleted");
        assert!(keep("NULL", 1, "another").is_err(), "version 1 merges them");
        assert_eq!(upgrade(&conn, STEPS.len()), Ok(Ok(())));
        keep("NULL", 1, "another").expect("another message under the same key");
        let mut select =
            conn.prepare("SELECT number, edition, id FROM dead_letters ORDER BY number").expect("SQL");
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        let rows: Vec<(i64, i64, String)> = rows.expect("rows").collect::<Result<_>>().expect("readable");
        let count = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("a number");
        assert_eq!(count("SELECT letters FROM store"), 2, "counted before and since");
        assert_eq!(rows, [(4, 3, "kept".to_owned()), (10, 3, "another".to_owned())]);
    }
}
