//! What stands in a queue's file, read from outside: which messages wait, for how long yet, and how often each was tried.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::Connection;
use serde_json::Value;

/// A message in the file.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) id: String,
    /// Milliseconds until it is handed out again; 0 or less: it may be now, or is.
    pub(crate) delay_ms: i64,
    /// Deliveries that were tried.
    pub(crate) receives: u16,
}

/// All messages in the file, in order.
pub(crate) fn waiting(file: &Path) -> Vec<Waiting> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let now = i64::try_from(now.as_millis()).expect("not so far");
    let file = Connection::open(file).expect("the queue's file");
    let mut select = file
        .prepare("SELECT body, visible_at, receives FROM queue_messages ORDER BY seq")
        .expect("its table");
    let row = |row: &rusqlite::Row<'_>| {
        let body: Vec<u8> = row.get(0)?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let id = body["id"].as_str().unwrap_or_default().to_owned();
        Ok(Waiting { id, delay_ms: row.get::<_, i64>(1)? - now, receives: row.get(2)? })
    };
    select.query_map([], row).expect("rows").collect::<Result<_, _>>().expect("whole rows")
}
