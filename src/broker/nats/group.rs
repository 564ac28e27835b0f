//! Where a message's group stands: in a header, in its subject or in its body. Pure.

use async_nats::HeaderMap;

/// The header that is looked at where the URI names none.
const HEADER: &str = "Corelane-Group";

/// Where the group is looked for. What is not found there is looked for in the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GroupFrom {
    /// The first value of this header.
    Header(String),
    /// The whole subject.
    Subject,
    /// One part of the subject, counted from 0.
    SubjectPart(usize),
    /// Only the body.
    Body,
}

impl Default for GroupFrom {
    fn default() -> Self {
        Self::Header(HEADER.to_owned())
    }
}

impl GroupFrom {
    /// Reads `header:NAME`, `subject`, `subject:N` or `body`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "body" => Ok(Self::Body),
            None if text == "subject" => Ok(Self::Subject),
            Some(("header", name)) if !name.trim().is_empty() => Ok(Self::Header(name.trim().to_owned())),
            Some(("subject", number)) => match number.parse::<usize>() {
                Ok(number @ 1..) => Ok(Self::SubjectPart(number - 1)),
                _ => Err(format!("group=subject:{number}: write the number of a part, from 1")),
            },
            _ => Err(format!("group={text}: write header:NAME, subject, subject:N or body")),
        }
    }

    /// The group as the broker tells it; `None` = the body says.
    pub(super) fn of<'a>(&self, subject: &'a str, headers: Option<&'a HeaderMap>) -> Option<&'a str> {
        let found = match self {
            Self::Body => None,
            Self::Subject => Some(subject),
            Self::SubjectPart(at) => subject.split('.').nth(*at),
            Self::Header(name) => headers.and_then(|headers| first_value(headers, name)),
        };
        found.filter(|group| !group.trim().is_empty())
    }
}

/// By a walk: looking a name up would allocate it anew for every message. Servers keep the case that a sender wrote.
fn first_value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let named = |(other, _): &(&async_nats::HeaderName, _)| {
        let other: &str = (*other).as_ref();
        other.eq_ignore_ascii_case(name)
    };
    let (_, values) = headers.iter().find(named)?;
    values.first().map(AsRef::as_ref)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_where_the_uri_says_or_left_to_the_body() {
        let mut headers = HeaderMap::new();
        headers.insert("Corelane-Group", "g1");
        headers.insert("tenant", "t1");
        headers.insert("Empty", " ");
        let rows = [
            // from             group           why
            ("", Some("g1"), "the default header"),
            ("header:Tenant", Some("t1"), "whatever its case"),
            ("header:Other", None, "not there: the body says"),
            ("header:Empty", None, "blank is none"),
            ("subject", Some("orders.eu.7"), "all of it"),
            ("subject:1", Some("orders"), "counted from 1"),
            ("subject:3", Some("7"), "the last"),
            ("subject:4", None, "no such part: the body says"),
            ("body", None, "headers are not looked at"),
        ];
        for (from, want, why) in rows {
            let from = if from.is_empty() { Ok(GroupFrom::default()) } else { GroupFrom::parse(from) };
            let from = from.expect(why);
            assert_eq!(from.of("orders.eu.7", Some(&headers)), want, "{why}");
        }
        assert_eq!(GroupFrom::default().of("orders", None), None, "no headers at all");
    }

    #[test]
    fn another_place_is_refused() {
        for bad in
            ["", "header", "header:", "header: ", "subject:", "subject:0", "subject:x", "Body", "key:a"]
        {
            assert!(GroupFrom::parse(bad).is_err(), "{bad:?}");
        }
    }
}
