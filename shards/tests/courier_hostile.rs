//! Targets that misbehave: each ends in the named outcome, loses its connection, and the next call works.

mod courier_support;

use std::sync::Arc;
use std::time::Duration;

use courier_support::{ACK, URL, World};
use shards::courier::tls;
use shards::model::{CourierTuning, Outcome};
use shards::wire::ConnId;

const SECOND: Duration = Duration::from_secs(1);

fn tuning() -> CourierTuning {
    CourierTuning {
        connect_timeout: SECOND * 5,
        request_timeout: SECOND * 20,
        idle_timeout: SECOND * 30,
        ..CourierTuning::default()
    }
}

struct Row {
    name: &'static str,
    play: fn(&mut World, ConnId),
    want: Outcome,
    url: &'static str,
}

const fn row(name: &'static str, want: Outcome, play: fn(&mut World, ConnId)) -> Row {
    Row { name, play, want, url: URL }
}

/// Feeds `piece` for as long as the connection is open; it must be closed before `bytes_max` went in.
fn flood(world: &mut World, id: ConnId, piece: &[u8], bytes_max: usize) {
    let mut fed = 0;
    while world.peers.contains_key(&id) {
        world.feed(id, piece);
        fed += piece.len();
        assert!(fed <= bytes_max, "still listening after {fed} bytes");
    }
}

fn rows() -> impl Iterator<Item = Row> {
    slow_rows().into_iter().chain(endless_rows()).chain(framing_rows()).chain(broken_rows()).chain(tls_rows())
}

