//! Metrics as Prometheus text, made from a [`View`] when someone asks. No registry: the view is the state.
//! Pure. Names, kinds and meanings stand in [`names`](super::names).
//!
//! Label values are bounded: pools, queues and targets beyond a given number are summed into
//! [`OTHER`], so that a stranger's names cannot fill a time-series database.

use std::fmt::Write;

use super::names::{Kind, METRICS, Metric};
use crate::view::{Buckets, LATENCY_BOUNDS_US, PoolView, QueueView, TargetView, View};

/// The label value of all that came after the bound.
pub const OTHER: &str = "__other__";
/// Label values per label, unless set otherwise.
pub const LABEL_VALUES_MAX: usize = 1_000;

/// What a process used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Resident memory, in bytes.
    pub resident_bytes: u64,
    /// CPU time, in seconds.
    pub cpu_s: f64,
}

/// What the rows of the table read: the view, with the lists cut to their bound.
#[derive(Debug)]
pub struct Facts<'a> {
    /// The view as it is.
    pub view: &'a View,
    /// Pools, the last one perhaps [`OTHER`].
    pub pools: Vec<PoolView>,
    /// Queues, likewise.
    pub queues: Vec<QueueView>,
    /// Targets, likewise.
    pub targets: Vec<TargetView>,
    /// What the process used.
    pub usage: Usage,
}

/// The text that a scrape gets.
#[must_use]
pub fn render(view: &View, usage: Usage, label_values_max: usize) -> String {
    let facts = Facts {
        view,
        pools: bounded(&view.pools, label_values_max, add_pool),
        queues: bounded(&view.queues, label_values_max, add_queue),
        targets: bounded(&view.targets, label_values_max, add_target),
        usage,
    };
    let mut out = Samples { text: String::with_capacity(16 * 1024), name: "" };
    for metric in &METRICS {
        out.open(metric);
        (metric.read)(&facts, &mut out);
    }
    out.text
}

/// Takes the samples of one metric after the other.
#[derive(Debug)]
pub struct Samples {
    text: String,
    name: &'static str,
}

impl Samples {
    fn open(&mut self, metric: &Metric) {
        self.name = metric.name;
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.text.push_str("# HELP ");
        self.text.push_str(metric.name);
        self.text.push(' ');
        escape(&mut self.text, metric.help, false);
        self.text.push_str("\n# TYPE ");
        self.text.push_str(metric.name);
        self.text.push(' ');
        self.text.push_str(kind);
        self.text.push('\n');
    }

    /// A whole number.
    pub fn whole(&mut self, labels: &[(&str, &str)], value: u64) {
        self.line("", labels, None);
        let _ = writeln!(self.text, " {value}");
    }

    /// A number with a fraction.
    pub fn real(&mut self, labels: &[(&str, &str)], value: f64) {
        self.line("", labels, None);
        self.text.push(' ');
        self.number(value);
        self.text.push('\n');
    }

    /// A histogram in seconds.
    pub fn seconds(&mut self, labels: &[(&str, &str)], buckets: &Buckets) {
        let mut sum = 0;
        for (at, bound_us) in LATENCY_BOUNDS_US.iter().enumerate() {
            sum += buckets.counts.get(at).copied().unwrap_or_default();
            self.line("_bucket", labels, Some(&seconds(*bound_us).to_string()));
            let _ = writeln!(self.text, " {sum}");
        }
        sum += buckets.counts.iter().skip(LATENCY_BOUNDS_US.len()).sum::<u64>();
        self.line("_bucket", labels, Some("+Inf"));
        let _ = writeln!(self.text, " {sum}");
        self.line("_sum", labels, None);
        let _ = writeln!(self.text, " {}", seconds(buckets.sum_us));
        self.line("_count", labels, None);
        let _ = writeln!(self.text, " {sum}");
    }

