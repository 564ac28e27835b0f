//! The rules that no compiler checks, read from the source text: who may use whom, what may stand where, how
//! a file opens and how long it is. Each rule has a test that shows it can fail.

#[path = "support/source.rs"]
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use source::{File, files, is_word, line_of};

fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// The rule complains about this text at this path, and says so with this word.
fn assert_caught(rule: impl Fn(&[File]) -> Vec<String>, path: &str, text: &str, word: &str) {
    let said = rule(&[File::new(path, text)]).join("\n");
    assert!(said.contains(word), "{path}: {text:?} should be caught by `{word}`, got: {said:?}");
}

fn assert_fine(rule: impl Fn(&[File]) -> Vec<String>, path: &str, text: &str) {
    assert_none(&rule(&[File::new(path, text)]));
}

/// `shards/src`: what each module may use. Lower ones first; nothing points back, siblings do not meet.
const DIRECTIONS: [(&str, &[&str]); 14] = [
    ("clock", &[]),
    ("model", &["clock"]),
    ("meter", &["clock", "model"]),
    ("timer", &["clock"]),
    ("link", BASE),
    ("desk", BASE),
    ("shard", BASE),
    ("courier", BASE),
    ("wire", &["clock", "meter", "model", "timer", "link"]),
    ("resolve", &["clock", "meter", "model", "timer", "link"]),
    ("placement", BASE),
    ("drive", &["clock", "meter", "model", "timer", "link", "shard", "courier", "wire", "resolve"]),
    ("engine", &["clock", "meter", "model", "timer", "link", "wire", "resolve", "drive", "placement"]),
    ("sim", &["clock", "meter", "model", "timer", "link", "desk", "shard", "courier", "wire", "placement"]),
];
const BASE: &[&str] = &["clock", "meter", "model", "timer"];

/// Directions that do not hold today: who, what, and the move that would mend it. An entry that nothing needs any
/// more fails, so the list can only shrink.
const OWED_MOVES: [(&str, &str, &str); 7] = [
    (
        "model",
        "shard::PoolShared",
        "move PoolShared, Permits and Rate (words that cores share) to `shards/src/shared/`",
    ),
    ("desk", "shard::PoolShared", "the same move"),
    ("placement", "shard::SHARDS_MAX", "the same move"),
    (
        "model",
        "meter::ShardSnapshot",
        "move ShardSnapshot, PoolSnapshot and Counts (plain data) to `model/snapshot.rs`",
    ),
    (
        "courier",
        "wire::",
        "move Command, ConnId and Event (what courier and wire say to each other) to `model/wire.rs`",
    ),
    ("engine", "shard::Shard", "let `drive.rs` build its Core from tunings: `Core::new(id, spec, …)`"),
    ("engine", "courier::Courier", "the same: `Core::new`"),
];

/// Every path from the crate's root in a file, `crate::a::b` or as many `super::` as reach the root, as `a::b`.
fn root_paths(file: &File) -> Vec<String> {
    let mut found = Vec::new();
    let inside = file.path.trim_start_matches("shards/src/").trim_end_matches(".rs").trim_end_matches("/mod");
    let depth = inside.split('/').count();
    let up = "super::".repeat(depth);
    for start in ["crate::", up.as_str()] {
        for (at, _) in file.code.match_indices(start) {
            if is_word(file.code.as_bytes(), at.wrapping_sub(1)) {
                continue;
            }
            let rest = &file.code[at + start.len()..];
            match rest.strip_prefix('{') {
                Some(group) => found.extend(group_paths(group)),
                None => found.push(path_at(rest)),
            }
        }
    }
    found
}

fn path_at(text: &str) -> String {
    text.chars().take_while(|letter| letter.is_alphanumeric() || "_:".contains(*letter)).collect()
}

