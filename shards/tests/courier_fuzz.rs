//! Our HTTP/1.1 reader against hyper's: the same bytes, cut anywhere, must come to the same answer.
//! Where we are stricter on purpose, [`why_stricter`] names the reason; anything else fails the test.
//! `FUZZ_CASES=2000000 FUZZ_SEED=7 cargo test -p shards --release --test courier_fuzz` for a long run.

mod courier_support;

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use courier_support::Dice;
use http_body_util::{BodyExt, Full};
use hyper::rt::{Read, ReadBufCursor, Write};
use shards::courier::h1::{Limits, Progress, Reader};

const LIMITS: Limits = Limits { head_bytes: 16 << 10, body_bytes: 64 << 10 };

/// What a reader made of the bytes, the connection closed after them.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Read2 {
    Whole(u16, Vec<u8>),
    Broken,
}

/// A socket that holds its answer back until it has seen a request, as a server does.
#[derive(Clone)]
struct Script(Rc<RefCell<(Vec<u8>, usize, bool)>>);

impl Read for Script {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut script = self.0.borrow_mut();
        let (bytes, at, asked) = &mut *script;
        if !*asked {
            return Poll::Pending;
        }
        let take = buf.remaining().min(bytes.len() - *at);
        buf.put_slice(&bytes[*at..*at + take]);
        *at += take;
        Poll::Ready(Ok(()))
    }
}

impl Write for Script {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().2 = true;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn by_hyper(bytes: &[u8]) -> Read2 {
    let script = Script(Rc::new(RefCell::new((bytes.to_vec(), 0, false))));
    let mut cx = Context::from_waker(Waker::noop());
    let handshake = pin!(hyper::client::conn::http1::handshake(script));
    let Poll::Ready(Ok((mut sender, connection))) = handshake.poll(&mut cx) else { panic!("handshake") };
    let mut connection = pin!(connection);
    let request = http::Request::post("/").header("host", "h").body(Full::new(Bytes::from_static(b"{}")));
    let sent = sender.send_request(request.expect("a request"));
    let mut read = pin!(async move {
        let Ok(response) = sent.await else { return Read2::Broken };
        let status = response.status().as_u16();
        match response.into_body().collect().await {
            Ok(body) => Read2::Whole(status, body.to_bytes().to_vec()),
            Err(_) => Read2::Broken,
        }
    });
    let mut connected = true;
    for _ in 0..10_000 {
        if connected {
            connected = connection.as_mut().poll(&mut cx).is_pending();
        }
        if let Poll::Ready(result) = read.as_mut().poll(&mut cx) {
            return result;
        }
    }
    panic!("hyper never ends");
}

fn by_us(bytes: &[u8], dice: &mut Dice) -> Read2 {
    let mut reader = Reader::default();
    let mut rest = bytes;
    let piece_max = if dice.one_in(2) { bytes.len().max(1) } else { 1 + dice.below(40) };
    while !rest.is_empty() {
        let (piece, after) = rest.split_at((1 + dice.below(piece_max)).min(rest.len()));
        rest = after;
        match reader.read(piece, LIMITS) {
            Progress::More => {}
            Progress::Broken => return Read2::Broken,
            Progress::Complete(answer) => return Read2::Whole(answer.status, answer.body.to_vec()),
        }
    }
    match reader.on_eof() {
        Progress::Complete(answer) => Read2::Whole(answer.status, answer.body.to_vec()),
        _ => Read2::Broken,
    }
}

const HEADERS: [&str; 26] = [
    "Content-Length: 5",
    "Content-Length: 5",
    "content-length: 0",
    "Content-Length: 12",
    "Content-Length:   5  ",
    "Content-Length: 05",
    "Content-Length: 5, 5",
    "Content-Length: 5,6",
    "Content-Length: +5",
    "Content-Length: -1",
    "Content-Length: 0x5",
    "Content-Length: ",
    "Content-Length: 18446744073709551616",
    "Content-Length: 18446744073709551615",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: chunked",
    "transfer-encoding: CHUNKED",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: identity",
    "Connection: close",
    "Connection: keep-alive",
    "Retry-After: 5",
    "X-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "X-Obs: \u{e4}\u{f6}",
    "X-Empty:",
    "Date: Sun, 06 Nov 1994 08:49:37 GMT",
];
const STATUS_LINES: [&str; 16] = [
    "HTTP/1.1 200 OK",
    "HTTP/1.1 200 OK",
    "HTTP/1.1 200 OK",
    "HTTP/1.1 200",
    "HTTP/1.1 200 ",
    "HTTP/1.0 200 OK",
    "HTTP/1.1 204 No Content",
    "HTTP/1.1 304 Not Modified",
    "HTTP/1.1 404 Not Found",
    "HTTP/1.1 503 Service Unavailable",
    "HTTP/1.1 999 Odd",
    "HTTP/1.1 099 Odd",
    "HTTP/2.0 200 OK",
    "HTTP/1.2 200 OK",
    "HTTP/1.1  200 OK",
    "HTTP/1.1 101 Switching Protocols",
];
const TOKENS: [&[u8]; 18] = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b"\n\n",
    b"\0",
    b" ",
    b"\t",
    b":",
    b";",
    b",",
    b"0",
    b"5\r\nhello\r\n",
    b"0\r\n\r\n",
    b"HTTP/1.1 ",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"\xff",
];

