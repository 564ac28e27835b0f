//! A message's headers: how often it was brought back, what the DLQ is told of it, what a retry by hand carries on.
//! Pure.
//!
//! What is published again keeps its own properties, but for those that would do harm: an expiration (it would vanish),
//! a user (the broker takes only ours) and further recipients (they had it already).

#[cfg(test)]
mod tests;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldArray, FieldTable, LongString, ShortString};
use shards::model::Outcome;

use super::judge::error_of;

/// The broker's own history of a message.
pub(super) const DEATHS: &str = "x-death";
/// The queue it was consumed from.
pub(super) const ORIGINAL_QUEUE: &str = "x-original-queue";
/// The last status, if there was one.
pub(super) const FINAL_STATUS: &str = "x-final-status-code";
/// What went wrong, if there was no status.
pub(super) const FINAL_ERROR: &str = "x-final-error";
/// Retries when it went to the DLQ.
pub(super) const FINAL_RETRIES: &str = "x-final-retry-count";
/// Retries before it was last moved back by hand, that one included. Brokers from 4.0 on (and some 3.13) do not go on
/// counting where a published message has an `x-death`, older ones do: so that history travels under another name.
pub(super) const CARRIED_RETRIES: &str = "corelane-retries";
/// The history that it had then.
pub(super) const CARRIED_DEATHS: &str = "corelane-deaths";

/// Headers by which a broker sends a message to more queues.
const RECIPIENTS: [&str; 2] = ["CC", "BCC"];
/// Headers that the broker writes next to [`DEATHS`].
const DEATH_KIN: &str = "x-first-death-";
const DEATH_KIN_LAST: &str = "x-last-death-";
/// Entries of a history that are read or kept: one for each queue and reason, of which there are four or so.
const DEATHS_MAX: usize = 64;
/// Kept within a header.
const ERROR_BYTES_MAX: usize = 1_000;
/// Stored on disk.
const PERSISTENT: u8 = 2;

/// Why a message goes to the DLQ.
#[derive(Clone, Debug)]
pub(super) enum Why {
    /// The last call failed.
    Outcome(Outcome),
    /// It can't be posted at all.
    Unfit(String),
}

/// How often a message was brought back before this hand-over.
pub(super) fn retries(properties: &BasicProperties, queue: &str) -> u32 {
    let Some(headers) = properties.headers() else { return 0 };
    let carried = headers.inner().get(CARRIED_RETRIES).map_or(0, count);
    rejected(headers, queue).saturating_add(carried)
}

/// Times that `queue` handed it over and it was rejected, as the broker counted.
fn rejected(headers: &FieldTable, queue: &str) -> u32 {
    let Some(AMQPValue::FieldArray(deaths)) = headers.inner().get(DEATHS) else { return 0 };
    let of_queue =
        deaths.as_slice().iter().take(DEATHS_MAX).filter_map(AMQPValue::as_field_table).filter(|death| {
            let is = |key: &str, want: &str| death.inner().get(key).and_then(text) == Some(want);
            is("queue", queue) && is("reason", "rejected")
        });
    of_queue.map(|death| death.inner().get("count").map_or(0, count)).fold(0, u32::saturating_add)
}

/// The properties of a message in the DLQ.
pub(super) fn for_dlq(properties: &BasicProperties, queue: &str, why: &Why, retries: u32) -> BasicProperties {
    let mut headers = kept(properties, |name| {
        ![ORIGINAL_QUEUE, FINAL_STATUS, FINAL_ERROR, FINAL_RETRIES, CARRIED_RETRIES, CARRIED_DEATHS]
            .contains(&name)
    });
    if !headers.contains_key(DEATHS)
        && let Some(deaths) = header(properties, CARRIED_DEATHS)
    {
        headers.insert(DEATHS.into(), deaths.clone());
    }
    headers.insert(ORIGINAL_QUEUE.into(), words(queue));
    let error = match why {
        Why::Outcome(outcome) => {
            if outcome.status > 0 {
                headers.insert(FINAL_STATUS.into(), AMQPValue::LongInt(outcome.status.into()));
            }
            error_of(*outcome)
        }
        Why::Unfit(problem) => Some(problem.as_str()),
    };
    if let Some(error) = error {
        headers.insert(FINAL_ERROR.into(), words(cut(error)));
    }
    headers.insert(FINAL_RETRIES.into(), AMQPValue::LongInt(i32::try_from(retries).unwrap_or(i32::MAX)));
    republished(properties, headers)
}

