//! Tries io_uring out: a ring, its buffers and a multishot receive that really brings a byte.
//! Core: any, before the shards start.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::seat::{Op, Phase, Seat};
use super::{ConnId, Event, Patience, UringWire, Wire};
use crate::clock::Clock;
use crate::link::Bell;

/// A byte through a pair of sockets takes microseconds.
const TRIAL_WAIT_MAX: Duration = Duration::from_secs(1);

impl UringWire {
    /// Ok = everything this wire needs works on this kernel, for this process.
    pub(in super::super) fn try_out() -> io::Result<()> {
        let bell = Bell::new().map_err(io::Error::other)?;
        let mut wire = Self::new(Arc::new(bell), 1)?;
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let conn = ConnId { slot: 0, tenant: 0 };
        let mut seat = Seat::new(conn, Some(near), None);
        seat.phase = Phase::Open;
        let index = wire.seat(seat);
        wire.seat_of_slot[0] = 0;
        wire.start(index, Op::Receive);
        rustix::io::write(&far, b"?")?;

        let deadline = Clock.now() + TRIAL_WAIT_MAX;
        let mut received = false;
        let mut failed = None;
        while !received && failed.is_none() && Clock.now() < deadline {
            wire.ring.enter(Patience::Until(deadline))?;
            wire.take(&mut |event| match event {
                Event::Received(..) => received = true,
                Event::Failed(_, kind) => failed = Some(kind),
                _ => {}
            });
        }
        match failed {
            Some(kind) => Err(kind.into()),
            None if received => Ok(()),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}
