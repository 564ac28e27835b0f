//! Reaching a broker: a socket, perhaps TLS, the agreement on how to speak, and our name and password.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::address::{Address, Host};
use super::line::{Fault, Line};
use super::tls;
use super::wire::{self, Command, FRAME_BYTES_MAX, Refusal, Scribe, VERSION_MAX, VERSION_MIN, WireFormat};
use crate::ingress::ReceiveError;

/// How long one broker may take to accept us.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// A connection that carries nothing for so long is lost: we give it up, and so does the broker, which then hands what we
/// had to others.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Why one broker did not accept us.
enum Failure {
    /// Another one, or the same later, may.
    Away(String),
    /// An operator must mend it.
    Denied(String),
}

/// A socket, with TLS or without.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

/// A connection that the broker has accepted. Its tasks end with it.
pub(super) struct Connection {
    pub(super) line: Rc<Line>,
    /// Largest frame that the broker takes.
    pub(super) frame_bytes_max: usize,
    /// What reads and what listens. What writes ends by itself, when the last word is out.
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.line.is_lost() {
            self.line.say(&self.line.scribe.shutdown());
            self.line.lose("the connection was given up");
        }
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// An operator must mend it.
pub(super) fn denied(address: &Address, why: impl std::fmt::Display) -> ReceiveError {
    ReceiveError::Denied { queue: format!("{address}: {why}") }
}

/// Waiting mends it.
pub(super) fn away(address: &Address, why: impl std::fmt::Display) -> ReceiveError {
    ReceiveError::Unreachable(io::Error::other(format!("{address}: {why}")))
}

/// What a refusal of the broker means for its queue.
pub(super) fn refused(address: &Address, why: &Refusal) -> ReceiveError {
    match denial(why) {
        Some(said) => denied(address, said),
        None => away(address, format_args!("the broker refuses: {} ({})", why.text, short(&why.class))),
    }
}

/// Words for what only an operator can mend.
fn denial(why: &Refusal) -> Option<String> {
    let Refusal { class, text } = why;
    match short(class) {
        "SecurityException" | "JMSSecurityException" => {
            Some(format!("the broker refuses: {text}: mend user and password, or let the user do that"))
        }
        "InvalidDestinationException" => Some(format!("the broker refuses the queue: {text}")),
        _ => None,
    }
}

fn short(class: &str) -> &str {
    class.rsplit('.').next().unwrap_or(class)
}

/// Connects to one of the brokers, `first` before the others. Says which one it was.
///
/// `connection` names this connection, `client` all that follow one another: a broker that still has the last one refuses,
/// so that we are not handed newer messages while it keeps older ones for it.
pub(super) async fn connect(
    address: &Address,
    first: usize,
    [client, connection]: [&str; 2],
) -> Result<(Connection, usize), ReceiveError> {
    let mut said = Vec::new();
    for turn in 0..address.hosts.len() {
        let at = (first + turn) % address.hosts.len();
        let host = &address.hosts[at];
        let opened = tokio::time::timeout(CONNECT_MAX, open(address, host, [client, connection])).await;
        match opened.unwrap_or_else(|_| Err(Failure::Away("it does not answer".into()))) {
            Ok(connection) => return Ok((connection, at)),
            Err(Failure::Denied(why)) => return Err(denied(address, why)),
            Err(Failure::Away(why)) => said.push(format!("{host}: {why}")),
        }
    }
    Err(away(address, said.join("; ")))
}

async fn open(
    address: &Address,
    host: &Host,
    [client, connection]: [&str; 2],
) -> Result<Connection, Failure> {
    let gone = |error: io::Error| Failure::Away(error.to_string());
    let socket = TcpStream::connect((host.name.as_str(), host.port)).await.map_err(gone)?;
    socket.set_nodelay(true).map_err(gone)?;
    let mut stream: Box<dyn Stream> = if host.tls {
        Box::new(tls::wrap(socket, address, host).await.map_err(Failure::Away)?)
    } else {
        Box::new(socket)
    };
    let (agreed, rest) = agree(&mut stream).await?;
    let scribe = Scribe::new(connection.to_owned(), agreed.version);
    let line = Rc::new(Line::new(scribe));
    let (reading, writing) = tokio::io::split(stream);
    let silence_max = match u64::try_from(agreed.silence_max_ms) {
        // A broker that is set up not to listen for silence is still listened to.
        Ok(0) | Err(_) => SILENCE_MAX,
        Ok(millis) => Duration::from_millis(millis),
    };
    tokio::task::spawn_local(Rc::clone(&line).write(writing));
    let connection = Connection {
        frame_bytes_max: usize::try_from(agreed.frame_bytes_max).unwrap_or(FRAME_BYTES_MAX),
        tasks: [
            tokio::task::spawn_local(Rc::clone(&line).read(reading, rest)),
            tokio::task::spawn_local(Rc::clone(&line).listen(silence_max)),
        ],
        line,
    };
    let user = address.user.as_ref().map(|(user, password)| (user.as_str(), password.reveal()));
    let hello = connection.line.scribe.connection(client, user);
    match connection.line.ask(&hello).await {
        Ok(()) => Ok(connection),
        Err(Fault::Lost(why)) => Err(Failure::Away(why)),
        Err(Fault::Refused(why)) if short(&why.class) == "InvalidClientIDException" => {
            Err(Failure::Away("the broker has not noticed yet that our last connection is gone".into()))
        }
        Err(Fault::Refused(why)) => Err(match denial(&why) {
            Some(said) => Failure::Denied(said),
            None => Failure::Away(format!("the broker refuses: {} ({})", why.text, short(&why.class))),
        }),
    }
}

/// Both sides say what they can; the lesser holds. Returns what was read beyond that.
async fn agree(stream: &mut Box<dyn Stream>) -> Result<(WireFormat, BytesMut), Failure> {
    let gone = |error: io::Error| Failure::Away(error.to_string());
    let ours = WireFormat {
        version: VERSION_MAX,
        silence_max_ms: i64::try_from(SILENCE_MAX.as_millis()).unwrap_or(i64::MAX),
        frame_bytes_max: i64::try_from(FRAME_BYTES_MAX).unwrap_or(i64::MAX),
    };
    stream.write_all(&ours.write()).await.map_err(gone)?;
    stream.flush().await.map_err(gone)?;
    let mut buffer = BytesMut::new();
    let strange = |error: wire::WireError| Failure::Away(format!("this is no OpenWire port: {error}"));
    let frame = loop {
        if let Some(frame) = wire::next_frame(&mut buffer).map_err(strange)? {
            break frame;
        }
        if stream.read_buf(&mut buffer).await.map_err(gone)? == 0 {
            return Err(Failure::Away("the connection was closed".into()));
        }
    };
    match Command::read(&frame, VERSION_MAX).map_err(strange)? {
        Command::Hello(theirs) => match ours.with(&theirs) {
            Some(agreed) => Ok((agreed, buffer)),
            None => Err(Failure::Denied(format!(
                "the broker speaks OpenWire {}, and at least {VERSION_MIN} is needed: ActiveMQ 5.8 or later",
                theirs.version
            ))),
        },
        _ => Err(Failure::Away("this is no OpenWire port".into())),
    }
}
