//! The real program on hosts that forbid a wire: it runs on epoll and says so, or says what to set.

use std::collections::BTreeMap;
use std::process::{Command, Output};

use rustix::process::{Resource, Rlimit, setrlimit};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

use super::support::process::in_own_process;

// The same number on every architecture.
const IO_URING_SETUP: i64 = 425;
const EPERM: u32 = 1;

fn bench(io: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_corelane"))
        .args(["bench", "--seconds", "1", "--warm-up", "0", "--json", "--io", io, "--shards", "1"])
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn with_io_uring_blocked_the_program_runs_on_epoll_and_says_so() {
    if !in_own_process("fallback::with_io_uring_blocked_the_program_runs_on_epoll_and_says_so") {
        return;
    }
    let rules = BTreeMap::from([(IO_URING_SETUP, vec![])]);
    let arch = std::env::consts::ARCH.try_into().expect("a known architecture");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(EPERM), arch);
    let program: BpfProgram = filter.expect("a sound filter").try_into().expect("a short filter");
    apply_filter(&program).expect("a process may restrict itself");
    let output = bench("auto");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(err.contains("fell back to epoll") && err.contains("blocked"), "{err}");
    assert!(out.replace(' ', "").contains(r#""io":"epoll""#), "{out}");
    let output = bench("uring");
    assert!(!output.status.success(), "asked for by name, it must not fall back in silence");
    assert!(text(&output.stderr).contains("--io epoll"), "{}", text(&output.stderr));
}

#[test]
fn with_too_little_memlock_glommio_says_what_to_set() {
    if !in_own_process("fallback::with_too_little_memlock_glommio_says_what_to_set") {
        return;
    }
    let limit = Rlimit { current: Some(64 * 1_024), maximum: Some(64 * 1_024) };
    setrlimit(Resource::Memlock, limit).expect("a process may lower its limit");
    let output = bench("glommio");
    let err = text(&output.stderr);
    assert!(!output.status.success(), "it must not start");
    assert!(err.contains("ulimit -l 512") && err.contains("LimitMEMLOCK=512K"), "{err}");
}
