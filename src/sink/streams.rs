//! The other server: HTTP/2 and TLS, on hyper and a single-threaded tokio.
//!
//! The same scripts, as far as status, delay, headers and body go. A reset, a close and garbage all end the stream
//! with an error; the layouts that only HTTP/1.1 knows are plain answers here.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use super::SinkError;
use super::answer::{After, Play};
use super::book::Book;
use super::log::{Labels, Log};
use super::script::Shape;
use super::stats::Counters;

/// Streams a client may open on one connection: what corelane's own client asks for at most is 256.
const STREAMS_MAX: u32 = 1024;

/// A certificate for localhost, and its PEM text.
pub(super) fn self_signed(protocols: &[&[u8]]) -> Result<(Arc<ServerConfig>, String), SinkError> {
    let certificate = |error: &dyn std::fmt::Display| SinkError::Certificate(error.to_string());
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).map_err(|e| certificate(&e))?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(|e| certificate(&e))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| certificate(&e))?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .map_err(|e| certificate(&e))?;
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok((Arc::new(config), made.cert.pem()))
}

/// What all connections share.
struct Shared {
    book: Book,
    counters: Arc<Counters>,
    log: Option<Mutex<Log>>,
}

/// The server, before it runs.
pub(super) struct Server {
    shared: Arc<Shared>,
    tls: Option<TlsAcceptor>,
}

impl Server {
    pub(super) fn new(
        book: Book,
        counters: Arc<Counters>,
        log: Option<Log>,
        tls: Option<Arc<ServerConfig>>,
    ) -> Self {
        let shared = Arc::new(Shared { book, counters, log: log.map(Mutex::new) });
        Self { shared, tls: tls.map(TlsAcceptor::from) }
    }

    /// Serves until `stopped` resolves; open connections end with it.
    pub(super) fn drive(self, listener: TcpListener, mut stopped: oneshot::Receiver<()>) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    _ = &mut stopped => return Ok(()),
                };
                // A connection that failed before it was accepted is its client's business.
                let Ok((stream, _)) = accepted else { continue };
                let _ = stream.set_nodelay(true);
                let (shared, tls) = (Arc::clone(&self.shared), self.tls.clone());
                tokio::spawn(async move {
                    shared.counters.on_connect();
                    match tls {
                        None => serve_either(stream, &shared).await,
                        Some(tls) => serve_tls(stream, tls, &shared).await,
                    }
                    shared.counters.on_disconnect();
                });
            }
        })
    }
}

async fn serve_tls(stream: tokio::net::TcpStream, tls: TlsAcceptor, shared: &Arc<Shared>) {
    let Ok(stream) = tls.accept(stream).await else { return };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        serve_http2(stream, shared).await;
    } else {
        let service = service_fn(|request| reply(Arc::clone(shared), request));
        // An error here is the client's, or scripted.
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }
}

/// HTTP/2 by prior knowledge; a client that speaks HTTP/1.1, such as one that asks for the counters, is answered too.
async fn serve_either(stream: tokio::net::TcpStream, shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    let service = service_fn(move |request| reply(Arc::clone(&shared), request));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(STREAMS_MAX);
    // An error here is the client's, or scripted.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

async fn serve_http2(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    let service = service_fn(move |request| reply(Arc::clone(&shared), request));
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.max_concurrent_streams(STREAMS_MAX);
    // An error here is the client's, or scripted.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

/// Counts a request as in flight until it is answered or given up.
struct InFlight<'a>(&'a Counters);

impl InFlight<'_> {
    fn answered(self) {
        self.0.on_answers(1);
        std::mem::forget(self);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.on_give_up(1);
    }
}

async fn reply(shared: Arc<Shared>, request: Request<Incoming>) -> io::Result<Response<Full<Bytes>>> {
    let target = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let play = shared.book.play(target);
    if play.script.shape == Shape::Stats {
        return Ok(Response::new(Full::new(shared.counters.json().into())));
    }
    let text = |name: &str| {
        request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let labels = shared
        .log
        .is_some()
        .then(|| Labels { idempotency_key: text("idempotency-key"), attempt: text("corelane-attempt") });
    let body_bytes = body_bytes(request.into_body()).await?;
    shared.counters.on_request();
    let in_flight = InFlight(&shared.counters);
    if !play.delay().is_zero() {
        tokio::time::sleep(play.delay()).await;
    }
    let answer = play.answer();
    match play.script.shape {
        Shape::Never => match std::future::pending::<Infallible>().await {},
        Shape::Reset | Shape::Close | Shape::Garbage => return Err(io::ErrorKind::ConnectionReset.into()),
        _ => {}
    }
    if let (Some(log), Some(labels)) = (&shared.log, &labels) {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.note(labels, answer.status, body_bytes);
        log.flush()?;
    }
    let response = respond(&play, answer.status, answer.after);
    in_flight.answered();
    Ok(response)
}

async fn body_bytes(mut body: Incoming) -> io::Result<usize> {
    let mut count = 0;
    while let Some(frame) = body.frame().await {
        count += frame.map_err(io::Error::other)?.data_ref().map_or(0, Bytes::len);
    }
    Ok(count)
}

fn respond(play: &Play, status: u16, after: After) -> Response<Full<Bytes>> {
    let script = &play.script;
    let body = if matches!(status, 204 | 304) || after == After::Silence { "" } else { &script.body };
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(body.as_bytes())));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(wait) = script.retry_after.as_deref().and_then(|wait| HeaderValue::from_str(wait).ok()) {
        headers.insert(header::RETRY_AFTER, wait);
    }
    for n in 0..script.extra_headers {
        if let Ok(name) = header::HeaderName::from_bytes(format!("x-fill-{n}").as_bytes()) {
            headers.insert(name, HeaderValue::from(n));
        }
    }
    response
}
