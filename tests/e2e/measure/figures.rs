//! What was measured, as a line, a table and JSON.

use std::fmt::Write as _;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::{Value, json};

use super::shape::Shape;
use super::{Plain, Routed};

/// CPU time of all threads of a process, user and system.
pub(super) fn process_cpu(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let fields: Vec<&str> = text.rsplit(") ").next().expect("fields").split(' ').collect();
    of_ticks(fields[11..13].iter().map(|word| word.parse::<u64>().expect("ticks")).sum())
}

/// CPU time of all cores since the machine started, idling aside.
pub(super) fn machine_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/stat").expect("Linux has it");
    let line = text.lines().next().expect("the sum of all cores");
    let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    of_ticks(ticks.iter().take(8).sum::<u64>() - ticks[3] - ticks[4])
}

fn of_ticks(ticks: u64) -> Duration {
    Duration::from_millis(ticks * 1_000 / rustix::param::clock_ticks_per_second())
}

/// Keeps this thread on a core until it is dropped.
pub(super) struct Pinned(CpuSet);

/// Pins this thread.
pub(super) fn pin(core: usize) -> Pinned {
    let before = sched_getaffinity(None).expect("Linux has it");
    let mut one = CpuSet::new();
    one.set(core);
    sched_setaffinity(None, &one).expect("the core is there");
    Pinned(before)
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}

fn cores() -> f64 {
    std::thread::available_parallelism()
        .map_or(1.0, |count| f64::from(u32::try_from(count.get()).unwrap_or(1)))
}

/// The most memory that a process had.
pub(super) fn peak_mb(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux has it");
    let kb: f64 = line.trim().trim_end_matches(" kB").trim().parse().expect("a number");
    kb / 1_024.0
}

/// What the plain client reached.
struct Ceiling {
    per_s: f64,
    cpu_us: f64,
    rest_us: f64,
    /// What these cores could deliver if receiving, acking and the server's part cost as little as with the plain client,
    /// the sink what it costs, and making the call nothing at all.
    bound_per_s: f64,
}

/// One shape on one broker.
pub(super) struct Figure {
    kind: &'static str,
    version: String,
    shape: &'static str,
    messages: u64,
    per_s: f64,
    cpu_us: f64,
    sink_us: f64,
    /// The server and whatever else ran.
    rest_us: f64,
    /// Share of all cores.
    busy: f64,
    plain: Option<Ceiling>,
    took_s: f64,
    resident_mb: f64,
    deferred: f64,
    server: Value,
}

impl Figure {
    pub(super) fn new(
        kind: &'static str,
        version: String,
        shape: &Shape,
        plain: Option<Plain>,
        routed: Routed,
    ) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "rates need no more than 52 bits")]
        let messages = shape.messages as f64;
        let us = |cpu: Duration| cpu.as_secs_f64() * 1e6 / messages;
        Self {
            kind,
            version,
            shape: shape.name,
            messages: shape.messages,
            per_s: messages / routed.took.as_secs_f64(),
            cpu_us: us(routed.cpu),
            sink_us: us(routed.sink_cpu),
            rest_us: us(routed.machine_cpu.saturating_sub(routed.cpu + routed.sink_cpu)),
            busy: routed.machine_cpu.as_secs_f64() / (routed.took.as_secs_f64() * cores()),
            plain: plain.map(|plain| Ceiling {
                per_s: messages / plain.took.as_secs_f64(),
                cpu_us: us(plain.cpu),
                rest_us: us(plain.machine_cpu.saturating_sub(plain.cpu)),
                bound_per_s: cores() * 1e6 / us(plain.machine_cpu + routed.sink_cpu),
            }),
            took_s: routed.took.as_secs_f64(),
            resident_mb: routed.resident_mb,
            deferred: routed.deferred,
            server: routed.server,
        }
    }

    /// Our rate as a share of the plain client's.
    fn share(&self) -> Option<f64> {
        self.plain.as_ref().map(|plain| self.per_s / plain.per_s)
    }

    pub(super) fn line(&self) -> String {
        let share = self.plain.as_ref().map_or_else(String::new, |plain| {
            format!(
                " = {:.2} of the plain client's {:.0}/s ({:.1} µs CPU, server and rest {:.1}; with the sink at most {:.0}/s)",
                self.per_s / plain.per_s,
                plain.per_s,
                plain.cpu_us,
                plain.rest_us,
                plain.bound_per_s
            )
        });
        format!(
            "{}: {:.0}/s{share}, {:.1} s, {:.1} µs CPU (sink {:.1}, server and rest {:.1}, cores {:.0} % busy), \
             {:.0} MB, {:.3} given back per message {}",
            self.shape,
            self.per_s,
            self.took_s,
            self.cpu_us,
            self.sink_us,
            self.rest_us,
            self.busy * 100.0,
            self.resident_mb,
            self.deferred,
            self.server
        )
    }

    pub(super) fn json(&self) -> Value {
        let plain = self.plain.as_ref().map(|plain| {
            json!({
                "per_s": plain.per_s, "cpu_us": plain.cpu_us, "rest_us": plain.rest_us,
                "bound_per_s": plain.bound_per_s,
            })
        });
        json!({
            "broker": self.kind, "server": self.version, "shape": self.shape, "messages": self.messages,
            "per_s": self.per_s, "cpu_us": self.cpu_us, "sink_us": self.sink_us, "rest_us": self.rest_us,
            "busy": self.busy, "plain": plain, "share": self.share(), "seconds": self.took_s,
            "rss_mb": self.resident_mb, "given_back_per_message": self.deferred, "requests": self.server,
        })
    }
}

/// The round in the middle, by its share of the ceiling, or by its rate.
pub(super) fn middle(mut rounds: Vec<Figure>) -> Figure {
    rounds.sort_by(|a, b| a.share().unwrap_or(a.per_s).total_cmp(&b.share().unwrap_or(b.per_s)));
    rounds.swap_remove(rounds.len() / 2)
}

/// All of them, for the README.
pub(super) fn table(figures: &[Figure]) -> String {
    let mut text = "| broker | shape | messages | deliveries/s | plain client | share | bound | CPU per message | sink | server, rest | cores busy | RSS | given back per message |\n\
                    |---|---|---|---|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for it in figures {
        let or = |value: Option<f64>, digits: usize| {
            value.map_or("–".to_owned(), |value| format!("{value:.digits$}"))
        };
        let _ = writeln!(
            text,
            "| {} ({}) | {} | {} | {:.0} | {} | {} | {} | {:.1} µs | {:.1} µs | {:.1} µs | {:.0} % | {:.0} MB | {:.3} |",
            it.kind,
            it.version,
            it.shape,
            it.messages,
            it.per_s,
            or(it.plain.as_ref().map(|plain| plain.per_s), 0),
            or(it.share(), 2),
            or(it.plain.as_ref().map(|plain| plain.bound_per_s), 0),
            it.cpu_us,
            it.sink_us,
            it.rest_us,
            it.busy * 100.0,
            it.resident_mb,
            it.deferred
        );
    }
    text
}
