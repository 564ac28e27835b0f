//! TLS against a real rustls server in memory.

mod courier_support;
#[path = "courier_support/h2_server.rs"]
mod h2_server;

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use courier_support::{ACK, World};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection};
use shards::courier::tls;
use shards::model::{CourierTuning, HttpVersion, Outcome};
use shards::wire::ConnId;

const URL: &str = "https://hook.example/x";

/// A certificate authority of the test's own.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("params");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    fn server(&self, names: &[&str], expired: bool, alpn: &[&str]) -> Arc<ServerConfig> {
        let key = KeyPair::generate().expect("a key");
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("params");
        if expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("a certificate and its key");
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    fn client(&self) -> Arc<rustls::ClientConfig> {
        Arc::new(tls::config(tls::Roots { native: false, extra_pem: self.pem.as_bytes() }).expect("settings"))
    }
}

/// The server's side of one connection.
struct Server {
    session: ServerConnection,
    seen: usize,
    plain: Vec<u8>,
}

impl Server {
    fn new(config: &Arc<ServerConfig>) -> Self {
        let session = ServerConnection::new(Arc::clone(config)).expect("a session");
        Self { session, seen: 0, plain: Vec::new() }
    }

    /// Moves bytes both ways, `piece` at a time, until none are left.
    fn talk(&mut self, world: &mut World, id: ConnId, piece: usize) {
        for _ in 0..10_000 {
            let Some(peer) = world.peers.get(&id) else { return };
            let mut fresh = &peer.received[self.seen..];
            self.seen += fresh.len();
            while !fresh.is_empty() {
                self.session.read_tls(&mut fresh).expect("memory");
                if self.session.process_new_packets().is_err() {
                    break;
                }
                let mut bytes = [0; 4096];
                while let Ok(read @ 1..) = self.session.reader().read(&mut bytes) {
                    self.plain.extend_from_slice(&bytes[..read]);
                }
            }
            let mut answer = Vec::new();
            while self.session.wants_write() {
                self.session.write_tls(&mut answer).expect("memory");
            }
            if answer.is_empty() {
                return;
            }
            for piece in answer.chunks(piece) {
                world.feed(id, piece);
            }
        }
        panic!("the peers never stop talking");
    }

    fn say(&mut self, world: &mut World, id: ConnId, plain: &[u8], piece: usize) {
        self.session.writer().write_all(plain).expect("memory");
        self.talk(world, id, piece);
    }
}

fn world(authority: &Authority, http: HttpVersion) -> World {
    World::with_tls(CourierTuning { http, ..CourierTuning::default() }, Some(authority.client()))
}

fn open(world: &mut World, url: &str) -> ConnId {
    world.start(url);
    let origin = world.origin(url);
    if world.opened.is_empty() {
        world.resolved(origin, Ok(vec!["192.0.2.1:443".parse().expect("an address")]));
    }
    world.last()
}

#[test]
fn a_verified_target_gets_its_call_however_the_bytes_are_cut() {
    let authority = Authority::new();
    for piece in [1, 7, 1_000_000] {
        for alpn in [&[][..], &["http/1.1"], &["h2", "http/1.1"]] {
            let config = authority.server(&["hook.example"], false, alpn);
            let mut world = world(&authority, HttpVersion::Http1);
            let id = open(&mut world, URL);
            let mut server = Server::new(&config);
            server.talk(&mut world, id, piece);
            assert!(server.plain.starts_with(b"POST /x HTTP/1.1\r\nhost: hook.example\r\n"), "{alpn:?}");
            assert_eq!(server.session.server_name(), Some("hook.example"));
            server.say(&mut world, id, ACK, piece);
            assert_eq!(world.outcome(), Some(Outcome::success(200)), "{alpn:?} piece {piece}");
            server.plain.clear();
            world.start(URL);
            server.talk(&mut world, id, piece);
            assert!(server.plain.starts_with(b"POST"), "the connection is used again");
            server.say(&mut world, id, ACK, piece);
            assert_eq!(world.done.len(), 2);
            world.pass(Duration::from_secs(31));
            assert_eq!(world.closed, [id]);
        }
    }
}

#[test]
fn the_address_of_a_literal_target_is_verified() {
    let authority = Authority::new();
    for (name, want) in [("127.0.0.1", true), ("127.0.0.2", false)] {
        let config = authority.server(&[name], false, &[]);
        let mut world = world(&authority, HttpVersion::Negotiate);
        let id = open(&mut world, "https://127.0.0.1/x");
        let mut server = Server::new(&config);
        server.talk(&mut world, id, 1_000);
        assert_eq!(!server.plain.is_empty(), want, "{name}");
        assert_eq!(world.done.is_empty(), want, "{name}");
    }
}

#[test]
fn a_target_that_can_not_prove_itself_never_sees_the_request() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let rows = [
        ("wrong host", authority.server(&["other.example"], false, &[])),
        ("expired", authority.server(&["hook.example"], true, &[])),
        ("unknown authority", stranger.server(&["hook.example"], false, &[])),
        ("no common protocol", authority.server(&["hook.example"], false, &["spdy/3"])),
    ];
    for (name, config) in rows {
        let mut world = world(&authority, HttpVersion::Negotiate);
        let id = open(&mut world, URL);
        let mut server = Server::new(&config);
        server.talk(&mut world, id, 1_000);
        assert!(server.plain.is_empty(), "{name}: not one byte of the request");
        if world.done.is_empty() {
            // The server has nothing to say after its alert, so it closes.
            world.eof(id);
        }
        assert_eq!(world.outcome(), Some(Outcome::network()), "{name}");
        assert_eq!(world.closed, [id], "{name}");
        world.assert_all_done(name);
    }
}

