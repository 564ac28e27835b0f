//! The event bus through the real program and a real RabbitMQ: one case per row of the bus document's status table, and
//! what else may happen to a message. `cargo test --test bus` runs all; `cargo test --test bus -- 425` what has the word.
//! A runner of its own: the server takes ten seconds to start, and waits of five seconds are spent side by side.

#[path = "../support/mod.rs"]
#[expect(dead_code, reason = "the cases use a part of what the tests share")]
mod support;

#[path = "../e2e/proxy.rs"]
#[expect(dead_code, reason = "of its breakages, two are used here")]
mod proxy;

mod cases;
mod hand;
mod stage;
mod target;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use parking_lot::Mutex;

use cases::{CASES, LAST};
use stage::Stage;
use support::rabbitmq::RabbitServer;

/// Cases at once: they wait most of the time.
const AT_ONCE: usize = 8;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |name: &str| words.iter().all(|word| name.contains(word.as_str()));
    let cases: VecDeque<_> = CASES.iter().filter(|case| wanted(case.0)).enumerate().collect();
    let last: Vec<_> = LAST.iter().filter(|case| wanted(case.0)).collect();
    assert!(!cases.is_empty() || !last.is_empty(), "no case has all of {words:?}");
    let mut server = RabbitServer::start("");
    let (count, waiting, failed) = (cases.len() + last.len(), Mutex::new(cases), Mutex::new(0));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((number, (name, case))) = { waiting.lock().pop_front() } {
                    let passed = run(name, || case(&Stage::new(&server, number)));
                    *failed.lock() += usize::from(!passed);
                }
            });
        }
    });
    // These break the server, so nothing else may need it.
    for (number, (name, case)) in last.into_iter().enumerate() {
        server.launch();
        let passed = run(name, || case(&mut Stage::new(&server, 1_000 + number), &mut server));
        *failed.lock() += usize::from(!passed);
    }
    let failed = failed.into_inner();
    println!("\n{} passed, {failed} failed", count - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(name: &str, case: impl FnOnce()) -> bool {
    let start = Instant::now();
    let ran = catch_unwind(AssertUnwindSafe(case));
    let took = start.elapsed().as_secs_f32();
    match &ran {
        Ok(()) => println!("{name:<70} ok     {took:5.1} s"),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            println!("{name:<70} FAILED {took:5.1} s  {}", text.unwrap_or_default());
        }
    }
    ran.is_ok()
}
