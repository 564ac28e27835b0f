//! Files of a test: unique names, removed at the end.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A file and all that is named after it.
pub(crate) struct TempFile {
    pub(crate) path: PathBuf,
}

impl TempFile {
    pub(crate) fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("corelane-it-{name}-{}-{count}.db", std::process::id());
        Self { path: std::env::temp_dir().join(name) }
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let (Some(folder), Some(name)) = (self.path.parent(), self.path.file_name()) else { return };
        let start = name.to_string_lossy().into_owned();
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with(&start) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}
