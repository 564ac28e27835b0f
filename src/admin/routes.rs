//! Every path of the admin API: the one table from which the HTTP routes, the rules about who may ask, and
//! the OpenAPI document are made.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::extract::{ConnectInfo, RawPathParams};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};

use super::ask::{Answer, Ask};
use super::guard::{Caller, Guard};
use super::port::Router;
use super::practice::Practice;
use super::refusal::Refusal;
use super::{dashboard, dead_letters, health, look, messages, openapi, pools, seed, warnings};

/// A request has this long, its body included; a browser or a scraper gives up sooner.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(60);

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anyone: health, the dashboard's files (they hold no data).
    Open,
    /// Whoever calls from this host, as the router itself does: practice targets.
    Local,
    /// As `Read`, but callers on this host need no token.
    Scrape,
    /// Whoever has the token, if one is set.
    Read,
    /// The same, and no page of another site.
    Write,
}

/// HTTP methods in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "HTTP's own")]
pub enum Method {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

impl Method {
    /// As it stands in a request.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    const fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Post => MethodFilter::POST,
            Self::Put => MethodFilter::PUT,
            Self::Patch => MethodFilter::PATCH,
            Self::Delete => MethodFilter::DELETE,
        }
    }
}

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "ROUTES says what each does")]
pub enum Job {
    Page,
    Script,
    Charts,
    Parts,
    Style,
    Health,
    Live,
    Ready,
    Metrics,
    OpenApi,
    View,
    Config,
    Pools,
    PoolReplace,
    PoolChange,
    Queues,
    Targets,
    Groups,
    Inflight,
    Explain,
    Warnings,
    WarningAcknowledge,
    WarningClear,
    WarningsClear,
    DeadLetters,
    DeadLetter,
    DeadLettersRetry,
    DeadLettersPurge,
    Publish,
    Seed,
    Fast,
    Slow,
    Faulty,
    Fail,
    Throttled,
    Hits,
}

/// A route.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// How.
    pub method: Method,
    /// Where; parameters in braces.
    pub path: &'static str,
    /// Who may.
    pub access: Access,
    /// What it does.
    pub job: Job,
    /// The same in words.
    pub about: &'static str,
    /// Query parameters, each as (name, what it means).
    pub query: &'static [(&'static str, &'static str)],
}

const fn route(method: Method, path: &'static str, access: Access, job: Job, about: &'static str) -> Route {
    Route { method, path, access, job, about, query: &[] }
}

const fn asked(
    method: Method,
    path: &'static str,
    access: Access,
    job: Job,
    about: &'static str,
    query: &'static [(&'static str, &'static str)],
) -> Route {
    Route { method, path, access, job, about, query }
}

const DEAD_LETTER_QUERY: &[(&str, &str)] = &[
    ("numbers", "These numbers, with commas."),
    ("id", "The sender's id."),
    ("queue", "The queue."),
    ("pool", "The pool."),
    ("group", "The group."),
    ("target", "What the target's URL starts with."),
    ("reason", "REFUSED, EXHAUSTED or MALFORMED."),
    ("status", "The target's last status."),
    ("after", "Set aside at or after this, in seconds since 1970."),
    ("before", "Set aside before this, in seconds since 1970."),
    ("offset", "How many to leave out first (GET only)."),
    ("limit", "How many at most, up to 1000 (GET only)."),
    ("all", "true: a purge without a filter means all (DELETE only)."),
];

const SEED_QUERY: &[(&str, &str)] = &[
    ("count", "How many messages, 1 to 100000; 1 if absent."),
    (
        "endpoint",
        "fast, slow, faulty, fail or throttled (this server's practice targets), or a whole URL; fast if absent.",
    ),
    ("queue", "The queue's name; the first queue if absent."),
    ("pool", "The pool's code; the default pool if absent."),
    (
        "messageGroupMode",
        "unique (msg-0, msg-1, …), 1of8 (group-0 to group-7) or single (single-group); unique if absent.",
    ),
];

