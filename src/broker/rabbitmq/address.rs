//! Where a queue is: `amqp://user:password@host:port,host2/VHOST/QUEUE?option=value`, or a service of the event bus:
//! `amqp://…/VHOST?service=NAME&target=URL`. Read into checked parts. Pure.

#[cfg(test)]
mod tests;

use std::fmt;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use crate::secret::Secret;
use crate::topology::decoded;

use super::group::GroupFrom;

/// The ports of a host that names none: plain, TLS.
const PORTS: [u16; 2] = [5672, 5671];
/// Longest name of a queue, vhost or service: an AMQP short string.
const NAME_BYTES_MAX: usize = 255;
/// How long a server lets a message be unsettled, unless it is told otherwise. Then it closes the channel.
const CONSUMER_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// The shortest such time that leaves room for calls.
const CONSUMER_TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// The user and the password where the URI has none: RabbitMQ's own, good on loopback only.
const GUEST: &str = "guest";

/// The options of a queue, for the text that refuses another.
const QUEUE_OPTIONS: &str = "group, prefetch, delivery-limit, consumer-timeout, ca, cert, key";
/// The options of a bus service.
const BUS_OPTIONS: &str = "service, target, pool, prefetch, consumer-timeout, ca, cert, key";

/// A checked address.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// Hosts and ports, to be tried in this order. An IPv6 host has no brackets.
    pub(crate) servers: Vec<(String, u16)>,
    pub(crate) tls: bool,
    pub(crate) user: String,
    pub(crate) password: Secret,
    pub(crate) vhost: String,
    pub(crate) place: Place,
    /// Messages that may be handed over and not settled; `None` = what is needed.
    pub(crate) prefetch: Option<NonZeroU16>,
    /// Authorities to trust beside the system's.
    pub(crate) ca: Option<PathBuf>,
    /// The client's certificate and its key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

/// What is consumed there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Queue(PlainQueue),
    Bus(BusService),
    /// Nothing in particular.
    Vhost,
}

/// A queue with the router's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlainQueue {
    pub(crate) name: String,
    pub(crate) group: GroupFrom,
    /// Hand-overs after which the server drops a message; 0 = never, `None` = its default.
    pub(crate) delivery_limit: Option<u16>,
    /// How long the server lets a message be unsettled; zero = for ever.
    pub(crate) consumer_timeout: Duration,
}

impl PlainQueue {
    /// How long a message may be held.
    pub(crate) fn hold_max(&self) -> Option<Duration> {
        hold_max(self.consumer_timeout)
    }
}

/// A service of the event bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BusService {
    pub(crate) name: String,
    /// URL to POST to.
    pub(crate) target: String,
    /// Code of its pool; `None` = the default pool.
    pub(crate) pool: Option<String>,
    /// How long the server lets a message be unsettled; zero = for ever.
    pub(crate) consumer_timeout: Duration,
}

impl BusService {
    /// How long a message may be held.
    pub(crate) fn hold_max(&self) -> Option<Duration> {
        hold_max(self.consumer_timeout)
    }
}

/// Five sixths of what the server allows, 25 of its 30 minutes.
fn hold_max(consumer_timeout: Duration) -> Option<Duration> {
    (!consumer_timeout.is_zero()).then(|| consumer_timeout / 6 * 5)
}

impl fmt::Display for Address {
    /// As an error names it: no secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", if self.tls { "amqps" } else { "amqp" })?;
        for (at, (host, port)) in self.servers.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let [open, close] = if host.contains(':') { ["[", "]"] } else { ["", ""] };
            write!(f, "{comma}{open}{host}{close}:{port}")?;
        }
        write!(f, "/{}", self.vhost.replace('/', "%2F"))?;
        match &self.place {
            Place::Queue(queue) => write!(f, "/{}", queue.name.replace('/', "%2F")),
            Place::Bus(service) => write!(f, "?service={}", service.name),
            Place::Vhost => Ok(()),
        }
    }
}

