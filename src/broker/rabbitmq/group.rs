//! Where a message's group stands: in a header or in its body. Pure.

use std::borrow::Cow;

use lapin::types::{AMQPValue, FieldTable};

/// The header that is looked at where the URI names none.
const HEADER: &str = "corelane-group";

/// Where the group is looked for. What is not found there is looked for in the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GroupFrom {
    /// This header, whatever its case.
    Header(String),
    /// Only the body.
    Body,
}

impl Default for GroupFrom {
    fn default() -> Self {
        Self::Header(HEADER.to_owned())
    }
}

impl GroupFrom {
    /// Reads `header:NAME` or `body`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "body" => Ok(Self::Body),
            Some(("header", name)) if !name.trim().is_empty() => Ok(Self::Header(name.trim().to_owned())),
            _ => Err(format!("group={text}: write header:NAME or body")),
        }
    }

    /// The group as the headers tell it; `None` = the body says.
    pub(super) fn of<'a>(&self, headers: Option<&'a FieldTable>) -> Option<Cow<'a, str>> {
        let Self::Header(name) = self else { return None };
        let mut fields = headers?.inner().iter();
        let (_, value) = fields.find(|(other, _)| other.as_str().eq_ignore_ascii_case(name))?;
        text(value).filter(|group| !group.trim().is_empty())
    }
}

/// A name, or a whole number: many clients send an account's number as one.
fn text(value: &AMQPValue) -> Option<Cow<'_, str>> {
    let number: i64 = match value {
        AMQPValue::LongString(text) => {
            return std::str::from_utf8(text.as_bytes()).ok().map(Cow::Borrowed);
        }
        AMQPValue::ShortString(text) => return Some(Cow::Borrowed(text.as_str())),
        AMQPValue::ShortShortInt(number) => (*number).into(),
        AMQPValue::ShortShortUInt(number) => (*number).into(),
        AMQPValue::ShortInt(number) => (*number).into(),
        AMQPValue::ShortUInt(number) => (*number).into(),
        AMQPValue::LongInt(number) => (*number).into(),
        AMQPValue::LongUInt(number) => (*number).into(),
        AMQPValue::LongLongInt(number) => *number,
        _ => return None,
    };
    Some(Cow::Owned(number.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_where_the_uri_says_or_left_to_the_body() {
        let mut headers = FieldTable::default();
        headers.insert("Corelane-Group".into(), AMQPValue::LongString("g1".into()));
        headers.insert("tenant".into(), AMQPValue::LongString("t1".into()));
        headers.insert("account".into(), AMQPValue::LongInt(-42));
        headers.insert("empty".into(), AMQPValue::LongString(" ".into()));
        headers.insert("flag".into(), AMQPValue::Boolean(true));
        headers.insert("bytes".into(), AMQPValue::LongString(vec![0xff, 0xfe].into()));
        let rows = [
            // from             group           why
            ("", Some("g1"), "the default header, whatever its case"),
            ("header:Tenant", Some("t1"), "another"),
            ("header:account", Some("-42"), "a number"),
            ("header:other", None, "not there: the body says"),
            ("header:empty", None, "blank is none"),
            ("header:flag", None, "no name"),
            ("header:bytes", None, "no text"),
            ("body", None, "headers are not looked at"),
        ];
        for (from, want, why) in rows {
            let from = if from.is_empty() { Ok(GroupFrom::default()) } else { GroupFrom::parse(from) };
            let from = from.expect(why);
            assert_eq!(from.of(Some(&headers)).as_deref(), want, "{why}");
        }
        assert_eq!(GroupFrom::default().of(None), None, "no headers at all");
    }

    #[test]
    fn another_place_is_refused() {
        for bad in ["", "header", "header:", "header: ", "subject", "Body", "key:a"] {
            assert!(GroupFrom::parse(bad).is_err(), "{bad:?}");
        }
    }
}
