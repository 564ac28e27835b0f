//! One HTTP/1.1 connection as a byte machine: bytes in, whole requests out, answers queued. No I/O.
//!
//! - C1: one request at a time: what a client pipelines waits in `inbox`, so answers keep their order.
//! - C2: `inbox` and `outbox` are bounded.

use std::sync::Arc;

use super::answer::Play;
use super::book::Bookmark;
use super::log::Labels;
use super::script::BODY_BYTES_MAX;

/// Headers a request may have.
const HEADERS_MAX: usize = 64;
/// Bytes a connection keeps unparsed: the longest head, and what a client may pipeline behind a slow answer.
const INBOX_BYTES_MAX: usize = 64 << 10;
/// Unsent bytes beyond which a connection reads no further request.
const OUTBOX_BYTES_MAX: usize = 256 << 10;

/// A request whose head was read.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) play: Arc<Play>,
    pub(super) body_bytes: usize,
    /// Only when there is a log.
    pub(super) labels: Option<Box<Labels>>,
    /// The client wants no further answer on this connection.
    pub(super) close: bool,
}

/// What came of some bytes.
#[derive(Debug)]
pub(super) enum Step {
    /// No whole request yet; all bytes were used or kept.
    NeedMore,
    /// A whole request.
    Request(Request),
    /// Not acceptable: answer with this status, then close.
    Refuse(u16),
}

/// The connection's state.
#[derive(Debug, Default)]
pub(super) struct Conn {
    /// Bytes not looked at yet.
    inbox: Vec<u8>,
    /// A request whose body is still arriving, and how much of it is missing.
    arriving: Option<(Request, usize)>,
    /// The request that waits for its answer.
    pub(super) pending: Option<Request>,
    /// Bytes of the pending answer already sent, for `/drip`.
    pub(super) dripped: usize,
    /// Bytes to send; the first `sent` of them are gone.
    pub(super) outbox: Vec<u8>,
    pub(super) sent: usize,
    /// Answers in the outbox.
    pub(super) answers_unsent: u64,
    /// Close once the outbox is empty.
    pub(super) closing: bool,
    /// The client will send nothing more.
    pub(super) peer_done: bool,
}

impl Conn {
    /// May the next request be taken?
    fn is_ready(&self) -> bool {
        self.pending.is_none() && !self.closing && self.outbox.len() <= OUTBOX_BYTES_MAX
    }

    /// Are there bytes to look at, and is it their turn?
    pub(super) fn has_work(&self) -> bool {
        self.is_ready() && !self.inbox.is_empty()
    }

    /// Takes new bytes, or none to go on with those kept, and hands each whole request to `start`, until that
    /// leaves one pending. False when the client must be dropped, for it sent more than the inbox holds.
    pub(super) fn take(
        &mut self,
        new: &[u8],
        marks: &mut Bookmark,
        wants_labels: bool,
        mut start: impl FnMut(&mut Self, Step),
    ) -> bool {
        let mut kept = std::mem::take(&mut self.inbox);
        let is_fresh = kept.is_empty();
        if !is_fresh {
            kept.extend_from_slice(new);
        }
        let bytes = if is_fresh { new } else { &kept };
        let mut at = 0;
        while self.is_ready() && at < bytes.len() {
            match self.next(&bytes[at..], marks, wants_labels) {
                (0, Step::NeedMore) => break,
                (used, Step::NeedMore) => at += used,
                (used, step) => {
                    at += used;
                    start(self, step);
                }
            }
        }
        if is_fresh {
            kept.extend_from_slice(&new[at..]);
        } else {
            kept.drain(..at);
        }
        self.inbox = kept;
        self.inbox.len() <= INBOX_BYTES_MAX
    }

    /// Reads on; returns how many bytes it used. None used and `NeedMore`: the head is not whole.
    fn next(&mut self, bytes: &[u8], marks: &mut Bookmark, wants_labels: bool) -> (usize, Step) {
        if let Some((request, missing)) = self.arriving.take() {
            let used = missing.min(bytes.len());
            if used == missing {
                return (used, Step::Request(request));
            }
            self.arriving = Some((request, missing - used));
            return (used, Step::NeedMore);
        }
        let (head_bytes, request) = match read_head(bytes, marks, wants_labels) {
            Ok(Some(read)) => read,
            Ok(None) if bytes.len() > INBOX_BYTES_MAX => return (bytes.len(), Step::Refuse(431)),
            Ok(None) => return (0, Step::NeedMore),
            Err(status) => return (bytes.len(), Step::Refuse(status)),
        };
        let body_here = request.body_bytes.min(bytes.len() - head_bytes);
        let missing = request.body_bytes - body_here;
        if missing == 0 {
            return (head_bytes + body_here, Step::Request(request));
        }
        self.arriving = Some((request, missing));
        (head_bytes + body_here, Step::NeedMore)
    }
}

