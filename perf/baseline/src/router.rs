//! The router in a nutshell: queues, tasks, a semaphore.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use hdrhistogram::Histogram;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Client, Url};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc};

const WARM_UP: Duration = Duration::from_secs(1);
/// Messages buffered per group: enough that a group never waits for its next one.
const BUFFERED_MAX: usize = 4;
/// Longest latency told apart from longer ones: a minute.
const LATENCY_US_MAX: u64 = 60_000_000;
/// Histograms the tasks share out among them, so that they rarely meet at a lock.
const METERS: usize = 64;
const BODY: &[u8] = br#"{"messageId":"01J0000000000000000000000","n":12345}"#;

/// What to do.
pub(crate) struct Job {
    pub(crate) url: Url,
    pub(crate) groups: u32,
    pub(crate) concurrency: u32,
    pub(crate) window: Duration,
}

/// A message of the in-memory queue.
struct Message {
    number: u64,
    body: Bytes,
}

struct Shared {
    client: Client,
    url: Url,
    permits: Semaphore,
    acknowledged: AtomicU64,
    failed: AtomicU64,
    measures: AtomicBool,
    meters: Vec<Mutex<Histogram<u64>>>,
}

/// Routes for the warm-up and the window; returns the figures of the window.
pub(crate) async fn drive(job: Job) -> anyhow::Result<Value> {
    let shared = Arc::new(Shared {
        client: client(&job)?,
        url: job.url,
        permits: Semaphore::new(usize::try_from(job.concurrency).context("read the concurrency")?),
        acknowledged: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        measures: AtomicBool::new(false),
        meters: (0..METERS)
            .map(|_| Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).map(Mutex::new))
            .collect::<Result<_, _>>()
            .context("make the histograms")?,
    });
    let mut queues = Vec::new();
    for group in 0..job.groups {
        let (queue, messages) = mpsc::channel(BUFFERED_MAX);
        tokio::spawn(route_group(Arc::clone(&shared), usize::try_from(group)? % METERS, messages));
        queues.push(queue);
    }
    // The source: it deals messages to the groups in turn and waits where a group's buffer is full.
    tokio::spawn(async move {
        let mut number = 0;
        loop {
            for queue in &queues {
                number += 1;
                if queue.send(Message { number, body: Bytes::from_static(BODY) }).await.is_err() {
                    return;
                }
            }
        }
    });

    tokio::time::sleep(WARM_UP).await;
    shared.measures.store(true, Ordering::Relaxed);
    let (start, cpu_start) = (Instant::now(), cpu_time());
    let before = shared.acknowledged.load(Ordering::Relaxed);
    tokio::time::sleep(job.window).await;
    let deliveries = shared.acknowledged.load(Ordering::Relaxed) - before;
    let (elapsed, cpu) = (start.elapsed(), cpu_time().saturating_sub(cpu_start));
    shared.measures.store(false, Ordering::Relaxed);
    shared.figures((job.groups, job.concurrency), deliveries, elapsed, cpu)
}

fn client(job: &Job) -> anyhow::Result<Client> {
    let mut headers = HeaderMap::new();
    let json = HeaderValue::from_static("application/json");
    headers.insert(CONTENT_TYPE, json.clone());
    headers.insert(ACCEPT, json);
    headers.insert(
        "traceparent",
        HeaderValue::from_static("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    );
    Client::builder()
        .default_headers(headers)
        .no_proxy()
        .tcp_nodelay(true)
        .pool_max_idle_per_host(usize::try_from(job.concurrency)?)
        .build()
        .context("build the client")
}

/// One group: its messages one after the other, in order.
async fn route_group(shared: Arc<Shared>, meter: usize, mut messages: mpsc::Receiver<Message>) {
    while let Some(message) = messages.recv().await {
        let Ok(_permit) = shared.permits.acquire().await else { return };
        let start = Instant::now();
        match shared.deliver(message).await {
            Ok(()) => {
                shared.acknowledged.fetch_add(1, Ordering::Relaxed);
                if shared.measures.load(Ordering::Relaxed) {
                    let took = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
                    let mut meter = shared.meters[meter].lock().unwrap_or_else(PoisonError::into_inner);
                    meter.saturating_record(took);
                }
            }
            Err(_) => {
                shared.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Shared {
    /// Posts a message; done when the answer is read and says 2xx.
    async fn deliver(&self, message: Message) -> reqwest::Result<()> {
        let answer = self
            .client
            .post(self.url.clone())
            .header("idempotency-key", format!("m-{:016x}", message.number))
            .header("corelane-attempt", HeaderValue::from_static("1"))
            .body(message.body)
            .send()
            .await?
            .error_for_status()?;
        answer.bytes().await.map(drop)
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for people: 53 bits are plenty")]
    fn figures(
        &self,
        (groups, concurrency): (u32, u32),
        deliveries: u64,
        elapsed: Duration,
        cpu: Duration,
    ) -> anyhow::Result<Value> {
        let mut latency_us: Histogram<u64> =
            Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).context("make a histogram")?;
        for meter in &self.meters {
            latency_us
                .add(&*meter.lock().unwrap_or_else(PoisonError::into_inner))
                .context("add up the histograms")?;
        }
        Ok(json!({
            "what": "baseline",
            "groups": groups,
            "concurrency": concurrency,
            "seconds": elapsed.as_secs_f64(),
            "deliveries": deliveries,
            "failed": self.failed.load(Ordering::Relaxed),
            "deliveries_per_s": deliveries as f64 / elapsed.as_secs_f64(),
            "cpu_us_per_delivery": cpu.as_secs_f64() * 1e6 / deliveries.max(1) as f64,
            "cpu_share": cpu.as_secs_f64() / elapsed.as_secs_f64(),
            "p50_us": latency_us.value_at_quantile(0.5),
            "p99_us": latency_us.value_at_quantile(0.99),
            "p999_us": latency_us.value_at_quantile(0.999),
            "rss_mb": rss_mb(),
        }))
    }
}

/// CPU time of this process, user and system.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Resident memory now, in MB; zero where /proc is missing.
fn rss_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().unwrap_or_default();
    kib / 1024.0
}
