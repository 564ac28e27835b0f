//! What a benchmark run found, and how it is shown: a table, JSON, a plot.

mod plot;
pub mod process;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use plot::{PlotError, svg};

/// The figures of one run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What ran, in a word or two; names the row and the bar.
    pub name: String,
    /// Acknowledged deliveries per second of the measured window.
    pub deliveries_per_s: f64,
    /// CPU time of the whole process per delivery, in microseconds.
    pub cpu_us_per_delivery: f64,
    /// Median latency, in microseconds.
    pub p50_us: u64,
    /// 99th percentile of the latency.
    pub p99_us: u64,
    /// 99.9th percentile of the latency.
    pub p999_us: u64,
    /// Resident memory, in MB of 1,048,576 bytes.
    pub rss_mb: f64,
    /// Wire that moved the bytes: uring, glommio or epoll.
    pub io: String,
    /// Shards.
    pub shards: u32,
    /// Groups.
    pub groups: u64,
    /// Deliveries in flight at most.
    pub concurrency: u32,
    /// Whatever else the run wants to say; each key is a column of its own.
    #[serde(flatten)]
    pub extras: BTreeMap<String, serde_json::Value>,
}

/// The fixed columns of [`table`] and how a run fills them.
type Column = (&'static str, fn(&Run) -> String);

const COLUMNS: [Column; 11] = [
    ("run", |run| run.name.clone()),
    ("io", |run| run.io.clone()),
    ("shards", |run| run.shards.to_string()),
    ("groups", |run| run.groups.to_string()),
    ("concurrency", |run| run.concurrency.to_string()),
    ("deliveries/s", |run| format!("{:.0}", run.deliveries_per_s)),
    ("cpu µs", |run| format!("{:.2}", run.cpu_us_per_delivery)),
    ("p50 µs", |run| run.p50_us.to_string()),
    ("p99 µs", |run| run.p99_us.to_string()),
    ("p99.9 µs", |run| run.p999_us.to_string()),
    ("rss MB", |run| format!("{:.1}", run.rss_mb)),
];
/// Leading columns that are words: they start at the left, numbers end at the right.
const WORD_COLUMNS: usize = 2;

/// The runs as aligned text, a line each under a line of names.
#[must_use]
pub fn table(runs: &[Run]) -> String {
    let mut extras: Vec<&str> = runs.iter().flat_map(|run| run.extras.keys().map(String::as_str)).collect();
    extras.sort_unstable();
    extras.dedup();
    let names = COLUMNS.iter().map(|(name, _)| (*name).to_owned());
    let mut rows: Vec<Vec<String>> = vec![names.chain(extras.iter().map(|key| (*key).to_owned())).collect()];
    for run in runs {
        let fixed = COLUMNS.iter().map(|(_, fill)| fill(run));
        rows.push(fixed.chain(extras.iter().map(|key| extra(run, key))).collect());
    }
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|n| rows.iter().map(|row| row[n].chars().count()).max().unwrap_or_default())
        .collect();
    rows.iter().map(|row| line(row, &widths)).collect()
}

fn line(row: &[String], widths: &[usize]) -> String {
    let cells: Vec<String> = row
        .iter()
        .zip(widths)
        .enumerate()
        .map(
            |(n, (cell, &width))| {
                if n < WORD_COLUMNS { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            },
        )
        .collect();
    cells.join("  ").trim_end().to_owned() + "\n"
}

fn extra(run: &Run, key: &str) -> String {
    match run.extras.get(key) {
        None => "–".to_owned(),
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(serde_json::Value::Number(number)) if number.is_f64() => {
            format!("{:.2}", number.as_f64().unwrap_or_default())
        }
        Some(other) => other.to_string(),
    }
}

/// The runs as a JSON array, for `perf/runs/`.
///
/// # Panics
/// Never: names and numbers always serialize.
#[must_use]
pub fn json(runs: &[Run]) -> String {
    serde_json::to_string_pretty(runs).expect("names and numbers always serialize")
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn runs() -> [Run; 2] {
        let first = Run {
            name: "512 connections".into(),
            deliveries_per_s: 98_765.4,
            cpu_us_per_delivery: 9.876,
            p50_us: 5_000,
            p99_us: 7_000,
            p999_us: 9_000,
            rss_mb: 12.34,
            io: "uring".into(),
            shards: 1,
            groups: 10_000,
            concurrency: 512,
            extras: BTreeMap::from([("cpu_share".into(), 0.567.into())]),
        };
        let second = Run { name: "64".into(), io: "epoll".into(), extras: BTreeMap::new(), ..first.clone() };
        [first, second]
    }

    #[test]
    fn a_table_has_aligned_columns() {
        let text = table(&runs());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        let ends: Vec<usize> = lines.iter().map(|line| line.chars().count()).collect();
        assert!(ends.iter().all(|end| *end == ends[0]), "{text}");
        assert!(lines[0].starts_with("run              io     shards"), "{text}");
        assert!(lines[1].contains("98765    9.88") && lines[1].ends_with("0.57"), "{text}");
        assert!(lines[2].starts_with("64               epoll") && lines[2].ends_with('–'), "{text}");
    }

    #[test]
    fn a_table_of_nothing_is_its_header() {
        assert_eq!(table(&[]).lines().count(), 1);
    }

    #[test]
    fn json_reads_back_as_the_same_runs() {
        let back: Vec<Run> = serde_json::from_str(&json(&runs())).expect("valid");
        assert_eq!(back, runs());
    }
}
