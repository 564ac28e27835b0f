//! The provided-buffer ring: memory the kernel receives into, chosen only when bytes are there.
//! Core: its shard's. Owns: the ring of entries and the buffers, in one allocation.
//!
//! - P1: a buffer is the kernel's from [`Buffers::publish`] until a completion names it, then ours
//!   until it is given back. Only a buffer that is ours is read or listed.
//! - P2: the memory is freed only after the kernel has no receive left that could write into it.

#![expect(unsafe_code, reason = "memory shared with the kernel")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;

/// The one buffer group of a ring.
pub(super) const GROUP: u16 = 0;
/// An answer's head and a short body fit; larger ones come in pieces.
pub(super) const BUFFER_BYTES: usize = 2_048;
/// Listed from the start: 1 MiB stays in a core's cache, and most turns bring fewer answers.
const LISTED_FIRST: u16 = 512;
/// The kernel allows 32,768; 8,192 hold a short answer of each of 6,000 connections at once.
const COUNT_MAX: usize = 8_192;
/// The kernel wants the entries on a page of their own; no Linux page is larger than this.
const ALIGN: usize = 65_536;

/// Buffers of one ring. Memory is touched only as far as buffers were ever listed.
pub(super) struct Buffers {
    memory: NonNull<u8>,
    /// The start of `memory`: the entries, `count` of them.
    entries: NonNull<BufRingEntry>,
    layout: Layout,
    data_offset: usize,
    /// A power of two.
    count: u16,
    /// Buffers below this were listed at least once; the others are still in reserve.
    listed: u16,
    tail: u16,
}

impl Buffers {
    /// Memory for about one buffer per connection, registered with the ring.
    pub(super) fn register(submitter: &Submitter<'_>, connections: usize) -> io::Result<Self> {
        let count = connections.next_power_of_two().clamp(usize::from(LISTED_FIRST), COUNT_MAX);
        let data_offset = (count * size_of::<BufRingEntry>()).next_multiple_of(4_096);
        let layout = Layout::from_size_align(data_offset + count * BUFFER_BYTES, ALIGN)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: the layout is not empty.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) });
        let memory = memory.unwrap_or_else(|| handle_alloc_error(layout));
        let count = u16::try_from(count).expect("COUNT_MAX fits");
        let entries = memory.cast::<BufRingEntry>();
        let mut buffers = Self { memory, entries, layout, data_offset, count, listed: 0, tail: 0 };
        // SAFETY: `count` entries lie at the page-aligned start of the allocation, which lives until
        // the ring's last receive ended (P2).
        unsafe { submitter.register_buf_ring_with_flags(entries.addr().get() as u64, count, GROUP, 0)? };
        buffers.list_more(LISTED_FIRST);
        buffers.publish();
        Ok(buffers)
    }

    /// The first `bytes` of a buffer that a completion named.
    pub(super) fn get(&self, buffer: u16, bytes: usize) -> &[u8] {
        assert!(buffer < self.count && bytes <= BUFFER_BYTES, "P1: the kernel names our buffers");
        // SAFETY: inside the allocation by the assert; initialised, as it began as zeroes; the kernel
        // does not write to it before it is given back (P1), which needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.address(buffer), bytes) }
    }

    /// Lists a buffer again; the kernel sees it at the next [`Buffers::publish`].
    pub(super) fn give_back(&mut self, buffer: u16) {
        debug_assert!(buffer < self.listed, "P1: only listed buffers come back");
        let index = usize::from(self.tail & (self.count - 1));
        let address = self.address(buffer).addr() as u64;
        // SAFETY: `index` is below `count`, so the entry is ours to write: the kernel reads only up to
        // the published tail, and at most `count` buffers exist, so this entry was consumed.
        let entry = unsafe { self.entries.add(index).as_mut() };
        entry.set_addr(address);
        entry.set_len(u32::try_from(BUFFER_BYTES).expect("2 KiB fits"));
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
    }

    /// The kernel ran dry: doubles what is listed, as long as there is a reserve.
    pub(super) fn grow(&mut self) {
        self.list_more(self.listed);
    }

    fn list_more(&mut self, more: u16) {
        let until = self.listed.saturating_add(more).min(self.count);
        for buffer in self.listed..until {
            self.listed = buffer + 1;
            self.give_back(buffer);
        }
    }

    /// Shows the kernel every buffer given back so far.
    pub(super) fn publish(&mut self) {
        // SAFETY: the tail lies in the first entry of the ring, aligned, and lives as long as `self`;
        // the kernel only reads it.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries.as_ptr()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    fn address(&self, buffer: u16) -> *mut u8 {
        // SAFETY: callers pass a buffer below `count`, so this stays inside the allocation.
        unsafe { self.memory.as_ptr().add(self.data_offset + usize::from(buffer) * BUFFER_BYTES) }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `register`; the ring's owner drops this only when no
        // receive is left (P2).
        unsafe { dealloc(self.memory.as_ptr(), self.layout) };
    }
}
