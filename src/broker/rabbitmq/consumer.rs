//! A consumer of a queue, whatever its messages mean: it receives by the session that a queue's consumers share, and
//! leaves it in order.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use shards::clock::{Clock, Moment};
use shards::desk::SourceSpec;
use shards::model::Ordering;
use tokio::time::Instant;

use super::address::Address;
use super::client::Session;
use super::connect::away;
use super::shared::{Shared, Terms};
use crate::ingress::{Batch, Connected, ReceiveError};
use crate::secret::Secret;
use crate::topology::QueueEntry;

/// How long a receive waits for a first message. A drain waits for it, and idle it costs one question each time.
const POLL: Duration = Duration::from_secs(1);
/// A session that lived so long is made anew at once; one that did not is an error, and the ingress waits.
const LIVED_MIN: Duration = Duration::from_secs(1);
/// The first prefetch, where the URI does not say: a pool of the default size fits, and bodies of a megabyte do not hurt
/// much yet.
const PREFETCH_FIRST: u16 = 512;
/// Messages unsettled at once, where the URI does not say.
const UNSETTLED_MAX: u16 = 16_384;

/// A consumer.
pub(super) struct Consumer {
    name: String,
    uri: Secret,
    pub(super) address: Address,
    queue: String,
    pub(super) spec: SourceSpec,
    terms: Terms,
    /// What this queue's consumers share; made when it is opened.
    shared: RefCell<Option<Rc<Shared>>>,
    /// The session that the desk was told of.
    epoch: Cell<u32>,
    stopped: Cell<bool>,
}

impl Consumer {
    /// A consumer of `queue`. Does not connect. `hold_max`: the longest that a message may be unsettled.
    pub(super) fn new(
        entry: &QueueEntry,
        address: Address,
        queue: String,
        spec: SourceSpec,
        hold_max: Option<Duration>,
    ) -> Self {
        let terms = Terms {
            ordering: spec.ordering,
            prefetch: address
                .prefetch
                .map_or((PREFETCH_FIRST, UNSETTLED_MAX), |count| (count.get(), count.get())),
            hold_max,
        };
        Self {
            name: entry.name.clone(),
            uri: Secret::new(entry.uri.reveal()),
            address,
            queue,
            spec,
            terms,
            shared: RefCell::default(),
            epoch: Cell::new(0),
            stopped: Cell::new(false),
        }
    }

    pub(super) fn shared(&self) -> Rc<Shared> {
        let mut shared = self.shared.borrow_mut();
        Rc::clone(shared.get_or_insert_with(|| Shared::join(&self.name, self.uri.reveal())))
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.get()
    }

    /// It begins. `unclean`: the process before may have left messages with a connection that the server still knows.
    pub(super) fn open(&self, unclean: bool) {
        self.shared().enter(unclean);
    }

    pub(super) async fn depth(&self) -> Option<u64> {
        let session = self.shared().live()?;
        session.depth().await
    }

    /// Waits until `take` has something, or a poll's time is over.
    pub(super) async fn receive(
        &self,
        take: impl Fn(&Rc<Shared>, &Rc<Session>) -> Batch,
    ) -> Result<Batch, ReceiveError> {
        let shared = self.shared();
        let session = shared.session(&self.address, &self.queue, self.terms).await?;
        if self.epoch.replace(session.epoch) != session.epoch {
            let connected = Some(Connected { epoch: session.epoch, spec: self.spec });
            return Ok(Batch { connected, ..Batch::default() });
        }
        let until = Instant::now() + POLL;
        loop {
            session.pump();
            if session.is_lost() {
                break;
            }
            let batch = take(&shared, &session);
            if !batch.is_empty() {
                return Ok(batch);
            }
            if session.is_narrow(self.terms.prefetch.1) {
                shared.widen(&session, &self.address).await;
                return Ok(Batch::default());
            }
            if !session.wait(until).await {
                if session.is_there().await {
                    return Ok(Batch::default());
                }
                break;
            }
        }
        shared.on_lost(&session, &self.address).await;
        if Clock.now().since(session.opened_at) < LIVED_MIN {
            return Err(away(&self.address, session.why_lost().unwrap_or_default()));
        }
        Ok(Batch::default())
    }

    /// No more is received. A consumer that came after this one goes on with the session. Otherwise the server pushes no
    /// more, and what it pushed goes back: where order matters when the desk has settled all that it holds, because
    /// what goes back first would be before what is still running here. Answers as [`crate::ingress::Source::stop`] does.
    pub(super) async fn end(&self) -> Option<Moment> {
        let shared = self.shared();
        if !self.stopped.replace(true) {
            shared.exit();
            if let Some(session) = shared.live().filter(|_| !shared.is_in_use()) {
                session.cancel().await;
                if self.spec.ordering != Ordering::Strict {
                    shared.return_all(&session);
                    session.confirm().await;
                }
                self.leave_if_done(&shared).await;
            }
        }
        self.unheard(&shared)
    }

    /// After the last consumer's stop: until when the server may have pushed what never came, if that is so.
    pub(super) fn unheard(&self, shared: &Shared) -> Option<Moment> {
        let is_last = self.stopped.get() && !shared.is_in_use();
        (is_last && shared.is_unheard()).then(|| Clock.now())
    }

    /// After the last consumer's stop: closes when the desk has settled all. The server then has all the rest back at
    /// its old place.
    pub(super) async fn leave_if_done(&self, shared: &Shared) {
        if !self.stopped.get() || shared.is_in_use() {
            return;
        }
        if let Some(session) = shared.live()
            && session.book.borrow().out_count() == 0
        {
            shared.leave(&session).await;
        }
    }
}
