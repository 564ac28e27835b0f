//! HTTP/2 against hyper's server in memory, and against frames written by hand.

mod courier_support;
#[path = "courier_support/h2_server.rs"]
mod h2_server;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use courier_support::World;
use h2_server::{Book, Server, talk_all};
use shards::model::{CourierTuning, Fault, HttpVersion, Mediation, Outcome};
use shards::wire::ConnId;

const SECOND: Duration = Duration::from_secs(1);

struct Scene {
    world: World,
    servers: BTreeMap<ConnId, Server>,
    book: Rc<RefCell<Book>>,
    streams_max: u32,
}

impl Scene {
    fn new(streams_max: u32) -> Self {
        let tuning = CourierTuning {
            http: HttpVersion::Http2PriorKnowledge,
            request_timeout: SECOND * 60,
            ..CourierTuning::default()
        };
        let (servers, book) = (BTreeMap::new(), Rc::default());
        Self { world: World::new(tuning), servers, book, streams_max }
    }

    fn start(&mut self, path: &str) {
        self.world.start(&format!("http://127.0.0.1{path}"));
    }

    fn talk(&mut self) {
        talk_all(&mut self.world, &mut self.servers, &self.book, self.streams_max);
    }

    /// One exchange with each server.
    fn talk_some(&mut self) {
        let ids: Vec<_> = self.world.peers.keys().copied().collect();
        for id in ids {
            let (book, streams_max) = (&self.book, self.streams_max);
            self.servers
                .entry(id)
                .or_insert_with(|| Server::new(id, book, streams_max))
                .talk(&mut self.world);
        }
    }

    fn call(&mut self, path: &str) -> Outcome {
        self.start(path);
        self.talk();
        self.world.outcome().expect("an outcome")
    }

    fn successes(&self) -> usize {
        self.world.done.iter().filter(|done| done.outcome == Outcome::success(200)).count()
    }
}

#[test]
fn answers_are_judged_as_over_http_1() {
    let mut scene = Scene::new(100);
    let process = |fault, status, delay_s| Outcome::failed(Mediation::ErrorProcess, fault, status, delay_s);
    let rows = [
        ("/ok", Outcome::success(200)),
        ("/nack", process(Fault::NotYet, 200, 9)),
        ("/busy", process(Fault::RateLimited, 429, 77)),
        ("/big", Outcome::success(200)),
        ("/reset", Outcome::network()),
        ("/headers", Outcome::network()),
        ("/ok", Outcome::success(200)),
    ];
    for (path, want) in rows {
        assert_eq!(scene.call(path), want, "{path}");
    }
    assert_eq!(scene.world.opened.len(), 1, "all on one connection");
    let headers = scene.book.borrow().headers.clone();
    assert_eq!(headers["idempotency-key"], "m-1");
    assert_eq!(headers["corelane-attempt"], "1");
    assert_eq!(headers["authorization"], "Bearer t");
    assert_eq!(headers["content-type"], "application/json");
    scene.world.pass(SECOND * 31);
    assert_eq!(scene.world.courier.connections(), 0, "idle connections are closed");
    scene.world.assert_all_done("one by one");
}

#[test]
fn a_body_larger_than_the_window_arrives_whole() {
    let mut scene = Scene::new(100);
    let body = vec![b'y'; 3 << 20];
    scene.world.start_with("http://127.0.0.1/body", &body);
    scene.talk();
    assert_eq!(scene.world.outcome(), Some(Outcome::success(200)));
    assert!(scene.book.borrow().body == body);
}

#[test]
fn a_thousand_calls_share_few_connections() {
    let mut scene = Scene::new(200);
    for _ in 0..1_000 {
        scene.start("/hold");
    }
    scene.talk();
    let running: usize = scene.book.borrow().running.values().sum();
    assert_eq!(running, 1_000, "all at once");
    assert!(scene.book.borrow().running_max <= 200, "{}", scene.book.borrow().running_max);
    assert!(scene.world.opened.len() <= 8, "{} connections", scene.world.opened.len());
    scene.book.borrow_mut().released = true;
    scene.talk();
    assert_eq!(scene.successes(), 1_000);
    scene.world.assert_all_done("a thousand");
    scene.world.pass(SECOND * 31);
    assert_eq!(scene.world.courier.connections(), 0);
}

#[test]
fn a_peer_that_takes_ten_streams_gets_ten() {
    let mut scene = Scene::new(10);
    for _ in 0..300 {
        scene.start("/hold");
    }
    scene.talk();
    // Before its first word a connection may be given more than ten; they wait inside it.
    assert!(scene.book.borrow().running_max <= 10, "{}", scene.book.borrow().running_max);
    assert!(scene.world.opened.len() >= 18, "{} connections", scene.world.opened.len());
    scene.book.borrow_mut().released = true;
    scene.talk();
    assert_eq!(scene.successes(), 300);
    scene.world.assert_all_done("ten streams");
}

