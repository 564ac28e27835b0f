//! Between the ingress loop and one source: what it may receive, what it received, what it is to be told.
//! Two local tasks per source, so that a long poll never holds up an ack.

use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::time::Duration;

use shards::clock::{Clock, Moment};
use shards::desk::{Arrival, Receipt, Tell};
use shards::model::{DeadReason, NackReason, Ordering, Parcel, SourceId, Ticket};
use tokio::sync::Notify;

use super::aside::{Letter, SetAside, detail, note_letters};
use super::command::{SourceCounts, SourceLook};
use super::source::{Answer, Linger, ReceiveError, Scope, Source, Unreadable};

/// Pause after a failed receive: doubles from the first to the second.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// How often a broker is asked how much waits there.
const DEPTH_EVERY: Duration = Duration::from_secs(5);
/// Delay of a message that can't be read and could not be set aside.
const UNREADABLE_DELAY_S: u32 = 30;

/// How long a consumer waits for the one before it to receive no more. One that is stuck hands nothing over either, but
/// its broker may have handed over to it.
const PREDECESSOR_WAIT_MAX: Duration = Duration::from_secs(30);

/// One source's port. Lives on the ingress thread.
pub(super) struct Port {
    pub(super) id: SourceId,
    pub(super) queue: String,
    pub(super) place: String,
    pub(super) ordering: Ordering,
    scope: Scope,
    /// Messages that may be asked for; 0 = do not poll.
    room: Cell<usize>,
    receiving: Cell<bool>,
    /// Calls of `settle` under way.
    settling: Cell<usize>,
    retired: Cell<bool>,
    /// It receives no more, and what it had of the broker's is back.
    shut: Cell<bool>,
    stopped: Cell<bool>,
    /// Nothing will be told any more: the tasks end.
    closed: Cell<bool>,
    error: RefCell<Option<String>>,
    polled_at: Cell<Moment>,
    depth: Cell<Option<u64>>,
    counts: Cell<SourceCounts>,
    inbox: RefCell<Vec<Vec<Arrival>>>,
    outbox: RefCell<Vec<(Receipt, Tell)>>,
    answers: RefCell<Vec<Answer>>,
    may_receive: Notify,
    has_retired: Notify,
    has_shut: Notify,
    must_settle: Notify,
    has_settled: Notify,
    /// Wakes the ingress loop.
    changed: Rc<Notify>,
}

impl Port {
    pub(super) fn new(
        (id, queue, place): (SourceId, String, String),
        ordering: Ordering,
        scope: Scope,
        changed: Rc<Notify>,
        now: Moment,
    ) -> Self {
        Self {
            id,
            queue,
            place,
            ordering,
            scope,
            room: Cell::new(0),
            receiving: Cell::new(false),
            settling: Cell::new(0),
            retired: Cell::new(false),
            shut: Cell::new(false),
            stopped: Cell::new(false),
            closed: Cell::new(false),
            error: RefCell::default(),
            polled_at: Cell::new(now),
            depth: Cell::new(None),
            counts: Cell::default(),
            inbox: RefCell::default(),
            outbox: RefCell::default(),
            answers: RefCell::default(),
            may_receive: Notify::new(),
            has_retired: Notify::new(),
            has_shut: Notify::new(),
            must_settle: Notify::new(),
            has_settled: Notify::new(),
            changed,
        }
    }

    pub(super) const fn scope(&self) -> Scope {
        self.scope
    }

