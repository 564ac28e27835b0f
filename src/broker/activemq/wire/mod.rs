//! OpenWire, the protocol of ActiveMQ's JMS clients, as far as a consumer needs it: loosely encoded frames of versions 9
//! to 12. Pure: bytes in, bytes out.

mod basic;
mod body;
mod command;
mod frame;
mod ids;
mod info;
mod map;
mod message;
mod scribe;
#[cfg(test)]
mod tests;
mod text;

pub(super) use basic::{Span, WireError};
pub(super) use command::{Command, Refusal, dispatched_to};
pub(super) use frame::{FRAME_BYTES_MAX, next as next_frame};
pub(super) use info::{VERSION_MAX, VERSION_MIN, WireFormat};
pub(super) use map::{Map, Value, find_text};
pub(super) use message::Message;
pub(super) use scribe::{Place, Scribe, Told};

use basic::Writer;
use scribe::{PRODUCER, SESSION};

/// Puts a frame's length in its place, the first four bytes.
fn close_frame(out: Writer) -> Vec<u8> {
    let mut frame = out.out;
    let count = i32::try_from(frame.len() - 4).expect("no frame is that long");
    frame[..4].copy_from_slice(&count.to_be_bytes());
    frame
}
