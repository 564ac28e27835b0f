//! Answers, whole and in pieces.

use super::*;

const LIMITS: Limits = Limits { head_bytes: 1024, body_bytes: 256 };

/// What an answer came to, owned: status, retry-after, body, keep.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Read {
    Whole(u16, Option<Vec<u8>>, Vec<u8>, bool),
    Broken,
    More,
}

fn owned(progress: Progress<'_>) -> Read {
    match progress {
        Progress::More => Read::More,
        Progress::Broken => Read::Broken,
        Progress::Complete(answer) => Read::Whole(
            answer.status,
            answer.retry_after.map(<[u8]>::to_vec),
            answer.body.to_vec(),
            answer.keep,
        ),
    }
}

/// Feeds `pieces`, then the peer closes. The bytes after an answer's end count against keeping.
fn read_pieces<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Read {
    let mut reader = Reader::default();
    let mut pieces = pieces.peekable();
    while let Some(piece) = pieces.next() {
        match owned(reader.read(piece, LIMITS)) {
            Read::More => {}
            Read::Whole(status, retry_after, body, keep) => {
                let more = pieces.any(|piece| !piece.is_empty());
                return Read::Whole(status, retry_after, body, keep && !more);
            }
            Read::Broken => return Read::Broken,
        }
    }
    owned(reader.on_eof())
}

fn whole(status: u16, body: &str, keep: bool) -> Read {
    Read::Whole(status, None, body.as_bytes().to_vec(), keep)
}

fn framing_rows() -> Vec<(&'static str, Read)> {
    vec![
        ("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{\"ack\":true}", whole(200, "{\"ack\":true}", true)),
        ("HTTP/1.1 200\r\ncontent-length:2\r\n\r\nhi", whole(200, "hi", true)),
        ("HTTP/1.1 200 OK\ncontent-length: 2\n\nhi", whole(200, "hi", true)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi", whole(200, "hi", true)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nhi", whole(200, "hi", true)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhi!", Read::Broken),
        ("HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nhi", Read::Broken),
        ("HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nhi", Read::Broken),
        ("HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\nhi", Read::Broken),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0x2\r\n\r\nhi", Read::Broken),
        ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhi", Read::Broken),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi", Read::Broken),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi!", whole(200, "hi", false)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n", whole(200, "", false)),
        ("HTTP/1.1 204 No Content\r\n\r\n", whole(204, "", true)),
        ("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", whole(204, "", true)),
        ("HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", whole(304, "", true)),
        ("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi", whole(200, "hi", false)),
        ("HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 2\r\n\r\nhi", whole(200, "hi", false)),
        ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi", whole(200, "hi", false)),
        ("HTTP/1.1 200 OK\r\n\r\nuntil close", whole(200, "until close", false)),
        ("HTTP/1.1 200 OK\r\n\r\n", whole(200, "", false)),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", whole(200, "hi", true)),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2;a=b;c=\"d\"\r\nhi\r\n1 \r\n!\r\n000;x\r\nT: 1\r\nU: 2\r\n\r\n",
            whole(200, "hi!", true),
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nA\r\n0123456789\r\n0\r\n\r\nx",
            whole(200, "0123456789", false),
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n", Read::Broken),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhix\r\n0\r\n\r\n", Read::Broken),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\nhi\n0\n\n", Read::Broken),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\nhi", Read::Broken),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nhi\r\n0\r\n\r\n", Read::Broken),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\nhi", Read::Broken),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;\n\r\nhi\r\n0\r\n\r\n", Read::Broken),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nno trailer\r\n\r\n", Read::Broken),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            Read::Broken,
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", Read::Broken),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            Read::Broken,
        ),
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Read::Broken),
    ]
}

