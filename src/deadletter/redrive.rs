//! Gets dead letters back into their queue: first put back, then removed from the store.
//!
//! - R1: a letter is removed only after its queue has it durably, so that none is lost. One whose message is
//!   still being acked is not put back, and stays.
//! - R2: a put-back carries a token that the queue remembers, so that a retry which was interrupted between the
//!   two steps, and is done again, delivers nothing twice.
//! - R3: what was set aside again meanwhile has a new edition and stays.

use std::borrow::Cow;
use std::io;

use super::store::{DeadLetterStore, Kept};
use crate::ingress::Letter;
use crate::message::{Pointer, dispatch_name};
use crate::view::DeadLetterFilter;
use shards::model::DeadReason;

/// Letters put back in one transaction.
const STEP: usize = 500;

/// A letter on its way back to its queue.
#[derive(Clone)]
pub struct Redrive {
    /// Its old place in the queue.
    pub key: u64,
    /// Its group.
    pub group: String,
    /// The message as the queue had it.
    pub body: Vec<u8>,
    /// The same letter has the same token, however often its retry is begun.
    pub token: String,
}

/// What a retry did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retried {
    /// Letters that are back in their queue.
    pub letters: u64,
    /// Of those, set aside again before the retry was through: they stay in the store too.
    pub dead_again: u64,
    /// Letters that were left alone because the queue still has their messages, about to be acked. A moment
    /// later they can be retried.
    pub unacked: u64,
}

/// Puts every letter of the filter back into its queue, oldest place first, so that a group keeps its order.
/// `put_back` does it for one queue, durably, and says of each whether the queue has it. Blocks.
///
/// # Errors
/// A queue or the store can't be written. What was put back stays so; the rest is still in the store.
pub fn redrive(
    store: &DeadLetterStore,
    filter: &DeadLetterFilter,
    mut put_back: impl FnMut(&str, Vec<Redrive>) -> io::Result<Vec<bool>>,
    progress: &dyn Fn(u64),
) -> io::Result<Retried> {
    let (mut done, mut after) = (Retried::default(), (String::new(), i64::MIN, i64::MIN));
    loop {
        let kept = store.whole(filter, after.clone(), STEP)?;
        let Some(last) = kept.last() else { return Ok(done) };
        after = (last.letter.queue.clone(), last.letter.key.cast_signed(), last.number);
        for batch in kept.chunk_by(|a, b| a.letter.queue == b.letter.queue) {
            let back = batch.iter().map(|kept| redriven(store.name(), kept)).collect();
            let is_in = put_back(&batch[0].letter.queue, back)?;
            let has = batch.iter().zip(is_in).filter(|(_, is_in)| *is_in);
            let has: Vec<(i64, i64)> = has.map(|(kept, _)| (kept.number, kept.edition)).collect();
            let count = has.len();
            let removed = store.remove(has)?;
            done.letters += count as u64;
            done.unacked += (batch.len() - count) as u64;
            done.dead_again += (count - removed) as u64;
            progress(done.letters);
        }
    }
}

fn redriven(store: &str, kept: &Kept) -> Redrive {
    let letter = &kept.letter;
    Redrive {
        key: letter.key,
        group: letter.group.clone(),
        body: original(letter),
        token: format!("{store}/{}/{}", kept.number, kept.edition),
    }
}

/// The message as its queue had it: what was received if it could not be read, else written anew.
fn original(letter: &Letter) -> Vec<u8> {
    if letter.reason == DeadReason::Malformed {
        return letter.body.clone();
    }
    let some = |text: &'static str| Some(Cow::Borrowed(text));
    let named = |text: &str| (!text.is_empty()).then(|| Cow::Owned(text.to_owned()));
    let pointer = Pointer {
        id: Cow::Borrowed(&letter.id),
        pool_code: named(&letter.pool),
        auth_token: named(&letter.token),
        mediation_type: some("HTTP"),
        mediation_target: Cow::Borrowed(&letter.target),
        message_group_id: named(&letter.group),
        high_priority: letter.high_priority.then_some(true),
        dispatch_mode: some(dispatch_name(letter.dispatch)),
    };
    serde_json::to_vec(&pointer).expect("strings and flags always serialize")
}

/// A body for people: text, with the value of any `authToken` in it hidden.
pub(super) fn shown(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let Ok(mut json) = serde_json::from_slice::<serde_json::Value>(body) else { return hide_in_text(&text) };
    if hide_in_json(&mut json) { json.to_string() } else { text.into_owned() }
}

fn hide_in_json(json: &mut serde_json::Value) -> bool {
    match json {
        serde_json::Value::Object(fields) => {
            let mut hidden = false;
            for (name, value) in fields.iter_mut() {
                if name.eq_ignore_ascii_case("authToken") {
                    *value = "***".into();
                    hidden = true;
                } else {
                    hidden |= hide_in_json(value);
                }
            }
            hidden
        }
        serde_json::Value::Array(items) => {
            items.iter_mut().fold(false, |hidden, item| hide_in_json(item) | hidden)
        }
        _ => false,
    }
}

/// What is no JSON may still hold a token: from its name on, nothing is shown.
fn hide_in_text(text: &str) -> String {
    match text.to_ascii_lowercase().find("authtoken") {
        Some(at) => format!("{}authToken***", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_never_shown() {
        let rows = [
            (r#"{"id":"a"}"#, r#"{"id":"a"}"#),
            (r#"{"authToken":"s3cret"}"#, r#"{"authToken":"***"}"#),
            (r#"[{"AuthToken":"s3cret","b":1}]"#, r#"[{"AuthToken":"***","b":1}]"#),
            (r#"{"authToken":"s3cret""#, r#"{"authToken***"#),
            ("plain", "plain"),
        ];
        for (body, want) in rows {
            assert_eq!(shown(body.as_bytes()), want, "{body}");
        }
    }
}
