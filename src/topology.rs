//! What is routed: pools and queues, as checked data. Made by `config` (the local file) or `sync` (the
//! platform's document), compared by `sync::diff`, put into effect by `app`.

pub mod draft;
mod show;

use std::fmt;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use shards::model::{Ordering, PoolSpec};

use crate::secret::without_credentials;

/// All pools and queues. Codes and names are unique.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Pools, in the order in which they were written.
    pub pools: Vec<PoolEntry>,
    /// Queues, in the order in which they were written.
    pub queues: Vec<QueueEntry>,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolEntry {
    /// Its code.
    pub code: String,
    /// Its settings.
    pub spec: PoolSpec,
}

/// A queue to consume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub uri: QueueUri,
    /// Receives in flight at once.
    pub connections: NonZeroU16,
    /// How long a message stays ours without an extension; `None` = what the broker says, or 30 s.
    pub visibility: Option<Duration>,
    /// How groups are kept in order; `None` = what fits the broker.
    pub ordering: Option<Ordering>,
    /// Deliveries after which a message is set aside; 0 = never.
    pub attempts_max: u16,
}

/// Where a queue is: the scheme names the broker. Shown without user and password.
#[derive(Clone, PartialEq, Eq)]
pub enum QueueUri {
    /// `sqlite:path`: a file.
    Sqlite(PathBuf),
    /// `memory:name`: the same in the machine's memory.
    Memory(String),
    /// `http(s)://…`: an SQS queue's URL.
    Sqs(String),
    /// `nats://…`.
    Nats(String),
    /// `amqp(s)://…`: RabbitMQ.
    Amqp(String),
    /// `activemq://…`: OpenWire.
    ActiveMq(String),
    /// `stomp://…`.
    Stomp(String),
}

impl QueueUri {
    /// Reads a URI.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err(
                "has no scheme: write sqlite:FILE, memory:NAME, http(s)://, nats://, amqp(s):// or activemq://"
                    .into()
            );
        };
        if rest.is_empty() || rest == "//" {
            return Err(format!("names nothing after {scheme}:"));
        }
        let whole = text.to_owned();
        match scheme.to_ascii_lowercase().as_str() {
            "sqlite" => Ok(Self::Sqlite(PathBuf::from(rest.strip_prefix("//").unwrap_or(rest)))),
            "memory" => memory_name(rest).map(|name| Self::Memory(name.to_owned())),
            "http" | "https" => Ok(Self::Sqs(whole)),
            "nats" | "tls" => Ok(Self::Nats(whole)),
            "amqp" | "amqps" => Ok(Self::Amqp(whole)),
            "activemq" | "activemq+ssl" | "failover" => Ok(Self::ActiveMq(whole)),
            "stomp" => Ok(Self::Stomp(whole)),
            _ => Err(format!("has the scheme {scheme}, which names no broker that corelane knows")),
        }
    }

    /// The whole URI, password included, for a client that connects.
    #[must_use]
    pub fn reveal(&self) -> String {
        match self {
            Self::Sqlite(_) | Self::Memory(_) => self.to_string(),
            Self::Sqs(url) | Self::Nats(url) | Self::Amqp(url) | Self::ActiveMq(url) | Self::Stomp(url) => {
                url.clone()
            }
        }
    }

    /// The broker's name.
    #[must_use]
    pub const fn broker(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "sqlite",
            Self::Memory(_) => "memory",
            Self::Sqs(_) => "sqs",
            Self::Nats(_) => "nats",
            Self::Amqp(_) => "rabbitmq",
            Self::ActiveMq(_) => "activemq",
            Self::Stomp(_) => "stomp",
        }
    }
}

impl fmt::Display for QueueUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = match self {
            Self::Sqlite(path) => return write!(f, "sqlite:{}", path.display()),
            Self::Memory(name) => return write!(f, "memory:{name}"),
            Self::Sqs(url) | Self::Nats(url) | Self::Amqp(url) | Self::ActiveMq(url) | Self::Stomp(url) => {
                url
            }
        };
        f.write_str(&without_credentials(url))
    }
}

impl fmt::Debug for QueueUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A name that can be a file's.
fn memory_name(text: &str) -> Result<&str, String> {
    let name = text.strip_prefix("//").unwrap_or(text);
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.len() > 64 || !name.bytes().all(fits) {
        return Err("names a queue by at most 64 of a-z A-Z 0-9 - and _, such as memory:orders".into());
    }
    Ok(name)
}

/// A URI's text with its `%41` escapes resolved; `None` where they are broken.
#[must_use]
pub fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            bytes.push(digit(rest.next()?)? * 16 + digit(rest.next()?)?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_names_the_broker_and_a_password_is_never_shown() {
        let rows = [
            ("sqlite:corelane.db", "sqlite", "sqlite:corelane.db"),
            ("sqlite:///var/q.db", "sqlite", "sqlite:/var/q.db"),
            ("memory:orders-1", "memory", "memory:orders-1"),
            ("memory://orders", "memory", "memory:orders"),
            ("https://sqs.eu/1/orders", "sqs", "https://sqs.eu/1/orders"),
            ("nats://u:secret@h:4222/s", "nats", "nats://***@h:4222/s"),
            ("nats://u:p@ss@h:4222/s", "nats", "nats://***@h:4222/s"),
            ("amqps://u:p@h/v", "rabbitmq", "amqps://***@h/v"),
            ("activemq://h:61616/q", "activemq", "activemq://h:61616/q"),
            ("activemq+ssl://u:p@h/q", "activemq", "activemq+ssl://***@h/q"),
            (
                "failover:(tcp://a,tcp://b)/q?user=u&password=p",
                "activemq",
                "failover:(tcp://a,tcp://b)/q?***",
            ),
        ];
        for (text, broker, shown) in rows {
            let uri = QueueUri::parse(text).expect(text);
            assert_eq!((uri.broker(), uri.to_string().as_str()), (broker, shown));
        }
        for bad in ["orders", "kafka://h/t", "sqlite:", "nats://", "memory:", "memory:a/b", "memory:.."] {
            assert!(QueueUri::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn escapes_are_resolved_and_broken_ones_refused() {
        let rows = [
            ("plain", Some("plain")),
            ("%2F", Some("/")),
            ("a%40b%3a", Some("a@b:")),
            ("%C3%A4", Some("ä")),
            ("%", None),
            ("%4", None),
            ("%zz", None),
            ("%ff", None),
        ];
        for (text, want) in rows {
            assert_eq!(decoded(text).as_deref(), want, "{text}");
        }
    }
}
