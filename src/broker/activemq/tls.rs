//! TLS to a broker: verified by the system's authorities, or by those that the URI names.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::address::{Address, Host};

/// Shakes hands.
pub(super) async fn wrap(
    socket: TcpStream,
    address: &Address,
    host: &Host,
) -> Result<TlsStream<TcpStream>, String> {
    let files = (address.ca.clone(), address.identity.clone());
    // Reading certificates blocks, so it happens elsewhere.
    let config = tokio::task::spawn_blocking(move || {
        config(files.0.as_deref(), files.1.as_ref().map(|(cert, key)| (cert.as_path(), key.as_path())))
    });
    let config = config.await.map_err(|error| error.to_string())??;
    let name =
        ServerName::try_from(host.name.clone()).map_err(|_| format!("{} is no name for TLS", host.name))?;
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, socket).await.map_err(|error| format!("TLS: {error}"))
}

fn config(ca: Option<&Path>, identity: Option<(&Path, &Path)>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            for certificate in certificates("ca", path)? {
                roots.add(certificate).map_err(|error| format!("ca={}: {error}", path.display()))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    match identity {
        None => Ok(builder.with_no_client_auth()),
        Some((cert, key)) => {
            let chain = certificates("cert", cert)?;
            let secret = PrivateKeyDer::from_pem_file(key)
                .map_err(|error| format!("read key={}: {error}", key.display()))?;
            builder.with_client_auth_cert(chain, secret).map_err(|error| format!("cert= and key=: {error}"))
        }
    }
}

fn certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let said = |error| format!("read {option}={}: {error}", path.display());
    let found: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(said)?.collect::<Result<_, _>>().map_err(said)?;
    if found.is_empty() {
        return Err(format!("{option}={} has no certificate", path.display()));
    }
    Ok(found)
}
