//! A small HTTP client for the edge: config sync, `status`, `explain`, `seed`. HTTP/1.1, one connection per
//! request, TLS verified by the host's authorities, time and size bounded, redirects never followed. Errors are
//! for a person and never hold a token or a URL's password.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, LOCATION};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Body;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use shards::courier::tls::{self, Roots, TlsError};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{error::Elapsed, timeout};
use tokio_rustls::TlsConnector;

use crate::secret::{Secret, without_credentials};

/// Bounds of one request.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// To open a connection, TLS included.
    pub connect: Duration,
    /// From the start to the answer's last byte, connecting included.
    pub total: Duration,
    /// Largest answer body.
    pub body_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), total: Duration::from_secs(30), body_bytes_max: 8 << 20 }
    }
}

/// A client. Without [`Client::with_tls`] the host's authorities are loaded for each `https` request.
#[derive(Clone, Debug, Default)]
pub struct Client {
    limits: Limits,
    token: Option<Secret>,
    tls: Option<Arc<rustls::ClientConfig>>,
}

/// An answer, whatever its status; 3xx is an error instead.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its body, whole.
    pub body: Bytes,
}

/// Why there is no answer. Each text says who can mend it, or how.
#[derive(Debug, Error)]
pub enum HttpError {
    /// Not a URL that can be asked.
    #[error("{0} is not an http or https URL")]
    BadUrl(String),
    /// The name has no address.
    #[error("{host} has no address: {source}; check the name")]
    NoAddress {
        /// Which name.
        host: String,
        /// What the resolver says.
        source: io::Error,
    },
    /// No one takes the connection.
    #[error("nothing listens at {at}: is `corelane run`, or the service there, up?")]
    Refused {
        /// Host and port.
        at: String,
    },
    /// The connection failed in another way.
    #[error("connect to {at}: {source}")]
    Unreachable {
        /// Host and port.
        at: String,
        /// How.
        source: io::Error,
    },
    /// No authority to verify by.
    #[error("load certificate authorities: {0}; install the host's ca-certificates")]
    Authorities(#[from] TlsError),
    /// It took too long.
    #[error("{at} did not {what} within {within:?}")]
    Slow {
        /// Host and port.
        at: String,
        /// What it was to do.
        what: &'static str,
        /// The bound.
        within: Duration,
    },
    /// Not HTTP, or broken off.
    #[error("{at} broke the exchange off: {source}; is it an HTTP server?")]
    Broken {
        /// Host and port.
        at: String,
        /// How.
        source: hyper::Error,
    },
    /// More bytes than allowed.
    #[error("{at} answered with more than {max} bytes")]
    TooLarge {
        /// Host and port.
        at: String,
        /// The bound.
        max: usize,
    },
    /// 3xx. Following it could carry a token to a stranger.
    #[error(
        "{at} answered {status} and points to {location}; redirects are not followed, use that URL if it is right"
    )]
    Redirected {
        /// Host and port.
        at: String,
        /// 3xx.
        status: StatusCode,
        /// Where to, without credentials.
        location: String,
    },
}

impl Client {
    /// A client with these bounds that brings this token.
    #[must_use]
    pub const fn new(limits: Limits, token: Option<Secret>) -> Self {
        Self { limits, token, tls: None }
    }

    /// Verifies `https` with these settings instead of the host's authorities.
    #[must_use]
    pub fn with_tls(self, tls: Arc<rustls::ClientConfig>) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// `GET`.
    ///
    /// # Errors
    /// No answer; see [`HttpError`].
    pub async fn get(&self, url: &str) -> Result<Answer, HttpError> {
        self.send(Method::GET, url, None).await
    }

    /// `POST` of JSON.
    ///
    /// # Errors
    /// No answer; see [`HttpError`].
    pub async fn post(&self, url: &str, json: impl Into<Bytes>) -> Result<Answer, HttpError> {
        self.send(Method::POST, url, Some(json.into())).await
    }

    /// `PUT` of JSON.
    ///
    /// # Errors
    /// No answer; see [`HttpError`].
    pub async fn put(&self, url: &str, json: impl Into<Bytes>) -> Result<Answer, HttpError> {
        self.send(Method::PUT, url, Some(json.into())).await
    }

    /// `DELETE`.
    ///
    /// # Errors
    /// No answer; see [`HttpError`].
    pub async fn delete(&self, url: &str) -> Result<Answer, HttpError> {
        self.send(Method::DELETE, url, None).await
    }

    async fn send(&self, method: Method, url: &str, json: Option<Bytes>) -> Result<Answer, HttpError> {
        let address = Address::read(url)?;
        let within = self.limits.total;
        let slow = |_: Elapsed| HttpError::Slow { at: address.at.clone(), what: "answer", within };
        timeout(within, self.exchange(&address, method, json)).await.map_err(slow)?
    }

    async fn exchange(
        &self,
        address: &Address,
        method: Method,
        json: Option<Bytes>,
    ) -> Result<Answer, HttpError> {
        let within = self.limits.connect;
        let slow = |_: Elapsed| HttpError::Slow { at: address.at.clone(), what: "take a connection", within };
        let stream = timeout(within, address.connect()).await.map_err(slow)??;
        let request = self.request(address, method, json)?;
        if !address.is_tls {
            return self.talk(address, TokioIo::new(stream), request).await;
        }
        let config = match &self.tls {
            Some(config) => Arc::clone(config),
            None => Arc::new(tls::config(Roots { native: true, extra_pem: &[] })?),
        };
        let name = ServerName::try_from(address.host.clone())
            .map_err(|_| HttpError::BadUrl(address.host.clone()))?;
        let secured =
            timeout(within, TlsConnector::from(config).connect(name, stream)).await.map_err(slow)?;
        let stream = secured.map_err(|source| HttpError::Unreachable { at: address.at.clone(), source })?;
        self.talk(address, TokioIo::new(stream), request).await
    }

