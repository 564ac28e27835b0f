//! What is read from headers, and what is written into them.

use super::*;
use shards::model::{Fault, Mediation};

const QUEUE: &str = "wms.queue.wms-stock";

fn death(queue: &str, reason: &str, count: AMQPValue) -> AMQPValue {
    let mut table = FieldTable::default();
    table
        .insert("queue".into(), words(queue))
        .insert("reason".into(), words(reason))
        .insert("count".into(), count);
    AMQPValue::FieldTable(table)
}

fn message(headers: &[(&str, AMQPValue)]) -> BasicProperties {
    let mut table = FieldTable::default();
    for (name, value) in headers {
        table.insert((*name).into(), value.clone());
    }
    BasicProperties::default().with_headers(table)
}

fn deaths(entries: Vec<AMQPValue>) -> AMQPValue {
    AMQPValue::FieldArray(entries.into())
}

fn failed(status: u16) -> Why {
    Why::Outcome(Outcome::failed(Mediation::ErrorProcess, Fault::Http, status, 0))
}

#[test]
fn retries_are_what_the_broker_counted_for_this_queue_and_what_was_carried() {
    let counted = deaths(vec![
        death("wms.retry-queue.wms-stock", "expired", AMQPValue::LongLongInt(4)),
        death(QUEUE, "rejected", AMQPValue::LongLongInt(3)),
        death(QUEUE, "expired", AMQPValue::LongLongInt(7)),
        death("other", "rejected", AMQPValue::LongLongInt(9)),
    ]);
    let rows = [
        (BasicProperties::default(), 0, "no headers"),
        (message(&[]), 0, "none of these"),
        (message(&[(DEATHS, counted.clone())]), 3, "its own queue, rejected"),
        (message(&[(DEATHS, counted), (CARRIED_RETRIES, AMQPValue::LongInt(11))]), 14, "both"),
        (message(&[(CARRIED_RETRIES, AMQPValue::LongLongInt(-5))]), 0, "a negative one is none"),
        (message(&[(CARRIED_RETRIES, words("5"))]), 0, "text is none"),
        (
            message(&[(CARRIED_RETRIES, AMQPValue::LongLongInt(i64::MAX))]),
            u32::MAX,
            "as much as there can be",
        ),
        (message(&[(DEATHS, words("x"))]), 0, "no history"),
        (
            message(&[(DEATHS, deaths(vec![words("x"), death(QUEUE, "rejected", words("2"))]))]),
            0,
            "odd entries",
        ),
    ];
    for (properties, want, why) in rows {
        assert_eq!(retries(&properties, QUEUE), want, "{why}");
    }
}

#[test]
fn the_dlq_is_told_all_of_it_and_the_history_stays() {
    let history = deaths(vec![death(QUEUE, "rejected", AMQPValue::LongLongInt(10))]);
    let old = message(&[(DEATHS, history.clone()), ("tenant", words("eu"))]);
    let new = for_dlq(&old, QUEUE, &failed(503), 10);
    assert_eq!(text_header(&new, ORIGINAL_QUEUE), Some(QUEUE));
    assert_eq!(count_header(&new, FINAL_STATUS), Some(503));
    assert_eq!(header(&new, FINAL_ERROR), None, "it answered");
    assert_eq!(count_header(&new, FINAL_RETRIES), Some(10));
    assert_eq!(header(&new, DEATHS), Some(&history));
    assert_eq!(text_header(&new, "tenant"), Some("eu"));
    let lost = for_dlq(&old, QUEUE, &Why::Outcome(Outcome::timeout()), 10);
    assert_eq!(header(&lost, FINAL_STATUS), None, "there was none");
    assert!(text_header(&lost, FINAL_ERROR).is_some_and(|error| error.contains("timeout")));
    let unfit = for_dlq(&old, QUEUE, &Why::Unfit("ü".repeat(2_000)), 0);
    assert_eq!(text_header(&unfit, FINAL_ERROR).map(str::len), Some(ERROR_BYTES_MAX));
}

#[test]
fn what_is_published_again_keeps_its_properties_but_for_those_that_do_harm() {
    let old = message(&[("CC", deaths(vec![words("elsewhere")])), ("BCC", words("x")), ("kept", words("y"))])
        .with_content_type("text/plain".into())
        .with_content_encoding("gzip".into())
        .with_correlation_id("c".into())
        .with_reply_to("r".into())
        .with_message_id("m".into())
        .with_type("t".into())
        .with_app_id("a".into())
        .with_priority(3)
        .with_timestamp(7)
        .with_delivery_mode(1)
        .with_expiration("1000".into())
        .with_user_id("someone".into());
    for new in [for_dlq(&old, QUEUE, &failed(500), 10), for_retry(&old, QUEUE)] {
        assert_eq!(*new.expiration(), None, "it would vanish from the queue");
        assert_eq!(*new.user_id(), None, "a broker refuses another's name");
        assert!(header(&new, "CC").is_none() && header(&new, "BCC").is_none(), "others had it already");
        assert_eq!((text_header(&new, "kept"), *new.delivery_mode()), (Some("y"), Some(2)));
        let texts = [new.content_type(), new.content_encoding(), new.correlation_id(), new.reply_to()];
        let texts: Vec<_> = texts.into_iter().flatten().map(ShortString::as_str).collect();
        assert_eq!(texts, ["text/plain", "gzip", "c", "r"]);
        let texts: Vec<_> = [new.message_id(), new.kind(), new.app_id()]
            .into_iter()
            .flatten()
            .map(ShortString::as_str)
            .collect();
        assert_eq!(texts, ["m", "t", "a"]);
        assert_eq!((*new.priority(), *new.timestamp()), (Some(3), Some(7)));
    }
}

#[test]
fn a_retry_by_hand_carries_the_count_on_and_the_history_comes_back_with_the_next_failure() {
    let history = deaths(vec![death(QUEUE, "rejected", AMQPValue::LongLongInt(10))]);
    let first = for_dlq(&message(&[(DEATHS, history.clone())]), QUEUE, &failed(503), 10);
    let again = for_retry(&first, QUEUE);
    for gone in [DEATHS, ORIGINAL_QUEUE, FINAL_STATUS, FINAL_ERROR, FINAL_RETRIES] {
        assert_eq!(header(&again, gone), None, "{gone}");
    }
    assert_eq!(retries(&again, QUEUE), 11, "ten by the broker, one by hand");
    let second = for_dlq(&again, QUEUE, &failed(500), retries(&again, QUEUE));
    assert_eq!(
        (count_header(&second, FINAL_RETRIES), count_header(&second, FINAL_STATUS)),
        (Some(11), Some(500))
    );
    assert_eq!(header(&second, DEATHS), Some(&history), "no broker wrote another one");
    assert_eq!(header(&second, CARRIED_RETRIES), None);
    assert_eq!(retries(&for_retry(&second, QUEUE), QUEUE), 12);
}

#[test]
fn a_message_that_was_put_into_the_dlq_by_others_is_retried_too() {
    let moved = message(&[(DEATHS, deaths(vec![death(QUEUE, "rejected", AMQPValue::LongLongInt(4))]))]);
    assert_eq!(retries(&for_retry(&moved, QUEUE), QUEUE), 5);
    assert_eq!(retries(&for_retry(&BasicProperties::default(), QUEUE), QUEUE), 1);
}
