//! A TCP proxy on loopback that can cut its connections, or let them hang without a word: what a network does.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// How often a pump looks whether it may go on.
const LOOK: Duration = Duration::from_millis(5);

/// One side of a connection that goes through.
struct Way {
    stream: TcpStream,
    is_client: bool,
    hung: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    ways: Mutex<Vec<Way>>,
    opened: AtomicUsize,
    over: AtomicBool,
    refusing: AtomicBool,
}

/// The proxy. Ends when it is dropped.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

impl Proxy {
    /// In front of `server`.
    pub(crate) fn new(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        listener.set_nonblocking(true).expect("a listener can be asked without waiting");
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        std::thread::spawn(move || accept(&listener, server, &shared));
        Self { address, state }
    }

    /// Cuts every connection that is open now. How many there were.
    pub(crate) fn cut(&self) -> usize {
        let ways = std::mem::take(&mut *self.state.ways.lock());
        for way in &ways {
            let _ = way.stream.shutdown(Shutdown::Both);
        }
        ways.len() / 2
    }

    /// Lets every connection that is open now hang: no byte passes any more, and no end is told. New ones work.
    pub(crate) fn hang(&self) {
        for way in self.state.ways.lock().iter() {
            way.hung.store(true, Ordering::Relaxed);
        }
    }

    /// Cuts every connection that is open now, and the server does not hear of it. How many there were.
    pub(crate) fn cut_unnoticed(&self) -> usize {
        self.hang();
        let mut ways = std::mem::take(&mut *self.state.ways.lock());
        ways.retain(|way| way.is_client);
        for client in &ways {
            let _ = client.stream.shutdown(Shutdown::Both);
        }
        ways.len()
    }

    /// Connections that were opened so far.
    pub(crate) fn opened(&self) -> usize {
        self.state.opened.load(Ordering::Relaxed)
    }

    /// New connections are closed at once, or not any more.
    pub(crate) fn refuse(&self, refusing: bool) {
        self.state.refusing.store(refusing, Ordering::Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Relaxed);
        self.cut();
    }
}

fn accept(listener: &TcpListener, server: SocketAddr, state: &Arc<State>) {
    while !state.over.load(Ordering::Relaxed) {
        let Ok((client, _)) = listener.accept() else {
            std::thread::park_timeout(LOOK);
            continue;
        };
        if state.refusing.load(Ordering::Relaxed) {
            continue;
        }
        let Ok(server) = TcpStream::connect(server) else { continue };
        state.opened.fetch_add(1, Ordering::Relaxed);
        let hung = Arc::new(AtomicBool::new(false));
        for (is_client, from, to) in [(true, &client, &server), (false, &server, &client)] {
            let (from, to) = (from.try_clone().expect("a handle"), to.try_clone().expect("a handle"));
            let way = Way { stream: from.try_clone().expect("a handle"), is_client, hung: Arc::clone(&hung) };
            state.ways.lock().push(way);
            let hung = Arc::clone(&hung);
            std::thread::spawn(move || pump(from, to, &hung));
        }
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, hung: &AtomicBool) {
    from.set_nonblocking(false).expect("a stream can wait");
    from.set_read_timeout(Some(LOOK)).expect("a read can be bounded");
    let mut buffer = vec![0; 64 * 1024];
    loop {
        if hung.load(Ordering::Relaxed) {
            // Neither read nor closed, until the process ends or the other side gives up.
            std::thread::park_timeout(LOOK);
            if from.peek(&mut [0]).is_ok_and(|count| count == 0) {
                return;
            }
            continue;
        }
        match from.read(&mut buffer) {
            Ok(0) if hung.load(Ordering::Relaxed) => return,
            Ok(0) => break,
            Ok(count) => {
                if to.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
