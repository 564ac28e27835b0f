//! A pool or queue before it is believed: what the local file and the platform's document have in common.
//! Pure: words and numbers in, a checked entry or its problems out.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use shards::model::{Ordering, Parcel, PoolSpec};

use super::{PoolEntry, QueueEntry, QueueUri};

/// Longest pool code and queue name: what a message can carry.
pub const NAME_BYTES_MAX: usize = Parcel::NAME_BYTES_MAX;
/// Longest queue URI.
pub const URI_BYTES_MAX: usize = 2048;
/// Most queues of one process: each has its own source and connections.
pub const QUEUES_MAX: usize = 1_000;
/// Most receives in flight at once on one queue.
const CONNECTIONS_MAX: i64 = 100;
/// Longest lease: what SQS allows.
const VISIBILITY_MAX: Duration = Duration::from_secs(43_200);

/// What is wrong with a field, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldProblem {
    /// Which field.
    pub field: &'static str,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

/// A pool as written: any number, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolDraft {
    /// Its code.
    pub code: Option<String>,
    /// Calls in flight.
    pub concurrency: Option<i64>,
    /// Messages started per minute; 0 and none = no limit.
    pub rate_per_minute: Option<i64>,
    /// Messages of one lane in one request.
    pub batch_max: Option<i64>,
    /// Messages without a group run side by side.
    pub ungrouped_parallel: bool,
}

/// A queue as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueDraft {
    /// Its name.
    pub name: Option<String>,
    /// Where it is.
    pub uri: Option<String>,
    /// Receives in flight.
    pub connections: Option<i64>,
    /// Lease; none = what the broker says.
    pub visibility: Option<Duration>,
    /// How groups are kept in order.
    pub ordering: Option<Ordering>,
    /// Deliveries after which a message is set aside.
    pub attempts_max: Option<i64>,
}

impl PoolDraft {
    /// Believes it.
    ///
    /// # Errors
    /// Every field that is wrong.
    pub fn check(&self) -> Result<PoolEntry, Vec<FieldProblem>> {
        let mut problems = Vec::new();
        let code = checked(&mut problems, "code", name(self.code.as_deref()));
        let concurrency = match self.concurrency {
            Some(written) => number(written, 1, i64::from(u16::MAX)),
            None => Err("is missing; write how many calls may be in flight, such as 20".into()),
        };
        let concurrency = checked(&mut problems, "concurrency", concurrency);
        let rate = number(self.rate_per_minute.unwrap_or(0), 0, i64::from(u32::MAX));
        let rate = checked(&mut problems, "rate-per-minute", rate);
        let batch = number(self.batch_max.unwrap_or(1), 1, i64::from(u16::MAX));
        let batch = checked(&mut problems, "batch-max", batch);
        match (code, concurrency.and_then(non_zero), rate, batch.and_then(non_zero)) {
            (Some(code), Some(concurrency), Some(rate), Some(batch_max)) if problems.is_empty() => {
                let rate_per_minute = u32::try_from(rate).ok().and_then(NonZeroU32::new);
                let ungrouped_parallel = self.ungrouped_parallel;
                let spec = PoolSpec { concurrency, rate_per_minute, batch_max, ungrouped_parallel };
                Ok(PoolEntry { code, spec })
            }
            _ => Err(problems),
        }
    }
}

impl QueueDraft {
    /// Believes it.
    ///
    /// # Errors
    /// Every field that is wrong.
    pub fn check(&self) -> Result<QueueEntry, Vec<FieldProblem>> {
        let mut problems = Vec::new();
        let name = checked(&mut problems, "name", name(self.name.as_deref()));
        let uri = match self.uri.as_deref() {
            None | Some("") => Err("is missing; write where the queue is, such as sqlite:corelane.db".into()),
            Some(long) if long.len() > URI_BYTES_MAX => Err(format!("is longer than {URI_BYTES_MAX} bytes")),
            Some(written) => QueueUri::parse(written),
        };
        let uri = checked(&mut problems, "uri", uri);
        let connections = number(self.connections.unwrap_or(1), 1, CONNECTIONS_MAX);
        let connections = checked(&mut problems, "connections", connections);
        let visibility = match self.visibility {
            Some(lease) if lease < Duration::from_secs(1) || lease > VISIBILITY_MAX => {
                Err("must be between 1 s and 12 h".to_owned())
            }
            lease => Ok(lease),
        };
        let visibility = checked(&mut problems, "visibility", visibility);
        let attempts = number(self.attempts_max.unwrap_or(0), 0, i64::from(u16::MAX));
        let attempts = checked(&mut problems, "attempts-max", attempts);
        let attempts = attempts.and_then(|count| u16::try_from(count).ok());
        match (name, uri, connections.and_then(non_zero), visibility, attempts) {
            (Some(name), Some(uri), Some(connections), Some(visibility), Some(attempts_max)) => {
                Ok(QueueEntry { name, uri, connections, visibility, ordering: self.ordering, attempts_max })
            }
            _ => Err(problems),
        }
    }
}

