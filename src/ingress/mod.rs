//! The ingress thread: sources ↔ desk ↔ links. One pinned thread, tokio's `current_thread`.

mod aside;
mod ask;
mod command;
mod doorbell;
mod drive;
mod handle;
mod port;
mod source;

pub use aside::{Letter, SetAside};
pub use ask::{DEFAULT_GROUP, Found, Question};
pub use command::{Command, Ended, IngressSnapshot, MakeSource, PoolLook, SourceCounts, SourceLook};
pub use doorbell::Doorbell;
pub use drive::Ingress;
pub use handle::{Handle, HandleError};
pub use source::{Answer, Batch, Connected, Linger, ReceiveError, Scope, Source, Unreadable};
