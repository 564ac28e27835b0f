//! Documents, good and bad.

use proptest::prelude::*;

use super::*;

const LIMITS: PoolLimits = PoolLimits { max: 10_000, warn_at: 5_000 };

fn document(body: &str) -> Document {
    read(body.as_bytes()).unwrap_or_else(|error| panic!("{body}: {error}"))
}

#[test]
fn the_platforms_document_is_read_and_unknown_fields_are_ignored() {
    let read = document(
        r#"{"version":7,"processingPools":[
             {"code":"A","concurrency":5,"rateLimitPerMinute":60,"owner":{"x":[1]}},
             {"code":"B","concurrency":1,"rateLimitPerMinute":null}],
            "queues":[{"queueName":"q","queueUri":"nats://h/s","connections":3,"visibilityTimeout":45},
                      {"queueName":"r","queueUri":"sqlite:r.db"}]}"#,
    );
    assert_eq!(read.problems, []);
    let pools: Vec<_> = read.topology.pools.iter().map(|pool| format!("{} {pool}", pool.code)).collect();
    assert_eq!(pools, ["A concurrency 5, 60/min", "B concurrency 1"]);
    let queues: Vec<_> = read.topology.queues.iter().map(ToString::to_string).collect();
    assert_eq!(queues, ["nats nats://h/s, connections 3, visibility 45s", "sqlite sqlite:r.db"]);
}

