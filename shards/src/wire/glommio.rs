//! The wire on a glommio executor: a task per connection, and a queue of what they have to report.
//! Core: its shard's; made and used inside that thread's executor. Owns: the tasks and the queue.
//!
//! - G1: a borrow of shared state never lives across an await.
//! - G2: a task reads on only while less than [`UNREPORTED_MAX`] of its bytes wait to be reported.
//! - G3: a report is dropped unless its connection is still the slot's tenant, so a cancelled task's
//!   last words reach no one (W1, W2).
//!
//! Every wait gives up the task queue, so the executor looks for I/O each turn and not only when its
//! preemption timer (100 ms) fires.

mod task;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, FromRawFd, IntoRawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use glommio::Task;
use glommio::io::BufferedFile;
use glommio::timer::Timer;

use self::task::{Mailbox, Presence};
use super::{Command, ConnId, Event, Patience, Wire};
use crate::clock::{Clock, Moment};
use crate::link::Bell;

/// Reports handed out by one `take`: a turn's worth.
const TAKE_MAX: usize = 1_024;
/// G2: enough to keep a fast peer busy between two turns.
const UNREPORTED_MAX: usize = 256 * 1_024;

/// What a task has to say.
enum Report {
    Connected(ConnId),
    Sent(ConnId, Vec<u8>),
    Received(ConnId, Vec<u8>),
    Eof(ConnId),
    Failed(ConnId, io::ErrorKind),
}

impl Report {
    const fn conn(&self) -> ConnId {
        match self {
            Self::Connected(conn) | Self::Eof(conn) | Self::Sent(conn, _) => *conn,
            Self::Received(conn, _) | Self::Failed(conn, _) => *conn,
        }
    }
}

/// What the tasks and the wire share.
#[derive(Default)]
struct Shared {
    reports: VecDeque<Report>,
    rung: bool,
    sleeper: Option<Waker>,
    /// Connections whose task still exists.
    present: usize,
}

impl Shared {
    fn report(&mut self, report: Report) {
        self.reports.push_back(report);
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(sleeper) = self.sleeper.take() {
            sleeper.wake();
        }
    }
}

struct Conn {
    tenant: u32,
    mailbox: Rc<RefCell<Mailbox>>,
    /// Dropping it cancels it.
    _task: Task<()>,
}

/// Moves bytes with glommio.
pub struct GlommioWire {
    shared: Rc<RefCell<Shared>>,
    conns: Vec<Option<Conn>>,
    /// Dropping it cancels it.
    _bell: Task<()>,
}

impl GlommioWire {
    /// A wire for about `connections_hint` connections, woken by `bell`. Call it inside the executor.
    ///
    /// # Errors
    /// The process has no descriptor left.
    #[expect(clippy::needless_pass_by_value, reason = "all wires are made alike")]
    pub fn new(bell: Arc<Bell>, connections_hint: usize) -> io::Result<Self> {
        let shared = Rc::new(RefCell::new(Shared::default()));
        let descriptor = bell.as_fd().try_clone_to_owned()?;
        #[expect(unsafe_code, reason = "glommio takes a descriptor in no other way")]
        // SAFETY: the number was just taken out of an `OwnedFd`, so the file is its only owner.
        let file = unsafe { BufferedFile::from_raw_fd(descriptor.into_raw_fd()) };
        let task = glommio::spawn_local(watch_bell(file, Rc::clone(&shared)));
        Ok(Self { shared, conns: Vec::with_capacity(connections_hint), _bell: task })
    }

    fn connect(&mut self, id: ConnId, address: SocketAddr) {
        let mailbox = Rc::new(RefCell::new(Mailbox::default()));
        let presence = Presence::new(Rc::clone(&self.shared));
        let task = glommio::spawn_local(task::run(id, address, Rc::clone(&mailbox), presence));
        let slot = id.slot as usize;
        if slot >= self.conns.len() {
            self.conns.resize_with(slot + 1, || None);
        }
        debug_assert!(self.conns[slot].is_none(), "a slot's last connection is closed first");
        self.conns[slot] = Some(Conn { tenant: id.tenant, mailbox, _task: task });
    }

    fn find(&self, id: ConnId) -> Option<&Conn> {
        self.conns.get(id.slot as usize)?.as_ref().filter(|conn| conn.tenant == id.tenant)
    }
}

/// Reads the bell's counter: glommio offers no plain poll. The counter tells nothing, only that it rang.
async fn watch_bell(file: BufferedFile, shared: Rc<RefCell<Shared>>) {
    while file.read_at(0, size_of::<u64>()).await.is_ok() {
        let mut shared = shared.borrow_mut();
        shared.rung = true;
        shared.wake();
    }
}

impl Wire for GlommioWire {
    fn submit(&mut self, command: Command) {
        match command {
            Command::Connect(id, address) => self.connect(id, address),
            Command::Send(id, bytes) => {
                if let Some(conn) = self.find(id) {
                    conn.mailbox.borrow_mut().post(bytes);
                }
            }
            Command::Close(id) => {
                if self.find(id).is_some() {
                    self.conns[id.slot as usize] = None;
                }
            }
        }
    }

    /// Truly waits: other tasks of the executor run meanwhile.
    async fn wait(&mut self, patience: Patience) {
        glommio::executor().yield_task_queue_now().await; // The tasks begin what was submitted.
        let mut timer = match patience {
            Patience::None => return,
            Patience::Until(Moment::NEVER) => None,
            Patience::Until(deadline) => Some(Timer::new(deadline.since(Clock.now()))),
        };
        poll_fn(|context| {
            let mut shared = self.shared.borrow_mut();
            if !shared.reports.is_empty() || std::mem::take(&mut shared.rung) {
                return Poll::Ready(());
            }
            shared.sleeper = Some(context.waker().clone());
            drop(shared);
            match &mut timer {
                Some(timer) => Pin::new(timer).poll(context).map(|_| ()),
                None => Poll::Pending,
            }
        })
        .await;
        self.shared.borrow_mut().sleeper = None;
    }

    fn take(&mut self, on_event: &mut dyn FnMut(Event<'_>)) {
        for _ in 0..TAKE_MAX {
            let Some(report) = self.shared.borrow_mut().reports.pop_front() else { return };
            let Some(conn) = self.find(report.conn()) else { continue }; // G3.
            match report {
                Report::Connected(id) => on_event(Event::Connected(id)),
                Report::Sent(id, buffer) => on_event(Event::Sent(id, buffer)),
                Report::Received(id, bytes) => {
                    on_event(Event::Received(id, &bytes));
                    conn.mailbox.borrow_mut().on_reported(bytes.len());
                }
                Report::Eof(id) => on_event(Event::Eof(id)),
                Report::Failed(id, kind) => on_event(Event::Failed(id, kind)),
            }
        }
    }

    fn open(&self) -> usize {
        self.shared.borrow().present
    }
}
