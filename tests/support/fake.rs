//! A router that is not there: canned but moving figures behind the admin API's port, and the API served over it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use corelane::admin::{
    Admin, DeadLetters, Explanation, Fact, GroupsBy, InflightFilter, Page, PoolChange, Publish, Published,
    RateChange, Router, RouterError, Settings,
};
use corelane::telemetry::warnings::{Severity, WarningCode, Warnings};
use corelane::view::{
    BreakerState, Buckets, DeadLetterFilter, DeadLetterView, GroupView, MessageView, Percentiles, PoolView,
    QueueView, Sample, ShardView, State, TargetView, View,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// A group name that would run if it were ever taken for markup.
pub(crate) const HOSTILE: &str =
    "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>";
/// Seconds of history.
const HISTORY_S: u64 = 300;

/// What a test may set and see.
pub(crate) struct Fake {
    pub(crate) warnings: Warnings,
    pub(crate) pools: Mutex<Vec<PoolView>>,
    pub(crate) published: Mutex<Vec<(String, Publish)>>,
    pub(crate) dead_letters: Mutex<Vec<DeadLetterView>>,
    pub(crate) retried: Mutex<Vec<DeadLetterFilter>>,
    pub(crate) not_ready: Mutex<Vec<String>>,
    /// How old the view claims to be.
    pub(crate) age_ms: Mutex<u64>,
    /// What every change answers with instead.
    pub(crate) fails: Mutex<Option<RouterError>>,
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_millis()).expect("before the year 500000000")
}

/// Moves gently between 0 and 1, differently for each `phase`.
fn wave(at_s: f64, phase: f64) -> f64 {
    let slow = (at_s / 37.0 + phase).sin();
    let fast = (at_s / 5.3 + phase * 2.0).sin();
    (0.5 + 0.35 * slow + 0.15 * fast).clamp(0.0, 1.0)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "made-up figures, never negative"
)]
fn scaled(share: f64, to: f64) -> u64 {
    (share * to) as u64
}

#[expect(clippy::cast_precision_loss, reason = "made-up figures")]
fn real(value: u64) -> f64 {
    value as f64
}

impl Fake {
    pub(crate) fn new() -> Arc<Self> {
        let pool = |code: &str, concurrency, rate| PoolView {
            code: code.into(),
            concurrency,
            rate_limit_per_minute: rate,
            capacity: u32::from(concurrency) * 20,
            ..PoolView::default()
        };
        let fake = Self {
            warnings: Warnings::new(),
            pools: Mutex::new(vec![
                pool("BILLING", 20, Some(6_000)),
                pool("DEFAULT-POOL", 20, None),
                pool("ORDERS", 200, None),
                pool("WEBHOOKS", 64, Some(600)),
            ]),
            published: Mutex::default(),
            dead_letters: Mutex::new((1..=12).map(dead_letter).collect()),
            retried: Mutex::default(),
            not_ready: Mutex::default(),
            age_ms: Mutex::new(0),
            fails: Mutex::new(None),
        };
        let now = now_ms();
        let rows = [
            (
                WarningCode::BreakerTripped,
                "https://hooks.example:443",
                "5 of the last 10 calls got no answer; calls wait 5 s",
            ),
            (
                WarningCode::ConsumerRestartFailed,
                "orders-eu",
                "the broker refused the connection: wrong password",
            ),
            (WarningCode::QueueFull, "WEBHOOKS", "12 messages were given back: the pool holds 1,280 already"),
            (WarningCode::Routing, "LEGACY", "no pool has this code"),
        ];
        for (code, source, message) in rows {
            fake.warnings.add(code, code.severity(), source, message, now - 60_000);
        }
        fake.warnings.add(WarningCode::QueueFull, Severity::Warn, "WEBHOOKS", rows[2].2, now);
        Arc::new(fake)
    }

    fn refused(&self) -> Result<(), RouterError> {
        self.fails.lock().clone().map_or(Ok(()), Err)
    }

