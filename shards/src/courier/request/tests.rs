//! Requests, byte by byte.

use super::*;
use crate::model::Parts;

fn parcel(parts: &Parts<'_>) -> Parcel {
    Parcel::new(parts).expect("valid parts")
}

fn written(first: &Parcel, rest: &[Parcel], attempt: u16) -> String {
    let target = Target::parse(first.target()).expect("a valid target");
    let mut out = Vec::new();
    write(&mut out, &constant_lines(&target), first, &mut rest.iter(), attempt);
    String::from_utf8(out).expect("text")
}

#[test]
fn a_request_is_written_byte_for_byte() {
    let full = parcel(&Parts {
        id: "m-1",
        target: "http://h:81/p?q=1",
        token: "t0ken",
        content_type: "text/plain",
        body: b"hello",
        ..Parts::default()
    });
    let bare = parcel(&Parts { id: "m-1", target: "https://h", ..Parts::default() });
    let v6 = parcel(&Parts { id: "m-1", target: "http://[::1]:8/x", body: b"{}", ..Parts::default() });
    let rows = [
        (
            &full,
            7,
            "POST /p?q=1 HTTP/1.1\r\nhost: h:81\r\naccept: application/json\r\ncontent-type: text/plain\r\nauthorization: Bearer t0ken\r\nidempotency-key: m-1\r\ncorelane-attempt: 7\r\n",
            "content-length: 5\r\n\r\nhello",
        ),
        (
            &bare,
            1,
            "POST / HTTP/1.1\r\nhost: h\r\naccept: application/json\r\ncontent-type: application/json\r\nidempotency-key: m-1\r\ncorelane-attempt: 1\r\n",
            "content-length: 0\r\n\r\n",
        ),
        (
            &v6,
            65_535,
            "POST /x HTTP/1.1\r\nhost: [::1]:8\r\naccept: application/json\r\ncontent-type: application/json\r\nidempotency-key: m-1\r\ncorelane-attempt: 65535\r\n",
            "content-length: 2\r\n\r\n{}",
        ),
    ];
    for (parcel, attempt, before, after) in rows {
        let text = written(parcel, &[], attempt);
        let middle = text.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        let line = middle.unwrap_or_else(|| panic!("{text}")).trim_end();
        assert_eq!(line.len(), "traceparent: ".len() + 55, "{line}");
        assert!(line.starts_with("traceparent: 00-") && line.ends_with("-01"), "{line}");
    }
}

#[test]
fn a_batch_rides_as_an_array() {
    let make = |id, body| parcel(&Parts { id, target: "http://h/", body, ..Parts::default() });
    let rest = [make("b", b"{\"n\":2}"), make("c", b"3")];
    let text = written(&make("a", b"{\"n\":1}"), &rest, 1);
    assert!(text.ends_with("content-length:           19\r\n\r\n[{\"n\":1},{\"n\":2},3]"), "{text}");
    assert!(text.contains("idempotency-key: a\r\n"), "{text}");
    let mut headers = [httparse::EMPTY_HEADER; 16];
    let mut request = httparse::Request::new(&mut headers);
    let head = request.parse(text.as_bytes()).expect("a request").unwrap();
    let length = request.headers.iter().find(|header| header.name == "content-length").expect("a length");
    assert_eq!(length.value, b"19");
    assert_eq!(text.len() - head, 19);
}

#[test]
fn the_trace_follows_the_message_and_the_span_the_attempt() {
    let (trace_1, span_1) = trace(b"m-1", 1);
    let (trace_2, span_2) = trace(b"m-1", 2);
    assert_eq!(trace_1, trace_2);
    assert_ne!(span_1, span_2);
    let mut seen = std::collections::HashSet::new();
    for number in 0..20_000_u32 {
        let id = number.to_string();
        let (trace, span) = trace(id.as_bytes(), 1);
        assert!(trace[0] | trace[1] != 0 && span != 0, "{id}");
        assert!(seen.insert(trace), "{id}");
    }
}
