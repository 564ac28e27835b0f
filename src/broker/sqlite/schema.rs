//! Opens a queue's file: its settings, its version, and the steps from older versions.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

/// Says that a SQLite file is a corelane queue: "clq" and a one.
const APPLICATION_ID: i64 = 0x636c_7101;
/// How long a writer waits for another process's transaction.
const BUSY_MAX: Duration = Duration::from_secs(10);
/// SQLite's page cache, in KiB.
const CACHE_KIB: i64 = 32_768;
/// Prepared statements kept.
const STATEMENTS_MAX: usize = 64;

/// What each version added. A file of version n needs the steps from n on.
const STEPS: [&str; 3] = [
    // 1: the messages, the counters over them and who has them. Sequence numbers are given out by
    // `queue_state` and never again; an index over groups would cost more than all else together.
    "CREATE TABLE queue_messages(
        seq INTEGER PRIMARY KEY,
        grp TEXT NOT NULL,
        visible_at INTEGER NOT NULL,
        receives INTEGER NOT NULL,
        published_at INTEGER NOT NULL,
        body BLOB NOT NULL);
     CREATE TABLE queue_state(
        one INTEGER PRIMARY KEY CHECK (one = 1),
        next_seq INTEGER NOT NULL,
        messages INTEGER NOT NULL,
        put_backs INTEGER NOT NULL);
     INSERT INTO queue_state SELECT 1, coalesce(max(seq), 0) + 1, count(*), 0 FROM queue_messages;
     CREATE TABLE claims(
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        owner INTEGER NOT NULL,
        host TEXT NOT NULL,
        lease_ms INTEGER NOT NULL,
        beat INTEGER NOT NULL,
        out BLOB NOT NULL);",
    // 2: what was published lately under a dedup id, and which dead letters were put back.
    "CREATE TABLE dedup(id TEXT PRIMARY KEY, seq INTEGER NOT NULL, until INTEGER NOT NULL) WITHOUT ROWID;
     CREATE INDEX dedup_until ON dedup(until);
     CREATE TABLE put_backs(token TEXT PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID;
     CREATE INDEX put_backs_at ON put_backs(at);",
    // 3: what tells a message from every other one that has, had or will have its number: the file's own
    // id, and which put-back brought it there (0: it was published).
    "ALTER TABLE queue_messages ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
     ALTER TABLE queue_state ADD COLUMN file_id INTEGER NOT NULL DEFAULT 0;
     UPDATE queue_state SET file_id = random();",
];

/// When a commit counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it is on the disk: survives a power cut.
    #[default]
    Full,
    /// When the kernel has it: survives the process's death, not a power cut.
    Process,
}

/// Opens the file, creates it or brings it up to date.
///
/// # Errors
/// It can't be opened, is not a queue, or was written by a newer version.
pub(super) fn open(path: &Path, durability: Durability) -> io::Result<Connection> {
    let said = |error: rusqlite::Error| io::Error::other(format!("{}: {error}", path.display()));
    // Messages hold tokens: a new file is for its owner's eyes only. SQLite gives its log the same mode.
    let _ = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut conn = Connection::open(path).map_err(said)?;
    prepare(&conn, durability).map_err(said)?;
    upgrade(&mut conn, STEPS.len()).map_err(|error| match error {
        Refused::Sql(error) => said(error),
        Refused::Newer(version) => io::Error::other(format!(
            "{}: its format has version {version}, this program knows up to {}: use a newer corelane",
            path.display(),
            STEPS.len()
        )),
        Refused::Other => io::Error::other(format!(
            "{}: a SQLite file, but not a corelane queue: name another file",
            path.display()
        )),
    })?;
    Ok(conn)
}

/// A second connection that only copies the log into the file.
pub(super) fn open_for_checkpoints(path: &Path) -> rusqlite::Result<Connection> {
    let conn = Connection::open(path)?;
    conn.busy_timeout(BUSY_MAX)?;
    Ok(conn)
}

fn prepare(conn: &Connection, durability: Durability) -> rusqlite::Result<()> {
    conn.busy_timeout(BUSY_MAX)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    conn.pragma_update(None, "journal_mode", "WAL")?;
    let synchronous = match durability {
        Durability::Full => "FULL",
        Durability::Process => "NORMAL",
    };
    conn.pragma_update(None, "synchronous", synchronous)?;
    conn.pragma_update(None, "wal_autocheckpoint", 0)?;
    conn.pragma_update(None, "cache_size", -CACHE_KIB)?;
    conn.pragma_update(None, "temp_store", "MEMORY")
}