    fn history(now_s: u64) -> Vec<Sample> {
        let sample = |unix_s| {
            let at = real(unix_s);
            Sample {
                unix_s,
                delivered_per_s: 18_000.0 + 14_000.0 * wave(at, 0.0),
                failed_per_s: 160.0 * wave(at, 4.0).powi(3),
                inflight: 900 + scaled(wave(at, 1.0), 2_400.0),
                p50_us: 4_000 + scaled(wave(at, 2.0), 3_000.0),
                p99_us: 21_000 + scaled(wave(at, 3.0).powi(4), 160_000.0),
            }
        };
        (now_s - HISTORY_S..=now_s).map(sample).collect()
    }

    fn moving_pools(&self, at_s: f64) -> Vec<PoolView> {
        let mut pools = self.pools.lock().clone();
        for (number, pool) in (0_u32..).zip(&mut pools) {
            let phase = f64::from(number) * 1.7;
            pool.active = scaled(wave(at_s, phase), f64::from(pool.concurrency));
            pool.queued = scaled(wave(at_s, phase + 1.0).powi(2), f64::from(pool.capacity));
            pool.groups = pool.queued / 3 + pool.active;
            pool.delivered_per_s = real(pool.active) * 90.0;
            pool.delivered_total = scaled(at_s, 10.0);
            pool.rejected_total = BTreeMap::from([("POOL_FULL".into(), 12)]);
            pool.latency = Buckets { counts: vec![10; 18], sum_us: 1_000_000 };
        }
        pools
    }
}

fn dead_letter(number: i64) -> DeadLetterView {
    let (reason, detail, status) = match number % 3 {
        0 => ("MALFORMED", "not a message: expected value at line 1 column 1", 0),
        1 => ("REFUSED", "the target answered 404 Not Found", 404),
        _ => ("EXHAUSTED", "10 deliveries, the last one: 503 Service Unavailable", 503),
    };
    DeadLetterView {
        number,
        id: format!("0HZXEQ5Y8JY5Z{number:03}"),
        queue: "orders-eu".into(),
        pool: if number % 2 == 0 { "ORDERS".into() } else { "WEBHOOKS".into() },
        group: format!("customer-{}", number * 7),
        target: "https://hooks.example/v1/orders".into(),
        reason: reason.into(),
        detail: detail.into(),
        status,
        attempts: 10,
        at_unix_s: now_ms() / 1_000 - number.unsigned_abs() * 97,
        body: None,
    }
}

fn is_meant(filter: &DeadLetterFilter, letter: &DeadLetterView) -> bool {
    let same = |wanted: &Option<String>, has: &str| wanted.as_deref().is_none_or(|wanted| wanted == has);
    (filter.numbers.is_empty() || filter.numbers.contains(&letter.number))
        && same(&filter.pool, &letter.pool)
        && same(&filter.queue, &letter.queue)
        && same(&filter.reason, &letter.reason)
        && same(&filter.id, &letter.id)
        && filter.status.is_none_or(|status| status == letter.status)
}

