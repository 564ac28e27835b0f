//! A pool's settings.

use std::num::{NonZeroU16, NonZeroU32};

/// What an operator says of a pool. Concurrency and rate are promises about the whole pool,
/// however its groups hash to shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// Calls in flight at most.
    pub concurrency: NonZeroU16,
    /// Messages started per one-minute window at most.
    pub rate_per_minute: Option<NonZeroU32>,
    /// Messages of one lane that may ride in one request, as a JSON array. 1 = the body as it is.
    pub batch_max: NonZeroU16,
    /// Messages without a group run side by side instead of one at a time.
    pub ungrouped_parallel: bool,
}

impl PoolSpec {
    /// Waiting messages per unit of concurrency.
    pub const CAPACITY_FACTOR: u32 = 20;
    /// Fewest waiting messages.
    pub const CAPACITY_MIN: u32 = 50;
    /// Concurrency of the pool for messages whose pool is unknown.
    pub const DEFAULT_CONCURRENCY: NonZeroU16 = NonZeroU16::new(20).expect("not zero");

    /// A pool with this concurrency and nothing else.
    #[must_use]
    pub const fn new(concurrency: NonZeroU16) -> Self {
        Self { concurrency, rate_per_minute: None, batch_max: NonZeroU16::MIN, ungrouped_parallel: false }
    }

    /// Messages that may wait: `max(concurrency × 20, 50)`.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        let capacity = self.concurrency.get() as u32 * Self::CAPACITY_FACTOR;
        if capacity > Self::CAPACITY_MIN { capacity } else { Self::CAPACITY_MIN }
    }
}