enum Refused {
    Newer(usize),
    Other,
    Sql(rusqlite::Error),
}

impl From<rusqlite::Error> for Refused {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

/// Takes the missing steps up to `wanted`, in one transaction.
fn upgrade(conn: &mut Connection, wanted: usize) -> Result<(), Refused> {
    let version = |conn: &Connection| {
        conn.query_row("PRAGMA user_version", [], |row| row.get::<_, u32>(0).map(|version| version as usize))
    };
    if version(conn)? == wanted && wanted == STEPS.len() {
        return check_id(conn);
    }
    let step = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // Read again: another process may have just done it.
    let found = version(&step)?;
    if found > STEPS.len() {
        return Err(Refused::Newer(found));
    }
    let tables: i64 = step.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if found > 0 {
        check_id(&step)?;
    } else if tables > 0 {
        return Err(Refused::Other);
    }
    for sql in &STEPS[found..wanted.max(found)] {
        step.execute_batch(sql)?;
    }
    step.pragma_update(None, "application_id", APPLICATION_ID)?;
    step.pragma_update(None, "user_version", u32::try_from(wanted.max(found)).unwrap_or(u32::MAX))?;
    step.commit()?;
    Ok(())
}

fn check_id(conn: &Connection) -> Result<(), Refused> {
    let id: i64 = conn.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if id == APPLICATION_ID { Ok(()) } else { Err(Refused::Other) }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TempFile(std::path::PathBuf);

    impl TempFile {
        fn new(name: &str) -> Self {
            let name = format!("corelane-schema-{name}-{}.db", std::process::id());
            Self(std::env::temp_dir().join(name))
        }
    }

    impl Drop for TempFile {
        fn drop(&mut self) {
            for end in ["", "-wal", "-shm"] {
                let mut name = self.0.clone().into_os_string();
                name.push(end);
                let _ = std::fs::remove_file(name);
            }
        }
    }

    #[test]
    fn a_file_of_an_older_version_is_brought_up_to_date_with_its_messages() {
        let file = TempFile::new("old");
        let mut old = Connection::open(&file.0).expect("a new file");
        assert!(upgrade(&mut old, 1).is_ok());
        old.execute_batch(
            "INSERT INTO queue_messages VALUES (7, 'g', 0, 2, 0, x'7b7d');
             UPDATE queue_state SET next_seq = 8, messages = 1;",
        )
        .expect("version 1 has these");
        assert!(old.prepare("SELECT * FROM dedup").is_err(), "version 1 has no such table");
        drop(old);
        let new = open(&file.0, Durability::Full).expect("it can be brought up to date");
        let kept: (i64, i64) = new
            .query_row("SELECT seq, receives FROM queue_messages", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .expect("the message is still there");
        assert_eq!(kept, (7, 2));
        new.prepare("SELECT * FROM dedup").expect("version 2 has it");
        let file_id = |conn: &Connection| {
            let sql = "SELECT file_id, generation FROM queue_state, queue_messages";
            conn.query_row(sql, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
                .expect("version 3 has both")
        };
        let before = file_id(&new);
        assert!(before.0 != 0 && before.1 == 0, "{before:?}");
        drop(new);
        let again = open(&file.0, Durability::Full).expect("and again, with nothing to do");
        assert_eq!(file_id(&again), before, "a file keeps its id");
    }

    #[test]
    fn a_newer_file_and_a_strangers_file_are_refused_by_name() {
        let file = TempFile::new("newer");
        drop(open(&file.0, Durability::Full).expect("a new file"));
        let conn = Connection::open(&file.0).expect("it is there");
        conn.pragma_update(None, "user_version", 99).expect("any number goes");
        drop(conn);
        let said = open(&file.0, Durability::Full).expect_err("newer").to_string();
        assert!(
            said.contains("99") && said.contains("newer corelane") && said.contains("schema-newer"),
            "{said}"
        );
        let stranger = TempFile::new("stranger");
        let conn = Connection::open(&stranger.0).expect("a new file");
        conn.execute_batch("CREATE TABLE contacts(name)").expect("a table");
        drop(conn);
        let said = open(&stranger.0, Durability::Full).expect_err("not a queue").to_string();
        assert!(said.contains("not a corelane queue"), "{said}");
    }
}