fn head_rows() -> Vec<(&'static str, Read)> {
    vec![
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
            whole(200, "hi", true),
        ),
        (
            "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 102 P\r\n\r\nHTTP/1.1 204 N\r\n\r\n",
            whole(204, "", true),
        ),
        ("HTTP/1.1 101 Switching\r\n\r\n", Read::Broken),
        ("HTTP/1.1 100 Continue\r\n\r\n", Read::Broken),
        ("HTTP/1.1 200 OK\r\nA: b\r\n folded\r\nContent-Length: 0\r\n\r\n", Read::Broken),
        ("HTTP/1.1 200 OK\r\nA : b\r\nContent-Length: 0\r\n\r\n", Read::Broken),
        ("HTTP/2 200 OK\r\n\r\n", Read::Broken),
        ("HTTP/1.1 2000 OK\r\n\r\n", Read::Broken),
        ("HTTP/1.1 20 OK\r\n\r\n", Read::Broken),
        ("HTTP/1.1 099 OK\r\n\r\n", Read::Broken),
        ("\r\nHTTP/1.1 200 OK\r\n\r\n", Read::Broken),
        ("garbage", Read::Broken),
        ("SSH-2.0-OpenSSH_9.6\r\n", Read::Broken),
        ("", Read::Broken),
        ("HTTP/1.1 200 OK\r\nContent-Le", Read::Broken),
    ]
}

fn corpus() -> Vec<(Vec<u8>, Read)> {
    let texts = framing_rows().into_iter().chain(head_rows());
    let mut rows: Vec<_> = texts.map(|(text, want)| (text.as_bytes().to_vec(), want)).collect();
    let retry = Read::Whole(429, Some(b"7".to_vec()), Vec::new(), true);
    rows.push((b"HTTP/1.1 429 X\r\nretry-after:  7 \r\nContent-Length: 0\r\n\r\n".to_vec(), retry));
    rows.push((b"HTTP/1.1 100 C\r\n\r\n".repeat(9), Read::Broken));
    rows.push((b"A: b\r\n".repeat(400), Read::Broken));
    rows.push(([b"HTTP/1.1 200 OK\r\n".to_vec(), b"A: b\r\n".repeat(200)].concat(), Read::Broken));
    rows.push((
        [b"HTTP/1.1 200 OK\r\n".to_vec(), b"A:b\r\n".repeat(101), b"\r\n".to_vec()].concat(),
        Read::Broken,
    ));
    rows.push(([b"HTTP/1.1 200 ".to_vec(), b"x".repeat(2000)].concat(), Read::Broken));
    let long = "x".repeat(256);
    for head in ["Content-Length: 300", "X: close-delimited"] {
        let bytes = format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{}", "x".repeat(300)).into_bytes();
        rows.push((bytes, whole(200, &long, false)));
    }
    let chunks = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{}", "1\r\nx\r\n".repeat(300));
    rows.push((chunks.into_bytes(), whole(200, &long, false)));
    let extension = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;{}", "x".repeat(1100));
    rows.push((extension.into_bytes(), Read::Broken));
    let trailers =
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{}", "T: x\r\n".repeat(200));
    rows.push((trailers.into_bytes(), Read::Broken));
    rows
}

#[test]
fn an_answer_reads_the_same_wherever_it_is_cut() {
    for (bytes, want) in corpus() {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        assert_eq!(read_pieces([&bytes[..]].into_iter()), want, "whole: {shown}");
        assert_eq!(read_pieces(bytes.chunks(1)), want, "byte by byte: {shown}");
        for cut in 0..=bytes.len() {
            let (left, right) = bytes.split_at(cut);
            assert_eq!(read_pieces([left, right].into_iter()), want, "cut at {cut}: {shown}");
        }
        for size in 2..9 {
            assert_eq!(read_pieces(bytes.chunks(size)), want, "pieces of {size}: {shown}");
        }
    }
}

#[test]
fn a_small_answer_in_one_slice_is_not_copied() {
    let bytes = b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 12\r\n\r\n{\"ack\":true}";
    let mut reader = Reader::default();
    let Progress::Complete(answer) = reader.read(bytes, LIMITS) else { panic!("incomplete") };
    assert_eq!(answer.body.as_ptr(), bytes[bytes.len() - 12..].as_ptr());
    assert!(answer.keep);
    reader.clear();
    assert_eq!(reader.capacity(), 0);
}

#[test]
fn a_reader_can_be_used_again() {
    let mut reader = Reader::default();
    for _ in 0..3 {
        assert_eq!(owned(reader.read(b"HTTP/1.1 200 OK\r\nTransfer-Enc", LIMITS)), Read::More);
        assert!(reader.is_touched());
        let rest = b"oding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n";
        assert_eq!(owned(reader.read(rest, LIMITS)), whole(200, "hi", true));
        reader.clear();
        assert!(!reader.is_touched());
    }
}
