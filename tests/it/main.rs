//! The binary over loopback: one module per feature.

mod sink;
