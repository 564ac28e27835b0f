//! The body of a message, as the bytes that its sender meant.

use std::borrow::Cow;

use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;
use thiserror::Error;

use super::basic::Reader;
use super::ids::kind;
use super::message::Message;
use super::text;
use crate::message::MESSAGE_BYTES_MAX;

/// A compressed body is not unpacked any further: what is longer would be refused anyway. A sender packs its whole buffer,
/// which may be twice as long as what is in it.
const UNPACKED_MAX: usize = 2 * MESSAGE_BYTES_MAX + 65_536;
/// A length stands before the content of a text, and before a compressed one of bytes.
const PREFIX: usize = 4;

/// Why there is no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(in super::super) enum BodyError {
    /// JMS knows more kinds of messages than a router can read.
    #[error("it is a JMS {0} message: send a text or a bytes message")]
    Kind(&'static str),
    /// A text message whose text is null.
    #[error("it is a JMS message without a body")]
    Empty,
    /// What was packed can't be unpacked, or is too long.
    #[error("its compressed body is broken, or longer than {MESSAGE_BYTES_MAX} bytes")]
    Packed,
    /// Not as the broker's own clients write it.
    #[error("its text is broken")]
    Text,
}

impl<'a> Message<'a> {
    /// The body.
    pub(in super::super) fn body(&self) -> Result<Cow<'a, [u8]>, BodyError> {
        let name = match self.kind {
            kind::TEXT_MESSAGE => return self.text_body(),
            kind::BYTES_MESSAGE => return self.bytes_body(),
            kind::MESSAGE => return Err(BodyError::Empty),
            kind::MAP_MESSAGE => "map",
            kind::OBJECT_MESSAGE => "object",
            kind::STREAM_MESSAGE => "stream",
            _ => "blob",
        };
        Err(BodyError::Kind(name))
    }

    fn text_body(&self) -> Result<Cow<'a, [u8]>, BodyError> {
        let content = self.content.ok_or(BodyError::Empty)?;
        if !self.compressed {
            let bytes = prefixed(content).ok_or(BodyError::Text)?;
            // Where Java's UTF-8 and everyone's are the same, nothing is copied.
            if bytes.is_ascii() && !bytes.contains(&0) {
                return Ok(Cow::Borrowed(bytes));
            }
            return unjava(bytes);
        }
        let unpacked = unpack(content)?;
        unjava(prefixed(&unpacked).ok_or(BodyError::Text)?)
    }

    fn bytes_body(&self) -> Result<Cow<'a, [u8]>, BodyError> {
        let content = self.content.unwrap_or_default();
        if !self.compressed {
            return Ok(Cow::Borrowed(content));
        }
        let (prefix, packed) = content.split_first_chunk::<PREFIX>().ok_or(BodyError::Packed)?;
        let count = usize::try_from(i32::from_be_bytes(*prefix)).map_err(|_| BodyError::Packed)?;
        let mut unpacked = unpack(packed)?;
        if unpacked.len() < count {
            return Err(BodyError::Packed);
        }
        unpacked.truncate(count);
        Ok(Cow::Owned(unpacked))
    }
}

fn prefixed(content: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader::new(content);
    let count = reader.length().ok()?;
    reader.take(count).ok()
}

fn unjava<'a>(bytes: &[u8]) -> Result<Cow<'a, [u8]>, BodyError> {
    text::read(bytes).map(|text| Cow::Owned(text.into_bytes())).map_err(|_| BodyError::Text)
}

fn unpack(packed: &[u8]) -> Result<Vec<u8>, BodyError> {
    decompress_to_vec_zlib_with_limit(packed, UNPACKED_MAX).map_err(|_| BodyError::Packed)
}
