//! From an answer to an outcome: the usual acknowledgement, a refusal, a long body, a `Retry-After`.

mod bench;

use shards::courier::classify::{Reply, classify};
use shards::model::AckMode;

fn main() {
    let rounds = bench::rounds(10_000, 5_000_000);
    let long = format!(r#"{{"ack":true,"note":"{}"}}"#, "x".repeat(4_000));
    let rows: [(&str, Reply<'_>); 5] = [
        ("classify/ack", Reply { status: 200, retry_after: None, body: br#"{"ack":true}"# }),
        (
            "classify/not_yet",
            Reply { status: 200, retry_after: None, body: br#"{"ack":false,"delaySeconds":9}"# },
        ),
        ("classify/long_body", Reply { status: 200, retry_after: None, body: long.as_bytes() }),
        ("classify/503", Reply { status: 503, retry_after: None, body: b"no" }),
        (
            "classify/429_date",
            Reply { status: 429, retry_after: Some(b"Sun, 06 Nov 1994 08:49:37 GMT"), body: b"" },
        ),
    ];
    for (name, reply) in rows {
        let mut scratch = Vec::new();
        let (elapsed, sum) = bench::time(|| {
            (0..rounds).fold(0, |sum, _| {
                let judged =
                    classify(std::hint::black_box(reply), AckMode::Lenient, 784_111_770, &mut scratch);
                bench::mix(sum, u64::from(judged.outcome.status) + u64::from(judged.outcome.delay_s))
            })
        });
        bench::report(name, rounds, elapsed, sum);
    }
}
