//! The request of a delivery, laid out once per connection; only its message number changes.

use std::io::Write;
use std::net::SocketAddr;

const BODY: &str = r#"{"messageId":"01J0000000000000000000000","n":12345}"#;
const KEY: &str = "idempotency-key: m-";
const DIGITS: usize = 16;

/// A request and where its number is. Its bytes are never freed: a closing ring may finish a send late.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) bytes: &'static mut [u8],
    number_at: usize,
}

impl Request {
    /// Lays out a POST.
    pub(crate) fn new(address: SocketAddr, path: &str) -> Self {
        let before = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
             accept: application/json\r\n{KEY}"
        );
        let after = format!(
            "\r\ncorelane-attempt: 1\r\n\
             traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n\
             content-length: {}\r\n\r\n{BODY}",
            BODY.len()
        );
        let bytes = [before.as_bytes(), &[b'0'; DIGITS], after.as_bytes()].concat().leak();
        Self { bytes, number_at: before.len() }
    }

    /// Writes the number of the next message.
    pub(crate) fn number(&mut self, number: u64) {
        let mut place = &mut self.bytes[self.number_at..self.number_at + DIGITS];
        write!(place, "{number:016x}").expect("16 digits fit");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_valid_and_carries_its_number() {
        let mut request = Request::new(SocketAddr::from(([127, 0, 0, 1], 80)), "/ok");
        request.number(0xabc);
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut head = httparse::Request::new(&mut headers);
        let head_bytes = head.parse(request.bytes).expect("valid").unwrap();
        let value = |name| head.headers.iter().find(|h| h.name == name).expect("there").value;
        assert_eq!(value("idempotency-key"), b"m-0000000000000abc");
        assert_eq!(value("content-length"), (request.bytes.len() - head_bytes).to_string().as_bytes());
    }
}