/// The paths of `a::b, c::{d, e}}`, inner groups left out.
fn group_paths(text: &str) -> Vec<String> {
    let (mut depth, mut start, mut found) = (0_u32, 0, Vec::new());
    for (at, letter) in text.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' | ',' if depth == 0 => {
                found.push(path_at(text[start..at].trim()));
                start = at + 1;
                if letter == '}' {
                    break;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    found
}

fn module_of(path: &str) -> &str {
    let inside = path.trim_start_matches("shards/src/");
    inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs")
}

/// Complaints, and the owed moves that were needed.
fn directions(files: &[File]) -> (Vec<String>, BTreeSet<usize>) {
    let (mut complaints, mut needed) = (Vec::new(), BTreeSet::new());
    for file in files.iter().filter(|file| file.is_rust() && file.is_under("shards/src")) {
        let module = module_of(&file.path);
        if module == "lib" {
            continue;
        }
        let Some((_, allowed)) = DIRECTIONS.iter().find(|(name, _)| *name == module) else {
            complaints.push(format!("{}: module `{module}` has no place in DIRECTIONS", file.path));
            continue;
        };
        for path in root_paths(file) {
            let target = path.split("::").next().unwrap_or_default();
            let is_module = DIRECTIONS.iter().any(|(name, _)| *name == target);
            if !is_module || target == module || allowed.contains(&target) {
                continue;
            }
            match OWED_MOVES.iter().position(|(who, what, _)| *who == module && path.starts_with(what)) {
                Some(owed) => drop(needed.insert(owed)),
                None => complaints.push(format!("{}: `{module}` may not use `{path}`", file.path)),
            }
        }
    }
    (complaints, needed)
}

#[test]
fn modules_of_shards_use_only_what_lies_below_them() {
    let (complaints, needed) = directions(&files());
    assert_none(&complaints);
    for (at, (who, what, _)) in OWED_MOVES.iter().enumerate() {
        assert!(needed.contains(&at), "`{who}` uses `{what}` no more: take it off OWED_MOVES");
    }
}

#[test]
fn a_wrong_direction_is_caught() {
    let rule = |files: &[File]| directions(files).0;
    let rows = [
        ("shards/src/shard/lane.rs", "use crate::courier::Courier;"),
        ("shards/src/wire/epoll.rs", "use crate::{clock::Moment, shard::{Shard, Effects}};"),
        ("shards/src/wire/mod.rs", "fn f() { super::desk::Desk::new() }"),
        ("shards/src/model/ids.rs", "use super::super::link::Bell;"),
        ("shards/src/courier/h1.rs", "use crate::shard::Shard;"),
        ("shards/src/desk/mod.rs", "use crate::shard::Shard;"),
        ("shards/src/engine.rs", "use crate::desk::Desk;"),
        ("shards/src/novel.rs", "//! New."),
    ];
    for (path, text) in rows {
        assert_caught(rule, path, text, if path.contains("novel") { "no place" } else { "may not use" });
    }
    assert_fine(rule, "shards/src/shard/mod.rs", "use crate::clock::Moment; // crate::courier::Courier");
    assert_fine(rule, "shards/src/courier/pool.rs", "use super::timer::Timers;");
}

/// `src/`: modules that stay apart from the rest of the edge, and all that they may use of it.
const EDGE: [(&str, &[&str]); 13] = [
    ("message", &[]),
    ("secret", &[]),
    ("config", &["cli", "secret", "topology"]),
    ("topology", &["secret"]),
    ("view", &[]),
    ("ingress", &["view"]),
    ("broker", &["ingress", "message", "secret", "topology"]),
    ("deadletter", &["ingress", "broker", "message", "view"]),
    ("telemetry", &["view"]),
    ("admin", &["view", "telemetry", "message", "report"]),
    ("sync", &["topology", "http", "secret", "config"]),
    ("sink", &[]),
    ("bench_report", &[]),
];

fn edge(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.is_rust() && file.is_under("src")) {
        if file.text.contains("shards/src") {
            complaints.push(format!("{}: the edge uses `shards` by its public face", file.path));
        }
        let module = file.path.split('/').nth(1).unwrap_or_default().trim_end_matches(".rs");
        let Some((_, allowed)) = EDGE.iter().find(|(name, _)| *name == module) else { continue };
        for (at, _) in file.code.match_indices("crate::") {
            let path = path_at(&file.code[at + "crate::".len()..]);
            let target = path.split("::").next().unwrap_or_default();
            if target != module && !allowed.contains(&target) {
                complaints.push(format!("{}: `{module}` may not use `{path}`", file.path));
            }
            let adapter = file.path.split('/').nth(2).unwrap_or_default().trim_end_matches(".rs");
            let sibling = path.split("::").nth(1).unwrap_or_default();
            if module == "broker" && target == "broker" && adapter != "mod" && sibling != adapter {
                complaints.push(format!("{}: adapter `{adapter}` may not see `{sibling}`", file.path));
            }
        }
    }
    for file in files.iter().filter(|file| file.is_under("shards/src") && file.code.contains("corelane::")) {
        complaints.push(format!("{}: `shards` never sees the edge", file.path));
    }
    complaints
}

#[test]
fn the_edge_keeps_its_directions_too() {
    assert_none(&edge(&files()));
    assert_caught(edge, "src/app.rs", "#[path = \"../shards/src/shard/lane.rs\"] mod lane;", "public face");
    assert_caught(edge, "src/sink/mod.rs", "use crate::bench::Scenario;", "may not use");
    assert_caught(edge, "src/broker/nats.rs", "use crate::broker::feed::Feed;", "may not see `feed`");
    assert_caught(edge, "shards/src/drive.rs", "use corelane::ingress::Ingress;", "never sees");
    assert_fine(edge, "src/broker/feed.rs", "use crate::ingress::Source;");
}

