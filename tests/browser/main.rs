//! The dashboard in a real browser, over a router with canned but moving figures. `make browser` runs it.

#[path = "../support/fake.rs"]
mod fake;

use std::path::Path;
use std::process::Command;

use corelane::admin::{Settings, Token};

const TOKEN: &str = "a-token-of-some-length";

/// Chromium's files; removed at the end.
struct Profile(std::path::PathBuf);

impl Drop for Profile {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_dashboard_shows_and_does_what_it_promises() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shots = root.join("target/screenshots");
    std::fs::create_dir_all(&shots).expect("a folder for screenshots");
    let profile = Profile(std::env::temp_dir().join(format!("corelane-browser-{}", std::process::id())));
    let open = fake::serve(Settings::default());
    let token = Token::new(TOKEN).expect("long enough");
    let guarded = fake::serve(Settings { token: Some(token), ..Settings::default() });
    let status = Command::new("node")
        .arg(root.join("tests/browser/dashboard.mjs"))
        .env("OPEN_URL", format!("http://{}/", open.address))
        .env("GUARDED_URL", format!("http://{}/", guarded.address))
        .env("TOKEN", TOKEN)
        .env("SHOTS", &shots)
        .env("PROFILE", &profile.0)
        .status()
        .expect("node runs: tests/services/browser.sh installs it");
    assert!(status.success(), "see above for what failed; screenshots are in {}", shots.display());
    assert_eq!(
        open.fake.retried.lock().first().map(|filter| filter.numbers.len()),
        Some(1),
        "one was retried alone"
    );
    let pools = open.fake.pools.lock();
    let orders = pools.iter().find(|pool| pool.code == "ORDERS").expect("a pool of the fake");
    assert_eq!((orders.concurrency, orders.rate_limit_per_minute), (123, Some(4_567)), "the edit arrived");
}
