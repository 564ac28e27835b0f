//! The control loop: one task that owns the running topology and changes it; looks at the engine every
//! second; runs the scheduled work of the router document; ends in its four steps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shards::clock::Clock;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at};
use tracing::{error, info, warn};

use super::audit::{Auditor, leak};
use super::console::{Console, Order, changed};
use super::consumers::Consumers;
use super::notices::{self, Said};
use super::signals::Signals;
use super::viewing::{Gallery, Taken, pool_code};
use crate::admin::{PoolChange, RouterError};
use crate::config::Settings;
use crate::ingress::{HandleError, IngressSnapshot};
use crate::sync::diff::{Changes, diff};
use crate::sync::fetch::{FetchError, Fetched};
use crate::telemetry::warnings::{Severity, WarningCode};
use crate::topology::{PoolEntry, QueueEntry, Topology};
use crate::view::{DeadLetterFilter, State, View};

/// How often the engine is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The router document's schedule.
const LEAKS_EVERY: Duration = Duration::from_secs(30);
/// Looks without an answer, ten seconds each, after which the engine counts as gone.
const LOOKS_FAILED_MAX: u32 = 2;
/// How often dead letters are counted.
const LETTERS_EVERY: Duration = Duration::from_secs(5);

/// Why the loop ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Asked to.
    Signal(&'static str),
    /// The first config sync failed.
    NoConfig(String),
    /// The engine is gone.
    EngineGone(String),
}

/// The loop's state.
pub(super) struct Control {
    pub(super) settings: Settings,
    /// Reads the settings again.
    pub(super) reload: Box<dyn Fn() -> Result<Settings, String>>,
    pub(super) console: Arc<Console>,
    pub(super) consumers: Consumers,
    pub(super) orders: flume::Receiver<Order>,
    /// What is the same in every view.
    pub(super) frame: View,
    /// A config sync is under way.
    pub(super) is_syncing: bool,
    pub(super) configured: Topology,
    pub(super) running: Topology,
    pub(super) overrides: BTreeMap<String, PoolChange>,
    pub(super) gallery: Gallery,
    pub(super) auditor: Auditor,
    pub(super) last: IngressSnapshot,
    /// Looks in a row that had no answer.
    pub(super) looks_failed: u32,
}

/// What a fetch brought.
pub(super) type Synced = Result<Fetched, FetchError>;

impl Control {
    /// Runs until the process is to end.
    pub(super) async fn run(&mut self, signals: &mut Signals) -> End {
        // Unbounded: a task that had to wait for room would hold up this very loop.
        let (synced, sync_results) = flume::unbounded::<Synced>();
        let sync_every = self.settings.sync.interval;
        let mut sync_at = match signals.end.or(self.begin()).await {
            Ok(at) => at,
            Err(end) => return end,
        };
        let mut looks = ticker(LOOK_EVERY, Duration::ZERO);
        let mut health = ticker(self.settings.health.interval, self.settings.health.interval);
        let mut leaks = ticker(LEAKS_EVERY, LEAKS_EVERY);
        let mut letters = ticker(LETTERS_EVERY, Duration::ZERO);
        loop {
            // What may take long is done beside the signals: a queue that is slow to open holds up no end.
            let ended = tokio::select! {
                name = signals.end.next() => return End::Signal(name),
                _ = signals.hang_up.recv() => signals.end.or(self.on_hang_up(&synced)).await,
                _ = looks.tick() => signals.end.or(self.look()).await.and_then(|looked| looked),
                _ = health.tick() => signals.end.or(self.check_health()).await,
                _ = leaks.tick() => {
                    self.check_leaks();
                    Ok(())
                }
                _ = letters.tick() => signals.end.or(self.count_letters()).await,
                Ok(order) = self.orders.recv_async() => {
                    self.on_order(order);
                    Ok(())
                }
                () = until(sync_at) => {
                    sync_at = None;
                    self.start_sync(&synced);
                    Ok(())
                }
                Ok(result) = sync_results.recv_async() => {
                    sync_at = Some(Instant::now() + sync_every);
                    signals.end.or(self.on_synced(result)).await.and_then(|synced| synced)
                }
            };
            if let Err(end) = ended {
                return end;
            }
        }
    }

    /// Starts with the local topology, or says when to fetch the platform's.
    async fn begin(&mut self) -> Option<Instant> {
        if !self.settings.enabled {
            info!("message-router.enabled is false: nothing is consumed");
            self.frame.state = State::Disabled;
            return None;
        }
        if self.settings.sync.url.is_some() {
            let first = self.settings.sync.first_delay;
            info!(delay_s = first.as_secs_f64(), "first config sync");
            return Some(Instant::now() + first);
        }
        let topology = self.settings.topology.clone();
        let changes = diff(&Topology::default(), &topology);
        self.configured = topology;
        self.apply(changes).await;
        self.frame.state = State::Running;
        None
    }

