//! The router document's table, row by row.

use super::*;

const NOW_S: u64 = 784_111_777; // Sun, 06 Nov 1994 08:49:37 GMT

fn judge(status: u16, retry_after: Option<&str>, body: &str, mode: AckMode) -> Judged {
    let reply = Reply { status, retry_after: retry_after.map(str::as_bytes), body: body.as_bytes() };
    classify(reply, mode, NOW_S, &mut Vec::new())
}

#[test]
#[rustfmt::skip]
fn every_row_of_the_table_holds() {
    use {Fault::*, Mediation::*};
    let ack = r#"{"ack":true}"#;
    let nack = r#"{"ack":false}"#;
    let nack_60 = r#"{"ack":false,"delaySeconds":60}"#;
    let rows = [
        // status, body,    result,       fault,       delay, unreadable, why
        (200, ack,          Success,      None,        0,  false, "200 ack=true"),
        (200, nack_60,      ErrorProcess, NotYet,      60, false, "200 ack=false with a delay"),
        (200, nack,         ErrorProcess, NotYet,      0,  false, "200 ack=false without one"),
        (200, "<html>",     Success,      None,        0,  true,  "200 that is no JSON"),
        (200, "",           Success,      None,        0,  true,  "200 with nothing"),
        (201, ack,          Success,      None,        0,  false, "any 2xx is success"),
        (202, "accepted",   Success,      None,        0,  true,  "any 2xx is success"),
        (204, "",           Success,      None,        0,  true,  "any 2xx is success"),
        (299, nack_60,      ErrorProcess, NotYet,      60, false, "ack=false counts on any 2xx"),
        (300, ack,          ErrorProcess, Http,        0,  false, "3xx is never followed"),
        (301, "",           ErrorProcess, Http,        0,  false, "3xx is never followed"),
        (304, "",           ErrorProcess, Http,        0,  false, "3xx is never followed"),
        (307, "",           ErrorProcess, Http,        0,  false, "3xx is never followed"),
        (400, ack,          ErrorConfig,  Http,        0,  false, "400"),
        (401, "",           ErrorConfig,  Http,        0,  false, "401–499"),
        (403, "",           ErrorConfig,  Http,        0,  false, "401–499"),
        (404, "",           ErrorConfig,  Http,        0,  false, "404"),
        (408, "",           ErrorProcess, RateLimited, 30, false, "408 is retried like 429"),
        (410, "",           ErrorConfig,  Http,        0,  false, "401–499"),
        (421, "",           ErrorConfig,  Http,        0,  false, "401–499"),
        (425, "",           ErrorProcess, RateLimited, 30, false, "425 is retried like 429"),
        (429, "",           ErrorProcess, RateLimited, 30, false, "429 without Retry-After"),
        (499, "",           ErrorConfig,  Http,        0,  false, "401–499"),
        (500, nack_60,      ErrorProcess, Http,        0,  false, "5xx; its body says nothing"),
        (501, "",           ErrorConfig,  Http,        0,  false, "501"),
        (502, "",           ErrorProcess, Http,        0,  false, "5xx"),
        (503, "",           ErrorProcess, Http,        0,  false, "5xx"),
        (599, "",           ErrorProcess, Http,        0,  false, "5xx"),
        (600, "",           ErrorProcess, Http,        0,  false, "unexpected"),
        (999, "",           ErrorProcess, Http,        0,  false, "unexpected"),
    ];
    for (status, body, result, fault, delay_s, unreadable, why) in rows {
        let want = Judged { outcome: Outcome::failed(result, fault, status, delay_s), unreadable };
        assert_eq!(judge(status, Option::None, body, AckMode::Lenient), want, "{why}: {status} {body}");
    }
}

#[test]
fn strict_mode_asks_for_ack_true() {
    let not_yet = |status| Outcome::failed(Mediation::ErrorProcess, Fault::NotYet, status, 0);
    let rows = [
        (200, r#"{"ack":true}"#, Outcome::success(200), false),
        (200, "<html>", not_yet(200), true),
        (204, "", not_yet(204), true),
        (200, r#"{"ok":true}"#, not_yet(200), true),
        (200, r#"{"ack":false}"#, not_yet(200), false),
    ];
    for (status, body, outcome, unreadable) in rows {
        assert_eq!(
            judge(status, None, body, AckMode::Strict),
            Judged { outcome, unreadable },
            "{status} {body}"
        );
    }
}

#[test]
fn retry_after_is_seconds_or_a_date() {
    let rows = [
        ("1", 1),
        (" 7 ", 7),
        ("120", 120),
        ("0", 30),
        ("43200", 43_200),
        ("43201", 43_200),
        ("99999999999999999999999", 43_200),
        ("-1", 30),
        ("+1", 30),
        ("1.5", 30),
        ("", 30),
        ("soon", 30),
        ("Sun, 06 Nov 1994 08:50:37 GMT", 60),
        ("Sunday, 06-Nov-94 08:50:37 GMT", 60),
        ("Sun Nov  6 08:50:37 1994", 60),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 30),
        ("Sat, 05 Nov 1994 08:49:37 GMT", 30),
        ("Mon, 07 Nov 1994 08:49:37 GMT", 43_200),
    ];
    for status in [408, 425, 429] {
        for (value, delay_s) in rows {
            let want = Outcome::failed(Mediation::ErrorProcess, Fault::RateLimited, status, delay_s);
            assert_eq!(judge(status, Some(value), "", AckMode::Lenient).outcome, want, "{status} {value}");
        }
    }
    assert_eq!(judge(503, Some("5"), "", AckMode::Lenient).outcome.delay_s, 0, "only 408, 425 and 429 ask");
}
