//! What every bench needs: how many rounds, a clock, a core, a line of result.
#![allow(dead_code, reason = "each bench uses its part of this")]

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A few rounds under `cargo test` or with `--smoke`, all of them under `cargo bench`.
pub(crate) fn rounds(smoke: u64, full: u64) -> u64 {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    if has("--bench") && !has("--smoke") { full } else { smoke }
}

/// Runs `body` on a thread pinned to a core, or floating where there is no such core.
pub(crate) fn on_core<T: Send + 'static>(
    core: usize,
    body: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    std::thread::spawn(move || {
        shards::engine::pin_to(core);
        body()
    })
}

pub(crate) fn time<T>(body: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = body();
    (start.elapsed(), result)
}

/// One line: name, time of one operation, how many, and a checksum that shows the work was done.
#[expect(clippy::cast_precision_loss, reason = "a time per operation needs no more than 52 bits")]
pub(crate) fn report(name: &str, rounds: u64, elapsed: Duration, checksum: u64) {
    let ns = elapsed.as_nanos() as f64 / rounds.max(1) as f64;
    println!("{name:<28} {ns:>10.1} ns/op {rounds:>12} ops   checksum {checksum:016x}");
}

/// Folds a value into a checksum.
pub(crate) const fn mix(sum: u64, value: u64) -> u64 {
    (sum ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
}
