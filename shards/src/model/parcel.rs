//! A message's bytes: one allocation that holds every field, with offsets in front.
//!
//! - P1: what a parcel's accessors return was checked when it was made, so that id, token and
//!   content type can go into a header and the target into a request line as they are.

use thiserror::Error;

use super::target::{Target, TargetError};

/// Number of `u32` offsets in front of the bytes.
const FIELDS: usize = 7;
const HEAD: usize = FIELDS * 4;

/// A checked message. Cheap to move (two words), one heap allocation, never copied on its way.
pub struct Parcel(Box<[u8]>);

/// What a parcel is made of. `group` empty = no group; `pool` empty = the default pool;
/// `token` empty = no `Authorization`; `content_type` empty = `application/json`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts<'a> {
    /// The sender's message id; becomes `Idempotency-Key`.
    pub id: &'a str,
    /// Group that runs in order.
    pub group: &'a str,
    /// Pool code.
    pub pool: &'a str,
    /// URL to POST to.
    pub target: &'a str,
    /// Bearer token.
    pub token: &'a str,
    /// Content type of `body`.
    pub content_type: &'a str,
    /// The request's body, as it will be sent.
    pub body: &'a [u8],
}

/// Why a message can't be delivered as it is. An operator or the sender mends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ParcelError {
    /// No id.
    #[error("id is empty")]
    NoId,
    /// A field over its limit.
    #[error("{field} is longer than {max} bytes")]
    TooLong {
        /// Which.
        field: &'static str,
        /// Its limit.
        max: usize,
    },
    /// A field that goes into a header holds something that may not stand there.
    #[error("{field} has a character that may not stand in an HTTP header")]
    Character {
        /// Which.
        field: &'static str,
    },
    /// The target.
    #[error(transparent)]
    Target(#[from] TargetError),
}

impl Parcel {
    /// Longest id, group, pool code and content type taken.
    pub const NAME_BYTES_MAX: usize = 512;
    /// Longest token taken; with it a request head still fits common servers' 8 KiB.
    pub const TOKEN_BYTES_MAX: usize = 4096;
    /// Largest body taken.
    pub const BODY_BYTES_MAX: usize = 16 << 20;

    /// Checks `parts` and packs them.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn new(parts: &Parts<'_>) -> Result<Self, ParcelError> {
        if parts.id.is_empty() {
            return Err(ParcelError::NoId);
        }
        let name = Self::NAME_BYTES_MAX;
        for (field, text, max) in [
            ("id", parts.id, name),
            ("messageGroupId", parts.group, name),
            ("poolCode", parts.pool, name),
            ("contentType", parts.content_type, name),
            ("authToken", parts.token, Self::TOKEN_BYTES_MAX),
        ] {
            if text.len() > max {
                return Err(ParcelError::TooLong { field, max });
            }
        }
        if parts.body.len() > Self::BODY_BYTES_MAX {
            return Err(ParcelError::TooLong { field: "body", max: Self::BODY_BYTES_MAX });
        }
        for (field, text) in
            [("id", parts.id), ("contentType", parts.content_type), ("authToken", parts.token)]
        {
            if !text.bytes().all(|byte| (0x20..=0x7e).contains(&byte)) {
                return Err(ParcelError::Character { field });
            }
        }
        let target = Target::parse(parts.target)?;
        Ok(Self::pack(parts, target.origin.len()))
    }

    fn pack(parts: &Parts<'_>, origin_bytes: usize) -> Self {
        let fields: [&[u8]; FIELDS - 1] = [
            parts.id.as_bytes(),
            parts.group.as_bytes(),
            parts.pool.as_bytes(),
            parts.target.as_bytes(),
            parts.token.as_bytes(),
            parts.content_type.as_bytes(),
        ];
        let total = HEAD + fields.iter().map(|field| field.len()).sum::<usize>() + parts.body.len();
        let mut bytes = Vec::with_capacity(total);
        let mut end = HEAD;
        for field in fields {
            end += field.len();
            bytes.extend_from_slice(&offset(end));
        }
        bytes.extend_from_slice(&offset(origin_bytes));
        for field in fields {
            bytes.extend_from_slice(field);
        }
        bytes.extend_from_slice(parts.body);
        debug_assert_eq!(bytes.len(), total, "P1: the layout is as computed");
        Self(bytes.into_boxed_slice())
    }

    fn end(&self, field: usize) -> usize {
        let at = field * 4;
        let raw: [u8; 4] = self.0[at..at + 4].try_into().expect("a slice of four bytes");
        u32::from_le_bytes(raw) as usize
    }

    fn text(&self, field: usize) -> &str {
        let start = if field == 0 { HEAD } else { self.end(field - 1) };
        std::str::from_utf8(&self.0[start..self.end(field)]).expect("P1: packed from a str")
    }

    fn raw(&self, field: usize) -> &[u8] {
        let start = if field == 0 { HEAD } else { self.end(field - 1) };
        &self.0[start..self.end(field)]
    }

    /// The sender's id: printable ASCII.
    #[must_use]
    pub fn id(&self) -> &[u8] {
        self.raw(0)
    }

    /// The group, empty if none.
    #[must_use]
    pub fn group(&self) -> &[u8] {
        self.raw(1)
    }

    /// The pool code, empty if none.
    #[must_use]
    pub fn pool(&self) -> &[u8] {
        self.raw(2)
    }

    /// The target URL: ASCII, checked.
    #[must_use]
    pub fn target(&self) -> &str {
        self.text(3)
    }

    /// The target's `scheme://host[:port]`.
    #[must_use]
    pub fn origin(&self) -> &[u8] {
        &self.raw(3)[..self.end(FIELDS - 1)]
    }

    /// The target's path and query, empty where the URL had none (then it is `/`).
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.raw(3)[self.end(FIELDS - 1)..]
    }

    /// Bearer token, empty if none. Never log it.
    #[must_use]
    pub fn token(&self) -> &[u8] {
        self.raw(4)
    }

    /// Content type, empty for JSON.
    #[must_use]
    pub fn content_type(&self) -> &[u8] {
        self.raw(5)
    }

    /// The request's body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.0[self.end(5)..]
    }

    /// What this message costs in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.len()
    }
}