/// The properties of a message that goes from the DLQ back to its queue. The retry by hand is one, too.
pub(super) fn for_retry(properties: &BasicProperties, queue: &str) -> BasicProperties {
    let mut headers = kept(properties, |name| {
        let of_deaths = name == DEATHS || name.starts_with(DEATH_KIN) || name.starts_with(DEATH_KIN_LAST);
        !of_deaths
            && ![ORIGINAL_QUEUE, FINAL_STATUS, FINAL_ERROR, FINAL_RETRIES, CARRIED_RETRIES].contains(&name)
    });
    let before = header(properties, FINAL_RETRIES).map_or_else(|| retries(properties, queue), count);
    let carried = i32::try_from(before.saturating_add(1)).unwrap_or(i32::MAX);
    headers.insert(CARRIED_RETRIES.into(), AMQPValue::LongInt(carried));
    if let Some(AMQPValue::FieldArray(deaths)) = header(properties, DEATHS) {
        let deaths: Vec<AMQPValue> = deaths.as_slice().iter().take(DEATHS_MAX).cloned().collect();
        headers.insert(CARRIED_DEATHS.into(), AMQPValue::FieldArray(FieldArray::from(deaths)));
    }
    republished(properties, headers)
}

/// A header, if it is there.
pub(super) fn header<'a>(properties: &'a BasicProperties, name: &str) -> Option<&'a AMQPValue> {
    properties.headers().as_ref()?.inner().get(name)
}

/// A header that is text.
pub(super) fn text_header<'a>(properties: &'a BasicProperties, name: &str) -> Option<&'a str> {
    header(properties, name).and_then(text)
}

/// A header that is a count.
pub(super) fn count_header(properties: &BasicProperties, name: &str) -> Option<u32> {
    header(properties, name).map(count)
}

fn kept(properties: &BasicProperties, keep: impl Fn(&str) -> bool) -> FieldTable {
    let mut headers = FieldTable::default();
    for (name, value) in properties.headers().iter().flatten() {
        if keep(name.as_str()) && !RECIPIENTS.contains(&name.as_str()) {
            headers.insert(name.clone(), value.clone());
        }
    }
    headers
}

fn republished(old: &BasicProperties, headers: FieldTable) -> BasicProperties {
    type Set = fn(BasicProperties, ShortString) -> BasicProperties;
    let texts: [(&Option<ShortString>, Set); 7] = [
        (old.content_type(), BasicProperties::with_content_type),
        (old.content_encoding(), BasicProperties::with_content_encoding),
        (old.correlation_id(), BasicProperties::with_correlation_id),
        (old.reply_to(), BasicProperties::with_reply_to),
        (old.message_id(), BasicProperties::with_message_id),
        (old.kind(), BasicProperties::with_type),
        (old.app_id(), BasicProperties::with_app_id),
    ];
    let mut new = BasicProperties::default().with_headers(headers).with_delivery_mode(PERSISTENT);
    for (text, set) in texts {
        if let Some(text) = text {
            new = set(new, text.clone());
        }
    }
    if let Some(priority) = *old.priority() {
        new = new.with_priority(priority);
    }
    if let Some(timestamp) = *old.timestamp() {
        new = new.with_timestamp(timestamp);
    }
    new
}

/// As much of it as is kept, at the end of a character.
fn cut(text: &str) -> &str {
    let end = (0..=text.len().min(ERROR_BYTES_MAX)).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or_default()]
}

fn words(text: &str) -> AMQPValue {
    AMQPValue::LongString(LongString::from(text))
}

fn text(value: &AMQPValue) -> Option<&str> {
    match value {
        AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok(),
        AMQPValue::ShortString(text) => Some(text.as_str()),
        _ => None,
    }
}

/// A count in whatever width it was written; what is no count is none.
fn count(value: &AMQPValue) -> u32 {
    let wide = match *value {
        AMQPValue::ShortShortInt(number) => number.into(),
        AMQPValue::ShortShortUInt(number) => number.into(),
        AMQPValue::ShortInt(number) => number.into(),
        AMQPValue::ShortUInt(number) => number.into(),
        AMQPValue::LongInt(number) => number.into(),
        AMQPValue::LongUInt(number) => number.into(),
        AMQPValue::LongLongInt(number) => number,
        _ => 0,
    };
    u32::try_from(wide.max(0)).unwrap_or(u32::MAX)
}
