//! What a call and an idle connection cost in memory.
#![expect(unsafe_code, reason = "a counting allocator has to implement an unsafe trait")]

mod courier_support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use courier_support::{ACK, URL, parcel};
use shards::clock::Moment;
use shards::courier::{Courier, Out, Request};
use shards::model::{CallId, CourierTuning, OriginId};
use shards::wire::{Command, ConnId, Event};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

fn count(allocations: u64, bytes: i64) {
    ALLOCATIONS.set(ALLOCATIONS.get() + allocations);
    BYTES.set(BYTES.get() + bytes);
}

fn size(layout: Layout) -> i64 {
    i64::try_from(layout.size()).unwrap_or(i64::MAX)
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches only this thread's cells,
// which need no allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, size(layout));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(0, -size(layout));
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NOW: Moment = Moment::from_nanos(1);

/// Starts a call and carries out everything up to its send; the connection it is on.
fn start(courier: &mut Courier, call: u32, parcel: &shards::model::Parcel, out: &mut Out) -> ConnId {
    let request = Request { first: parcel, rest: &mut std::iter::empty(), attempt: 1 };
    courier.start(NOW, CallId(call), OriginId(0), request, out);
    loop {
        match out.commands.pop() {
            Some(Command::Connect(id, _)) => courier.on_event(NOW, Event::Connected(id), out),
            Some(Command::Send(id, bytes)) => {
                courier.on_event(NOW, Event::Sent(id, bytes), out);
                return id;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_call_on_an_open_connection_allocates_nothing() {
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nc\r\n{\"ack\":true}\r\n0\r\n\r\n";
    let long =
        [b"HTTP/1.1 200 OK\r\nServer: nginx\r\n".as_slice(), b"Content-Length: 12\r\n\r\n{\"ack\":true}"]
            .concat();
    let answers: [(&str, Vec<&[u8]>); 4] = [
        ("one slice", vec![ACK]),
        ("other headers", vec![&long]),
        ("chunked", vec![chunked]),
        ("two slices", vec![&ACK[..30], &ACK[30..]]),
    ];
    for (name, pieces) in answers {
        let mut courier = Courier::new(CourierTuning::default(), None);
        let (mut out, parcel) = (Out::default(), parcel(URL, b"{\"messageId\":\"m-1\"}"));
        let mut before = 0;
        for call in 0..1_010 {
            if call == 10 {
                before = ALLOCATIONS.get();
            }
            let id = start(&mut courier, call, &parcel, &mut out);
            for piece in &pieces {
                courier.on_event(NOW, Event::Received(id, piece), &mut out);
            }
            assert_eq!(out.done.len(), 1, "{name}");
            out.done.clear();
        }
        assert_eq!(ALLOCATIONS.get() - before, 0, "{name}: allocations in 1,000 calls");
        assert_eq!(courier.connections(), 1);
    }
}

#[test]
fn an_idle_connection_costs_less_than_two_kilobytes() {
    const CONNECTIONS: u32 = 4_096;
    let mut courier = Courier::new(CourierTuning::default(), None);
    let (mut out, parcel) = (Out::default(), parcel(URL, b"{\"messageId\":\"m-1\"}"));
    let before = BYTES.get();
    let ids: Vec<_> = (0..CONNECTIONS).map(|call| start(&mut courier, call, &parcel, &mut out)).collect();
    for id in &ids {
        courier.on_event(NOW, Event::Received(*id, &ACK[..20]), &mut out);
    }
    for id in &ids {
        courier.on_event(NOW, Event::Received(*id, &ACK[20..]), &mut out);
    }
    assert_eq!(out.done.len(), ids.len());
    (out, _) = (Out::default(), out);
    let each = (BYTES.get() - before) / i64::from(CONNECTIONS);
    assert!(each < 512, "{each} bytes per idle connection");
    drop(out);
}
