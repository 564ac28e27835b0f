//! The wire on io_uring: one ring, one system call a turn, bytes handed out where the kernel put them.
//! Core: its shard's; made and used on that thread only. Owns: the ring, its buffers, its sockets.
//!
//! - U1: what an operation points at (socket, address, bytes to send) stays in its seat until the
//!   operation's last completion.
//! - U2: a seat is given up only when it is closed and idle, so no completion ever meets a new tenant (W1).
//! - U3: a closed connection is cancelled until the kernel has let go of it.

mod buffers;
mod ring;
mod seat;
mod trial;

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd};
use io_uring::{cqueue, opcode};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, SocketAddrAny};

use self::buffers::Buffers;
use self::ring::Ring;
use self::seat::{Op, Phase, Seat, open_socket};
use super::{Command, ConnId, Event, Patience, Wire};
use crate::clock::Clock;
use crate::link::Bell;

/// Completions handled by one `take`: a turn's worth.
const TAKE_MAX: usize = 1_024;
/// The mark of the bell's poll; no seat's number reaches it.
const BELL_MARK: u64 = u64::MAX;
/// No seat.
const NO_SEAT: u32 = u32::MAX;
/// One entry sends at most this much; the kernel's own limit on one send is just below 2 GiB.
const SEND_BYTES_MAX: usize = 1 << 30;
/// `MSG_WAITALL`: the kernel goes on after a short send. rustix knows it for receiving only.
const MSG_WAITALL: u32 = rustix::net::RecvFlags::WAITALL.bits();
/// How long a dropped wire waits for the kernel to let go. It takes microseconds; see `Drop`.
const DROP_WAIT_MAX: Duration = Duration::from_secs(2);

/// Moves bytes with io_uring. Bound to the thread that made it.
pub struct UringWire {
    ring: ManuallyDrop<Ring>,
    buffers: ManuallyDrop<Buffers>,
    seats: ManuallyDrop<Vec<Seat>>,
    vacant: Vec<u32>,
    /// The seat of each of the courier's slots.
    seat_of_slot: Vec<u32>,
    /// Connections for which no socket could be made.
    stillborn: VecDeque<(ConnId, io::ErrorKind)>,
    bell: Arc<Bell>,
    /// The kernel accepts operations only from the thread that made the ring.
    not_send: PhantomData<Rc<()>>,
}

impl UringWire {
    /// A wire for about `connections_hint` connections, woken by `bell`.
    ///
    /// # Errors
    /// The kernel has no io_uring, forbids it, or lacks provided-buffer rings (before 5.19).
    pub fn new(bell: Arc<Bell>, connections_hint: usize) -> io::Result<Self> {
        let ring = Ring::new()?;
        let buffers = Buffers::register(&ring.submitter(), connections_hint)?;
        let mut wire = Self {
            ring: ManuallyDrop::new(ring),
            buffers: ManuallyDrop::new(buffers),
            seats: ManuallyDrop::new(Vec::with_capacity(connections_hint)),
            vacant: Vec::with_capacity(connections_hint),
            seat_of_slot: vec![NO_SEAT; connections_hint],
            stillborn: VecDeque::new(),
            bell,
            not_send: PhantomData,
        };
        wire.watch_bell();
        Ok(wire)
    }

    /// Each write to the eventfd completes this poll once more; the counter need not be read.
    fn watch_bell(&mut self) {
        let descriptor = Fd(self.bell.as_fd().as_raw_fd());
        let entry = opcode::PollAdd::new(descriptor, u32::from(PollFlags::IN.bits())).multi(true);
        #[expect(unsafe_code, reason = "submits to the ring")]
        // SAFETY: the entry points at no memory, and `self.bell` keeps the descriptor open.
        unsafe {
            self.ring.push(entry.build().user_data(BELL_MARK));
        }
    }

    /// Queues an operation of a seat.
    fn start(&mut self, index: usize, op: Op) {
        let seat = &mut self.seats[index];
        seat.begin(op);
        let socket = Fd(seat.socket.as_ref().expect("U1: a seat in use has its socket").as_raw_fd());
        let entry = match op {
            Op::Connect => {
                let address = seat.address.as_ref().expect("U1: kept until it is connected");
                opcode::Connect::new(socket, address.as_ptr().cast(), address.addr_len()).build()
            }
            Op::Receive => opcode::RecvMulti::new(socket, buffers::GROUP).build(),
            Op::Send => {
                let all = seat.outgoing.as_ref().expect("U1: kept until it is sent");
                let rest = &all[seat.sent_bytes..];
                let bytes = u32::try_from(rest.len().min(SEND_BYTES_MAX)).expect("1 GiB fits");
                let flags = (SendFlags::NOSIGNAL.bits() | MSG_WAITALL).cast_signed();
                opcode::Send::new(socket, rest.as_ptr(), bytes).flags(flags).build()
            }
            Op::Cancel => opcode::AsyncCancel2::new(CancelBuilder::fd(socket).all()).build(),
        };
        let mark = op.mark(u32::try_from(index).expect("fewer than 2³² seats"));
        #[expect(unsafe_code, reason = "submits to the ring")]
        // SAFETY: the socket, the boxed address and the vector's bytes stay where they are until the
        // completion that ends `op` (U1): only `vacate` and `on_sent` release them, after it. Receives
        // write into `self.buffers` alone, which outlive the ring (P2; see `Drop`).
        unsafe {
            self.ring.push(entry.user_data(mark));
        }
    }

