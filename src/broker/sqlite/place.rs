//! Where an embedded queue is kept: a file that the user named, or one in the machine's memory.
//!
//! `memory:NAME` is the same queue on a file system that has no disk. Killing the router loses nothing of it, and a
//! sender in another process finds it; the machine's end loses all of it.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::topology::QueueUri;

use super::schema::Durability;

/// Where Linux keeps shared memory as files.
const MEMORY: &str = "/dev/shm";

/// A queue's file, and when a commit to it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// When a commit counts.
    pub durability: Durability,
}

impl Place {
    /// The place of an embedded queue; `None` where a broker keeps it.
    ///
    /// # Errors
    /// This machine has no place in memory that is ours alone.
    pub fn of(uri: &QueueUri) -> io::Result<Option<Self>> {
        match uri {
            QueueUri::Sqlite(path) => Ok(Some(Self { path: path.clone(), durability: Durability::Full })),
            QueueUri::Memory(name) => {
                let path = own_folder(Path::new(MEMORY))?.join(format!("{name}.db"));
                Ok(Some(Self { path, durability: Durability::Process }))
            }
            _ => Ok(None),
        }
    }
}

/// This user's folder there. Everyone may write to its parent, so one that another user could have made, or could
/// look into, is refused: messages hold tokens.
fn own_folder(parent: &Path) -> io::Result<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let folder = parent.join(format!("corelane-{uid}"));
    let said = |problem: &str| {
        io::Error::other(format!("{}: {problem}: write sqlite:FILE instead of memory:", folder.display()))
    };
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(said(&error.to_string())),
        _ => {}
    }
    let data = fs::symlink_metadata(&folder).map_err(|error| said(&error.to_string()))?;
    if !data.is_dir() || data.uid() != uid || data.mode() & 0o077 != 0 {
        return Err(said("is not a folder that this user alone can use"));
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_durable_and_memory_is_not() {
        let place = |uri: &str| Place::of(&QueueUri::parse(uri).expect(uri)).expect("a place");
        let file = place("sqlite:a/b.db").expect("embedded");
        assert_eq!((file.path, file.durability), (PathBuf::from("a/b.db"), Durability::Full));
        let memory = place("memory:orders").expect("embedded");
        assert!(memory.path.starts_with(MEMORY) && memory.path.ends_with("orders.db"), "{memory:?}");
        assert_eq!(memory.durability, Durability::Process);
        assert_eq!(place("nats://h/s"), None);
    }

    #[test]
    fn a_folder_that_others_can_use_is_refused() {
        let parent = std::env::temp_dir().join(format!("corelane-place-{}", std::process::id()));
        fs::create_dir_all(&parent).expect("made");
        let folder = own_folder(&parent).expect("made anew");
        assert_eq!(own_folder(&parent).expect("there already"), folder);
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("opened up");
        let said = own_folder(&parent).expect_err("open to others").to_string();
        assert!(said.contains("this user alone") && said.contains("sqlite:FILE"), "{said}");
        fs::remove_dir(&folder).expect("removed");
        std::os::unix::fs::symlink(std::env::temp_dir(), &folder).expect("a link");
        assert!(own_folder(&parent).is_err(), "a link leads anywhere");
        fs::remove_dir_all(&parent).expect("cleaned up");
    }
}