/// Every route.
#[rustfmt::skip]
pub const ROUTES: [Route; 42] = {
    use {Access::*, Method::*};
    [
        route(Get,    "/",                               Open,   Job::Page,   "The dashboard."),
        route(Get,    "/app.js",                         Open,   Job::Script, "The dashboard's script."),
        route(Get,    "/chart.js",                       Open,   Job::Charts, "The dashboard's charts."),
        route(Get,    "/parts.js",                       Open,   Job::Parts,  "The dashboard's small parts."),
        route(Get,    "/style.css",                      Open,   Job::Style,  "The dashboard's style."),

        route(Get,    "/health",                         Open,   Job::Health, "Live and ready, with reasons; 503 if not."),
        route(Get,    "/_health",                        Open,   Job::Health, "The same."),
        route(Get,    "/health/live",                    Open,   Job::Live,   "The process answers and its view is fresh; 503 if not."),
        route(Get,    "/health/ready",                   Open,   Job::Ready,  "There is progress, so it may be sent traffic; 503 with reasons if not."),
        route(Get,    "/metrics",                        Scrape, Job::Metrics, "Metrics as Prometheus text."),
        route(Get,    "/_metrics",                       Scrape, Job::Metrics, "The same."),
        route(Get,    "/api/openapi.json",               Read,   Job::OpenApi, "This document."),

        asked(Get,    "/api/view",                       Read,   Job::View,   "Everything at a glance.",
            &[("since", "Only the history after this, in seconds since 1970.")]),
        route(Get,    "/api/config",                     Read,   Job::Config, "The config in effect; secrets are shown as ***."),
        route(Get,    "/api/pools",                      Read,   Job::Pools,  "Pools, by code."),
        route(Put,    "/api/pools/{code}",               Write,  Job::PoolReplace, "Sets a pool's concurrency and rate; without a rate there is no limit."),
        route(Patch,  "/api/pools/{code}",               Write,  Job::PoolChange,  "Changes a pool's concurrency or rate; a rate of null lifts the limit."),
        route(Get,    "/api/queues",                     Read,   Job::Queues, "Queues, by name."),
        route(Get,    "/api/targets",                    Read,   Job::Targets, "Targets with their breakers, busiest first."),
        asked(Get,    "/api/groups",                     Read,   Job::Groups, "The deepest or the oldest groups.",
            &[("by", "depth or age; depth if absent."), ("limit", "How many at most, up to 1000; 20 if absent.")]),
        asked(Get,    "/api/inflight",                   Read,   Job::Inflight, "Messages that are held.",
            &[("id", "The sender's id."), ("queue", "The queue."), ("pool", "The pool."), ("group", "The group."),
              ("target", "What the target's URL starts with."), ("limit", "How many at most, up to 1000; 100 if absent.")]),
        asked(Get,    "/api/explain",                    Read,   Job::Explain, "Where a message, a group or a target is, and what it waits for.",
            &[("what", "A message's id, a group or a target.")]),

        route(Get,    "/api/warnings",                   Read,   Job::Warnings, "Warnings of the last eight hours, the worst first."),
        route(Delete, "/api/warnings",                   Write,  Job::WarningsClear, "Removes all warnings."),
        route(Delete, "/api/warnings/{id}",              Write,  Job::WarningClear, "Removes a warning."),
        route(Post,   "/api/warnings/{id}/acknowledge",  Write,  Job::WarningAcknowledge, "Marks a warning as seen."),

        asked(Get,    "/api/dead-letters",               Read,   Job::DeadLetters, "Messages that were set aside, the latest first.", DEAD_LETTER_QUERY),
        asked(Delete, "/api/dead-letters",               Write,  Job::DeadLettersPurge, "Removes dead letters for good; takes a filter, or all=true.", DEAD_LETTER_QUERY),
        route(Post,   "/api/dead-letters/retry",         Write,  Job::DeadLettersRetry, "Sends dead letters on their way again; takes a filter, or {\"all\":true}."),
        route(Get,    "/api/dead-letters/{number}",      Read,   Job::DeadLetter, "One dead letter, with its body."),

        asked(Post,   "/api/messages",                   Write,  Job::Publish, "Publishes a message, or an array of them, in order; durable when it answers.",
            &[("queue", "The queue's name; the first queue if absent.")]),
        asked(Post,   "/api/seed/messages",              Write,  Job::Seed,   "Publishes made-up messages, to try things out.", SEED_QUERY),

        route(Post,   "/api/test/fast",                  Local,  Job::Fast,   "A practice target: 200 and {\"ack\":true} at once."),
        asked(Post,   "/api/test/slow",                  Local,  Job::Slow,   "A practice target: the same after a while.",
            &[("ms", "How long, up to 30000 ms; 250 if absent.")]),
        route(Post,   "/api/test/faulty",                Local,  Job::Faulty, "A practice target: three of ten calls get 500, in a fixed pattern."),
        route(Post,   "/api/test/fail",                  Local,  Job::Fail,   "A practice target: 500."),
        route(Post,   "/api/test/throttled",             Local,  Job::Throttled, "A practice target: 429 with Retry-After: 1."),
        route(Get,    "/api/test/fast",                  Local,  Job::Fast,   "The same for a browser."),
        route(Get,    "/api/test/faulty",                Local,  Job::Faulty, "The same for a browser."),
        route(Get,    "/api/test/fail",                  Local,  Job::Fail,   "The same for a browser."),
        route(Get,    "/api/test/throttled",             Local,  Job::Throttled, "The same for a browser."),
        route(Get,    "/api/test/hits",                  Read,   Job::Hits,   "How often each practice target was called."),
    ]
};