/// `shards` itself runs on no runtime; its tests may.
fn no_tokio(files: &[File]) -> Vec<String> {
    let manifest = files.iter().filter(|file| file.path == "shards/Cargo.toml");
    let mut complaints = Vec::new();
    for file in manifest {
        let mut section = "";
        for line in file.text.lines().map(str::trim) {
            if line.starts_with('[') {
                section = line;
            }
            if section == "[dependencies]" && line.starts_with("tokio") {
                complaints.push(format!("{}: {line}: tokio lives at the edge", file.path));
            }
        }
    }
    for file in files.iter().filter(|file| file.is_rust() && file.is_under("shards/src")) {
        if file.code.contains("tokio::") {
            complaints.push(format!("{}: tokio lives at the edge", file.path));
        }
    }
    complaints
}

#[test]
fn shards_run_without_tokio() {
    assert_none(&no_tokio(&files()));
    assert_caught(no_tokio, "shards/Cargo.toml", "[dependencies]\ntokio.workspace = true", "edge");
    assert_fine(no_tokio, "shards/Cargo.toml", "[dependencies]\n[dev-dependencies]\ntokio.workspace = true");
    assert_caught(no_tokio, "shards/src/drive.rs", "use tokio::time;", "edge");
}

/// A word, where it is forbidden, and where it may stand nevertheless.
struct Ban {
    word: &'static str,
    under: &'static [&'static str],
    except: &'static [&'static str],
    why: &'static str,
}

const ALL: &[&str] = &["src", "shards", "tests", "benches", "perf"];
const BANS: [Ban; 11] = [
    Ban {
        word: "Mutex<",
        under: &["shards/src"],
        except: &[],
        why: "cores share links and permit words only",
    },
    Ban {
        word: "RwLock<",
        under: &["shards/src"],
        except: &[],
        why: "cores share links and permit words only",
    },
    Ban {
        word: "Condvar",
        under: &["shards/src"],
        except: &[],
        why: "a shard sleeps in its wire, nowhere else",
    },
    Ban {
        word: "Instant::now",
        under: &["shards/src"],
        except: &["shards/src/clock.rs"],
        why: "time arrives",
    },
    Ban { word: "SystemTime", under: &["shards/src"], except: &["shards/src/clock.rs"], why: "time arrives" },
    Ban { word: "unsafe", under: ALL, except: UNSAFE, why: "only where a proof stands beside it" },
    Ban { word: "#[ignore", under: ALL, except: &[], why: "a test runs or is not there" },
    Ban { word: "todo!", under: ALL, except: &[], why: "finish it" },
    Ban { word: "unimplemented!", under: ALL, except: &[], why: "finish it" },
    Ban {
        word: "thread::sleep",
        under: &["shards/src", "tests", "shards/tests"],
        except: &["tests/support/wait.rs"],
        why: "wait for what you need",
    },
    Ban { word: "dbg!", under: ALL, except: &[], why: "left behind" },
];

/// Files, and folders of files, that may hold `unsafe`: a ring's memory, two promises to a runtime, allocators that count.
const UNSAFE: &[&str] = &[
    "shards/src/wire/uring",
    "shards/src/wire/glommio.rs",
    "src/ingress/doorbell.rs",
    "perf/yardstick",
    "shards/tests/courier_memory.rs",
];

fn bans(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let is_at = |places: &[&str]| places.iter().any(|place| file.path == *place || file.is_under(place));
        for ban in BANS.iter().filter(|ban| is_at(ban.under) && !is_at(ban.except)) {
            let found = file.code.match_indices(ban.word).filter(|(at, word)| {
                let bytes = file.code.as_bytes();
                let whole = !word.starts_with(char::is_alphabetic) || !is_word(bytes, at.wrapping_sub(1));
                whole && (!word.ends_with(char::is_alphabetic) || !is_word(bytes, at + word.len()))
            });
            for (at, word) in found {
                complaints.push(format!("{}:{}: `{word}`: {}", file.path, line_of(&file.code, at), ban.why));
            }
        }
        // In comments too.
        for word in [concat!("FIX", "ME"), concat!("XX", "X")] {
            if file.text.contains(word) {
                complaints.push(format!("{}: {word}: finish it, or open an issue", file.path));
            }
        }
    }
    complaints
}

#[test]
fn forbidden_words_stand_nowhere() {
    assert_none(&bans(&files()));
}

