//! Connections: reuse, races, limits, lookups and deadlines.

mod courier_support;

use std::net::SocketAddr;
use std::time::Duration;

use courier_support::{ACK, Dice, URL, World, parcel};
use shards::courier::{Out, Request};
use shards::model::{CallId, CourierTuning, Outcome};
use shards::wire::{Command, ConnId, Event};

const SECOND: Duration = Duration::from_secs(1);

/// A nanosecond less than so many seconds.
fn almost(seconds: u32) -> Duration {
    (SECOND * seconds).saturating_sub(Duration::from_nanos(1))
}

fn addresses(list: &[&str]) -> Vec<SocketAddr> {
    list.iter().map(|text| text.parse().expect("an address")).collect()
}

#[test]
fn a_connection_is_used_again_last_in_first_out() {
    let mut world = World::new(CourierTuning::default());
    for _ in 0..3 {
        world.start(URL);
    }
    let ids = world.opened.clone();
    assert_eq!(ids.len(), 3);
    for id in &ids {
        world.feed(*id, ACK);
    }
    world.start(URL);
    world.start(URL);
    assert_eq!(world.opened.len(), 3);
    let requests = |id: &ConnId| world.peers[id].received.windows(5).filter(|word| word == b"POST ").count();
    let busy: Vec<_> = ids.iter().filter(|id| requests(id) == 2).collect();
    assert_eq!(busy, [&ids[1], &ids[2]], "the last ones to become idle");
}

#[test]
fn a_kept_connection_that_closes_unanswered_is_stale_and_a_fresh_one_is_not() {
    for (answers, bytes, want) in [
        (0, &b""[..], Outcome::network()),
        (1, b"", Outcome::stale()),
        (1, b"HTTP/1.1 2", Outcome::network()),
        (2, b"", Outcome::stale()),
    ] {
        for reset in [false, true] {
            let mut world = World::new(CourierTuning::default());
            for _ in 0..answers {
                world.start(URL);
                world.feed(world.last(), ACK);
            }
            world.start(URL);
            let id = world.last();
            if !bytes.is_empty() {
                world.feed(id, bytes);
            }
            if reset {
                world.reset(id);
            } else {
                world.eof(id);
            }
            assert_eq!(world.outcome(), Some(want), "{answers} answers, {bytes:?}, reset={reset}");
            assert_eq!(world.closed, [id]);
        }
    }
}

#[test]
fn an_idle_connection_that_ends_or_speaks_is_closed_at_once() {
    let plays: [fn(&mut World, ConnId); 3] =
        [World::eof, World::reset, |world, id| world.feed(id, b"HTTP/1.1 408 Timeout\r\n\r\n")];
    for play in plays {
        let mut world = World::new(CourierTuning::default());
        world.start(URL);
        let id = world.last();
        world.feed(id, ACK);
        play(&mut world, id);
        assert_eq!(world.closed, [id]);
        world.start(URL);
        assert_ne!(world.last(), id);
    }
}

#[test]
fn calls_over_the_limit_wait_in_line() {
    let mut world = World::new(CourierTuning { connections_max: 2, ..CourierTuning::default() });
    let calls: Vec<_> = (0..5).map(|_| world.start(URL)).collect();
    let ids = world.opened.clone();
    assert_eq!(ids.len(), 2);
    for at in [0, 1, 0, 1, 0] {
        world.feed(ids[at], ACK);
    }
    let ended: Vec<_> = world.done.iter().map(|done| done.call).collect();
    assert_eq!(ended, calls, "in the order in which they were started");
    assert_eq!(world.opened.len(), 2);
    // A connection that is lost while calls wait is replaced.
    for _ in 0..3 {
        world.start(URL);
    }
    world.reset(ids[0]);
    assert_eq!(world.opened.len(), 3);
    world.feed(world.last(), ACK);
    world.feed(ids[1], ACK);
    world.assert_all_done("limit");
}

#[test]
fn a_call_never_outlives_the_request_timeout() {
    let tuning =
        CourierTuning { connections_max: 1, request_timeout: SECOND * 10, ..CourierTuning::default() };
    let mut world = World::new(tuning);
    world.start(URL);
    world.pass(SECOND * 4);
    world.start(URL);
    world.pass(SECOND * 6);
    assert_eq!(world.outcome(), Some(Outcome::timeout()), "the first was sent and not answered");
    assert_eq!(world.opened.len(), 2, "the second takes over");
    world.pass(SECOND * 3);
    assert_eq!(world.done.len(), 1);
    world.pass(SECOND);
    world.assert_all_done("timeout");
    // One that is never sent ends as unreachable.
    world.connects = false;
    world.start(URL);
    world.pass(SECOND * 10);
    assert_eq!(world.outcome(), Some(Outcome::network()));
}

