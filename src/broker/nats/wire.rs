//! What JetStream says and is told: ack subjects, pull requests, statuses and the documents of its API. Pure.

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

/// Forget it.
pub(super) const ACK: Bytes = Bytes::from_static(b"+ACK");
/// Keep it for another lease.
pub(super) const WORKING: Bytes = Bytes::from_static(b"+WPI");
const NAK: Bytes = Bytes::from_static(b"-NAK");

/// The API's codes for what is not there.
pub(super) const STREAM_NOT_FOUND: u64 = 10_059;
pub(super) const CONSUMER_NOT_FOUND: u64 = 10_014;

/// Messages that a consumer of ours may have handed over unsettled: more than a router ever holds, and a bound.
const ACK_PENDING_MAX: i64 = 65_536;

/// Show it again after a delay.
pub(super) fn nak(delay_s: u32) -> Bytes {
    if delay_s == 0 {
        return NAK;
    }
    let nanos = Duration::from_secs(u64::from(delay_s)).as_nanos();
    format!(r#"-NAK {{"delay":{nanos}}}"#).into()
}

/// What an ack subject says of a hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delivery {
    /// Times it was handed over, this one included.
    pub(super) count: u64,
    /// Its place in the stream.
    pub(super) stream_seq: u64,
    /// This hand-over's place among all of the consumer's.
    pub(super) consumer_seq: u64,
    /// When it was stored, in nanoseconds since 1970.
    pub(super) stored_at: u64,
}

impl Delivery {
    /// Reads `$JS.ACK.stream.consumer.count.sseq.cseq.time.pending`, or the longer form with domain and account first
    /// and perhaps a token last.
    pub(super) fn read(subject: &str) -> Option<Self> {
        let rest = subject.strip_prefix("$JS.ACK.")?;
        let skip = match rest.split('.').count() {
            7 => 2,
            9.. => 4,
            _ => return None,
        };
        let mut numbers = rest.split('.').skip(skip).map(|word| word.parse().ok());
        let mut number = || numbers.next().flatten();
        Some(Self { count: number()?, stream_seq: number()?, consumer_seq: number()?, stored_at: number()? })
    }

    /// What tells a stored message from any other of its stream's name. The time is part of it: the numbers of a
    /// stream that was deleted and made anew begin again.
    pub(super) fn identity(&self) -> [u8; 16] {
        (u128::from(self.stored_at) << 64 | u128::from(self.stream_seq)).to_be_bytes()
    }
}

/// The subject to ack a message by whose ack subject is not known.
pub(super) fn ack_subject(stream: &str, consumer: &str, count: u64, stream_seq: u64) -> String {
    format!("$JS.ACK.{stream}.{consumer}.{count}.{stream_seq}.0.0.0")
}

/// A request for messages. It ends with the stream: what is there comes at once, and where there is nothing it waits
/// for the first and what comes with it.
pub(super) fn pull(batch: usize, expires: Duration, bytes_max: usize) -> Bytes {
    let expires = expires.as_nanos();
    format!(r#"{{"batch":{batch},"expires":{expires},"no_wait":true,"max_bytes":{bytes_max}}}"#).into()
}

/// What a status means for a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// It goes on.
    Alive,
    /// It is over; all is well.
    Over,
    /// It is over because the next message is larger than what was asked for.
    TooLarge,
    /// The consumer can't be read from now.
    Broken(String),
}

/// Reads a status.
pub(super) fn status(code: u16, description: &str) -> Status {
    let is = |words: &str| description.eq_ignore_ascii_case(words);
    match code {
        100 => Status::Alive,
        404 | 408 => Status::Over,
        409 if is("Message Size Exceeds MaxBytes") => Status::TooLarge,
        409 if is("Batch Completed") || is("Exceeded MaxAckPending") => Status::Over,
        503 => {
            Status::Broken("no one answers for the consumer: it was deleted, or JetStream is starting".into())
        }
        _ => Status::Broken(format!("the server says {code} {description}")),
    }
}

