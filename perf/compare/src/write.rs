//! Shows the figures beside their budgets, and keeps the raw data.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

use crate::checks::Check;

/// A table in Markdown.
pub(crate) fn report(checks: &[Check]) -> String {
    let mut text = String::from("| what | budget | measured | |\n|---|---|---|---|\n");
    for check in checks {
        let met = match check.met {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "void",
        };
        let _ = writeln!(text, "| {} | {} | {} | {met} |", check.what, check.budget, check.measured);
    }
    text
}

/// The run's folder: report, machine, commands and raw figures.
pub(crate) fn folder(out: &Path, report: &str, checks: &[Check]) -> anyhow::Result<()> {
    fs::create_dir_all(out)?;
    let mut text =
        String::from("# Measured\n\nRepeat all with `make perf`, or one line with its command below.\n\n");
    let _ = writeln!(text, "- commit: {}", said("git", &["rev-parse", "HEAD"]));
    let _ = writeln!(
        text,
        "- machine: {} · {} · {} cores",
        said("uname", &["-srm"]),
        cpu_model(),
        said("nproc", &[])
    );
    let _ = writeln!(text, "- date: {}\n\n{report}\n## Commands\n", said("date", &["-u", "+%F %R UTC"]));
    for check in checks {
        let _ = writeln!(text, "- {}: `{}`", check.what, check.command);
    }
    fs::write(out.join("README.md"), text).context("write README.md")?;
    let raw: Vec<serde_json::Value> = checks
        .iter()
        .flat_map(|check| &check.raw)
        .map(|figures| serde_json::json!({ "command": figures.command, "figures": figures.json }))
        .collect();
    fs::write(out.join("raw.json"), serde_json::to_string_pretty(&raw)?).context("write raw.json")?;
    Ok(())
}

fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default()
}

fn cpu_model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim().to_owned()).unwrap_or_default()
}
