//! What a request's target asks the sink to do: `/fail?every=10&status=503&ms=20` → a `Script`. Pure.

use std::time::Duration;

/// Body of an answer whose script names none: what corelane reads as an acknowledgement.
const BODY_DEFAULT: &str = r#"{"ack":true}"#;
/// Largest scripted body. A slip in a query must not take the machine's memory.
pub(super) const BODY_BYTES_MAX: usize = 64 << 20;
/// Most extra headers or interim answers: well beyond what any client accepts.
const COUNT_MAX: usize = 100_000;
/// Longest scripted delay, so that a due time cannot overflow.
const DELAY_MAX: Duration = Duration::from_secs(3600);

/// How the bytes of an answer are laid out, or withheld.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// `Content-Length` and the body.
    Plain,
    /// No answer at all; the connection stays.
    Never,
    /// A plain answer, one byte per delay.
    Drip,
    /// TCP reset instead of an answer.
    Reset,
    /// Orderly close instead of an answer.
    Close,
    /// Bytes that are not HTTP, then close.
    Garbage,
    /// Chunked transfer coding.
    Chunked,
    /// No length: the close ends the body.
    CloseDelimited,
    /// Both `Transfer-Encoding` and `Content-Length`.
    ChunkedAndLength,
    /// Closes before `Content-Length` is reached.
    Short,
    /// The sink's counters.
    Stats,
}

/// Which calls fail.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Failing {
    /// None of them.
    None,
    /// Every n-th.
    Every(u64),
    /// The first n.
    First(u64),
    /// A share of them, chosen by a seeded draw per call number.
    Share { rate: f64, seed: u64 },
}

impl Failing {
    /// Does the call with this number, counted from 1, fail?
    pub(super) fn hits(self, call: u64) -> bool {
        match self {
            Self::None => false,
            Self::Every(n) => call.is_multiple_of(n),
            Self::First(n) => call <= n,
            Self::Share { rate, seed } => draw(seed, call) < rate,
        }
    }
}

/// One target's behaviour.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Script {
    pub(super) shape: Shape,
    pub(super) status: u16,
    pub(super) failing: Failing,
    pub(super) failing_status: u16,
    pub(super) delay: Duration,
    pub(super) body: String,
    pub(super) retry_after: Option<String>,
    pub(super) extra_headers: usize,
    pub(super) interim_answers: usize,
}

impl Script {
    /// Reads a request target. An unknown path is a 404, an unreadable value a 400: a typo in a test shows.
    pub(super) fn read(target: &str, delay_default: Duration) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut parts = path.trim_start_matches('/').split('/');
        let name = parts.next().unwrap_or_default();
        let mut script = Self {
            shape: Shape::Plain,
            status: 200,
            failing: Failing::None,
            failing_status: 500,
            delay: delay_default,
            body: BODY_DEFAULT.to_owned(),
            retry_after: None,
            extra_headers: 0,
            interim_answers: 0,
        };
        let known = script.read_path(name, parts.next());
        if known.and_then(|()| script.read_query(query)).is_none() {
            let status = if known.is_none() { 404 } else { 400 };
            let why = if known.is_none() { "no such script" } else { "unreadable query" };
            script =
                Self { shape: Shape::Plain, status, failing: Failing::None, body: why.to_owned(), ..script };
        }
        script
    }

    fn read_path(&mut self, name: &str, argument: Option<&str>) -> Option<()> {
        self.shape = match name {
            "ok" | "big" | "headers" | "status" | "slow" | "fail" | "one-xx" => Shape::Plain,
            "never" => Shape::Never,
            "drip" => Shape::Drip,
            "rst" => Shape::Reset,
            "close" => Shape::Close,
            "garbage" => Shape::Garbage,
            "chunked" => Shape::Chunked,
            "close-delimited" => Shape::CloseDelimited,
            "te-cl" => Shape::ChunkedAndLength,
            "short" => Shape::Short,
            "_stats" => Shape::Stats,
            _ => return None,
        };
        match name {
            "status" => self.status = argument.and_then(read_status)?,
            "slow" => self.delay = Duration::from_millis(100),
            "drip" => self.delay = Duration::from_secs(1),
            "fail" => self.failing = Failing::Every(10),
            "headers" => self.extra_headers = 10,
            "one-xx" => self.interim_answers = 1,
            "_stats" => self.delay = Duration::ZERO,
            _ => {}
        }
        Some(())
    }

    fn read_query(&mut self, query: &str) -> Option<()> {
        let (mut rate, mut seed) = (None, 0);
        for (key, value) in query.split('&').filter(|pair| !pair.is_empty()).map(split_pair) {
            match key {
                "ms" => {
                    self.delay = value.parse().map(Duration::from_millis).ok().filter(|d| *d <= DELAY_MAX)?;
                }
                "body" => self.body = decode(value),
                "bytes" => {
                    self.body = "x".repeat(value.parse().ok().filter(|n| *n <= BODY_BYTES_MAX)?);
                }
                "retry_after" => self.retry_after = Some(header_value(&decode(value))?),
                "status" => self.failing_status = read_status(value)?,
                "every" => self.failing = Failing::Every(value.parse().ok().filter(|n| *n > 0)?),
                "first" => self.failing = Failing::First(value.parse().ok()?),
                "error_rate" => rate = Some(value.parse().ok().filter(|r| (0.0..=1.0).contains(r))?),
                "seed" => seed = value.parse().ok()?,
                "count" => {
                    let count = value.parse().ok().filter(|n| *n <= COUNT_MAX)?;
                    if self.interim_answers > 0 {
                        self.interim_answers = count;
                    } else {
                        self.extra_headers = count;
                    }
                }
                _ => {} // A client may carry its own parameters, such as a message number.
            }
        }
        if let Some(rate) = rate {
            self.failing = Failing::Share { rate, seed };
        }
        Some(())
    }
}

