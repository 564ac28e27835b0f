//! Signals: those that end the process count at any time, SIGHUP waits until the loop is free for it.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::control::End;

/// What the loop listens to.
pub(super) struct Signals {
    pub(super) end: EndSignals,
    pub(super) hang_up: Signal,
}

/// The process is to end.
pub(super) struct EndSignals {
    term: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { end: EndSignals::new()?, hang_up: signal(SignalKind::hangup())? })
    }
}

impl EndSignals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for one; its name.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// Does some work, unless the process is to end meanwhile. What was begun is then left: the end clears it up.
    ///
    /// # Errors
    /// It is.
    pub(super) async fn or<T>(&mut self, work: impl Future<Output = T>) -> Result<T, End> {
        tokio::select! {
            done = work => Ok(done),
            name = self.next() => Err(End::Signal(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[tokio::test]
    async fn a_hang_up_during_other_work_is_heard_after_it() {
        let mut signals = Signals::new().expect("signals can be watched");
        let work = async {
            kill_process(getpid(), Signal::HUP).expect("our own process");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert_eq!(signals.end.or(work).await, Ok(()));
        let heard = tokio::time::timeout(Duration::from_secs(20), signals.hang_up.recv()).await;
        assert_eq!(heard.expect("it was kept"), Some(()));
    }
}