#[test]
fn each_forbidden_word_is_caught() {
    for ban in BANS {
        let path = format!("{}/sample.rs", ban.under[0]);
        assert_caught(bans, &path, &format!("fn f() {{ {} }}", ban.word), ban.why);
        assert_fine(bans, &path, &format!("fn f() {{ g(\"{}\") }} // {}", ban.word, ban.word));
    }
    assert_caught(bans, "src/a.rs", concat!("// FIX", "ME later"), "open an issue");
    assert_fine(bans, "src/a.rs", "#[expect(unsafe_code)] fn f() {}");
    assert_fine(bans, "shards/src/wire/uring/ring.rs", "unsafe { x() }");
}

/// Most lines of a file. Exceptions: none; split by job instead.
const LINES_MAX: usize = 500;

fn shape(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        if !file.text.starts_with("//! ") {
            complaints.push(format!("{}: does not open with `//!` and its one job", file.path));
        }
        let lines = file.text.lines().count();
        if lines > LINES_MAX {
            complaints.push(format!("{}: {lines} lines, at most {LINES_MAX}", file.path));
        }
    }
    complaints
}

#[test]
fn a_file_says_its_job_first_and_is_short() {
    assert_none(&shape(&files()));
    assert_caught(shape, "src/a.rs", "use std::io;", "its one job");
    assert_caught(shape, "src/a.rs", &"//! Long.\n".repeat(501), "501 lines");
}

/// Folders of the machine that wrote a file; no one else has them.
fn machine_paths(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files {
        for folder in
            [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/tm", "p/"), concat!("/ho", "me/")]
        {
            for (at, _) in file.text.match_indices(folder) {
                complaints.push(format!("{}:{}: {folder}", file.path, line_of(&file.text, at)));
            }
        }
    }
    complaints
}

#[test]
fn no_file_names_a_folder_of_one_machine() {
    assert_none(&machine_paths(&files()));
    assert_caught(machine_paths, "perf/a.toml", concat!("out = \"/tm", "p/x\""), concat!("/tm", "p/"));
}

/// The invariants that module headers declare (`//! - S1: …`), each with the files that do.
fn declared(files: &[File]) -> BTreeMap<String, Vec<&str>> {
    let mut found: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_under("shards/src") || file.is_under("src")) {
        for line in file.text.lines().filter_map(|line| line.strip_prefix("//! - ")) {
            let Some((id, _)) = line.split_once(": ") else { continue };
            if is_id(id) {
                found.entry(id.to_owned()).or_default().push(&file.path);
            }
        }
    }
    found
}

fn is_id(word: &str) -> bool {
    let mut letters = word.chars();
    letters.next().is_some_and(|first| first.is_ascii_uppercase())
        && word.len() > 1
        && letters.all(|letter| letter.is_ascii_digit())
}

/// Ids in the document that no module declares, and the other way round. `H1`, `H2` in running text are HTTP's.
fn invariants(files: &[File], document: &str) -> Vec<String> {
    let declared = declared(files);
    let words = document.split(|letter: char| !letter.is_alphanumeric()).filter(|word| is_id(word));
    let named: BTreeSet<&str> = words.collect();
    let unknown = named.iter().filter(|id| !declared.contains_key(**id) && !id.starts_with('I'));
    let mut complaints: Vec<String> =
        unknown.map(|id| format!("docs/INVARIANTS.md names {id}, which no module declares")).collect();
    // Ids are short, and some are used by several files: each has its own row. The simulator's own are its oracle's.
    let has_row = |id: &str, place: &str| {
        let row =
            |line: &str| line.starts_with(&format!("| {id} | ")) && line.contains(&format!("`{place}`"));
        document.lines().any(row)
    };
    for (id, places) in &declared {
        let absent = places.iter().filter(|place| !place.contains("/sim/") && !has_row(id, place));
        complaints.extend(absent.map(|place| format!("{place}: {id} is not in docs/INVARIANTS.md")));
    }
    complaints
}

#[test]
fn every_invariant_is_in_the_document_and_in_the_code() {
    let document = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/INVARIANTS.md"))
        .expect("docs/INVARIANTS.md lists every invariant with the test that guards it");
    assert_none(&invariants(&files(), &document));
}

#[test]
fn a_missing_invariant_is_caught_on_either_side() {
    let files = [File::new("shards/src/a.rs", "//! A.\n//!\n//! - Z1: one.\n//! - Z2: two.\n")];
    let row = |id: &str, place: &str| format!("| {id} | `{place}` | … |\n");
    let both = row("Z1", "shards/src/a.rs") + &row("Z2", "shards/src/a.rs");
    assert_none(&invariants(&files, &both));
    let other = row("Z1", "shards/src/a.rs") + &row("Z2", "shards/src/b.rs") + &row("Z3", "shards/src/a.rs");
    let said = invariants(&files, &other).join("\n");
    assert!(said.contains("names Z3") && said.contains("Z2 is not in"), "{said}");
}