fn checked<T>(problems: &mut Vec<FieldProblem>, field: &'static str, value: Result<T, String>) -> Option<T> {
    value.map_err(|problem| problems.push(FieldProblem { field, problem })).ok()
}

fn non_zero(number: i64) -> Option<NonZeroU16> {
    u16::try_from(number).ok().and_then(NonZeroU16::new)
}

fn number(written: i64, min: i64, max: i64) -> Result<i64, String> {
    if (min..=max).contains(&written) {
        return Ok(written);
    }
    Err(format!("is {written}; write a number from {min} to {max}"))
}

fn name(written: Option<&str>) -> Result<String, String> {
    match written {
        None | Some("") => Err("is missing; write a name such as ORDERS".into()),
        Some(long) if long.len() > NAME_BYTES_MAX => {
            Err(format!("is {} bytes long; write at most {NAME_BYTES_MAX}", long.len()))
        }
        Some(odd) if odd.chars().any(char::is_control) => {
            Err("holds a control character; write letters, digits and signs".into())
        }
        Some(odd) if odd.trim() != odd => Err("starts or ends with a space; take it away".into()),
        Some(fine) => Ok(fine.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> PoolDraft {
        PoolDraft { code: Some("P".into()), concurrency: Some(5), ..PoolDraft::default() }
    }

    fn queue() -> QueueDraft {
        QueueDraft { name: Some("q".into()), uri: Some("sqlite:q.db".into()), ..QueueDraft::default() }
    }

    #[test]
    fn a_pool_is_checked_field_by_field() {
        let entry = pool().check().expect("a pool");
        assert_eq!((entry.spec.concurrency.get(), entry.spec.rate_per_minute), (5, None));
        let free = PoolDraft { rate_per_minute: Some(0), ..pool() }.check().expect("a pool without a rate");
        assert_eq!(free.spec.rate_per_minute, None, "0 means no limit");
        let rows = [
            (PoolDraft { code: None, ..pool() }, "code", "missing"),
            (PoolDraft { code: Some("a\nb".into()), ..pool() }, "code", "control"),
            (PoolDraft { code: Some(" a".into()), ..pool() }, "code", "space"),
            (PoolDraft { code: Some("x".repeat(513)), ..pool() }, "code", "513 bytes"),
            (PoolDraft { concurrency: None, ..pool() }, "concurrency", "missing"),
            (PoolDraft { concurrency: Some(0), ..pool() }, "concurrency", "1 to 65535"),
            (PoolDraft { concurrency: Some(65_536), ..pool() }, "concurrency", "65536"),
            (PoolDraft { rate_per_minute: Some(-1), ..pool() }, "rate-per-minute", "-1"),
            (PoolDraft { batch_max: Some(0), ..pool() }, "batch-max", "0"),
        ];
        for (draft, field, word) in rows {
            let problems = draft.check().expect_err(field);
            assert!(problems.len() == 1 && problems[0].field == field, "{problems:?}");
            assert!(problems[0].problem.contains(word), "{problems:?}");
        }
    }

    #[test]
    fn a_queue_is_checked_field_by_field_and_all_problems_are_told() {
        let entry = queue().check().expect("a queue");
        assert_eq!((entry.connections.get(), entry.attempts_max), (1, 0));
        let rows = [
            (QueueDraft { name: None, ..queue() }, "name", "missing"),
            (QueueDraft { uri: None, ..queue() }, "uri", "missing"),
            (QueueDraft { uri: Some("kafka://h/t".into()), ..queue() }, "uri", "kafka"),
            (QueueDraft { uri: Some(format!("nats://{}", "h".repeat(2048))), ..queue() }, "uri", "longer"),
            (QueueDraft { connections: Some(0), ..queue() }, "connections", "1 to 100"),
            (QueueDraft { visibility: Some(Duration::ZERO), ..queue() }, "visibility", "12 h"),
            (QueueDraft { attempts_max: Some(70_000), ..queue() }, "attempts-max", "70000"),
        ];
        for (draft, field, word) in rows {
            let problems = draft.check().expect_err(field);
            assert!(problems.len() == 1 && problems[0].field == field, "{problems:?}");
            assert!(problems[0].problem.contains(word), "{problems:?}");
        }
        let all = QueueDraft { connections: Some(0), ..QueueDraft::default() }.check().expect_err("three");
        assert_eq!(all.len(), 3, "{all:?}");
    }
}
