//! Cuts a stream of bytes into frames: a length of four bytes, then so many bytes.

use bytes::{Buf, Bytes, BytesMut};

use super::basic::WireError;

/// Largest frame that is taken: what a broker allows in its default config. One that is set up for more would be asked
/// for less, but a message that is there has to be read to be got rid of.
pub(in super::super) const FRAME_BYTES_MAX: usize = 100 << 20;
const PREFIX: usize = 4;

/// The next whole frame, without its length; `None` = more bytes are needed.
pub(in super::super) fn next(from: &mut BytesMut) -> Result<Option<Bytes>, WireError> {
    let Some(prefix) = from.get(..PREFIX).and_then(|bytes| <[u8; PREFIX]>::try_from(bytes).ok()) else {
        return Ok(None);
    };
    let length = i32::from_be_bytes(prefix);
    let count = usize::try_from(length).map_err(|_| WireError::Length(i64::from(length)))?;
    if count > FRAME_BYTES_MAX {
        return Err(WireError::TooLong(count));
    }
    if from.len() < PREFIX + count {
        // Not at once all of what is announced: that may never come.
        return Ok(None);
    }
    from.advance(PREFIX);
    // A copy: a part of the read buffer would keep all of it alive for as long as the message is held.
    let frame = Bytes::copy_from_slice(&from[..count]);
    from.advance(count);
    Ok(Some(frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_cut_wherever_the_bytes_are() {
        let all = b"\0\0\0\x03abc\0\0\0\0\0\0\0\x01z";
        for cut in 0..=all.len() {
            let (mut buffer, mut seen) = (BytesMut::new(), Vec::new());
            for part in [&all[..cut], &all[cut..]] {
                buffer.extend_from_slice(part);
                while let Some(frame) = next(&mut buffer).expect("well-formed") {
                    seen.push(frame);
                }
            }
            assert_eq!(seen, [&b"abc"[..], b"", b"z"], "{cut}");
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused_before_it_comes() {
        for (prefix, want) in [(i32::MAX, WireError::TooLong(0x7FFF_FFFF)), (-1, WireError::Length(-1))] {
            let mut buffer = BytesMut::from(&prefix.to_be_bytes()[..]);
            assert_eq!(next(&mut buffer), Err(want));
        }
    }
}
