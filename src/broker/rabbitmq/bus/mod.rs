//! The event bus: services that hear one exchange, each with a queue, a way back for what failed, and a DLQ. Every
//! message is a lane of its own.
//!
//! - B1: a message leaves its queue only when it was delivered, or when the DLQ has it.
//! - B2: a retry reaches the service that failed, and no other.

pub(crate) mod client;
mod declare;
pub(crate) mod dlq;
mod headers;
mod judge;
pub(crate) mod names;
pub(crate) mod publish;
