//! Choosing a wire on hosts that forbid one. Each test makes such a host of a process of its own.

use std::collections::BTreeMap;

use rustix::process::{Resource, Rlimit, setrlimit};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use shards::wire::probe::{Io, ProbeError, choose};

use super::rig::in_own_process;

// The same numbers on every architecture.
const IO_URING_SETUP: i64 = 425;
const IO_URING_ENTER: i64 = 426;
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

/// What a container's seccomp profile does, for this thread.
fn block(call: i64, errno: u32) {
    let rules = BTreeMap::from([(call, vec![])]);
    let arch = std::env::consts::ARCH.try_into().expect("a known architecture");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), arch);
    let program: BpfProgram = filter.expect("a sound filter").try_into().expect("a short filter");
    apply_filter(&program).expect("a process may restrict itself");
}

fn check_blocked(call: i64, errno: u32) {
    block(call, errno);
    let chosen = choose(Io::Auto).expect("auto never fails");
    assert_eq!(chosen.io, Io::Epoll);
    let note = chosen.note.expect("a fall-back is said");
    assert!(note.contains("fell back to epoll") && note.contains("blocked"), "{note}");
    assert!(!note.contains('\n'), "one line: {note}");
    for io in [Io::Uring, Io::Glommio] {
        let error = choose(io).expect_err("io_uring is blocked");
        assert!(matches!(error, ProbeError::Blocked { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("--io epoll") && text.contains("seccomp profile"), "{text}");
    }
    assert_eq!(choose(Io::Epoll).expect("epoll is always there").note, None);
}

#[test]
fn with_io_uring_forbidden_it_runs_on_epoll_and_says_so() {
    if in_own_process("probe::with_io_uring_forbidden_it_runs_on_epoll_and_says_so") {
        check_blocked(IO_URING_SETUP, EPERM);
    }
}

#[test]
fn with_io_uring_missing_it_runs_on_epoll_and_says_so() {
    if in_own_process("probe::with_io_uring_missing_it_runs_on_epoll_and_says_so") {
        check_blocked(IO_URING_SETUP, ENOSYS);
    }
}

#[test]
fn a_ring_that_can_be_made_but_not_used_is_noticed() {
    if in_own_process("probe::a_ring_that_can_be_made_but_not_used_is_noticed") {
        check_blocked(IO_URING_ENTER, EPERM);
    }
}

#[test]
fn too_little_lockable_memory_refuses_glommio_and_says_what_to_set() {
    if !in_own_process("probe::too_little_lockable_memory_refuses_glommio_and_says_what_to_set") {
        return;
    }
    let limit = Rlimit { current: Some(64 * 1_024), maximum: Some(64 * 1_024) };
    setrlimit(Resource::Memlock, limit).expect("a process may lower its limit");
    let text = choose(Io::Glommio).expect_err("too little").to_string();
    assert!(text.contains("65536 bytes"), "{text}");
    assert!(text.contains("ulimit -l 512") && text.contains("LimitMEMLOCK=512K"), "{text}");
}

#[test]
fn what_runs_here_is_chosen_without_a_note() {
    for (asked, want) in [(Io::Auto, Io::Uring), (Io::Uring, Io::Uring), (Io::Glommio, Io::Glommio)] {
        let chosen = choose(asked).expect("this suite needs io_uring");
        assert_eq!((chosen.io, chosen.note), (want, None), "{asked}");
    }
}
