//! Pools and queues in a line each, for people. Code and name are left to the caller; no password is shown.

use std::fmt;

use super::{PoolEntry, QueueEntry};

impl fmt::Display for PoolEntry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spec = &self.spec;
        write!(out, "concurrency {}", spec.concurrency)?;
        if let Some(rate) = spec.rate_per_minute {
            write!(out, ", {rate}/min")?;
        }
        if spec.batch_max.get() > 1 {
            write!(out, ", batch-max {}", spec.batch_max)?;
        }
        if spec.ungrouped_parallel {
            out.write_str(", ungrouped parallel")?;
        }
        Ok(())
    }
}

impl fmt::Display for QueueEntry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.uri.broker(), self.uri)?;
        if self.connections.get() > 1 {
            write!(out, ", connections {}", self.connections)?;
        }
        if let Some(lease) = self.visibility {
            write!(out, ", visibility {}", humantime::format_duration(lease))?;
        }
        if let Some(ordering) = self.ordering {
            write!(out, ", ordering {}", format!("{ordering:?}").to_ascii_lowercase())?;
        }
        if self.attempts_max > 0 {
            write!(out, ", attempts-max {}", self.attempts_max)?;
        }
        Ok(())
    }
}