/// Lengths are limited above to far below `u32::MAX`.
fn offset(value: usize) -> [u8; 4] {
    u32::try_from(value).expect("P1: field limits keep offsets in 32 bits").to_le_bytes()
}

impl std::fmt::Debug for Parcel {
    /// Shows no token and no body.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parcel")
            .field("id", &String::from_utf8_lossy(self.id()))
            .field("group", &String::from_utf8_lossy(self.group()))
            .field("target", &self.target())
            .field("body_bytes", &self.body().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parcel_gives_back_what_was_packed() {
        let parcel = Parcel::new(&Parts {
            id: "m-1",
            group: "g",
            pool: "P",
            target: "http://h:1/p?q",
            token: "secret",
            content_type: "text/plain",
            body: b"hello",
        })
        .expect("valid parts");
        assert_eq!(parcel.id(), b"m-1");
        assert_eq!(parcel.group(), b"g");
        assert_eq!(parcel.pool(), b"P");
        assert_eq!(parcel.target(), "http://h:1/p?q");
        assert_eq!(parcel.origin(), b"http://h:1");
        assert_eq!(parcel.path(), b"/p?q");
        assert_eq!(parcel.token(), b"secret");
        assert_eq!(parcel.content_type(), b"text/plain");
        assert_eq!(parcel.body(), b"hello");
        let shown = format!("{parcel:?}");
        assert!(!shown.contains("secret") && !shown.contains("hello"), "{shown}");
    }

    #[test]
    fn a_field_that_could_split_a_header_is_refused() {
        let good = Parts { id: "a", target: "http://h", ..Parts::default() };
        let long = "x".repeat(600);
        let rows = [
            (Parts { id: "", ..good }, ParcelError::NoId),
            (Parts { id: "a\r\nb", ..good }, ParcelError::Character { field: "id" }),
            (Parts { token: "a\nb", ..good }, ParcelError::Character { field: "authToken" }),
            (Parts { content_type: "a\0", ..good }, ParcelError::Character { field: "contentType" }),
            (Parts { group: &long, ..good }, ParcelError::TooLong { field: "messageGroupId", max: 512 }),
            (Parts { target: "h", ..good }, ParcelError::Target(TargetError::Scheme)),
        ];
        for (parts, want) in rows {
            assert_eq!(Parcel::new(&parts).expect_err("refused"), want);
        }
    }
}
