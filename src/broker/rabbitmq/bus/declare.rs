//! Declares all that a service needs at the broker. Declaring it again changes nothing.

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, ExchangeKind};
use thiserror::Error;

use super::names::{Prefix, RETRY_KEY, Service};

/// How long a rejected message waits before it is brought back.
pub(super) const RETRY_TTL_MS: i32 = 5_000;
/// The broker's code for what is there with other settings.
const PRECONDITION_FAILED: u16 = 406;
/// And for what is not there.
pub(super) const NOT_FOUND: u16 = 404;

/// Why it can't be declared.
#[derive(Debug, Error)]
pub(crate) enum DeclareError {
    /// Something of that name is there, and differs.
    #[error("{what} is there with another {argument}: delete it, or name another service ({said})")]
    Differs {
        /// Kind and name.
        what: String,
        /// What differs.
        argument: String,
        /// The broker's words.
        said: String,
    },
    /// Nobody has declared it.
    #[error("there is no exchange {name}: declare a service of it first (corelane bus declare)")]
    Missing {
        /// Which.
        name: String,
    },
    /// The broker refuses it or is away.
    #[error("{what}: {source}")]
    Refused {
        /// Kind and name.
        what: String,
        /// The broker's words.
        source: lapin::Error,
    },
}

impl DeclareError {
    fn new(what: String, source: lapin::Error) -> Self {
        let text = match source.kind() {
            lapin::ErrorKind::ProtocolError(error) if error.get_id() == PRECONDITION_FAILED => {
                error.get_message().to_string()
            }
            _ => return Self::Refused { what, source },
        };
        let argument = text.split("inequivalent arg '").nth(1).and_then(|rest| rest.split('\'').next());
        let argument = argument.unwrap_or("setting").to_owned();
        let said = text.trim_start_matches("PRECONDITION_FAILED - ").to_owned();
        Self::Differs { what, argument, said }
    }
}

/// Fails where a prefix's exchange is not there: no service of it was ever declared.
pub(crate) async fn check_main(channel: &Channel, prefix: &Prefix) -> Result<(), DeclareError> {
    let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
    let name = prefix.main_exchange();
    let found =
        channel.exchange_declare(short(&name), ExchangeKind::Fanout, options, FieldTable::default()).await;
    found.map_err(|error| match error.kind() {
        lapin::ErrorKind::ProtocolError(said) if said.get_id() == NOT_FOUND => DeclareError::Missing { name },
        _ => DeclareError::Refused { what: format!("exchange {name}"), source: error },
    })
}

/// Declares a service's exchanges, queues and bindings. The way back first: a message that is rejected before its retry
/// queue is there would be gone.
pub(crate) async fn declare(channel: &Channel, service: &Service) -> Result<(), DeclareError> {
    exchange(channel, service.retry_exchange(), ExchangeKind::Direct).await?;
    let waiting = [
        ("x-message-ttl", AMQPValue::LongInt(RETRY_TTL_MS)),
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text(&service.queue())),
    ];
    queue(channel, service.retry_queue(), &waiting).await?;
    bind(channel, service.retry_queue(), service.retry_exchange(), RETRY_KEY).await?;
    queue(channel, service.dlq(), &[]).await?;
    let consumed = [
        ("x-dead-letter-exchange", text(&service.retry_exchange())),
        ("x-dead-letter-routing-key", text(RETRY_KEY)),
    ];
    queue(channel, service.queue(), &consumed).await?;
    exchange(channel, service.main_exchange(), ExchangeKind::Fanout).await?;
    bind(channel, service.queue(), service.main_exchange(), "").await
}

async fn exchange(channel: &Channel, name: String, kind: ExchangeKind) -> Result<(), DeclareError> {
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let declared = channel.exchange_declare(short(&name), kind, options, FieldTable::default()).await;
    declared.map_err(|error| DeclareError::new(format!("exchange {name}"), error))
}

async fn queue(channel: &Channel, name: String, arguments: &[(&str, AMQPValue)]) -> Result<(), DeclareError> {
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let mut table = FieldTable::default();
    // Said, because a vhost may make other queues by default.
    table.insert(short("x-queue-type"), text("classic"));
    for (key, value) in arguments {
        table.insert(short(key), value.clone());
    }
    let declared = channel.queue_declare(short(&name), options, table).await;
    declared.map(drop).map_err(|error| DeclareError::new(format!("queue {name}"), error))
}

async fn bind(channel: &Channel, queue: String, exchange: String, key: &str) -> Result<(), DeclareError> {
    let (names, options) = ([short(&queue), short(&exchange)], QueueBindOptions::default());
    let [queue_name, exchange_name] = names;
    let bound =
        channel.queue_bind(queue_name, exchange_name, short(key), options, FieldTable::default()).await;
    bound.map_err(|error| {
        DeclareError::new(format!("the binding of queue {queue} to exchange {exchange}"), error)
    })
}

/// Names are checked to be short enough when a [`Service`] is made.
fn short(name: &str) -> ShortString {
    ShortString::from(name)
}

fn text(words: &str) -> AMQPValue {
    AMQPValue::LongString(words.into())
}
