//! A file per running router that says "I did not end cleanly yet". Its owner keeps it locked, and the kernel
//! frees the lock when the owner dies, so that routers may share a directory. Where a broker does not lock
//! groups, a start after an unclean end waits for the leases of the one before.
//!
//! A marker has a word that no other has. A start that finds one left takes it over, and with it the name that the one before
//! had at its brokers: where those refuse two of one name, none gets in before the lost one is gone.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// How markers are named, before their word. Not a process id: containers often share one.
const PREFIX: &str = "corelane-running-";
/// While it is not locked yet, a marker has another name, so that no one takes it for a left one.
const FRESH: &str = "corelane-fresh-";

/// The marker of this process.
#[derive(Debug)]
pub(super) struct Marker {
    path: PathBuf,
    word: String,
    unclean: bool,
    /// Locked while it is open.
    _file: File,
}

impl Marker {
    /// Leaves a marker, or takes over one that a router that is gone has left.
    ///
    /// # Errors
    /// The directory can't be read or written.
    pub(super) fn place(dir: &Path) -> io::Result<Self> {
        let mut left = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            if let Some(word) = word_of(&path)
                && let Some(file) = take_over(&path)?
            {
                left.push(Self { path, word, unclean: true, _file: file });
            }
        }
        let Some(marker) = left.pop() else { return Self::new(dir) };
        // That one says so from now on, should this process die too.
        left.into_iter().for_each(Self::remove);
        Ok(marker)
    }

    fn new(dir: &Path) -> io::Result<Self> {
        let word = random_word()?;
        let (fresh, path) = (dir.join(format!("{FRESH}{word}")), dir.join(format!("{PREFIX}{word}")));
        let file = File::create_new(&fresh)?;
        file.lock()?;
        std::fs::rename(&fresh, &path)?;
        Ok(Self { path, word, unclean: false, _file: file })
    }

    /// A router before this one did not end cleanly.
    pub(super) const fn was_unclean(&self) -> bool {
        self.unclean
    }

    /// What this router, and one that takes its place after an unclean end, is called at its brokers.
    pub(super) fn word(&self) -> &str {
        &self.word
    }

    /// This one did.
    pub(super) fn remove(self) {
        // If it stays, the next start only waits longer.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn word_of(path: &Path) -> Option<String> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX).map(str::to_owned)
}

fn random_word() -> io::Result<String> {
    let mut bytes = [0_u8; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(format!("{:016x}", u64::from_le_bytes(bytes)))
}

/// Locks a marker whose owner is gone; `None` if it is not.
fn take_over(path: &Path) -> io::Result<Option<File>> {
    let file = match File::open(path) {
        // Its owner ended just now.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    match file.try_lock() {
        // Another may have taken it over, and ended, since it was opened.
        Ok(()) => Ok(path.exists().then_some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
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
        assert!(first.was_unclean() && first.word() == "1", "number 1 is gone");
        assert!(dir.join("corelane-running-2").exists(), "number 2 is left alone");
        first.remove();
        let second = Marker::place(&dir).expect("writable");
        assert!(!second.was_unclean(), "a live router is no unclean end");
        let third = Marker::place(&dir).expect("writable");
        assert!(!third.was_unclean() && third.word() != second.word(), "nor is that one");
        let words = [second.word().to_owned(), third.word().to_owned()];
        drop((second, third));
        let next = Marker::place(&dir).expect("writable");
        assert!(next.was_unclean() && words.iter().any(|word| word == next.word()), "dropped without an end");
        next.remove();
        assert!(!Marker::place(&dir).expect("writable").was_unclean(), "one stands for all that were left");
        std::fs::remove_dir_all(&dir).expect("its own directory");
    }
}
