//! What a queue's consumers share: the session, and the memory of messages. When a consumer is replaced, the new one
//! goes on with both, so that nothing comes again or in another order. Lives on the ingress thread.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::RandomState;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU32, Ordering as Atomic};
use std::time::Duration;

use shards::clock::{Clock, Moment};
use shards::model::Ordering;
use tokio::sync::Mutex;

use super::address::Address;
use super::client::{Before, Pushed, Session};
use super::memory::Memory;
use crate::ingress::ReceiveError;

/// A prefetch that is too small becomes so many times as large: at most two new sessions in a process's life.
pub(super) const WIDER: u16 = 8;
/// How often a session is looked after.
const LOOK: Duration = Duration::from_secs(1);
/// How long what nobody received waits, after the last consumer's stop, for calls that are still running.
const RETURN_AFTER: Duration = Duration::from_secs(30);

/// Every session is another one, whichever queue it is of.
static EPOCHS: AtomicU32 = AtomicU32::new(1);

thread_local! {
    static QUEUES: RefCell<HashMap<(String, String), Weak<Shared>>> = RefCell::default();
}

/// What a consumer asks of its session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) ordering: Ordering,
    /// Messages unsettled at once: at first, and at most.
    pub(super) prefetch: (u16, u16),
    /// The longest that one may be unsettled.
    pub(super) hold_max: Option<Duration>,
}

/// What a queue's consumers share.
pub(super) struct Shared {
    session: RefCell<Option<Rc<Session>>>,
    connecting: Mutex<()>,
    pub(super) memory: RefCell<Memory>,
    /// For hashes of contents.
    pub(super) hashers: [RandomState; 2],
    /// A prefetch that was found to be too small.
    narrow: Cell<u16>,
    /// Keys below this one are used.
    next_key: Cell<u64>,
    /// Since the last session the server could not be reached: it may have crashed.
    was_away: Cell<bool>,
    /// The session before.
    before: Cell<Option<Before>>,
    /// Consumers that have not stopped.
    users: Cell<usize>,
    /// The last one stopped then.
    unused_since: Cell<Moment>,
}

impl Shared {
    /// What the consumers of this queue share, on this thread.
    pub(super) fn join(name: &str, uri: &str) -> Rc<Self> {
        QUEUES.with_borrow_mut(|queues| {
            queues.retain(|_, shared| shared.strong_count() > 0);
            let key = (name.to_owned(), uri.to_owned());
            if let Some(shared) = queues.get(&key).and_then(Weak::upgrade) {
                return shared;
            }
            let shared = Rc::new(Self {
                session: RefCell::default(),
                connecting: Mutex::new(()),
                memory: RefCell::default(),
                hashers: [RandomState::new(), RandomState::new()],
                narrow: Cell::new(0),
                next_key: Cell::new(0),
                was_away: Cell::new(false),
                before: Cell::new(None),
                users: Cell::new(0),
                unused_since: Cell::new(Moment::NEVER),
            });
            queues.insert(key, Rc::downgrade(&shared));
            shared
        })
    }

    /// A consumer begins. After an unclean end of the process before, its last session counts as one that we lost.
    pub(super) fn enter(&self, unclean: bool) {
        let is_first = self.session.borrow().is_none() && self.before.get().is_none();
        if unclean && is_first {
            self.before.set(Some(Before { others: 0, was_lost: true }));
        }
        self.users.set(self.users.get() + 1);
        self.unused_since.set(Moment::NEVER);
    }

    /// A consumer receives no more.
    pub(super) fn exit(&self) {
        self.users.set(self.users.get().saturating_sub(1));
        if self.users.get() == 0 {
            self.unused_since.set(Clock.now());
        }
    }

    /// Another consumer goes on.
    pub(super) fn is_in_use(&self) -> bool {
        self.users.get() > 0
    }

    pub(super) fn live(&self) -> Option<Rc<Session>> {
        self.session.borrow().clone().filter(|session| !session.is_lost())
    }

