//! Runs cases: a server per kind of broker, the kinds side by side, the cases of a kind one after another.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use parking_lot::Mutex;

use crate::broker::Broker;
use crate::brokers::{KINDS, Kind};
use crate::cases::{CASES, Case};
use crate::stage::Stage;
use crate::support::faults::count;

/// Kinds at once: what two cores bear, since cases wait more than they work. `AT_ONCE` in the environment changes it.
const AT_ONCE: u64 = 4;

/// What a case came to.
#[derive(Clone, Debug)]
pub(crate) enum Ending {
    /// Passed, and what was read back from the broker.
    Passed(String),
    /// Can't apply, and why.
    Lacks(&'static str),
    /// Failed; how was said when it did.
    Failed,
}

/// A cell of the table.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) kind: &'static str,
    pub(crate) version: String,
    pub(crate) case: &'static str,
    pub(crate) ending: Ending,
}

impl Outcome {
    pub(crate) fn failed(&self) -> bool {
        matches!(self.ending, Ending::Failed)
    }

    pub(crate) fn lacks(&self) -> bool {
        matches!(self.ending, Ending::Lacks(_))
    }
}

/// Runs every case of every kind that has all the words.
pub(crate) fn run(words: &[String]) -> Vec<Outcome> {
    let wanted = |kind: &Kind, case: &Case| {
        words.iter().all(|word| kind.name == word || case.name.contains(word.as_str()))
    };
    let work: VecDeque<(&Kind, Vec<&Case>)> = KINDS
        .iter()
        .map(|kind| (kind, CASES.iter().filter(|case| wanted(kind, case)).collect::<Vec<_>>()))
        .filter(|(_, cases)| !cases.is_empty())
        .collect();
    assert!(!work.is_empty(), "no case has all of {words:?}");
    let (work, results) = (Mutex::new(work), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..count("AT_ONCE", AT_ONCE) {
            scope.spawn(|| {
                while let Some((kind, cases)) = { work.lock().pop_front() } {
                    let outcomes = run_kind(kind, &cases);
                    results.lock().extend(outcomes);
                }
            });
        }
    });
    results.into_inner()
}

fn run_kind(kind: &Kind, cases: &[&Case]) -> Vec<Outcome> {
    let started = catch_unwind(AssertUnwindSafe(kind.start));
    let mut broker = match started {
        Ok(broker) => broker,
        Err(panic) => {
            let why = format!("{} does not start: {}", kind.name, words_of(&*panic));
            println!("{:<10} FAILED to start: {why}", kind.name);
            let failed = |case: &&Case| Outcome {
                kind: kind.name,
                version: String::new(),
                case: case.name,
                ending: Ending::Failed,
            };
            return cases.iter().map(failed).collect();
        }
    };
    let version = broker.version();
    let mut outcomes = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let ending = run_case(&mut *broker, case, number);
        outcomes.push(Outcome { kind: kind.name, version: version.clone(), case: case.name, ending });
    }
    outcomes
}

fn run_case(broker: &mut dyn Broker, case: &Case, number: usize) -> Ending {
    let name = broker.name();
    if let Some(why) = broker.lacks(case.name) {
        println!("{name:<10} {:<40} -      {why}", case.name);
        return Ending::Lacks(why);
    }
    let start = Instant::now();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        // A case that failed may have left the server down.
        broker.start();
        (case.run)(&mut Stage::new(broker, number))
    }));
    let took = start.elapsed().as_secs_f32();
    match ran {
        Ok(seen) => {
            println!("{name:<10} {:<40} ok     {took:5.1} s  {seen}", case.name);
            Ending::Passed(seen)
        }
        Err(panic) => {
            let why = words_of(&*panic);
            println!("{name:<10} {:<40} FAILED {took:5.1} s  {why}", case.name);
            Ending::Failed
        }
    }
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
