//! Reads one HTTP/1.1 answer, however its bytes are cut. No I/O, no clock.
//! Core: its shard's. Owns: what of an answer arrived before its end.
//!
//! - H1: how the bytes were split never changes what is read.
//! - H2: what is kept is bounded: a head, its trailers and a body, whatever is sent.
//! - H3: an answer whose end is open to interpretation is [`Progress::Broken`], never guessed.

mod chunked;
mod head;

use self::chunked::{Chunked, Fed};
use self::head::{Framing, Head, Parsed, RetryAfter};

/// Interim answers taken before the final one; servers send one or two.
const INTERIM_MAX: u8 = 8;

/// Bounds of what is kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Head, and again trailers and chunk extensions.
    pub head_bytes: usize,
    /// Body; the rest is not read.
    pub body_bytes: usize,
}

/// A whole answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// Final status.
    pub status: u16,
    /// `Retry-After`, as sent.
    pub retry_after: Option<&'a [u8]>,
    /// The body, cut at [`Limits::body_bytes`].
    pub body: &'a [u8],
    /// The connection can carry another request.
    pub keep: bool,
    /// It ended because the peer closed, so that a truncated one would look the same.
    pub ended_by_close: bool,
}

/// How far an answer has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// Not at its end.
    More,
    /// At its end. The reader must be [`Reader::clear`]ed before the next one.
    Complete(Answer<'a>),
    /// It is not HTTP, breaks a limit, or ended too early.
    Broken,
}

/// Where in an answer the reader is.
#[derive(Debug, Default)]
enum State {
    #[default]
    Head,
    Length(u64),
    Chunked(Chunked),
    UntilClose,
}

/// Reads one answer at a time. Empty and without heap memory until something has to be kept.
#[derive(Debug, Default)]
pub struct Reader {
    state: State,
    /// Head or trailers so far.
    lines: Vec<u8>,
    body: Vec<u8>,
    status: u16,
    keep: bool,
    interim: u8,
    touched: bool,
    retry_after: RetryAfter,
}

impl Reader {
    /// Forgets the answer, keeps the memory.
    pub fn clear(&mut self) {
        self.lines.clear();
        self.body.clear();
        self.state = State::Head;
        self.interim = 0;
        self.touched = false;
        self.retry_after = RetryAfter::default();
    }

    /// Bytes of heap memory held.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.lines.capacity() + self.body.capacity()
    }

    /// At least one byte of the answer has arrived.
    #[must_use]
    pub const fn is_touched(&self) -> bool {
        self.touched
    }

    /// Takes the next bytes. A small answer in one slice is returned as parts of that slice.
    pub fn read<'a>(&'a mut self, bytes: &'a [u8], limits: Limits) -> Progress<'a> {
        self.touched |= !bytes.is_empty();
        let mut rest = bytes;
        while matches!(self.state, State::Head) {
            let head = match self.read_head(rest, limits) {
                Parsed::More => return Progress::More,
                Parsed::Broken => return Progress::Broken,
                Parsed::Head(head) => head,
            };
            rest = &rest[head.used..];
            if let Framing::Interim = head.framing {
                self.interim += 1;
                if self.interim > INTERIM_MAX {
                    return Progress::Broken;
                }
                self.lines.clear();
                continue;
            }
            self.begin_body(&head);
            if let Framing::Length(length) = head.framing
                && length <= rest.len() as u64
                && length <= limits.body_bytes as u64
            {
                // The whole body is at hand: no copy.
                let (body, after) = rest.split_at(usize::try_from(length).unwrap_or(rest.len()));
                return Progress::Complete(self.answer(Some(body), self.keep && after.is_empty(), false));
            }
        }
        self.read_body(rest, limits)
    }

    /// The peer sends no more.
    pub fn on_eof(&mut self) -> Progress<'_> {
        match self.state {
            State::UntilClose => Progress::Complete(self.answer(None, false, true)),
            _ => Progress::Broken,
        }
    }

    fn read_head(&mut self, bytes: &[u8], limits: Limits) -> Parsed {
        if self.lines.is_empty() {
            let parsed = head::parse(bytes, limits.head_bytes);
            if matches!(parsed, Parsed::More) {
                self.lines.extend_from_slice(bytes);
            }
            return parsed;
        }
        let before = self.lines.len();
        let room = limits.head_bytes + 1 - before;
        self.lines.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if !head::may_end(&self.lines, before) {
            return if self.lines.len() > limits.head_bytes { Parsed::Broken } else { Parsed::More };
        }
        match head::parse(&self.lines, limits.head_bytes) {
            // What came before was no whole head, so this one ends in the new bytes.
            Parsed::Head(head) => Parsed::Head(Head { used: head.used - before, ..head }),
            other => other,
        }
    }

    fn begin_body(&mut self, head: &Head) {
        self.status = head.status;
        self.keep = head.keep;
        self.retry_after = head.retry_after;
        self.lines.clear();
        self.state = match head.framing {
            Framing::Interim => State::Head,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Chunked(Chunked::default()),
            Framing::UntilClose => State::UntilClose,
        };
    }

    fn read_body(&mut self, bytes: &[u8], limits: Limits) -> Progress<'_> {
        match &mut self.state {
            State::Head => Progress::More,
            State::Length(left) => {
                let take = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= take as u64;
                let ended = *left == 0;
                let kept = keep_bytes(&mut self.body, &bytes[..take], limits.body_bytes);
                let keep = self.keep && kept && take == bytes.len();
                if ended || !kept {
                    Progress::Complete(self.answer(None, keep, false))
                } else {
                    Progress::More
                }
            }
            State::Chunked(chunked) => match chunked.feed(bytes, &mut self.lines, &mut self.body, limits) {
                Fed::More => Progress::More,
                Fed::Broken => Progress::Broken,
                Fed::Full => Progress::Complete(self.answer(None, false, false)),
                Fed::End { used } => {
                    let keep = self.keep && used == bytes.len();
                    Progress::Complete(self.answer(None, keep, false))
                }
            },
            State::UntilClose => {
                if keep_bytes(&mut self.body, bytes, limits.body_bytes) {
                    Progress::More
                } else {
                    Progress::Complete(self.answer(None, false, false))
                }
            }
        }
    }

    fn answer<'a>(&'a self, body: Option<&'a [u8]>, keep: bool, ended_by_close: bool) -> Answer<'a> {
        Answer {
            status: self.status,
            retry_after: self.retry_after.get(),
            body: body.unwrap_or(&self.body),
            keep,
            ended_by_close,
        }
    }
}

/// Appends what fits; false if something did not.
fn keep_bytes(body: &mut Vec<u8>, bytes: &[u8], body_bytes_max: usize) -> bool {
    let room = body_bytes_max - body.len();
    body.extend_from_slice(&bytes[..bytes.len().min(room)]);
    bytes.len() <= room
}

#[cfg(test)]
mod tests;