    /// The session, made if there is none.
    pub(super) async fn session(
        self: &Rc<Self>,
        address: &Address,
        queue: &str,
        terms: Terms,
    ) -> Result<Rc<Session>, ReceiveError> {
        if let Some(session) = self.live() {
            return Ok(session);
        }
        let _one_at_a_time = self.connecting.lock().await;
        if let Some(session) = self.live() {
            return Ok(session);
        }
        let lost = self.session.borrow().clone();
        if let Some(lost) = lost {
            self.on_lost(&lost, address).await;
        }
        let before = self.before.get().filter(|_| terms.ordering == Ordering::Strict);
        let before = before.map(|it| Before { was_lost: it.was_lost || self.was_away.get(), ..it });
        let names = (EPOCHS.fetch_add(1, Atomic::Relaxed), self.key_base());
        let (first, most) = terms.prefetch;
        let prefetch = self.narrow.get().saturating_mul(WIDER).clamp(first, most);
        let session = match Session::open(address, queue, prefetch, names, before).await {
            Ok(session) => Rc::new(session),
            Err(error) => {
                self.was_away.set(true);
                return Err(error);
            }
        };
        if self.was_away.replace(false) {
            self.memory.borrow_mut().on_back(Clock.now());
        }
        self.before.set(None);
        self.session.replace(Some(Rc::clone(&session)));
        tokio::task::spawn_local(watch(
            Rc::downgrade(self),
            Rc::downgrade(&session),
            terms,
            address.to_string(),
        ));
        Ok(session)
    }

    /// Keys grow for ever, so that dead letters of a queue stand in the order in which they came. Microseconds since
    /// 1970: more than there are messages.
    fn key_base(&self) -> u64 {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        let base = u64::try_from(now.as_micros()).unwrap_or_default().max(self.next_key.get());
        self.next_key.set(base);
        base
    }

    /// The session was lost: says so, once, and leaves it.
    pub(super) async fn on_lost(&self, session: &Rc<Session>, address: &Address) {
        let why = session.why_lost().unwrap_or_default();
        if self.leave(session).await {
            tracing::warn!(queue = %address, why, "the session was lost: connecting anew");
        }
    }

    /// The session is of no use any more: remembers what it had, which comes again, and closes it. False if that is done.
    pub(super) async fn leave(&self, session: &Rc<Session>) -> bool {
        let is_current = self.session.borrow().as_ref().is_some_and(|current| Rc::ptr_eq(current, session));
        if is_current {
            self.session.replace(None);
            self.remember(session);
            let heard = session.close().await;
            let before = self.before.get().map(|it| Before { was_lost: it.was_lost || !heard, ..it });
            self.before.set(before);
        }
        is_current
    }

    /// The last session ended without a goodbye, and none came after it: the server may still hold messages for it.
    pub(super) fn is_unheard(&self) -> bool {
        self.live().is_none() && self.before.get().is_some_and(|before| before.was_lost)
    }

    fn remember(&self, session: &Session) {
        let now = Clock.now();
        let (items, last_key) = session.book.borrow_mut().take_all();
        self.next_key.set(self.next_key.get().max(last_key + 1));
        let mut memory = self.memory.borrow_mut();
        for item in items {
            memory.on_away(item.content, item.id, now);
        }
        memory.on_lost(now);
        let was_lost = session.is_lost();
        self.before.set(Some(Before { others: session.others.get(), was_lost }));
    }

    /// The desk has room for more than the prefetch lets through: leaves the session for one with a larger one. The server
    /// has all of its messages back in order, and hands them over again; the desk knows them.
    pub(super) async fn widen(&self, session: &Rc<Session>, address: &Address) {
        self.narrow.set(session.prefetch);
        tracing::info!(queue = %address, prefetch = session.prefetch, "more messages are wanted at once: consuming anew");
        self.leave(session).await;
    }

    /// Gives back to the server all that is here and not at the desk, oldest of the queue first.
    pub(super) fn return_all(&self, session: &Session) {
        session.pump();
        let now = Clock.now();
        let returned = session.book.borrow_mut().take_returned();
        for (tag, item) in returned {
            session.nack(tag);
            self.memory.borrow_mut().on_away(item.content, item.id, now);
        }
        while let Some(Pushed { delivery, .. }) = session.take_pushed() {
            session.nack(delivery.delivery_tag);
        }
    }
}

/// Looks after a session while nobody may receive: takes what is pushed out of the client's buffer, and renews the
/// session before the server closes its channel for a message that is held too long.
async fn watch(shared: Weak<Shared>, session: Weak<Session>, terms: Terms, queue: String) {
    let mut returned = false;
    loop {
        tokio::time::sleep(LOOK).await;
        let (Some(shared), Some(session)) = (shared.upgrade(), session.upgrade()) else { return };
        session.pump_aside();
        if session.is_lost() {
            return;
        }
        let now = Clock.now();
        if !returned && now.since(shared.unused_since.get()) > RETURN_AFTER {
            returned = true;
            shared.return_all(&session);
        }
        let held = session.oldest().map(|since| now.since(since)).unwrap_or_default();
        if terms.hold_max.is_some_and(|most| held >= most) {
            tracing::warn!(
                queue,
                held_s = held.as_secs(),
                "a message is held for so long that the server would close the channel: taking all of them anew"
            );
            shared.leave(&session).await;
            return;
        }
    }
}
