//! Starts programs and reads their figures.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;

/// Where and for how long.
pub(crate) struct Lab {
    pub(crate) bin: PathBuf,
    pub(crate) rounds: usize,
    pub(crate) seconds: u64,
    pub(crate) long: u64,
}

/// A program's figures and the command that repeats them.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    pub(crate) command: String,
    pub(crate) json: Value,
}

impl Figures {
    pub(crate) fn get(&self, key: &str) -> f64 {
        self.json.get(key).and_then(Value::as_f64).unwrap_or(f64::NAN)
    }
}

impl Lab {
    /// Runs one of our programs and reads the JSON it prints (an object, or an array of one).
    pub(crate) fn run(&self, program: &str, args: &str) -> anyhow::Result<Figures> {
        let busy = others_busy();
        let mut command = Command::new(self.bin.join(program));
        command.args(args.split_whitespace()).stdin(Stdio::null()).stderr(Stdio::inherit());
        let output = command.output().with_context(|| format!("run {program}"))?;
        ensure!(output.status.success(), "{program} {args} ended with {}", output.status);
        let mut json: Value =
            serde_json::from_slice(&output.stdout).with_context(|| format!("read {program}'s figures"))?;
        if let Value::Array(rows) = &mut json {
            json = rows.pop().context("a row of figures")?;
        }
        if let Value::Object(map) = &mut json {
            map.insert("others_busy_before".into(), busy.into());
        }
        let figures = Figures { command: format!("{program} {args}"), json };
        eprintln!(
            "  {program:<10} {:>9.0}/s {:>7.2} µs cpu   (others busy before: {:.0} %)   {args}",
            figures.get("deliveries_per_s"),
            figures.get("cpu_us_per_delivery"),
            busy * 100.0
        );
        Ok(figures)
    }

    /// A sink that ends with the value.
    pub(crate) fn sink(&self, args: &str) -> anyhow::Result<Sink> {
        let mut command = Command::new(self.bin.join("corelane"));
        command.arg("sink").args(args.split_whitespace()).stdout(Stdio::piped()).stdin(Stdio::null());
        let mut child = command.spawn().context("start the sink")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("read from the sink")?).read_line(&mut line)?;
        let url =
            line.trim().strip_prefix("listening ").context("the sink says where it listens")?.to_owned();
        Ok(Sink { child, url })
    }
}

/// A running sink.
pub(crate) struct Sink {
    child: Child,
    pub(crate) url: String,
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Share of all cores that something else uses, over half a second.
fn others_busy() -> f64 {
    let look = || -> Option<(f64, f64)> {
        let text = std::fs::read_to_string("/proc/stat").ok()?;
        let numbers: Vec<f64> =
            text.lines().next()?.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
        Some((numbers.iter().sum(), numbers.get(3)? + numbers.get(4)?))
    };
    let before = look();
    std::thread::sleep(Duration::from_millis(500));
    match (before, look()) {
        (Some((all, idle)), Some((all_after, idle_after))) if all_after > all => {
            1.0 - (idle_after - idle) / (all_after - all)
        }
        _ => f64::NAN,
    }
}

/// The middle value.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
