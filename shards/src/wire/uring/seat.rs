//! What the kernel works on for one use of a connection. Core: its shard's.
//! A seat outlives its connection until the kernel's last completion for it, so the courier may use
//! the slot again at once.
//!
//! - T1: a seat is vacant only when no operation of it is pending; its number is then free again.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketFlags, SocketType, ipproto, socket_with, sockopt};

use super::super::ConnId;

/// An operation of a seat. At most one of each kind is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Connect = 0,
    Receive = 1,
    Send = 2,
    Cancel = 3,
}

impl Op {
    const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// The mark of a completion: which seat, which operation.
    pub(super) fn mark(self, seat: u32) -> u64 {
        u64::from(seat) << 8 | self as u64
    }

    /// Reads a mark back.
    pub(super) fn from_mark(mark: u64) -> (usize, Self) {
        let op = match mark & 0xff {
            0 => Self::Connect,
            1 => Self::Receive,
            2 => Self::Send,
            _ => Self::Cancel,
        };
        (usize::try_from(mark >> 8).expect("a seat's number is 32 bits"), op)
    }
}

/// Where the connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Connecting,
    Open,
    /// Its end was reported: nothing more is, until it is closed.
    Ended,
    /// The courier closed it: only completions are awaited.
    Closing,
    Vacant,
}

/// One use of a connection, seen from the kernel's side.
pub(super) struct Seat {
    pub(super) conn: ConnId,
    pub(super) phase: Phase,
    /// Bits of the operations the kernel still has to complete.
    pending: u8,
    /// None: it could not be made, or the seat is vacant.
    pub(super) socket: Option<OwnedFd>,
    /// Where to connect to; boxed, so that it stays put while the kernel reads it.
    pub(super) address: Option<Box<SocketAddrAny>>,
    /// Being sent, or waiting for the connection to open.
    pub(super) outgoing: Option<Vec<u8>>,
    /// Bytes of `outgoing` the kernel has taken.
    pub(super) sent_bytes: usize,
}

impl Seat {
    pub(super) fn new(conn: ConnId, socket: Option<OwnedFd>, address: Option<Box<SocketAddrAny>>) -> Self {
        let phase = if socket.is_some() { Phase::Connecting } else { Phase::Ended };
        Self { conn, phase, pending: 0, socket, address, outgoing: None, sent_bytes: 0 }
    }

    /// Nothing more of this connection may be reported.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.phase, Phase::Ended | Phase::Closing | Phase::Vacant)
    }

    pub(super) fn begin(&mut self, op: Op) {
        debug_assert!(!self.has(op), "one of each kind is pending");
        self.pending |= op.bit();
    }

    pub(super) fn end(&mut self, op: Op) {
        self.pending &= !op.bit();
    }

    pub(super) fn has(&self, op: Op) -> bool {
        self.pending & op.bit() != 0
    }

    pub(super) fn is_idle(&self) -> bool {
        self.pending == 0
    }

    /// Gives back everything it held (T1).
    pub(super) fn vacate(&mut self) {
        debug_assert!(self.is_idle(), "T1: the kernel still works on it");
        self.phase = Phase::Vacant;
        self.socket = None;
        self.address = None;
        self.outgoing = None;
    }
}

/// A blocking socket: on a non-blocking one io_uring would report "try again" instead of waiting.
pub(super) fn open_socket(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP))?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(socket)
}
