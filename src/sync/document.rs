//! The platform's document → a topology. Pure. A bad entry is told and left out, the rest goes on; a document that
//! is not whole is refused as a whole.
//!
//! - Y1: a document that is empty, unreadable or lacks a section changes nothing.
//! - Y2: a bad entry never takes away the running pool or queue of its name.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::topology::Topology;
use crate::topology::draft::{FieldProblem, PoolDraft, QUEUES_MAX, QueueDraft};

/// Problems told of one document; the rest is counted.
const PROBLEMS_MAX: usize = 100;

/// Pools named when some are left out.
const NAMED_MAX: usize = 5;

/// How many pools there may be.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// Further ones are left out.
    pub max: usize,
    /// From this number on there is a warning.
    pub warn_at: usize,
}

/// A document that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// The good entries.
    topology: Topology,
    /// What is wrong with the others.
    problems: Vec<Problem>,
    /// Codes of pools that are listed but can't be used.
    bad_pools: BTreeSet<String>,
    /// Names of queues that are listed but can't be used.
    bad_queues: BTreeSet<String>,
}

/// Something wrong with an entry. It becomes a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What kind of warning.
    pub kind: ProblemKind,
    /// Which entry, which field, what is wrong. Shows no password.
    pub text: String,
}

/// What kind of warning a problem becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// `CONFIGURATION`, error: an entry is left out.
    Entry,
    /// `POOL_LIMIT`, critical: a pool was not created.
    PoolLimit,
    /// `POOL_LIMIT`, warn: nearly as many pools as are allowed.
    PoolsNearLimit,
}

/// Why a document is refused as a whole. The platform mends it.
#[derive(Debug, Error)]
pub enum DocumentError {
    /// No bytes, or only spaces.
    #[error("the document is empty")]
    Empty,
    /// Not the JSON that is expected.
    #[error("the document is not the JSON that is expected: {0}")]
    Json(#[from] serde_json::Error),
    /// A section is not there: perhaps only a part of the document is.
    #[error("the document has no `{0}`; an empty list says so if there are none")]
    Partial(&'static str),
    /// Both sections are empty lists.
    #[error("the document lists neither pools nor queues")]
    Nothing,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sections {
    processing_pools: Option<Vec<Value>>,
    queues: Option<Vec<Value>>,
}

/// Reads a document.
///
/// # Errors
/// It is not whole; nothing of it may be used.
pub fn read(body: &[u8]) -> Result<Document, DocumentError> {
    if body.trim_ascii().is_empty() {
        return Err(DocumentError::Empty);
    }
    let sections: Sections = serde_json::from_slice(body)?;
    let pools = sections.processing_pools.ok_or(DocumentError::Partial("processingPools"))?;
    let queues = sections.queues.ok_or(DocumentError::Partial("queues"))?;
    if pools.is_empty() && queues.is_empty() {
        return Err(DocumentError::Nothing);
    }
    let mut reader = Reader::default();
    for (at, value) in pools.iter().enumerate() {
        reader.pool(at, value);
    }
    for (at, value) in queues.iter().enumerate() {
        reader.queue(at, value);
    }
    if reader.untold > 0 {
        reader.document.problems.push(Problem {
            kind: ProblemKind::Entry,
            text: format!("and {} more problems in this document", reader.untold),
        });
    }
    Ok(reader.document)
}

impl Document {
    /// What to put into effect where `running` is in effect now, and all that is wrong. An entry that is listed but
    /// bad keeps its last good settings. Where there are too many pools, those that run come first.
    #[must_use]
    pub fn over(&self, running: &Topology, limits: PoolLimits) -> (Topology, Vec<Problem>) {
        let (mut topology, mut problems) = (self.topology.clone(), self.problems.clone());
        let kept = running.pools.iter().filter(|pool| self.bad_pools.contains(&pool.code));
        topology.pools.extend(kept.cloned());
        let kept = running.queues.iter().filter(|queue| self.bad_queues.contains(&queue.name));
        topology.queues.extend(kept.cloned());
        let listed = topology.pools.len();
        if listed > limits.max {
            let codes: BTreeSet<&str> = running.pools.iter().map(|pool| pool.code.as_str()).collect();
            topology.pools.sort_by_key(|pool| !codes.contains(pool.code.as_str()));
            let out: Vec<String> = topology.pools.drain(limits.max..).map(|pool| pool.code).collect();
            let first: Vec<&str> = out.iter().take(NAMED_MAX).map(String::as_str).collect();
            let text = format!(
                "{listed} pools are listed and {} are allowed (message-router.max-pools); {} left out: {}{}",
                limits.max,
                out.len(),
                first.join(", "),
                if out.len() > NAMED_MAX { ", …" } else { "" },
            );
            problems.push(Problem { kind: ProblemKind::PoolLimit, text });
        } else if listed >= limits.warn_at {
            let text = format!("{listed} pools, and {} are allowed (message-router.max-pools)", limits.max);
            problems.push(Problem { kind: ProblemKind::PoolsNearLimit, text });
        }
        (topology, problems)
    }
}

#[derive(Default)]
struct Reader {
    document: Document,
    codes: BTreeSet<String>,
    names: BTreeSet<String>,
    untold: usize,
}

impl Reader {
    fn tell(&mut self, kind: ProblemKind, text: String) {
        if self.document.problems.len() < PROBLEMS_MAX {
            self.document.problems.push(Problem { kind, text });
        } else {
            self.untold += 1;
        }
    }

    fn pool(&mut self, at: usize, value: &Value) {
        let place = |name: &str| format!("processingPools[{at}] {name:?}");
        let mut fields = Fields::of(value);
        let draft = PoolDraft {
            code: fields.text("code"),
            concurrency: fields.number("concurrency"),
            rate_per_minute: fields.number("rateLimitPerMinute"),
            ..PoolDraft::default()
        };
        let code = draft.code.clone().unwrap_or_default();
        match fields.finish(draft.check()) {
            Err(problem) => {
                self.tell(ProblemKind::Entry, format!("{}: {problem}", place(&code)));
                self.document.bad_pools.insert(code);
            }
            Ok(pool) => {
                if self.codes.insert(code.clone()) {
                    self.document.topology.pools.push(pool);
                } else {
                    self.tell(
                        ProblemKind::Entry,
                        format!("{}: is listed twice; the first one counts", place(&code)),
                    );
                }
            }
        }
    }

    fn queue(&mut self, at: usize, value: &Value) {
        let place = |name: &str| format!("queues[{at}] {name:?}");
        let mut fields = Fields::of(value);
        let draft = QueueDraft {
            name: fields.text("queueName"),
            uri: fields.text("queueUri"),
            connections: fields.number("connections"),
            visibility: fields.number("visibilityTimeout").map(seconds),
            ..QueueDraft::default()
        };
        let name = draft.name.clone().unwrap_or_default();
        match fields.finish(draft.check()) {
            Err(problem) => {
                self.tell(ProblemKind::Entry, format!("{}: {problem}", place(&name)));
                self.document.bad_queues.insert(name);
            }
            Ok(_) if self.document.topology.queues.len() >= QUEUES_MAX => {
                self.tell(
                    ProblemKind::Entry,
                    format!("{}: left out, {QUEUES_MAX} queues are allowed", place(&name)),
                );
            }
            Ok(queue) => {
                if self.names.insert(name.clone()) {
                    self.document.topology.queues.push(queue);
                } else {
                    self.tell(
                        ProblemKind::Entry,
                        format!("{}: is listed twice; the first one counts", place(&name)),
                    );
                }
            }
        }
    }
}

/// A negative or huge number of seconds becomes one that the check refuses.
fn seconds(count: i64) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or(0))
}

/// One entry's fields; those of a wrong type are remembered.
struct Fields<'a> {
    fields: Option<&'a Map<String, Value>>,
    wrong: Vec<String>,
}