fn split_pair(pair: &str) -> (&str, &str) {
    pair.split_once('=').unwrap_or((pair, ""))
}

/// A final status: 1xx would leave the client waiting, and `/one-xx` is there for that.
fn read_status(text: &str) -> Option<u16> {
    text.parse().ok().filter(|status| (200..=999).contains(status))
}

/// A value that cannot break out of its header line.
fn header_value(text: &str) -> Option<String> {
    text.bytes().all(|byte| (b' '..=b'~').contains(&byte)).then(|| text.to_owned())
}

/// Percent and plus decoding; a broken escape stays as it is.
fn decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let escaped = (byte == b'%')
            .then(|| tail.get(..2))
            .flatten()
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        rest = if escaped.is_some() { &tail[2..] } else { tail };
        out.push(escaped.unwrap_or(if byte == b'+' { b' ' } else { byte }));
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A uniform draw in 0..1 that depends on nothing but its arguments (splitmix64).
fn draw(seed: u64, call: u64) -> f64 {
    let mut z = seed.wrapping_add(call.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let top = u32::try_from((z ^ (z >> 31)) >> 32).expect("32 bits are left");
    f64::from(top) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(target: &str) -> Script {
        Script::read(target, Duration::from_millis(7))
    }

    #[test]
    fn a_path_names_the_shape_and_its_defaults() {
        let rows = [
            ("/ok", Shape::Plain, 200, 7),
            ("/ok/orders/17", Shape::Plain, 200, 7),
            ("/slow", Shape::Plain, 200, 100),
            ("/slow?ms=20", Shape::Plain, 200, 20),
            ("/status/503", Shape::Plain, 503, 7),
            ("/never", Shape::Never, 200, 7),
            ("/drip?ms=2", Shape::Drip, 200, 2),
            ("/rst", Shape::Reset, 200, 7),
            ("/_stats", Shape::Stats, 200, 0),
        ];
        for (target, shape, status, ms) in rows {
            let script = read(target);
            assert_eq!((script.shape, script.status), (shape, status), "{target}");
            assert_eq!(script.delay, Duration::from_millis(ms), "{target}");
        }
    }

    #[test]
    fn a_wrong_target_is_answered_by_an_error() {
        let rows = [
            ("/", 404),
            ("/nope", 404),
            ("/status", 404),
            ("/status/abc", 404),
            ("/status/100", 404),
            ("/ok?ms=x", 400),
            ("/ok?ms=99999999", 400),
            ("/fail?every=0", 400),
            ("/ok?error_rate=1.5", 400),
            ("/big?bytes=999999999999", 400),
            ("/ok?retry_after=1%0d%0aX:1", 400),
        ];
        for (target, status) in rows {
            assert_eq!(read(target).status, status, "{target}");
        }
    }

    #[test]
    fn a_body_is_decoded() {
        assert_eq!(read("/ok?body=%7B%22ack%22:false%7D+x%").body, r#"{"ack":false} x%"#);
        assert_eq!(read("/ok").body, BODY_DEFAULT);
        assert_eq!(read("/big?bytes=5").body, "xxxxx");
    }

    #[test]
    fn every_nth_call_fails() {
        let failing = read("/fail?every=3&status=503").failing;
        let failed: Vec<u64> = (1..=9).filter(|call| failing.hits(*call)).collect();
        assert_eq!(failed, [3, 6, 9]);
    }

    #[test]
    fn an_error_rate_holds_and_its_seed_repeats_it() {
        let failed = |target: &str| -> Vec<u64> {
            let failing = read(target).failing;
            (1..=100_000).filter(|call| failing.hits(*call)).collect()
        };
        let first = failed("/ok?error_rate=0.02&seed=7");
        assert!((1_800..2_200).contains(&first.len()), "{}", first.len());
        assert_eq!(first, failed("/ok?seed=7&error_rate=0.02"));
        assert_ne!(first, failed("/ok?error_rate=0.02&seed=8"));
        assert_eq!(failed("/ok?error_rate=0").len(), 0);
        assert_eq!(failed("/ok?error_rate=1").len(), 100_000);
    }
}
