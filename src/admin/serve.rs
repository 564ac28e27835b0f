//! The server: what may be set, the listener, and connections within limits.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ConnectInfo;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use super::guard::Guard;
use super::port::Router;
use super::practice::Practice;
use super::routes::{Api, routes};
use super::token::Token;
use crate::telemetry::metrics::LABEL_VALUES_MAX;

/// Connections at once; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 1_024;
/// A request's head must be there by then; also how long an unused connection is kept.
const HEAD_TIME_MAX: Duration = Duration::from_secs(15);
/// Headers of a request, and bytes of its head.
const HEADERS_MAX: usize = 64;
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// A connection is ended after this, whatever it does: a reader that takes nothing cannot stay for ever.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(15 * 60);
/// Requests that run when the server ends have this long.
const LAST_REQUESTS: Duration = Duration::from_secs(2);
/// Pause after a failed accept: without descriptors, trying at once would only burn the core.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What may be set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// What callers must show; needed unless `listen` is a loopback address.
    pub token: Option<Token>,
    /// Host names, besides localhost and IP addresses, by which callers reach us.
    pub hosts: Vec<String>,
    /// Pools, queues and targets that have label values of their own in the metrics.
    pub label_values_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            token: None,
            hosts: Vec::new(),
            label_values_max: LABEL_VALUES_MAX,
        }
    }
}

/// Why the server does not start. The operator mends it.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// Others could reach it, and nothing would stop them.
    #[error(
        "the admin API would listen on {0}, which others can reach: set a token (admin.token-file, or CORELANE_ADMIN_TOKEN), or listen on 127.0.0.1"
    )]
    TokenMissing(SocketAddr),
    /// The address can't be had.
    #[error(
        "listen on {address} for the admin API: {source}; is another corelane running? Set admin.listen to another port"
    )]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
}

/// A server that listens and does not serve yet.
#[derive(Debug)]
pub struct Admin {
    listener: TcpListener,
    address: SocketAddr,
    settings: Settings,
}

impl Admin {
    /// Checks the settings and listens.
    ///
    /// # Errors
    /// The settings are not safe, or the address can't be had.
    pub async fn bind(settings: Settings) -> Result<Self, SettingsError> {
        if settings.token.is_none() && !settings.listen.ip().to_canonical().is_loopback() {
            return Err(SettingsError::TokenMissing(settings.listen));
        }
        let wrap = |source| SettingsError::Listen { address: settings.listen, source };
        let listener = TcpListener::bind(settings.listen).await.map_err(wrap)?;
        let address = listener.local_addr().map_err(wrap)?;
        Ok(Self { listener, address, settings })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`, then lets running requests finish for a moment.
    pub async fn serve<R: Router>(self, router: Arc<R>, stop: impl Future<Output = ()>) {
        let api = Arc::new(Api {
            router,
            guard: Guard::new(self.settings.token, &self.settings.hosts, self.address.ip()),
            practice: Practice::new(),
            label_values_max: self.settings.label_values_max,
            address: self.address,
        });
        let paths = routes(&api);
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let (ending, ended) = watch::channel(false);
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = accept(&self.listener, &connections) => accepted,
            };
            let (stream, peer, permit) = accepted;
            let (paths, ended) = (paths.clone(), ended.clone());
            tokio::spawn(async move {
                converse(stream, peer, paths, ended).await;
                drop(permit);
            });
        }
        let _ = ending.send(true);
        let all = u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout(LAST_REQUESTS, connections.acquire_many(all)).await;
    }
}

async fn accept(
    listener: &TcpListener,
    connections: &Arc<Semaphore>,
) -> (TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit) {
    let permit = Arc::clone(connections).acquire_owned().await.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (stream, peer, permit),
            Err(error) => {
                tracing::warn!(%error, "accept an admin connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves one connection to its end. What goes wrong on it is the caller's to see, not ours to log.
async fn converse(
    stream: TcpStream,
    peer: SocketAddr,
    paths: axum::Router,
    mut ended: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let paths = TowerToHyperService::new(paths);
    let service = service_fn(move |mut request| {
        request.extensions_mut().insert(ConnectInfo(peer));
        paths.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let old = tokio::time::sleep(CONNECTION_AGE_MAX);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = old => {}
        _ = ended.wait_for(|ended| *ended) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(LAST_REQUESTS, connection).await;
}
