//! Answers that are not due yet. Pure.
//!
//! A benchmark uses one delay for all requests, and equal delays fall due in the order they were asked for: a
//! queue per delay, no sorting. Only a run with many different delays pays for a heap.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

/// Different delays that get a queue of their own. Looking for the right one is a scan, so few.
const QUEUES_MAX: usize = 8;

/// Keys by due time.
#[derive(Debug)]
pub(super) struct Delays {
    queues: Vec<(Duration, VecDeque<(Instant, usize)>)>,
    heap: BinaryHeap<Reverse<(Instant, usize)>>,
}

impl Delays {
    /// Nothing is due.
    pub(super) fn new() -> Self {
        Self { queues: Vec::new(), heap: BinaryHeap::new() }
    }

    /// `key` falls due `delay` after `now`; `now` never goes back.
    pub(super) fn push(&mut self, now: Instant, delay: Duration, key: usize) {
        let entry = (now + delay, key);
        if let Some((_, queue)) = self.queues.iter_mut().find(|(of, _)| *of == delay) {
            queue.push_back(entry);
        } else if self.queues.len() < QUEUES_MAX {
            self.queues.push((delay, VecDeque::from([entry])));
        } else if let Some((of, queue)) = self.queues.iter_mut().find(|(_, queue)| queue.is_empty()) {
            *of = delay;
            queue.push_back(entry);
        } else {
            self.heap.push(Reverse(entry));
        }
    }

    /// When the next key falls due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let queued = self.queues.iter().filter_map(|(_, queue)| queue.front()).map(|(due, _)| *due).min();
        let heaped = self.heap.peek().map(|Reverse((due, _))| *due);
        [queued, heaped].into_iter().flatten().min()
    }

    /// Moves the keys that are due into `out`, queue by queue.
    pub(super) fn take_due(&mut self, now: Instant, out: &mut Vec<usize>) {
        for (_, queue) in &mut self.queues {
            let count = queue.iter().take_while(|(due, _)| *due <= now).count();
            out.extend(queue.drain(..count).map(|(_, key)| key));
        }
        while self.heap.peek().is_some_and(|Reverse((due, _))| *due <= now) {
            out.extend(self.heap.pop().map(|Reverse((_, key))| key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn every_key_falls_due_once_and_not_early() {
        let start = Instant::now();
        let mut delays = Delays::new();
        // More delays than queues, so that the heap takes part.
        for key in 0..100_usize {
            delays.push(start, MS * u32::try_from(key * 7 % 20 + 1).expect("small"), key);
        }
        let mut seen = Vec::new();
        for ms in 0..=20 {
            let mut due = Vec::new();
            delays.take_due(start + MS * ms, &mut due);
            assert!(due.iter().all(|key| u32::try_from(key * 7 % 20 + 1) == Ok(ms)), "{ms} ms: {due:?}");
            seen.extend(due);
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
        assert_eq!(delays.next_due(), None);
    }

    #[test]
    fn the_next_due_is_the_earliest_of_all() {
        let start = Instant::now();
        let mut delays = Delays::new();
        assert_eq!(delays.next_due(), None);
        for delay in (1..=12).rev() {
            delays.push(start, MS * delay, 0);
            assert_eq!(delays.next_due(), Some(start + MS * delay));
        }
    }
}
