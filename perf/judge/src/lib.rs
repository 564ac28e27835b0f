//! Judges a run from append-only logs that neither the router nor its tests can touch: what the publisher
//! sent and was promised, and what the sink answered.
//!
//! - J1: a message whose publishing was confirmed is answered with success, or was set aside, else it is lost.
//! - J2: per group, first successes come in publish order.
//! - J3: further successes of a message are duplicates.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, bail};
use serde::Serialize;

/// Examples of each fault that are kept.
const EXAMPLES_MAX: usize = 10;

/// The verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Messages that the publisher sent.
    pub sent: usize,
    /// Of those, confirmed.
    pub kept: usize,
    /// Messages answered with success.
    pub delivered: usize,
    /// Set aside.
    pub set_aside: usize,
    /// J1 broken.
    pub lost: usize,
    /// J2 broken.
    pub out_of_order: usize,
    /// J3.
    pub duplicates: usize,
    /// Successes of messages that nobody sent.
    pub unknown: usize,
    /// Answers that were no success.
    pub failures: usize,
    /// Some of the faults, in words.
    pub examples: Vec<String>,
}

impl Verdict {
    /// Nothing lost, nothing overtaken, nothing unknown, and no more duplicates than could be.
    #[must_use]
    pub const fn is_good(&self, duplicates_max: usize) -> bool {
        self.lost == 0 && self.out_of_order == 0 && self.unknown == 0 && self.duplicates <= duplicates_max
    }

    fn example(&mut self, text: impl FnOnce() -> String) {
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(text());
        }
    }
}

/// A message as its publisher logged it.
struct Sent<'a> {
    group: &'a str,
    kept: bool,
    successes: usize,
}

/// Judges. `published`: lines `time⇥sent⇥id⇥group` and, once confirmed, `time⇥kept⇥id`. `answered`: the
/// sink's lines `time⇥id⇥attempt⇥status⇥…`. `set_aside`: an id per line.
///
/// # Errors
/// A line that is not of this form; the last one may be cut short.
pub fn judge(published: &str, answered: &str, set_aside: &str) -> anyhow::Result<Verdict> {
    let mut verdict = Verdict::default();
    let mut order: HashMap<&str, usize> = HashMap::new();
    let mut sent: Vec<Sent<'_>> = Vec::new();
    for (line, words) in lines(published) {
        match *words.as_slice() {
            [_, "sent", id, group] => {
                if order.insert(id, sent.len()).is_some() {
                    bail!("line {line} of the publisher's log: {id} was sent before");
                }
                sent.push(Sent { group, kept: false, successes: 0 });
            }
            [_, "kept", id] => {
                let at = *order
                    .get(id)
                    .with_context(|| format!("line {line} of the publisher's log: {id} was never sent"))?;
                sent[at].kept = true;
            }
            _ => bail!("line {line} of the publisher's log is neither sent nor kept: {words:?}"),
        }
    }
    let aside: HashSet<&str> = set_aside.lines().map(str::trim).filter(|id| !id.is_empty()).collect();
    let mut last: HashMap<&str, usize> = HashMap::new();
    for (line, words) in lines(answered) {
        let [_, id, _, status, ..] = *words.as_slice() else {
            bail!("line {line} of the sink's log has too few columns: {words:?}");
        };
        if !matches!(status.parse(), Ok(200..=299_u16)) {
            verdict.failures += 1;
            continue;
        }
        let Some(&at) = order.get(id) else {
            verdict.unknown += 1;
            verdict.example(|| format!("{id} was delivered and never sent"));
            continue;
        };
        sent[at].successes += 1;
        if sent[at].successes > 1 {
            verdict.duplicates += 1;
            continue;
        }
        let before = last.entry(sent[at].group).or_insert(at);
        if *before > at {
            verdict.out_of_order += 1;
            let group = sent[at].group;
            verdict.example(|| format!("{id} of group {group} came after message number {before} of it"));
        }
        *before = (*before).max(at);
    }
    verdict.sent = sent.len();
    for (id, &at) in &order {
        let message = &sent[at];
        verdict.kept += usize::from(message.kept);
        verdict.delivered += usize::from(message.successes > 0);
        verdict.set_aside += usize::from(aside.contains(id));
        if message.kept && message.successes == 0 && !aside.contains(id) {
            verdict.lost += 1;
            verdict.example(|| format!("{id} of group {} is lost", message.group));
        }
    }
    Ok(verdict)
}

/// Whole lines, numbered from 1, as columns. A writer that was killed leaves a last line without its end.
fn lines(text: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    (1..)
        .zip(whole.lines())
        .filter(|(_, line)| !line.is_empty())
        .map(|(at, line)| (at, line.split('\t').collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLISHED: &str =
        "1\tsent\ta\tg\n2\tkept\ta\n3\tsent\tb\tg\n4\tkept\tb\n5\tsent\tc\th\n6\tkept\tc\n7\tsent\td\th\n";

    #[test]
    fn each_fault_is_seen() {
        let rows = [
            // answered, set aside, lost, out of order, duplicates, unknown, why
            ("1\ta\t1\t200\t0\n2\tb\t1\t200\t0\n3\tc\t1\t200\t0\n", "", [0, 0, 0, 0], "d was not confirmed"),
            ("1\tb\t1\t200\t0\n2\ta\t1\t200\t0\n3\tc\t1\t200\t0\n", "", [0, 1, 0, 0], "b before a"),
            ("1\ta\t1\t200\t0\n3\tc\t1\t200\t0\n", "", [1, 0, 0, 0], "b is lost"),
            ("1\ta\t1\t200\t0\n3\tc\t1\t200\t0\n", "b\n", [0, 0, 0, 0], "b was set aside"),
            (
                "1\ta\t1\t500\t0\n2\tb\t1\t200\t0\n3\ta\t2\t200\t0\n4\tc\t1\t200\t0\n",
                "",
                [0, 1, 0, 0],
                "a failed first",
            ),
            (
                "1\ta\t1\t200\t0\n2\tb\t1\t200\t0\n3\ta\t2\t200\t0\n4\tc\t1\t200\t0\n",
                "",
                [0, 0, 1, 0],
                "a twice",
            ),
            (
                "1\ta\t1\t200\t0\n2\tb\t1\t200\t0\n4\tc\t1\t200\t0\n5\tz\t1\t200\t0\n",
                "",
                [0, 0, 0, 1],
                "who is z?",
            ),
        ];
        for (answered, aside, want, why) in rows {
            let verdict = judge(PUBLISHED, answered, aside).expect("well-formed logs");
            let got = [verdict.lost, verdict.out_of_order, verdict.duplicates, verdict.unknown];
            assert_eq!(got, want, "{why}: {verdict:?}");
        }
    }

    #[test]
    fn a_cut_last_line_is_ignored_and_a_bad_one_is_not() {
        assert_eq!(judge("1\tsent\ta\tg\n2\tke", "", "").expect("cut short").kept, 0);
        assert!(judge("1\tgone\ta\n", "", "").is_err());
        assert!(judge("1\tkept\ta\n", "", "").is_err());
        assert!(judge("1\tsent\ta\tg\n", "1\ta\n", "").is_err());
    }
}
