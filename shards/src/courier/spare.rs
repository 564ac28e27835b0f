//! Memory that one call is done with and the next can use, so that an idle connection holds none.
//! Core: its shard's. Owns: free buffers and readers, bounded.

use super::h1::Reader;

/// Free buffers kept: as many as calls may start in one turn of the loop.
const BUFFERS_MAX: usize = 1_024;
/// Free readers kept; only answers that come in pieces need one for longer than a moment.
const READERS_MAX: usize = 64;
/// A buffer that grew beyond this is given back: one large message must not cost memory for ever.
const BUFFER_BYTES_MAX: usize = 16 << 10;

/// Free memory of one courier.
#[expect(
    clippy::vec_box,
    reason = "a connection holds its reader by one word; moving the box saves an allocation"
)]
#[derive(Debug, Default)]
pub(super) struct Spare {
    buffers: Vec<Vec<u8>>,
    readers: Vec<Box<Reader>>,
}

impl Spare {
    /// An empty buffer.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        self.buffers.pop().unwrap_or_default()
    }

    pub(super) fn give_buffer(&mut self, mut buffer: Vec<u8>) {
        let useful = (1..=BUFFER_BYTES_MAX).contains(&buffer.capacity());
        if useful && self.buffers.len() < BUFFERS_MAX {
            buffer.clear();
            self.buffers.push(buffer);
        }
    }

    /// A cleared reader.
    #[expect(clippy::unnecessary_box_returns, reason = "the box is what is saved")]
    pub(super) fn reader(&mut self) -> Box<Reader> {
        self.readers.pop().unwrap_or_default()
    }

    pub(super) fn give_reader(&mut self, mut reader: Box<Reader>) {
        if reader.capacity() <= BUFFER_BYTES_MAX && self.readers.len() < READERS_MAX {
            reader.clear();
            self.readers.push(reader);
        }
    }
}
