//! The ring itself: how it is set up, how entries get in, how one system call begins and awaits them.
//! Core: its shard's. Owns: the ring's descriptor and the entries that did not fit yet.
//!
//! - Q1: entries reach the kernel in the order they were pushed, so a cancel never overtakes what it
//!   cancels.

use std::collections::VecDeque;
use std::io;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, Submitter, cqueue, squeue};
use rustix::io::Errno;

use super::super::Patience;
use crate::clock::{Clock, Moment};

/// A turn rarely submits more; the rest goes in a second call.
const SUBMISSIONS: u32 = 1_024;
/// Room for the completions of two turns' sends and receives; beyond it the kernel keeps a list.
const COMPLETIONS: u32 = 8_192;

/// How much deferred work the kernel does at least in one call, if there is as much.
const WORK_BATCH: usize = 20;

/// A ring, used by the thread that made it.
pub(super) struct Ring {
    kernel: IoUring,
    /// Waits for room in the submission queue.
    backlog: VecDeque<squeue::Entry>,
    /// The last call may have left deferred work behind. The kernel's flag does not tell: it is
    /// cleared when a batch of work begins, not when all is done.
    maybe_more: bool,
}

impl Ring {
    /// A ring with as many of the cheap set-up flags as the kernel knows.
    pub(super) fn new() -> io::Result<Self> {
        let mut refused = None;
        for level in 0..4 {
            let mut builder = IoUring::builder();
            builder.setup_cqsize(COMPLETIONS).setup_submit_all().dontfork();
            if level < 3 {
                builder.setup_coop_taskrun().setup_taskrun_flag();
            }
            if level < 2 {
                builder.setup_single_issuer().setup_defer_taskrun(); // Since 6.0 and 6.1.
            }
            if level < 1 {
                builder.setup_no_sqarray(); // Since 6.6.
            }
            match builder.build(SUBMISSIONS) {
                Ok(ring) if ring.params().is_feature_ext_arg() && ring.params().is_feature_nodrop() => {
                    return Ok(Self { kernel: ring, backlog: VecDeque::new(), maybe_more: false });
                }
                Ok(_) => refused = Some(io::Error::from(io::ErrorKind::Unsupported)),
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(refused.expect("the loop ran at least once"))
    }

    pub(super) fn submitter(&self) -> Submitter<'_> {
        self.kernel.submitter()
    }

    /// Queues an entry for the next [`Ring::enter`].
    ///
    /// # Safety
    /// Descriptor and memory the entry names must stay valid until its last completion.
    #[expect(unsafe_code, reason = "the kernel will use what the entry points at")]
    pub(super) unsafe fn push(&mut self, entry: squeue::Entry) {
        if self.backlog.is_empty() {
            // SAFETY: the caller keeps what the entry names alive.
            if unsafe { self.kernel.submission().push(&entry) }.is_ok() {
                return;
            }
        }
        self.backlog.push_back(entry); // Q1: behind those that wait already.
    }

    /// The next completion, if one is there.
    pub(super) fn pop(&mut self) -> Option<cqueue::Entry> {
        self.kernel.completion().next()
    }

    /// Hands all entries to the kernel and waits for a completion as long as patience allows. One
    /// system call; none when there is nothing to submit, to run or to wait for.
    ///
    /// # Errors
    /// The call itself is forbidden: no later turn can succeed.
    pub(super) fn enter(&mut self, patience: Patience) -> io::Result<()> {
        self.move_backlog()?;
        let patience = if self.kernel.completion().is_empty() { patience } else { Patience::None };
        let result = match time_left(patience) {
            None if self.is_settled() => return Ok(()),
            None => self.call(0, EnterFlags::GETEVENTS, None),
            Some(Moment::NEVER) => self.call(1, EnterFlags::GETEVENTS, None),
            Some(left) => {
                let nanos = u32::try_from(left.nanos() % 1_000_000_000).expect("below 10⁹");
                let limit = Timespec::new().sec(left.nanos() / 1_000_000_000).nsec(nanos);
                let args = SubmitArgs::new().timespec(&limit);
                self.call(1, EnterFlags::GETEVENTS | EnterFlags::EXT_ARG, Some(&args))
            }
        };
        check(result)?;
        self.maybe_more = self.kernel.completion().len() >= WORK_BATCH;
        Ok(())
    }

    /// The kernel has nothing to do for us right now.
    fn is_settled(&mut self) -> bool {
        let queue = self.kernel.submission();
        queue.is_empty() && !queue.taskrun() && !queue.cq_overflow() && !self.maybe_more
    }

    /// The system call. It always asks for events: the kernel runs deferred work only then.
    fn call(&mut self, want: u32, flags: EnterFlags, args: Option<&SubmitArgs<'_, '_>>) -> io::Result<usize> {
        let queued = u32::try_from(self.kernel.submission().len()).expect("at most SUBMISSIONS");
        #[expect(unsafe_code, reason = "enters the kernel")]
        // SAFETY: `queued` entries are in the queue, and the argument is the one its flag announces.
        unsafe {
            self.kernel.submitter().enter(queued, want, flags.bits(), args)
        }
    }

    /// Fills the submission queue from the backlog, submitting whenever it is full.
    #[expect(unsafe_code, reason = "the kernel will use what the entry points at")]
    fn move_backlog(&mut self) -> io::Result<()> {
        while let Some(entry) = self.backlog.front() {
            // SAFETY: whoever called `push` keeps what the entry names alive.
            if unsafe { self.kernel.submission().push(entry) }.is_ok() {
                self.backlog.pop_front();
                continue;
            }
            check(self.kernel.submit())?;
            if self.kernel.submission().is_full() {
                break; // The kernel is out of memory for now: the next turn tries again.
            }
        }
        Ok(())
    }
}

/// None = do not wait. `Moment::NEVER` = without limit; else nanoseconds to wait.
fn time_left(patience: Patience) -> Option<Moment> {
    match patience {
        Patience::None => None,
        Patience::Until(Moment::NEVER) => Some(Moment::NEVER),
        Patience::Until(deadline) => {
            let left = deadline.nanos().saturating_sub(Clock.now().nanos());
            (left > 0).then(|| Moment::from_nanos(left))
        }
    }
}

/// Time ran out, a signal came, or the kernel wants completions taken first: the turn goes on.
fn check(result: io::Result<usize>) -> io::Result<()> {
    let Err(error) = result else { return Ok(()) };
    let passing = [Errno::TIME, Errno::INTR, Errno::BUSY, Errno::AGAIN, Errno::NOMEM];
    match Errno::from_io_error(&error) {
        Some(errno) if passing.contains(&errno) => Ok(()),
        _ => Err(error),
    }
}