    /// Lets the source ask for `room` messages. A pause of ours does not count as its silence: that begins when it may
    /// ask again, except that one which can't reach its broker has been silent since it could.
    pub(super) fn set_room(&self, room: usize, now: Moment) {
        if !self.receiving.get() && self.inbox.borrow().is_empty() {
            let paused = self.room.replace(room) == 0;
            if room > 0 {
                if paused && self.error.borrow().is_none() {
                    self.polled_at.set(now);
                }
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

    /// Nothing is being received or told, and one that is leaving has given back what nobody received.
    pub(super) fn is_quiet(&self) -> bool {
        if self.retired.get() && !self.shut.get() {
            return false;
        }
        let waiting = self.outbox.borrow().is_empty() && self.inbox.borrow().is_empty();
        waiting && self.answers.borrow().is_empty() && !self.receiving.get() && self.settling.get() == 0
    }

    /// Receives no more, once what it waits for has come.
    pub(super) fn retire(&self) {
        self.retired.set(true);
        self.may_receive.notify_one();
        self.has_retired.notify_one();
    }

    /// Ends its tasks, and with them its source.
    pub(super) fn close(&self) {
        self.closed.set(true);
        self.must_settle.notify_one();
    }

    pub(super) fn counts(&self) -> SourceCounts {
        self.counts.get()
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired.get()
    }

    pub(super) fn look(&self, now: Moment) -> SourceLook {
        SourceLook {
            id: self.id,
            queue: self.queue.clone(),
            ordering: self.ordering,
            retired: self.retired.get(),
            paused: !self.receiving.get() && self.room.get() == 0,
            since_poll: now.since(self.polled_at.get()),
            error: self.error.borrow().clone(),
            stopped: self.stopped.get(),
            counts: self.counts.get(),
            depth: self.depth.get(),
        }
    }

    /// Waits until it receives no more.
    async fn has_shut(&self) {
        while !self.shut.get() {
            self.has_shut.notified().await;
        }
    }

    /// The receiving task. `before`: the queue's last consumer, where the broker does not lock groups: what it
    /// received must come before what this one receives.
    pub(super) async fn pull(
        self: Rc<Self>,
        source: Rc<impl Source>,
        aside: Rc<impl SetAside>,
        before: Option<Rc<Self>>,
    ) {
        if let Some(before) = before {
            let shut = tokio::time::timeout(PREDECESSOR_WAIT_MAX, before.has_shut()).await;
            if shut.is_err() {
                self.answers.borrow_mut().push(Answer::Unheard { until: Clock.now() });
            }
            self.polled_at.set(Clock.now());
            // How much may be asked for is said anew, after what the one before said at its end.
            self.room.set(0);
            self.changed.notify_one();
        }
        self.receive_all(&*source, &*aside).await;
        let unheard = source.stop().await;
        self.answers.borrow_mut().extend(unheard.map(|until| Answer::Unheard { until }));
        self.shut.set(true);
        self.has_shut.notify_waiters();
        self.changed.notify_one();
    }

    async fn receive_all(&self, source: &impl Source, aside: &impl SetAside) {
        let mut pause = BACKOFF.0;
        while !self.retired.get() {
            let Some(max) = NonZeroUsize::new(self.room.replace(0)) else {
                self.may_receive.notified().await;
                continue;
            };
            self.receiving.set(true);
            let received = source.receive(self.scope, max).await;
            match received {
                Ok(batch) => {
                    pause = BACKOFF.0;
                    self.polled_at.set(Clock.now());
                    self.error.replace(None);
                    self.answers.borrow_mut().extend(batch.connected.map(Answer::Connected));
                    let count = batch.arrivals.len() + batch.unreadable.len();
                    self.count(|counts| counts.received += count as u64);
                    self.inbox.borrow_mut().push(batch.arrivals);
                    if !batch.unreadable.is_empty() {
                        self.set_aside_unreadable(batch.unreadable, aside).await;
                    }
                    self.receiving.set(false);
                    self.changed.notify_one();
                }
                Err(ReceiveError::Unreachable(error)) => {
                    self.receiving.set(false);
                    self.error.replace(Some(error.to_string()));
                    self.changed.notify_one();
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = self.has_retired.notified() => {}
                    }
                    pause = (pause * 2).min(BACKOFF.1);
                    self.changed.notify_one();
                }
                Err(error @ (ReceiveError::Denied { .. } | ReceiveError::Ended)) => {
                    self.receiving.set(false);
                    self.error.replace(Some(error.to_string()));
                    self.stopped.set(true);
                    self.changed.notify_one();
                    return;
                }
            }
        }
    }

    /// The telling task.
    pub(super) async fn push(
        self: Rc<Self>,
        source: Rc<impl Source + 'static>,
        aside: Rc<impl SetAside + 'static>,
    ) {
        let at_once = source.settles_at_once();
        loop {
            while self.settling.get() >= at_once {
                self.has_settled.notified().await;
            }
            if self.outbox.borrow().is_empty() {
                if self.closed.get() {
                    return;
                }
                self.must_settle.notified().await;
                continue;
            }
            self.settling.set(self.settling.get() + 1);
            self.gather(source.linger()).await;
            let tells = std::mem::take(&mut *self.outbox.borrow_mut());
            let turn = Rc::clone(&self).settle_turn(tells, Rc::clone(&source), Rc::clone(&aside));
            if at_once == 1 {
                turn.await;
            } else {
                tokio::task::spawn_local(turn);
            }
        }
    }

    async fn settle_turn(
        self: Rc<Self>,
        tells: Vec<(Receipt, Tell)>,
        source: Rc<impl Source>,
        aside: Rc<impl SetAside>,
    ) {
        let (dead, rest): (Vec<_>, Vec<_>) =
            tells.into_iter().partition(|(_, tell)| matches!(tell, Tell::DeadLetter { .. }));
        self.settle(rest, &*source).await;
        // Last: a slow dead-letter store must not keep leases from being extended.
        if !dead.is_empty() {
            let acks = self.set_aside_dead(dead, &*aside).await;
            self.settle(acks, &*source).await;
        }
        self.settling.set(self.settling.get() - 1);
        self.has_settled.notify_one();
        self.changed.notify_one();
    }

    /// Waits for more to tell, where few things told apart cost more than a short wait.
    async fn gather(&self, linger: Option<Linger>) {
        let Some(Linger { count, wait }) = linger else { return };
        let until = tokio::time::Instant::now() + wait;
        while self.outbox.borrow().len() < count {
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                () = self.must_settle.notified() => {}
            }
        }
    }

    async fn settle(&self, tells: Vec<(Receipt, Tell)>, source: &impl Source) {
        if tells.is_empty() {
            return;
        }
        self.count(|counts| {
            for (_, tell) in &tells {
                match tell {
                    Tell::Ack { .. } => counts.acked += 1,
                    Tell::Nack { .. } | Tell::Answered { .. } => counts.nacked += 1,
                    Tell::Extend { .. } | Tell::DeadLetter { .. } => counts.extended += 1,
                }
            }
        });
        let answers = source.settle(tells).await;
        let failed = answers.iter().filter(|it| matches!(it, Answer::Closed { done: false, .. })).count();
        self.count(|counts| counts.acks_failed += failed as u64);
        self.answers.borrow_mut().extend(answers);
        self.changed.notify_one();
    }

    /// The task that asks how much waits at the broker.
    pub(super) async fn measure(self: Rc<Self>, source: Rc<impl Source>) {
        while !self.retired.get() && !self.stopped.get() {
            self.depth.set(source.depth().await);
            tokio::time::sleep(DEPTH_EVERY).await;
        }
    }

    /// Sets dead letters aside; returns an ack for each that was kept.
    async fn set_aside_dead(
        &self,
        tells: Vec<(Receipt, Tell)>,
        aside: &impl SetAside,
    ) -> Vec<(Receipt, Tell)> {
        let (mut rest, mut letters, mut tickets) = (Vec::with_capacity(tells.len()), Vec::new(), Vec::new());
        for (receipt, tell) in tells {
            if let Tell::DeadLetter { ticket, parcel, reason, status, attempts, dispatch, high_priority } =
                tell
            {
                let detail = detail(reason, status, attempts);
                letters.push(Letter {
                    key: receipt.key,
                    dispatch,
                    high_priority,
                    reason,
                    detail,
                    status,
                    attempts,
                    ..self.letter(&parcel)
                });
                tickets.push((receipt, ticket));
            } else {
                rest.push((receipt, tell));
            }
        }
        let count = letters.len() as u64;
        let reasons: Vec<DeadReason> = letters.iter().map(|letter| letter.reason).collect();
        note_letters(&letters);
        if aside.set_aside(letters).await.is_ok() {
            self.count(|counts| reasons.iter().for_each(|&reason| counts.set_aside[reason as usize] += 1));
            let ack = |(receipt, ticket): (Receipt, Ticket)| (receipt, Tell::Ack { ticket: Some(ticket) });
            rest.extend(tickets.into_iter().map(ack));
        } else {
            self.count(|counts| counts.not_set_aside += count);
            let mut answers = self.answers.borrow_mut();
            answers.extend(tickets.into_iter().map(|(_, ticket)| Answer::NotSetAside { ticket }));
        }
        rest
    }

    async fn set_aside_unreadable(&self, unreadable: Vec<Unreadable>, aside: &impl SetAside) {
        let mut letters = Vec::with_capacity(unreadable.len());
        let mut receipts = Vec::with_capacity(unreadable.len());
        for Unreadable { receipt, group, body, detail } in unreadable {
            receipts.push(receipt);
            letters.push(Letter {
                queue: self.queue.clone(),
                key: receipt.key,
                id: String::new(),
                group,
                pool: String::new(),
                target: String::new(),
                token: String::new(),
                dispatch: shards::model::Dispatch::default(),
                high_priority: false,
                body,
                reason: DeadReason::Malformed,
                detail,
                status: 0,
                attempts: 0,
            });
        }
        let count = letters.len() as u64;
        note_letters(&letters);
        let kept = aside.set_aside(letters).await.is_ok();
        self.count(|counts| {
            counts.unreadable += count;
            if kept {
                counts.set_aside[DeadReason::Malformed as usize] += count;
            } else {
                counts.not_set_aside += count;
            }
        });
        for receipt in receipts {
            let tell = if kept {
                Tell::Ack { ticket: None }
            } else {
                Tell::Nack { delay_s: UNREADABLE_DELAY_S, reason: NackReason::GivenBack }
            };
            self.tell(receipt, tell);
        }
        self.flush();
    }

    fn letter(&self, parcel: &Parcel) -> Letter {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Letter {
            queue: self.queue.clone(),
            key: 0,
            id: text(parcel.id()),
            group: text(parcel.group()),
            pool: text(parcel.pool()),
            target: parcel.target().to_owned(),
            token: text(parcel.token()),
            dispatch: shards::model::Dispatch::default(),
            high_priority: false,
            body: parcel.body().to_vec(),
            reason: DeadReason::Refused,
            detail: String::new(),
            status: 0,
            attempts: 0,
        }
    }

    fn count(&self, change: impl FnOnce(&mut SourceCounts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }
}

#[cfg(test)]
mod tests;
