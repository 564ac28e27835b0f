//! Who may ask for what: the Host header, the Origin header, the token, and the lock-out after wrong tokens.
//! Pure: time and addresses arrive as arguments.
//!
//! - **Host** guards against DNS rebinding: a page of another site reaches us by its own name. IP literals are
//!   let through, for a name is what rebinding needs.
//! - **Origin** guards against requests that another site's page makes a browser send.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use http::uri::Authority;
use http::{HeaderMap, StatusCode, Uri, header};
use parking_lot::Mutex;

use super::refusal::Refusal;
use super::routes::Access;
use super::token::Token;

/// Wrong tokens from one address in [`WINDOW_MS`] after which it is locked out.
pub(super) const WRONG_MAX: u32 = 10;
/// A lock-out's length, and how long wrong tokens are remembered.
pub(super) const WINDOW_MS: u64 = 60_000;
/// Addresses remembered; the oldest makes room.
const ADDRESSES_MAX: usize = 1_024;

/// The rules in effect.
#[derive(Debug)]
pub(super) struct Guard {
    token: Option<Token>,
    hosts: Vec<String>,
    /// The address we listen on: who calls from it is on this host.
    own: IpAddr,
    wrong: Mutex<BTreeMap<IpAddr, Wrong>>,
}

#[derive(Clone, Copy, Debug)]
struct Wrong {
    since_ms: u64,
    count: u32,
}

/// What is known of a request before its body is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller<'a> {
    pub(super) address: IpAddr,
    pub(super) uri: &'a Uri,
    pub(super) headers: &'a HeaderMap,
    pub(super) now_ms: u64,
}

impl Guard {
    pub(super) fn new(token: Option<Token>, hosts: &[String], own: IpAddr) -> Self {
        let hosts = hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        Self { token, hosts, own: own.to_canonical(), wrong: Mutex::default() }
    }

    /// Lets a request through, or says why not.
    pub(super) fn check(&self, access: Access, caller: Caller<'_>) -> Result<(), Refusal> {
        let host = self.host(caller)?;
        if access == Access::Write {
            self.origin(&host, caller.headers)?;
        }
        match (&self.token, access) {
            (_, Access::Open) => Ok(()),
            (_, Access::Local) if self.is_here(caller.address) => Ok(()),
            (_, Access::Local) => Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "NOT_FROM_HERE",
                "practice targets answer callers on the router's own host only",
            )),
            (None, _) => Ok(()),
            // A scraper on this host needs no secret: whoever can run a process here can read /proc as well.
            (Some(_), Access::Scrape) if self.is_here(caller.address) => Ok(()),
            (Some(token), Access::Scrape | Access::Read | Access::Write) => self.token(token, caller),
        }
    }

    fn host(&self, caller: Caller<'_>) -> Result<Authority, Refusal> {
        let refuse = |problem: &str| {
            let message = format!(
                "{problem}: call the admin API by IP address, as localhost, or add the name to admin.hosts"
            );
            Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, "HOST_REFUSED", message))
        };
        let mut named = caller.headers.get_all(header::HOST).iter();
        let (first, second) = (named.next(), named.next());
        let header =
            first.and_then(|value| value.to_str().ok()).and_then(|text| text.parse::<Authority>().ok());
        let (Some(header), None) = (header, second) else {
            return refuse("the Host header is missing, unreadable or there twice");
        };
        // A request line with a whole URL names a host too; both must be fine.
        for authority in caller.uri.authority().into_iter().chain([&header]) {
            if !self.is_own(authority.host()) {
                return refuse("the Host header names a host that is not ours");
            }
        }
        Ok(header)
    }

    fn is_here(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_loopback() || address == self.own
    }

    fn is_own(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost"
            || host.parse::<IpAddr>().is_ok()
            || bare.parse::<Ipv6Addr>().is_ok()
            || self.hosts.contains(&host)
    }

    fn origin(&self, host: &Authority, headers: &HeaderMap) -> Result<(), Refusal> {
        let foreign = || {
            Refusal::new(
                StatusCode::FORBIDDEN,
                "ORIGIN_REFUSED",
                "a page of another site asked for this: open the dashboard itself",
            )
        };
        if headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none") {
            return Err(foreign());
        }
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let authority = origin.to_str().ok().and_then(|text| text.split_once("://")).map(|(_, rest)| rest);
        match authority {
            Some(authority) if authority.eq_ignore_ascii_case(host.as_str()) => Ok(()),
            Some(authority) if self.hosts.iter().any(|known| authority.eq_ignore_ascii_case(known)) => Ok(()),
            _ => Err(foreign()),
        }
    }

    fn token(&self, token: &Token, caller: Caller<'_>) -> Result<(), Refusal> {
        let address = caller.address.to_canonical();
        let shown = caller.headers.get(header::AUTHORIZATION).map(http::HeaderValue::as_bytes);
        let bearer = shown.filter(|shown| shown.len() > 7 && shown[..7].eq_ignore_ascii_case(b"bearer "));
        // The right token passes even where others behind the same address guess.
        if bearer.is_some_and(|shown| token.is(&shown[7..])) {
            self.wrong.lock().remove(&address);
            return Ok(());
        }
        if let Some(left_ms) = self.locked_for(address, caller.now_ms) {
            let after = std::time::Duration::from_millis(left_ms);
            let message = "too many wrong tokens from this address: wait, then use the right one";
            let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "LOCKED_OUT", message);
            return Err(Refusal { retry_after: Some(after), ..refusal });
        }
        if shown.is_none() {
            let message = "send the admin token: authorization: Bearer TOKEN";
            return Err(Refusal::new(StatusCode::UNAUTHORIZED, "TOKEN_MISSING", message));
        }
        self.count(address, caller.now_ms);
        Err(Refusal::new(StatusCode::UNAUTHORIZED, "TOKEN_WRONG", "this is not the admin token"))
    }

    fn locked_for(&self, address: IpAddr, now_ms: u64) -> Option<u64> {
        let wrong = *self.wrong.lock().get(&address)?;
        let over_ms = wrong.since_ms + WINDOW_MS;
        (wrong.count >= WRONG_MAX && now_ms < over_ms).then(|| over_ms - now_ms)
    }

    fn count(&self, address: IpAddr, now_ms: u64) {
        let mut all = self.wrong.lock();
        all.retain(|_, wrong| now_ms < wrong.since_ms + WINDOW_MS);
        if all.len() >= ADDRESSES_MAX && !all.contains_key(&address) {
            let oldest = all.iter().min_by_key(|(_, wrong)| wrong.since_ms).map(|(address, _)| *address);
            oldest.map(|address| all.remove(&address));
        }
        all.entry(address).or_insert(Wrong { since_ms: now_ms, count: 0 }).count += 1;
    }
}

#[cfg(test)]
mod tests;
