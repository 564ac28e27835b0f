//! `corelane check` as a person or a pipeline runs it: the binary, a directory, an environment and flags.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use corelane::secret::Secret;
use corelane::sync::cache;
use corelane::sync::document::{self, PoolLimits};
use corelane::topology::Topology;
use serde_json::Value;

use crate::support::platform::{Platform, Reply};

const LIMITS: PoolLimits = PoolLimits { max: 100, warn_at: 100 };

/// A working directory of its own; it goes at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(config: Option<&str>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("corelane-check-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).expect("a new directory");
        if let Some(text) = config {
            std::fs::write(directory.join("corelane.toml"), text).expect("the directory is ours");
        }
        Self(directory)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn check(&self, flags: &[&str], env: &[(&str, &str)]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_corelane"))
            .arg("check")
            .args(flags)
            .env_clear()
            .envs(env.iter().copied())
            .current_dir(self.path())
            .output()
            .expect("the binary runs")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Value and origin of a key in the table.
fn row(output: &Output, key: &str) -> (String, String) {
    let text = text(output);
    let line = text.lines().find(|line| line.split(' ').next() == Some(key));
    let line = line.unwrap_or_else(|| panic!("{key} is in\n{text}"));
    let words: Vec<&str> = line.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect();
    (words[1].to_owned(), words[2].to_owned())
}

#[test]
fn without_any_config_check_is_content_and_names_the_default_queue() {
    let output = Folder::new(None).check(&[], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert_eq!(row(&output, "queue.default"), ("sqlite sqlite:corelane.db".into(), "default".into()));
    assert_eq!(row(&output, "admin.token"), ("(unset)".into(), "default".into()));
    assert!(text(&output).ends_with("ok\n"), "{}", text(&output));
}

/// Flags, environment, value, origin.
type Layer<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str, &'a str);

#[test]
fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    let folder = Folder::new(Some("# first line\nmediator.http.timeout.ms = 1000\n"));
    let (key, name) = ("mediator.http.timeout.ms", "MEDIATOR_HTTP_TIMEOUT_MS");
    let set = format!("--set={key}=3000");
    let rows: [Layer<'_>; 4] = [
        (&["--config", "other.toml"], &[], "900000", "default"),
        (&[], &[], "1000", "corelane.toml:2"),
        (&[], &[(name, "2000")], "2000", "env MEDIATOR_HTTP_TIMEOUT_MS"),
        (&[&set], &[(name, "2000")], "3000", "flag --set"),
    ];
    std::fs::write(folder.path().join("other.toml"), "").expect("the directory is ours");
    for (flags, env, value, origin) in rows {
        let output = folder.check(flags, env);
        assert_eq!(row(&output, key), (value.into(), origin.into()), "{flags:?} {env:?}");
        assert_eq!(output.status.code(), Some(0));
    }
    let output = folder.check(&[], &[("CORELANE_CONFIG", "other.toml")]);
    assert_eq!(row(&output, key).1, "default", "CORELANE_CONFIG names the file");
}

#[test]
fn every_flag_reaches_its_key() {
    let flags = [
        "--shards=2",
        "--ingress-core=0",
        "--shard-cores=1,2",
        "--io=epoll",
        "--spin-us=50",
        "--listen=127.0.0.1:9999",
        "--queue=q=nats://h/s",
        "--pool=P=5,600/min",
        "--grace=1m",
        "--log=debug",
        "--log-format=json",
        "--allow-mass-removal",
    ];
    let output = Folder::new(None).check(&flags, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let rows = [
        ("engine.shards", "2", "--shards"),
        ("engine.ingress-core", "0", "--ingress-core"),
        ("engine.shard-cores", "1,2", "--shard-cores"),
        ("engine.io", "epoll", "--io"),
        ("engine.spin", "50us", "--spin-us"),
        ("admin.listen", "127.0.0.1:9999", "--listen"),
        ("queue.q", "nats nats://h/s", "--queue"),
        ("pool.P", "concurrency 5, 600/min", "--pool"),
        ("shutdown.grace", "1m", "--grace"),
        ("log.filter", "debug", "--log"),
        ("log.format", "json", "--log-format"),
        ("sync.allow-mass-removal", "true", "--allow-mass-removal"),
    ];
    for (key, value, flag) in rows {
        assert_eq!(row(&output, key), (value.into(), format!("flag {flag}")), "{key}");
    }
}

/// Config, flags, environment, what is said.
type Bad<'a> = (&'a str, &'a [&'a str], &'a [(&'a str, &'a str)], &'a str);

