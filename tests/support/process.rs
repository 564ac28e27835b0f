//! A test in a process of its own, so that it can count descriptors or restrict itself.

use std::process::Command;

const MARK: &str = "CORELANE_TEST_OWN_PROCESS";

/// True in the child, which runs nothing but `test`; the parent has then seen it pass.
pub(crate) fn in_own_process(test: &str) -> bool {
    if std::env::var(MARK).as_deref() == Ok(test) {
        return true;
    }
    let output = Command::new(std::env::current_exe().expect("a test has its file"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(MARK, test)
        .output()
        .expect("the test can run itself");
    let (printed, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}{errors}");
    false
}

/// Descriptors that this process has open.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux has it").count()
}

/// Resident bytes of this process.
pub(crate) fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: usize = pages.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a number of pages");
    pages * rustix::param::page_size()
}
