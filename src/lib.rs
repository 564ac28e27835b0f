//! corelane: the edge. Command line, adapters, control and wiring; the data plane is `shards`.

pub mod cli;
#[path = "bench_report/mod.rs"]
pub mod report;
pub mod sink;
