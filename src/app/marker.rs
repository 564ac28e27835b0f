//! A file per running router that says "I did not end cleanly yet". Its owner keeps it locked, and the kernel
//! frees the lock when the owner dies, so that routers may share a directory. Where a broker does not lock
//! groups, a start after an unclean end waits for the leases of the one before.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// How markers are named, before the process id.
const PREFIX: &str = "corelane-running-";

/// The marker of this process.
#[derive(Debug)]
pub(super) struct Marker {
    path: PathBuf,
    unclean: bool,
    /// Locked while it is open.
    _file: File,
}

impl Marker {
    /// Leaves a marker, and notes whether a router that is gone has left one.
    ///
    /// # Errors
    /// The directory can't be read or written.
    pub(super) fn place(dir: &Path) -> io::Result<Self> {
        let path = dir.join(format!("{PREFIX}{}", std::process::id()));
        let mut left = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_left(&entry.path())? {
                left.push(entry.path());
            }
        }
        let file = File::create(&path)?;
        file.lock()?;
        // Ours says so from now on, should this process die too.
        for path in left.iter().filter(|other| **other != path) {
            std::fs::remove_file(path)?;
        }
        Ok(Self { path, unclean: !left.is_empty(), _file: file })
    }

    /// A router before this one did not end cleanly.
    pub(super) const fn was_unclean(&self) -> bool {
        self.unclean
    }

    /// This one did.
    pub(super) fn remove(self) {
        // If it stays, the next start only waits longer.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Nobody holds its lock: its owner is gone.
fn is_left(path: &Path) -> io::Result<bool> {
    match File::open(path)?.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_whose_owner_is_gone_means_an_unclean_end() {
        let dir = std::env::temp_dir().join(format!("corelane-marker-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        std::fs::write(dir.join("corelane-running-1"), b"").expect("a marker without an owner");
        let alive = File::create(dir.join("corelane-running-2")).expect("another's marker");
        alive.lock().expect("its owner lives");
        let first = Marker::place(&dir).expect("writable");
        assert!(first.was_unclean(), "number 1 is gone");
        assert!(dir.join("corelane-running-2").exists(), "number 2 is left alone");
        first.remove();
        let second = Marker::place(&dir).expect("writable");
        assert!(!second.was_unclean(), "a live router is no unclean end");
        drop(second);
        assert!(Marker::place(&dir).expect("writable").was_unclean(), "dropped without an end");
        std::fs::remove_dir_all(&dir).expect("its own directory");
    }
}
