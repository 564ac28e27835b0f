//! The key table, the defaults, the documents and the layers against each other.

use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

fn file(text: &str) -> Sources {
    Sources { file: Some((PathBuf::from("c.toml"), text.to_owned())), ..Sources::default() }
}

fn sets(sets: &[(&str, &str)]) -> Sources {
    let sets = sets.iter().map(|(key, text)| format!("{key}={text}")).collect();
    Sources { sets, ..Sources::default() }
}

fn errors(sources: &Sources) -> Vec<String> {
    let errors = Settings::load(sources).err().unwrap_or_default();
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn the_written_defaults_are_the_defaults() {
    let (mut settings, provenance) = Settings::load(&Sources::default()).expect("defaults are fine");
    assert_eq!(settings.topology.queues.len(), 1, "one queue is served where none is named");
    settings.topology.queues.clear();
    assert_eq!(format!("{settings:?}"), format!("{:?}", Settings::default()));
    assert!(provenance.settings.iter().all(|row| row.place == Place::Default));
    assert!(provenance.notices.is_empty());
}

/// `default.toml` with its examples switched on.
fn with_examples() -> String {
    let line = |line: &'static str| match line.strip_prefix('#') {
        Some(example) if example.starts_with(|first: char| first.is_ascii_lowercase() || first == '[') => {
            example
        }
        _ => line,
    };
    DEFAULT_TOML.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn default_toml_names_every_key_and_its_examples_are_right() {
    let (_, provenance) = Settings::load(&file(&with_examples())).expect("every example is a good value");
    for row in &provenance.settings {
        assert!(matches!(row.place, Place::File { .. }), "default.toml does not name {}", row.key);
    }
    assert!(provenance.settings.iter().any(|row| row.key == "pool.ORDERS"));
    assert!(provenance.settings.iter().any(|row| row.key == "queue.orders"));
}

#[test]
fn the_document_has_a_row_for_every_key_with_its_default() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/CONFIG.md");
    let document = std::fs::read_to_string(path).expect("docs/CONFIG.md is there");
    let (_, provenance) = Settings::load(&Sources::default()).expect("defaults are fine");
    let mut missing = Vec::new();
    for (key, row) in keys().iter().zip(&provenance.settings) {
        let default = if row.value.is_empty() { "unset".to_owned() } else { format!("`{}`", row.value) };
        let line = format!("| `{}` | {} | {default} | {} |", key.name, key.takes, key.about);
        if !document.contains(&line) {
            missing.push(line);
        }
    }
    assert!(missing.is_empty(), "docs/CONFIG.md lacks these rows:\n{}\n", missing.join("\n"));
}

#[test]
fn a_later_source_wins() {
    let mut sources = Sources::default();
    let seen = |sources: &Sources| {
        let (settings, provenance) = Settings::load(sources).expect("good values");
        let row = provenance.settings.into_iter().find(|row| row.key == "shutdown.grace").expect("a row");
        (settings.grace.as_secs(), row.value, row.place.to_string())
    };
    assert_eq!(seen(&sources), (35, "35s".into(), "default".into()));
    sources.file = file("\n[shutdown]\ngrace = \"40s\"").file;
    assert_eq!(seen(&sources), (40, "40s".into(), "c.toml:3".into()));
    sources.env = vec![("CORELANE_SHUTDOWN_GRACE".into(), "50s".into())];
    assert_eq!(seen(&sources), (50, "50s".into(), "env CORELANE_SHUTDOWN_GRACE".into()));
    sources.flags = vec![("--grace".into(), "shutdown.grace".into(), "1m".into())];
    assert_eq!(seen(&sources), (60, "1m".into(), "flag --grace".into()));
}

