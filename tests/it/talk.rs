//! The subcommands that talk to a running router: what they print, and what they say when it goes wrong.

use std::process::{Command, Output};

use corelane::admin::{Settings, Token};

use crate::support::fake::{HOSTILE, Served, serve};
use crate::support::ports::free_address;

const TOKEN: &str = "a-token-of-some-length";

fn corelane(args: &[&str], token: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    command.args(args).env_remove("CORELANE_URL").env_remove("CORELANE_TOKEN");
    if let Some(token) = token {
        command.env("CORELANE_TOKEN", token);
    }
    command.output().expect("the binary runs")
}

fn ask(served: &Served, args: &[&str]) -> String {
    let url = format!("http://{}", served.address);
    let output = corelane(&[args, &["--url", &url]].concat(), None);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// What it says on its way out; it must fail.
fn complaint(args: &[&str], token: Option<&str>) -> String {
    let output = corelane(args, token);
    assert!(!output.status.success(), "{args:?} should fail");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn status_shows_every_part_of_the_router() {
    let served = serve(Settings::default());
    let text = ask(&served, &["status"]);
    let parts = [
        "running, ready",
        "WEBHOOKS",
        "orders-eu",
        "UNHEALTHY: connection refused",
        "TRIPPED, 4 s left",
        "BUSY",
        "CRITICAL CONSUMER_RESTART_FAILED orders-eu: the broker refused the connection",
        "(×2)",
    ];
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json: serde_json::Value = serde_json::from_str(&ask(&served, &["status", "--json"])).expect("JSON");
    assert_eq!(json["pools"][0]["code"], "BILLING");
}

#[test]
fn explain_says_what_is_waited_for() {
    let served = serve(Settings::default());
    let text = ask(&served, &["explain", "customer 7 & more"]);
    assert!(text.starts_with("Group customer 7 & more waits for the breaker"), "{text}");
    assert!(text.contains("17, the oldest 12 s old"), "{text}");
    assert!(ask(&served, &["explain", HOSTILE]).contains("<img"), "any name can be asked for");
    let url = format!("http://{}", served.address);
    let said = complaint(&["explain", "nobody", "--url", &url], None);
    assert!(said.contains("nothing is known of \"nobody\""), "{said}");
}

#[test]
fn seed_publishes_all_in_order_and_says_where() {
    let served = serve(Settings::default());
    let text = ask(
        &served,
        &["seed", "--count", "12000", "--endpoint", "slow", "--mode", "1of8", "--queue", "high"],
    );
    assert!(text.contains("12000 messages on queue high") && text.contains("/api/test/slow"), "{text}");
    let published = served.fake.published.lock();
    let ids: std::collections::BTreeSet<&str> = published.iter().map(|(_, one)| one.id.as_str()).collect();
    assert_eq!((published.len(), ids.len()), (12_000, 12_000), "each id once");
    assert!(published.iter().all(|(queue, _)| queue == "high"));
}

#[test]
fn what_goes_wrong_says_what_to_do_next() {
    let nobody = format!("http://{}", free_address());
    let said = complaint(&["status", "--url", &nobody], None);
    assert!(said.contains("nothing answers") && said.contains("corelane run"), "{said}");
    let said = complaint(&["status", "--url", "https://127.0.0.1:1"], None);
    assert!(said.contains("http://HOST:PORT"), "{said}");
    let token = Token::new(TOKEN).expect("long enough");
    let served = serve(Settings { token: Some(token), ..Settings::default() });
    let url = format!("http://{}", served.address);
    for shown in [None, Some("wrong-token-of-length")] {
        let said = complaint(&["status", "--url", &url], shown);
        assert!(said.contains("CORELANE_TOKEN") && said.contains("--token-file"), "{said}");
        assert!(!said.contains("wrong-token"), "{said}");
    }
    assert!(corelane(&["status", "--url", &url], Some(TOKEN)).status.success());
    let file = std::env::temp_dir().join(format!("corelane-token-{}", std::process::id()));
    std::fs::write(&file, format!("{TOKEN}\n")).expect("a file");
    let output = corelane(&["status", "--url", &url, "--token-file", &file.to_string_lossy()], None);
    let _ = std::fs::remove_file(&file);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