#[test]
fn short_and_long_timeouts_are_kept_to_the_moment() {
    for (request, idle) in [(1, 30), (900, 30), (30, 1)] {
        let tuning = CourierTuning {
            request_timeout: SECOND * request,
            idle_timeout: SECOND * idle,
            ..CourierTuning::default()
        };
        let mut world = World::new(tuning);
        for _ in 0..50 {
            world.start(URL);
            world.pass(SECOND * request / 3);
            world.feed(world.last(), ACK);
            world.pass(SECOND * idle / 3);
        }
        assert_eq!(world.opened.len(), 1, "request {request} s, idle {idle} s");
        world.start(URL);
        world.pass(almost(request));
        assert_eq!(world.done.len(), 50, "request {request} s, idle {idle} s");
        world.pass(Duration::from_nanos(1));
        assert_eq!(world.outcome(), Some(Outcome::timeout()), "request {request} s, idle {idle} s");
        world.start(URL);
        world.feed(world.last(), ACK);
        world.pass(almost(idle));
        assert_eq!(world.courier.connections(), 1, "request {request} s, idle {idle} s");
        world.pass(Duration::from_nanos(1));
        assert_eq!(world.courier.connections(), 0, "request {request} s, idle {idle} s");
    }
}

#[test]
fn a_connection_that_does_not_open_fails_its_call() {
    let mut world = World::new(CourierTuning::default());
    world.connects = false;
    world.start(URL);
    world.reset(world.last());
    assert_eq!(world.outcome(), Some(Outcome::network()), "refused");
    world.start(URL);
    world.pass(SECOND * 31);
    assert_eq!(world.outcome(), Some(Outcome::network()), "connect timeout");
    world.assert_all_done("connect");
    assert_eq!(world.courier.connections(), 0);
}

#[test]
fn names_are_looked_up_and_addresses_take_turns() {
    let mut world = World::new(CourierTuning::default());
    let url = "http://hook.example:81/";
    let origin = world.origin(url);
    for _ in 0..3 {
        world.start(url);
    }
    assert_eq!(world.lookups, [(origin, "hook.example".to_owned(), 81)], "one lookup for all");
    world.resolved(origin, Ok(addresses(&["192.0.2.1:81", "192.0.2.2:81"])));
    let at: Vec<_> = world.opened.iter().map(|id| world.peers[id].address.map(|at| at.to_string())).collect();
    let (one, two) = (Some("192.0.2.1:81".to_owned()), Some("192.0.2.2:81".to_owned()));
    assert_eq!(at, [one.clone(), two, one]);
    world.start(url);
    assert_eq!(world.lookups.len(), 1, "fresh enough");
    world.pass(SECOND * 30);
    world.start(url);
    assert_eq!(world.lookups.len(), 2, "30 s old: asked again");
    assert_eq!(world.opened.len(), 4);
    world.resolved(origin, Err(()));
    assert_eq!(world.opened.len(), 5, "a resolver that fails leaves the old addresses");
}

#[test]
fn a_failed_connect_asks_the_resolver_again() {
    let mut world = World::new(CourierTuning::default());
    world.connects = false;
    let url = "http://hook.example/";
    let origin = world.origin(url);
    world.start(url);
    world.resolved(origin, Ok(addresses(&["192.0.2.1:80"])));
    world.reset(world.last());
    world.start(url);
    assert_eq!(world.lookups.len(), 2);
}

#[test]
fn refused_addresses_and_failed_lookups_fail_the_call() {
    let rows: [(&str, Result<Vec<SocketAddr>, ()>); 4] = [
        ("no such name", Err(())),
        ("nothing", Ok(vec![])),
        ("metadata", Ok(addresses(&["169.254.169.254:80"]))),
        ("one of them", Ok(addresses(&["1.1.1.1:80", "[::ffff:169.254.169.254]:80"]))),
    ];
    for (name, answer) in rows {
        let mut world = World::new(CourierTuning::default());
        let url = "http://hook.example/";
        let origin = world.origin(url);
        world.start(url);
        world.resolved(origin, answer);
        assert_eq!(world.outcome(), Some(Outcome::network()), "{name}");
        assert!(world.opened.is_empty(), "{name}");
        world.start(url);
        assert_eq!(world.lookups.len(), 2, "{name}: asked again");
    }
    for url in ["http://169.254.169.254/", "http://[fd00:ec2::254]/", "http://0.0.0.0/", "https://127.0.0.1/"]
    {
        let mut world = World::new(CourierTuning::default());
        world.start(url);
        assert_eq!(world.outcome(), Some(Outcome::network()), "{url} (https without TLS settings too)");
        assert!(world.opened.is_empty() && world.lookups.is_empty(), "{url}");
    }
    let mut world = World::new(CourierTuning::default());
    world.courier.allow_private(false);
    world.start(URL);
    assert_eq!(world.outcome(), Some(Outcome::network()), "private addresses by choice");
}

#[test]
fn a_lookup_that_is_never_answered_ends_with_the_connect_timeout() {
    let mut world = World::new(CourierTuning::default());
    world.start("http://hook.example/");
    world.pass(SECOND * 30);
    assert_eq!(world.outcome(), Some(Outcome::network()));
    world.assert_all_done("lookup");
}

