//! The body of a 2xx: `{"ack":true}`, or `{"ack":false,"delaySeconds":n}`. Pure.
//! Core: any. Owns: nothing.
//!
//! - A1: nothing a target sends makes this recurse, or take more memory than a few times the body.

use simd_json::{Node, StaticNode};

use crate::model::Outcome;

/// Deepest JSON that is looked into; real answers are one level deep.
const DEPTH_MAX: u32 = 32;

/// What a body says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ack {
    /// `ack: true`.
    Yes,
    /// `ack: false`, and the delay asked for within `[1, 43200]`; 0 if none.
    No(u32),
    /// Neither.
    Unreadable,
}

/// Reads a body. `scratch` is overwritten; it saves the parser's copy from being allocated each time.
pub(super) fn read(body: &[u8], scratch: &mut Vec<u8>) -> Ack {
    // Nearly every answer is one of these, so it is worth two comparisons.
    if body == br#"{"ack":true}"# || body == br#"{"ack": true}"# {
        return Ack::Yes;
    }
    if body.is_empty() || !is_shallow(body) {
        return Ack::Unreadable;
    }
    scratch.clear();
    scratch.extend_from_slice(body);
    match simd_json::to_tape(scratch) {
        Ok(tape) => from_nodes(&tape.0),
        Err(_) => Ack::Unreadable,
    }
}

/// Walks the keys of the outermost object.
fn from_nodes(nodes: &[Node<'_>]) -> Ack {
    let Some((Node::Object { len, .. }, mut rest)) = nodes.split_first() else { return Ack::Unreadable };
    let (mut ack, mut delay_s) = (None, 0);
    for _ in 0..*len {
        let [Node::String(key), value, ..] = rest else { return Ack::Unreadable };
        match (*key, value) {
            ("ack", Node::Static(StaticNode::Bool(says))) if ack.is_none_or(|before| before == *says) => {
                ack = Some(*says);
            }
            // Not a boolean, or two that contradict each other.
            ("ack", _) => return Ack::Unreadable,
            ("delaySeconds", Node::Static(number)) => delay_s = delay(*number),
            _ => {}
        }
        let Some(after) = rest.get(1 + span(value)..) else { return Ack::Unreadable };
        rest = after;
    }
    match ack {
        Some(true) => Ack::Yes,
        Some(false) => Ack::No(delay_s),
        None => Ack::Unreadable,
    }
}

/// Nodes that a value takes on the tape.
fn span(value: &Node<'_>) -> usize {
    match value {
        Node::Object { count, .. } | Node::Array { count, .. } => 1 + count,
        Node::String(_) | Node::Static(_) => 1,
    }
}

/// 0 means "not asked for", as in the router document.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 1..=43200 before")]
fn delay(number: StaticNode) -> u32 {
    let max = Outcome::DELAY_S_MAX;
    match number {
        StaticNode::I64(0) | StaticNode::U64(0) => 0,
        StaticNode::I64(value) => value.clamp(1, i64::from(max)) as u32,
        StaticNode::U64(value) => value.clamp(1, u64::from(max)) as u32,
        StaticNode::F64(0.0) => 0,
        StaticNode::F64(value) => value.ceil().clamp(1.0, f64::from(max)) as u32,
        _ => 0,
    }
}

/// Counts brackets outside strings. Runs before the parser, so that its stack stays small.
fn is_shallow(body: &[u8]) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_u32, false, false);
    for &byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_read_as_the_router_document_says() {
        let deep = format!("{}1{}", "[".repeat(40_000), "]".repeat(40_000));
        let deep_inside = format!(r#"{{"x":{},"ack":false}}"#, "[".repeat(33) + &"]".repeat(33));
        let rows = [
            (r#"{"ack":true}"#, Ack::Yes),
            (r#"{"ack": true}"#, Ack::Yes),
            (" {\n\"ack\" : true , \"delaySeconds\": 5 }\n", Ack::Yes),
            (r#"{"ack":false}"#, Ack::No(0)),
            (r#"{"ack":false,"delaySeconds":null}"#, Ack::No(0)),
            (r#"{"ack":false,"delaySeconds":0}"#, Ack::No(0)),
            (r#"{"ack":false,"delaySeconds":60}"#, Ack::No(60)),
            (r#"{"delaySeconds":60,"ack":false}"#, Ack::No(60)),
            (r#"{"ack":false,"delaySeconds":-5}"#, Ack::No(1)),
            (r#"{"ack":false,"delaySeconds":1.2}"#, Ack::No(2)),
            (r#"{"ack":false,"delaySeconds":1e99}"#, Ack::No(43_200)),
            (r#"{"ack":false,"delaySeconds":99999999999999}"#, Ack::No(43_200)),
            (r#"{"ack":false,"delaySeconds":"60"}"#, Ack::No(0)),
            (r#"{"x":{"ack":true,"y":[1,{"z":2}]},"ack":false}"#, Ack::No(0)),
            (r#"{"x":[[],{}],"ack":true}"#, Ack::Yes),
            (r#"{"x":{"ack":true}}"#, Ack::Unreadable),
            (r#"{"ack":true,"ack":true}"#, Ack::Yes),
            (r#"{"ack":true,"ack":false}"#, Ack::Unreadable),
            (r#"{"ack":"true"}"#, Ack::Unreadable),
            (r#"{"ack":1}"#, Ack::Unreadable),
            (r#"{"ack":null}"#, Ack::Unreadable),
            (r#"{"Ack":true}"#, Ack::Unreadable),
            (r#"{"ack":true"#, Ack::Unreadable),
            (r#"[{"ack":true}]"#, Ack::Unreadable),
            ("true", Ack::Unreadable),
            ("", Ack::Unreadable),
            ("OK", Ack::Unreadable),
            ("<html>login</html>", Ack::Unreadable),
            (&deep, Ack::Unreadable),
            (&deep_inside, Ack::Unreadable),
        ];
        let mut scratch = Vec::new();
        for (body, want) in rows {
            let shown = &body[..body.len().min(80)];
            assert_eq!(read(body.as_bytes(), &mut scratch), want, "{shown}");
        }
    }
}
