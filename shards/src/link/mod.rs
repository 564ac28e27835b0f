//! What two threads share: a ring each way ([`Tx`], [`Rx`]) and the sleeper's [`Bell`].
//! Core: a `Tx` lives on the sender's, an `Rx` on the receiver's. Push many, ring once a turn.

mod bell;
mod ring;

pub use bell::{Bell, BellError, Flag};
pub use ring::{Rx, Tx, ring};
