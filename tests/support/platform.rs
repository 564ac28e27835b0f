//! A config platform whose answers are written down beforehand: one per connection, the last one for all that follow.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// No test waits longer for a client that went away.
const PATIENCE: Duration = Duration::from_secs(20);

/// What one connection gets.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// A status and a body.
    Says(u16, String),
    /// 302 to another URL.
    Points(String),
    /// 200 and bytes without end.
    Floods,
    /// 200, a length, and then nothing.
    Stalls,
    /// Closes at once.
    Hangs,
}

/// Serves until it is dropped.
pub(crate) struct Platform {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Platform {
    pub(crate) fn start(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (heads, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (seen, over) = (Arc::clone(&heads), Arc::clone(&is_over));
        let serve = move || {
            for (at, stream) in listener.incoming().enumerate() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let reply = &replies[at.min(replies.len() - 1)];
                let Ok(mut stream) = stream else { continue };
                // Before the answer, so that a client that has it finds its request written down.
                let head = read_head(&mut stream);
                seen.lock().unwrap_or_else(PoisonError::into_inner).push(head);
                answer(&mut stream, reply);
            }
        };
        Self { address, heads, is_over, thread: Some(std::thread::spawn(serve)) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/config", self.address)
    }

    /// The heads of the requests so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Platform {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn read_head(stream: &mut TcpStream) -> String {
    let _ = stream.set_read_timeout(Some(PATIENCE));
    let _ = stream.set_write_timeout(Some(PATIENCE));
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// Answers one request. A client that goes away early is not our concern.
fn answer(stream: &mut TcpStream, reply: &Reply) {
    let _ = match reply {
        Reply::Says(status, body) => {
            let length = body.len();
            stream.write_all(
                format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}").as_bytes(),
            )
        }
        Reply::Points(to) => stream
            .write_all(format!("HTTP/1.1 302 X\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n").as_bytes()),
        Reply::Floods => {
            let chunk = format!("10000\r\n{}\r\n", " ".repeat(65_536));
            let mut outcome = stream.write_all(b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n");
            while outcome.is_ok() {
                outcome = stream.write_all(chunk.as_bytes());
            }
            outcome
        }
        Reply::Stalls => {
            let outcome = stream.write_all(b"HTTP/1.1 200 X\r\ncontent-length: 1000\r\n\r\n{");
            // Returns when the client has given up.
            let _ = stream.read(&mut [0]);
            outcome
        }
        Reply::Hangs => Ok(()),
    };
}