    fn line(&mut self, end: &str, labels: &[(&str, &str)], le: Option<&str>) {
        self.text.push_str(self.name);
        self.text.push_str(end);
        let all = labels.iter().copied().chain(le.map(|bound| ("le", bound)));
        let mut open = '{';
        for (label, value) in all {
            self.text.push(open);
            self.text.push_str(label);
            self.text.push_str("=\"");
            escape(&mut self.text, value, true);
            self.text.push('"');
            open = ',';
        }
        if open == ',' {
            self.text.push('}');
        }
    }

    fn number(&mut self, value: f64) {
        let _ = match value {
            _ if value == f64::INFINITY => self.text.write_str("+Inf"),
            _ if value == f64::NEG_INFINITY => self.text.write_str("-Inf"),
            _ => write!(self.text, "{value}"),
        };
    }
}

/// Microseconds as seconds.
#[expect(clippy::cast_precision_loss, reason = "2^53 µs are 285 years")]
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// As the text format asks: backslash and line feed always, quotes in label values.
fn escape(out: &mut String, text: &str, quotes: bool) {
    for letter in text.chars() {
        match letter {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            _ => out.push(letter),
        }
    }
}

/// The first of them as they are, the rest in one.
fn bounded<T: Clone + Default>(all: &[T], max: usize, add: fn(&mut T, &T)) -> Vec<T> {
    if all.len() <= max {
        return all.to_vec();
    }
    let (own, rest) = all.split_at(max);
    let mut other = T::default();
    for one in rest {
        add(&mut other, one);
    }
    own.iter().cloned().chain([other]).collect()
}

fn add_pool(sum: &mut PoolView, pool: &PoolView) {
    OTHER.clone_into(&mut sum.code);
    sum.concurrency = sum.concurrency.saturating_add(pool.concurrency);
    sum.capacity = sum.capacity.saturating_add(pool.capacity);
    sum.queued += pool.queued;
    sum.active += pool.active;
    sum.groups += pool.groups;
    sum.submitted_total += pool.submitted_total;
    sum.delivered_total += pool.delivered_total;
    sum.failed_total += pool.failed_total;
    sum.transient_total += pool.transient_total;
    sum.rate_limited_total += pool.rate_limited_total;
    sum.draining |= pool.draining;
    for (reason, count) in &pool.rejected_total {
        *sum.rejected_total.entry(reason.clone()).or_default() += count;
    }
    add_buckets(&mut sum.latency, &pool.latency);
}

fn add_queue(sum: &mut QueueView, queue: &QueueView) {
    // One bad queue makes the whole unhealthy; the first starts from healthy.
    sum.healthy = (sum.name.is_empty() || sum.healthy) && queue.healthy;
    OTHER.clone_into(&mut sum.name);
    sum.paused |= queue.paused;
    sum.draining += queue.draining;
    sum.since_poll_s = sum.since_poll_s.max(queue.since_poll_s);
    sum.depth = match (sum.depth, queue.depth) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    };
    sum.received_total += queue.received_total;
    sum.acked_total += queue.acked_total;
    sum.nacked_total += queue.nacked_total;
    sum.extended_total += queue.extended_total;
    sum.acks_failed_total += queue.acks_failed_total;
    sum.unreadable_total += queue.unreadable_total;
}

fn add_target(sum: &mut TargetView, target: &TargetView) {
    OTHER.clone_into(&mut sum.origin);
    sum.breaker = sum.breaker.max(target.breaker);
    sum.connections += target.connections;
    sum.active += target.active;
    sum.calls_total += target.calls_total;
    sum.failures_total += target.failures_total;
    add_buckets(&mut sum.latency, &target.latency);
}

fn add_buckets(sum: &mut Buckets, more: &Buckets) {
    if sum.counts.len() < more.counts.len() {
        sum.counts.resize(more.counts.len(), 0);
    }
    for (sum, more) in sum.counts.iter_mut().zip(&more.counts) {
        *sum += more;
    }
    sum.sum_us += more.sum_us;
}

#[cfg(test)]
mod tests;
