//! The SQLite queue: a durable queue in one file, in order per group, for one process or several on a host.
//!
//! [`SqliteWriter`] publishes, [`SqliteQueue`] consumes; both send requests to the file's keeper, a thread that does
//! whatever has gathered in one transaction. Which message may go next is found in memory (`window`), who has what
//! is written as one row per batch (`claims`), and the two meet the file in `books`.

mod books;
mod checkpoint;
mod claims;
mod file;
mod handout;
mod inode;
mod keeper;
mod owner;
mod place;
mod putback;
mod request;
mod schema;
mod source;
mod table;
mod window;
mod writer;

pub use file::Gauges;
pub use place::Place;
pub use request::{NewMessage, Placed, PutBack};
pub use schema::Durability;
pub use source::{Consume, SqliteQueue};
pub use writer::SqliteWriter;
