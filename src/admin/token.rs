//! The token that callers show. Never printed; compared in constant time.

use std::fmt;
use std::hint::black_box;

use thiserror::Error;

/// Characters a token has at least: fewer can be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// A bearer token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Box<[u8]>);

/// Why a text is no token. The operator mends it.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TokenError {
    /// Too easy to guess.
    #[error(
        "the admin token has {0} characters: use {TOKEN_BYTES_MIN} or more, such as `openssl rand -hex 32` prints"
    )]
    TooShort(usize),
    /// Could not be sent in a header.
    #[error(
        "the admin token holds a space or a character outside printable ASCII, which no header can carry"
    )]
    NotPrintable,
}

impl Token {
    /// Checks a token; space around it is dropped, as files end with a line feed.
    ///
    /// # Errors
    /// It is too short or can't be sent.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if text.len() < TOKEN_BYTES_MIN {
            return Err(TokenError::TooShort(text.len()));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TokenError::NotPrintable);
        }
        Ok(Self(text.as_bytes().into()))
    }

    /// Whether `shown` is this token. Takes the same time wherever the first difference is.
    #[must_use]
    pub fn is(&self, shown: &[u8]) -> bool {
        let mut differs = u8::from(self.0.len() != shown.len());
        for (at, byte) in self.0.iter().enumerate() {
            differs |= byte ^ black_box(shown.get(at).copied().unwrap_or_default());
        }
        black_box(differs) == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_bytes_are_the_token() {
        let token = Token::new("0123456789abcdef\n").expect("long enough");
        assert!(token.is(b"0123456789abcdef"));
        for wrong in ["", "0123456789abcdeF", "0123456789abcde", "0123456789abcdef0", "0123456789abcdef\0"] {
            assert!(!token.is(wrong.as_bytes()), "{wrong:?}");
        }
        assert_eq!(format!("{token:?}"), "Token(***)");
    }

    #[test]
    fn a_weak_or_unsendable_token_is_refused() {
        assert_eq!(Token::new("short"), Err(TokenError::TooShort(5)));
        assert_eq!(Token::new("0123456789 abcdef"), Err(TokenError::NotPrintable));
        assert_eq!(Token::new("0123456789abcdéfg"), Err(TokenError::NotPrintable));
    }
}