    fn connect(&mut self, conn: ConnId, address: SocketAddr) {
        debug_assert!(self.find(conn.slot).is_none(), "a slot's last connection is closed first");
        let seat = match open_socket(address) {
            Ok(socket) => Seat::new(conn, Some(socket), Some(Box::new(SocketAddrAny::from(address)))),
            Err(errno) => {
                self.stillborn.push_back((conn, io::Error::from(errno).kind()));
                Seat::new(conn, None, None)
            }
        };
        let has_socket = seat.socket.is_some();
        let index = self.seat(seat);
        let slot = conn.slot as usize;
        if slot >= self.seat_of_slot.len() {
            self.seat_of_slot.resize(slot + 1, NO_SEAT);
        }
        self.seat_of_slot[slot] = u32::try_from(index).expect("fewer than 2³² seats");
        if has_socket {
            self.start(index, Op::Connect);
        }
    }

    fn send(&mut self, conn: ConnId, bytes: Vec<u8>) {
        let Some(index) = self.find_tenant(conn) else { return };
        let seat = &mut self.seats[index];
        if seat.is_silent() {
            return; // W4: the connection's end was the send's.
        }
        debug_assert!(seat.outgoing.is_none(), "W4: one send at a time");
        seat.outgoing = Some(bytes);
        seat.sent_bytes = 0;
        if seat.phase == Phase::Open {
            self.start(index, Op::Send);
        }
    }

    fn close(&mut self, conn: ConnId) {
        let Some(index) = self.find_tenant(conn) else { return };
        self.seat_of_slot[conn.slot as usize] = NO_SEAT;
        self.stillborn.retain(|(stillborn, _)| *stillborn != conn);
        let seat = &mut self.seats[index];
        seat.phase = Phase::Closing;
        if seat.is_idle() {
            self.vacate(index);
        } else {
            self.start(index, Op::Cancel);
        }
    }

    fn seat(&mut self, seat: Seat) -> usize {
        if let Some(index) = self.vacant.pop() {
            self.seats[index as usize] = seat;
            return index as usize;
        }
        self.seats.push(seat);
        self.seats.len() - 1
    }

    fn vacate(&mut self, index: usize) {
        self.seats[index].vacate();
        self.vacant.push(u32::try_from(index).expect("fewer than 2³² seats"));
    }

    fn find(&self, slot: u32) -> Option<usize> {
        let seat = *self.seat_of_slot.get(slot as usize)?;
        (seat != NO_SEAT).then_some(seat as usize)
    }

    fn find_tenant(&self, conn: ConnId) -> Option<usize> {
        self.find(conn.slot).filter(|index| self.seats[*index].conn == conn)
    }