#[test]
fn y1_a_document_that_is_not_whole_is_refused() {
    let rows = [
        ("", "empty"),
        (" \n", "empty"),
        ("null", "JSON"),
        ("[]", "JSON"),
        ("<html>", "JSON"),
        ("{}", "processingPools"),
        (r#"{"queues":[]}"#, "processingPools"),
        (r#"{"processingPools":[{"code":"A","concurrency":1}]}"#, "queues"),
        (r#"{"processingPools":null,"queues":[]}"#, "processingPools"),
        (r#"{"processingPools":[],"queues":[]}"#, "neither"),
        (r#"{"processingPools":[{"code":"A","concurrency":1}],"queues":["#, "JSON"),
        (r#"{"processingPools":{},"queues":[]}"#, "JSON"),
    ];
    for (body, word) in rows {
        let error = read(body.as_bytes()).err().unwrap_or_else(|| panic!("{body:?} is not whole"));
        assert!(error.to_string().contains(word), "{body:?}: {error}");
    }
    let deep = format!("{{\"queues\":{}", "[".repeat(100_000));
    assert!(read(deep.as_bytes()).is_err(), "nesting is bounded");
}

#[test]
fn a_bad_entry_is_told_and_the_rest_goes_on() {
    let rows = [
        (r#"{"concurrency":1}"#, "code is missing"),
        (r#"{"code":"X"}"#, "concurrency is missing"),
        (r#"{"code":"X","concurrency":0}"#, "from 1 to 65535"),
        (r#"{"code":"X","concurrency":"5"}"#, "concurrency is not a whole number"),
        (r#"{"code":"X","concurrency":1.5}"#, "concurrency is not a whole number"),
        (r#"{"code":7,"concurrency":1}"#, "code is not a string"),
        (r#"{"code":"X","concurrency":1,"rateLimitPerMinute":-1}"#, "rateLimitPerMinute is -1"),
        (r#"{"code":"A","concurrency":1}"#, "listed twice"),
        ("7", "not an object"),
        ("null", "not an object"),
    ];
    for (entry, word) in rows {
        let body = format!(r#"{{"processingPools":[{{"code":"A","concurrency":5}},{entry}],"queues":[]}}"#);
        let read = document(&body);
        assert_eq!(read.topology.pools.len(), 1, "{entry}");
        assert_eq!(read.topology.pools[0].spec.concurrency.get(), 5, "{entry}: the first one counts");
        assert!(
            read.problems.len() == 1 && read.problems[0].text.contains(word),
            "{entry}: {:?}",
            read.problems
        );
        assert!(read.problems[0].text.starts_with("processingPools[1]"), "{:?}", read.problems);
    }
    let rows = [
        (r#"{"queueUri":"sqlite:q"}"#, "queueName is missing"),
        (r#"{"queueName":"x"}"#, "queueUri is missing"),
        (r#"{"queueName":"x","queueUri":"kafka://u:hunter2@h"}"#, "kafka"),
        (r#"{"queueName":"x","queueUri":"hunter2"}"#, "queueUri has no scheme"),
        (r#"{"queueName":"x","queueUri":"sqlite:q","connections":0}"#, "from 1 to 100"),
        (r#"{"queueName":"x","queueUri":"sqlite:q","visibilityTimeout":-4}"#, "visibilityTimeout must be"),
        (
            r#"{"queueName":"x","queueUri":"sqlite:q","visibilityTimeout":9999999999}"#,
            "visibilityTimeout must be",
        ),
    ];
    for (entry, word) in rows {
        let body = format!(
            r#"{{"processingPools":[],"queues":[{{"queueName":"q","queueUri":"sqlite:q"}},{entry}]}}"#
        );
        let read = document(&body);
        assert_eq!(read.topology.queues.len(), 1, "{entry}");
        assert!(
            read.problems.len() == 1 && read.problems[0].text.contains(word),
            "{entry}: {:?}",
            read.problems
        );
        assert!(!read.problems[0].text.contains("hunter2"), "{:?}", read.problems);
    }
}

#[test]
fn y2_a_bad_entry_keeps_the_running_one() {
    let good = document(
        r#"{"processingPools":[{"code":"A","concurrency":5},{"code":"B","concurrency":6},{"code":"C","concurrency":7}],
            "queues":[{"queueName":"q","queueUri":"sqlite:q"},{"queueName":"r","queueUri":"sqlite:r"}]}"#,
    );
    let bad = document(
        r#"{"processingPools":[{"code":"A","concurrency":0},{"code":"B","concurrency":9}],
            "queues":[{"queueName":"q","queueUri":"sqlite:q2"},{"queueName":"r","queueUri":"nowhere"}]}"#,
    );
    let (now, problems) = bad.over(&good.topology, LIMITS);
    assert_eq!(problems.len(), 2, "{problems:?}");
    let pools: Vec<_> =
        now.pools.iter().map(|pool| (pool.code.as_str(), pool.spec.concurrency.get())).collect();
    assert_eq!(pools, [("B", 9), ("A", 5)], "C is gone because the document does not list it");
    let queues: Vec<_> = now.queues.iter().map(|queue| queue.uri.to_string()).collect();
    assert_eq!(queues, ["sqlite:q2", "sqlite:r"]);
}

#[test]
fn pools_beyond_the_limit_are_left_out_with_a_warning() {
    let pools: Vec<String> = (0..5).map(|n| format!(r#"{{"code":"P{n}","concurrency":1}}"#)).collect();
    let body = format!(r#"{{"processingPools":[{}],"queues":[]}}"#, pools.join(","));
    let listed = document(&body);
    let kinds = |running: &Topology, max, warn_at| {
        let (now, problems) = listed.over(running, PoolLimits { max, warn_at });
        let codes: Vec<String> = now.pools.into_iter().map(|pool| pool.code).collect();
        (codes.join(" "), problems.first().map(|one| one.kind))
    };
    let none = Topology::default();
    assert_eq!(kinds(&none, 6, 6), ("P0 P1 P2 P3 P4".into(), None));
    assert_eq!(kinds(&none, 6, 5), ("P0 P1 P2 P3 P4".into(), Some(ProblemKind::PoolsNearLimit)));
    assert_eq!(kinds(&none, 3, 1), ("P0 P1 P2".into(), Some(ProblemKind::PoolLimit)));
    let mut running = listed.topology.clone();
    running.pools.drain(..2);
    assert_eq!(kinds(&running, 3, 1).0, "P2 P3 P4", "a new pool never takes a running one's room");
    let many = format!(r#"{{"processingPools":[{}0],"queues":[]}}"#, "0,".repeat(500));
    let many = document(&many);
    assert_eq!(many.problems.len(), PROBLEMS_MAX + 1, "a broken document does not flood");
    assert!(many.problems[PROBLEMS_MAX].text.contains("401 more"), "{:?}", many.problems[PROBLEMS_MAX]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in any::<Vec<u8>>(), entry in "[a-zA-Z0-9:,{}\\[\\]\"-]{0,60}") {
        let _ = read(&bytes);
        let _ = read(format!(r#"{{"processingPools":[{entry}],"queues":[{entry}]}}"#).as_bytes());
    }
}
