//! The doorbell of a thread that sleeps in its wire: a flag that says "I sleep" and an eventfd that
//! wakes it. Ringing costs a system call only when someone sleeps.
//!
//! - B1: no lost wake: if a push is followed by a ring, the receiver either sees the push before it
//!   sleeps or is woken. (Pusher: push, fence, read flag. Sleeper: set flag, fence, look again.)

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use crossbeam_utils::CachePadded;
use rustix::event::{EventfdFlags, eventfd};
use thiserror::Error;

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

/// A bell could not be made. The operator raises the limit on open files.
#[derive(Debug, Error)]
#[error("create an eventfd (raise the limit on open files: ulimit -n)")]
pub struct BellError(#[source] rustix::io::Errno);

/// The "I sleep" flag, apart from the descriptor so that a model checker can run it.
#[derive(Debug)]
pub struct Flag {
    asleep: AtomicBool,
}

impl Default for Flag {
    fn default() -> Self {
        Self { asleep: AtomicBool::new(false) }
    }
}

impl Flag {
    /// Sleeper: announces sleep, then looks again. True = go to sleep; false = there is work.
    pub fn try_sleep(&self, has_work: impl FnOnce() -> bool) -> bool {
        self.set(true);
        fence(Ordering::SeqCst);
        if has_work() {
            self.set(false);
            return false;
        }
        true
    }

    /// Sleeper: awake again, for whatever reason.
    pub fn wake(&self) {
        self.set(false);
    }

    /// Pusher, after its push: true = the sleeper must be woken, and the caller is the one to do it.
    pub fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed)
    }

    #[cfg(not(loom))]
    fn set(&self, asleep: bool) {
        self.asleep.store(asleep, Ordering::Relaxed);
    }

    /// loom (0.7) lets a plain store slip between the two halves of another thread's swap, which no machine
    /// does, and then reports a lost wake. A swap whose result is dropped is the same store to it without that.
    #[cfg(loom)]
    fn set(&self, asleep: bool) {
        let _ = self.asleep.swap(asleep, Ordering::Relaxed);
    }
}

/// A flag and the descriptor that a wire waits on. The counter is never read back: waiters use
/// edge-triggered readiness, which every write renews.
#[derive(Debug)]
pub struct Bell {
    flag: CachePadded<Flag>,
    descriptor: OwnedFd,
}

impl Bell {
    /// A bell no one sleeps on yet.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> Result<Self, BellError> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC).map_err(BellError)?;
        Ok(Self { flag: CachePadded::new(Flag::default()), descriptor })
    }

    /// The flag, for the thread that sleeps on this bell.
    #[must_use]
    pub fn flag(&self) -> &Flag {
        &self.flag
    }

    /// Wakes the sleeper if it sleeps. Call after the push.
    #[inline]
    pub fn ring_if_asleep(&self) {
        if self.flag.must_wake() {
            self.ring();
        }
    }

    /// Wakes the sleeper's wire whatever the flag says.
    pub fn ring(&self) {
        // The counter would have to reach 2⁶⁴ − 1 for this to fail.
        let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
    }

    /// Sleeps in a plain read: for threads without a wire.
    pub fn wait_blocking(&self) {
        let mut counter = [0_u8; 8];
        let _ = rustix::io::read(&self.descriptor, &mut counter);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsRawFd for Bell {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}
