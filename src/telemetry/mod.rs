//! What the router says of itself to people and machines: warnings, and metrics as Prometheus text.

pub mod log;
pub mod metrics;
pub mod names;
pub mod warnings;
