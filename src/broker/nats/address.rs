//! Where a queue is: `nats://user:password@host:port,host2/STREAM/CONSUMER?option=value`, read into checked parts. Pure.

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;

use crate::secret::Secret;
use crate::topology::decoded;

use super::group::GroupFrom;

/// The port of a host that names none.
const PORT: u16 = 4222;
/// Longest name of a stream or consumer: what the server takes.
const NAME_BYTES_MAX: usize = 255;

/// The options that exist, for the text that refuses another.
const OPTIONS: &str = "subject, group, create, creds, ca, cert, key";

/// A queue's address.
#[derive(Clone, Debug)]
pub(super) struct Address {
    /// `nats://host:port` or `tls://host:port`, without credentials.
    pub(super) servers: Vec<String>,
    pub(super) auth: Auth,
    pub(super) stream: String,
    pub(super) consumer: String,
    /// Only messages of this subject; it may hold wildcards.
    pub(super) subject: Option<String>,
    pub(super) group: GroupFrom,
    /// Make the consumer if it is not there.
    pub(super) create: bool,
    /// Authorities to trust instead of the system's.
    pub(super) ca: Option<PathBuf>,
    /// The client's certificate and its key.
    pub(super) identity: Option<(PathBuf, PathBuf)>,
}

/// How to say who we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Auth {
    Nobody,
    Password(String, Secret),
    Token(Secret),
    /// A file with a JWT and its key.
    File(PathBuf),
}

impl fmt::Display for Address {
    /// As an error names it: no secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.servers.join(","), self.stream, self.consumer)
    }
}

impl Address {
    /// Do both go to the same servers as the same user?
    pub(super) fn is_same_line(&self, other: &Self) -> bool {
        (&self.servers, &self.auth, &self.ca, &self.identity)
            == (&other.servers, &other.auth, &other.ca, &other.identity)
    }

    /// Reads a URI.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right. Never its password.
    pub(super) fn parse(uri: &str) -> Result<Self, String> {
        let (scheme, rest) = uri.split_once("://").ok_or("write nats://HOST/STREAM/CONSUMER")?;
        let scheme = scheme.to_ascii_lowercase();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let [stream, consumer] = names(path)?;
        let mut address = Self {
            servers: hosts.split(',').map(|host| server(&scheme, host)).collect::<Result<_, _>>()?,
            auth: auth(user)?,
            stream,
            consumer,
            subject: None,
            group: GroupFrom::default(),
            create: true,
            ca: None,
            identity: None,
        };
        address.read_options(query)?;
        Ok(address)
    }

    fn read_options(&mut self, query: &str) -> Result<(), String> {
        let (mut cert, mut key) = (None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(value).ok_or_else(|| format!("option {name} has a broken % escape"))?;
            if value.is_empty() {
                return Err(format!("option {name} has no value"));
            }
            match name {
                "subject" => self.subject = Some(subject(value)?),
                "group" => self.group = GroupFrom::parse(&value)?,
                "create" => {
                    self.create =
                        value.parse().map_err(|_| format!("create={value}: write true or false"))?;
                }
                "creds" => match self.auth {
                    Auth::Nobody => self.auth = Auth::File(PathBuf::from(value)),
                    _ => return Err("has a user and creds=: give one of them".into()),
                },
                "ca" => self.ca = Some(PathBuf::from(value)),
                "cert" => cert = Some(PathBuf::from(value)),
                "key" => key = Some(PathBuf::from(value)),
                _ => return Err(format!("has the option {name:?}, which is none of {OPTIONS}")),
            }
        }
        self.identity = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err("has one of cert= and key=: they come together".into()),
        };
        Ok(())
    }
}

fn names(path: &str) -> Result<[String; 2], String> {
    let parts: Vec<&str> = path.split('/').collect();
    let [stream, consumer] = parts[..] else {
        return Err("names no stream and consumer: write nats://HOST/STREAM/CONSUMER".into());
    };
    Ok([name("stream", stream)?, name("consumer", consumer)?])
}

/// A name becomes a part of subjects, so that a dot or a wildcard in it would reach other streams.
fn name(what: &str, text: &str) -> Result<String, String> {
    let name = decoded(text).ok_or_else(|| format!("the {what} has a broken % escape"))?;
    let is_bad = |letter: char| letter.is_whitespace() || letter.is_control() || ".*>/\\".contains(letter);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(is_bad) {
        return Err(format!(
            "the {what} {name:?} is no name: 1 to {NAME_BYTES_MAX} bytes, no space and none of . * > / \\"
        ));
    }
    Ok(name)
}

fn subject(text: String) -> Result<String, String> {
    let is_broken = |part: &str| part.is_empty() || part.contains(|letter: char| letter.is_whitespace());
    if text.split('.').any(is_broken) {
        return Err(format!("subject={text:?} is no subject"));
    }
    Ok(text)
}

fn server(scheme: &str, host: &str) -> Result<String, String> {
    // A bracket closes an IPv6 address, whose colons name no port.
    let after = host.rfind(']').map_or(host, |end| &host[end..]);
    let server = match after.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok_and(|port| port > 0) => format!("{scheme}://{host}"),
        Some((_, port)) => return Err(format!("the port {port:?} of {host:?} is no number from 1 to 65535")),
        None => format!("{scheme}://{host}:{PORT}"),
    };
    match server.parse::<async_nats::ServerAddr>() {
        Ok(address) if !address.host().is_empty() => Ok(server),
        _ => Err(format!("{host:?} is no host: write HOST:PORT, several by commas")),
    }
}

fn auth(user: &str) -> Result<Auth, String> {
    let text = |part: &str| decoded(part).ok_or("the user or password has a broken % escape");
    match user.split_once(':') {
        None if user.is_empty() => Ok(Auth::Nobody),
        None => Ok(Auth::Token(Secret::new(text(user)?))),
        Some((user, password)) => Ok(Auth::Password(text(user)?, Secret::new(text(password)?))),
    }
}
