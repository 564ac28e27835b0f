//! A message as it stands in a queue: the router document's `MessagePointer`, read and written. Every
//! adapter reads its bodies here, so that one rule holds for all brokers.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use shards::model::{Dispatch, Parcel, ParcelError, Parts};
use thiserror::Error;

/// Largest message body that is read.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The JSON. Unknown fields are ignored.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pointer<'a> {
    /// The sender's id.
    #[serde(borrow)]
    pub id: Cow<'a, str>,
    /// Which pool; none = the default pool.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub pool_code: Option<Cow<'a, str>>,
    /// Bearer token for the target. Never shown.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub auth_token: Option<Cow<'a, str>>,
    /// Always `HTTP`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub mediation_type: Option<Cow<'a, str>>,
    /// URL to POST to.
    #[serde(borrow)]
    pub mediation_target: Cow<'a, str>,
    /// Runs in order with others of its group.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub message_group_id: Option<Cow<'a, str>>,
    /// Its group goes before others while it is at the head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_priority: Option<bool>,
    /// `IMMEDIATE`, `NEXT_ON_ERROR` or `BLOCK_ON_ERROR`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub dispatch_mode: Option<Cow<'a, str>>,
}

/// A message that was read.
#[derive(Debug)]
pub struct Message {
    /// Checked and packed; its body is what will be posted: `{"messageId":"…"}`.
    pub parcel: Parcel,
    /// What its failure does to its group.
    pub dispatch: Dispatch,
    /// Goes before others.
    pub high_priority: bool,
}

/// Why a message can't be read. Its sender mends it.
#[derive(Debug, Error)]
pub enum MessageError {
    /// Not the JSON that is expected.
    #[error("not a message: {0}")]
    Json(#[from] serde_json::Error),
    /// Longer than [`MESSAGE_BYTES_MAX`].
    #[error("{0} bytes, more than the {MESSAGE_BYTES_MAX} that a message may have")]
    TooLong(usize),
    /// Not a kind of delivery that exists.
    #[error("mediationType is {0:?}: only HTTP exists")]
    MediationType(String),
    /// Not a dispatch mode.
    #[error("dispatchMode is {0:?}: write IMMEDIATE, NEXT_ON_ERROR or BLOCK_ON_ERROR")]
    DispatchMode(String),
    /// A field.
    #[error(transparent)]
    Field(#[from] ParcelError),
}

/// Reads a message. `group` is what the broker itself says of the group, and goes before the body's.
///
/// # Errors
/// What the sender must mend.
pub fn read(body: &[u8], group: Option<&str>) -> Result<Message, MessageError> {
    if body.len() > MESSAGE_BYTES_MAX {
        return Err(MessageError::TooLong(body.len()));
    }
    let pointer: Pointer<'_> = serde_json::from_slice(body)?;
    check(&pointer, group)
}

/// Checks a message's fields and packs them.
///
/// # Errors
/// What the sender must mend.
pub fn check(pointer: &Pointer<'_>, group: Option<&str>) -> Result<Message, MessageError> {
    if let Some(kind) = pointer.mediation_type.as_deref().filter(|kind| !kind.eq_ignore_ascii_case("HTTP")) {
        return Err(MessageError::MediationType(kind.to_owned()));
    }
    let dispatch = match pointer.dispatch_mode.as_deref() {
        None | Some("" | "BLOCK_ON_ERROR") => Dispatch::BlockOnError,
        Some("NEXT_ON_ERROR") => Dispatch::NextOnError,
        Some("IMMEDIATE") => Dispatch::Immediate,
        Some(other) => return Err(MessageError::DispatchMode(other.to_owned())),
    };
    let group = group.or(pointer.message_group_id.as_deref()).unwrap_or_default();
    let post = post_body(&pointer.id);
    let parcel = Parcel::new(&Parts {
        id: &pointer.id,
        group: if group.trim().is_empty() { "" } else { group },
        pool: pointer.pool_code.as_deref().unwrap_or_default(),
        target: &pointer.mediation_target,
        token: pointer.auth_token.as_deref().unwrap_or_default(),
        content_type: "",
        body: &post,
    })?;
    Ok(Message { parcel, dispatch, high_priority: pointer.high_priority.unwrap_or_default() })
}

/// What is posted: `{"messageId":"…"}`. Ids are printable ASCII, so only two characters need care.
fn post_body(id: &str) -> Vec<u8> {
    let mut body = Vec::with_capacity(id.len() + 16);
    body.extend_from_slice(br#"{"messageId":""#);
    for byte in id.bytes() {
        if matches!(byte, b'"' | b'\\') {
            body.push(b'\\');
        }
        body.push(byte);
    }
    body.extend_from_slice(br#""}"#);
    body
}

/// The name of a dispatch mode in a message.
#[must_use]
pub const fn dispatch_name(dispatch: Dispatch) -> &'static str {
    match dispatch {
        Dispatch::Immediate => "IMMEDIATE",
        Dispatch::NextOnError => "NEXT_ON_ERROR",
        Dispatch::BlockOnError => "BLOCK_ON_ERROR",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_and_the_brokers_group_goes_first() {
        let body = br#"{"id":"a\"b","poolCode":"P","authToken":"t","mediationType":"HTTP",
            "mediationTarget":"http://h/x","messageGroupId":"inner","highPriority":true,"new":[1,{}]}"#;
        let message = read(body, Some("outer")).expect("well-formed");
        assert_eq!(message.parcel.id(), br#"a"b"#);
        assert_eq!(message.parcel.group(), b"outer");
        assert_eq!(message.parcel.body(), br#"{"messageId":"a\"b"}"#);
        assert!(message.high_priority);
        assert_eq!(read(body, None).expect("well-formed").parcel.group(), b"inner");
    }

    #[test]
    fn a_bad_message_says_what_is_wrong() {
        let rows = [
            ("{", "not a message"),
            (r#"{"id":"a"}"#, "mediationTarget"),
            (r#"{"mediationTarget":"http://h"}"#, "id"),
            (r#"{"id":"","mediationTarget":"http://h"}"#, "id is empty"),
            (r#"{"id":"a","mediationTarget":"ftp://h"}"#, "http"),
            (r#"{"id":"a","mediationTarget":"http://h","mediationType":"SMTP"}"#, "SMTP"),
            (r#"{"id":"a","mediationTarget":"http://h","dispatchMode":"LATER"}"#, "LATER"),
            (r#"{"id":7,"mediationTarget":"http://h"}"#, "not a message"),
        ];
        for (body, part) in rows {
            let said = read(body.as_bytes(), None).expect_err(body).to_string();
            assert!(said.contains(part), "{body}: {said}");
        }
        let huge = vec![b' '; MESSAGE_BYTES_MAX + 1];
        assert!(matches!(read(&huge, None), Err(MessageError::TooLong(_))));
    }
}
