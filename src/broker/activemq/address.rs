//! Where a queue is: `activemq://user:password@host:port,host2/QUEUE?option=value` or
//! `failover:(tcp://host:port,tcp://host2:port)/QUEUE?option=value`, read into checked parts. Pure.

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;

use crate::secret::Secret;
use crate::topology::decoded;

/// The ports of a host that names none.
const PORT: u16 = 61_616;
const PORT_TLS: u16 = 61_617;
/// Messages that may be here unsettled at most, where the URI does not say.
const PREFETCH_DEFAULT: u16 = 1_200;
/// The broker takes this very number for "no wish" and puts its own policy in its place.
const PREFETCH_OF_THE_BROKER: u16 = 1_000;
/// What a broker counts with.
const PREFETCH_MAX: u16 = 32_766;
/// Longest name of a queue: far longer than anyone's.
const NAME_BYTES_MAX: usize = 1_024;

/// The options that exist, for the text that refuses another.
const OPTIONS: &str = "group, prefetch, statistics, user, password, ca, cert, key";
const FORM: &str = "write activemq://HOST/QUEUE or failover:(tcp://HOST:PORT,…)/QUEUE";

/// A queue's address.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) hosts: Vec<Host>,
    pub(super) user: Option<(String, Secret)>,
    pub(super) queue: String,
    pub(super) group: GroupFrom,
    /// Messages that may be here unsettled at most.
    pub(super) prefetch: u16,
    /// Ask the broker's statistics plugin how much waits.
    pub(super) statistics: bool,
    /// Authorities to trust instead of the system's.
    pub(super) ca: Option<PathBuf>,
    /// The client's certificate and its key.
    pub(super) identity: Option<(PathBuf, PathBuf)>,
}

/// A broker's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) port: u16,
    pub(super) tls: bool,
}

/// Where a message's group stands. What is not found there is looked for in the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GroupFrom {
    /// `JMSXGroupID`.
    Jms,
    /// A property of the message.
    Property(String),
    /// Only the body.
    Body,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colons = self.name.contains(':');
        let (open, close) = if colons { ("[", "]") } else { ("", "") };
        write!(f, "{open}{}{close}:{}", self.name, self.port)
    }
}

impl fmt::Display for Address {
    /// As an error names it: no secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("activemq://")?;
        for (at, host) in self.hosts.iter().enumerate() {
            write!(f, "{}{host}", if at > 0 { "," } else { "" })?;
        }
        write!(f, "/{}", self.queue)
    }
}

impl Address {
    /// Reads a URI.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right. Never its password.
    pub(super) fn parse(uri: &str) -> Result<Self, String> {
        let (rest, query) = uri.split_once('?').unwrap_or((uri, ""));
        let (scheme, rest) = rest.split_once(':').ok_or(FORM)?;
        let (user, hosts, queue) = match scheme.to_ascii_lowercase().as_str() {
            "activemq" => plain(rest, false)?,
            "activemq+ssl" => plain(rest, true)?,
            "failover" => failover(rest)?,
            _ => return Err(FORM.to_owned()),
        };
        let mut address = Self {
            hosts,
            user,
            queue: name(queue)?,
            group: GroupFrom::Jms,
            prefetch: PREFETCH_DEFAULT,
            statistics: true,
            ca: None,
            identity: None,
        };
        address.read_options(query)?;
        Ok(address)
    }

    fn read_options(&mut self, query: &str) -> Result<(), String> {
        let (mut cert, mut key, mut user, mut password) = (None, None, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (option, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(value).ok_or_else(|| format!("option {option} has a broken % escape"))?;
            if value.is_empty() {
                return Err(format!("option {option} has no value"));
            }
            match option {
                "group" => self.group = GroupFrom::parse(&value)?,
                "prefetch" => self.prefetch = prefetch(&value)?,
                "statistics" => {
                    self.statistics =
                        value.parse().map_err(|_| format!("statistics={value}: write true or false"))?;
                }
                "user" => user = Some(value),
                "password" => password = Some(value),
                "ca" => self.ca = Some(PathBuf::from(value)),
                "cert" => cert = Some(PathBuf::from(value)),
                "key" => key = Some(PathBuf::from(value)),
                _ => return Err(format!("has the option {option:?}, which is none of {OPTIONS}")),
            }
        }
        self.identity = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err("has one of cert= and key=: they come together".into()),
        };
        match (user, password) {
            (None, None) => {}
            (Some(user), password) if self.user.is_none() => {
                self.user = Some((user, Secret::new(password.unwrap_or_default())));
            }
            (Some(_), _) => return Err("has a user before its host and user=: give one of them".into()),
            (None, Some(_)) => return Err("has password= without user=".into()),
        }
        Ok(())
    }
}

