//! Peers on loopback, on plain threads: one listener, a thread per connection.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket, sockopt};

/// A listener and its thread. Dropping it ends the thread; connections end by themselves.
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Peer {
    fn new(serve: fn(TcpStream, &AtomicBool)) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                let stream = stream.expect("descriptors are left");
                let builder = thread::Builder::new().stack_size(256 * 1_024);
                let stopped = Arc::clone(&stopped);
                builder.spawn(move || serve(stream, &stopped)).expect("a thread is left");
            }
        });
        Self { address, stop, thread: Some(thread) }
    }

    /// Sends back what it gets.
    pub(crate) fn echo() -> Self {
        Self::new(|mut stream, _| {
            stream.set_nodelay(true).expect("a TCP option");
            let mut buffer = vec![0; 64 * 1_024];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                if stream.write_all(&buffer[..count]).is_err() {
                    return;
                }
            }
        })
    }

    /// Never reads; holds the connection until the peer is dropped: behind bytes that nobody reads it
    /// would not hear of the other side's end.
    pub(crate) fn deaf() -> Self {
        Self::new(|_stream, stop| {
            while !stop.load(Ordering::Acquire) {
                thread::park_timeout(Duration::from_millis(5));
            }
        })
    }

    /// Sends without end and never reads.
    pub(crate) fn flood() -> Self {
        Self::new(|mut stream, _| {
            let chunk = vec![b'f'; 64 * 1_024];
            while stream.write_all(&chunk).is_ok() {}
        })
    }

    /// Closes at once.
    pub(crate) fn closing() -> Self {
        Self::new(|_stream, _| {})
    }

    /// Sends this much of the pattern, then closes.
    pub(crate) fn parting() -> Self {
        Self::new(|mut stream, _| {
            stream.write_all(&super::rig::pattern(PARTING_BYTES)).expect("the wire reads it all");
        })
    }

    /// Resets the connection after the first byte it gets.
    pub(crate) fn resetting() -> Self {
        Self::new(|mut stream, _| {
            let _ = stream.read(&mut [0]);
            sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("a socket option");
        })
    }

    /// An address where nobody listens.
    pub(crate) fn nobody() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
        listener.local_addr().expect("it is bound")
    }
}

/// What [`Peer::parting`] sends.
pub(crate) const PARTING_BYTES: usize = 1 << 20;

impl Drop for Peer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the listener's thread does not panic");
        }
    }
}

/// A listener whose queue is full after one or two connections: further ones stay unanswered.
pub(crate) struct FullListener {
    pub(crate) address: SocketAddr,
    _socket: OwnedFd,
}

impl FullListener {
    pub(crate) fn new() -> Self {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("descriptors are left");
        bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("loopback has a free port");
        listen(&socket, 0).expect("a bound socket listens");
        let address = getsockname(&socket).expect("it is bound").try_into().expect("an IPv4 address");
        Self { address, _socket: socket }
    }
}