fn slow_rows() -> Vec<Row> {
    vec![
        row("1 byte a second in the head", Outcome::timeout(), |world, id| {
            for byte in b"HTTP/1.1 200 OK\r\nServer: slow, very slow" {
                world.feed(id, &[*byte]);
                world.pass(SECOND);
            }
        }),
        row("1 byte a second in the body", Outcome::timeout(), |world, id| {
            world.feed(id, b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
            for _ in 0..25 {
                world.feed(id, b"x");
                world.pass(SECOND);
            }
        }),
        row("never answers", Outcome::timeout(), |world, _| world.pass(SECOND * 21)),
    ]
}

fn endless_rows() -> Vec<Row> {
    vec![
        row("endless headers", Outcome::network(), |world, id| {
            world.feed(id, b"HTTP/1.1 200 OK\r\n");
            flood(world, id, b"X-Filler: 0123456789abcdef\r\n", 17 << 10);
        }),
        row("one endless header", Outcome::network(), |world, id| {
            world.feed(id, b"HTTP/1.1 200 OK\r\nA: ");
            flood(world, id, &[b'a'; 1000], 18 << 10);
        }),
        row("10,000 headers at once", Outcome::network(), |world, id| {
            let head =
                [b"HTTP/1.1 200 OK\r\n".to_vec(), b"A: b\r\n".repeat(10_000), b"\r\n".to_vec()].concat();
            world.feed(id, &head);
        }),
        row("200 headers", Outcome::network(), |world, id| {
            let head = [b"HTTP/1.1 200 OK\r\n".to_vec(), b"A: b\r\n".repeat(200), b"\r\n".to_vec()].concat();
            world.feed(id, &head);
        }),
        row("a body over the limit", Outcome::success(200), |world, id| {
            world.feed(id, b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n");
            flood(world, id, &[b'x'; 1000], 66 << 10);
        }),
        row("a 500 with a body over the limit", http(500), |world, id| {
            world.feed(id, b"HTTP/1.1 500 No\r\n\r\n");
            flood(world, id, &[b'x'; 1000], 66 << 10);
        }),
        row("endless chunks", Outcome::success(200), |world, id| {
            world.feed(id, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            flood(world, id, b"1\r\nx\r\n", 7 * (65 << 10));
        }),
        row("an endless chunk extension", Outcome::network(), |world, id| {
            world.feed(id, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;");
            flood(world, id, &[b'x'; 100], 17 << 10);
        }),
        row("endless trailers", Outcome::network(), |world, id| {
            world.feed(id, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n");
            flood(world, id, b"T: x\r\n", 17 << 10);
        }),
        row("a 1xx flood", Outcome::network(), |world, id| {
            flood(world, id, b"HTTP/1.1 100 Continue\r\n\r\n", 1 << 10);
        }),
    ]
}

fn framing_rows() -> Vec<Row> {
    vec![
        row("an upgrade no one asked for", Outcome::network(), |world, id| {
            world.feed(id, b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n");
        }),
        row("Content-Length too long, then close", Outcome::network(), |world, id| {
            world.feed(id, b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{\"ack\":true}");
            world.eof(id);
        }),
        row("Content-Length too short", Outcome::success(200), |world, id| {
            world.feed(id, b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{\"ack\":true} and more");
        }),
        row("TE and CL", Outcome::network(), |world, id| {
            world.feed(
                id,
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
            );
        }),
        row("two lengths", Outcome::network(), |world, id| {
            world.feed(
                id,
                b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 12\r\n\r\n{\"ack\":true}",
            );
        }),
    ]
}

fn broken_rows() -> Vec<Row> {
    vec![
        row("closes without a word", Outcome::network(), World::eof),
        row("RST", Outcome::network(), World::reset),
        row("FIN in the head", Outcome::network(), |world, id| {
            world.feed(id, b"HTTP/1.1 200 OK\r\nConte");
            world.eof(id);
        }),
        row("FIN in a chunk", Outcome::network(), |world, id| {
            world.feed(id, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nxx");
            world.eof(id);
        }),
        row("RST in a body that ends with the connection", Outcome::network(), |world, id| {
            world.feed(id, b"HTTP/1.1 200 OK\r\n\r\n{\"ack\":true}");
            world.reset(id);
        }),
        row("garbage", Outcome::network(), |world, id| world.feed(id, b"\x00\xff\x17 nonsense")),
        row("SSH", Outcome::network(), |world, id| world.feed(id, b"SSH-2.0-OpenSSH_9.6\r\n")),
        row("HTTP/0.9", Outcome::network(), |world, id| world.feed(id, b"<html>hello</html>")),
        row("folded headers", Outcome::network(), |world, id| {
            world.feed(id, b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n");
        }),
        row("a redirect to the metadata service", http(302), |world, id| {
            let bytes: &[u8] = b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
            world.feed(id, bytes);
            assert_eq!(world.opened.len(), 1, "not followed");
        }),
        row("deep JSON", Outcome::success(200), |world, id| {
            let body = "[".repeat(60_000);
            let head =
                format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
            world.feed(id, head.as_bytes());
            world.feed(id, body.as_bytes());
        }),
    ]
}

fn tls_rows() -> Vec<Row> {
    vec![
        Row {
            name: "a stalled TLS handshake",
            play: |world, _| world.pass(SECOND * 6),
            want: Outcome::network(),
            url: "https://127.0.0.1:8443/hook",
        },
        Row {
            name: "plain text on a TLS port",
            play: |world, id| world.feed(id, b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            want: Outcome::network(),
            url: "https://127.0.0.1:8443/hook",
        },
        Row {
            name: "TLS that closes in the handshake",
            play: World::eof,
            want: Outcome::network(),
            url: "https://127.0.0.1:8443/hook",
        },
    ]
}

fn http(status: u16) -> Outcome {
    Outcome::failed(shards::model::Mediation::ErrorProcess, shards::model::Fault::Http, status, 0)
}

fn any_roots() -> Arc<rustls::ClientConfig> {
    let made = rcgen::generate_simple_self_signed(["x".to_owned()]).expect("a certificate");
    let pem = made.cert.pem();
    let roots = tls::Roots { native: false, extra_pem: pem.as_bytes() };
    Arc::new(tls::config(roots).expect("settings"))
}

#[test]
fn every_hostile_target_ends_in_its_outcome_and_hurts_no_one() {
    let tls = any_roots();
    for Row { name, play, want, url } in rows() {
        let mut world = World::with_tls(tuning(), Some(Arc::clone(&tls)));
        world.start(url);
        let id = world.last();
        play(&mut world, id);
        assert_eq!(world.outcome(), Some(want), "{name}");
        assert_eq!(world.closed, [id], "{name}: the connection is closed");
        world.assert_all_done(name);
        if url == URL {
            world.start(url);
            let next = world.last();
            assert_ne!(next, id, "{name}");
            world.feed(next, ACK);
            assert_eq!(world.outcome(), Some(Outcome::success(200)), "{name}: the next call works");
        }
        world.pass(SECOND * 31);
        assert_eq!(world.courier.connections(), 0, "{name}: the idle connection is closed");
        world.assert_all_done(name);
    }
}

#[test]
fn an_answer_before_the_request_was_sent_counts_and_the_connection_waits_for_the_rest() {
    let mut world = World::new(tuning());
    world.sends = false;
    world.start(URL);
    let id = world.last();
    world.feed(id, b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(world.done.len(), 1, "the answer counts");
    world.start(URL);
    assert_eq!(world.opened.len(), 2, "C3: no second request behind half a request");
    world.sent(id);
    world.settle();
    world.feed(world.last(), ACK);
    world.sends = true;
    world.start(URL);
    assert_eq!(world.opened.len(), 2, "once it is sent the connection is of use again");
}

#[test]
fn a_target_that_answers_early_and_never_reads_loses_its_connection() {
    let mut world = World::new(tuning());
    world.sends = false;
    world.start(URL);
    let id = world.last();
    world.feed(id, ACK);
    world.pass(SECOND * 31);
    assert_eq!(world.closed, [id]);
    world.assert_all_done("early answer");
}
