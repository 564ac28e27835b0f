//! A service: an HTTP server that keeps what it was posted, byte for byte, and answers as it is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::support::wait::until;

/// A call that came in.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    /// The `Idempotency-Key`.
    pub(crate) id: String,
    pub(crate) attempt: u32,
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
    /// What it was answered; 0 = nothing yet.
    pub(crate) status: u16,
}

/// What it says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply {
    Status(u16),
    /// A status with this body.
    Says(u16, &'static str),
    /// Nothing, and the connection stays.
    Silence,
    /// A status after a while.
    Slow(u16, Duration),
}

type Answer = Box<dyn Fn(&Seen, usize) -> Reply + Send>;

struct State {
    seen: Mutex<Vec<Seen>>,
    answer: Mutex<Answer>,
}

/// The service. Its threads end with the process.
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

impl Target {
    /// `answer` is asked with the call and its number, from 0.
    pub(crate) fn new(answer: impl Fn(&Seen, usize) -> Reply + Send + 'static) -> Self {
        Self::at(SocketAddr::from(([127, 0, 0, 1], 0)), answer)
    }

    pub(crate) fn at(address: SocketAddr, answer: impl Fn(&Seen, usize) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind(address).expect("the target listens");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(State { seen: Mutex::default(), answer: Mutex::new(Box::new(answer)) });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(&stream, &state));
            }
        });
        Self { address, state }
    }

    /// These answers in turn; the last one for ever.
    pub(crate) fn answering(replies: &'static [Reply]) -> Self {
        Self::new(move |_, number| replies[number.min(replies.len() - 1)])
    }

    /// From now on it answers this.
    pub(crate) fn answer(&self, reply: Reply) {
        *self.state.answer.lock() = Box::new(move |_, _| reply);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/in", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.state.seen.lock().clone()
    }

    /// Waits until so many calls came.
    pub(crate) fn wait(&self, count: usize, max: Duration, said: impl Fn() -> String) -> Vec<Seen> {
        let calls = || self.state.seen.lock().len();
        until(max, &format!("{count} calls"), || calls() >= count, || (calls(), said()));
        self.seen()
    }
}

fn serve(stream: &TcpStream, state: &State) {
    let mut input = BufReader::new(stream);
    while let Some(seen) = read(&mut input) {
        let number = {
            let mut all = state.seen.lock();
            all.push(seen.clone());
            all.len() - 1
        };
        let reply = (state.answer.lock())(&seen, number);
        let (status, body) = match reply {
            Reply::Status(status) => (status, ""),
            Reply::Says(status, body) => (status, body),
            Reply::Slow(status, wait) => {
                std::thread::park_timeout(wait);
                (status, "")
            }
            Reply::Silence => {
                // Until the caller gives up.
                let _ = input.read(&mut [0; 1]);
                return;
            }
        };
        state.seen.lock()[number].status = status;
        let text = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        if (&mut &*stream).write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

fn read(input: &mut impl BufRead) -> Option<Seen> {
    let mut first = String::new();
    input.read_line(&mut first).ok().filter(|&count| count > 0)?;
    let mut seen = Seen {
        at: Instant::now(),
        id: String::new(),
        attempt: 0,
        content_type: String::new(),
        body: Vec::new(),
        status: 0,
    };
    let mut length = 0;
    loop {
        let mut line = String::new();
        input.read_line(&mut line).ok().filter(|&count| count > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "idempotency-key" => value.clone_into(&mut seen.id),
            "corelane-attempt" => seen.attempt = value.parse().ok()?,
            "content-type" => value.clone_into(&mut seen.content_type),
            "content-length" => length = value.parse().ok()?,
            _ => {}
        }
    }
    seen.body = vec![0; length];
    input.read_exact(&mut seen.body).ok()?;
    seen.at = Instant::now();
    Some(seen)
}
