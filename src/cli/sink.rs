//! `corelane sink`: a scripted HTTP target for tests and benchmarks.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;

use super::cores::Cores;
use crate::sink::{self, Options, Protocol};

const EXAMPLES: &str = "\
Scripts (first part of the path):
  /ok                        200 and {\"ack\":true}
  /slow?ms=100               the same after a delay
  /status/503                that status
  /fail?every=10&status=500  every 10th call fails, the others are /ok
  /never                     no answer, connection kept
  /drip?ms=1000              the answer, 1 byte every ms
  /rst  /close               resets, or closes, without an answer
  /garbage                   bytes that are not HTTP
  /chunked                   chunked transfer coding
  /close-delimited           a body that ends with the connection
  /big?bytes=N               a body of N bytes
  /headers?count=N           N extra headers
  /te-cl                     both Transfer-Encoding and Content-Length
  /short                     closes before its Content-Length
  /one-xx?count=N            N interim answers first
  /_stats                    requests, connections, most requests in flight
On any script: ?ms= delay, ?body= text, ?retry_after=, ?error_rate=0.02&seed=7&status=500

Examples:
  corelane sink --listen 127.0.0.1:9000
  corelane sink --listen 127.0.0.1:0 --threads 1 --cores 1 --delay-ms 100
  corelane sink --http2 --tls --cert-out sink.pem
  curl -d '{}' 'http://127.0.0.1:9000/fail?every=3&status=503&retry_after=1'
  curl http://127.0.0.1:9000/_stats";

/// A scripted HTTP target: the path says how each request is answered
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Address to listen on; port 0 takes a free one and prints it
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Serving threads (HTTP/1.1 in clear text only; the other modes use one)
    #[arg(long, default_value = "1")]
    threads: NonZeroUsize,
    /// Cores to pin the threads to, such as 1 or 0,2 or 2-7
    #[arg(long)]
    cores: Option<Cores>,
    /// Serve over TLS with a self-signed certificate for localhost and 127.0.0.1
    #[arg(long)]
    tls: bool,
    /// Serve HTTP/2: by prior knowledge, or by ALPN with --tls
    #[arg(long)]
    http2: bool,
    /// Delay of every answer whose script names none, in milliseconds
    #[arg(long, default_value_t = 0, value_name = "N")]
    delay_ms: u64,
    /// Append a line per answered request: time, idempotency key, attempt, status, body bytes
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Write the self-signed certificate here, as PEM (with --tls)
    #[arg(long, value_name = "FILE", requires = "tls")]
    cert_out: Option<PathBuf>,
}

/// Serves until the process is ended.
///
/// # Errors
/// When the address, the log or the certificate file cannot be used, or a serving thread failed.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let options = Options {
        listen: args.listen,
        threads: args.threads,
        cores: args.cores.clone().unwrap_or_default().0,
        protocol: match (args.tls, args.http2) {
            (false, false) => Protocol::Http1,
            (false, true) => Protocol::Http2,
            (true, false) => Protocol::Http1Tls,
            (true, true) => Protocol::Http2Tls,
        },
        delay: Duration::from_millis(args.delay_ms),
        log: args.log.clone(),
    };
    let sink = sink::start(&options).context("start the sink")?;
    if let (Some(path), Some(pem)) = (&args.cert_out, sink.cert_pem()) {
        fs::write(path, pem).with_context(|| format!("write the certificate to {}", path.display()))?;
    }
    let scheme = if args.tls { "https" } else { "http" };
    let mut stdout = io::stdout();
    writeln!(stdout, "listening {scheme}://{}", sink.address()).context("say where it listens")?;
    stdout.flush().context("say where it listens")?;
    sink.wait().context("serve")
}
