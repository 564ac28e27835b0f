//! A tiny local executor: slots with a bell each, and one bit that says whether any bell was rung.
//! Core: its shard's. Owns: what it polls.
//!
//! Wakers must be `Send`, so bells are atomics in an `Arc`; all of them are rung on this core.

use std::cell::RefCell;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

type Task = Pin<Box<dyn Future<Output = ()>>>;

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

/// Rings for one slot.
struct Bell {
    rung: AtomicBool,
    bit: Bit,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        self.bit.set();
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
    free: Vec<usize>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { list: Vec::new(), free: Vec::new() }
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
        bit.set();
        if let Some(slot) = self.free.pop().and_then(|at| self.list.get_mut(at)) {
            slot.item = Some(item);
            slot.bell.rung.store(true, Ordering::Release);
            return;
        }
        let bell = Arc::new(Bell { rung: AtomicBool::new(true), bit: bit.clone() });
        let waker = Waker::from(Arc::clone(&bell));
        self.list.push(Slot { item: Some(item), bell, waker });
    }

    /// Polls what was rung for; what is ready leaves.
    pub(super) fn poll<R>(
        &mut self,
        mut poll: impl FnMut(&mut T, &mut Context<'_>) -> Poll<R>,
        mut on_ready: impl FnMut(R),
    ) {
        for (at, slot) in self.list.iter_mut().enumerate() {
            let Some(item) = &mut slot.item else { continue };
            if slot.bell.rung.swap(false, Ordering::AcqRel)
                && let Poll::Ready(result) = poll(item, &mut Context::from_waker(&slot.waker))
            {
                slot.item = None;
                self.free.push(at);
                on_ready(result);
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
