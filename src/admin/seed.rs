//! Made-up messages, to try things out: how many, where to, in which groups. The plan is pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::ask::{Answer, Ask, Fields, json};
use super::port::{Publish, Router};
use super::refusal::Refusal;
use super::routes::{Api, now_unix_ms};
use crate::message;

/// Messages of one request; ask again for more.
pub const COUNT_MAX: u64 = 100_000;
/// Messages published at once, so that a large seed does not hold up others.
const STEP: u64 = 1_000;
/// This server's practice targets.
const ENDPOINTS: [&str; 5] = ["fast", "slow", "faulty", "fail", "throttled"];

/// Counts seedings, so that two in one millisecond have ids of their own.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// How messages are spread over groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum GroupMode {
    /// Each message its own group: `msg-0`, `msg-1`, …
    #[default]
    Unique,
    /// One of eight groups: `group-0` to `group-7`.
    #[value(name = "1of8")]
    OneOfEight,
    /// All in `single-group`.
    Single,
}

impl GroupMode {
    /// As it is written in a request.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unique => "unique",
            Self::OneOfEight => "1of8",
            Self::Single => "single",
        }
    }

    /// The group of the n-th message. "Random" is a fixed scramble, so that a run can be repeated.
    #[must_use]
    pub fn group(self, number: u64) -> String {
        match self {
            Self::Unique => format!("msg-{number}"),
            Self::OneOfEight => format!("group-{}", scramble(number) % 8),
            Self::Single => "single-group".into(),
        }
    }
}

/// Spreads numbers evenly and without a visible pattern (the finisher of `SplitMix64`).
pub(super) const fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// What was seeded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seeded {
    /// How many messages.
    pub count: u64,
    /// On which queue.
    pub queue: String,
    /// Where they will be posted.
    pub target: String,
    /// What their ids start with.
    pub ids: String,
}

struct Plan {
    count: u64,
    target: String,
    queue: Option<String>,
    pool: Option<String>,
    mode: GroupMode,
}

pub(super) async fn answer<R: Router>(api: &Api<R>, ask: Ask) -> Answer {
    let plan = plan(ask.query()?, api.address)?;
    let ids = format!("seed-{:x}-{}", now_unix_ms(), RUNS.fetch_add(1, Ordering::Relaxed));
    message::check(&plan.message(&ids, 0).pointer(), None)
        .map_err(|error| Refusal::field("endpoint", format!("can't be used: {error}")))?;
    let mut seeded = Seeded { target: plan.target.clone(), ids: ids.clone(), ..Seeded::default() };
    while seeded.count < plan.count {
        let step = seeded.count..plan.count.min(seeded.count + STEP);
        let messages = step.map(|number| plan.message(&ids, number)).collect();
        let published = api.router.publish(plan.queue.as_deref(), messages).await?;
        if published.count == 0 {
            return Err(Refusal::new(
                http::StatusCode::INTERNAL_SERVER_ERROR,
                "FAILED",
                "the queue took no message",
            ));
        }
        seeded.count += published.count;
        seeded.queue = published.queue;
    }
    Ok(json(&seeded))
}

impl Plan {
    fn message(&self, ids: &str, number: u64) -> Publish {
        Publish {
            id: format!("{ids}-{number}"),
            mediation_target: self.target.clone(),
            pool_code: self.pool.clone(),
            message_group_id: Some(self.mode.group(number)),
            ..Publish::default()
        }
    }
}

fn plan(mut query: Fields, own: SocketAddr) -> Result<Plan, Refusal> {
    let mode = match query.text("messageGroupMode")?.as_deref() {
        None | Some("unique") => GroupMode::Unique,
        Some("1of8") => GroupMode::OneOfEight,
        Some("single") => GroupMode::Single,
        Some(other) => {
            return Err(Refusal::field(
                "messageGroupMode",
                format!("is {other:?}: write unique, 1of8 or single"),
            ));
        }
    };
    let target = match query.text("endpoint")? {
        None => practice_url(own, "fast"),
        Some(name) if ENDPOINTS.contains(&name.as_str()) => practice_url(own, &name),
        Some(url) if url.contains("://") => url,
        Some(other) => {
            let problem = format!("is {other:?}: write {} or a whole URL", ENDPOINTS.join(", "));
            return Err(Refusal::field("endpoint", problem));
        }
    };
    let plan = Plan {
        count: query.whole("count", 1..=COUNT_MAX)?.unwrap_or(1),
        target,
        queue: query.text("queue")?,
        pool: query.text("pool")?,
        mode,
    };
    query.end()?;
    Ok(plan)
}

/// Where this server's practice target is reached from this host.
fn practice_url(own: SocketAddr, name: &str) -> String {
    let ip = match own.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("http://{}/api/test/{name}", SocketAddr::new(ip, own.port()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn groups_are_named_as_the_group_document_has_them() {
        assert_eq!([0, 1, 2].map(|n| GroupMode::Unique.group(n)), ["msg-0", "msg-1", "msg-2"]);
        assert_eq!([0, 9].map(|n| GroupMode::Single.group(n)), ["single-group", "single-group"]);
        let mut eight: BTreeMap<String, u32> = BTreeMap::new();
        for number in 0..800 {
            *eight.entry(GroupMode::OneOfEight.group(number)).or_default() += 1;
        }
        let names: Vec<&str> = eight.keys().map(String::as_str).collect();
        assert_eq!(names, (0..8).map(|n| format!("group-{n}")).collect::<Vec<_>>());
        assert!(eight.values().all(|count| (60..140).contains(count)), "{eight:?}");
    }

    #[test]
    fn a_practice_target_is_reached_on_this_host() {
        let rows = [
            ("127.0.0.1:8080", "http://127.0.0.1:8080/api/test/slow"),
            ("0.0.0.0:80", "http://127.0.0.1:80/api/test/slow"),
            ("[::]:80", "http://[::1]:80/api/test/slow"),
            ("192.0.2.1:80", "http://192.0.2.1:80/api/test/slow"),
        ];
        for (own, want) in rows {
            assert_eq!(practice_url(own.parse().expect("an address"), "slow"), want);
        }
    }
}