    /// What is configured, with what an operator changed since.
    pub(super) fn wanted(&self) -> Topology {
        let mut wanted = self.configured.clone();
        for pool in &mut wanted.pools {
            if let Some(&change) = self.overrides.get(&pool.code) {
                pool.spec = changed(pool.spec, change);
            }
        }
        wanted
    }

    pub(super) async fn apply(&mut self, changes: Changes) {
        for line in changes.lines() {
            info!("{line}");
        }
        self.check_pool_count();
        let handle = self.console.handle.clone();
        for PoolEntry { code, spec } in &changes.pools_set {
            let _ = handle.set_pool(code, *spec);
        }
        for queue in changes.queues_added {
            let name = queue.name.clone();
            if let Err(error) = self.consumers.add(queue).await {
                let text = format!("queue {name} can't be consumed: {error}; it is tried again every minute");
                self.say(WarningCode::QueueInvalid, Severity::Error, &name, &text);
            }
        }
        let mut failed: Vec<QueueEntry> = Vec::new();
        for queue in changes.queues_rebuilt {
            let name = queue.name.clone();
            if let Err(error) = self.consumers.rebuild(queue).await {
                let text = format!(
                    "queue {name} can't be consumed as configured now: {error}; its old consumer goes on"
                );
                self.say(WarningCode::QueueInvalid, Severity::Error, &name, &text);
                failed.extend(self.running.queues.iter().find(|old| old.name == name).cloned());
            }
        }
        for name in &changes.queues_removed {
            self.consumers.remove(name);
        }
        for code in &changes.pools_removed {
            let _ = handle.send(crate::ingress::Command::RemovePool { code: code.clone() });
            self.overrides.remove(code);
        }
        self.running = self.wanted();
        // What still runs as it was is different from what is wanted, and is tried again.
        for old in failed {
            if let Some(queue) = self.running.queues.iter_mut().find(|queue| queue.name == old.name) {
                *queue = old;
            }
        }
        *self.console.writers.write() = self.consumers.writers();
    }

    fn check_pool_count(&self) {
        let (count, warn_at) = (self.wanted().pools.len(), self.settings.pools_warn_at);
        if count >= warn_at && self.settings.sync.url.is_none() {
            let text = format!(
                "{count} pools; {} is the most, and the warning starts at {warn_at}",
                self.settings.pools_max
            );
            self.say(WarningCode::PoolLimit, Severity::Warn, "config", &text);
        }
    }

    fn on_order(&mut self, order: Order) {
        match order {
            Order::SetPool { code, change, reply } => {
                let _ = reply.send(self.set_pool(code, change));
            }
        }
    }

    fn set_pool(&mut self, code: String, change: PoolChange) -> Result<(), RouterError> {
        let known = self.running.pools.iter_mut().find(|pool| pool.code == code);
        let spec = match known {
            Some(pool) => {
                pool.spec = changed(pool.spec, change);
                pool.spec
            }
            // Made on demand for messages without a known pool.
            None => match self.last.pools.iter().find(|pool| pool.code == code) {
                Some(pool) => changed(pool.spec, change),
                None => return Err(RouterError::PoolUnknown(code)),
            },
        };
        info!(pool = %code, concurrency = spec.concurrency, rate = ?spec.rate_per_minute, "pool changed by an operator");
        self.console.handle.set_pool(&code, spec).map_err(|error| RouterError::Failed(error.to_string()))?;
        let earlier = self.overrides.get(&code).copied();
        self.overrides.insert(code, merged(earlier, change));
        Ok(())
    }

    async fn look(&mut self) -> Result<(), End> {
        let mut look = match self.console.handle.look().await {
            Ok(look) => look,
            // A pause of the whole process looks the same once; an ingress that is stuck stays so.
            Err(HandleError::Stuck) if self.looks_failed < LOOKS_FAILED_MAX => {
                self.looks_failed += 1;
                warn!("the ingress did not answer in time");
                return Ok(());
            }
            Err(error) => return Err(End::EngineGone(error.to_string())),
        };
        self.looks_failed = 0;
        let unix_ms = unix_ms();
        let taken = Taken { at: Clock.now(), unix_ms };
        let (warned, noticed) = (std::mem::take(&mut look.warnings), std::mem::take(&mut look.notices));
        let queue = |id| {
            let source = look.sources.iter().find(|source| source.id == id);
            source.map(|source| source.queue.clone()).unwrap_or_default()
        };
        let mut said: Vec<Said> = warned.iter().map(|warning| notices::of_desk(warning, queue)).collect();
        said.extend(noticed.iter().filter_map(|notice| notices::of_shard(notice, |id| pool_code(&look, id))));
        said.extend(self.of_sources(&look));
        self.last = look.clone();
        let mut view = self.gallery.show(look, &self.consumers.entries(), taken, self.frame.clone());
        said.extend(self.auditor.look(&view, &self.last, taken.at).iter().map(notices::of_audit));
        for Said { code, severity, source, message } in said {
            self.say(code, severity, &source, &message);
        }
        view.warnings = self.console.warnings.unacknowledged(unix_ms);
        view.not_ready = self.not_ready(&view);
        view.ready = view.not_ready.is_empty();
        *self.console.view.write() = Arc::new(view);
        Ok(())
    }

