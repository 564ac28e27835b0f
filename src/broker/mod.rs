//! Adapters: one folder or file per broker, each a [`crate::ingress::Source`].

pub mod memory;
pub mod sqlite;
