//! `docs/CONFORMANCE.md`: broker × case, with the server's version and what was read back from it.

use std::fmt::Write as _;
use std::path::Path;

use crate::brokers::KINDS;
use crate::cases::CASES;
use crate::suite::{Ending, Outcome};

const HEAD: &str = "\
# Conformance

Written by `cargo test --test e2e` (part of `make test`): every case runs through the real `corelane run`, against a real
server that the test started for itself. A cell says what the broker itself, or the target, showed afterwards. `–` means that
the case can't apply, and why.

";

/// Writes the table of a full run.
pub(crate) fn write(outcomes: &[Outcome]) {
    let mut text = HEAD.to_owned();
    for kind in KINDS {
        let of_kind = || outcomes.iter().filter(|outcome| outcome.kind == kind.name);
        let version = of_kind().next().map(|outcome| outcome.version.clone()).unwrap_or_default();
        let _ = writeln!(text, "## {}\n\nAgainst {version}.\n\n| case | | seen |\n|---|---|---|", kind.name);
        for case in CASES {
            let Some(outcome) = of_kind().find(|outcome| outcome.case == case.name) else { continue };
            let (mark, seen) = match &outcome.ending {
                Ending::Passed(seen) => ("passed", seen.as_str()),
                Ending::Lacks(why) => ("–", *why),
                Ending::Failed => ("**FAILED**", "see the run's log"),
            };
            let _ = writeln!(text, "| {} | {mark} | {} |", case.name, seen.replace('|', "\\|"));
        }
        text.push('\n');
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/CONFORMANCE.md");
    std::fs::write(path, text.trim_end().to_owned() + "\n").expect("the table is written");
}
