//! Words that must never be seen: tokens and passwords. One type, so that no log, error or JSON can show one.

use std::fmt;

use serde::{Serialize, Serializer};

/// What stands in the place of a secret.
pub const HIDDEN: &str = "***";

/// A secret. `Debug`, `Display` and `Serialize` show [`HIDDEN`]; only [`Secret::reveal`] gives it out.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps it.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself, for the header or connection that needs it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Compares in a time that depends on the lengths alone.
    #[must_use]
    pub fn is(&self, offered: &str) -> bool {
        let (own, offered) = (self.0.as_bytes(), offered.as_bytes());
        let differs = own.iter().zip(offered).fold(0_u8, |all, (left, right)| all | (left ^ right));
        own.len() == offered.len() && std::hint::black_box(differs) == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(HIDDEN)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

/// A URL without the user, password and query in it, each of which may be a secret.
#[must_use]
pub fn without_credentials(url: &str) -> String {
    let (address, query) = match url.split_once('?') {
        Some((address, _)) => (address, "?***"),
        None => (url, ""),
    };
    // More than one where it lists several hosts, as `failover:(tcp://a,tcp://b)` does.
    let mut parts = address.split("://");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let host = part.split('/').next().unwrap_or(part);
        shown.push_str("://");
        match host.rsplit_once('@') {
            Some((user, _)) => {
                shown.push_str(HIDDEN);
                shown.push_str(&part[user.len()..]);
            }
            None => shown.push_str(part),
        }
    }
    shown + query
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_shown_nowhere() {
        let secret = Secret::new("hunter2".into());
        let json = serde_json::to_string(&secret).expect("a string is JSON");
        for shown in [format!("{secret:?}"), format!("{secret}"), format!("{:?}", Some(&secret)), json] {
            assert!(!shown.contains("hunter2") && shown.contains(HIDDEN), "{shown}");
        }
        assert!(secret.is("hunter2") && !secret.is("hunter3") && !secret.is("hunter") && !secret.is(""));
    }

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        let rows = [
            ("https://h/config", "https://h/config"),
            ("https://u:p@h:8443/config", "https://***@h:8443/config"),
            ("https://u:p@ss@h/a@b", "https://***@h/a@b"),
            ("http://h/config?key=secret", "http://h/config?***"),
            ("not a url", "not a url"),
            ("failover:(tcp://u:p@a:1,tcp://v:q@b)/orders", "failover:(tcp://***@a:1,tcp://***@b)/orders"),
            ("failover:(tcp://a:1,ssl://v:q@b)/o?password=x", "failover:(tcp://a:1,ssl://***@b)/o?***"),
        ];
        for (url, shown) in rows {
            assert_eq!(without_credentials(url), shown, "{url}");
        }
    }
}