#[test]
fn each_kind_of_bad_value_is_named_with_its_place_and_ends_with_two() {
    let rows: [Bad<'_>; 15] = [
        ("a = \n", &[], &[], "corelane.toml:1: syntax:"),
        (
            "\nadmin.lisen = \"x\"",
            &[],
            &[],
            "corelane.toml:2: admin.lisen: is no setting; did you mean `admin.listen`?",
        ),
        ("sync.interval-of-sync = 1", &[], &[], "`corelane check` lists all keys"),
        (
            "message-router.sync-interval = 5",
            &[],
            &[],
            "corelane.toml:1: message-router.sync-interval: \"5\" has no unit; write 5ms, 5s",
        ),
        ("memory.budget = \"lots\"", &[], &[], "memory.budget: \"lots\" is not a size"),
        ("mediator.http.version = \"HTTP_3\"", &[], &[], "not one of: HTTP_2, HTTP_1_1"),
        ("[mediator.http.version]\nx = 1", &[], &[], "is a section here"),
        ("[pool]\ncode = \"A\"", &[], &[], "pool: is not a list of sections; write [[pool]]"),
        (
            "[[queue]]\nname = \"q\"\nuri = \"kafka://h\"",
            &[],
            &[],
            "corelane.toml:3: queue.uri: has the scheme kafka",
        ),
        (
            "",
            &[],
            &[("MESSAGE_ROUTER_MAX_POOLS", "many")],
            "env MESSAGE_ROUTER_MAX_POOLS: message-router.max-pools: \"many\" is not a number",
        ),
        ("", &["--io=fast"], &[], "flag --io: engine.io: \"fast\" is not one of: auto, uring"),
        ("", &["--set", "engine.shards"], &[], "flag --set: --set: has no `=`; write KEY=VALUE"),
        (
            "",
            &["--listen=0.0.0.0:80"],
            &[],
            "flag --listen: admin.listen: 0.0.0.0:80 can be reached from outside",
        ),
        ("", &["--config", "gone.toml"], &[], "gone.toml: --config: is not there"),
        ("", &["--config", "."], &[], ".: --config: can't be read"),
    ];
    for (config, flags, env, want) in rows {
        let output = Folder::new(Some(config)).check(flags, env);
        assert_eq!(output.status.code(), Some(2), "{config:?} {flags:?} {env:?}\n{}", text(&output));
        assert!(text(&output).contains(want), "{want}\n{}", text(&output));
        assert!(text(&output).ends_with("1 problem\n"), "{}", text(&output));
    }
}

#[test]
fn json_says_the_same_for_programs() {
    let folder = Folder::new(Some("[admin]\nlisten = \"127.0.0.1:1\"\n"));
    let read = |output: &Output| -> Value { serde_json::from_slice(&output.stdout).expect("JSON") };
    let good = read(&folder.check(&["--json"], &[("GATEWAY_X", "1")]));
    let settings = good["settings"].as_array().expect("a list");
    let listen = settings.iter().find(|row| row["key"] == "admin.listen").expect("a row");
    assert_eq!((&listen["value"], &listen["from"]), (&"127.0.0.1:1".into(), &"corelane.toml:2".into()));
    assert_eq!((&good["ok"], good["notices"].as_array().map(Vec::len)), (&true.into(), Some(1)));
    let output = folder.check(&["--json", "--grace=x", "--log-format=y"], &[]);
    let bad = read(&output);
    assert_eq!((output.status.code(), &bad["ok"]), (Some(2), &false.into()));
    assert_eq!(bad["problems"][0]["where"], "flag --grace");
    assert_eq!(bad["problems"][1]["key"], "log.format");
}

#[test]
fn a_secret_is_shown_in_no_output_good_or_bad() {
    let config = "[admin]\ntoken = \"hunter2-hunter2-hunter2\"\n[[queue]]\nname = \"q\"\nuri = \"nats://u:hunter2@h/s\"";
    let env = [
        ("CORELANE_SYNC_TOKEN", "hunter2"),
        ("MESSAGE_ROUTER_CONFIG_URL", "http://u:hunter2@127.0.0.1:1/c?k=hunter2"),
    ];
    for flags in [&["--offline"][..], &["--offline", "--json"], &["--json"], &["--set=admin.token=hunter2"]] {
        let output = Folder::new(Some(config)).check(flags, &env);
        assert!(!text(&output).contains("hunter2"), "{flags:?}\n{}", text(&output));
        assert!(text(&output).contains("***") || output.status.code() == Some(2), "{}", text(&output));
    }
    let bad = [("CORELANE_SYNC_TOKEN", "hunter2 x"), ("MESSAGE_ROUTER_CONFIG_URL", "hunter2://u:hunter2@h")];
    let output = Folder::new(None).check(&[], &bad);
    assert!(output.status.code() == Some(2) && !text(&output).contains("hunter2"), "{}", text(&output));
}

