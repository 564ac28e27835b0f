//! Who lives: every keeper holds an OS lock on a file of its own beside the queue. The kernel frees it when the
//! process dies, however it dies, so that its claims can be taken over at once instead of after a lease.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};

/// A keeper that lives. Its lock ends with this value.
pub(super) struct Owner {
    pub(super) id: i64,
    /// Names this host since it booted: a lock says nothing about a process on another one.
    pub(super) host: String,
    path: PathBuf,
    _lock: File,
}

impl Owner {
    /// A new owner beside the queue's file.
    pub(super) fn new(queue: &Path) -> io::Result<Self> {
        let id = RandomState::new().build_hasher().finish().cast_signed();
        let path = lock_path(queue, id);
        // Locked before it has its name, so that no one ever finds the file of a living owner without a lock.
        let mut unnamed = path.clone().into_os_string();
        unnamed.push("-new");
        let lock = File::create_new(&unnamed)?;
        lock.try_lock().map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
        fs::rename(&unnamed, &path)?;
        Ok(Self { id, host: host(), path, _lock: lock })
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Is this owner's process dead? Only said of owners on `here`'s host since it booted; where nothing is known
/// its lease decides.
pub(super) fn is_dead(queue: &Path, owner: i64, host: &str, here: &str) -> bool {
    if host != here || here.is_empty() {
        return false;
    }
    match File::open(lock_path(queue, owner)) {
        Ok(lock) => match lock.try_lock() {
            Ok(()) => true,
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
        },
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Removes what a dead owner left beside the queue. After its claims are taken over.
pub(super) fn bury(queue: &Path, owner: i64) {
    let _ = fs::remove_file(lock_path(queue, owner));
}

/// Removes the lock files of owners that died without claims.
pub(super) fn bury_all(queue: &Path, here: &str) {
    let (Some(folder), Some(name)) = (queue.parent(), queue.file_name()) else { return };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let start = format!("{}-owner-", name.to_string_lossy());
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix(&start));
        let Some(id) = id.and_then(|id| u64::from_str_radix(id, 16).ok()) else { continue };
        if is_dead(queue, id.cast_signed(), here, here) {
            bury(queue, id.cast_signed());
        }
    }
}

fn lock_path(queue: &Path, owner: i64) -> PathBuf {
    let mut name: OsString = queue.as_os_str().to_owned();
    name.push(format!("-owner-{:016x}", owner.cast_unsigned()));
    PathBuf::from(name)
}

fn host() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    boot.trim().to_owned()
}
