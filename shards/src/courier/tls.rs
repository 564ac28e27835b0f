//! TLS as a byte machine between the wire and HTTP, on rustls.
//! Core: its shard's. Owns: one session.
//!
//! - L1: no byte of a request is encrypted before the peer's certificate was verified.
//! - L2: a peer that closes without saying so is told apart from one that does (`Tls::is_closed`).

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use thiserror::Error;

use crate::model::HttpVersion;

/// Sessions remembered per shard, for shorter handshakes.
const SESSIONS_MAX: usize = 256;

/// Whom to trust.
#[derive(Clone, Copy, Debug, Default)]
pub struct Roots<'a> {
    /// Take the host's certificate authorities.
    pub native: bool,
    /// More of them, PEM.
    pub extra_pem: &'a [u8],
}

/// Why no TLS settings could be made. An operator mends it.
#[derive(Debug, Error)]
pub enum TlsError {
    /// Not one certificate authority: every handshake would fail.
    #[error("no certificate authority found")]
    NoRoots,
    /// The extra authorities are no PEM certificates.
    #[error("read the extra certificate authorities")]
    Pem(#[source] rustls::pki_types::pem::Error),
    /// One of them can't be used.
    #[error("use the extra certificate authorities")]
    Unusable(#[source] rustls::Error),
}

/// Client settings: TLS 1.2 and 1.3, certificates verified.
///
/// # Errors
/// See [`TlsError`]. Unusable native certificates are skipped, as long as one is left.
pub fn config(roots: Roots<'_>) -> Result<ClientConfig, TlsError> {
    let mut store = RootCertStore::empty();
    if roots.native {
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    for certificate in CertificateDer::pem_slice_iter(roots.extra_pem) {
        store.add(certificate.map_err(TlsError::Pem)?).map_err(TlsError::Unusable)?;
    }
    if store.is_empty() {
        return Err(TlsError::NoRoots);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Unusable)?
        .with_root_certificates(store)
        .with_no_client_auth())
}

/// The same settings for one courier: its protocols, and sessions that it shares with no other core.
pub(super) fn for_courier(config: &ClientConfig, http: HttpVersion) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.alpn_protocols = match http {
        HttpVersion::Http1 => vec![b"http/1.1".to_vec()],
        HttpVersion::Negotiate | HttpVersion::Http2PriorKnowledge => {
            vec![b"h2".to_vec(), b"http/1.1".to_vec()]
        }
    };
    config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
    Arc::new(config)
}

/// One session. Any error ends it.
#[derive(Debug)]
pub(super) struct Tls {
    session: ClientConnection,
    closed: bool,
}

/// The session can't go on: a bad certificate, record or alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended;

impl Tls {
    pub(super) fn new(config: &Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, Ended> {
        let mut session = ClientConnection::new(Arc::clone(config), name).map_err(|_| Ended)?;
        // A request is encrypted in one go; its size is bounded already.
        session.set_buffer_limit(None);
        Ok(Self { session, closed: false })
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// The peer said that it closes.
    pub(super) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// The peer chose HTTP/2.
    pub(super) fn is_http2(&self) -> bool {
        self.session.alpn_protocol() == Some(b"h2")
    }

    /// Takes bytes from the wire and appends what they say to `plain`. Look at [`Tls::take`] afterwards,
    /// also after an error: there may be an alert to send.
    pub(super) fn read(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), Ended> {
        while !bytes.is_empty() && !self.closed {
            self.session.read_tls(&mut bytes).map_err(|_| Ended)?;
            let state = self.session.process_new_packets().map_err(|_| Ended)?;
            let start = plain.len();
            plain.resize(start + state.plaintext_bytes_to_read(), 0);
            if plain.len() > start {
                self.session.reader().read_exact(&mut plain[start..]).map_err(|_| Ended)?;
            }
            self.closed |= state.peer_has_closed();
        }
        Ok(())
    }

    /// Encrypts.
    pub(super) fn write(&mut self, plain: &[u8]) -> Result<(), Ended> {
        debug_assert!(!self.session.is_handshaking(), "L1: verified before anything is sent");
        self.session.writer().write_all(plain).map_err(|_| Ended)
    }

    /// Says that we close.
    pub(super) fn close(&mut self) {
        if !self.session.is_handshaking() {
            self.session.send_close_notify();
        }
    }

    /// Appends what has to go to the wire.
    pub(super) fn take(&mut self, out: &mut Vec<u8>) {
        // Writing to a vector does not fail.
        while self.session.wants_write() && self.session.write_tls(out).is_ok_and(|written| written > 0) {}
    }
}
