//! A script, ready to play: its answers are laid out in bytes once, so that a request costs a copy. Pure.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::script::{Script, Shape};

/// Length of the pieces a chunked body is cut into: small, so that even the default body has several.
const CHUNK_BYTES: usize = 5;
/// What `/garbage` sends: no status line, no end of head.
const GARBAGE: &[u8] = b"\x16\x03\x01\x00\xa5 this is not HTTP \x00\xff\r\n\r\n\r\n";

/// What becomes of the connection after the answer's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// The next request may come.
    Keep,
    /// An orderly close.
    Close,
    /// A TCP reset, and no bytes before it.
    Reset,
    /// No bytes, no close: the client waits.
    Silence,
    /// The bytes leave one at a time, then the next request may come.
    Drip,
}

/// One answer, laid out for HTTP/1.1.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) bytes: Bytes,
    pub(super) after: After,
}

/// A script with its answers and its call count. Shared by all threads.
#[derive(Debug)]
pub(super) struct Play {
    pub(super) script: Script,
    usual: Answer,
    failing: Answer,
    calls: AtomicU64,
}

impl Play {
    /// Lays out the answers of a script.
    pub(super) fn new(script: Script) -> Self {
        let usual = lay_out(&script, script.status);
        let failing = lay_out(&script, script.failing_status);
        Self { script, usual, failing, calls: AtomicU64::new(0) }
    }

    /// How long a request waits for its answer.
    pub(super) fn delay(&self) -> Duration {
        self.script.delay
    }

    /// Counts a call and chooses its answer.
    pub(super) fn answer(&self) -> &Answer {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if self.script.failing.hits(call) { &self.failing } else { &self.usual }
    }

    /// The answer of calls that do not fail.
    pub(super) fn usual(&self) -> &Answer {
        &self.usual
    }

    /// Bytes kept in memory for this script.
    pub(super) fn kept_bytes(&self) -> usize {
        self.script.body.len() + self.usual.bytes.len() + self.failing.bytes.len()
    }
}

/// A plain answer that is not scripted: refusals and counters.
pub(super) fn plain(status: u16, body: &str, after: After) -> Answer {
    let mut text = status_line(status);
    if after == After::Close {
        text.push_str("connection: close\r\n");
    }
    push(&mut text, format_args!("content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len()));
    text.push_str(body);
    Answer { status, bytes: text.into(), after }
}

fn lay_out(script: &Script, status: u16) -> Answer {
    let after = match script.shape {
        Shape::Plain | Shape::Chunked | Shape::ChunkedAndLength | Shape::Stats => After::Keep,
        Shape::Close | Shape::Garbage | Shape::CloseDelimited | Shape::Short => After::Close,
        Shape::Reset => After::Reset,
        Shape::Never => After::Silence,
        Shape::Drip => After::Drip,
    };
    let bytes = match script.shape {
        Shape::Never | Shape::Reset | Shape::Close | Shape::Stats => Bytes::new(),
        Shape::Garbage => Bytes::from_static(GARBAGE),
        _ => head_and_body(script, status),
    };
    Answer { status, bytes, after }
}

fn head_and_body(script: &Script, status: u16) -> Bytes {
    let mut text = String::new();
    for _ in 0..script.interim_answers {
        text.push_str("HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\r\n");
    }
    text.push_str(&status_line(status));
    text.push_str("content-type: application/json\r\n");
    if let Some(wait) = &script.retry_after {
        push(&mut text, format_args!("retry-after: {wait}\r\n"));
    }
    for n in 0..script.extra_headers {
        push(&mut text, format_args!("x-fill-{n}: {n:016}\r\n"));
    }
    let body = if matches!(status, 204 | 304) { "" } else { script.body.as_str() };
    match script.shape {
        Shape::Chunked => push_chunked(&mut text, body, None),
        Shape::ChunkedAndLength => push_chunked(&mut text, body, Some(body.len())),
        Shape::CloseDelimited => push(&mut text, format_args!("connection: close\r\n\r\n{body}")),
        Shape::Short => push(&mut text, format_args!("content-length: {}\r\n\r\n{body}", body.len() + 100)),
        // A 204 may not carry a length.
        _ if status == 204 => text.push_str("\r\n"),
        _ => push(&mut text, format_args!("content-length: {}\r\n\r\n{body}", body.len())),
    }
    text.into()
}

fn push_chunked(text: &mut String, body: &str, length: Option<usize>) {
    if let Some(length) = length {
        push(text, format_args!("content-length: {length}\r\n"));
    }
    text.push_str("transfer-encoding: chunked\r\n\r\n");
    let mut rest = body;
    while !rest.is_empty() {
        let cut = (CHUNK_BYTES..rest.len()).find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
        let (chunk, tail) = rest.split_at(cut);
        push(text, format_args!("{:x}\r\n{chunk}\r\n", chunk.len()));
        rest = tail;
    }
    text.push_str("0\r\n\r\n");
}

fn status_line(status: u16) -> String {
    let reason = http::StatusCode::from_u16(status).ok().and_then(|code| code.canonical_reason());
    format!("HTTP/1.1 {status} {}\r\n", reason.unwrap_or("Scripted"))
}

fn push(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("a String takes whatever is written");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(target: &str) -> String {
        let play = Play::new(Script::read(target, Duration::ZERO));
        String::from_utf8_lossy(&play.answer().bytes).into_owned()
    }

    #[test]
    fn answers_are_laid_out_as_their_shape_says() {
        let rows = [
            ("/ok", "content-length: 12\r\n\r\n{\"ack\":true}"),
            ("/status/204", "HTTP/1.1 204 No Content\r\ncontent-type: application/json\r\n\r\n"),
            ("/chunked?body=abcdefg", "transfer-encoding: chunked\r\n\r\n5\r\nabcde\r\n2\r\nfg\r\n0\r\n\r\n"),
            ("/te-cl?body=ab", "content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"),
            ("/close-delimited?body=ab", "connection: close\r\n\r\nab"),
            ("/short?body=ab", "content-length: 102\r\n\r\nab"),
            ("/status/429?retry_after=3", "retry-after: 3\r\ncontent-length: 12\r\n\r\n{\"ack\":true}"),
        ];
        for (target, end) in rows {
            let got = answer(target);
            assert!(got.ends_with(end), "{target}: {got}");
        }
    }

    #[test]
    fn interim_answers_come_before_the_final_one() {
        let got = answer("/one-xx?count=3");
        assert_eq!(got.matches("HTTP/1.1 103 ").count(), 3, "{got}");
        assert!(got.contains("\r\n\r\nHTTP/1.1 200 OK\r\n"), "{got}");
    }

    #[test]
    fn a_failing_call_gets_the_failing_status() {
        let play = Play::new(Script::read("/fail?every=2&status=503", Duration::ZERO));
        let statuses: Vec<u16> = (0..4).map(|_| play.answer().status).collect();
        assert_eq!(statuses, [200, 503, 200, 503]);
    }
}