fn answer(dice: &mut Dice) -> Vec<u8> {
    let mut bytes = Vec::new();
    while dice.one_in(12) {
        bytes.extend_from_slice(b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\n");
    }
    bytes.extend_from_slice(dice.pick(&STATUS_LINES).as_bytes());
    let end: &[u8] = if dice.one_in(10) { b"\n" } else { b"\r\n" };
    bytes.extend_from_slice(end);
    let mut chunked = false;
    for _ in 0..dice.below(5) {
        let line = dice.pick(&HEADERS);
        chunked |= line.to_ascii_lowercase().contains("chunked");
        bytes.extend_from_slice(line.as_bytes());
        bytes.extend_from_slice(end);
    }
    bytes.extend_from_slice(end);
    if chunked && !dice.one_in(8) {
        chunks(dice, &mut bytes);
    } else {
        bytes.extend_from_slice(&b"hello, world"[..dice.below(13)]);
    }
    bytes
}

/// One without fault, apart from what mutation does to it.
fn valid_answer(dice: &mut Dice) -> Vec<u8> {
    let mut bytes = Vec::new();
    if dice.one_in(6) {
        bytes.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n");
    }
    bytes.extend_from_slice(STATUS_LINES[dice.below(10)].as_bytes());
    for _ in 0..dice.below(4) {
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(HEADERS[HEADERS.len() - 1 - dice.below(7)].as_bytes());
    }
    let old = bytes.starts_with(b"HTTP/1.0");
    match dice.below(3) {
        0 if !old => {
            bytes.extend_from_slice(b"\r\nTransfer-Encoding: chunked\r\n\r\n");
            chunks(dice, &mut bytes);
        }
        1 => bytes.extend_from_slice(b"\r\n\r\nuntil the end"),
        _ => {
            let length = dice.below(300);
            bytes.extend_from_slice(format!("\r\nContent-Length: {length}\r\n\r\n").as_bytes());
            bytes.extend(std::iter::repeat_n(b'z', length));
        }
    }
    bytes
}

fn chunks(dice: &mut Dice, bytes: &mut Vec<u8>) {
    for _ in 0..dice.below(4) {
        let len = 1 + dice.below(40);
        let size = if dice.one_in(2) { format!("{len:x}") } else { format!("{len:03X}") };
        bytes.extend_from_slice(size.as_bytes());
        bytes.extend_from_slice(dice.pick(&["", "", "", " ", ";a", ";a=\"b c\"", "\t;x"]).as_bytes());
        bytes.extend_from_slice(b"\r\n");
        bytes.extend(std::iter::repeat_n(b'x', len));
        bytes.extend_from_slice(b"\r\n");
    }
    if !dice.one_in(6) {
        bytes.extend_from_slice(
            dice.pick(&["0\r\n\r\n", "0\r\n\r\n", "000;x\r\n\r\n", "0\r\nT: 1\r\n\r\n", "0\r\nbad\r\n\r\n"])
                .as_bytes(),
        );
    }
    if dice.one_in(10) {
        bytes.extend_from_slice(b"HTTP/1.1 200 OK\r\n\r\n");
    }
}

fn mutate(dice: &mut Dice, bytes: &mut Vec<u8>) {
    for _ in 0..dice.below(4) {
        let at = dice.below(bytes.len() + 1);
        match dice.below(6) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => _ = bytes.remove(at),
            2 if at < bytes.len() => bytes[at] = u8::try_from(dice.below(256)).unwrap_or(0),
            3 if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
            4 => {
                let copy = bytes[at..(at + dice.below(20)).min(bytes.len())].to_vec();
                bytes.splice(at..at, copy);
            }
            _ => {
                let token = TOKENS[dice.below(TOKENS.len())];
                bytes.splice(at..at, token.iter().copied());
            }
        }
    }
}

