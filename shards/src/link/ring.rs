//! One direction of a link: a bounded single-producer single-consumer ring that rings the
//! receiver's bell at most once a turn.
//!
//! - L1: what was pushed is popped exactly once, in order.
//! - L2: a full ring refuses; it never drops and never grows.

use std::sync::Arc;

use super::bell::Bell;

/// The sending end.
pub struct Tx<T> {
    ring: rtrb::Producer<T>,
    bell: Arc<Bell>,
    dirty: bool,
}

/// The receiving end.
pub struct Rx<T> {
    ring: rtrb::Consumer<T>,
}

/// A ring of `slots` slots whose receiver sleeps on `bell`.
#[must_use]
pub fn ring<T>(slots: usize, bell: Arc<Bell>) -> (Tx<T>, Rx<T>) {
    let (producer, consumer) = rtrb::RingBuffer::new(slots);
    (Tx { ring: producer, bell, dirty: false }, Rx { ring: consumer })
}

impl<T> Tx<T> {
    /// Pushes without waking anyone.
    ///
    /// # Errors
    /// Gives the value back if the ring is full.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), T> {
        match self.ring.push(value) {
            Ok(()) => {
                self.dirty = true;
                Ok(())
            }
            Err(rtrb::PushError::Full(value)) => Err(value),
        }
    }

    /// Free slots, at least.
    #[must_use]
    pub fn free(&self) -> usize {
        self.ring.slots()
    }

    /// Wakes the receiver if it sleeps and something was pushed since the last call.
    #[inline]
    pub fn ring_if_dirty(&mut self) {
        if self.dirty {
            self.dirty = false;
            self.bell.ring_if_asleep();
        }
    }

    /// The receiver is gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.ring.is_abandoned()
    }
}

impl<T> Rx<T> {
    /// The oldest value, if any.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        self.ring.pop().ok()
    }

    /// Values waiting, at least.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.slots()
    }

    /// Nothing is waiting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// The sender is gone; what it pushed can still be popped.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.ring.is_abandoned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_refuses_and_keeps_order() {
        let (mut tx, mut rx) = ring(4, Arc::new(Bell::new().expect("an eventfd")));
        for n in 0..4 {
            assert_eq!(tx.push(n), Ok(()));
        }
        assert_eq!(tx.push(4), Err(4), "L2");
        assert_eq!(rx.pop(), Some(0), "L1");
        assert_eq!(tx.push(4), Ok(()));
        assert_eq!(std::iter::from_fn(|| rx.pop()).collect::<Vec<_>>(), [1, 2, 3, 4], "L1");
    }

    #[test]
    fn values_cross_threads_in_order_and_the_sleeper_is_always_woken() {
        const COUNT: u64 = 100_000;
        let bell = Arc::new(Bell::new().expect("an eventfd"));
        let (mut tx, mut rx) = ring(64, Arc::clone(&bell));
        let sender = std::thread::spawn(move || {
            for n in 0..COUNT {
                let mut value = n;
                while let Err(back) = tx.push(value) {
                    tx.ring_if_dirty();
                    value = back;
                    std::thread::yield_now();
                }
                if n % 7 == 0 {
                    tx.ring_if_dirty();
                }
            }
            tx.ring_if_dirty();
        });
        let mut next = 0;
        while next < COUNT {
            while let Some(value) = rx.pop() {
                assert_eq!(value, next, "L1");
                next += 1;
            }
            if next < COUNT && bell.flag().try_sleep(|| !rx.is_empty()) {
                bell.wait_blocking();
                bell.flag().wake();
            }
        }
        sender.join().expect("the sender ends");
    }
}