const DOCUMENT: &str = r#"{"processingPools":[{"code":"A","concurrency":5},{"code":"BAD","concurrency":0}],
                           "queues":[{"queueName":"q","queueUri":"nats://u:hunter2@h/s"}]}"#;

#[test]
fn check_asks_the_platform_and_shows_what_would_change() {
    let platform = Platform::start(vec![Reply::Says(200, DOCUMENT.into())]);
    let folder = Folder::new(None);
    let url = format!("--config-url={}", platform.url());
    let output = folder.check(&[&url], &[("CORELANE_SYNC_TOKEN", "sesame")]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for want in [
        "pool A: concurrency 5",
        "queue q: nats nats://***@h/s",
        "warning: processingPools[1] \"BAD\": concurrency is 0",
        "set pool A",
        "add queue q",
    ] {
        assert!(said.contains(want), "{want}\n{said}");
    }
    assert!(!said.contains("hunter2") && !said.contains("sesame"), "{said}");
    assert!(platform.heads()[0].contains("Bearer sesame") || platform.heads()[0].contains("bearer sesame"));
    let output = folder.check(&[&url, "--offline"], &[]);
    assert_eq!((output.status.code(), platform.heads().len()), (Some(0), 1), "--offline asks no one");
}

#[test]
fn check_compares_with_the_last_good_config_and_refuses_a_mass_removal() {
    let platform = Platform::start(vec![Reply::Says(200, DOCUMENT.into())]);
    let folder = Folder::new(None);
    let pools: Vec<String> =
        ["A", "B", "C", "BAD"].map(|code| format!(r#"{{"code":"{code}","concurrency":7}}"#)).to_vec();
    let old = format!(
        r#"{{"processingPools":[{}],"queues":[{{"queueName":"q","queueUri":"nats://u:hunter2@h/s"}}]}}"#,
        pools.join(",")
    );
    let url = Secret::new(platform.url());
    let (old, _) = document::read(old.as_bytes()).expect("a document").over(&Topology::default(), LIMITS);
    cache::write(&folder.path().join("corelane-config.json"), &url, &old, 1).expect("a cache");
    let flag = format!("--config-url={}", platform.url());
    let output = folder.check(&[&flag], &[]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output));
    assert!(text(&output).contains("it would remove 2 of 4 pools, more than 30 %"), "{}", text(&output));
    let output = folder.check(&[&flag, "--allow-mass-removal"], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let said = text(&output);
    for want in ["set pool A: concurrency 5", "remove pool B", "remove pool C", "pool BAD: concurrency 7"] {
        assert!(said.contains(want), "{want}\n{said}");
    }
    assert!(!said.contains("queue q: nats nats://***@h/s\n  remove"), "an unchanged queue is not touched");
}

#[test]
fn check_says_what_is_wrong_with_the_platform() {
    let rows = [
        (Reply::Says(500, "x".into()), "answered 500"),
        (Reply::Says(401, "x".into()), "check sync.token"),
        (Reply::Says(200, String::new()), "the document is empty"),
        (Reply::Says(200, "{\"queues\":[]}".into()), "no `processingPools`"),
        (Reply::Points("http://elsewhere/".into()), "redirects are not followed"),
        (Reply::Floods, "more than 8388608 bytes"),
        (Reply::Hangs, "broke the exchange off"),
    ];
    for (reply, want) in rows {
        let platform = Platform::start(vec![reply]);
        let output = Folder::new(None).check(&[&format!("--config-url={}", platform.url())], &[]);
        assert_eq!(output.status.code(), Some(2), "{want}\n{}", text(&output));
        assert!(text(&output).contains(want), "{want}\n{}", text(&output));
    }
    let nobody = Folder::new(None).check(&["--config-url=http://127.0.0.1:1/c"], &[]);
    assert!(text(&nobody).contains("nothing listens at 127.0.0.1:1"), "{}", text(&nobody));
}

#[test]
fn completions_know_the_subcommands_in_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = Command::new(env!("CARGO_BIN_EXE_corelane")).args(["completions", shell]).output();
        let output = output.expect("the binary runs");
        let said = text(&output);
        assert!(
            output.status.success() && said.contains("check") && said.contains("allow-mass-removal"),
            "{said}"
        );
    }
}
