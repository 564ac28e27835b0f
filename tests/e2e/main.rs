//! Every adapter against its real broker: one suite for all. `cargo test --test e2e` runs everything and writes
//! `docs/CONFORMANCE.md`; `cargo test --test e2e -- nats "broker restart"` runs what has all these words.

#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "the suite uses a part of what the tests share")]
mod support;

mod broker;
mod brokers;
mod cases;
mod measure;
mod proxy;
mod stage;
mod suite;
mod table;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    if std::env::args().any(|word| word == "--measure") {
        measure::run(&words);
        return ExitCode::SUCCESS;
    }
    let results = suite::run(&words);
    if words.is_empty() {
        table::write(&results);
    }
    let failed = results.iter().filter(|result| result.failed()).count();
    let lacking = results.iter().filter(|result| result.lacks()).count();
    println!("\n{} passed, {failed} failed, {lacking} skipped", results.len() - failed - lacking);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