#[test]
fn an_origin_is_forgotten_only_without_calls() {
    let mut world = World::new(CourierTuning::default());
    let origin = world.origin(URL);
    world.start(URL);
    assert!(!world.forget(origin));
    world.feed(world.last(), ACK);
    assert_eq!(world.courier.origin_stats(origin).idle, 1);
    assert!(world.forget(origin));
    assert_eq!(world.closed.len(), 1);
    assert_eq!(world.courier.connections(), 0);
    world.start(URL);
    assert_eq!(world.courier.origin_stats(origin).busy, 1, "its id can be used again");
}

#[test]
fn an_origin_is_not_forgotten_while_its_name_is_looked_up() {
    let mut world = World::new(CourierTuning::default());
    let url = "http://hook.example/";
    let origin = world.origin(url);
    world.start(url);
    world.pass(SECOND * 30);
    world.assert_all_done("lookup");
    assert!(!world.forget(origin), "the answer would go to the id's next owner");
    world.resolved(origin, Ok(addresses(&["192.0.2.1:80"])));
    assert!(world.forget(origin));
}

#[test]
fn loopback_answers_inside() {
    let mut world = World::new(CourierTuning { loopback: true, ..CourierTuning::default() });
    world.start(URL);
    assert_eq!(world.outcome(), Some(Outcome::success(200)));
    assert!(world.opened.is_empty());
}

#[test]
fn retry_after_dates_follow_the_wall_clock() {
    let mut world = World::new(CourierTuning::default());
    world.courier.set_wall(world.now, 784_111_777);
    world.pass(SECOND * 10);
    world.start(URL);
    let id = world.last();
    world.feed(
        id,
        b"HTTP/1.1 429 X\r\nRetry-After: Sun, 06 Nov 1994 08:50:37 GMT\r\nContent-Length: 0\r\n\r\n",
    );
    assert_eq!(world.outcome().map(|outcome| outcome.delay_s), Some(50));
}

#[test]
fn late_events_of_a_closed_connection_are_ignored() {
    let mut world = World::new(CourierTuning::default());
    world.start(URL);
    let old = world.last();
    world.eof(old);
    world.start(URL);
    let new = world.last();
    assert_eq!(old.slot, new.slot);
    let mut out = Out::default();
    for event in [Event::Received(old, ACK), Event::Eof(old), Event::Sent(old, vec![]), Event::Connected(old)]
    {
        world.courier.on_event(world.now, event, &mut out);
    }
    assert!(out.commands.is_empty() && out.done.is_empty());
}

#[test]
fn every_call_ends_once_whatever_happens() {
    for seed in 1..=200_u64 {
        let mut dice = Dice(seed * 0x9e37_79b9);
        let tuning = CourierTuning {
            connections_max: 4,
            request_timeout: SECOND * 10,
            connect_timeout: SECOND * 3,
            idle_timeout: SECOND * 5,
            ..CourierTuning::default()
        };
        let mut world = World::new(tuning);
        for _ in 0..400 {
            world.connects = !dice.one_in(4);
            world.sends = !dice.one_in(4);
            let open: Vec<_> = world.peers.keys().copied().collect();
            let id = (!open.is_empty()).then(|| open[dice.below(open.len())]);
            match (dice.below(8), id) {
                (0..=2, _) | (_, None) => {
                    _ = world.start(["http://127.0.0.1/", "http://[::1]/"][dice.below(2)]);
                }
                (3, Some(id)) => world.feed(id, ACK),
                (4, Some(id)) => world.feed(id, &ACK[..dice.below(ACK.len())]),
                (5, Some(id)) => {
                    if dice.one_in(2) {
                        world.eof(id);
                    } else {
                        world.reset(id);
                    }
                }
                (6, Some(id)) => {
                    world.sent(id);
                    world.settle();
                }
                (_, Some(_)) => world.pass(Duration::from_millis(dice.roll() % 3_000)),
            }
        }
        (world.connects, world.sends) = (true, true);
        world.pass(SECOND * 60);
        world.assert_all_done(&format!("SEED={seed}"));
        assert_eq!(world.courier.connections(), 0, "SEED={seed}");
    }
}

#[test]
fn a_call_costs_no_timer() {
    let mut world = World::new(CourierTuning::default());
    world.start(URL);
    let (id, mut out) = (world.last(), Out::default());
    world.feed(id, ACK);
    let (origin, parcel) = (world.origin(URL), parcel(URL, b"{}"));
    let first = world.courier.next_deadline();
    for call in 1_000..2_000 {
        let request = Request { first: &parcel, rest: &mut std::iter::empty(), attempt: 1 };
        world.courier.start(world.now, CallId(call), origin, request, &mut out);
        let Some(Command::Send(id, bytes)) = out.commands.pop() else { panic!("no send") };
        world.courier.on_event(world.now, Event::Sent(id, bytes), &mut out);
        world.courier.on_event(world.now, Event::Received(id, ACK), &mut out);
    }
    assert_eq!(out.done.len(), 1_000);
    assert_eq!(world.courier.next_deadline(), first);
}