/// The document that makes a consumer.
pub(super) fn consumer_to_create(
    stream: &str,
    consumer: &str,
    subject: Option<&str>,
    lease: Duration,
) -> Bytes {
    let mut config = json!({
        "name": consumer,
        "durable_name": consumer,
        "description": "made by corelane",
        "ack_policy": "explicit",
        "deliver_policy": "all",
        "replay_policy": "instant",
        "ack_wait": u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX),
        "max_ack_pending": ACK_PENDING_MAX,
    });
    if let Some(subject) = subject {
        config["filter_subject"] = subject.into();
    }
    json!({ "stream_name": stream, "config": config, "action": "create" }).to_string().into()
}

/// An answer of the API: what was asked for, or why not.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Reply {
    Refused { error: ApiError },
    Consumer(Box<Consumer>),
}

/// Why not.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) code: u16,
    #[serde(default)]
    pub(super) err_code: u64,
    #[serde(default)]
    pub(super) description: String,
}

/// A consumer, as far as it matters here.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Consumer {
    pub(super) config: Config,
    #[serde(default)]
    pub(super) num_pending: u64,
    /// Handed over and not settled, whether their leases run or they are back.
    #[serde(default)]
    pub(super) num_ack_pending: usize,
    #[serde(default)]
    pub(super) delivered: Sequences,
}

/// How far a consumer has come.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct Sequences {
    #[serde(default)]
    pub(super) consumer_seq: u64,
}

/// A consumer's settings. Times are in nanoseconds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Config {
    ack_policy: String,
    deliver_subject: Option<String>,
    filter_subject: String,
    filter_subjects: Vec<String>,
    headers_only: bool,
    priority_groups: Vec<String>,
    ack_wait: u64,
    backoff: Vec<u64>,
    max_deliver: i64,
    max_ack_pending: i64,
    max_batch: i64,
    max_expires: u64,
    max_bytes: i64,
}

impl Config {
    /// Why a router can't consume by it. `subject`: what the URI asks for.
    pub(super) fn refusal(&self, subject: Option<&str>) -> Option<String> {
        if let Some(to) = self.deliver_subject.as_deref().filter(|to| !to.is_empty()) {
            return Some(format!("it is a push consumer (deliver subject {to}): a pull consumer is needed"));
        }
        if self.ack_policy != "explicit" {
            let policy = &self.ack_policy;
            return Some(format!("its ack policy is {policy:?}: only \"explicit\" loses nothing"));
        }
        if self.headers_only {
            return Some("it hands over headers only: messages would have no body".into());
        }
        if !self.priority_groups.is_empty() {
            return Some("it has priority groups, which corelane does not join".into());
        }
        let subject = subject?;
        let one = (!self.filter_subject.is_empty()).then_some(&self.filter_subject);
        let mut filters = self.filter_subjects.iter().chain(one);
        let same = filters.next().is_some_and(|filter| filter == subject) && filters.next().is_none();
        (!same).then(|| {
            let has = if self.filter_subject.is_empty() {
                self.filter_subjects.join(", ")
            } else {
                self.filter_subject.clone()
            };
            format!("its filter is {has:?}, and the URI asks for subject={subject}: make them the same")
        })
    }

    /// How long a message stays ours: the shortest of the waits that it may get.
    pub(super) fn lease(&self) -> Duration {
        let waits = self.backoff.iter().copied().chain([self.ack_wait]);
        Duration::from_nanos(waits.filter(|&wait| wait > 0).min().unwrap_or(30_000_000_000))
    }

    /// Hand-overs after which the server gives a message up.
    pub(super) fn deliveries_max(&self) -> Option<u16> {
        (self.max_deliver > 0).then(|| u16::try_from(self.max_deliver).unwrap_or(u16::MAX))
    }

    /// Messages that may be handed over and not settled.
    pub(super) fn ack_pending_max(&self) -> usize {
        limit(self.max_ack_pending, usize::MAX)
    }

    /// Messages that one pull may ask for.
    pub(super) fn batch_max(&self, ours: usize) -> usize {
        limit(self.max_batch, ours)
    }

    /// Bytes that one pull may ask for.
    pub(super) fn bytes_max(&self, ours: usize) -> usize {
        limit(self.max_bytes, ours)
    }