#[test]
fn every_problem_is_told_at_once_with_its_place() {
    let text = "[admin]\nlisten = \"here\"\nlisen = \"x\"\n[breaker]\nwindow = 0\n[[pool]]\ncode = \"A\"\n\
                [[pool]]\ncode = \"A\"\nconcurrency = 2\n[[pool]]\ncode = \"A\"\nconcurrency = 3\n\
                [[queue]]\nname = \"q\"\nurl = \"sqlite:q\"\n";
    let mut sources = file(text);
    sources.env = vec![("MESSAGE_ROUTER_ENABLED".into(), "maybe".into())];
    sources.sets = vec!["memory.budgte=1MiB".into(), "memory.budget".into()];
    sources.queues = vec!["orders".into()];
    sources.pools = vec!["P=1,2/hour".into()];
    let errors = errors(&sources);
    let want = [
        "c.toml:2: admin.listen: \"here\" is not an address",
        "c.toml:3: admin.lisen: is no setting; did you mean `admin.listen`?",
        "c.toml:5: breaker.window: \"0\" is not a number from 1 to 31",
        "env MESSAGE_ROUTER_ENABLED: message-router.enabled: \"maybe\" is neither true nor false",
        "flag --set: --set: has no `=`; write KEY=VALUE",
        "flag --set: memory.budgte: is no setting; did you mean `memory.budget`?",
        "flag --queue: queue: has no `=`",
        "flag --pool: pool: \"P=1,2/hour\"",
        "c.toml:6: pool.concurrency: is missing",
        "c.toml:11: pool.code: \"A\" stands at c.toml:8 already",
    ];
    for want in want {
        assert!(errors.iter().any(|error| error.starts_with(want)), "{want}: {errors:#?}");
    }
    assert!(
        errors.iter().any(|error| error.contains("queue.url: is no field of a queue; did you mean `uri`?"))
    );
    assert_eq!(errors.len(), 11, "{errors:#?}");
}

#[test]
fn values_that_do_not_go_together_are_refused() {
    let rows: [(&[(&str, &str)], &str); 5] = [
        (&[("admin.listen", "0.0.0.0:80")], "no admin.token"),
        (&[("breaker.window", "3"), ("breaker.failures", "4")], "at most breaker.window"),
        (&[("engine.shards", "3"), ("engine.shard-cores", "1,2")], "one core per shard"),
        (&[("message-router.hold-max", "12h")], "11h 30m"),
        (&[("admin.token", "short")], "16 characters"),
    ];
    for (given, want) in rows {
        let errors = errors(&sets(given));
        assert!(errors.len() == 1 && errors[0].contains(want), "{given:?}: {errors:?}");
        assert!(!errors[0].contains("short\""), "a secret is not repeated: {errors:?}");
    }
    let fine = sets(&[("admin.listen", "0.0.0.0:80"), ("admin.token", "0123456789abcdef")]);
    Settings::load(&fine).expect("with a token it may");
}

#[test]
fn secrets_are_in_no_error_row_or_debug() {
    let mut sources = file("[[queue]]\nname = \"q\"\nuri = \"nats://u:hunter2@h/s\"");
    sources.sets = sets(&[
        ("admin.token", "hunter2-hunter2-hunter2"),
        ("sync.token", "hunter2"),
        ("message-router.config-url", "https://u:hunter2@h/config?key=hunter2"),
    ])
    .sets;
    let (settings, provenance) = Settings::load(&sources).expect("good values");
    let json = serde_json::to_string(&provenance).expect("rows are JSON");
    for shown in [format!("{settings:?}"), format!("{provenance:?}"), json] {
        assert!(!shown.contains("hunter2") && shown.contains("***"), "{shown}");
    }
    assert!(!format!("{sources:?}").contains("hunter2"));
    assert_eq!(settings.admin.token.expect("a token").reveal(), "hunter2-hunter2-hunter2");
    sources.sets = sets(&[
        ("admin.token", "hunter2 hunter2"),
        ("sync.token", "hunter2\n7"),
        ("message-router.config-url", "ftp://u:hunter2@h"),
    ])
    .sets;
    let errors = errors(&sources);
    assert!(errors.len() == 3 && !errors.join("").contains("hunter2"), "{errors:?}");
}