    fn request(
        &self,
        address: &Address,
        method: Method,
        json: Option<Bytes>,
    ) -> Result<Request<Full<Bytes>>, HttpError> {
        let mut request = Request::builder()
            .method(method)
            .uri(&address.path)
            .header(HOST, &address.authority)
            .header(ACCEPT, "application/json");
        if json.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let bearer = self.token.as_ref().map(|token| format!("Bearer {}", token.reveal()));
        if let Some(words) =
            bearer.or_else(|| address.basic.as_ref().map(|basic| format!("Basic {}", basic.reveal())))
        {
            // A token that no header can carry was refused where it was read.
            let mut value = HeaderValue::try_from(words)
                .map_err(|_| HttpError::BadUrl("a token with characters that no header carries".into()))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        let wrong = |_| HttpError::BadUrl(address.at.clone());
        request.body(Full::new(json.unwrap_or_default())).map_err(wrong)
    }

    async fn talk<I>(
        &self,
        address: &Address,
        io: I,
        request: Request<Full<Bytes>>,
    ) -> Result<Answer, HttpError>
    where
        I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        let broken = |source| HttpError::Broken { at: address.at.clone(), source };
        let (mut sender, connection) = http1::handshake(io).await.map_err(broken)?;
        // Its error also reaches `send_request`. Dropped with the exchange, a time-out included, it closes.
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        self.read(address, sender.send_request(request).await.map_err(broken)).await
    }

    async fn read<B>(
        &self,
        address: &Address,
        response: Result<http::Response<B>, HttpError>,
    ) -> Result<Answer, HttpError>
    where
        B: Body<Data = Bytes, Error = hyper::Error> + Unpin,
    {
        let response = response?;
        let (status, at) = (response.status(), || address.at.clone());
        if status.is_redirection() {
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let location = location.map_or_else(|| "nowhere".into(), without_credentials);
            return Err(HttpError::Redirected { at: at(), status, location });
        }
        let max = self.limits.body_bytes_max;
        let mut stream = response.into_body();
        let mut body = BytesMut::new();
        while let Some(frame) = stream.frame().await {
            let frame = frame.map_err(|source| HttpError::Broken { at: at(), source })?;
            let Some(data) = frame.data_ref() else { continue };
            if body.len() + data.len() > max {
                return Err(HttpError::TooLarge { at: at(), max });
            }
            body.extend_from_slice(data);
        }
        Ok(Answer { status, body: body.freeze() })
    }
}

/// A URL, taken apart.
struct Address {
    is_tls: bool,
    host: String,
    port: u16,
    /// Host and port, for people.
    at: String,
    /// For the `Host` header.
    authority: String,
    path: String,
    /// User and password of the URL, base64.
    basic: Option<Secret>,
}

impl Address {
    fn read(url: &str) -> Result<Self, HttpError> {
        let wrong = || HttpError::BadUrl(without_credentials(url));
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong()),
        };
        let authority = uri.authority().ok_or_else(wrong)?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(wrong());
        }
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let (user, after) = match authority.as_str().rsplit_once('@') {
            Some((user, after)) => (Some(user), after),
            None => (None, authority.as_str()),
        };
        Ok(Self {
            is_tls,
            port,
            at: format!("{}:{port}", authority.host()),
            authority: after.to_owned(),
            path: uri.path_and_query().map_or_else(|| "/".into(), ToString::to_string),
            basic: user.map(|user| Secret::new(base64(user.as_bytes()))),
            host,
        })
    }

    async fn connect(&self) -> Result<TcpStream, HttpError> {
        let addresses = tokio::net::lookup_host((self.host.as_str(), self.port))
            .await
            .map_err(|source| HttpError::NoAddress { host: self.host.clone(), source })?;
        let mut last = io::Error::other("the name has no address");
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(match last.kind() {
            io::ErrorKind::ConnectionRefused => HttpError::Refused { at: self.at.clone() },
            _ => HttpError::Unreachable { at: self.at.clone(), source: last },
        })
    }
}

/// Base64 with padding (RFC 4648), for `Authorization: Basic`.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let [a, b, c] = [0, 1, 2].map(|at| three.get(at).copied().unwrap_or(0));
        let word = u32::from_be_bytes([0, a, b, c]);
        for at in 0..4_usize {
            let letter = LETTERS[(word >> (18 - 6 * at)) as usize & 63];
            out.push(if at <= three.len() { char::from(letter) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let address = Address::read("https://u:p@[::1]:8443/a?b=c").expect("a URL");
        assert_eq!((address.host.as_str(), address.port, address.is_tls), ("::1", 8443, true));
        assert_eq!((address.authority.as_str(), address.path.as_str()), ("[::1]:8443", "/a?b=c"));
        assert_eq!(address.basic.expect("a user").reveal(), "dTpw");
        assert_eq!(Address::read("http://h").expect("a URL").path, "/");
        for bad in ["h/path", "ftp://u:hunter2@h/x", "http:///x", ""] {
            let error = Address::read(bad).err().unwrap_or_else(|| panic!("{bad} is no URL"));
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn base64_is_the_known_one() {
        for (text, want) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(text.as_bytes()), want, "{text}");
        }
    }
}
