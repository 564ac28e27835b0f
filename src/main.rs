//! corelane
fn main() {}
