//! The provided-buffer ring: memory the kernel fills with received bytes, shared by all connections.
//!
//! - B1: the memory is never freed: a closing ring may finish its last receives late.
//! - B2: a buffer is ours from its completion until it is given back, the kernel's otherwise.

use std::alloc::{self, Layout};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::Context;
use io_uring::Submitter;
use io_uring::types::BufRingEntry;

/// Buffers, a power of two: more than the answers a turn can bring.
const COUNT: u16 = 4096;
/// Bytes of a buffer: an answer fits, head and body.
const BYTES: usize = 1024;
const PAGE: usize = 4096;

/// The ring of buffers and their memory.
#[derive(Debug)]
pub(crate) struct Buffers {
    entries: NonNull<BufRingEntry>,
    data: NonNull<u8>,
    tail: u16,
}

impl Buffers {
    /// The group the receives name.
    pub(crate) const GROUP: u16 = 0;

    /// Allocates the buffers, registers them and gives all of them to the kernel.
    pub(crate) fn register(submitter: &Submitter<'_>) -> anyhow::Result<Self> {
        let entries = Layout::array::<BufRingEntry>(usize::from(COUNT)).context("lay out the buffer ring")?;
        let entries = entries.align_to(PAGE).context("align the buffer ring")?;
        let data = Layout::array::<u8>(usize::from(COUNT) * BYTES).context("lay out the buffers")?;
        // SAFETY: both layouts have a size above zero.
        let (entries, data) = unsafe { (alloc::alloc_zeroed(entries), alloc::alloc_zeroed(data)) };
        #[expect(clippy::cast_ptr_alignment, reason = "the layout is page-aligned")]
        let entries = NonNull::new(entries.cast::<BufRingEntry>()).context("allocate the buffer ring")?;
        let data = NonNull::new(data).context("allocate the buffers")?;
        let mut buffers = Self { entries, data, tail: 0 };
        // SAFETY: the entries are page-aligned, COUNT long, and live for ever (B1).
        unsafe { submitter.register_buf_ring_with_flags(entries.as_ptr() as u64, COUNT, Self::GROUP, 0) }
            .context("register the buffer ring")?;
        for id in 0..COUNT {
            buffers.give_back(id);
        }
        buffers.publish();
        Ok(buffers)
    }

    /// The received bytes of a completion: `count` of them in buffer `id`.
    pub(crate) fn bytes(&self, id: u16, count: usize) -> &[u8] {
        assert!(id < COUNT && count <= BYTES, "the kernel names only what it was given");
        // SAFETY: in bounds by the assert; initialised, since the allocation was zeroed; ours until it is given
        // back (B2), which needs `&mut self` and so ends this borrow.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr().add(usize::from(id) * BYTES), count) }
    }

    /// Gives a buffer back; the kernel sees it with the next `publish`.
    pub(crate) fn give_back(&mut self, id: u16) {
        let slot = usize::from(self.tail & (COUNT - 1));
        // SAFETY: slot < COUNT, and the kernel reads no entry at or beyond the published tail. The fields are
        // set one by one, for the first entry's spare bytes hold the tail.
        unsafe {
            let entry = &mut *self.entries.as_ptr().add(slot);
            entry.set_addr(self.data.as_ptr().add(usize::from(id) * BYTES) as u64);
            entry.set_len(u32::try_from(BYTES).expect("a constant"));
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the kernel all buffers given back so far.
    pub(crate) fn publish(&mut self) {
        // SAFETY: the tail lies in the first entry, is aligned and only ever written here.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries.as_ptr()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}