/// The options as they are written.
#[derive(Default)]
struct Options {
    group: Option<GroupFrom>,
    delivery_limit: Option<u16>,
    consumer_timeout: Option<Duration>,
    service: Option<String>,
    target: Option<String>,
    pool: Option<String>,
    prefetch: Option<NonZeroU16>,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
}

impl Address {
    /// Reads a URI.
    ///
    /// # Errors
    /// What is wrong with it, and what would be right. Never its password.
    pub(crate) fn parse(uri: &str) -> Result<Self, String> {
        Self::read(uri, |path, options| {
            let consumer_timeout = options.consumer_timeout.unwrap_or(CONSUMER_TIMEOUT);
            if let Some(name) = options.service.take() {
                let target = options.target.take();
                let target = target.ok_or("has service= and no target=: write the URL to POST to")?;
                let pool = options.pool.take();
                let service = BusService { name, target, pool, consumer_timeout };
                return Ok((vhost_only(path)?, Place::Bus(service)));
            }
            let (vhost, name) = vhost_and_queue(path)?;
            let (group, delivery_limit) = (options.group.take().unwrap_or_default(), options.delivery_limit);
            Ok((vhost, Place::Queue(PlainQueue { name, group, delivery_limit, consumer_timeout })))
        })
    }

    /// Reads the URI of a vhost, for commands that name what they work on in another way.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub(crate) fn parse_vhost(uri: &str) -> Result<Self, String> {
        Self::read(uri, |path, options| {
            let is_bare = options.service.is_none()
                && options.group.is_none()
                && options.delivery_limit.is_none()
                && options.consumer_timeout.is_none()
                && options.prefetch.is_none();
            if is_bare && !path.contains('/') {
                Ok((vhost_only(path)?, Place::Vhost))
            } else {
                Err("names more than a vhost: write amqp://HOST/VHOST, with no options but ca, cert and key"
                    .into())
            }
        })
    }

    fn read(
        uri: &str,
        place: impl FnOnce(&str, &mut Options) -> Result<(String, Place), String>,
    ) -> Result<Self, String> {
        let (scheme, rest) = uri.split_once("://").ok_or("is no URI: write amqp://HOST/VHOST/QUEUE")?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "amqp" => false,
            "amqps" => true,
            _ => return Err(format!("has the scheme {scheme:?}: write amqp:// or amqps://")),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let port = PORTS[usize::from(tls)];
        let servers = hosts.split(',').map(|host| server(host, port)).collect::<Result<_, _>>()?;
        let (user, password) = credentials(user)?;
        let mut options = Options::read(query)?;
        let (vhost, place) = place(path, &mut options)?;
        let identity = match (options.cert, options.key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err("has one of cert= and key=: they come together".into()),
        };
        if !tls && (options.ca.is_some() || identity.is_some()) {
            return Err("has ca= or cert=, which need TLS: write amqps://".into());
        }
        let (prefetch, ca) = (options.prefetch, options.ca);
        Ok(Self { servers, tls, user, password, vhost, place, prefetch, ca, identity })
    }
}

