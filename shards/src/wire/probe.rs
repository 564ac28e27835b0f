//! Chooses the wire: what the operator asked for, if this host can run it.
//! Core: any, once, before the shards start. Owns: nothing.

use std::fmt;
use std::fs;
use std::io;
use std::str::FromStr;

use rustix::process::{Resource, getrlimit};
use thiserror::Error;

use super::UringWire;

/// The first kernel with multishot receive.
const KERNEL_MIN: (u32, u32) = (6, 0);
/// What glommio locks for its rings; it panics with less.
const GLOMMIO_MEMLOCK_MIN: u64 = 512 * 1_024;

/// How a shard moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// `Uring` where the kernel allows it, else `Epoll`.
    Auto,
    /// Our own loop on io_uring.
    Uring,
    /// A glommio executor.
    Glommio,
    /// epoll, by mio.
    Epoll,
}

/// A word that names no [`Io`]. The operator corrects it.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("unknown I/O {0:?}: use auto, uring, glommio or epoll")]
pub struct UnknownIo(String);

impl FromStr for Io {
    type Err = UnknownIo;

    fn from_str(word: &str) -> Result<Self, UnknownIo> {
        let all = [Self::Auto, Self::Uring, Self::Glommio, Self::Epoll];
        all.into_iter().find(|io| io.name() == word).ok_or_else(|| UnknownIo(word.to_owned()))
    }
}

impl fmt::Display for Io {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

impl Io {
    const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Uring => "uring",
            Self::Glommio => "glommio",
            Self::Epoll => "epoll",
        }
    }
}

/// What will run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Never [`Io::Auto`].
    pub io: Io,
    /// What it fell back to and why, in one line for the operator.
    pub note: Option<String>,
}

/// Why a wire cannot run on this host. The operator mends it; the text says how.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// The kernel lacks what we need.
    #[error("kernel {found} is older than {}.{}, the first with all io_uring parts we use: --io epoll", KERNEL_MIN.0, KERNEL_MIN.1)]
    KernelTooOld {
        /// The running kernel.
        found: String,
    },
    /// The administrator switched io_uring off.
    #[error(
        "io_uring is switched off (sysctl kernel.io_uring_disabled = {value}): --io epoll, or set it to 0"
    )]
    Disabled {
        /// The switch: 1 for processes without privileges, 2 for all.
        value: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Something between us and the kernel refuses, most often a container's seccomp profile.
    #[error(
        "io_uring is blocked ({source}): --io epoll, or allow io_uring_setup in the container's seccomp profile"
    )]
    Blocked {
        /// What the kernel said.
        source: io::Error,
    },
    /// The ring was refused for another reason, such as a lack of memory or descriptors.
    #[error("io_uring does not work here ({source}): --io epoll, or mend the cause")]
    Broken {
        /// What the kernel said.
        source: io::Error,
    },
    /// Too little memory may be locked.
    #[error(
        "glommio needs to lock 512 KiB of memory, the limit is {found_bytes} bytes: ulimit -l 512, or LimitMEMLOCK=512K in the systemd unit"
    )]
    Memlock {
        /// The soft limit found.
        found_bytes: u64,
    },
}

/// Decides what runs for what was asked. Tries it out, so that a later start cannot be refused.
///
/// # Errors
/// The wire asked for by name cannot run here. [`Io::Auto`] never fails: epoll is always there.
pub fn choose(io: Io) -> Result<Chosen, ProbeError> {
    match io {
        Io::Epoll => Ok(Chosen { io, note: None }),
        Io::Uring => check_uring().map(|()| Chosen { io, note: None }),
        Io::Glommio => {
            check_memlock()?;
            check_uring().map(|()| Chosen { io, note: None })
        }
        Io::Auto => Ok(match check_uring() {
            Ok(()) => Chosen { io: Io::Uring, note: None },
            Err(why) => Chosen { io: Io::Epoll, note: Some(format!("fell back to epoll: {why}")) },
        }),
    }
}

fn check_uring() -> Result<(), ProbeError> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    if kernel_version(&release).is_some_and(|version| version < KERNEL_MIN) {
        return Err(ProbeError::KernelTooOld { found: release });
    }
    UringWire::try_out().map_err(|source| match source.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported => match disabled_switch() {
            Some(value) => ProbeError::Disabled { value, source },
            None => ProbeError::Blocked { source },
        },
        _ => ProbeError::Broken { source },
    })
}

fn check_memlock() -> Result<(), ProbeError> {
    match getrlimit(Resource::Memlock).current {
        Some(found_bytes) if found_bytes < GLOMMIO_MEMLOCK_MIN => Err(ProbeError::Memlock { found_bytes }),
        _ => Ok(()),
    }
}

/// The sysctl that switches io_uring off, if it is on. It exists since Linux 6.6.
fn disabled_switch() -> Option<String> {
    let value = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?;
    let value = value.trim();
    (value != "0").then(|| value.to_owned())
}

/// `6.18.44-fc` → (6, 18).
fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_release_is_read_whatever_follows_the_numbers() {
        let rows = [
            ("6.18.44-fc-v445", Some((6, 18))),
            ("5.15.0-1051-aws", Some((5, 15))),
            ("6.0", Some((6, 0))),
            ("6.1-rc3", Some((6, 1))),
            ("unknown", None),
        ];
        for (release, want) in rows {
            assert_eq!(kernel_version(release), want, "{release}");
        }
    }

    #[test]
    fn a_name_is_read_back_as_it_is_written() {
        for io in [Io::Auto, Io::Uring, Io::Glommio, Io::Epoll] {
            assert_eq!(io.to_string().parse(), Ok(io));
        }
        assert_eq!("Uring".parse::<Io>(), Err(UnknownIo("Uring".to_owned())));
    }
}