    /// Messages that could not be read, or not be set aside, since the last look.
    fn of_sources(&self, look: &IngressSnapshot) -> Vec<Said> {
        let mut said = Vec::new();
        for source in &look.sources {
            let before = self.last.sources.iter().find(|other| other.id == source.id);
            let before = before.map(|before| before.counts).unwrap_or_default();
            let queue = &source.queue;
            if source.counts.unreadable > before.unreadable {
                said.push(Said {
                    code: WarningCode::Processing,
                    severity: Severity::Warn,
                    source: queue.clone(),
                    message: format!("queue {queue} had messages that can't be read: they are set aside, `corelane dlq list --reason MALFORMED` shows why"),
                });
            }
            if source.counts.not_set_aside > before.not_set_aside {
                said.push(Said {
                    code: WarningCode::DeadLetterFailed,
                    severity: Severity::Critical,
                    source: queue.clone(),
                    message: format!("messages of queue {queue} could not be set aside and went back: look at the dead-letter store's disk"),
                });
            }
        }
        said
    }

    fn not_ready(&self, view: &View) -> Vec<String> {
        let mut why: Vec<String> = match view.state {
            State::Starting => vec!["the first config sync is not done".into()],
            State::Draining => vec!["the router is ending".into()],
            State::Running | State::Disabled => Vec::new(),
        };
        let unpolled = view.queues.iter().filter(|queue| !queue.healthy);
        why.extend(unpolled.map(|queue| format!("queue {} is not polled", queue.name)));
        why.extend(self.auditor.stalled().map(|pool| format!("pool {pool} has messages and finishes none")));
        why
    }

    async fn check_health(&mut self) {
        if self.frame.state != State::Running {
            return;
        }
        let missing = diff(&self.running, &self.wanted());
        if !missing.is_empty() {
            self.apply(missing).await;
        }
        self.consumers.let_go(&self.last);
        let age_max = self.settings.health.poll_age_max;
        for queue in self.consumers.unhealthy(&self.last, age_max) {
            let name = queue.name.clone();
            let text = format!("queue {name} was not polled for {age_max:?}: its consumer is restarted");
            self.say(WarningCode::ConsumerRestart, Severity::Warn, &name, &text);
            if let Err(error) = self.consumers.rebuild(queue).await {
                let text = format!("the consumer of queue {name} could not be restarted: {error}");
                self.say(WarningCode::ConsumerRestartFailed, Severity::Critical, &name, &text);
            }
        }
        *self.console.writers.write() = self.consumers.writers();
    }

    fn check_leaks(&self) {
        if let Some(leak) = leak(&self.last) {
            let Said { code, severity, source, message } = notices::of_audit(&leak);
            self.say(code, severity, &source, &message);
        }
    }

    async fn count_letters(&mut self) {
        match self.console.letters.count(DeadLetterFilter::default()).await {
            Ok(count) => self.frame.dead_letters = count,
            Err(error) => {
                let text = format!("the dead-letter store can't be read: {error}");
                self.say(WarningCode::DeadLetterFailed, Severity::Critical, "dead letters", &text);
            }
        }
    }

    pub(super) fn say(&self, code: WarningCode, severity: Severity, source: &str, message: &str) {
        match severity {
            Severity::Info => info!(code = code.name(), source, "{message}"),
            Severity::Warn => warn!(code = code.name(), source, "{message}"),
            Severity::Error | Severity::Critical => error!(code = code.name(), source, "{message}"),
        }
        self.console.warnings.add(code, severity, source, message, unix_ms());
    }
}

/// What an operator changed earlier, and what now.
fn merged(earlier: Option<PoolChange>, now: PoolChange) -> PoolChange {
    use crate::admin::RateChange;
    let Some(earlier) = earlier else { return now };
    PoolChange {
        concurrency: now.concurrency.or(earlier.concurrency),
        rate: if now.rate == RateChange::Keep { earlier.rate } else { now.rate },
    }
}

fn ticker(every: Duration, first: Duration) -> tokio::time::Interval {
    let mut ticker =
        if first.is_zero() { interval(every) } else { interval_at(Instant::now() + first, every) };
    ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticker
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Milliseconds since 1970.
pub(super) fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl Control {
    /// Lets clients see that the router is ending, though the engine is looked at no more.
    pub(super) fn show_draining(&self) {
        let mut view = View::clone(&self.console.view.read());
        view.state = State::Draining;
        view.ready = false;
        view.not_ready = vec!["the router is ending".into()];
        *self.console.view.write() = Arc::new(view);
    }
}