impl<'a> Fields<'a> {
    fn of(value: &'a Value) -> Self {
        let fields = value.as_object();
        let wrong = if fields.is_none() { vec!["is not an object".to_owned()] } else { Vec::new() };
        Self { fields, wrong }
    }

    fn get(&self, name: &str) -> Option<&'a Value> {
        self.fields?.get(name).filter(|value| !value.is_null())
    }

    fn text(&mut self, name: &str) -> Option<String> {
        let value = self.get(name)?;
        let text = value.as_str().map(str::to_owned);
        if text.is_none() {
            self.wrong.push(format!("{name} is not a string"));
        }
        text
    }

    fn number(&mut self, name: &str) -> Option<i64> {
        let value = self.get(name)?;
        let number = value.as_i64();
        if number.is_none() {
            self.wrong.push(format!("{name} is not a whole number"));
        }
        number
    }

    /// The entry, or all that is wrong with it in the platform's words.
    fn finish<T>(self, checked: Result<T, Vec<FieldProblem>>) -> Result<T, String> {
        if !self.wrong.is_empty() {
            return Err(self.wrong.join("; "));
        }
        checked.map_err(|problems| {
            let one =
                |problem: &FieldProblem| format!("{} {}", platform_name(problem.field), problem.problem);
            problems.iter().map(one).collect::<Vec<_>>().join("; ")
        })
    }
}

/// What the platform calls a field.
fn platform_name(field: &str) -> &str {
    match field {
        "rate-per-minute" => "rateLimitPerMinute",
        "name" => "queueName",
        "uri" => "queueUri",
        "visibility" => "visibilityTimeout",
        other => other,
    }
}

#[cfg(test)]
mod tests;
