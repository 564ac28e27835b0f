//! The ingress thread: sources ↔ desk ↔ links. One pinned thread, tokio's `current_thread`.

mod doorbell;
mod drive;
mod port;
mod source;

pub use doorbell::Doorbell;
pub use drive::{Command, Ingress, IngressSnapshot};
pub use source::{Answer, ReceiveError, Source};
