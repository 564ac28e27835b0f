//! The simulator's only source of chance: splitmix64. One seed, one run, on every machine.

use std::time::Duration;

/// A seeded generator.
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

/// One step of splitmix64; also mixes the trace.
pub(super) const fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    pub(super) const fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// From 0 to `n - 1`.
    pub(super) const fn below(&mut self, n: u64) -> u64 {
        ((self.next() as u128 * n as u128) >> 64) as u64
    }

    /// From `low` to `high`, both included.
    pub(super) const fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True `per_million` times in a million.
    pub(super) const fn chance(&mut self, per_million: u32) -> bool {
        self.below(1_000_000) < per_million as u64
    }

    /// One of several.
    #[expect(clippy::cast_possible_truncation, reason = "less than a length")]
    pub(super) const fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// A duration between two numbers of microseconds.
    pub(super) const fn micros(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(self.range(low, high))
    }

    /// Mostly near `low`, now and then up to `high`: how networks behave.
    pub(super) const fn latency(&mut self, low: u64, high: u64) -> Duration {
        let usual = low + (high - low) / 16;
        if self.chance(20_000) { self.micros(low, high) } else { self.micros(low, usual) }
    }
}