impl Router for Fake {
    fn view(&self) -> Arc<View> {
        let now = now_ms();
        let (now_s, at) = (now / 1_000, real(now) / 1_000.0);
        let history = Self::history(now_s);
        let latest = *history.last().expect("never empty");
        let target = |origin: &str, breaker, phase: f64| TargetView {
            origin: origin.into(),
            breaker,
            retry_in_ms: (breaker == BreakerState::Tripped).then_some(3_200),
            connections: 40 + scaled(wave(at, phase), 200.0),
            active: scaled(wave(at, phase), 180.0),
            calls_total: now_s % 1_000_000,
            failures_total: 37,
            latency: Buckets { counts: vec![5; 18], sum_us: 90_000 },
        };
        let queue = |name: &str, broker: &str, healthy, error: Option<&str>| QueueView {
            name: name.into(),
            uri: format!("{broker}://***@broker.example/{name}"),
            broker: broker.into(),
            ordering: "STRICT".into(),
            healthy,
            since_poll_s: if healthy { 0.4 } else { 95.0 },
            error: error.map(Into::into),
            depth: Some(scaled(wave(at, 5.0), 90_000.0)),
            received_total: now_s,
            acked_total: now_s - 900,
            ..QueueView::default()
        };
        let shard = |number: u8| ShardView {
            shard: number,
            core: usize::from(number) + 1,
            busy_ratio: wave(at, f64::from(number)) * 0.9,
            ring_depth: scaled(wave(at, f64::from(number)), 40.0),
            groups: 700,
            queued: 1_200,
            active: 90,
            connections: 130,
            calls_total: now_s * 10,
            ..ShardView::default()
        };
        let not_ready = self.not_ready.lock().clone();
        Arc::new(View {
            version: env!("CARGO_PKG_VERSION").into(),
            started_unix_s: now_s - 93_784,
            at_unix_ms: now - *self.age_ms.lock(),
            state: State::Running,
            ready: not_ready.is_empty(),
            not_ready,
            io: "uring".into(),
            delivered_per_s: latest.delivered_per_s,
            inflight: latest.inflight,
            inflight_bytes: latest.inflight * 900,
            memory_budget: 256 << 20,
            owed: 3,
            lease_slack_s: Some(12.0 + 8.0 * wave(at, 2.0)),
            default_pool_used_total: 41,
            dead_letters_total: BTreeMap::from([("REFUSED".into(), 7), ("EXHAUSTED".into(), 5)]),
            dead_letters: self.dead_letters.lock().len() as u64,
            warnings: self.warnings.unacknowledged(now),
            latency: Percentiles {
                p50_us: latest.p50_us,
                p95_us: latest.p50_us * 3,
                p99_us: latest.p99_us,
                p999_us: latest.p99_us * 2,
            },
            shards: (0..3).map(shard).collect(),
            pools: self.moving_pools(at),
            queues: vec![
                queue("orders-eu", "nats", true, None),
                queue("orders-us", "sqs", true, None),
                queue("legacy", "activemq", false, Some("connection refused")),
            ],
            targets: vec![
                target("http://127.0.0.1:9000", BreakerState::Admitting, 0.0),
                target("https://hooks.example:443", BreakerState::Tripped, 1.0),
                target("https://erp.example:8443", BreakerState::Probing, 2.0),
            ],
            history,
        })
    }

    fn warnings(&self) -> &Warnings {
        &self.warnings
    }

    fn config(&self) -> serde_json::Value {
        serde_json::json!({ "admin": { "listen": "127.0.0.1:8080", "token": "***" } })
    }

    async fn set_pool(&self, code: &str, change: PoolChange) -> Result<(), RouterError> {
        self.refused()?;
        let mut pools = self.pools.lock();
        let pool = pools.iter_mut().find(|pool| pool.code == code);
        let pool = pool.ok_or_else(|| RouterError::PoolUnknown(code.into()))?;
        if let Some(concurrency) = change.concurrency {
            pool.concurrency = concurrency.get();
        }
        match change.rate {
            RateChange::Keep => {}
            RateChange::Lift => pool.rate_limit_per_minute = None,
            RateChange::Set(rate) => pool.rate_limit_per_minute = Some(rate.get()),
        }
        Ok(())
    }

    async fn publish(&self, queue: Option<&str>, messages: Vec<Publish>) -> Result<Published, RouterError> {
        self.refused()?;
        let queue = queue.unwrap_or("orders-eu").to_owned();
        if !["orders-eu", "orders-us", "high"].contains(&queue.as_str()) {
            return Err(RouterError::QueueUnknown(queue));
        }
        let count = messages.len() as u64;
        self.published.lock().extend(messages.into_iter().map(|message| (queue.clone(), message)));
        Ok(Published { queue, count })
    }