#[test]
fn calls_in_flight_survive_a_graceful_goaway_and_new_ones_go_elsewhere() {
    let mut scene = Scene::new(100);
    for _ in 0..50 {
        scene.start("/hold");
    }
    scene.talk();
    let first = scene.world.opened[0];
    scene.servers.get_mut(&first).expect("a server").shut_down();
    scene.talk();
    for _ in 0..50 {
        scene.start("/hold");
    }
    scene.talk();
    assert!(scene.world.opened.len() >= 2, "the new ones need a new connection");
    scene.book.borrow_mut().released = true;
    scene.talk();
    assert_eq!(scene.successes(), 100);
    scene.world.assert_all_done("GOAWAY");
    assert!(scene.world.closed.contains(&first), "it is closed once it is empty");
}

#[test]
fn a_refused_stream_is_moved_a_bounded_number_of_times() {
    let mut scene = Scene::new(100);
    assert_eq!(scene.call("/refuse"), Outcome::network());
    assert_eq!(scene.book.borrow().handled, 9, "sent once and moved eight times");
    scene.world.assert_all_done("refused");
    assert_eq!(scene.call("/ok"), Outcome::success(200));
}

#[test]
fn one_stream_times_out_while_the_others_go_on() {
    let mut scene = Scene::new(100);
    scene.start("/never");
    scene.talk();
    scene.world.pass(SECOND * 30);
    scene.start("/hold");
    assert_eq!(scene.call("/ok"), Outcome::success(200));
    scene.world.pass(SECOND * 30);
    scene.talk();
    assert_eq!(scene.world.outcome(), Some(Outcome::timeout()));
    assert_eq!(scene.world.done.len(), 2);
    scene.book.borrow_mut().released = true;
    scene.talk();
    assert_eq!(scene.successes(), 2);
    assert_eq!(scene.call("/ok"), Outcome::success(200));
    assert_eq!(scene.world.opened.len(), 1, "the connection was kept");
    scene.world.assert_all_done("one timeout");
}

#[test]
fn a_peer_that_went_silent_gets_no_more_calls() {
    let mut scene = Scene::new(100);
    assert_eq!(scene.call("/ok"), Outcome::success(200));
    scene.world.pass(SECOND);
    scene.start("/ok");
    scene.world.pass(SECOND * 60);
    assert_eq!(scene.world.outcome(), Some(Outcome::timeout()));
    assert_eq!(scene.world.closed.len(), 1, "nothing was heard since: the connection is dead");
    scene.world.assert_all_done("silent");
}

#[test]
fn a_connection_that_breaks_fails_its_calls() {
    let plays: [fn(&mut World, ConnId); 3] =
        [World::eof, World::reset, |world, id| world.feed(id, b"HTTP/1.1 400 Bad Request\r\n\r\n")];
    for (at, play) in plays.into_iter().enumerate() {
        let mut scene = Scene::new(100);
        for _ in 0..10 {
            scene.start("/hold");
        }
        scene.talk();
        let id = scene.world.last();
        play(&mut scene.world, id);
        scene.world.assert_all_done("broken");
        assert!(scene.world.done.iter().all(|done| done.outcome == Outcome::network()), "{at}");
        assert_eq!(scene.world.closed, [id], "{at}");
        assert_eq!(scene.call("/ok"), Outcome::success(200), "{at}: the next call works");
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[test]
fn calls_above_goaways_last_stream_are_moved_and_the_others_are_not() {
    let mut scene = Scene::new(100);
    for _ in 0..3 {
        scene.start("/ok");
    }
    let first = scene.world.last();
    let (settings, goaway) = (frame(4, 0, 0, &[]), frame(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]));
    scene.world.feed(first, &[settings, goaway].concat());
    assert_eq!(scene.world.opened.len(), 2, "streams 3 and 5 were not taken");
    assert!(scene.world.done.is_empty());
    // `:status: 200`, end of stream.
    scene.world.feed(first, &frame(1, 5, 1, &[0x88]));
    assert_eq!(scene.successes(), 1);
    assert_eq!(scene.world.closed, [first]);
    scene.talk();
    assert_eq!(scene.successes(), 3);
    assert_eq!(scene.book.borrow().handled, 2);
    scene.world.assert_all_done("GOAWAY");
}

#[test]
fn a_peer_that_takes_no_stream_at_all_is_unreachable() {
    let mut scene = Scene::new(100);
    for _ in 0..3 {
        scene.start("/ok");
        let id = scene.world.last();
        scene.world.reset(id);
    }
    scene.world.done.clear();
    scene.start("/ok");
    let id = scene.world.last();
    // GOAWAY before anything was taken, on every connection: moved until the bound.
    let bytes = [frame(4, 0, 0, &[]), frame(7, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 0])].concat();
    scene.world.feed(id, &bytes);
    for _ in 0..20 {
        if scene.world.done.is_empty() {
            let id = scene.world.last();
            scene.world.feed(id, &bytes);
        }
    }
    assert_eq!(scene.world.outcome(), Some(Outcome::network()));
    assert_eq!(scene.world.courier.connections(), 0);
}

