//! Notices that a queue's file was deleted or replaced while it is open. SQLite would go on writing to a file that
//! no one finds again.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Which file a name led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inode {
    device: u64,
    number: u64,
}

impl Inode {
    /// Where the name leads now.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let data = fs::metadata(path)?;
        Ok(Self { device: data.dev(), number: data.ino() })
    }

    /// Does the name still lead here?
    ///
    /// # Errors
    /// What happened to it, and what to do.
    pub(super) fn check(self, path: &Path) -> Result<(), String> {
        let happened = match Self::of(path) {
            Ok(now) if now == self => return Ok(()),
            Ok(_) => "replaced by another file".to_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => "deleted or moved".to_owned(),
            Err(error) => return Err(format!("can't be looked at: {error}")),
        };
        Err(format!(
            "was {happened} while it was open: put it back; else its consumer's next restart uses what is there then"
        ))
    }
}
