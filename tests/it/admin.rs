//! The admin API over loopback: every route, every refusal.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use corelane::admin::routes::{Access, Method, ROUTES};
use corelane::admin::{Admin, RouterError, Settings, SettingsError, Token};
use serde_json::{Value, json};

use crate::support::fake::{Served, serve};
use crate::support::http::{Answered, raw, send};

const TOKEN: &str = "a-token-of-some-length";
const JSON: (&str, &str) = ("content-type", "application/json");

fn open() -> Served {
    serve(Settings::default())
}

fn guarded() -> Served {
    serve(Settings { token: Some(Token::new(TOKEN).expect("long enough")), ..Settings::default() })
}

fn get(served: &Served, path: &str) -> Answered {
    send(served.address, "GET", path, &[], "")
}

fn change(served: &Served, method: &str, path: &str, body: &Value) -> Answered {
    send(served.address, method, path, &[JSON], &body.to_string())
}

/// A path of the table with its parameters filled in.
fn filled(path: &str) -> String {
    path.replace("{code}", "ORDERS").replace("{id}", "1").replace("{number}", "1")
}

#[test]
fn every_route_answers_with_sealed_headers() {
    for route in &ROUTES {
        let served = open();
        let (path, method) = (filled(route.path), route.method.name());
        let path = match route.path {
            "/api/explain" => "/api/explain?what=customer-1".to_owned(),
            "/api/test/slow" => "/api/test/slow?ms=1".to_owned(),
            "/api/dead-letters" if route.method == Method::Delete => {
                "/api/dead-letters?pool=ORDERS".to_owned()
            }
            _ => path,
        };
        let body = match route.path {
            "/api/pools/{code}" => json!({"concurrency": 5}),
            "/api/dead-letters/retry" => json!({"numbers": [1]}),
            "/api/messages" => json!({"id": "a", "mediationTarget": "http://127.0.0.1:1/"}),
            _ => Value::Null,
        };
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answered = send(served.address, method, &path, &[JSON], &body);
        let want = match route.path {
            "/api/test/fail" => 500,
            "/api/test/throttled" => 429,
            _ => 200,
        };
        // The pattern of /faulty is fixed, and its first call succeeds.
        assert_eq!(answered.status, want, "{method} {path}: {answered:?}");
        assert_eq!(answered.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert!(
            answered.header("content-security-policy").is_some_and(|csp| csp.contains("default-src 'none'"))
        );
        assert!(!answered.body.is_empty(), "{path}");
    }
}

#[test]
fn with_a_token_every_guarded_route_refuses_without_it() {
    let served = guarded();
    let (right, wrong) = (format!("Bearer {TOKEN}"), "Bearer another-token-of-length");
    for route in &ROUTES {
        let (path, method) = (filled(route.path), route.method.name());
        let without = send(served.address, method, &path, &[], "");
        let needs = matches!(route.access, Access::Read | Access::Write);
        assert_eq!(without.status == 401, needs, "{method} {path}: {}", without.status);
        if needs {
            assert_eq!(without.code(), "TOKEN_MISSING");
            assert_eq!(without.header("www-authenticate"), Some("Bearer"));
        }
        let with = send(served.address, method, &path, &[("authorization", &right)], "");
        assert_ne!(with.status, 401, "{method} {path}");
    }
    let refused = send(served.address, "GET", "/api/view", &[("authorization", wrong)], "");
    assert_eq!((refused.status, refused.code().as_str()), (401, "TOKEN_WRONG"));
}

#[test]
fn a_foreign_host_is_refused_on_every_route() {
    let served = open();
    for route in &ROUTES {
        let answered =
            send(served.address, route.method.name(), &filled(route.path), &[("host", "evil.example")], "");
        assert_eq!((answered.status, answered.code().as_str()), (421, "HOST_REFUSED"), "{}", route.path);
    }
    let absolute = raw(
        served.address,
        b"GET http://evil.example/api/view HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    );
    assert_eq!(absolute.status, 421, "a whole URL names a host too: {absolute:?}");
    let known = serve(Settings { hosts: vec!["router.example".into()], ..Settings::default() });
    assert_eq!(send(known.address, "GET", "/api/view", &[("host", "router.example")], "").status, 200);
}

#[test]
fn a_page_of_another_site_changes_nothing() {
    let served = open();
    for route in ROUTES.iter().filter(|route| route.access == Access::Write) {
        let headers = [("origin", "https://evil.example"), JSON];
        let answered = send(served.address, route.method.name(), &filled(route.path), &headers, "{}");
        assert_eq!((answered.status, answered.code().as_str()), (403, "ORIGIN_REFUSED"), "{}", route.path);
    }
    let own = format!("http://{}", served.address);
    let answered = send(served.address, "POST", "/api/warnings/1/acknowledge", &[("origin", &own)], "");
    assert_eq!(answered.status, 200, "{answered:?}");
    let plain = send(served.address, "PATCH", "/api/pools/ORDERS", &[("content-type", "text/plain")], "{}");
    assert_eq!((plain.status, plain.code().as_str()), (415, "NOT_JSON"));
}

#[test]
fn an_address_that_others_can_reach_needs_a_token() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let settings = Settings { listen: "0.0.0.0:0".parse().expect("an address"), ..Settings::default() };
    let error = runtime.block_on(Admin::bind(settings)).expect_err("refused");
    assert!(matches!(error, SettingsError::TokenMissing(_)), "{error}");
    assert!(error.to_string().contains("CORELANE_ADMIN_TOKEN"), "{error}");
}

#[test]
fn bodies_and_heads_have_limits() {
    let served = open();
    let long = format!("{{\"concurrency\": 1{}}}", " ".repeat(1 << 20));
    let answered = send(served.address, "PUT", "/api/pools/ORDERS", &[JSON], &long);
    assert_eq!((answered.status, answered.code().as_str()), (413, "BODY_TOO_LARGE"));
    let message =
        json!({"id": "a", "mediationTarget": "http://127.0.0.1:1/", "unknown": "x".repeat(2 << 20)});
    assert_eq!(change(&served, "POST", "/api/messages", &message).status, 200, "a batch may be larger");
    let many = "x: y\r\n".repeat(200);
    let answered =
        raw(served.address, format!("GET /health HTTP/1.1\r\nhost: localhost\r\n{many}\r\n").as_bytes());
    assert_eq!(answered.status, 431, "{answered:?}");
    let long = "y".repeat(64 * 1024);
    let answered = raw(
        served.address,
        format!("GET /health HTTP/1.1\r\nhost: localhost\r\nx: {long}\r\n\r\n").as_bytes(),
    );
    assert_eq!(answered.status, 431, "{answered:?}");
}

#[test]
fn what_is_not_there_says_where_to_look() {
    let served = open();
    let rows = [
        ("GET", "/nowhere", 404, "NO_SUCH_PATH"),
        ("GET", "/api/../etc/passwd", 404, "NO_SUCH_PATH"),
        ("DELETE", "/api/pools", 405, "WRONG_METHOD"),
        ("POST", "/health", 405, "WRONG_METHOD"),
    ];
    for (method, path, status, code) in rows {
        let answered = send(served.address, method, path, &[], "");
        assert_eq!((answered.status, answered.code().as_str()), (status, code), "{method} {path}");
    }
}

#[test]
fn wrong_input_is_refused_by_name() {
    let served = open();
    let none = Value::Null;
    let rows = [
        ("GET", "/api/groups?by=size", none.clone(), 400, "by"),
        ("GET", "/api/groups?limit=0", none.clone(), 400, "limit"),
        ("GET", "/api/groups?limit=1&limit=2", none.clone(), 400, "limit"),
        ("GET", "/api/groups?lmit=5", none.clone(), 400, "lmit"),
        ("GET", "/api/inflight?limit=x", none.clone(), 400, "limit"),
        ("GET", "/api/explain", none.clone(), 400, "what"),
        ("GET", "/api/explain?what=nobody", none.clone(), 404, "what"),
        ("GET", "/api/dead-letters?numbers=1,x", none.clone(), 400, "numbers"),
        ("GET", "/api/dead-letters?status=10000", none.clone(), 400, "status"),
        ("GET", "/api/dead-letters/x", none.clone(), 400, "number"),
        ("GET", "/api/dead-letters/999", none.clone(), 404, "number"),
        ("DELETE", "/api/dead-letters", none.clone(), 400, "all"),
        ("DELETE", "/api/dead-letters?all=yes", none.clone(), 400, "all"),
        ("POST", "/api/dead-letters/retry", json!({}), 400, "all"),
        ("POST", "/api/dead-letters/retry", json!({"all": true, "pool": "A"}), 400, "all"),
        ("POST", "/api/dead-letters/retry", json!({"pol": "A"}), 400, "body"),
        ("POST", "/api/warnings/x/acknowledge", none.clone(), 400, "id"),
        ("POST", "/api/warnings/99/acknowledge", none.clone(), 404, "id"),
        ("DELETE", "/api/warnings/99", none.clone(), 404, "id"),
        ("PUT", "/api/pools/NONE", json!({"concurrency": 1}), 404, "code"),
        ("PUT", "/api/pools/ORDERS", json!({"concurrency": 0}), 400, "concurrency"),
        ("PATCH", "/api/pools/ORDERS", json!({"rateLimitPerMinute": -1}), 400, "rateLimitPerMinute"),
        (
            "POST",
            "/api/messages?queue=none",
            json!({"id": "a", "mediationTarget": "http://h/"}),
            404,
            "queue",
        ),
        ("POST", "/api/messages", json!([{"id": "a"}]), 400, "[0]"),
        ("POST", "/api/seed/messages?count=100001", none.clone(), 400, "count"),
        ("POST", "/api/seed/messages?endpoint=nice", none.clone(), 400, "endpoint"),
        ("POST", "/api/seed/messages?endpoint=ftp://h/", none.clone(), 400, "endpoint"),
        ("POST", "/api/seed/messages?messageGroupMode=some", none.clone(), 400, "messageGroupMode"),
        ("POST", "/api/seed/messages?queue=none", none.clone(), 404, "queue"),
    ];
    for (method, path, body, status, field) in rows {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answered = send(served.address, method, path, &[JSON], &body);
        assert_eq!(answered.status, status, "{method} {path}: {answered:?}");
        let error = &answered.json()["error"];
        assert_eq!(error["field"], field, "{method} {path}: {error}");
        assert!(error["message"].as_str().is_some_and(|text| text.len() > 10), "{error}");
    }
    let answered = send(served.address, "PUT", "/api/pools/ORDERS", &[JSON], "{");
    assert_eq!((answered.status, answered.code().as_str()), (400, "INVALID"));
}

#[test]
fn the_routers_own_refusals_keep_their_meaning() {
    let served = open();
    let rows = [
        (RouterError::NotPossible("this queue is only read".into()), 409, "NOT_POSSIBLE"),
        (RouterError::Busy { reason: "draining".into(), after: Duration::from_secs(3) }, 503, "BUSY"),
        (RouterError::Failed("the disk is full".into()), 500, "FAILED"),
    ];
    for (error, status, code) in rows {
        *served.fake.fails.lock() = Some(error);
        let answered = change(&served, "PATCH", "/api/pools/ORDERS", &json!({"concurrency": 1}));
        assert_eq!((answered.status, answered.code().as_str()), (status, code));
        assert_eq!(answered.header("retry-after"), (status == 503).then_some("3"));
    }
}

#[test]
fn health_tells_live_from_ready() {
    let served = open();
    let rows = [
        // reasons, age of the view; live, ready, health
        (vec![], 0, 200, 200, 200),
        (vec!["orders-eu: backlog and no delivery for 60 s".to_owned()], 0, 200, 503, 503),
        (vec![], 31_000, 503, 503, 503),
    ];
    for (reasons, age_ms, live, ready, health) in rows {
        served.fake.not_ready.lock().clone_from(&reasons);
        *served.fake.age_ms.lock() = age_ms;
        assert_eq!(get(&served, "/health/live").status, live, "live: {reasons:?} {age_ms}");
        assert_eq!(get(&served, "/health/ready").status, ready, "ready: {reasons:?} {age_ms}");
        let answered = get(&served, "/_health");
        assert_eq!(answered.status, health);
        assert_eq!(answered.json()["status"], if health == 200 { "UP" } else { "DOWN" });
        assert!(reasons.iter().all(|reason| answered.body.contains(reason)), "{answered:?}");
    }
}

#[test]
fn a_pool_is_changed_and_shown_as_changed() {
    let served = open();
    let answered = change(&served, "PATCH", "/api/pools/ORDERS", &json!({"rateLimitPerMinute": 90}));
    assert_eq!(answered.json(), json!({"code": "ORDERS", "rateLimitPerMinute": 90}));
    let pool = |served: &Served| get(served, "/api/pools").json()["pools"][2].clone();
    assert_eq!(
        (&pool(&served)["concurrency"], &pool(&served)["rateLimitPerMinute"]),
        (&json!(200), &json!(90))
    );
    change(&served, "PUT", "/api/pools/ORDERS", &json!({"concurrency": 7}));
    assert_eq!(
        (&pool(&served)["concurrency"], &pool(&served)["rateLimitPerMinute"]),
        (&json!(7), &Value::Null)
    );
}

#[test]
fn warnings_are_listed_acknowledged_and_cleared() {
    let served = open();
    let list = get(&served, "/api/warnings").json();
    assert_eq!((&list["unacknowledged"], &list["warnings"][0]["severity"]), (&json!(4), &json!("CRITICAL")));
    let id = list["warnings"][0]["id"].clone();
    assert_eq!(send(served.address, "POST", &format!("/api/warnings/{id}/acknowledge"), &[], "").status, 200);
    assert_eq!(get(&served, "/api/view").json()["warnings"], 3);
    assert_eq!(send(served.address, "DELETE", &format!("/api/warnings/{id}"), &[], "").json()["cleared"], 1);
    assert_eq!(send(served.address, "DELETE", "/api/warnings", &[], "").json()["cleared"], 3);
    assert_eq!(get(&served, "/api/warnings").json()["warnings"], json!([]));
}

#[test]
fn dead_letters_are_listed_shown_retried_and_purged() {
    let served = open();
    let page = get(&served, "/api/dead-letters?reason=REFUSED&limit=2&offset=1").json();
    assert_eq!((&page["total"], page["items"].as_array().map(Vec::len)), (&json!(4), Some(2)));
    assert!(page["items"][0].get("body").is_none(), "a list shows no bodies");
    assert!(get(&served, "/api/dead-letters/1").json()["body"].is_string());
    let retried = change(&served, "POST", "/api/dead-letters/retry", &json!({"numbers": [1, 2]}));
    assert_eq!(retried.json()["retried"], 2);
    assert_eq!(served.fake.retried.lock()[0].numbers, [1, 2]);
    assert_eq!(
        send(served.address, "DELETE", "/api/dead-letters?reason=MALFORMED", &[], "").json()["purged"],
        4
    );
    assert_eq!(send(served.address, "DELETE", "/api/dead-letters?all=true", &[], "").json()["purged"], 6);
}

#[test]
fn messages_are_published_in_order_and_their_tokens_stay_hidden() {
    let served = open();
    let messages = json!([
        {"id": "a", "mediationTarget": "http://127.0.0.1:1/", "authToken": "canary", "messageGroupId": "g"},
        {"id": "b", "mediationTarget": "http://127.0.0.1:1/", "highPriority": true},
    ]);
    let answered = change(&served, "POST", "/api/messages?queue=high", &messages);
    assert_eq!(answered.json(), json!({"queue": "high", "count": 2}));
    let published = served.fake.published.lock();
    assert_eq!(published.iter().map(|(_, one)| one.id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(published[0].1.auth_token.as_deref(), Some("canary"));
    assert!(!format!("{published:?}").contains("canary"));
    drop(published);
    let bad = json!({"id": "a", "mediationTarget": "nowhere", "authToken": "canary"});
    let answered = change(&served, "POST", "/api/messages", &bad);
    assert!(answered.status == 400 && !answered.body.contains("canary"), "{answered:?}");
}

#[test]
fn seeded_messages_have_the_documented_groups_and_reach_a_practice_target() {
    let served = open();
    for (mode, first, count) in
        [("unique", "msg-0", 1_500), ("single", "single-group", 3), ("1of8", "group-", 80)]
    {
        served.fake.published.lock().clear();
        let path =
            format!("/api/seed/messages?count={count}&endpoint=fast&queue=high&messageGroupMode={mode}");
        let answered = send(served.address, "POST", &path, &[], "");
        assert_eq!((&answered.json()["count"], &answered.json()["queue"]), (&json!(count), &json!("high")));
        let published = served.fake.published.lock();
        assert_eq!(published.len(), count);
        let ids: std::collections::BTreeSet<&str> =
            published.iter().map(|(_, one)| one.id.as_str()).collect();
        assert_eq!(ids.len(), count, "ids are unique");
        let group = published[0].1.message_group_id.as_deref().unwrap_or_default();
        assert!(group.starts_with(first), "{mode}: {group}");
        assert_eq!(published[0].1.mediation_target, format!("http://{}/api/test/fast", served.address));
    }
    assert_eq!(
        send(served.address, "POST", "/api/test/fast", &[], "{\"messageId\":\"a\"}").json()["ack"],
        true
    );
    assert_eq!(get(&served, "/api/test/hits").json()["fast"], 1);
}

#[test]
fn practice_targets_behave_as_they_are_named() {
    let served = open();
    let post = |name: &str| send(served.address, "POST", &format!("/api/test/{name}"), &[], "{}");
    assert_eq!(post("fail").status, 500);
    let throttled = post("throttled");
    assert_eq!((throttled.status, throttled.header("retry-after")), (429, Some("1")));
    let failed = (0..100).filter(|_| post("faulty").status == 500).count();
    assert!((15..=45).contains(&failed), "{failed} of 100");
    let start = std::time::Instant::now();
    assert_eq!(post("slow?ms=30").status, 200);
    assert!(start.elapsed() >= Duration::from_millis(30));
    assert_eq!(get(&served, "/api/test/hits").json()["faulty"], 100);
}

#[test]
fn the_view_gives_only_the_history_that_is_new() {
    let served = open();
    let view = get(&served, "/api/view").json();
    let history = view["history"].as_array().expect("a list");
    assert!(history.len() > 200);
    let since = history[history.len() - 3]["unixS"].as_u64().expect("a time");
    let later = get(&served, &format!("/api/view?since={since}")).json();
    let count = later["history"].as_array().map_or(0, Vec::len);
    assert!((2..10).contains(&count), "{count}");
}

#[test]
fn metrics_are_text_that_names_every_pool() {
    let served = open();
    let answered = get(&served, "/_metrics");
    assert!(
        answered.header("content-type").is_some_and(|kind| kind.starts_with("text/plain; version=0.0.4"))
    );
    assert!(answered.body.contains("corelane_pool_active{pool=\"ORDERS\"} "), "{}", answered.body);
    let resident = answered.body.lines().find_map(|line| line.strip_prefix("process_resident_memory_bytes "));
    assert!(resident.and_then(|text| text.parse::<u64>().ok()).is_some_and(|bytes| bytes > 1 << 20));
}

#[test]
fn the_config_shows_no_secret() {
    assert_eq!(get(&open(), "/api/config").json()["admin"]["token"], "***");
}

#[test]
fn a_server_that_ends_lets_a_running_request_finish() {
    let served = open();
    let mut stream = TcpStream::connect(served.address).expect("connect");
    let request = format!("POST /api/test/slow?ms=200 HTTP/1.1\r\nhost: {}\r\n\r\n", served.address);
    stream.write_all(request.as_bytes()).expect("sent");
    let hits = || get(&served, "/api/test/hits").json()["slow"] == 1;
    crate::support::wait::until(Duration::from_secs(5), "the request runs", hits, || ());
    drop(served);
    let mut got = String::new();
    stream.read_to_string(&mut got).expect("an answer, then the end");
    assert!(got.starts_with("HTTP/1.1 200"), "{got}");
}
