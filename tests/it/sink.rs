//! `corelane sink`: every script, seen by a plain TCP client.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, fs, process};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

/// A read that takes longer has failed; no test waits that long when all is well.
const READ_MAX: Duration = Duration::from_secs(5);

/// A sink of its own for each test, ended with it.
struct Sink {
    child: Child,
    address: String,
}

impl Sink {
    fn start(args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_corelane"))
            .arg("sink")
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the binary");
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("read where it listens");
        let (_, address) = line.trim().rsplit_once('/').expect("a line such as listening http://127.0.0.1:1");
        Self { child, address: address.to_owned() }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("connect");
        stream.set_read_timeout(Some(READ_MAX)).expect("set a timeout");
        stream
    }

    /// Posts on a connection of its own and returns all that came until the end of it.
    fn post(&self, target: &str) -> Vec<u8> {
        let mut stream = self.connect();
        send(&mut stream, target, "connection: close\r\n");
        let mut got = Vec::new();
        stream.read_to_end(&mut got).expect("read to the end");
        got
    }

    fn stats(&self) -> serde_json::Value {
        let got = text(&self.post("/_stats"));
        serde_json::from_str(body(&got)).expect("stats are JSON")
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.child.kill().expect("end the sink");
        self.child.wait().expect("wait for the sink");
    }
}

fn send(stream: &mut TcpStream, target: &str, headers: &str) {
    let request = format!("POST {target} HTTP/1.1\r\nhost: sink\r\n{headers}content-length: 2\r\n\r\n{{}}");
    stream.write_all(request.as_bytes()).expect("send");
}

/// Reads one answer that has a length, and leaves the connection open.
fn read_answer(stream: &mut TcpStream) -> String {
    let mut got = Vec::new();
    while !got.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("read the head");
        got.push(byte[0]);
    }
    let head = text(&got);
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
    let mut rest = vec![0; length.parse().expect("a length")];
    stream.read_exact(&mut rest).expect("read the body");
    head + &text(&rest)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").expect("a head").1
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).expect("a status line")
}

fn scratch(name: &str) -> PathBuf {
    env::temp_dir().join(format!("corelane-sink-{}-{name}", process::id()))
}

