//! A plain HTTP client for tests: what is sent is seen byte for byte, and nothing is added.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// A read that takes longer has failed.
const READ_MAX: Duration = Duration::from_secs(10);

/// An answer.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answered {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The code of a refusal.
    pub(crate) fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find_map(|(key, value)| key.eq_ignore_ascii_case(name).then_some(value))
    }
}

/// Sends a request with these headers, and `host` unless it is among them.
pub(crate) fn send(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answered {
    let mut lines = vec![format!("{method} {path} HTTP/1.1"), "connection: close".to_owned()];
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        lines.push(format!("host: {to}"));
    }
    lines.extend(headers.iter().map(|(name, value)| format!("{name}: {value}")));
    if !body.is_empty() {
        lines.push(format!("content-length: {}", body.len()));
    }
    raw(to, format!("{}\r\n\r\n{body}", lines.join("\r\n")).as_bytes())
}

/// Sends bytes and reads to the end.
pub(crate) fn raw(to: SocketAddr, bytes: &[u8]) -> Answered {
    let mut stream = TcpStream::connect(to).expect("connect");
    stream.set_read_timeout(Some(READ_MAX)).expect("set a timeout");
    // A server that refuses early may close before all is written.
    let _ = stream.write_all(bytes);
    let mut got = Vec::new();
    let _ = stream.read_to_end(&mut got);
    let text = String::from_utf8_lossy(&got);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or_default();
    Answered { status, head: head.to_owned(), body: body.to_owned() }
}
