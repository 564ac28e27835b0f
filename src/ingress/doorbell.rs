//! A [`Bell`] that a tokio task can wait for.

use std::io;
use std::sync::Arc;

use shards::link::Bell;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits for a bell on the runtime's own poll.
pub struct Doorbell(AsyncFd<Arc<Bell>>);

impl Doorbell {
    /// Watches `bell`. Inside a runtime only.
    ///
    /// # Errors
    /// The runtime can't watch it.
    pub fn new(bell: Arc<Bell>) -> io::Result<Self> {
        #[expect(unsafe_code, reason = "tokio asks for this promise; Bell keeps it")]
        // SAFETY: a Bell owns its eventfd, opens it once and closes it when dropped; the Arc inside the
        // AsyncFd keeps it alive, and `as_raw_fd` returns that one descriptor always.
        let watched = unsafe { AsyncFd::register_with_interest(bell, Interest::READABLE) };
        Ok(Self(watched?))
    }

    /// Waits until the bell is rung, or was since the last wait.
    pub async fn rung(&self) {
        if let Ok(mut guard) = self.0.readable().await {
            // Edge-triggered: the counter is never read, the next write is a new edge.
            guard.clear_ready();
        }
    }
}