#[test]
fn a_path_chooses_status_and_body() {
    let sink = Sink::start(&[]);
    let rows = [
        ("/ok", "200", r#"{"ack":true}"#),
        ("/ok/orders/1?n=2", "200", r#"{"ack":true}"#),
        ("/ok?body=%7B%22ack%22:false%7D", "200", r#"{"ack":false}"#),
        ("/status/503?body=no", "503", "no"),
        ("/status/204", "204", ""),
        ("/nowhere", "404", "no such script"),
        ("/ok?ms=never", "400", "unreadable query"),
    ];
    for (target, want_status, want_body) in rows {
        let got = text(&sink.post(target));
        assert_eq!((status(&got), body(&got)), (want_status, want_body), "{target}");
    }
    assert!(text(&sink.post("/status/429?retry_after=7")).contains("\r\nretry-after: 7\r\n"));
}

#[test]
fn a_delay_is_kept_and_does_not_hold_up_others() {
    let sink = Sink::start(&["--delay-ms", "30"]);
    let start = Instant::now();
    let mut slow = sink.connect();
    send(&mut slow, "/slow?ms=300", "");
    assert_eq!(status(&text(&sink.post("/ok"))), "200");
    let quick = start.elapsed();
    assert!(quick >= Duration::from_millis(30), "{quick:?}: the default delay was not kept");
    read_answer(&mut slow);
    let slow = start.elapsed();
    assert!(slow >= Duration::from_millis(300) && slow > quick, "{slow:?}");
}

#[test]
fn every_nth_call_fails_over_all_connections() {
    let sink = Sink::start(&["--threads", "2"]);
    let statuses: Vec<String> =
        (0..6).map(|_| status(&text(&sink.post("/fail?every=3&status=503"))).to_owned()).collect();
    assert_eq!(statuses, ["200", "200", "503", "200", "200", "503"]);
}

#[test]
fn an_error_rate_fails_a_share_of_the_calls() {
    let sink = Sink::start(&[]);
    let mut stream = sink.connect();
    let mut failed = 0;
    for _ in 0..1_000 {
        send(&mut stream, "/ok?error_rate=0.2&seed=3&status=502", "");
        failed += u32::from(status(&read_answer(&mut stream)) == "502");
    }
    assert!((150..250).contains(&failed), "{failed} of 1000");
}

#[test]
fn never_keeps_the_connection_silent() {
    let sink = Sink::start(&[]);
    let mut stream = sink.connect();
    stream.set_read_timeout(Some(Duration::from_millis(100))).expect("set a timeout");
    send(&mut stream, "/never", "");
    let error = stream.read(&mut [0]).expect_err("nothing comes, not even the end");
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    assert_eq!(sink.stats()["in_flight"], 1);
}

#[test]
fn drip_sends_a_byte_at_a_time() {
    let sink = Sink::start(&[]);
    let start = Instant::now();
    let got = text(&sink.post("/drip?ms=1"));
    assert_eq!(body(&got), r#"{"ack":true}"#);
    let want = Duration::from_millis(got.len() as u64);
    assert!(start.elapsed() >= want, "{} bytes in {:?}", got.len(), start.elapsed());
}

#[test]
fn connections_end_as_scripted() {
    let sink = Sink::start(&[]);
    assert_eq!(sink.post("/close"), b"");
    let mut stream = sink.connect();
    send(&mut stream, "/rst", "");
    let error = stream.read(&mut [0]).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    // After each of these the sink closes though the client did not ask for it.
    for target in ["/garbage", "/close-delimited", "/short"] {
        let mut stream = sink.connect();
        send(&mut stream, target, "");
        let mut got = Vec::new();
        stream.read_to_end(&mut got).expect("read to the end");
        let got = text(&got);
        match target {
            "/garbage" => assert!(!got.starts_with("HTTP/"), "{got}"),
            "/close-delimited" => {
                assert!(!got.contains("content-length") && !got.contains("transfer-encoding"), "{got}");
                assert_eq!(body(&got), r#"{"ack":true}"#);
            }
            _ => {
                assert!(got.contains("content-length: 112\r\n"), "{got}");
                assert_eq!(body(&got).len(), 12);
            }
        }
    }
}

#[test]
fn answers_are_laid_out_as_scripted() {
    let sink = Sink::start(&[]);
    let chunked = text(&sink.post("/chunked"));
    assert!(
        chunked.ends_with("chunked\r\n\r\n5\r\n{\"ack\r\n5\r\n\":tru\r\n2\r\ne}\r\n0\r\n\r\n"),
        "{chunked}"
    );
    let both = text(&sink.post("/te-cl"));
    assert!(
        both.contains("content-length: 12\r\n") && both.contains("transfer-encoding: chunked\r\n"),
        "{both}"
    );
    assert_eq!(body(&text(&sink.post("/big?bytes=3000000"))).len(), 3_000_000);
    assert_eq!(text(&sink.post("/headers?count=150")).matches("\r\nx-fill-").count(), 150);
    let interim = text(&sink.post("/one-xx?count=4"));
    assert_eq!(interim.matches("HTTP/1.1 103 ").count(), 4, "{interim}");
    assert!(interim.contains("HTTP/1.1 200 OK\r\n"), "{interim}");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let sink = Sink::start(&[]);
    let mut stream = sink.connect();
    send(&mut stream, "/slow?ms=50&body=first", "");
    send(&mut stream, "/ok?body=second", "");
    send(&mut stream, "/slow?ms=10&body=third", "");
    for want in ["first", "second", "third"] {
        assert_eq!(body(&read_answer(&mut stream)), want);
    }
}

#[test]
fn a_request_may_come_in_pieces_and_with_a_large_body() {
    let sink = Sink::start(&[]);
    let mut stream = sink.connect();
    stream.set_nodelay(true).expect("set nodelay");
    for byte in b"POST /ok HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc" {
        stream.write_all(&[*byte]).expect("send");
    }
    assert_eq!(status(&read_answer(&mut stream)), "200");
    stream.write_all(b"POST /ok HTTP/1.1\r\ncontent-length: 1000000\r\n\r\n").expect("send");
    stream.write_all(&vec![b'x'; 1_000_000]).expect("send");
    assert_eq!(status(&read_answer(&mut stream)), "200");
}

#[test]
fn a_wrong_request_is_refused() {
    let sink = Sink::start(&[]);
    let rows = [
        ("nonsense\r\n\r\n", "400"),
        ("POST /ok HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", "411"),
        ("POST /ok HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n", "413"),
    ];
    for (request, want) in rows {
        let mut stream = sink.connect();
        stream.write_all(request.as_bytes()).expect("send");
        let mut got = Vec::new();
        stream.read_to_end(&mut got).expect("read to the end");
        assert_eq!(status(&text(&got)), want, "{request}");
    }
}

#[test]
fn stats_tell_how_many_requests_were_in_flight_at_once() {
    let sink = Sink::start(&["--threads", "2"]);
    let mut streams: Vec<TcpStream> = (0..20).map(|_| sink.connect()).collect();
    for stream in &mut streams {
        send(stream, "/slow?ms=200", "");
    }
    for stream in &mut streams {
        read_answer(stream);
    }
    send(&mut streams[0], "/ok", "");
    read_answer(&mut streams[0]);
    let stats = sink.stats();
    assert_eq!(stats["requests"], 21, "{stats}");
    assert_eq!(stats["connections"], 21, "{stats}: the one that asks is the 21st");
    assert_eq!(stats["in_flight_max"], 20, "{stats}");
    assert_eq!(stats["in_flight"], 0, "{stats}");
}

#[test]
fn the_log_has_a_line_per_answer_before_the_client_knows() {
    let path = scratch("log");
    let sink = Sink::start(&["--log", path.to_str().expect("a plain path")]);
    let mut stream = sink.connect();
    for n in 1..=3 {
        let headers = format!("Idempotency-Key: key-{n}\r\nCorelane-Attempt: {n}\r\n");
        send(&mut stream, &format!("/status/{}", 200 + n), &headers);
        read_answer(&mut stream);
        let log = fs::read_to_string(&path).expect("read the log");
        let fields: Vec<&str> = log.lines().last().expect("a line").split('\t').collect();
        assert!(fields[0].parse::<u64>().expect("a time") > 1_600_000_000_000_000_000, "{log}");
        let (key, attempt, status) = (format!("key-{n}"), n.to_string(), (200 + n).to_string());
        assert_eq!(fields[1..], [&key, &attempt, &status, "2"], "{log}");
    }
    sink.post("/close");
    assert_eq!(fs::read_to_string(&path).expect("read the log").lines().count(), 3, "no answer, no line");
    fs::remove_file(&path).expect("clean up");
}

/// Posts over HTTP/2 on any byte stream; returns status and body per target.
async fn post_http2(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    targets: &[&str],
) -> Vec<hyper::Result<(u16, String)>> {
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("shake hands");
    tokio::spawn(connection);
    let mut got = Vec::new();
    for target in targets {
        let request = Request::post(format!("http://127.0.0.1{target}"))
            .header("idempotency-key", "key-1")
            .body(Full::new(Bytes::from_static(b"{}")))
            .expect("a request");
        got.push(match sender.send_request(request).await {
            Ok(answer) => {
                let status = answer.status().as_u16();
                let body = answer.into_body().collect().await.expect("a body").to_bytes();
                Ok((status, text(&body)))
            }
            Err(error) => Err(error),
        });
    }
    got
}

#[tokio::test]
async fn http2_answers_as_scripted() {
    let log = scratch("http2-log");
    let sink = Sink::start(&["--http2", "--log", log.to_str().expect("a plain path")]);
    let stream = tokio::net::TcpStream::connect(&sink.address).await.expect("connect");
    let start = Instant::now();
    let got = post_http2(stream, &["/ok", "/status/503?body=no", "/slow?ms=50", "/rst", "/_stats"]).await;
    assert!(start.elapsed() >= Duration::from_millis(50));
    let [ok, refused, slow, reset, stats] = got.try_into().expect("five answers");
    assert_eq!(ok.expect("an answer"), (200, r#"{"ack":true}"#.to_owned()));
    assert_eq!(refused.expect("an answer"), (503, "no".to_owned()));
    assert_eq!(slow.expect("an answer").0, 200);
    reset.expect_err("the stream ends without an answer");
    let stats: serde_json::Value = serde_json::from_str(&stats.expect("an answer").1).expect("JSON");
    assert_eq!((&stats["requests"], &stats["answers"]), (&4.into(), &3.into()), "{stats}");
    let lines = fs::read_to_string(&log).expect("read the log");
    fs::remove_file(&log).expect("clean up");
    assert_eq!(lines.matches("\tkey-1\t").count(), 3, "{lines}");
}

#[tokio::test]
async fn tls_agrees_on_http2_and_its_certificate_is_written() {
    let path = scratch("cert.pem");
    let sink = Sink::start(&["--tls", "--http2", "--cert-out", path.to_str().expect("a plain path")]);
    let pem = fs::read(&path).expect("read the certificate");
    fs::remove_file(&path).expect("clean up");
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&pem).expect("a certificate")).expect("a root");
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = tokio::net::TcpStream::connect(&sink.address).await.expect("connect");
    let name = ServerName::try_from("127.0.0.1").expect("a name");
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("TLS");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let got = post_http2(stream, &["/ok?body=hello"]).await.remove(0);
    assert_eq!(got.expect("an answer"), (200, "hello".to_owned()));
}

#[test]
fn help_ends_with_examples() {
    let out = Command::new(env!("CARGO_BIN_EXE_corelane")).args(["sink", "--help"]).output().expect("run");
    let help = text(&out.stdout);
    let (_, examples) = help.split_once("Examples:").expect("examples");
    assert!(examples.contains("corelane sink --listen"), "{examples}");
}

#[test]
fn what_cannot_be_had_is_said_at_once() {
    let taken = Sink::start(&[]);
    let rows: [(&[&str], &str); 4] = [
        (&["--cores", "1000"], "pin a thread to core 1000"),
        (&["--threads", "2", "--cores", "0,1000"], "pin a thread to core 1000"),
        (&["--log", "/nowhere/log"], "open log /nowhere/log"),
        (&["--listen", &taken.address], "listen on 127.0.0.1:"),
    ];
    for (args, want) in rows {
        let run = Command::new(env!("CARGO_BIN_EXE_corelane")).arg("sink").args(args).output().expect("run");
        let said = text(&run.stderr);
        assert!(!run.status.success() && said.contains(want), "{args:?}: {said}");
    }
}
