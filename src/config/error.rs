//! Where a value came from, what is wrong with it, and which key was probably meant.

use std::fmt;
use std::path::PathBuf;

use serde::{Serialize, Serializer};
use thiserror::Error;

/// Where a value was written. Later ones win, in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Compiled in.
    Default,
    /// In the config file, at this line.
    File {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1; 0 = the file as a whole.
        line: usize,
    },
    /// An environment variable.
    Env(String),
    /// A flag of the command line.
    Flag(String),
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => out.write_str("default"),
            Self::File { path, line: 0 } => write!(out, "{}", path.display()),
            Self::File { path, line } => write!(out, "{}:{line}", path.display()),
            Self::Env(name) => write!(out, "env {name}"),
            Self::Flag(name) => write!(out, "flag {name}"),
        }
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Longest key that is repeated to its writer.
const KEY_CHARS_MAX: usize = 100;
/// Longest problem that is told: a file may hold a value of megabytes.
const PROBLEM_CHARS_MAX: usize = 400;

/// A value that can't be used. Whoever wrote it mends it; the text says where and how.
#[derive(Clone, Debug, Error, PartialEq, Eq, Serialize)]
#[error("{place}: {key}: {problem}")]
pub struct ConfigError {
    /// Where it stands.
    #[serde(rename = "where")]
    pub place: Place,
    /// Which key.
    pub key: String,
    /// What is wrong, and what to write instead. Never holds a secret's text.
    pub problem: String,
}

/// A value that is used, or ignored, but worth a word.
pub type Notice = ConfigError;

impl ConfigError {
    pub(super) fn new(place: &Place, key: &str, problem: impl Into<String>) -> Self {
        Self {
            place: place.clone(),
            key: cut(key.to_owned(), KEY_CHARS_MAX),
            problem: cut(problem.into(), PROBLEM_CHARS_MAX),
        }
    }
}

fn cut(mut text: String, chars_max: usize) -> String {
    if let Some((at, _)) = text.char_indices().nth(chars_max) {
        text.truncate(at);
        text.push('…');
    }
    text
}

/// The word of `known` that is nearest to `written`, if any is near enough to have been meant.
pub(super) fn nearest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let length = written.chars().count();
    let allowed = (length / 4).clamp(1, 4);
    // The cost grows with both lengths, and no one writes a slip of this length.
    let known = known.filter(|_| length <= KEY_CHARS_MAX);
    known
        .map(|word| (distance(written, word), word))
        .filter(|(far, _)| *far <= allowed)
        .min_by_key(|(far, _)| *far)
        .map(|(_, word)| word)
}

/// `; did you mean …?`, or nothing.
pub(super) fn meant<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(written, known).map_or_else(String::new, |word| format!("; did you mean `{word}`?"))
}

/// Letters to insert, take away or change (Levenshtein).
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, letter) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (column, other) in right.iter().enumerate() {
            let change = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = change.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_suggested_and_a_stranger_is_not() {
        let known = ["admin.listen", "admin.token", "memory.budget"];
        let rows = [
            ("admin.lisen", Some("admin.listen")),
            ("admin.tokne", Some("admin.token")),
            ("memory.budgets", Some("memory.budget")),
            ("database.url", None),
            (&"admin.listen".repeat(9), None),
        ];
        for (written, want) in rows {
            assert_eq!(nearest(written, known.into_iter()), want, "{written}");
        }
    }
}
