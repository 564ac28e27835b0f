//! `corelane check`: the effective config and where each value came from, or every problem. Starts nothing.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context;
use serde_json::json;

use super::flags::RunFlags;
use crate::config::{ConfigError, Provenance, Row, Settings};
use crate::secret::Secret;
use crate::sync::{self, cache, fetch};
use crate::topology::Topology;

/// What the process ends with when there is a problem.
const PROBLEM: u8 = 2;
/// Longest value in the table; JSON shows all of it.
const VALUE_CHARS_MAX: usize = 60;

const EXAMPLES: &str = "\
Examples:
  corelane check
  corelane check --config router.toml --offline
  corelane check --set memory.budget=1GiB --json
Ends with 0 when all is well, with 2 when there is a problem.";

/// Prints the effective config and where each value came from, or every problem
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    flags: RunFlags,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Don't fetch message-router.config-url
    #[arg(long)]
    offline: bool,
}

/// What was found.
#[derive(Default)]
struct Findings {
    provenance: Provenance,
    problems: Vec<Complaint>,
    fetched: Option<Platform>,
}

/// A problem, with its place where it has one.
enum Complaint {
    Config(ConfigError),
    Sync(String),
}

/// What the platform says.
struct Platform {
    topology: Topology,
    problems: Vec<String>,
    changes: Vec<String>,
}

/// Loads, fetches and prints.
///
/// # Errors
/// The result can't be printed.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut findings = Findings::default();
    match args.flags.sources().map_err(|error| vec![error]).and_then(|sources| Settings::load(&sources)) {
        Ok((settings, provenance)) => {
            findings.provenance = provenance;
            if let (Some(url), false) = (&settings.sync.url, args.offline) {
                ask(&settings, url, &mut findings)?;
            }
        }
        Err(errors) => findings.problems = errors.into_iter().map(Complaint::Config).collect(),
    }
    let code = if findings.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(PROBLEM) };
    let text = if args.json { findings.json() } else { findings.text() };
    match io::stdout().write_all(text.as_bytes()) {
        // Who pipes into `head` has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("print the result"),
        _ => Ok(code),
    }
}

/// Asks the platform once and compares with the last good config.
fn ask(settings: &Settings, url: &Secret, findings: &mut Findings) -> anyhow::Result<()> {
    let limits = sync::pool_limits(settings);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
    let fetched = match runtime.block_on(fetch::fetch_once(&settings.sync, url)) {
        Ok(fetched) => fetched,
        Err(error) => {
            findings.problems.push(Complaint::Sync(error.to_string()));
            return Ok(());
        }
    };
    let cached = cache::read(&settings.cache_file(), url, settings.sync.body_bytes_max, limits);
    let last_good = match cached {
        Ok(cached) => cached.map(|cached| cached.topology).unwrap_or_default(),
        Err(error) => {
            findings.problems.push(Complaint::Sync(error.to_string()));
            Topology::default()
        }
    };
    let (topology, problems) = fetched.document.over(&last_good, limits);
    let changes = sync::diff::diff(&last_good, &topology);
    if let Err(refused) = changes.guard(&last_good, settings.sync.allow_mass_removal) {
        findings.problems.push(Complaint::Sync(refused.to_string()));
    }
    let problems = problems.into_iter().map(|problem| problem.text).collect();
    findings.fetched = Some(Platform { topology, problems, changes: changes.lines() });
    Ok(())
}

impl Complaint {
    fn json(&self) -> serde_json::Value {
        match self {
            Self::Config(error) => json!(error),
            Self::Sync(problem) => {
                json!({ "where": "sync", "key": "message-router.config-url", "problem": problem })
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Config(error) => error.to_string(),
            Self::Sync(problem) => format!("message-router.config-url: {problem}"),
        }
    }
}

impl Findings {
    fn json(&self) -> String {
        let platform = self.fetched.as_ref().map(|platform| {
            let pools = platform.topology.pools.iter();
            let queues = platform.topology.queues.iter();
            json!({
                "pools": pools.map(|pool| json!({ "code": pool.code, "spec": pool.to_string() })).collect::<Vec<_>>(),
                "queues": queues.map(|queue| json!({ "name": queue.name, "spec": queue.to_string() })).collect::<Vec<_>>(),
                "warnings": platform.problems,
                "changes": platform.changes,
            })
        });
        let all = json!({
            "ok": self.problems.is_empty(),
            "problems": self.problems.iter().map(Complaint::json).collect::<Vec<_>>(),
            "settings": self.provenance.settings,
            "notices": self.provenance.notices,
            "platform": platform,
        });
        format!("{all:#}\n")
    }

    fn text(&self) -> String {
        let mut out = table(&self.provenance.settings);
        for notice in &self.provenance.notices {
            let _ = writeln!(out, "notice: {notice}");
        }
        if let Some(platform) = &self.fetched {
            let _ = writeln!(out, "\nThe platform's pools and queues:");
            for pool in &platform.topology.pools {
                let _ = writeln!(out, "  pool {}: {pool}", pool.code);
            }
            for queue in &platform.topology.queues {
                let _ = writeln!(out, "  queue {}: {queue}", queue.name);
            }
            for problem in &platform.problems {
                let _ = writeln!(out, "warning: {problem}");
            }
            let _ = writeln!(out, "\nAgainst the last good config:");
            for line in &platform.changes {
                let _ = writeln!(out, "  {line}");
            }
            if platform.changes.is_empty() {
                let _ = writeln!(out, "  no change");
            }
        }
        for problem in &self.problems {
            let _ = writeln!(out, "problem: {}", problem.text());
        }
        let _ = match self.problems.len() {
            0 => writeln!(out, "ok"),
            1 => writeln!(out, "1 problem"),
            count => writeln!(out, "{count} problems"),
        };
        out
    }
}

fn table(rows: &[Row]) -> String {
    let shown = |value: &str| match value.char_indices().nth(VALUE_CHARS_MAX) {
        _ if value.is_empty() => "(unset)".to_owned(),
        Some((cut, _)) => format!("{}…", &value[..cut]),
        None => value.to_owned(),
    };
    let rows: Vec<_> = rows.iter().map(|row| (&row.key, shown(&row.value), row.place.to_string())).collect();
    let keys = rows.iter().map(|(key, _, _)| key.chars().count()).max().unwrap_or(0);
    let values = rows.iter().map(|(_, value, _)| value.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for (key, value, place) in rows {
        let _ = writeln!(out, "{key:keys$}  {value:values$}  {place}");
    }
    out
}
