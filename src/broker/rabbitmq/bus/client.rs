//! The bus as the command line uses it: one connection, and what is done there by hand.

use std::io;

use super::declare;
use super::dlq::Dlq;
use super::names::{Prefix, Service};
use super::publish::Publisher;
use crate::broker::rabbitmq::address::Address;
use crate::broker::rabbitmq::connect::Line;
use crate::ingress::ReceiveError;

/// A connection to a vhost.
pub(crate) struct Client {
    address: Address,
    line: Line,
}

impl Client {
    /// Connects to the vhost of a URI.
    ///
    /// # Errors
    /// The URI is wrong, or nobody answers there, or we are refused.
    pub(crate) async fn connect(uri: &str) -> io::Result<Self> {
        let address = Address::parse_vhost(uri)
            .map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, format!("the URI {why}")))?;
        let line = Line::connect(&address).await.map_err(said)?;
        Ok(Self { address, line })
    }

    async fn channel(&self) -> io::Result<lapin::Channel> {
        self.line.channel(&self.address).await.map_err(said)
    }

    /// Declares all that a service needs.
    ///
    /// # Errors
    /// Something differs from what is there, or is refused.
    pub(crate) async fn declare(&self, service: &Service) -> io::Result<()> {
        declare::declare(&self.channel().await?, service).await.map_err(io::Error::other)
    }

    /// A way to publish to the services of a prefix.
    ///
    /// # Errors
    /// There is no such exchange, or the connection is lost.
    pub(crate) async fn publisher(&self, prefix: &Prefix) -> io::Result<Publisher> {
        declare::check_main(&self.channel().await?, prefix).await.map_err(io::Error::other)?;
        Publisher::new(self.channel().await?).await.map_err(io::Error::other)
    }

    /// A service's dead letters.
    ///
    /// # Errors
    /// There is no such queue, or the connection is lost.
    pub(crate) async fn dlq(&self, service: &Service) -> io::Result<Dlq> {
        let publisher = Publisher::new(self.channel().await?).await.map_err(io::Error::other)?;
        Dlq::open(self.channel().await?, publisher, service).await
    }

    /// Says goodbye, so that what was sent before is taken.
    pub(crate) async fn close(self) {
        self.line.close().await;
    }
}

/// What a source would have said, as an error of a command.
fn said(error: ReceiveError) -> io::Error {
    match error {
        ReceiveError::Unreachable(error) => error,
        ReceiveError::Denied { queue } => io::Error::new(io::ErrorKind::PermissionDenied, queue),
        ReceiveError::Ended => io::Error::other(error),
    }
}
