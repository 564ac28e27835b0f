//! The simulator's runs: `SEEDS=2000` for many, `SEED=n` to replay one, `FOLLOW=3,4` to see what those messages go
//! through.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use shards::desk::Traps;
use shards::sim::{FAULTS, Fault, INVARIANTS, Options, Report, Violation, run};

/// Seeds of a run under `cargo test`.
const SEEDS_DEFAULT: u64 = 40;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs a seed; a panic is a violation too.
fn run_caught(seed: u64, options: &Options) -> Report {
    catch_unwind(AssertUnwindSafe(|| run(seed, options))).unwrap_or_else(|_| Report {
        messages: 0,
        events: 0,
        trace: 0,
        faults: [0; FAULTS],
        checks: [0; INVARIANTS],
        violation: Some(Violation { invariant: 0, what: "panicked".into(), at: shards::clock::Moment::ZERO }),
    })
}

fn replay(seed: u64) -> String {
    format!("SEED={seed} cargo test --release -p shards --features sim --test sim -- --nocapture replay")
}

#[derive(Default)]
struct Total {
    seeds: u64,
    messages: u64,
    events: u64,
    faults: [u64; FAULTS],
    checks: [u64; INVARIANTS],
    failures: Vec<(u64, Violation)>,
}

impl Total {
    fn add(&mut self, seed: u64, report: Report) {
        self.seeds += 1;
        self.messages += report.messages;
        self.events += report.events;
        for (sum, count) in self.faults.iter_mut().zip(report.faults) {
            *sum += count;
        }
        for (sum, count) in self.checks.iter_mut().zip(report.checks) {
            *sum += count;
        }
        self.failures.extend(report.violation.map(|violation| (seed, violation)));
    }

    fn merge(mut self, other: Self) -> Self {
        self.seeds += other.seeds;
        self.messages += other.messages;
        self.events += other.events;
        for (sum, count) in self.faults.iter_mut().zip(other.faults) {
            *sum += count;
        }
        for (sum, count) in self.checks.iter_mut().zip(other.checks) {
            *sum += count;
        }
        self.failures.extend(other.failures);
        self
    }
}

/// Runs seeds on all cores; each thread takes the next one.
fn run_all(first: u64, count: u64, options: &Options) -> Total {
    let next = AtomicU64::new(0);
    let work = || {
        let mut total = Total::default();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return total;
            }
            if at > 0 && at.is_multiple_of(250) {
                eprintln!("{at} of {count} seeds");
            }
            total.add(first + at, run_caught(first + at, options));
        }
    };
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let totals = threads.into_iter().map(|thread| thread.join().expect("panics are caught"));
        totals.fold(Total::default(), Total::merge)
    })
}

#[test]
fn every_seed_keeps_every_invariant() {
    let seeds = number("SEEDS").unwrap_or(SEEDS_DEFAULT);
    let mut total = run_all(number("FIRST").unwrap_or(0), seeds, &Options::default());
    total.failures.sort_by_key(|&(seed, _)| seed);
    for (seed, violation) in total.failures.iter().take(20) {
        println!("I{} violated at {:?}: {}", violation.invariant, violation.at, violation.what);
        println!("  {}", replay(*seed));
    }
    for (fault, count) in Fault::ALL.iter().zip(total.faults) {
        println!("{count:>12}  {}", fault.text());
    }
    for (at, count) in total.checks.iter().enumerate() {
        println!("{count:>12}  evaluations of I{}", at + 1);
    }
    println!(
        "{} seeds, {} messages, {} events, {} violations",
        total.seeds,
        total.messages,
        total.events,
        total.failures.len()
    );
    assert!(total.failures.is_empty(), "see above");
}

#[test]
fn replay_of_one_seed() {
    let Some(seed) = number("SEED") else { return };
    let follow = std::env::var("FOLLOW").unwrap_or_default();
    let follow = follow.split(',').filter_map(|message| message.parse().ok()).collect();
    let report = run(seed, &Options { follow, ..Options::default() });
    println!("SEED={seed}: {} events, trace {:016x}", report.events, report.trace);
    assert_eq!(report.violation, None);
}

#[test]
fn two_runs_of_a_seed_are_the_same_to_the_bit() {
    for seed in 0..4 {
        assert_eq!(
            run_caught(seed, &Options::default()),
            run_caught(seed, &Options::default()),
            "SEED={seed}"
        );
    }
}

/// Each of these failed before a bug was fixed that the simulator had found.
const FIXED: [u64; 14] = [5, 15, 17, 39, 44, 53, 58, 67, 96, 125, 137, 425, 1364, 1478];

#[test]
fn seeds_that_failed_once_stay_clean() {
    for seed in FIXED {
        assert_eq!(run_caught(seed, &Options::default()).violation, None, "{}", replay(seed));
    }
}

/// Looks for a seed that a reintroduced trap fails, with one of the expected invariants.
fn catch(options: &Options, expected: &[usize]) {
    for seed in 0..300 {
        let Some(violation) = run_caught(seed, options).violation else { continue };
        if !expected.contains(&violation.invariant) {
            continue; // A trap may break more than one promise.
        }
        println!("SEED={seed}: I{} {}", violation.invariant, violation.what);
        assert_eq!(run_caught(seed, &Options::default()).violation, None, "SEED={seed} without the trap");
        return;
    }
    panic!("no seed noticed the trap");
}

#[test]
fn a_reintroduced_trap_1_is_caught() {
    catch(
        &Options { traps: Traps { nack_redelivered: true, ..Traps::default() }, ..Options::default() },
        &[4, 5, 8],
    );
}

#[test]
fn a_reintroduced_trap_2_is_caught() {
    catch(&Options { traps: Traps { forget_leases: true, ..Traps::default() }, ..Options::default() }, &[5]);
}

#[test]
fn a_reintroduced_trap_10_is_caught() {
    catch(
        &Options { traps: Traps { nack_as_backpressure: true, ..Traps::default() }, ..Options::default() },
        &[7, 8],
    );
}

#[test]
fn a_reintroduced_trap_12_is_caught() {
    catch(&Options { lie_about_locks: true, ..Options::default() }, &[2]);
}

#[test]
fn a_reintroduced_trap_13_is_caught() {
    catch(&Options { traps: Traps { no_quarantine: true, ..Traps::default() }, ..Options::default() }, &[2]);
}

#[test]
fn a_lost_answer_that_is_not_waited_for_is_caught() {
    let traps = Traps { no_wait_for_unheard: true, ..Traps::default() };
    catch(&Options { traps, ..Options::default() }, &[2]);
}
