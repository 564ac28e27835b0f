//! A chunked body: sizes, extensions (skipped), data, trailers (checked and dropped).
//! Core: its shard's. Owns: the place within a chunk.

use super::head::HEADERS_MAX;
use super::{Limits, keep_bytes};

/// A size has at most this many digits: enough for 64 bits.
const SIZE_DIGITS_MAX: u8 = 16;

#[derive(Debug, Default)]
enum Place {
    #[default]
    Size,
    /// Spaces after the size.
    SizeSpace,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Trailers,
}

/// Where in a chunked body we are.
#[derive(Debug, Default)]
pub(super) struct Chunked {
    place: Place,
    size: u64,
    digits: u8,
    /// Bytes of extensions and spaces so far: they carry nothing and must end.
    idle_bytes: usize,
}

/// What became of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fed {
    More,
    /// The body's end, after `used` of them.
    End {
        used: usize,
    },
    /// The body is longer than we keep.
    Full,
    Broken,
}

impl Chunked {
    /// Takes the next bytes; data goes to `body`, trailers to `lines`.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        lines: &mut Vec<u8>,
        body: &mut Vec<u8>,
        limits: Limits,
    ) -> Fed {
        let mut at = 0;
        while at < bytes.len() {
            match self.place {
                Place::Data => {
                    let take = usize::try_from(self.size).unwrap_or(usize::MAX).min(bytes.len() - at);
                    if !keep_bytes(body, &bytes[at..at + take], limits.body_bytes) {
                        return Fed::Full;
                    }
                    at += take;
                    self.size -= take as u64;
                    if self.size == 0 {
                        self.place = Place::DataCr;
                    }
                }
                Place::Trailers => return trailers(&bytes[at..], at, lines, limits),
                _ => {
                    if self.step(bytes[at], limits).is_none() {
                        return Fed::Broken;
                    }
                    at += 1;
                }
            }
        }
        Fed::More
    }

    /// One byte outside data and trailers; `None` if it may not stand there.
    fn step(&mut self, byte: u8, limits: Limits) -> Option<()> {
        self.place = match (&self.place, byte) {
            (Place::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.digits += 1;
                if self.digits > SIZE_DIGITS_MAX {
                    return None;
                }
                self.size = self.size << 4 | u64::from(hex(byte));
                Place::Size
            }
            (Place::Size | Place::SizeSpace, b'\t' | b' ') if self.digits > 0 => {
                self.idle(Place::SizeSpace, limits)?
            }
            (Place::Size | Place::SizeSpace, b';') if self.digits > 0 => {
                self.idle(Place::Extension, limits)?
            }
            (Place::Size | Place::SizeSpace | Place::Extension, b'\r') if self.digits > 0 => Place::SizeLf,
            // A bare line feed inside an extension is where readers disagree.
            (Place::Extension, b'\n') => return None,
            (Place::Extension, _) => self.idle(Place::Extension, limits)?,
            (Place::SizeLf, b'\n') => {
                self.digits = 0;
                if self.size == 0 { Place::Trailers } else { Place::Data }
            }
            (Place::DataCr, b'\r') => Place::DataLf,
            (Place::DataLf, b'\n') => Place::Size,
            _ => return None,
        };
        Some(())
    }

    fn idle(&mut self, place: Place, limits: Limits) -> Option<Place> {
        self.idle_bytes += 1;
        (self.idle_bytes <= limits.head_bytes).then_some(place)
    }
}

/// Collects trailers until their empty line, then checks that they are header lines.
fn trailers(bytes: &[u8], at: usize, lines: &mut Vec<u8>, limits: Limits) -> Fed {
    for (offset, byte) in bytes.iter().enumerate() {
        // Where trailers end must not depend on whether a reader takes a bare line feed for a line's end.
        let bare = *byte == b'\n' && lines.last() != Some(&b'\r');
        if bare || lines.len() >= limits.head_bytes {
            return Fed::Broken;
        }
        lines.push(*byte);
        if lines == b"\r\n" || lines.ends_with(b"\r\n\r\n") {
            let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
            return match httparse::parse_headers(lines, &mut headers) {
                Ok(httparse::Status::Complete((used, _))) if used == lines.len() => {
                    Fed::End { used: at + offset + 1 }
                }
                _ => Fed::Broken,
            };
        }
    }
    Fed::More
}

fn hex(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        _ => (byte | 0x20) - b'a' + 10,
    }
}
