//! hyper's HTTP/2 server in memory. Calls are held until the test releases them.
#![allow(dead_code, reason = "each test binary uses its part of this")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body_util::Full;
use hyper::rt::{Executor, Read, ReadBufCursor, Write};
use hyper::server::conn::http2::{Builder, Connection};
use shards::wire::ConnId;

use crate::courier_support::World;

type Task = Pin<Box<dyn Future<Output = ()>>>;

#[derive(Clone, Default)]
pub(crate) struct Tasks(Rc<RefCell<Vec<Task>>>);

impl<F: Future<Output = ()> + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.0.borrow_mut().push(Box::pin(task));
    }
}

#[derive(Default)]
struct Bytes2 {
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

#[derive(Clone, Default)]
pub(crate) struct Pipe(Rc<RefCell<Bytes2>>);

impl Read for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let incoming = &mut self.0.borrow_mut().incoming;
        if incoming.is_empty() {
            return Poll::Pending;
        }
        let take = incoming.len().min(buf.remaining());
        buf.put_slice(&incoming[..take]);
        incoming.drain(..take);
        Poll::Ready(Ok(()))
    }
}

impl Write for Pipe {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().outgoing.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// What the servers of a test do and have seen.
#[derive(Default)]
pub(crate) struct Book {
    /// Calls to `/hold` may be answered.
    pub(crate) released: bool,
    /// Calls that are in a handler now, and the most there were on one connection.
    pub(crate) running: BTreeMap<ConnId, usize>,
    pub(crate) running_max: usize,
    pub(crate) handled: usize,
    /// The headers of the last call.
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Vec<u8>,
}

type Handler = Pin<Box<dyn Future<Output = Result<http::Response<Full<Bytes>>, h2::Error>>>>;

struct Handlers {
    book: Rc<RefCell<Book>>,
    id: ConnId,
}

impl hyper::service::Service<http::Request<hyper::body::Incoming>> for Handlers {
    type Response = http::Response<Full<Bytes>>;
    type Error = h2::Error;
    type Future = Handler;

    fn call(&self, request: http::Request<hyper::body::Incoming>) -> Handler {
        Box::pin(handle(request, Rc::clone(&self.book), self.id))
    }
}

/// One connection's server.
pub(crate) struct Server {
    pub(crate) id: ConnId,
    pub(crate) pipe: Pipe,
    tasks: Tasks,
    connection: Pin<Box<Connection<Pipe, Handlers, Tasks>>>,
    seen: usize,
    ended: bool,
}

async fn handle(
    request: http::Request<hyper::body::Incoming>,
    book: Rc<RefCell<Book>>,
    id: ConnId,
) -> Result<http::Response<Full<Bytes>>, h2::Error> {
    let path = request.uri().path().to_owned();
    {
        let mut book = book.borrow_mut();
        book.headers = request.headers().clone();
        let running = book.running.entry(id).or_default();
        *running += 1;
        let running = *running;
        book.running_max = book.running_max.max(running);
    }
    if path == "/body" {
        let body =
            http_body_util::BodyExt::collect(request.into_body()).await.expect("a body").to_bytes().to_vec();
        book.borrow_mut().body = body;
    }
    let answer = match path.as_str() {
        "/refuse" => Err(h2::Reason::REFUSED_STREAM.into()),
        "/reset" => Err(h2::Reason::INTERNAL_ERROR.into()),
        "/never" => std::future::pending().await,
        "/hold" => {
            poll_fn(|_| if book.borrow().released { Poll::Ready(()) } else { Poll::Pending }).await;
            Ok("{\"ack\":true}".into())
        }
        "/nack" => Ok("{\"ack\":false,\"delaySeconds\":9}".into()),
        "/big" => Ok(vec![b'x'; 1 << 20].into()),
        _ => Ok(Bytes::from_static(b"{\"ack\":true}")),
    };
    let mut book = book.borrow_mut();
    *book.running.entry(id).or_default() -= 1;
    book.handled += 1;
    answer.map(|body| {
        let mut response = http::Response::new(Full::new(body));
        if path == "/busy" {
            *response.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
            response.headers_mut().insert("retry-after", http::HeaderValue::from_static("77"));
        }
        if path == "/headers" {
            let long = http::HeaderValue::from_str(&"x".repeat(40_000)).expect("a value");
            response.headers_mut().insert("x-long", long);
        }
        response
    })
}

impl Server {
    pub(crate) fn new(id: ConnId, book: &Rc<RefCell<Book>>, streams_max: u32) -> Self {
        let (pipe, tasks, book) = (Pipe::default(), Tasks::default(), Rc::clone(book));
        let connection = Builder::new(tasks.clone())
            .max_concurrent_streams(streams_max)
            .serve_connection(pipe.clone(), Handlers { book, id });
        Self { id, pipe, tasks, connection: Box::pin(connection), seen: 0, ended: false }
    }

    pub(crate) fn shut_down(&mut self) {
        self.connection.as_mut().graceful_shutdown();
    }

    /// Polls everything; `incoming` goes to hyper, what it answers comes back.
    pub(crate) fn work(&mut self, incoming: &[u8]) -> Vec<u8> {
        let mut cx = Context::from_waker(Waker::noop());
        self.pipe.0.borrow_mut().incoming.extend_from_slice(incoming);
        for _ in 0..4 {
            if !self.ended {
                self.ended = self.connection.as_mut().poll(&mut cx).is_ready();
            }
            let tasks = std::mem::take(&mut *self.tasks.0.borrow_mut());
            for mut task in tasks {
                if task.as_mut().poll(&mut cx).is_pending() {
                    self.tasks.0.borrow_mut().push(task);
                }
            }
        }
        std::mem::take(&mut self.pipe.0.borrow_mut().outgoing)
    }

    /// Moves bytes both ways; true if any moved.
    pub(crate) fn talk(&mut self, world: &mut World) -> bool {
        let Some(peer) = world.peers.get(&self.id) else { return false };
        let fresh = peer.received[self.seen..].to_vec();
        self.seen += fresh.len();
        let answer = self.work(&fresh);
        if !answer.is_empty() {
            world.feed(self.id, &answer);
        }
        !fresh.is_empty() || !answer.is_empty()
    }
}

/// A server for every connection there is, until all is quiet.
pub(crate) fn talk_all(
    world: &mut World,
    servers: &mut BTreeMap<ConnId, Server>,
    book: &Rc<RefCell<Book>>,
    streams_max: u32,
) {
    for _ in 0..10_000 {
        for id in world.peers.keys() {
            servers.entry(*id).or_insert_with(|| Server::new(*id, book, streams_max));
        }
        let mut any = false;
        for server in servers.values_mut() {
            any |= server.talk(world);
        }
        if !any && world.peers.keys().all(|id| servers.contains_key(id)) {
            return;
        }
    }
    panic!("the peers never stop talking");
}
