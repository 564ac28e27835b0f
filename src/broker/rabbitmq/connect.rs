//! Reaching a server. A connection that is lost is never mended: what was on its way is gone, so a new one is made.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lapin::tcp::{AMQPUriTcpExt, OwnedIdentity, OwnedTLSConfig};
use lapin::types::{LongString, ShortString};
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{AsyncTcpStream, Channel, Connection, ConnectionProperties, ErrorKind};
use parking_lot::Mutex;
use rustix::net::Shutdown;

use super::address::{Address, Place};
use crate::ingress::ReceiveError;

/// How long one server may take to accept us, TLS and the AMQP handshake included.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long a channel may take to open.
const CHANNEL_MAX: Duration = Duration::from_secs(5);
/// How long the server may take to say goodbye.
const CLOSE_MAX: Duration = Duration::from_secs(1);
/// Seconds. Half of it after the last word a heartbeat is sent; twice of it without a word ends the connection.
const HEARTBEAT_S: u16 = 5;
/// What AMQP's close says when all is well.
pub(super) const REPLY_SUCCESS: u16 = 200;

/// AMQP's reply codes, as far as they are told apart here.
mod code {
    pub(super) const CONNECTION_FORCED: u16 = 320;
    pub(super) const ACCESS_REFUSED: u16 = 403;
    pub(super) const NOT_FOUND: u16 = 404;
    pub(super) const RESOURCE_LOCKED: u16 = 405;
    pub(super) const NOT_ALLOWED: u16 = 530;
}

/// An operator must mend it.
pub(crate) fn denied(address: &Address, why: impl std::fmt::Display) -> ReceiveError {
    ReceiveError::Denied { queue: format!("{address}: {why}") }
}

/// Waiting mends it.
pub(crate) fn away(address: &Address, why: impl std::fmt::Display) -> ReceiveError {
    ReceiveError::Unreachable(std::io::Error::other(format!("{address}: {why}")))
}

/// A second handle of the connection's socket. The client's thread waits on the first without an end while a server
/// says nothing; shutting the socket down ends it.
#[derive(Clone, Default)]
struct Socket(Arc<Mutex<Option<OwnedFd>>>);

impl Socket {
    fn keep(&self, socket: &impl AsFd) {
        *self.0.lock() = socket.as_fd().try_clone_to_owned().ok();
    }

    fn cut(&self) {
        if let Some(socket) = self.0.lock().take() {
            // It may be closed already: then there is nothing to do.
            let _ = rustix::net::shutdown(&socket, Shutdown::Both);
        }
    }
}

/// A connection. Cut when it is dropped: the server takes back what was not settled.
pub(crate) struct Line {
    connection: Connection,
    socket: Socket,
}

impl Line {
    /// Connects to the first server that accepts us.
    ///
    /// # Errors
    /// Each server's reason, or the first refusal: the others would say the same.
    pub(crate) async fn connect(address: &Address) -> Result<Self, ReceiveError> {
        let tls = tls(address).await?;
        let mut reasons = Vec::new();
        for (host, port) in &address.servers {
            let socket = Socket::default();
            match tokio::time::timeout(CONNECT_MAX, open(address, host, *port, &tls, &socket)).await {
                Ok(Ok(connection)) => return Ok(Self { connection, socket }),
                Ok(Err(error)) => match fault(address, &error) {
                    Fault::Denied(why) => return Err(denied(address, why)),
                    Fault::Away(why) => reasons.push(format!("{host}:{port}: {why}")),
                },
                Err(_) => reasons.push(format!("{host}:{port}: no answer in {} s", CONNECT_MAX.as_secs())),
            }
            socket.cut();
        }
        Err(away(address, reasons.join("; ")))
    }

    /// Opens a channel.
    ///
    /// # Errors
    /// The connection is lost or the server does not answer.
    pub(crate) async fn channel(&self, address: &Address) -> Result<Channel, ReceiveError> {
        match tokio::time::timeout(CHANNEL_MAX, self.open_channel()).await {
            Ok(Ok(channel)) => Ok(channel),
            Ok(Err(error)) => Err(receive_error(address, &error)),
            Err(_) => Err(away(address, "the server does not open a channel")),
        }
    }

    /// The same with the client's own error, and not bounded in time.
    ///
    /// # Errors
    /// The connection is lost, or the server opens no more.
    pub(crate) async fn open_channel(&self) -> lapin::Result<Channel> {
        self.connection.create_channel().await
    }

    /// It is of no use any more.
    pub(crate) fn is_lost(&self) -> bool {
        !self.connection.status().connected()
    }

    /// Says goodbye, so that what was sent before is taken, and cuts it. False if the server did not answer: it may take
    /// the connection for a live one for a while.
    pub(crate) async fn close(&self) -> bool {
        let goodbye = self.connection.close(REPLY_SUCCESS, ShortString::from("OK"));
        let heard = !self.is_lost() && matches!(tokio::time::timeout(CLOSE_MAX, goodbye).await, Ok(Ok(())));
        self.socket.cut();
        heard
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.socket.cut();
    }
}