impl Options {
    fn read(query: &str) -> Result<Self, String> {
        let mut options = Self::default();
        let pairs = || query.split('&').filter(|pair| !pair.is_empty());
        let is_bus = pairs().any(|pair| pair.split('=').next() == Some("service"));
        for pair in pairs() {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(value).ok_or_else(|| format!("option {name} has a broken % escape"))?;
            if value.is_empty() {
                return Err(format!("option {name} has no value"));
            }
            options.set(name, value, is_bus)?;
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: String, is_bus: bool) -> Result<(), String> {
        match (name, is_bus) {
            ("group", false) => self.group = Some(GroupFrom::parse(&value)?),
            ("delivery-limit", false) => {
                let limit = value.parse().map_err(|_| {
                    format!("delivery-limit={value}: write a number from 0 (none) to {}", u16::MAX)
                })?;
                self.delivery_limit = Some(limit);
            }
            ("consumer-timeout", _) => self.consumer_timeout = Some(consumer_timeout(&value)?),
            ("service", true) => self.service = Some(checked("service", value)?),
            ("target", true) => self.target = Some(target(value)?),
            ("pool", true) => self.pool = Some(checked("pool", value)?),
            ("prefetch", _) => {
                let count =
                    value.parse().map_err(|_| format!("prefetch={value}: write 1 to {}", u16::MAX))?;
                self.prefetch = Some(count);
            }
            ("ca", _) => self.ca = Some(PathBuf::from(value)),
            ("cert", _) => self.cert = Some(PathBuf::from(value)),
            ("key", _) => self.key = Some(PathBuf::from(value)),
            (_, true) => {
                return Err(format!("has the option {name:?}: a bus service has none but {BUS_OPTIONS}"));
            }
            (_, false) => {
                return Err(format!("has the option {name:?}, which is none of {QUEUE_OPTIONS}"));
            }
        }
        Ok(())
    }
}

fn vhost_and_queue(path: &str) -> Result<(String, String), String> {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        [queue] => Ok(("/".into(), name("queue", queue)?)),
        [vhost, queue] => Ok((name("vhost", vhost)?, name("queue", queue)?)),
        _ => Err("has too many parts: write amqp://HOST/VHOST/QUEUE, a / in a name as %2F".into()),
    }
}

fn vhost_only(path: &str) -> Result<String, String> {
    match path {
        "" => Ok("/".into()),
        vhost if !vhost.contains('/') => name("vhost", vhost),
        _ => Err("names a queue beside service=: write amqp://HOST/VHOST?service=NAME&target=URL".into()),
    }
}

fn name(what: &str, text: &str) -> Result<String, String> {
    checked(what, decoded(text).ok_or_else(|| format!("the {what} has a broken % escape"))?)
}

fn checked(what: &str, name: String) -> Result<String, String> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(char::is_control) {
        let default = if what == "vhost" { " (%2F is the default vhost)" } else { "" };
        return Err(format!("the {what} {name:?} is no name: 1 to {NAME_BYTES_MAX} bytes{default}"));
    }
    Ok(name)
}

fn target(url: String) -> Result<String, String> {
    let after = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    match after {
        Some(host) if !host.is_empty() && !host.starts_with('/') => Ok(url),
        // Not shown: it may hold a password.
        _ => Err("target= is no URL: write http(s)://HOST/PATH, with & as %26".into()),
    }
}

fn consumer_timeout(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        _ if text == "none" => Ok(Duration::ZERO),
        Ok(time) if time >= CONSUMER_TIMEOUT_MIN => Ok(time),
        _ => Err(format!("consumer-timeout={text}: write the server's, such as 30m, or none")),
    }
}

fn server(text: &str, default: u16) -> Result<(String, u16), String> {
    // A bracket closes an IPv6 address, whose colons name no port.
    let end = text.rfind(']').map_or(0, |end| end + 1);
    let (host, port) = match text[end..].rsplit_once(':') {
        Some((before, port)) => match port.parse::<u16>() {
            Ok(port @ 1..) => (&text[..end + before.len()], port),
            _ => return Err(format!("the port {port:?} of {text:?} is no number from 1 to 65535")),
        },
        None => (text, default),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let bad = |letter: char| letter.is_whitespace() || letter.is_control() || "[]@\\".contains(letter);
    let is_host = match bare {
        Some(bare) => bare.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && !host.contains(bad) && !host.contains(':'),
    };
    if is_host {
        Ok((bare.unwrap_or(host).to_owned(), port))
    } else {
        Err(format!("{host:?} is no host: write HOST:PORT, several by commas"))
    }
}

fn credentials(user: &str) -> Result<(String, Secret), String> {
    let text = |part: &str| decoded(part).ok_or("the user or password has a broken % escape");
    match user.split_once(':') {
        None if user.is_empty() => Ok((GUEST.into(), Secret::new(GUEST.into()))),
        None => Err("has a user without a password: write USER:PASSWORD@".into()),
        Some((user, password)) => Ok((text(user)?, Secret::new(text(password)?))),
    }
}
