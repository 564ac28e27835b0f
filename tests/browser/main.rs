//! The dashboard in a real browser, over a router with canned but moving figures and over a real one with traffic.
//! `make browser` runs it.

#[path = "../support/fake.rs"]
mod fake;
#[path = "../support/ports.rs"]
mod ports;
#[path = "../support/router.rs"]
#[expect(dead_code, reason = "the integration tests use the rest")]
mod router;
#[path = "../support/wait.rs"]
mod wait;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelane::admin::{Settings, Token};
use router::{Dir, Router, SinkProgram, message};

const TOKEN: &str = "a-token-of-some-length";

/// Chromium's files; removed at the end.
struct Profile(std::path::PathBuf);

impl Drop for Profile {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A real router, a target, and messages of every kind, more of them each time.
struct Real {
    router: Router,
    sink: SinkProgram,
    _dir: Dir,
}

impl Real {
    fn start() -> Self {
        let dir = Dir::new();
        let sink = SinkProgram::start(&dir);
        let router = Router::start(&dir, &["--pool", "ORDERS=8"]);
        let slow = sink.url("/slow?ms=600000");
        router.publish(&[
            message("stuck-1", "stuck", "ORDERS", &slow),
            message("stuck-2", "stuck", "ORDERS", &slow),
            message("refused", "bad", "ORDERS", &sink.url("/status/404")),
            message("astray", "lost", "NO-SUCH-POOL", &sink.url("/ok")),
        ]);
        Self { router, sink, _dir: dir }
    }

    /// Keeps traffic flowing until `is_over`.
    fn flow(&self, is_over: &AtomicBool) {
        let target = self.sink.url("/slow?ms=20");
        let mut number = 0;
        while !is_over.load(Ordering::Relaxed) {
            let next = |n| message(&format!("o{n}"), &format!("order-{}", n % 50), "ORDERS", &target);
            self.router.publish(&(number..number + 50).map(next).collect::<Vec<_>>());
            number += 50;
            std::thread::park_timeout(Duration::from_millis(400));
        }
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
    let real = Real::start();
    let is_over = AtomicBool::new(false);
    let drive = || {
        let status = Command::new("node")
            .arg(root.join("tests/browser/dashboard.mjs"))
            .env("OPEN_URL", format!("http://{}/", open.address))
            .env("GUARDED_URL", format!("http://{}/", guarded.address))
            .env("REAL_URL", format!("http://{}/", real.router.admin))
            .env("TOKEN", TOKEN)
            .env("SHOTS", &shots)
            .env("PROFILE", &profile.0)
            .status();
        is_over.store(true, Ordering::Relaxed);
        status
    };
    let status = std::thread::scope(|scope| {
        scope.spawn(|| real.flow(&is_over));
        drive()
    });
    let status = status.expect("node runs: tests/services/browser.sh installs it");
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
