//! A delivery target: a checked `http` or `https` URL, split into origin and path without copying.
//! The check is narrow on purpose: what it lets through can go into a request line as it is.

use thiserror::Error;

/// How a target is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Clear text.
    Http,
    /// TLS.
    Https,
}

/// A checked URL, borrowed. `origin` keys breakers and connections; `path` starts with `/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// Clear text or TLS.
    pub scheme: Scheme,
    /// `scheme://host[:port]`, as written.
    pub origin: &'a str,
    /// Host name or address literal, without brackets.
    pub host: &'a str,
    /// Port, the scheme's own if none was written.
    pub port: u16,
    /// Path and query, `/` if none was written. Fragments are refused.
    pub path: &'a str,
}

/// Why a URL can't be a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TargetError {
    /// Not `http://` or `https://`.
    #[error("mediationTarget must start with http:// or https://")]
    Scheme,
    /// No host, or one with characters no host has.
    #[error("mediationTarget has no valid host")]
    Host,
    /// A port that is no number from 1 to 65535.
    #[error("mediationTarget's port must be a number from 1 to 65535")]
    Port,
    /// `user:password@`: secrets belong into `authToken`.
    #[error("mediationTarget must not carry user or password; use authToken")]
    UserInfo,
    /// White space, control characters, non-ASCII or a fragment.
    #[error("mediationTarget has a character that may not stand in a URL; percent-encode it")]
    Character,
    /// Longer than [`Target::BYTES_MAX`].
    #[error("mediationTarget is longer than 2048 bytes")]
    TooLong,
}

/// Bytes that may stand in a URL as it is written: printable ASCII without fragment, quotes and brackets.
const MAY_STAND: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0x21_u8;
    while byte <= 0x7e {
        table[byte as usize] = !matches!(byte, b'#' | b'\\' | b'"' | b'<' | b'>');
        byte += 1;
    }
    table
};

impl<'a> Target<'a> {
    /// Longest URL taken; with the other headers a request head stays below 8 KiB.
    pub const BYTES_MAX: usize = 2048;

    /// Checks and splits `url`.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(url: &'a str) -> Result<Self, TargetError> {
        if url.len() > Self::BYTES_MAX {
            return Err(TargetError::TooLong);
        }
        if !url.bytes().all(|byte| MAY_STAND[usize::from(byte)]) {
            return Err(TargetError::Character);
        }
        let (scheme, start) = if url.starts_with("http://") {
            (Scheme::Http, 7)
        } else if url.starts_with("https://") {
            (Scheme::Https, 8)
        } else {
            return Err(TargetError::Scheme);
        };
        let end = url[start..].find(['/', '?']).map_or(url.len(), |at| start + at);
        let authority = &url[start..end];
        if authority.contains('@') {
            return Err(TargetError::UserInfo);
        }
        let (host, port) = split_port(authority)?;
        let port = match port {
            None if scheme == Scheme::Https => 443,
            None => 80,
            Some(digits) => parse_port(digits)?,
        };
        let path = if end == url.len() { "/" } else { &url[end..] };
        if path.starts_with('?') {
            return Err(TargetError::Host);
        }
        Ok(Self { scheme, origin: &url[..end], host, port, path })
    }
}

fn split_port(authority: &str) -> Result<(&str, Option<&str>), TargetError> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or(TargetError::Host)?;
        if host.is_empty() || !host.bytes().all(|b| b.is_ascii_hexdigit() || b == b':' || b == b'.') {
            return Err(TargetError::Host);
        }
        return match after {
            "" => Ok((host, None)),
            _ => Ok((host, Some(after.strip_prefix(':').ok_or(TargetError::Host)?))),
        };
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    if host.is_empty() || host.len() > 253 || !host.bytes().all(fits) {
        return Err(TargetError::Host);
    }
    Ok((host, port))
}

fn parse_port(digits: &str) -> Result<u16, TargetError> {
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(TargetError::Port);
    }
    match digits.parse() {
        Ok(port @ 1..) => Ok(port),
        _ => Err(TargetError::Port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_urls_are_split() {
        let rows = [
            ("http://a", Scheme::Http, "http://a", "a", 80, "/"),
            ("http://a/b?c=1", Scheme::Http, "http://a", "a", 80, "/b?c=1"),
            ("https://a.b-c:8443/x", Scheme::Https, "https://a.b-c:8443", "a.b-c", 8443, "/x"),
            ("https://[::1]:9/x", Scheme::Https, "https://[::1]:9", "::1", 9, "/x"),
            ("http://[::1]", Scheme::Http, "http://[::1]", "::1", 80, "/"),
        ];
        for (url, scheme, origin, host, port, path) in rows {
            assert_eq!(Target::parse(url), Ok(Target { scheme, origin, host, port, path }), "{url}");
        }
    }

    #[test]
    fn bad_urls_are_refused_by_name() {
        let long = format!("http://a/{}", "x".repeat(3000));
        let rows = [
            ("ftp://a", TargetError::Scheme),
            ("//a", TargetError::Scheme),
            ("http://", TargetError::Host),
            ("http:///x", TargetError::Host),
            ("http://a?x", TargetError::Host),
            ("http://a:0", TargetError::Port),
            ("http://a:+1", TargetError::Port),
            ("http://a:70000", TargetError::Port),
            ("http://a:", TargetError::Port),
            ("http://u:p@a/", TargetError::UserInfo),
            ("http://a/\r\nx: y", TargetError::Character),
            ("http://a/ b", TargetError::Character),
            ("http://a/#f", TargetError::Character),
            ("http://ä/", TargetError::Character),
            ("http://[::1", TargetError::Host),
            ("http://[g]/", TargetError::Host),
            (&long, TargetError::TooLong),
        ];
        for (url, want) in rows {
            assert_eq!(Target::parse(url), Err(want), "{url}");
        }
    }
}
