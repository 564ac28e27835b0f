//! An answer's head: status line and header lines, and where the body ends. Pure.
//! Core: any. Owns: nothing.

use std::mem::MaybeUninit;

use httparse::{Header, ParserConfig, Response, Status};

/// Header lines taken, as many as hyper takes.
pub(super) const HEADERS_MAX: usize = 100;
/// Every answer we can read begins so.
const PREFIX: &[u8] = b"HTTP/1.";

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// It is an interim answer: none, and another head follows.
    Interim,
    /// After this many bytes.
    Length(u64),
    /// After the last chunk.
    Chunked,
    /// Where the connection does.
    UntilClose,
}

/// `Retry-After`, copied: it is wanted after the head is gone. The longest date has 33 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryAfter {
    bytes: [u8; 40],
    len: u8,
}

impl Default for RetryAfter {
    fn default() -> Self {
        Self { bytes: [0; 40], len: 0 }
    }
}

impl RetryAfter {
    pub(super) fn get(&self) -> Option<&[u8]> {
        (self.len > 0).then(|| &self.bytes[..usize::from(self.len)])
    }

    /// A longer value is none that we understand.
    fn set(&mut self, value: &[u8]) {
        if let (Some(place), Ok(len)) = (self.bytes.get_mut(..value.len()), u8::try_from(value.len())) {
            place.copy_from_slice(value);
            self.len = len;
        }
    }
}

/// What a head says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) framing: Framing,
    pub(super) keep: bool,
    pub(super) retry_after: RetryAfter,
    /// Bytes it took.
    pub(super) used: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Parsed {
    More,
    Broken,
    Head(Head),
}

/// Whether a head may end among `lines[from..]`, so that it is worth parsing again.
pub(super) fn may_end(lines: &[u8], from: usize) -> bool {
    // An empty line, whose first line break may be older.
    let tail = &lines[from.saturating_sub(3)..];
    tail.windows(2).any(|pair| pair == b"\n\n") || tail.windows(3).any(|three| three == b"\n\r\n")
}

/// Reads a head of at most `bytes_max` from the start of `bytes`.
pub(super) fn parse(bytes: &[u8], bytes_max: usize) -> Parsed {
    if !bytes.iter().zip(PREFIX).all(|(byte, want)| byte == want) {
        return Parsed::Broken;
    }
    let mut headers = [const { MaybeUninit::<Header<'_>>::uninit() }; HEADERS_MAX];
    let mut response = Response::new(&mut []);
    let window = &bytes[..bytes.len().min(bytes_max)];
    let parsed =
        ParserConfig::default().parse_response_with_uninit_headers(&mut response, window, &mut headers);
    match parsed {
        Ok(Status::Complete(used)) => read(&response, used).map_or(Parsed::Broken, Parsed::Head),
        Ok(Status::Partial) if bytes.len() <= bytes_max => Parsed::More,
        _ => Parsed::Broken,
    }
}

/// The lines that matter, collected.
#[derive(Default)]
struct Lines {
    length: Option<u64>,
    encodings: u32,
    chunked: bool,
    close: bool,
    retry_after: RetryAfter,
}

fn read(response: &Response<'_, '_>, used: usize) -> Option<Head> {
    let status = response.code?;
    let mut lines = Lines::default();
    for header in response.headers.iter() {
        // Most names are none of ours; their length says so.
        match header.name.len() {
            14 if header.name.eq_ignore_ascii_case("content-length") => {
                read_length(&mut lines, header.value)?;
            }
            17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                lines.encodings += 1;
                lines.chunked = header.value.trim_ascii().eq_ignore_ascii_case(b"chunked");
            }
            10 if header.name.eq_ignore_ascii_case("connection") => {
                let mut tokens = header.value.split(|byte| *byte == b',');
                lines.close |= tokens.any(|token| token.trim_ascii().eq_ignore_ascii_case(b"close"));
            }
            11 if header.name.eq_ignore_ascii_case("retry-after") => {
                lines.retry_after.set(header.value.trim_ascii());
            }
            _ => {}
        }
    }
    let new = response.version? == 1;
    let framing = framing(status, &lines, new)?;
    let keep = new && !lines.close && framing != Framing::UntilClose;
    Some(Head { status, framing, keep, retry_after: lines.retry_after, used })
}

/// Where the body ends; `None` if two readers could disagree about it.
fn framing(status: u16, lines: &Lines, new: bool) -> Option<Framing> {
    match status {
        // We never ask to switch protocols.
        101 => return None,
        100..=199 => return Some(Framing::Interim),
        204 | 304 => return Some(Framing::Length(0)),
        0..=99 => return None,
        _ => {}
    }
    match (lines.encodings, lines.length) {
        (0, Some(length)) => Some(Framing::Length(length)),
        (0, None) => Some(Framing::UntilClose),
        (1, None) if lines.chunked && new => Some(Framing::Chunked),
        // With a length as well, twice, or in an encoding that we did not offer to read.
        _ => None,
    }
}

/// Every value, also in a list, must be the same plain number.
fn read_length(lines: &mut Lines, value: &[u8]) -> Option<()> {
    for text in value.split(|byte| *byte == b',') {
        let text = text.trim_ascii();
        if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let length = std::str::from_utf8(text).ok()?.parse().ok()?;
        if lines.length.replace(length).is_some_and(|before| before != length) {
            return None;
        }
    }
    Some(())
}