    async fn groups(&self, by: GroupsBy, max: usize) -> Result<Vec<GroupView>, RouterError> {
        self.refused()?;
        let group = |number: u32| GroupView {
            pool: "ORDERS".into(),
            group: if number == 1 { HOSTILE.into() } else { format!("customer-{number}") },
            shard: u8::try_from(number % 3).expect("below 3"),
            depth: u64::from(200 / (number + 1)),
            age_s: f64::from(number) * 1.5 + 0.2,
            head: format!("0HZXEQ5Y8JY5Z{number:03}"),
            attempts: u16::try_from(number % 4).expect("below 4"),
            waits_for: ["its call", "a permit of the pool", "its backoff", "the breaker of its target"]
                [number as usize % 4]
                .into(),
            resumes_in_s: (number % 4 == 2).then_some(21.5),
        };
        let mut groups: Vec<GroupView> = (0..12).map(group).collect();
        if by == GroupsBy::Age {
            groups.reverse();
        }
        groups.truncate(max);
        Ok(groups)
    }

    async fn inflight(&self, filter: InflightFilter, max: usize) -> Result<Vec<MessageView>, RouterError> {
        self.refused()?;
        let message = |number: u32| MessageView {
            id: format!("m-{number}"),
            pool: "ORDERS".into(),
            group: format!("customer-{number}"),
            waits_for: "its call".into(),
            ..MessageView::default()
        };
        let is_meant = |message: &MessageView| filter.id.as_ref().is_none_or(|id| *id == message.id);
        Ok((0..50).map(message).filter(is_meant).take(max).collect())
    }

    async fn explain(&self, what: &str) -> Result<Explanation, RouterError> {
        self.refused()?;
        if what == "nobody" {
            return Err(RouterError::Unknown(what.into()));
        }
        Ok(Explanation {
            what: what.into(),
            kind: "GROUP".into(),
            summary: format!(
                "Group {what} waits for the breaker of https://hooks.example:443; it goes on in 3 s."
            ),
            facts: vec![
                Fact { name: "pool".into(), value: "ORDERS (20 of 20 calls in flight)".into() },
                Fact { name: "messages".into(), value: "17, the oldest 12 s old".into() },
            ],
            ..Explanation::default()
        })
    }

    async fn dead_letters(&self, filter: DeadLetterFilter, page: Page) -> Result<DeadLetters, RouterError> {
        self.refused()?;
        let all = self.dead_letters.lock();
        let meant: Vec<&DeadLetterView> = all.iter().filter(|letter| is_meant(&filter, letter)).collect();
        let skip = usize::try_from(page.offset).unwrap_or(usize::MAX);
        let items =
            meant.iter().skip(skip).take(page.limit as usize).map(|letter| (*letter).clone()).collect();
        Ok(DeadLetters { total: meant.len() as u64, items })
    }

    async fn dead_letter(&self, number: i64) -> Result<DeadLetterView, RouterError> {
        let all = self.dead_letters.lock();
        let letter = all.iter().find(|letter| letter.number == number).cloned();
        let letter = letter.ok_or(RouterError::DeadLetterUnknown(number))?;
        Ok(DeadLetterView { body: Some(format!("{{\"messageId\":\"{}\"}}", letter.id)), ..letter })
    }

    async fn retry_dead_letters(&self, filter: DeadLetterFilter) -> Result<u64, RouterError> {
        self.refused()?;
        let count = self.purge_dead_letters(filter.clone()).await?;
        self.retried.lock().push(filter);
        Ok(count)
    }

    async fn purge_dead_letters(&self, filter: DeadLetterFilter) -> Result<u64, RouterError> {
        self.refused()?;
        let mut all = self.dead_letters.lock();
        let before = all.len();
        all.retain(|letter| !is_meant(&filter, letter));
        Ok((before - all.len()) as u64)
    }
}

/// The admin API over a router, on a thread of its own; both end with it.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    pub(crate) fake: Arc<Fake>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Serves on a free loopback port.
pub(crate) fn serve(settings: Settings) -> Served {
    let fake = Fake::new();
    let router = Arc::clone(&fake);
    let (tell, told) = std::sync::mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let settings = Settings { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..settings };
            let admin = Admin::bind(settings).await.expect("a free port");
            tell.send(admin.address()).expect("the test waits for it");
            admin.serve(router, async { drop(stopped.await) }).await;
        });
    });
    let address = told.recv_timeout(Duration::from_secs(10)).expect("it starts");
    Served { address, fake, stop: Some(stop), thread: Some(thread) }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
