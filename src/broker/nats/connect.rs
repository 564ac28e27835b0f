//! Reaching a server and finding, or making, the consumer.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, RequestErrorKind, ServerError};
use bytes::Bytes;
use tokio::sync::watch;

use super::address::{Address, Auth};
use super::wire::{self, ApiError, Consumer, Reply};
use crate::ingress::ReceiveError;

/// How long one address may take to accept us.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long JetStream may take to answer a question.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// A connection that carries nothing is tried this often; two tries without an answer end it.
const PING_EVERY: Duration = Duration::from_secs(10);

/// What a connection says of itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Signs {
    /// It was lost. The client may mend it by itself, but what was on its way is gone, so it is not used again.
    pub(super) lost: bool,
    /// The last thing that the server complained of.
    pub(super) complaint: Option<String>,
}

/// Why a question has no answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// JetStream answered, and refuses.
    Refused(ApiError),
    /// It can't be reached now.
    Away(String),
    /// We may not ask.
    Forbidden(String),
}

/// An operator must mend it.
pub(super) fn denied(address: &Address, why: impl std::fmt::Display) -> ReceiveError {
    ReceiveError::Denied { queue: format!("{address}: {why}") }
}

/// Waiting mends it.
pub(super) fn away(address: &Address, why: impl std::fmt::Display) -> ReceiveError {
    ReceiveError::Unreachable(std::io::Error::other(format!("{address}: {why}")))
}

impl Fault {
    pub(super) fn into_error(self, address: &Address) -> ReceiveError {
        match self {
            // JetStream's 5xx: no leader yet, no memory left, not ready.
            Self::Refused(error) if error.code >= 500 => {
                away(address, format_args!("JetStream is not ready: {}", error.description))
            }
            Self::Refused(error) if error.err_code == wire::STREAM_NOT_FOUND => denied(
                address,
                format_args!("there is no stream {}: create it, or mend the URI", address.stream),
            ),
            Self::Refused(error) => denied(address, format_args!("JetStream refuses: {}", error.description)),
            Self::Away(why) => away(address, why),
            Self::Forbidden(why) => {
                denied(address, format_args!("{why}: let the user do that, or use another"))
            }
        }
    }
}

/// Connects to one of the servers.
pub(super) async fn connect(address: &Address) -> Result<(Client, watch::Receiver<Signs>), ReceiveError> {
    let (signs, seen) = watch::channel(Signs::default());
    let options = options(address, signs).await?;
    let servers = address.servers.clone();
    // Reading the system's certificates blocks, so it happens elsewhere; the connection's tasks run here.
    let runtime = tokio::runtime::Handle::current();
    let connecting = tokio::task::spawn_blocking(move || runtime.block_on(options.connect(servers)));
    let connected = connecting.await.map_err(|error| away(address, error))?;
    let client = connected.map_err(|error| match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            denied(address, "the server refuses the credentials: mend user, password, token or creds=")
        }
        _ => away(address, error),
    })?;
    Ok((client, seen))
}

async fn options(address: &Address, signs: watch::Sender<Signs>) -> Result<ConnectOptions, ReceiveError> {
    let signs = Arc::new(signs);
    let options = ConnectOptions::new()
        .name("corelane")
        .connection_timeout(CONNECT_MAX)
        .request_timeout(Some(ANSWER_MAX))
        .ping_interval(PING_EVERY)
        // Each server once. A lost connection is not used again, and its client must not go on trying for ever.
        .max_reconnects(address.servers.len())
        .ignore_discovered_servers()
        .skip_subject_validation(true)
        .event_callback(move |event| {
            note(&signs, &event);
            std::future::ready(())
        });
    let options = match &address.auth {
        Auth::Nobody => options,
        Auth::Password(user, password) => {
            options.user_and_password(user.clone(), password.reveal().to_owned())
        }
        Auth::Token(token) => options.token(token.reveal().to_owned()),
        Auth::File(path) => options
            .credentials_file(path)
            .await
            .map_err(|error| denied(address, format_args!("read creds={}: {error}", path.display())))?,
    };
    let options = match &address.ca {
        Some(ca) => options.add_root_certificates(ca.clone()),
        None => options,
    };
    Ok(match &address.identity {
        Some((cert, key)) => options.add_client_certificate(cert.clone(), key.clone()),
        None => options,
    })
}

fn note(signs: &watch::Sender<Signs>, event: &Event) {
    match event {
        Event::Disconnected | Event::Closed => signs.send_modify(|signs| signs.lost = true),
        Event::ServerError(ServerError::Other(text)) => {
            signs.send_modify(|signs| signs.complaint = Some(text.clone()));
        }
        _ => {}
    }
}

/// Asks JetStream something about a consumer.
pub(super) async fn ask(
    client: &Client,
    signs: &watch::Receiver<Signs>,
    what: String,
    body: Bytes,
) -> Result<Consumer, Fault> {
    let asked = format!("$JS.API.{what}");
    let answer = client.request(asked.clone(), body).await.map_err(|error| match error.kind() {
        RequestErrorKind::NoResponders => Fault::Away("no JetStream answers: is it enabled there?".into()),
        kind => match signs.borrow().complaint.clone() {
            Some(text) if is_forbidden(&text, &asked) => Fault::Forbidden(text),
            _ => Fault::Away(format!("ask JetStream: {kind}")),
        },
    })?;
    match serde_json::from_slice(&answer.payload) {
        Ok(Reply::Consumer(consumer)) => Ok(*consumer),
        Ok(Reply::Refused { error }) => Err(Fault::Refused(error)),
        Err(error) => Err(Fault::Away(format!("JetStream's answer can't be read: {error}"))),
    }
}

/// Does the server's complaint say that we may not ask this, or may not hear answers? Others complain on this connection
/// too.
fn is_forbidden(complaint: &str, subject: &str) -> bool {
    let (complaint, subject) = (complaint.to_ascii_lowercase(), subject.to_ascii_lowercase());
    complaint.contains("permissions violation")
        && (complaint.contains(&subject) || complaint.contains("_inbox"))
}

/// The consumer, made if it is not there and may be made.
pub(super) async fn bind(
    client: &Client,
    signs: &watch::Receiver<Signs>,
    address: &Address,
    lease: Duration,
) -> Result<Consumer, ReceiveError> {
    let Address { stream, consumer, .. } = address;
    let info = || ask(client, signs, format!("CONSUMER.INFO.{stream}.{consumer}"), Bytes::new());
    let found = match info().await {
        Err(Fault::Refused(error)) if error.err_code == wire::CONSUMER_NOT_FOUND && address.create => {
            let body = wire::consumer_to_create(stream, consumer, address.subject.as_deref(), lease);
            match ask(client, signs, format!("CONSUMER.CREATE.{stream}.{consumer}"), body).await {
                // Another router may have made it meanwhile.
                Err(Fault::Refused(error)) => info().await.map_err(|_| Fault::Refused(error)),
                made => made,
            }
        }
        Err(Fault::Refused(error)) if error.err_code == wire::CONSUMER_NOT_FOUND => {
            let why = format!("there is no consumer {consumer}, and create=false: create it, or allow that");
            return Err(denied(address, why));
        }
        found => found,
    };
    let found = found.map_err(|fault| fault.into_error(address))?;
    match found.config.refusal(address.subject.as_deref()) {
        Some(why) => Err(denied(address, format_args!("consumer {consumer} can't be used: {why}"))),
        None => Ok(found),
    }
}
