//! A tiny local executor: slots with a bell each, a word per 64 of them that says which were rung, and one bit that
//! says whether any was. What did not ring costs nothing.
//! Core: its shard's. Owns: what it polls.
//!
//! Wakers must be `Send`, so words are atomics in an `Arc`; all of them are written on this core.

use std::cell::RefCell;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Slots of a word.
const WORD: usize = u64::BITS as usize;

/// The ready bit of one connection.
#[derive(Clone, Default)]
pub(super) struct Bit(Arc<AtomicBool>);

impl Bit {
    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }

    fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Which of 64 slots were rung.
type Word = Arc<AtomicU64>;

/// Rings for one slot.
struct Bell {
    word: Word,
    mask: u64,
    bit: Bit,
}

impl Bell {
    fn ring(&self) {
        self.word.fetch_or(self.mask, Ordering::AcqRel);
        self.bit.set();
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

struct Slot<T> {
    item: Option<T>,
    bell: Arc<Bell>,
    waker: Waker,
}

/// Things to poll. A slot keeps its bell for its next tenant, so that no waker is allocated per call.
pub(super) struct Slots<T> {
    list: Vec<Slot<T>>,
    words: Vec<Word>,
    free: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { list: Vec::new(), words: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    pub(super) fn len(&self) -> usize {
        self.list.len() - self.free.len()
    }

    pub(super) fn first(&self) -> Option<&T> {
        self.iter().next()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.list.iter().filter_map(|slot| slot.item.as_ref())
    }

    /// Adds an item, to be polled in the next round.
    pub(super) fn add(&mut self, item: T, bit: &Bit) {
        if let Some(slot) = self.free.pop().and_then(|at| self.list.get_mut(at)) {
            slot.item = Some(item);
            slot.bell.ring();
            return;
        }
        let at = self.list.len();
        if at.is_multiple_of(WORD) {
            self.words.push(Word::default());
        }
        let word = Arc::clone(&self.words[at / WORD]);
        let bell = Arc::new(Bell { word, mask: 1 << (at % WORD), bit: bit.clone() });
        bell.ring();
        let waker = Waker::from(Arc::clone(&bell));
        self.list.push(Slot { item: Some(item), bell, waker });
    }

    /// Polls what was rung for; what is ready leaves. What rings meanwhile sets the bit again, for another round.
    pub(super) fn poll<R>(
        &mut self,
        mut poll: impl FnMut(&mut T, &mut Context<'_>) -> Poll<R>,
        mut on_ready: impl FnMut(R),
    ) {
        for (number, word) in self.words.iter().enumerate() {
            let mut rung = word.swap(0, Ordering::AcqRel);
            while rung != 0 {
                let at = number * WORD + rung.trailing_zeros() as usize;
                rung &= rung - 1;
                let Some(slot) = self.list.get_mut(at) else { continue };
                let Some(item) = &mut slot.item else { continue };
                if let Poll::Ready(result) = poll(item, &mut Context::from_waker(&slot.waker)) {
                    slot.item = None;
                    self.free.push(at);
                    on_ready(result);
                }
            }
        }
    }

    /// Drops items. What hears of it rings by itself; the bit is set in any case.
    pub(super) fn retain(&mut self, bit: &Bit, mut keep: impl FnMut(&mut T) -> bool) {
        for (at, slot) in self.list.iter_mut().enumerate() {
            if let Some(item) = &mut slot.item
                && !keep(item)
            {
                slot.item = None;
                self.free.push(at);
                bit.set();
            }
        }
    }
}

/// Where hyper puts the tasks it spawns.
#[derive(Clone, Default)]
pub(super) struct Exec(Rc<RefCell<Vec<Task>>>);

impl Exec {
    pub(super) fn take(&self) -> Vec<Task> {
        mem::take(&mut *self.0.borrow_mut())
    }
}

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for Exec {
    fn execute(&self, task: F) {
        self.0.borrow_mut().push(Box::pin(task));
    }
}
