//! Connections, shared by the queues of one thread that go to the same servers as the same user: what a hundred queues
//! say goes out together, and the server wakes for one connection, not for a hundred. (The measurement: ADR 0016.)

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::{Rc, Weak};

use async_nats::Client;
use shards::clock::{Clock, Moment};
use tokio::sync::{Mutex, watch};

use super::address::Address;
use super::connect::{Signs, connect};
use crate::ingress::ReceiveError;

/// A connection.
pub(super) struct Line {
    pub(super) client: Client,
    pub(super) signs: watch::Receiver<Signs>,
    /// Something on it was not answered: those who have it may go on, and no one else gets it.
    worn: Cell<bool>,
}

impl Line {
    pub(super) fn is_lost(&self) -> bool {
        self.signs.borrow().lost
    }

    pub(super) fn wear(&self) {
        self.worn.set(true);
    }
}

/// The last try to connect: when it failed, for which queue, and with what.
struct Failed {
    at: Moment,
    queue: String,
    error: ReceiveError,
}

impl Failed {
    /// The same, said of another queue.
    fn said_of(&self, address: &Address) -> ReceiveError {
        let of = |text: &str| text.replacen(&self.queue, &address.to_string(), 1);
        match &self.error {
            ReceiveError::Unreachable(error) => {
                ReceiveError::Unreachable(io::Error::other(of(&error.to_string())))
            }
            ReceiveError::Denied { queue } => ReceiveError::Denied { queue: of(queue) },
            ReceiveError::Ended => ReceiveError::Ended,
        }
    }
}

/// Where a server's connection is kept: locked while one is made, so that one is.
#[derive(Default)]
struct Slot {
    line: Weak<Line>,
    failed: Option<Failed>,
}

/// A slot per server and user. Few: they stay.
type Slots = RefCell<Vec<(Address, Rc<Mutex<Slot>>)>>;

thread_local! {
    static SLOTS: Slots = const { RefCell::new(Vec::new()) };
}

fn slot(address: &Address) -> Rc<Mutex<Slot>> {
    SLOTS.with_borrow_mut(|slots| {
        if let Some((_, slot)) = slots.iter().find(|(other, _)| other.is_same_line(address)) {
            return Rc::clone(slot);
        }
        let slot = Rc::<Mutex<Slot>>::default();
        slots.push((address.clone(), Rc::clone(&slot)));
        slot
    })
}

/// The connection to a queue's server, made if there is none. Who waited while another failed to make it hears the
/// same, instead of failing anew after as long a wait.
pub(super) async fn line(address: &Address) -> Result<Rc<Line>, ReceiveError> {
    let (slot, asked) = (slot(address), Clock.now());
    let mut slot = slot.lock().await;
    if let Some(line) = slot.line.upgrade().filter(|line| !line.is_lost() && !line.worn.get()) {
        return Ok(line);
    }
    if let Some(failed) = slot.failed.as_ref().filter(|failed| failed.at > asked) {
        return Err(failed.said_of(address));
    }
    match connect(address).await {
        Ok((client, signs)) => {
            let line = Rc::new(Line { client, signs, worn: Cell::new(false) });
            *slot = Slot { line: Rc::downgrade(&line), failed: None };
            Ok(line)
        }
        Err(error) => {
            let failed = Failed { at: Clock.now(), queue: address.to_string(), error };
            let said = failed.said_of(address);
            slot.failed = Some(failed);
            Err(said)
        }
    }
}
