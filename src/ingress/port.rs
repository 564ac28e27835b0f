//! Between the ingress loop and one source: what it may receive, what it received, what it is to be told.
//! Two local tasks per source, so that a long poll never holds up an ack.

use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::Duration;

use shards::desk::{Arrival, Receipt, Tell};
use shards::model::{IdHasher, SourceId};
use tokio::sync::Notify;

use super::source::{Answer, ReceiveError, Source};

/// Pause after a failed receive: doubles from the first to the second.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// One source's port. Lives on the ingress thread.
pub(super) struct Port {
    pub(super) id: SourceId,
    hasher: IdHasher,
    /// Messages that may be asked for; 0 = do not poll.
    room: Cell<usize>,
    receiving: Cell<bool>,
    settling: Cell<bool>,
    stopped: RefCell<Option<String>>,
    inbox: RefCell<Vec<Vec<Arrival>>>,
    outbox: RefCell<Vec<(Receipt, Tell)>>,
    answers: RefCell<Vec<Answer>>,
    may_receive: Notify,
    must_settle: Notify,
    /// Wakes the ingress loop.
    changed: Rc<Notify>,
}

impl Port {
    pub(super) fn new(id: SourceId, hasher: IdHasher, changed: Rc<Notify>) -> Self {
        Self {
            id,
            hasher,
            room: Cell::new(0),
            receiving: Cell::new(false),
            settling: Cell::new(false),
            stopped: RefCell::default(),
            inbox: RefCell::default(),
            outbox: RefCell::default(),
            answers: RefCell::default(),
            may_receive: Notify::new(),
            must_settle: Notify::new(),
            changed,
        }
    }

    /// Lets the source ask for `room` messages.
    pub(super) fn set_room(&self, room: usize) {
        if !self.receiving.get() && self.inbox.borrow().is_empty() {
            self.room.set(room);
            if room > 0 {
                self.may_receive.notify_one();
            }
        }
    }

    pub(super) fn tell(&self, receipt: Receipt, tell: Tell) {
        self.outbox.borrow_mut().push((receipt, tell));
    }

    pub(super) fn flush(&self) {
        if !self.outbox.borrow().is_empty() {
            self.must_settle.notify_one();
        }
    }

    pub(super) fn take_batches(&self) -> Vec<Vec<Arrival>> {
        std::mem::take(&mut *self.inbox.borrow_mut())
    }

    pub(super) fn take_answers(&self) -> Vec<Answer> {
        std::mem::take(&mut *self.answers.borrow_mut())
    }

    /// Nothing is being received or told.
    pub(super) fn is_quiet(&self) -> bool {
        let waiting = self.outbox.borrow().is_empty() && self.inbox.borrow().is_empty();
        waiting && self.answers.borrow().is_empty() && !self.receiving.get() && !self.settling.get()
    }

    /// Why it receives no more, if so.
    pub(super) fn stopped(&self) -> Option<String> {
        self.stopped.borrow().clone()
    }

    /// The receiving task.
    pub(super) async fn pull(self: Rc<Self>, source: Rc<impl Source>) {
        let mut pause = BACKOFF.0;
        loop {
            let Some(max) = NonZeroUsize::new(self.room.replace(0)) else {
                self.may_receive.notified().await;
                continue;
            };
            self.receiving.set(true);
            let received = source.receive(self.id, self.hasher, max).await;
            self.receiving.set(false);
            match received {
                Ok(batch) => {
                    pause = BACKOFF.0;
                    self.inbox.borrow_mut().push(batch);
                    self.changed.notify_one();
                }
                Err(ReceiveError::Unreachable(_)) => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(BACKOFF.1);
                    self.changed.notify_one();
                }
                Err(error @ (ReceiveError::Denied { .. } | ReceiveError::Ended)) => {
                    *self.stopped.borrow_mut() = Some(error.to_string());
                    self.changed.notify_one();
                    return;
                }
            }
        }
    }

    /// The telling task.
    pub(super) async fn push(self: Rc<Self>, source: Rc<impl Source>) {
        loop {
            let tells = std::mem::take(&mut *self.outbox.borrow_mut());
            if tells.is_empty() {
                self.must_settle.notified().await;
                continue;
            }
            self.settling.set(true);
            let answers = source.settle(tells).await;
            self.settling.set(false);
            self.answers.borrow_mut().extend(answers);
            self.changed.notify_one();
        }
    }
}
