//! Messages that will not be delivered: where they are kept, and how they get back into their queue.

mod redrive;
mod rows;
mod schema;
mod store;

pub use redrive::{Redrive, Retried, redrive};
pub use store::{DeadLetterStore, Kept, Page};