/// Why we may refuse what hyper takes. Looked up only where the two disagree.
fn why_stricter(bytes: &[u8]) -> Option<&'static str> {
    let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
    let encoding = |line: &str| line.split_once(':').is_some_and(|(name, _)| name == "transfer-encoding");
    let encodings: Vec<_> = text.lines().filter(|line| encoding(line)).collect();
    let odd = |line: &&str| {
        line.split_once(':').is_none_or(|(_, value)| value.trim_matches([' ', '\t']) != "chunked")
    };
    // Two line breaks end an interim answer; a third is an empty line too many.
    let breaks_before = |at: usize| {
        text[..at]
            .bytes()
            .rev()
            .take_while(|byte| b"\r\n".contains(byte))
            .filter(|byte| *byte == b'\n')
            .count()
    };
    let spaced = text.match_indices("http/1").any(|(at, _)| breaks_before(at) > 2);
    if text.starts_with(['\r', '\n']) || spaced {
        return Some("empty lines before the status line");
    }
    if !encodings.is_empty() && text.lines().any(|line| line.starts_with("content-length:")) {
        return Some("Transfer-Encoding and Content-Length together");
    }
    if encodings.len() > 1 || encodings.iter().any(odd) {
        return Some("a transfer encoding other than one plain chunked");
    }
    let after_last_chunk = text.split_once("\r\n0").map(|(_, rest)| rest.replace("\r\n", ""));
    if !encodings.is_empty() && after_last_chunk.is_some_and(|rest| rest.contains('\n')) {
        return Some("a bare line feed among trailers");
    }
    if text.contains(" 101") {
        return Some("an upgrade that was not asked for");
    }
    let bodiless = [" 1", " 204", " 304"].iter().any(|status| {
        text.contains(&format!("http/1.1{status}")) || text.contains(&format!("http/1.0{status}"))
    });
    if bodiless && text.contains("content-length:") {
        return Some("a length that is no number where there is no body to measure");
    }
    None
}

#[test]
fn hyper_and_we_read_the_same() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (cases, seed) = (number("FUZZ_CASES", 30_000), number("FUZZ_SEED", 1));
    let (mut whole, mut broken, mut stricter) = (0_u64, 0_u64, 0_u64);
    let mut apart = Vec::new();
    for case in 0..cases {
        let mut dice = Dice((seed << 32 | case).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut bytes = if dice.one_in(3) { answer(&mut dice) } else { valid_answer(&mut dice) };
        if !dice.one_in(3) {
            mutate(&mut dice, &mut bytes);
        }
        let (ours, theirs) = (by_us(&bytes, &mut dice), by_hyper(&bytes));
        match (&ours, &theirs) {
            (Read2::Broken, Read2::Whole(..)) if why_stricter(&bytes).is_some() => stricter += 1,
            _ if ours == theirs => {}
            _ => apart.push(format!(
                "case {case}: we {ours:?}, hyper {theirs:?}: {:?}",
                String::from_utf8_lossy(&bytes)
            )),
        }
        assert!(apart.len() < 10, "FUZZ_SEED={seed}\n{}", apart.join("\n"));
        if ours == Read2::Broken { broken += 1 } else { whole += 1 }
    }
    assert!(apart.is_empty(), "FUZZ_SEED={seed}\n{}", apart.join("\n"));
    assert!(
        whole * 5 > cases && broken * 5 > cases,
        "the generator is lopsided: {whole} whole, {broken} broken"
    );
    assert!(stricter * 5 < cases, "the allow list swallows too much: {stricter} of {cases}");
}

#[test]
fn our_limits_are_narrower_than_hypers() {
    let head = |lines: usize| {
        [b"HTTP/1.1 200 OK\r\n".to_vec(), b"A: b\r\n".repeat(lines), b"Content-Length: 0\r\n\r\n".to_vec()]
            .concat()
    };
    let long_body =
        [b"HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n".to_vec(), vec![b'x'; 70_000]].concat();
    let long_line =
        format!("HTTP/1.1 200 OK\r\nA: {}\r\nContent-Length: 0\r\n\r\n", "a".repeat(17 << 10)).into_bytes();
    let interim = [b"HTTP/1.1 100 Continue\r\n\r\n".repeat(9), head(0)].concat();
    let zeros =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n00000000000000001\r\nx\r\n0\r\n\r\n".to_vec();
    let rows = [
        (head(99), Read2::Whole(200, vec![]), Read2::Whole(200, vec![]), "100 header lines"),
        (head(100), Read2::Broken, Read2::Broken, "101 header lines"),
        (long_line, Read2::Broken, Read2::Whole(200, vec![]), "a head over 16 KiB"),
        (
            long_body,
            Read2::Whole(200, vec![b'x'; 64 << 10]),
            Read2::Whole(200, vec![b'x'; 70_000]),
            "a body over 64 KiB",
        ),
        (interim, Read2::Broken, Read2::Whole(200, vec![]), "9 interim answers"),
        (zeros, Read2::Broken, Read2::Whole(200, b"x".to_vec()), "a chunk size of 17 digits"),
    ];
    for (bytes, ours, theirs, why) in rows {
        assert_eq!(by_us(&bytes, &mut Dice(7)), ours, "{why}");
        assert_eq!(by_hyper(&bytes), theirs, "{why}");
    }
}
