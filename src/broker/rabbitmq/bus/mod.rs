//! The event bus: services that hear one exchange, each with a queue, a way back for what failed, and a DLQ. Every
//! message is a lane of its own, and a call is judged by the bus document's table. Core: the ingress.
//!
//! - B1: a message leaves its queue only when it was delivered, when the broker has it in the retry queue, or when the
//!   DLQ has it.
//! - B2: a retry reaches the service that failed, and no other.
//! - B3: only a call that was made counts as a retry.

mod bury;
pub(crate) mod client;
mod declare;
pub(crate) mod dlq;
mod headers;
mod judge;
pub(crate) mod names;
pub(crate) mod publish;
mod source;

pub use source::BusQueue;

use std::time::Duration;

use lapin::BasicProperties;

use super::address::{Address, Place};
use super::connect::{Line, away, denied, receive_error};
use crate::ingress::ReceiveError;
use declare::DeclareError;
use names::Service;

/// How long the server may take to declare a service.
const DECLARE_MAX: Duration = Duration::from_secs(10);

/// What the bus must know of a message that was handed over.
#[derive(Clone, Debug)]
pub(super) struct Note {
    /// How often it was brought back before.
    retries: u32,
    /// Kept, with its body, where the next failure sends it to the DLQ.
    properties: Option<Box<BasicProperties>>,
    body_bytes: usize,
}

/// Declares what an address needs before it is consumed: for a service of the bus all of it, for a queue nothing.
pub(super) async fn prepare(address: &Address, line: &Line) -> Result<(), ReceiveError> {
    let Place::Bus(service) = &address.place else { return Ok(()) };
    let service = Service::new(&service.name).map_err(|why| denied(address, why))?;
    let channel = line.channel(address).await?;
    match tokio::time::timeout(DECLARE_MAX, declare::declare(&channel, &service)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(DeclareError::Refused { source, .. })) => Err(receive_error(address, &source)),
        Ok(Err(error)) => Err(denied(address, error)),
        Err(_) => Err(away(address, "the server does not declare the service's queues")),
    }
}
