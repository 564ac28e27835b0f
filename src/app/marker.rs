//! A file per running router that says "I did not end cleanly yet". Its owner keeps it locked, and the kernel
//! frees the lock when the owner dies, so that routers may share a directory. Where a broker does not lock
//! groups, a start after an unclean end waits for the leases of the one before.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// How markers are named, before a word that no other has: containers often share a process id.
const PREFIX: &str = "corelane-running-";
/// While it is not locked yet, a marker has another name, so that no one takes it for a left one.
const FRESH: &str = "corelane-fresh-";

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
        let word = random_word()?;
        let (fresh, path) = (dir.join(format!("{FRESH}{word}")), dir.join(format!("{PREFIX}{word}")));
        let mut left = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_left(&entry.path())? {
                left.push(entry.path());
            }
        }
        let file = File::create_new(&fresh)?;
        file.lock()?;
        std::fs::rename(&fresh, &path)?;
        // Ours says so from now on, should this process die too. Another start may have been quicker.
        for path in &left {
            let _ = std::fs::remove_file(path);
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

fn random_word() -> io::Result<String> {
    let mut bytes = [0_u8; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(format!("{:016x}", u64::from_le_bytes(bytes)))
}

/// Nobody holds its lock: its owner is gone.
fn is_left(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        // Its owner ended just now.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    match file.try_lock() {
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
