//! A file that says "a router ran here and did not end cleanly". Where a broker does not lock groups, the
//! next start waits for the leases of the one before.

use std::io;
use std::path::{Path, PathBuf};

/// The marker's name in the data directory.
const NAME: &str = "corelane-running";

/// The marker of this process.
#[derive(Debug)]
pub(super) struct Marker {
    path: PathBuf,
    unclean: bool,
}

impl Marker {
    /// Leaves the marker, and notes whether there was one.
    ///
    /// # Errors
    /// The directory can't be written.
    pub(super) fn place(dir: &Path) -> io::Result<Self> {
        let path = dir.join(NAME);
        let unclean = path.exists();
        std::fs::write(&path, b"removed when corelane ends cleanly\n")?;
        Ok(Self { path, unclean })
    }

    /// The router before this one did not end cleanly.
    pub(super) const fn was_unclean(&self) -> bool {
        self.unclean
    }

    /// This one did.
    pub(super) fn remove(self) {
        // If it stays, the next start only waits longer.
        let _ = std::fs::remove_file(self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_that_was_left_behind_means_an_unclean_end() {
        let dir = std::env::temp_dir().join(format!("corelane-marker-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let first = Marker::place(&dir).expect("writable");
        assert!(!first.was_unclean());
        let second = Marker::place(&dir).expect("writable");
        assert!(second.was_unclean(), "the first did not end");
        second.remove();
        assert!(!Marker::place(&dir).expect("writable").was_unclean());
        std::fs::remove_dir_all(&dir).expect("its own directory");
    }
}
