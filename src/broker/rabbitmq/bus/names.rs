//! What everything of a service is called at the broker. Pure.

use std::fmt;

/// Longest name that AMQP carries.
const AMQP_NAME_BYTES_MAX: usize = 255;
/// The prefix of a service whose name has no hyphen.
const PREFIX_DEFAULT: &str = "default";
/// Names that begin so belong to the broker: it refuses to declare them.
const PREFIX_RESERVED: &str = "amq";
/// The key by which the retry exchange knows its queue.
pub(super) const RETRY_KEY: &str = "retry";

/// The services that share an exchange: the part of a service's name before its first hyphen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prefix(String);

impl Prefix {
    /// Takes a prefix as it is.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        check(text, "prefix", "main-exchange".len() + 1)?;
        if text.contains('-') {
            return Err(format!(
                "prefix {text:?} has a hyphen: it is what stands before a service's first one"
            ));
        }
        if text == PREFIX_RESERVED {
            return Err(format!("prefix {text:?} is the broker's own: choose another"));
        }
        Ok(Self(text.to_owned()))
    }

    /// The exchange that every service of this prefix hears.
    pub(crate) fn main_exchange(&self) -> String {
        format!("{self}.main-exchange")
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A service on the bus, and the names that follow from its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    name: String,
    prefix: Prefix,
}

impl Service {
    /// Checks a service's name.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right.
    pub(crate) fn new(name: &str) -> Result<Self, String> {
        let prefix = match name.split_once('-') {
            Some(("", _)) => {
                return Err(format!("service {name:?} has nothing before its hyphen: write PREFIX-NAME"));
            }
            Some((prefix, _)) => Prefix::new(prefix)?,
            None => Prefix(PREFIX_DEFAULT.to_owned()),
        };
        // The longest of its names is the retry exchange's.
        check(name, "service", prefix.0.len() + ".retry-exchange.".len())?;
        Ok(Self { name: name.to_owned(), prefix })
    }

    /// What it shares with others.
    pub(crate) const fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// The exchange it hears, with all others of its prefix.
    pub(crate) fn main_exchange(&self) -> String {
        self.prefix.main_exchange()
    }

    /// What it consumes.
    pub(crate) fn queue(&self) -> String {
        self.named("queue")
    }

    /// Where a rejected message goes.
    pub(crate) fn retry_exchange(&self) -> String {
        self.named("retry-exchange")
    }

    /// Where it waits.
    pub(crate) fn retry_queue(&self) -> String {
        self.named("retry-queue")
    }

    /// Where it ends when retries did not help.
    pub(crate) fn dlq(&self) -> String {
        self.named("dlq")
    }

    fn named(&self, what: &str) -> String {
        format!("{}.{what}.{}", self.prefix, self.name)
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// `around`: bytes of the longest name besides this part.
fn check(text: &str, what: &str, around: usize) -> Result<(), String> {
    let max = AMQP_NAME_BYTES_MAX.saturating_sub(around);
    if text.is_empty() {
        return Err(format!("the {what} is empty: write a name such as wms-stock"));
    }
    if text.len() > max {
        return Err(format!(
            "{what} {text:?} is {} bytes long: at most {max} leave room for its queues' names",
            text.len()
        ));
    }
    let is_bad = |letter: char| !(letter.is_ascii_alphanumeric() || "-_.".contains(letter));
    match text.chars().find(|&letter| is_bad(letter)) {
        Some(letter) => Err(format!("{what} {text:?} has {letter:?}: write letters, digits and - _ . only")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_is_what_stands_before_the_first_hyphen() {
        let rows = [
            // service        prefix
            ("wms-cincout", "wms"),
            ("xyz-service", "xyz"),
            ("noprefix", "default"),
            ("wms-stock-eu", "wms"),
            ("default", "default"),
        ];
        for (name, prefix) in rows {
            let service = Service::new(name).expect(name);
            assert_eq!(service.main_exchange(), format!("{prefix}.main-exchange"), "{name}");
        }
    }

    #[test]
    fn every_name_is_as_the_bus_document_writes_it() {
        let service = Service::new("wms-cincout").expect("a service");
        assert_eq!(service.main_exchange(), "wms.main-exchange");
        assert_eq!(service.queue(), "wms.queue.wms-cincout");
        assert_eq!(service.retry_exchange(), "wms.retry-exchange.wms-cincout");
        assert_eq!(service.retry_queue(), "wms.retry-queue.wms-cincout");
        assert_eq!(service.dlq(), "wms.dlq.wms-cincout");
        assert_eq!(Prefix::new("wms").expect("a prefix").main_exchange(), "wms.main-exchange");
    }

    #[test]
    fn a_name_that_a_broker_would_refuse_is_refused_here() {
        let long = format!("w-{}", "x".repeat(250));
        let rows = [
            ("", "empty"),
            ("-stock", "before its hyphen"),
            ("amq-stock", "the broker's own"),
            ("wms-st ck", "' '"),
            ("wms-stück", "'ü'"),
            ("wms-a/b", "'/'"),
            (&long, "252 bytes"),
        ];
        for (name, said) in rows {
            let error = Service::new(name).expect_err(name);
            assert!(error.contains(said), "{name}: {error}");
        }
        let longest = format!("w-{}", "x".repeat(236));
        let service = Service::new(&longest).expect("just short enough");
        assert_eq!(service.retry_exchange().len(), AMQP_NAME_BYTES_MAX);
        for (prefix, said) in [("a-b", "hyphen"), ("", "empty"), ("amq", "the broker's own")] {
            let error = Prefix::new(prefix).expect_err(prefix);
            assert!(error.contains(said), "{prefix}: {error}");
        }
    }
}
