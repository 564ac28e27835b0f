//! corelane: the edge. Command line, adapters, control and wiring; the data plane is `shards`.

pub mod admin;
pub mod app;
pub mod bench;
pub mod broker;
pub mod cli;
pub mod config;
pub mod core;
pub mod deadletter;
pub mod http;
pub mod ingress;
pub mod message;
#[path = "bench_report/mod.rs"]
pub mod report;
pub mod secret;
pub mod sink;
pub mod sync;
pub mod telemetry;
pub mod topology;
pub mod view;