    /// How long one pull may wait.
    pub(super) fn expires_max(&self, ours: Duration) -> Duration {
        if self.max_expires == 0 { ours } else { ours.min(Duration::from_nanos(self.max_expires)) }
    }
}

/// A limit of the server's, where 0 or less means none, beside ours.
fn limit(theirs: i64, ours: usize) -> usize {
    usize::try_from(theirs).ok().filter(|&theirs| theirs > 0).map_or(ours, |theirs| theirs.min(ours))
}

/// The server handed a message over as often as it may, and will not again.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct GivenUp {
    pub(super) stream_seq: u64,
    pub(super) deliveries: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ack_subject_is_read_in_all_its_forms() {
        let want =
            Delivery { count: 2, stream_seq: 30, consumer_seq: 41, stored_at: 1_794_856_049_546_274_085 };
        let rows = [
            ("$JS.ACK.q-1.c.2.30.41.1794856049546274085.0", Some(want)),
            ("$JS.ACK.hub.ACCHASH.q-1.c.2.30.41.1794856049546274085.0", Some(want)),
            ("$JS.ACK._.ACCHASH.q-1.c.2.30.41.1794856049546274085.0.token.more", Some(want)),
            ("$JS.ACK.q-1.c.2.30.41.1794856049546274085", None),
            ("$JS.ACK.q-1.c.two.30.41.1794856049546274085.0", None),
            ("_INBOX.1.2", None),
        ];
        for (subject, want) in rows {
            assert_eq!(Delivery::read(subject), want, "{subject}");
        }
        let made = Delivery::read(&ack_subject("q-1", "c", 2, 30)).expect("our own form");
        assert_eq!((made.count, made.stream_seq), (2, 30));
    }

    #[test]
    fn a_redelivery_has_the_identity_of_the_first_and_no_other_message_does() {
        let read = |text: &str| Delivery::read(text).expect("well-formed").identity();
        let first = read("$JS.ACK.s.c.1.7.7.1000.0");
        assert_eq!(first, read("$JS.ACK.s.c.5.7.99.1000.3"), "a redelivery");
        assert_ne!(first, read("$JS.ACK.s.c.1.8.7.1000.0"), "its neighbour");
        assert_ne!(first, read("$JS.ACK.s.c.1.7.7.2000.0"), "the same place in a stream made anew");
    }

    #[test]
    fn a_delay_is_told_in_nanoseconds() {
        assert_eq!(nak(0), "-NAK");
        assert_eq!(nak(30), r#"-NAK {"delay":30000000000}"#);
    }

    #[test]
    fn a_status_ends_a_pull_or_the_connection() {
        let rows = [
            (100, "Idle Heartbeat", Status::Alive),
            (404, "No Messages", Status::Over),
            (408, "Request Timeout", Status::Over),
            (408, "Requests Pending", Status::Over),
            (409, "Message Size Exceeds MaxBytes", Status::TooLarge),
            (409, "Exceeded MaxAckPending", Status::Over),
        ];
        for (code, description, want) in rows {
            assert_eq!(status(code, description), want, "{code} {description}");
        }
        for (code, description) in [
            (409, "Consumer Deleted"),
            (409, "Server Shutdown"),
            (409, "Exceeded MaxWaiting"),
            (400, "Bad Request"),
            (503, ""),
        ] {
            assert!(matches!(status(code, description), Status::Broken(_)), "{code} {description}");
        }
    }

    fn consumer(config: &str) -> Consumer {
        let text =
            format!(r#"{{"type":"t","stream_name":"s","name":"c","config":{config},"num_pending":3}}"#);
        match serde_json::from_str(&text).expect("well-formed") {
            Reply::Consumer(consumer) => *consumer,
            Reply::Refused { error } => panic!("{error:?}"),
        }
    }

    #[test]
    fn a_consumer_that_would_lose_messages_is_refused() {
        let rows = [
            (r#"{"ack_policy":"explicit"}"#, None, None),
            (r#"{"ack_policy":"explicit","filter_subject":"a.>"}"#, None, None),
            (r#"{"ack_policy":"explicit","filter_subject":"a.>"}"#, Some("a.>"), None),
            (r#"{"ack_policy":"explicit","filter_subjects":["a.>"]}"#, Some("a.>"), None),
            (r#"{"ack_policy":"explicit","filter_subjects":["a","b"]}"#, Some("a"), Some("a, b")),
            (r#"{"ack_policy":"explicit"}"#, Some("a"), Some("filter")),
            (r#"{"ack_policy":"all"}"#, None, Some("\"all\"")),
            (r#"{"ack_policy":"none"}"#, None, Some("\"none\"")),
            (r#"{"ack_policy":"explicit","deliver_subject":"d"}"#, None, Some("push")),
            (r#"{"ack_policy":"explicit","headers_only":true}"#, None, Some("headers only")),
            (r#"{"ack_policy":"explicit","priority_groups":["A"]}"#, None, Some("priority")),
        ];
        for (config, subject, want) in rows {
            let said = consumer(config).config.refusal(subject);
            match want {
                None => assert_eq!(said, None, "{config}"),
                Some(part) => {
                    assert!(said.as_ref().is_some_and(|said| said.contains(part)), "{config}: {said:?}");
                }
            }
        }
    }

    #[test]
    fn what_the_broker_says_becomes_lease_and_limits() {
        let config =
            consumer(r#"{"ack_wait":60000000000,"backoff":[60000000000,5000000000],"max_deliver":7}"#).config;
        assert_eq!(config.lease(), Duration::from_secs(5), "the shortest wait counts");
        assert_eq!(config.deliveries_max(), Some(7));
        let config = consumer(r#"{"ack_wait":2000000000,"max_deliver":-1,"max_ack_pending":-1}"#).config;
        assert_eq!((config.lease(), config.deliveries_max()), (Duration::from_secs(2), None));
        assert_eq!((config.ack_pending_max(), config.batch_max(9)), (usize::MAX, 9));
        let config = consumer(
            r#"{"max_deliver":70000,"max_ack_pending":4,"max_batch":5,"max_expires":1000,"max_bytes":6}"#,
        );
        let config = config.config;
        assert_eq!((config.deliveries_max(), config.ack_pending_max()), (Some(u16::MAX), 4));
        assert_eq!((config.batch_max(9), config.bytes_max(9), config.bytes_max(2)), (5, 6, 2));
        assert_eq!(config.expires_max(Duration::from_secs(1)), Duration::from_micros(1));
    }

    #[test]
    fn what_we_ask_for_is_what_the_server_reads() {
        let text = consumer_to_create("S", "C", Some("a.>"), Duration::from_secs(20));
        let made: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        assert_eq!((&made["stream_name"], &made["config"]["filter_subject"]), (&"S".into(), &"a.>".into()));
        assert_eq!(made["config"]["ack_wait"], 20_000_000_000_u64);
        assert_eq!(
            consumer(&made["config"].to_string()).config.refusal(Some("a.>")),
            None,
            "we take what we make"
        );
        let asked: serde_json::Value =
            serde_json::from_slice(&pull(9, Duration::from_secs(1), 77)).expect("JSON");
        assert_eq!(
            (&asked["batch"], &asked["no_wait"], &asked["max_bytes"]),
            (&9.into(), &true.into(), &77.into())
        );
    }

    #[test]
    fn a_refusal_and_an_advisory_are_read() {
        let text = r#"{"type":"t","error":{"code":404,"err_code":10059,"description":"stream not found"}}"#;
        let Reply::Refused { error } = serde_json::from_str(text).expect("well-formed") else {
            panic!("{text}")
        };
        assert_eq!((error.code, error.err_code), (404, STREAM_NOT_FOUND));
        let text = r#"{"type":"t","id":"x","stream":"s","consumer":"c","stream_seq":7,"deliveries":2}"#;
        let given_up: GivenUp = serde_json::from_str(text).expect("well-formed");
        assert_eq!(given_up, GivenUp { stream_seq: 7, deliveries: 2 });
    }
}
