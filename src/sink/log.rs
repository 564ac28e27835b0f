//! The answer log: who was answered what, in order. Tests judge order and duplicates from it.
//!
//! - L1: a line is in the file before its answer leaves, so no client knows of an answer the log lacks.
//! - L2: lines of several threads do not mix: each flush is one append.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// What the log wants to know of a request besides its answer.
#[derive(Debug, Default)]
pub(super) struct Labels {
    pub(super) idempotency_key: String,
    pub(super) attempt: String,
}

/// One thread's handle on the log file.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    lines: Vec<u8>,
}

impl Log {
    /// Opens the file for appending.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file, lines: Vec::new() })
    }

    /// Notes an answer; it reaches the file with the next flush.
    pub(super) fn note(&mut self, labels: &Labels, status: u16, body_bytes: usize) {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let Labels { idempotency_key, attempt } = labels;
        writeln!(self.lines, "{time}\t{idempotency_key}\t{attempt}\t{status}\t{body_bytes}")
            .expect("a Vec takes whatever is written");
    }

    /// Appends the noted lines.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if !self.lines.is_empty() {
            self.file.write_all(&self.lines)?;
            self.lines.clear();
        }
        Ok(())
    }
}