#[test]
fn pools_and_queues_come_from_the_file_and_a_flag_replaces_them() {
    let text = "[[pool]]\ncode = \"A\"\nconcurrency = 2\nrateLimitPerMinute = 60\nungrouped = \"parallel\"\n\
                [[queue]]\nqueueName = \"q\"\nqueueUri = \"sqlite:q.db\"\nvisibility_timeout = \"45s\"\n\
                ordering = \"strict\"\nattempts-max = 7\n";
    let mut sources = file(text);
    sources.pools = vec!["B=5,600/min".into(), "A=9".into()];
    sources.queues = vec!["other=sqlite:a=b.db".into()];
    let (settings, provenance) = Settings::load(&sources).expect("good values");
    let shown: Vec<String> = provenance.settings[keys().len()..]
        .iter()
        .map(|row| format!("{} = {} ({})", row.key, row.value, row.place))
        .collect();
    let want = [
        "pool.A = concurrency 9 (flag --pool)",
        "pool.B = concurrency 5, 600/min (flag --pool)",
        "queue.q = sqlite sqlite:q.db, visibility 45s, ordering strict, attempts-max 7 (c.toml:6)",
        "queue.other = sqlite sqlite:a=b.db (flag --queue)",
    ];
    assert_eq!(shown, want);
    assert_eq!(settings.topology.queues[0].attempts_max, 7);
}

#[test]
fn names_of_later_parts_are_a_notice_and_too_many_pools_an_error() {
    let text = "queue_warn = 10\n[outbox-processor]\npoll-interval = \"1s\"\n";
    let (_, provenance) = Settings::load(&file(text)).expect("a notice is no error");
    let said: Vec<String> = provenance.notices.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[1].contains("c.toml:3: outbox-processor.poll-interval: is not used"), "{said:?}");
    let mut sources = file("message-router.max-pools = 1");
    sources.pools = vec!["A=1".into(), "B=1".into()];
    assert!(errors(&sources)[0].contains("2 of them are written and 1 are allowed"));
}

#[test]
fn a_reload_tells_which_keys_changed() {
    let load = |sources: &Sources| Settings::load(sources).expect("good values").1;
    let (old, new) = (load(&file("")), load(&sets(&[("breaker.window", "12"), ("engine.shards", "2")])));
    assert_eq!(old.changed_keys(&new), ["breaker.window", "engine.shards"]);
    assert_eq!(old.changed_keys(&old), Vec::<&str>::new());
}

#[test]
fn as_many_pools_as_are_allowed_load_and_a_huge_value_is_cut_in_its_error() {
    let pool = |n: u32| format!("[[pool]]\ncode = \"P{n}\"\nconcurrency = 1\n");
    let pools = (0..10_000).map(pool).collect::<Vec<_>>().concat();
    let (settings, _) = Settings::load(&file(&pools)).expect("ten thousand pools");
    assert_eq!(settings.topology.pools.len(), 10_000);
    let long = "x".repeat(1 << 20);
    let errors = errors(&file(&format!("{long} = 1\nmemory.budget = \"{long}\"")));
    assert!(errors.len() == 2 && errors.iter().all(|error| error.len() < 1_000), "{errors:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_the_reader_panic(text in any::<String>(), words in "[a-z.=\\[\\]\"'#{}, \n0-9-]{0,200}") {
        for text in [text, words] {
            let _ = Settings::load(&file(&text));
            let queues = vec![text.clone()];
            let _ = Settings::load(&Sources { pools: queues.clone(), queues, ..Sources::default() });
        }
    }

    #[test]
    fn no_value_of_any_key_makes_its_reader_panic(at in 0..keys().len(), text in "[0-9a-zA-Z:/@,.+-]{0,12}") {
        let _ = Settings::load(&sets(&[(keys()[at].name, &text)]));
    }

    #[test]
    fn a_damaged_default_file_is_read_or_refused_and_never_panics(at in 0..DEFAULT_TOML.len(), with in "[ -~\n]{0,3}") {
        let mut text = with_examples();
        let at = text.char_indices().map(|(at, _)| at).take_while(|own| *own <= at).last().unwrap_or(0);
        text.insert_str(at, &with);
        let _ = Settings::load(&file(&text));
    }
}