impl GroupFrom {
    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text.eq_ignore_ascii_case("JMSXGroupID") => Ok(Self::Jms),
            None if text == "body" => Ok(Self::Body),
            Some(("property", name)) if !name.trim().is_empty() => Ok(Self::Property(name.trim().to_owned())),
            _ => Err(format!("group={text}: write JMSXGroupID, property:NAME or body")),
        }
    }
}

type User = Option<(String, Secret)>;

/// `//user:password@host,host2/QUEUE`.
fn plain(rest: &str, tls: bool) -> Result<(User, Vec<Host>, &str), String> {
    let (authority, queue) = rest.strip_prefix("//").and_then(|rest| rest.split_once('/')).ok_or(FORM)?;
    let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let hosts = hosts.split(',').map(|text| host(text, tls)).collect::<Result<_, _>>()?;
    Ok((credentials(user)?, hosts, queue))
}

/// `(tcp://host:port,ssl://host2:port)/QUEUE`.
fn failover(rest: &str) -> Result<(User, Vec<Host>, &str), String> {
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let (inner, queue) = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).ok_or(FORM)?;
    let queue = queue.strip_prefix('/').ok_or(FORM)?;
    let one = |text: &str| match text.trim().split_once("://") {
        Some((_, text)) if text.contains('@') => {
            Err("has a user inside failover:(…): write ?user=…&password=… after the queue".to_owned())
        }
        Some((scheme, text)) if scheme.eq_ignore_ascii_case("tcp") => host(text, false),
        Some((scheme, text)) if scheme.eq_ignore_ascii_case("ssl") => host(text, true),
        _ => Err(format!("has {text:?} inside failover:(…): write tcp://HOST:PORT or ssl://HOST:PORT")),
    };
    Ok((None, inner.split(',').map(one).collect::<Result<_, _>>()?, queue))
}

fn credentials(user: &str) -> Result<User, String> {
    if user.is_empty() {
        return Ok(None);
    }
    let text = |part: &str| decoded(part).ok_or("the user or password has a broken % escape");
    let (user, password) = user.split_once(':').unwrap_or((user, ""));
    Ok(Some((text(user)?, Secret::new(text(password)?))))
}

fn host(text: &str, tls: bool) -> Result<Host, String> {
    let text = text.trim();
    // A bracket closes an IPv6 address, whose colons name no port.
    let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, rest)) => (name, rest.strip_prefix(':').or_else(|| rest.is_empty().then_some(""))),
        None => match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, Some("")),
        },
    };
    let port = match port {
        Some("") if !text.ends_with(':') => Some(if tls { PORT_TLS } else { PORT }),
        Some(port) => port.parse().ok().filter(|&port| port > 0),
        None => None,
    };
    let is_bad = |letter: char| letter.is_whitespace() || letter.is_control() || "/@?#".contains(letter);
    match port {
        Some(port) if !name.is_empty() && !name.contains(is_bad) => {
            Ok(Host { name: name.to_owned(), port, tls })
        }
        _ => Err(format!("{text:?} is no host: write HOST:PORT, several by commas")),
    }
}

fn prefetch(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(PREFETCH_OF_THE_BROKER) => Ok(PREFETCH_OF_THE_BROKER + 1),
        Ok(count @ 1..=PREFETCH_MAX) => Ok(count),
        _ => Err(format!("prefetch={text}: write a number from 1 to {PREFETCH_MAX}")),
    }
}

/// One queue: the broker would take a comma for a list, and `*` or `>` for many.
fn name(text: &str) -> Result<String, String> {
    let name = decoded(text).ok_or("the queue has a broken % escape")?;
    if name.is_empty() {
        return Err(format!("names no queue: {FORM}"));
    }
    let is_many = name.split('.').any(|part| part == "*" || part == ">");
    let is_bad = |letter: char| letter.is_control() || ",?".contains(letter);
    if is_many || name.contains(is_bad) || name.contains("://") || name.len() > NAME_BYTES_MAX {
        return Err(format!("the queue {name:?} is not one queue's name: no , ? :// and no part * or >"));
    }
    Ok(name)
}