/// Reads a request head: its length and the request, `None` if it is not whole, or the status to refuse with.
fn read_head(
    bytes: &[u8],
    marks: &mut Bookmark,
    wants_labels: bool,
) -> Result<Option<(usize, Request)>, u16> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    let head_bytes = match head.parse(bytes) {
        Ok(httparse::Status::Complete(head_bytes)) => head_bytes,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(431),
        Err(_) => return Err(400),
    };
    let mut body_bytes = 0;
    let mut close = head.version == Some(0);
    let mut labels = wants_labels.then(Box::<Labels>::default);
    for header in head.headers.iter() {
        // Lengths first: most headers are told apart without comparing a byte.
        match header.name.len() {
            14 if header.name.eq_ignore_ascii_case("content-length") => {
                body_bytes = text(header.value).trim().parse().map_err(|_| 400_u16)?;
                if body_bytes > BODY_BYTES_MAX {
                    return Err(413);
                }
            }
            10 if header.name.eq_ignore_ascii_case("connection") => {
                close = header.value.eq_ignore_ascii_case(b"close");
            }
            17 if header.name.eq_ignore_ascii_case("transfer-encoding") => return Err(411),
            15 if header.name.eq_ignore_ascii_case("idempotency-key") => {
                if let Some(labels) = &mut labels {
                    text(header.value).clone_into(&mut labels.idempotency_key);
                }
            }
            16 if header.name.eq_ignore_ascii_case("corelane-attempt") => {
                if let Some(labels) = &mut labels {
                    text(header.value).clone_into(&mut labels.attempt);
                }
            }
            _ => {}
        }
    }
    let play = marks.play(head.path.unwrap_or("/"));
    Ok(Some((head_bytes, Request { play, body_bytes, labels, close })))
}

/// A header value as text; one that is none counts as empty.
fn text(value: &[u8]) -> &str {
    std::str::from_utf8(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::book::Book;
    use super::*;

    const POST: &str = "POST /ok HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello";

    /// Feeds pieces; returns the body lengths of the requests, or the refusal.
    fn feed(pieces: &[&[u8]]) -> Vec<Result<usize, u16>> {
        let mut conn = Conn::default();
        let mut marks = Bookmark::new(Arc::new(Book::new(Duration::ZERO)));
        let mut seen = Vec::new();
        for piece in pieces {
            conn.take(piece, &mut marks, false, |conn, step| match step {
                Step::Request(request) => seen.push(Ok(request.body_bytes)),
                Step::Refuse(status) => {
                    conn.closing = true;
                    seen.push(Err(status));
                }
                Step::NeedMore => {}
            });
        }
        seen
    }

    #[test]
    fn a_request_is_read_wherever_it_is_cut() {
        let two = [POST, POST].concat();
        for cut in 0..two.len() {
            let (first, second) = two.as_bytes().split_at(cut);
            assert_eq!(feed(&[first, second]), [Ok(5), Ok(5)], "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = two.as_bytes().chunks(1).collect();
        assert_eq!(feed(&bytes), [Ok(5), Ok(5)]);
    }

    #[test]
    fn a_wrong_request_is_refused_once() {
        let long = format!("GET /ok HTTP/1.1\r\nx: {}", "y".repeat(INBOX_BYTES_MAX));
        let rows = [
            ("nonsense\r\n\r\n", 400),
            ("POST /ok HTTP/1.1\r\ncontent-length: x\r\n\r\n", 400),
            ("POST /ok HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n", 413),
            ("POST /ok HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", 411),
            (&long, 431),
        ];
        for (request, status) in rows {
            assert_eq!(feed(&[request.as_bytes(), POST.as_bytes()]), [Err(status)], "{request:.60}");
        }
    }

    #[test]
    fn a_pipelined_request_waits_for_the_answer_before_it() {
        let mut conn = Conn::default();
        let mut marks = Bookmark::new(Arc::new(Book::new(Duration::ZERO)));
        let mut keep = |conn: &mut Conn, step: Step| {
            if let Step::Request(request) = step {
                conn.pending = Some(request);
            }
        };
        assert!(conn.take([POST, POST].concat().as_bytes(), &mut marks, false, &mut keep));
        assert!(conn.pending.is_some() && !conn.has_work());
        conn.pending = None;
        assert!(conn.has_work());
        assert!(conn.take(&[], &mut marks, false, &mut keep));
        assert!(conn.pending.is_some() && conn.inbox.is_empty());
    }

    #[test]
    fn a_client_that_pipelines_without_end_is_dropped() {
        let mut conn = Conn::default();
        let mut marks = Bookmark::new(Arc::new(Book::new(Duration::ZERO)));
        let flood = POST.repeat(INBOX_BYTES_MAX / POST.len() + 2);
        assert!(!conn.take(flood.as_bytes(), &mut marks, false, |conn, step| {
            if let Step::Request(request) = step {
                conn.pending = Some(request);
            }
        }));
    }
}