async fn open(
    address: &Address,
    host: &str,
    port: u16,
    tls: &OwnedTLSConfig,
    socket: &Socket,
) -> lapin::Result<Connection> {
    let uri = AMQPUri {
        scheme: if address.tls { AMQPScheme::AMQPS } else { AMQPScheme::AMQP },
        authority: AMQPAuthority {
            userinfo: AMQPUserInfo {
                username: address.user.clone(),
                password: address.password.reveal().to_owned(),
            },
            host: host.to_owned(),
            port,
        },
        vhost: address.vhost.clone(),
        query: AMQPQueryString { heartbeat: Some(HEARTBEAT_S), ..AMQPQueryString::default() },
    };
    let options = ConnectionProperties::default().with_connection_name(LongString::from("corelane"));
    let (tls, socket) = (tls.clone(), socket.clone());
    let runtime = lapin::runtime::default_runtime()?;
    Connection::connector(
        uri,
        runtime,
        // Runs on the client's own thread, so that reading the system's certificates does not stop the ingress.
        async move |uri, runtime| {
            let stream = AMQPUriTcpExt::connect_with_config_async(&uri, tls.as_ref(), &runtime);
            let stream = tokio::time::timeout(CONNECT_MAX, stream).await.map_err(std::io::Error::from)??;
            match &stream {
                AsyncTcpStream::Plain(tcp) => socket.keep(tcp.get_ref()),
                AsyncTcpStream::Rustls(tls) => socket.keep(tls.get_ref().0.get_ref()),
                _ => {}
            }
            Ok(stream)
        },
        options,
    )
    .await
}

/// Reads the certificates that the URI names.
async fn tls(address: &Address) -> Result<OwnedTLSConfig, ReceiveError> {
    let (ca, identity) = (address.ca.clone(), address.identity.clone());
    if ca.is_none() && identity.is_none() {
        return Ok(OwnedTLSConfig::default());
    }
    let read = tokio::task::spawn_blocking(move || read_tls(ca.as_deref(), identity.as_ref()));
    let read = read.await.map_err(|error| away(address, error))?;
    read.map_err(|why| denied(address, why))
}

fn read_tls(ca: Option<&Path>, identity: Option<&(PathBuf, PathBuf)>) -> Result<OwnedTLSConfig, String> {
    let read = |option: &str, path: &Path| {
        std::fs::read(path).map_err(|error| format!("read {option}={}: {error}", path.display()))
    };
    let cert_chain = match ca {
        Some(path) => {
            let text = String::from_utf8(read("ca", path)?).unwrap_or_default();
            if !text.contains("BEGIN CERTIFICATE") {
                return Err(format!("ca={} holds no certificate in PEM", path.display()));
            }
            Some(text)
        }
        None => None,
    };
    let identity = match identity {
        Some((cert, key)) => Some(OwnedIdentity::PKCS8 { pem: read("cert", cert)?, key: read("key", key)? }),
        None => None,
    };
    Ok(OwnedTLSConfig { identity, cert_chain })
}

/// What is wrong, in words for an operator.
pub(crate) enum Fault {
    /// An operator mends it.
    Denied(String),
    /// Waiting mends it.
    Away(String),
}

/// What an error of the client means.
pub(crate) fn fault(address: &Address, error: &lapin::Error) -> Fault {
    let ErrorKind::ProtocolError(said) = error.kind() else {
        return Fault::Away(match error.kind() {
            ErrorKind::IOError(error) => error.to_string(),
            ErrorKind::MissingHeartbeatError => "no heartbeat came: the server or the network hangs".into(),
            ErrorKind::ParsingError(_) | ErrorKind::InvalidProtocolVersion(_) => {
                "what answers there does not speak AMQP 0-9-1".into()
            }
            ErrorKind::InvalidChannelState(..) | ErrorKind::InvalidConnectionState(_) => {
                "the connection was lost".into()
            }
            _ => error.to_string(),
        });
    };
    let text = said.get_message().as_str();
    let place = match &address.place {
        Place::Queue(queue) => format!("queue {}", queue.name),
        Place::Bus(service) => format!("queue or exchange of service {}", service.name),
        Place::Vhost => "such queue or exchange".to_owned(),
    };
    let vhost = &address.vhost;
    match said.get_id() {
        code::ACCESS_REFUSED if text.contains("Login was refused") || text.contains("login refused") => {
            Fault::Denied("the server refuses the credentials: mend user and password".into())
        }
        code::ACCESS_REFUSED => Fault::Denied(format!(
            "the user may not do that: give it the permission, or use another ({text})"
        )),
        code::NOT_FOUND => {
            Fault::Denied(format!("there is no {place} in vhost {vhost}: make it, or mend the URI ({text})"))
        }
        code::RESOURCE_LOCKED => Fault::Denied(format!("another connection has it alone ({text})")),
        code::NOT_ALLOWED if text.contains("not found") => {
            Fault::Denied(format!("there is no vhost {vhost}: make it, or mend the URI"))
        }
        code::NOT_ALLOWED => Fault::Denied(format!("the server does not allow it ({text})")),
        code::CONNECTION_FORCED => Fault::Away(format!("the server closed the connection ({text})")),
        _ => Fault::Away(format!("the server said {text:?}")),
    }
}

/// The same as an error of a receive.
pub(crate) fn receive_error(address: &Address, error: &lapin::Error) -> ReceiveError {
    match fault(address, error) {
        Fault::Denied(why) => denied(address, why),
        Fault::Away(why) => away(address, why),
    }
}