#[test]
fn a_peer_whose_settings_allow_no_stream_is_not_asked_for_more_connections() {
    let mut scene = Scene::new(100);
    for _ in 0..100 {
        scene.start("/ok");
    }
    let none = frame(4, 0, 0, &[0, 3, 0, 0, 0, 0]);
    for _ in 0..200 {
        let open: Vec<_> = scene.world.peers.keys().copied().collect();
        for id in open {
            scene.world.feed(id, &none);
        }
    }
    assert!(scene.world.opened.len() <= 100, "{} connections", scene.world.opened.len());
    scene.world.pass(SECOND * 120);
    scene.world.assert_all_done("no streams");
    assert_eq!(scene.world.courier.connections(), 0);
}

#[test]
fn a_peer_that_never_says_a_word_is_unreachable_after_the_connect_timeout() {
    let mut scene = Scene::new(100);
    for _ in 0..100 {
        scene.start("/ok");
    }
    assert_eq!(scene.world.opened.len(), 1, "the others wait for its settings");
    scene.world.pass(SECOND * 30);
    scene.world.assert_all_done("no settings");
    assert!(scene.world.done.iter().all(|done| done.outcome == Outcome::network()));
    assert_eq!(scene.world.courier.connections(), 0);
}

#[test]
fn a_peer_that_floods_and_never_reads_is_cut_off() {
    let mut scene = Scene::new(100);
    scene.start("/ok");
    let id = scene.world.last();
    scene.world.feed(id, &frame(4, 0, 0, &[]));
    scene.world.sends = false;
    let pings = frame(6, 0, 0, &[7; 8]).repeat(1_000);
    let mut fed = 0;
    while scene.world.peers.contains_key(&id) {
        scene.world.feed(id, &pings);
        fed += pings.len();
        assert!(fed < 4 << 20, "still listening after {fed} bytes");
    }
    assert_eq!(scene.world.outcome(), Some(Outcome::network()));
    scene.world.assert_all_done("flood");
}

#[test]
fn every_call_ends_once_whatever_happens() {
    let paths = ["/ok", "/hold", "/never", "/reset", "/refuse", "/big", "/headers", "/nack"];
    for seed in 1..=150_u64 {
        let mut dice = courier_support::Dice(seed * 0x9e37_79b9);
        let streams_max = [1, 3, 100][dice.below(3)];
        let mut scene = Scene::new(streams_max);
        for _ in 0..150 {
            scene.world.connects = !dice.one_in(5);
            scene.world.sends = !dice.one_in(3);
            let open: Vec<_> = scene.world.peers.keys().copied().collect();
            let id = (!open.is_empty()).then(|| open[dice.below(open.len())]);
            match (dice.below(12), id) {
                (0..=4, _) | (_, None) => scene.start(paths[dice.below(paths.len())]),
                (5..=7, Some(_)) => scene.talk_some(),
                (8, Some(id)) if dice.one_in(3) => scene.world.eof(id),
                (8, Some(id)) if dice.one_in(3) => scene.world.reset(id),
                (8, Some(id)) => {
                    if let Some(server) = scene.servers.get_mut(&id) {
                        server.shut_down();
                    }
                }
                (9, Some(id)) => {
                    scene.world.sent(id);
                    scene.world.settle();
                }
                (10, _) => scene.book.borrow_mut().released = dice.one_in(2),
                (_, Some(_)) => scene.world.pass(Duration::from_millis(dice.roll() % 9_000)),
            }
        }
        (scene.world.connects, scene.world.sends) = (true, true);
        scene.world.pass(SECOND * 200);
        scene.world.assert_all_done(&format!("SEED={seed}"));
        assert_eq!(scene.world.courier.connections(), 0, "SEED={seed}");
    }
}

#[test]
fn garbage_frames_never_hang_or_leak() {
    for seed in 1..200_u64 {
        let mut dice = courier_support::Dice(seed * 77_777);
        let mut scene = Scene::new(100);
        for _ in 0..5 {
            scene.start("/ok");
        }
        for _ in 0..30 {
            let Some(id) = scene.world.peers.keys().next().copied() else { break };
            let byte = |dice: &mut courier_support::Dice| u8::try_from(dice.below(256)).unwrap_or(0);
            let payload: Vec<_> = (0..dice.below(30)).map(|_| byte(&mut dice)).collect();
            let kind = u8::try_from(dice.below(11)).unwrap_or(0);
            let stream = u32::try_from(dice.below(8)).unwrap_or(0);
            let flags = byte(&mut dice);
            scene.world.feed(id, &frame(kind, flags, stream, &payload));
        }
        scene.world.pass(SECOND * 120);
        scene.world.assert_all_done(&format!("SEED={seed}"));
        assert_eq!(scene.world.courier.connections(), 0, "SEED={seed}");
    }
}
