//! Publishing over HTTP: one message or an array of them, checked before any is stored.

use serde_json::Value;

use super::ask::{Answer, Ask, json};
use super::port::{Publish, Router};
use super::refusal::Refusal;
use super::routes::Api;
use crate::message;

/// A batch of messages may be larger than other bodies.
const BODY_BYTES_MAX: usize = 8 << 20;
/// Messages of one request: what is made durable together.
const MESSAGES_MAX: usize = 10_000;

pub(super) async fn publish<R: Router>(api: &Api<R>, ask: Ask) -> Answer {
    let mut query = ask.query()?;
    let queue = query.text("queue")?;
    query.end()?;
    let messages = read(ask.json(BODY_BYTES_MAX).await?)?;
    Ok(json(&api.router.publish(queue.as_deref(), messages).await?))
}

fn read(body: Value) -> Result<Vec<Publish>, Refusal> {
    let (values, many) = match body {
        Value::Array(values) => (values, true),
        Value::Object(_) => (vec![body], false),
        _ => return Err(Refusal::field("body", "is neither a message nor an array of messages")),
    };
    if values.is_empty() || values.len() > MESSAGES_MAX {
        let problem = format!("has {} messages: send 1 to {MESSAGES_MAX} at once", values.len());
        return Err(Refusal::field("body", problem));
    }
    let mut messages = Vec::with_capacity(values.len());
    for (at, value) in values.into_iter().enumerate() {
        let field = if many { format!("[{at}]") } else { "message".to_owned() };
        messages.push(message_of(value).map_err(|problem| Refusal::field(field, problem))?);
    }
    Ok(messages)
}

fn message_of(value: Value) -> Result<Publish, String> {
    let message: Publish =
        serde_json::from_value(value).map_err(|error| format!("can't be read: {error}"))?;
    message::check(&message.pointer(), None).map_err(|error| format!("can't be taken: {error}"))?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bad_message_is_named_by_its_place_and_none_is_taken() {
        let good = json!({"id": "a", "mediationTarget": "http://h/x", "authToken": "t"});
        assert_eq!(read(good.clone()).map(|all| all.len()), Ok(1));
        assert_eq!(read(json!([good, good])).map(|all| all.len()), Ok(2));
        let rows = [
            (json!([good, {"id": "b"}]), "[1]", "mediationTarget"),
            (json!({"id": "b", "mediationTarget": "ftp://h"}), "message", "http"),
            (json!({"id": "", "mediationTarget": "http://h"}), "message", "id is empty"),
            (json!([]), "body", "1 to 10000"),
            (json!("x"), "body", "neither"),
        ];
        for (body, field, part) in rows {
            let refusal = read(body.clone()).expect_err("refused");
            assert_eq!(refusal.field.as_deref(), Some(field), "{body}");
            assert!(refusal.message.contains(part), "{body}: {}", refusal.message);
        }
    }
}
