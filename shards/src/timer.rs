//! A timer wheel: millisecond ticks, six levels of 64 slots (two years). Inserting is O(1), nothing is
//! cancelled: the owner of a key checks whether it is still due. Pure. Core: its owner's.
//!
//! - T1: a key never fires early, and fires in the first `advance` a tick or more after it is due.

use crate::clock::Moment;

const LEVELS: usize = 6;
const SLOTS: usize = 64;
/// Bits of a tick that choose a slot, per level.
const BITS: u32 = 6;
/// How far a level's ticks are shifted.
const SHIFTS: [u32; LEVELS] = [0, BITS, 2 * BITS, 3 * BITS, 4 * BITS, 5 * BITS];

/// Fires keys at moments.
#[derive(Debug)]
pub struct Wheel<K> {
    tick: u64,
    count: usize,
    occupied: [u64; LEVELS],
    slots: Vec<Vec<(u64, K)>>,
    moving: Vec<(u64, K)>,
}

impl<K: Copy> Wheel<K> {
    /// An empty wheel that starts at `now`.
    #[must_use]
    pub fn new(now: Moment) -> Self {
        let slots = std::iter::repeat_with(Vec::new).take(LEVELS * SLOTS).collect();
        Self { tick: now.millis(), count: 0, occupied: [0; LEVELS], slots, moving: Vec::new() }
    }

    /// Keys that have not fired.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// None are left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Fires `key` at `at`, or at the next tick if that has passed.
    pub fn insert(&mut self, at: Moment, key: K) {
        // Rounded up: never early.
        let due = at.nanos().div_ceil(1_000_000).max(self.tick + 1);
        self.count += 1;
        self.place(due, key);
    }

    fn place(&mut self, due: u64, key: K) {
        let ahead = due ^ self.tick;
        let level = ((ahead | 1).ilog2() / BITS) as usize;
        let level = level.min(LEVELS - 1);
        let slot = slot(due, level);
        self.occupied[level] |= 1 << slot;
        self.slots[level * SLOTS + slot].push((due, key));
    }

    /// Fires everything that is due by `now`.
    pub fn advance(&mut self, now: Moment, mut fire: impl FnMut(K)) {
        let end = now.millis();
        while self.tick < end {
            if self.count == 0 {
                self.tick = end;
                return;
            }
            self.tick = self.next_stop().min(end);
            self.turn(&mut fire);
        }
    }

    /// The next tick at which a slot must be looked at: exact on level 0, a slot's start above it.
    fn next_stop(&self) -> u64 {
        let mut stop = u64::MAX;
        for (level, &shift) in SHIFTS.iter().enumerate() {
            let here = slot(self.tick, level);
            let ahead = self.occupied[level].rotate_right(u32::try_from(here).unwrap_or(0)) & !1;
            // Its own place, if occupied, holds what comes a full round later.
            let steps = match (ahead, self.occupied[level] >> here & 1) {
                (0, 0) => continue,
                (0, _) => SLOTS as u64,
                (ahead, _) => u64::from(ahead.trailing_zeros()),
            };
            stop = stop.min(((self.tick >> shift) + steps) << shift);
        }
        stop
    }

    fn turn(&mut self, fire: &mut impl FnMut(K)) {
        for level in (0..LEVELS).rev() {
            if self.tick & ((1 << SHIFTS[level]) - 1) != 0 {
                continue;
            }
            let slot = slot(self.tick, level);
            if self.occupied[level] >> slot & 1 == 0 {
                continue;
            }
            self.occupied[level] &= !(1 << slot);
            let mut moving = std::mem::take(&mut self.moving);
            std::mem::swap(&mut moving, &mut self.slots[level * SLOTS + slot]);
            for (due, key) in moving.drain(..) {
                if due <= self.tick {
                    self.count -= 1;
                    fire(key);
                } else {
                    self.place(due, key);
                }
            }
            self.moving = moving;
        }
    }

    /// When to call `advance` next; at or before the first due key.
    #[must_use]
    pub fn next(&self) -> Option<Moment> {
        (self.count > 0).then(|| Moment::from_nanos(self.next_stop().saturating_mul(1_000_000)))
    }
}

/// The slot of a tick on a level.
#[expect(clippy::cast_possible_truncation, reason = "below the number of slots")]
const fn slot(tick: u64, level: usize) -> usize {
    (tick >> SHIFTS[level]) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn ms(n: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(n)
    }

    /// A small generator: the crate draws no random numbers of its own.
    fn noise(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    #[test]
    fn keys_fire_in_time_and_never_early() {
        let mut state = 0x5eed;
        for _ in 0..200 {
            let start = noise(&mut state) % 10_000_000;
            let mut wheel = Wheel::new(ms(start));
            let mut waiting = Vec::new();
            let mut now = start;
            for key in 0..200_u64 {
                let spread = 1 << (noise(&mut state) % 28);
                let due = now + noise(&mut state) % spread;
                wheel.insert(ms(due), key);
                waiting.push((key, due.max(now + 1)));
                now += noise(&mut state) % (1 << (noise(&mut state) % 14));
                wheel.advance(ms(now), |key| {
                    let at = waiting.iter().position(|row| row.0 == key).expect("T1: fired once");
                    let (_, due) = waiting.swap_remove(at);
                    assert!(due <= now, "T1: {key} due {due} fired at {now}");
                });
                assert!(waiting.iter().all(|row| row.1 > now), "T1: late at {now}: {waiting:?}");
            }
            while let Some(next) = wheel.next() {
                let first = waiting.iter().map(|row| row.1).min().expect("as many as the wheel has");
                assert!(next <= ms(first), "the wheel asks to be woken in time");
                wheel.advance(next, |key| waiting.retain(|row| row.0 != key));
            }
            assert!(waiting.is_empty() && wheel.is_empty());
        }
    }

    #[test]
    fn a_fraction_of_a_tick_is_rounded_up() {
        let mut wheel = Wheel::new(ms(0));
        wheel.insert(Moment::from_nanos(1_500_000), ());
        let mut fired = 0;
        wheel.advance(ms(1), |()| fired += 1);
        assert_eq!(fired, 0, "T1");
        wheel.advance(ms(2), |()| fired += 1);
        assert_eq!(fired, 1);
    }
}