#[test]
fn a_body_that_ends_with_the_connection_needs_a_farewell() {
    let authority = Authority::new();
    let config = authority.server(&["hook.example"], false, &[]);
    for farewell in [true, false] {
        let mut world = world(&authority, HttpVersion::Http1);
        let id = open(&mut world, URL);
        let mut server = Server::new(&config);
        server.talk(&mut world, id, 1_000);
        server.say(&mut world, id, b"HTTP/1.1 200 OK\r\n\r\n{\"ack\":true}", 1_000);
        assert!(world.done.is_empty());
        if farewell {
            server.session.send_close_notify();
            server.talk(&mut world, id, 1_000);
        }
        world.eof(id);
        let want = if farewell { Outcome::success(200) } else { Outcome::network() };
        assert_eq!(world.outcome(), Some(want), "farewell={farewell}");
    }
}

#[test]
fn a_peer_that_answers_and_says_farewell_gets_no_further_call() {
    let authority = Authority::new();
    let config = authority.server(&["hook.example"], false, &["http/1.1"]);
    let tuning = CourierTuning { connections_max: 1, http: HttpVersion::Http1, ..CourierTuning::default() };
    let mut world = World::with_tls(tuning, Some(authority.client()));
    let id = open(&mut world, URL);
    world.start(URL);
    let mut server = Server::new(&config);
    server.talk(&mut world, id, 1 << 16);
    server.session.writer().write_all(ACK).expect("memory");
    server.session.send_close_notify();
    server.talk(&mut world, id, 1 << 16);
    assert_eq!(world.done.len(), 1, "the second call was not spent on a closing connection");
    assert_eq!(world.opened.len(), 2);
}

#[test]
fn the_first_connection_tells_how_many_are_needed() {
    let authority = Authority::new();
    let config = authority.server(&["hook.example"], false, &["http/1.1"]);
    let mut world = world(&authority, HttpVersion::Negotiate);
    let id = open(&mut world, URL);
    for _ in 0..9 {
        world.start(URL);
    }
    assert_eq!(world.opened.len(), 1, "it may speak HTTP/2");
    let mut server = Server::new(&config);
    server.talk(&mut world, id, 1_000);
    assert_eq!(world.opened.len(), 10, "it does not");
    let mut servers = vec![(id, server)];
    for id in world.opened.clone().into_iter().skip(1) {
        let mut server = Server::new(&config);
        server.talk(&mut world, id, 1_000);
        servers.push((id, server));
    }
    for (id, server) in &mut servers {
        server.say(&mut world, *id, ACK, 1_000);
    }
    world.assert_all_done("HTTP/1.1 over TLS");
}

#[test]
fn http_2_is_spoken_where_both_sides_offer_it() {
    let authority = Authority::new();
    let config = authority.server(&["hook.example"], false, &["h2", "http/1.1"]);
    let mut world = world(&authority, HttpVersion::Negotiate);
    let id = open(&mut world, URL);
    for _ in 0..9 {
        world.start(URL);
    }
    let (mut server, book) = (Server::new(&config), std::rc::Rc::default());
    let mut http2 = h2_server::Server::new(id, &book, 100);
    for _ in 0..20 {
        server.talk(&mut world, id, 100);
        let plain = std::mem::take(&mut server.plain);
        let answer = http2.work(&plain);
        server.say(&mut world, id, &answer, 100);
    }
    assert_eq!(server.session.alpn_protocol(), Some(&b"h2"[..]));
    assert_eq!(world.done.iter().filter(|done| done.outcome == Outcome::success(200)).count(), 10);
    assert_eq!(world.opened.len(), 1);
    world.assert_all_done("h2 over TLS");
    world.pass(Duration::from_secs(31));
    assert_eq!(world.closed, [id]);
}

#[test]
fn a_large_request_goes_out_whole() {
    let authority = Authority::new();
    let config = authority.server(&["hook.example"], false, &[]);
    let mut world = world(&authority, HttpVersion::Http1);
    let body = vec![b'x'; 3 << 20];
    world.start_with(URL, &body);
    let origin = world.origin(URL);
    world.resolved(origin, Ok(vec!["192.0.2.1:443".parse().expect("an address")]));
    let id = world.last();
    let mut server = Server::new(&config);
    server.talk(&mut world, id, 1 << 16);
    assert!(server.plain.ends_with(&body));
    server.say(&mut world, id, ACK, 1_000);
    world.assert_all_done("large");
}

#[test]
fn settings_without_an_authority_are_refused() {
    assert!(matches!(tls::config(tls::Roots::default()), Err(tls::TlsError::NoRoots)));
    let bad = tls::Roots {
        native: false,
        extra_pem: b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n",
    };
    assert!(tls::config(bad).is_err());
}