/// What the jobs share.
pub(super) struct Api<R> {
    pub(super) router: Arc<R>,
    pub(super) guard: Guard,
    pub(super) practice: Practice,
    pub(super) label_values_max: usize,
    /// Where this server is reached on this host.
    pub(super) address: SocketAddr,
}

/// The HTTP routes of the table.
pub(super) fn routes<R: Router>(api: &Arc<Api<R>>) -> axum::Router {
    let mut all = axum::Router::new();
    for route in &ROUTES {
        let api = Arc::clone(api);
        let job = move |params: RawPathParams, peer: ConnectInfo<SocketAddr>, request: Request<Body>| {
            let path = params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            answer(Arc::clone(&api), route, peer.0, Ask { path, request })
        };
        all = all.route(route.path, on(route.method.filter(), job));
    }
    all.fallback(|| async { sealed(nowhere().into_response()) })
        .method_not_allowed_fallback(|| async { sealed(wrong_method().into_response()) })
}

/// Guards first, then the job, then the headers that every answer has.
async fn answer<R: Router>(api: Arc<Api<R>>, route: &'static Route, peer: SocketAddr, ask: Ask) -> Response {
    let (uri, headers) = (ask.request.uri(), ask.request.headers());
    let caller = Caller { address: peer.ip(), uri, headers, now_ms: now_unix_ms() };
    let answered = match api.guard.check(route.access, caller) {
        Err(refusal) => Err(refusal),
        Ok(()) => match tokio::time::timeout(REQUEST_TIME_MAX, run(&api, route.job, ask)).await {
            Ok(answered) => answered,
            Err(_) => Err(Refusal::new(
                StatusCode::REQUEST_TIMEOUT,
                "TOO_SLOW",
                format!("not done within {} s", REQUEST_TIME_MAX.as_secs()),
            )),
        },
    };
    sealed(answered.unwrap_or_else(IntoResponse::into_response))
}

async fn run<R: Router>(api: &Api<R>, job: Job, ask: Ask) -> Answer {
    match job {
        Job::Page => Ok(dashboard::page()),
        Job::Script => Ok(dashboard::script()),
        Job::Charts => Ok(dashboard::charts()),
        Job::Parts => Ok(dashboard::parts()),
        Job::Style => Ok(dashboard::style()),
        Job::Health => Ok(health::health(api)),
        Job::Live => Ok(health::live(api)),
        Job::Ready => Ok(health::ready(api)),
        Job::Metrics => Ok(look::metrics(api)),
        Job::OpenApi => Ok(openapi::answer()),
        Job::View => look::view(api, &ask),
        Job::Config => Ok(look::config(api)),
        Job::Pools => Ok(look::pools(api)),
        Job::PoolReplace => pools::replace(api, ask).await,
        Job::PoolChange => pools::change(api, ask).await,
        Job::Queues => Ok(look::queues(api)),
        Job::Targets => Ok(look::targets(api)),
        Job::Groups => look::groups(api, ask).await,
        Job::Inflight => look::inflight(api, ask).await,
        Job::Explain => look::explain(api, ask).await,
        Job::Warnings => Ok(warnings::list(api)),
        Job::WarningAcknowledge => warnings::acknowledge(api, &ask),
        Job::WarningClear => warnings::clear(api, &ask),
        Job::WarningsClear => Ok(warnings::clear_all(api)),
        Job::DeadLetters => dead_letters::list(api, ask).await,
        Job::DeadLetter => dead_letters::one(api, ask).await,
        Job::DeadLettersRetry => dead_letters::retry(api, ask).await,
        Job::DeadLettersPurge => dead_letters::purge(api, ask).await,
        Job::Publish => messages::publish(api, ask).await,
        Job::Seed => seed::answer(api, ask).await,
        Job::Fast | Job::Slow | Job::Faulty | Job::Fail | Job::Throttled => {
            api.practice.answer(job, ask).await
        }
        Job::Hits => Ok(api.practice.hits()),
    }
}

fn nowhere() -> Refusal {
    Refusal::new(
        StatusCode::NOT_FOUND,
        "NO_SUCH_PATH",
        "nothing is here: GET /api/openapi.json lists the paths",
    )
}

fn wrong_method() -> Refusal {
    let message = "this path knows other methods: GET /api/openapi.json lists them";
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "WRONG_METHOD", message)
}

/// Nothing is cached, framed, sniffed, or loaded from elsewhere.
fn sealed(mut response: Response) -> Response {
    const HEADERS: [(&str, &str); 6] = [
        (
            "content-security-policy",
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
    ];
    let headers: &mut HeaderMap = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Now, in milliseconds since 1970.
pub(super) fn now_unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