    fn on_completion(&mut self, entry: &cqueue::Entry, on_event: &mut dyn FnMut(Event<'_>)) -> bool {
        let more = cqueue::more(entry.flags());
        if entry.user_data() == BELL_MARK {
            if !more {
                self.watch_bell();
            }
            return false;
        }
        let (index, op) = Op::from_mark(entry.user_data());
        if !more {
            self.seats[index].end(op);
        }
        let result = usize::try_from(entry.result()).map_err(|_| Errno::from_raw_os_error(-entry.result()));
        let mut dry = false;
        match op {
            Op::Connect => self.on_connected(index, result, on_event),
            Op::Receive => dry = self.on_received(index, entry.flags(), result, on_event),
            Op::Send => self.on_sent(index, result, on_event),
            Op::Cancel => self.on_cancelled(index, result),
        }
        let seat = &self.seats[index];
        if seat.phase == Phase::Closing && seat.is_idle() {
            self.vacate(index); // U2.
        }
        dry
    }

    fn on_connected(
        &mut self,
        index: usize,
        result: Result<usize, Errno>,
        on_event: &mut dyn FnMut(Event<'_>),
    ) {
        let seat = &mut self.seats[index];
        seat.address = None;
        if seat.is_silent() {
            return;
        }
        if let Err(errno) = result {
            seat.phase = Phase::Ended;
            return on_event(Event::Failed(seat.conn, io::Error::from(errno).kind()));
        }
        seat.phase = Phase::Open;
        on_event(Event::Connected(seat.conn));
        let has_outgoing = seat.outgoing.is_some();
        self.start(index, Op::Receive);
        if has_outgoing {
            self.start(index, Op::Send);
        }
    }

    /// True = the kernel found no buffer.
    fn on_received(
        &mut self,
        index: usize,
        flags: u32,
        result: Result<usize, Errno>,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> bool {
        let buffer = cqueue::buffer_select(flags);
        let seat = &mut self.seats[index];
        let mut again = false;
        if !seat.is_silent() {
            match (result, buffer) {
                (Ok(0), _) => {
                    seat.phase = Phase::Ended;
                    on_event(Event::Eof(seat.conn));
                }
                (Ok(bytes), Some(buffer)) => {
                    on_event(Event::Received(seat.conn, self.buffers.get(buffer, bytes)));
                    again = !cqueue::more(flags);
                }
                (Ok(_), None) => unreachable!("P1: bytes come in a buffer of ours"),
                (Err(Errno::NOBUFS | Errno::INTR | Errno::AGAIN), _) => again = true,
                (Err(errno), _) => {
                    seat.phase = Phase::Ended;
                    on_event(Event::Failed(seat.conn, io::Error::from(errno).kind()));
                }
            }
        }
        if let Some(buffer) = buffer {
            self.buffers.give_back(buffer);
        }
        if again {
            self.start(index, Op::Receive);
        }
        result == Err(Errno::NOBUFS)
    }

    fn on_sent(&mut self, index: usize, result: Result<usize, Errno>, on_event: &mut dyn FnMut(Event<'_>)) {
        let seat = &mut self.seats[index];
        if seat.is_silent() {
            seat.outgoing = None;
            return;
        }
        match result {
            Ok(bytes) => {
                seat.sent_bytes += bytes;
                let all = seat.outgoing.as_ref().expect("U1: kept until it is sent");
                if seat.sent_bytes < all.len() {
                    return self.start(index, Op::Send);
                }
                let mut buffer = seat.outgoing.take().expect("looked at above");
                buffer.clear();
                on_event(Event::Sent(seat.conn, buffer));
            }
            Err(Errno::INTR | Errno::AGAIN) => self.start(index, Op::Send),
            Err(errno) => {
                seat.phase = Phase::Ended;
                seat.outgoing = None;
                on_event(Event::Failed(seat.conn, io::Error::from(errno).kind()));
            }
        }
    }

    /// U3: a cancel that met nothing while something is pending is tried again, on a socket that
    /// cannot move bytes any more.
    fn on_cancelled(&mut self, index: usize, result: Result<usize, Errno>) {
        let seat = &mut self.seats[index];
        let met_nothing = matches!(result, Ok(0) | Err(_));
        if met_nothing && !seat.is_idle() {
            if !seat.has(Op::Connect) {
                // It fails only when the peer has ended the connection already.
                let _ = seat.socket.as_ref().map(|socket| rustix::net::shutdown(socket, Shutdown::Both));
            }
            self.start(index, Op::Cancel);
        }
    }
}

impl Wire for UringWire {
    fn submit(&mut self, command: Command) {
        match command {
            Command::Connect(conn, address) => self.connect(conn, address),
            Command::Send(conn, bytes) => self.send(conn, bytes),
            Command::Close(conn) => self.close(conn),
        }
    }

    /// Blocks the thread, which is the shard's own: nothing else waits for it.
    async fn wait(&mut self, patience: Patience) {
        let patience = if self.stillborn.is_empty() { patience } else { Patience::None };
        self.ring.enter(patience).expect("the probe entered a ring like this one");
    }

    fn take(&mut self, on_event: &mut dyn FnMut(Event<'_>)) {
        while let Some((conn, kind)) = self.stillborn.pop_front() {
            on_event(Event::Failed(conn, kind));
        }
        let mut dry = false;
        for _ in 0..TAKE_MAX {
            let Some(entry) = self.ring.pop() else { break };
            dry |= self.on_completion(&entry, on_event);
        }
        if dry {
            self.buffers.grow();
        }
        self.buffers.publish();
    }

    fn open(&self) -> usize {
        self.seats.len() - self.vacant.len()
    }
}

impl Drop for UringWire {
    /// Cancels everything and waits until the kernel has let go of our memory. Should it not, the
    /// memory is leaked: that is harmless, freeing it would not be.
    fn drop(&mut self) {
        for index in 0..self.seats.len() {
            if !matches!(self.seats[index].phase, Phase::Closing | Phase::Vacant) {
                self.close(self.seats[index].conn);
            }
        }
        let deadline = Clock.now() + DROP_WAIT_MAX;
        while self.open() > 0 && Clock.now() < deadline {
            if self.ring.enter(Patience::Until(deadline)).is_err() {
                break;
            }
            self.take(&mut |_| {});
        }
        let idle = self.open() == 0;
        #[expect(unsafe_code, reason = "drops in an order that depends on the kernel")]
        // SAFETY: each is dropped once, here. The ring goes first; the rest only if no operation that
        // could use it is pending (P2, U1).
        unsafe {
            ManuallyDrop::drop(&mut self.ring);
            if idle {
                ManuallyDrop::drop(&mut self.buffers);
                ManuallyDrop::drop(&mut self.seats);
            }
        }
    }
}
