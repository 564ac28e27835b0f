//! A call through the courier in memory: request written, answer parsed and judged. No socket.

mod bench;

use shards::clock::Moment;
use shards::courier::{Courier, Out, Request};
use shards::model::{CallId, CourierTuning, HttpVersion, OriginId, Parcel, Parts};
use shards::wire::{Command, Event};

const LENGTH: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n{\"ack\":true}";
const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nserver: test\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"ack\r\n7\r\n\":true}\r\n0\r\n\r\n";

/// Makes `rounds` calls on one kept connection, each answered by `answer` in pieces of `piece` bytes.
fn run(rounds: u64, answer: &[u8], piece: usize) -> u64 {
    let tuning = CourierTuning { http: HttpVersion::Http1, ..CourierTuning::default() };
    let (mut courier, mut out) = (Courier::new(tuning, None), Out::default());
    let parts = Parts {
        id: "order-0000000001",
        target: "http://127.0.0.1:8080/hooks/orders?tenant=1",
        token: "secret",
        body: br#"{"messageId":"order-0000000001","n":1}"#,
        ..Parts::default()
    };
    let parcel = Parcel::new(&parts).expect("valid parts");
    let now = Moment::from_nanos(1);
    let mut sum = 0;
    for number in 0..rounds {
        let request = Request { first: &parcel, rest: &mut std::iter::empty(), attempt: 1 };
        courier.start(
            now,
            CallId(u32::try_from(number % 1_000).expect("small")),
            OriginId(0),
            request,
            &mut out,
        );
        while !out.commands.is_empty() {
            for command in std::mem::take(&mut out.commands) {
                match command {
                    Command::Connect(id, _) => courier.on_event(now, Event::Connected(id), &mut out),
                    Command::Send(id, mut bytes) => {
                        sum = bench::mix(sum, bytes.len() as u64);
                        bytes.clear();
                        courier.on_event(now, Event::Sent(id, bytes), &mut out);
                        for part in answer.chunks(piece) {
                            courier.on_event(now, Event::Received(id, part), &mut out);
                        }
                    }
                    Command::Close(_) => panic!("C3: a whole answer keeps its connection"),
                }
            }
        }
        let done = out.done.pop().expect("C1: the call ended");
        sum = bench::mix(sum, u64::from(done.outcome.status));
    }
    assert_eq!((courier.calls(), courier.connections()), (0, 1), "one kept connection");
    sum
}

fn main() {
    let rounds = bench::rounds(5_000, 2_000_000);
    for (name, answer, piece) in [
        ("parse/content_length", LENGTH, usize::MAX),
        ("parse/chunked", CHUNKED, usize::MAX),
        ("parse/in_pieces_of_16", LENGTH, 16),
    ] {
        let (elapsed, sum) = bench::time(|| run(rounds, answer, piece));
        bench::report(name, rounds, elapsed, sum);
    }
}
