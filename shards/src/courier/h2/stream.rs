//! One call on an HTTP/2 connection: the request as hyper wants it, then head and body of the answer.
//! Core: its shard's. Owns: the request's bytes until the call ends, in case it must be moved.

use std::error::Error;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http2::SendRequest;

use super::super::h1::Limits;
use super::super::origin::Waiting;
use crate::clock::Moment;
use crate::model::CallId;

/// Header lines of our own requests at most.
const HEADERS_MAX: usize = 16;

type Sent = Result<Response<Incoming>, TrySendError<Request<Full<Bytes>>>>;

/// How a call ended.
#[derive(Debug)]
pub(in super::super) enum End {
    /// With an answer.
    Answered { status: u16, retry_after: Option<HeaderValue>, body: Vec<u8> },
    /// The peer did not take it: it can be sent again as if it had never been.
    Untaken,
    /// The stream or the connection broke.
    Failed,
    /// We gave up.
    TimedOut,
}

/// A call that ended.
#[derive(Debug)]
pub(in super::super) struct Ended {
    pub(in super::super) call: CallId,
    pub(in super::super) started: Moment,
    pub(in super::super) moves: u8,
    pub(in super::super) bytes: Bytes,
    pub(in super::super) end: End,
}

enum Step {
    /// The request could not be put into HTTP/2's form.
    Unfit,
    Head(Pin<Box<dyn Future<Output = Sent>>>),
    Body {
        status: u16,
        retry_after: Option<HeaderValue>,
        incoming: Incoming,
        body: Vec<u8>,
    },
}

/// One call.
pub(super) struct Stream {
    call: CallId,
    started: Moment,
    moves: u8,
    bytes: Bytes,
    step: Step,
}

impl Stream {
    pub(super) fn new(sender: &mut SendRequest<Full<Bytes>>, waiting: Waiting, https: bool) -> Self {
        let bytes = Bytes::from(waiting.bytes);
        let step = match request(&bytes, https) {
            Some(request) => Step::Head(Box::pin(sender.try_send_request(request))),
            None => Step::Unfit,
        };
        Self { call: waiting.call, started: waiting.started, moves: waiting.moves, bytes, step }
    }

    pub(super) const fn started(&self) -> Moment {
        self.started
    }

    pub(super) fn end(&mut self, end: End) -> Ended {
        let bytes = mem::take(&mut self.bytes);
        Ended { call: self.call, started: self.started, moves: self.moves, bytes, end }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>, limits: Limits) -> Poll<Ended> {
        loop {
            match &mut self.step {
                Step::Unfit => return Poll::Ready(self.end(End::Failed)),
                Step::Head(sent) => match sent.as_mut().poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(error)) => {
                        let end = if is_untaken(&error) { End::Untaken } else { End::Failed };
                        return Poll::Ready(self.end(end));
                    }
                    Poll::Ready(Ok(response)) => {
                        let status = response.status().as_u16();
                        let retry_after = response.headers().get(RETRY_AFTER).cloned();
                        let incoming = response.into_body();
                        self.step = Step::Body { status, retry_after, incoming, body: Vec::new() };
                    }
                },
                Step::Body { status, retry_after, incoming, body } => {
                    let whole = match Pin::new(incoming).poll_frame(cx) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(Some(Err(_))) => return Poll::Ready(self.end(End::Failed)),
                        Poll::Ready(None) => true,
                        Poll::Ready(Some(Ok(frame))) => frame.data_ref().is_some_and(|data| {
                            let room = limits.body_bytes - body.len();
                            body.extend_from_slice(&data[..data.len().min(room)]);
                            data.len() > room
                        }),
                    };
                    if whole {
                        let (status, retry_after, body) = (*status, retry_after.take(), mem::take(body));
                        return Poll::Ready(self.end(End::Answered { status, retry_after, body }));
                    }
                }
            }
        }
    }
}

/// The peer has not seen the call, or says that it did nothing with it.
fn is_untaken(error: &TrySendError<Request<Full<Bytes>>>) -> bool {
    if error.message().is_some() {
        return true;
    }
    let mut source = error.error().source();
    while let Some(cause) = source {
        if let Some(cause) = cause.downcast_ref::<h2::Error>() {
            let refused = cause.is_reset() && cause.reason() == Some(h2::Reason::REFUSED_STREAM);
            // Only streams above GOAWAY's last one get its error; the others may still be answered.
            return cause.is_remote() && (refused || cause.is_go_away());
        }
        source = cause.source();
    }
    false
}

/// Our own HTTP/1.1 request as an HTTP/2 one. `None` if hyper's rules are narrower than ours.
fn request(bytes: &Bytes, https: bool) -> Option<Request<Full<Bytes>>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(body_at) = head.parse(bytes).ok()? else { return None };
    let authority = head.headers.iter().find(|header| header.name == "host")?.value;
    // The one character that a target may have and hyper's URIs may not.
    let path = head.path?.replace('`', "%60");
    let uri = Uri::builder()
        .scheme(if https { "https" } else { "http" })
        .authority(authority)
        .path_and_query(path)
        .build()
        .ok()?;
    let mut request = Request::new(Full::new(bytes.slice(body_at..)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    for header in head.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        if name == HOST || name == CONTENT_LENGTH {
            continue;
        }
        let mut value = HeaderValue::from_bytes(header.value).ok()?;
        // Kept out of the compression table, where it could be guessed at.
        value.set_sensitive(name == AUTHORIZATION);
        request.headers_mut().insert(name, value);
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_that_is_taken_fits_http_2() {
        let odd: String = (0x21..=0x7e_u8).map(char::from).filter(|c| !"#\\\"<>".contains(*c)).collect();
        for target in [format!("http://h/{odd}"), format!("http://h/?{odd}"), "http://a_b.c-d:81/".to_owned()]
        {
            let parsed = crate::model::Target::parse(&target).expect("a target");
            let lines = crate::courier::request::constant_lines(&parsed);
            let bytes =
                [b"POST ", parsed.path.as_bytes(), &lines, b"text/plain\r\ncontent-length: 2\r\n\r\nhi"]
                    .concat();
            let made = request(&Bytes::from(bytes), true).unwrap_or_else(|| panic!("{target}"));
            assert_eq!(made.uri().scheme_str(), Some("https"));
            assert_eq!(made.headers().len(), 2, "accept and content-type: {:?}", made.headers());
            assert_eq!(
                made.uri().path_and_query().map(|path| path.as_str().replace("%60", "`")),
                Some(parsed.path.to_owned())
            );
        }
    }
}
