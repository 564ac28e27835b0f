//! How many messages a broker may have handed over unsettled. Pure.
//!
//! A wider window is asked for at once, a narrower one after a while, and every connection begins with the widest: a broker
//! puts what a lost connection had before all else, but behind what is still left over from the one before that. If all of
//! it fits into the window there is never anything left over, and the order holds.

use std::time::Duration;

use shards::clock::Moment;

/// How long a wide window must have been of no use before it is narrowed.
const NARROW_AFTER: Duration = Duration::from_secs(5);
/// No window is narrower: a few messages are always on their way.
const LEAST: usize = 16;
/// The broker takes this window for "no wish" and puts its own policy in its place.
const OF_THE_BROKER: u16 = 1_000;
/// Bytes of unsettled messages, as far as the window can see to it.
const BYTES_MAX: usize = 64 << 20;

/// A consumer's window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    widest: u16,
    now: u16,
    /// The widest that was wanted since the last look.
    wanted: u16,
    look_at: Moment,
}

impl Window {
    /// The window of a new connection: `widest`, which is not the broker's number for "no wish".
    pub(super) fn new(widest: u16, now: Moment) -> Self {
        Self { widest, now: widest, wanted: 0, look_at: now + NARROW_AFTER }
    }

    /// As it was asked for last.
    pub(super) const fn now(&self) -> u16 {
        self.now
    }

    /// So many messages of so many bytes are here unsettled, and `room` more fit. Says if another window is to be asked
    /// for.
    pub(super) fn follow(&mut self, (count, bytes): (usize, usize), room: usize, now: Moment) -> Option<u16> {
        let fits = BYTES_MAX / (bytes / count.max(1)).max(1);
        let most = usize::from(self.widest).min(fits).max(1);
        let want = u16::try_from((count + room).max(LEAST).min(most)).unwrap_or(u16::MAX);
        let want = if want == OF_THE_BROKER { want + 1 } else { want };
        self.wanted = self.wanted.max(want);
        let mut next = self.now.max(want);
        if now >= self.look_at {
            self.look_at = now + NARROW_AFTER;
            next = std::mem::replace(&mut self.wanted, 0);
        }
        let changed = next != self.now;
        self.now = next;
        changed.then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_widens_at_once_and_narrows_after_a_while() {
        let at = |millis| Moment::ZERO + Duration::from_millis(millis);
        let mut window = Window::new(1_200, at(0));
        let rows = [
            // at     count  bytes       room   asked for   why
            (1, 0, 0, 50, None, "what an earlier connection had must all come"),
            (4_999, 100, 100, 50, None, "not yet"),
            (5_000, 90, 90, 10, Some(150), "the widest that was wanted"),
            (5_001, 150, 150, 400, Some(550), "room is used at once"),
            (5_002, 500, 500, 0, None, "and kept"),
            (5_003, 2_000, 2_000, 5_000, Some(1_200), "never wider than allowed"),
            (10_000, 0, 0, 0, None, "it was wanted since the last look"),
            (15_000, 0, 0, 0, Some(16), "a few are always on their way"),
            (15_001, 990, 990, 10, Some(1_001), "not the broker's number"),
            (20_000, 100, 100 << 20, 900, None, "it was wanted since the last look"),
            (25_000, 100, 100 << 20, 900, Some(64), "64 messages of 1 MiB"),
            (30_000, 1, 100 << 20, 900, Some(1), "at least one"),
        ];
        for (millis, count, bytes, room, want, why) in rows {
            assert_eq!(window.follow((count, bytes), room, at(millis)), want, "{why}");
        }
    }
}
