//! Fetching the config from a platform that misbehaves, and the edge's HTTP client against the sink.

use std::sync::Arc;
use std::time::{Duration, Instant};

use corelane::config::SyncSettings;
use corelane::http::{Client, HttpError, Limits};
use corelane::secret::Secret;
use corelane::sink::{Options, Protocol, start};
use corelane::sync::document::{DocumentError, PoolLimits};
use corelane::sync::fetch::{FetchError, Fetched, fetch};
use corelane::topology::Topology;
use shards::courier::tls::{Roots, config};

use crate::support::platform::{Platform, Reply};

const GOOD: &str = r#"{"processingPools":[{"code":"A","concurrency":5}],"queues":[]}"#;
const LIMITS: PoolLimits = PoolLimits { max: 100, warn_at: 100 };

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime starts").block_on(future)
}

fn quick() -> SyncSettings {
    SyncSettings {
        attempts: 5,
        pause: Duration::from_millis(1),
        timeout: Duration::from_millis(500),
        body_bytes_max: 1 << 20,
        ..SyncSettings::default()
    }
}

/// The outcome, and the tries that failed.
fn sync(platform: &Platform, sync: &SyncSettings) -> (Result<Fetched, FetchError>, Vec<String>) {
    let url = Secret::new(platform.url());
    let mut failed = Vec::new();
    let outcome = block_on(fetch(sync, &url, |one| {
        let last = if one.pause.is_none() { ", the last" } else { "" };
        failed.push(format!("{} of {}{last}: {}", one.number, one.of, one.error));
    }));
    (outcome, failed)
}

fn says(status: u16, body: &str) -> Reply {
    Reply::Says(status, body.to_owned())
}

#[test]
fn a_good_document_after_three_failures_is_taken_and_each_failure_is_told() {
    let platform = Platform::start(vec![says(500, ""), says(200, ""), Reply::Hangs, says(200, GOOD)]);
    let (outcome, failed) = sync(&platform, &quick());
    let fetched = outcome.expect("the fourth is good");
    assert_eq!(fetched.document.over(&Topology::default(), LIMITS).0.pools[0].code, "A");
    assert_eq!((failed.len(), platform.heads().len()), (3, 4));
    let want = ["1 of 5: the platform answered 500", "2 of 5: the document is empty", "3 of 5: 127.0.0.1:"];
    for (failed, want) in failed.iter().zip(want) {
        assert!(failed.starts_with(want), "{failed}");
    }
}

#[test]
fn a_platform_that_never_gets_well_ends_the_sync_after_its_tries() {
    let platform = Platform::start(vec![says(503, "")]);
    let (outcome, failed) = sync(&platform, &quick());
    assert!(matches!(outcome, Err(FetchError::Status { status }) if status == 503));
    assert_eq!((failed.len(), platform.heads().len()), (5, 5));
    assert!(failed[4].starts_with("5 of 5, the last:"), "{failed:?}");
}

#[test]
fn a_partial_document_is_never_taken() {
    for body in ["{}", r#"{"processingPools":[]}"#, "[]", &GOOD[..GOOD.len() - 5]] {
        let platform = Platform::start(vec![says(200, body)]);
        let (outcome, _) = sync(&platform, &SyncSettings { attempts: 1, ..quick() });
        assert!(matches!(outcome, Err(FetchError::Document(_))), "{body}: {outcome:?}");
    }
    let platform = Platform::start(vec![says(200, r#"{"processingPools":[],"queues":[]}"#)]);
    let (outcome, _) = sync(&platform, &SyncSettings { attempts: 1, ..quick() });
    assert!(matches!(outcome, Err(FetchError::Document(DocumentError::Nothing))), "{outcome:?}");
}

#[test]
fn slow_huge_and_redirecting_platforms_end_a_try_in_time() {
    let once = SyncSettings { attempts: 1, ..quick() };
    let elsewhere = Platform::start(vec![says(200, GOOD)]);
    let token = SyncSettings { token: Some(Secret::new("hunter2".into())), ..once.clone() };
    let rows = [
        (Reply::Stalls, "did not answer within 500ms"),
        (Reply::Floods, "more than 1048576 bytes"),
        (Reply::Points(elsewhere.url()), "redirects are not followed"),
    ];
    for (reply, want) in rows {
        let platform = Platform::start(vec![reply]);
        let start = Instant::now();
        let (outcome, failed) = sync(&platform, &token);
        assert!(outcome.is_err() && failed[0].contains(want), "{want}: {failed:?}");
        assert!(!failed[0].contains("hunter2"), "{failed:?}");
        assert!(start.elapsed() < Duration::from_secs(10), "{want}: {:?}", start.elapsed());
    }
    assert_eq!(elsewhere.heads(), Vec::<String>::new(), "a token never follows a redirect");
}

#[test]
fn the_client_speaks_all_four_methods_and_brings_its_token() {
    let platform = Platform::start(vec![says(200, "hello")]);
    let client = Client::new(Limits::default(), Some(Secret::new("sesame".into())));
    let url = platform.url();
    block_on(async {
        for answer in [
            client.get(&url).await,
            client.delete(&url).await,
            client.post(&url, "{}").await,
            client.put(&url, "{}").await,
        ] {
            let answer = answer.expect("an answer");
            assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, &b"hello"[..]));
        }
    });
    for (head, method) in platform.heads().iter().zip(["GET", "DELETE", "POST", "PUT"]) {
        assert!(head.starts_with(&format!("{method} /config HTTP/1.1\r\n")), "{head}");
        assert!(
            head.contains("authorization: Bearer sesame\r\n") && head.contains("host: 127.0.0.1:"),
            "{head}"
        );
    }
    assert!(!format!("{client:?}").contains("sesame"));
}

#[test]
fn https_is_verified() {
    let options = Options { protocol: Protocol::Http1Tls, ..Options::default() };
    let sink = start(&options).expect("the sink starts");
    let pem = sink.cert_pem().expect("TLS has a certificate").to_owned();
    let trusting = config(Roots { native: false, extra_pem: pem.as_bytes() }).expect("its certificate");
    let strange =
        rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("another one").cert.pem();
    let doubting = config(Roots { native: false, extra_pem: strange.as_bytes() }).expect("a certificate");
    let url = format!("https://localhost:{}/ok", sink.address().port());
    let get = |tls| block_on(Client::new(Limits::default(), None).with_tls(Arc::new(tls)).get(&url));
    assert_eq!(get(trusting).expect("it is trusted").status, 200);
    let error = get(doubting).expect_err("no one vouches for it");
    assert!(matches!(error, HttpError::Unreachable { .. }), "{error}");
}
