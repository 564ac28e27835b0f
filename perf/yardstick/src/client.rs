//! The loop: wait for a turn of completions, count the answers, post again.
//!
//! - Y1: a connection has one request in flight, so its request buffer is free when its answer is complete.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hdrhistogram::Histogram;
use io_uring::squeue::{self, Flags};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, SubmissionQueue, Submitter, cqueue, opcode};
use serde_json::{Value, json};

use crate::buffers::Buffers;
use crate::request::Request;

/// Time before the measured window, in which caches and congestion windows settle.
const WARM_UP: Duration = Duration::from_secs(1);
/// Longest wait for a turn, so that a silent target cannot keep the loop from ending.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Longest latency told apart from longer ones: a minute.
const LATENCY_US_MAX: u64 = 60_000_000;
const SUBMISSIONS: u32 = 4096;
/// Room for two completions per connection at 8,000 connections.
const COMPLETIONS: u32 = 16_384;
/// From the kernel's headers: fail a send that could not take all bytes.
const MSG_WAITALL: i32 = 0x100;
/// From the kernel's headers: the receive found no buffer; it has to be started again.
const ENOBUFS: i32 = 105;
/// Marks the completions of sends, which come only when they failed.
const SEND: u64 = 1 << 32;

struct Connection {
    stream: TcpStream,
    request: Request,
    sent_at: Instant,
    /// The beginning of an answer that came in pieces; usually empty.
    partial: Vec<u8>,
}

struct Client {
    connections: Vec<Connection>,
    latency_us: Histogram<u64>,
    deliveries: u64,
    number: u64,
    now: Instant,
}

/// Posts for the warm-up and the window; returns the figures of the window.
pub(crate) fn drive(
    address: SocketAddr,
    path: &str,
    connections: u32,
    window: Duration,
) -> anyhow::Result<Value> {
    let mut client = Client::connect(address, path, connections)?;
    let mut ring: IoUring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_coop_taskrun()
        .setup_cqsize(COMPLETIONS)
        .build(SUBMISSIONS)
        .context("set up io_uring")?;
    let mut turn = Turn { buffers: Buffers::register(&ring.submitter())?, completions: Vec::new() };

    client.now = Instant::now();
    {
        let (submitter, mut queue, _) = ring.split();
        for n in 0..client.connections.len() {
            push(&submitter, &mut queue, &client.receive(n))?;
            client.post(n, &submitter, &mut queue)?;
        }
    }
    let warm = client.now + WARM_UP;
    while client.now < warm {
        turn.run(&mut ring, &mut client)?;
    }
    client.latency_us.reset();
    client.deliveries = 0;
    let (start, cpu_start) = (Instant::now(), cpu_time());
    while client.now < start + window {
        turn.run(&mut ring, &mut client)?;
    }
    let (elapsed, cpu) = (start.elapsed(), cpu_time().saturating_sub(cpu_start));
    Ok(client.figures(elapsed, cpu))
}

/// A turn's working memory.
struct Turn {
    buffers: Buffers,
    completions: Vec<cqueue::Entry>,
}

impl Turn {
    fn run(&mut self, ring: &mut IoUring, client: &mut Client) -> anyhow::Result<()> {
        let (submitter, mut queue, mut done) = ring.split();
        queue.sync();
        let wait = Timespec::from(WAIT_MAX);
        match submitter.submit_with_args(1, &SubmitArgs::new().timespec(&wait)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::TIME.raw_os_error()) => {}
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::BUSY.raw_os_error()) => {}
            Err(error) => return Err(error).context("wait for completions"),
        }
        client.now = Instant::now();
        done.sync();
        self.completions.extend(&mut done);
        done.sync();
        queue.sync();
        for completion in self.completions.drain(..) {
            let n = usize::try_from(completion.user_data() & (SEND - 1)).expect("32 bits");
            if completion.user_data() & SEND != 0 {
                return Err(io::Error::from_raw_os_error(-completion.result())).context("send");
            }
            client.on_received(n, &completion, &mut self.buffers, &submitter, &mut queue)?;
        }
        self.buffers.publish();
        Ok(())
    }
}

impl Client {
    fn connect(address: SocketAddr, path: &str, count: u32) -> anyhow::Result<Self> {
        let now = Instant::now();
        let connect = |_| -> anyhow::Result<Connection> {
            let stream = TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
            stream.set_nodelay(true).context("set nodelay")?;
            Ok(Connection { stream, request: Request::new(address, path), sent_at: now, partial: Vec::new() })
        };
        Ok(Self {
            connections: (0..count).map(connect).collect::<Result<_, _>>()?,
            latency_us: Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).context("make a histogram")?,
            deliveries: 0,
            number: 0,
            now,
        })
    }

    fn receive(&self, n: usize) -> squeue::Entry {
        let fd = Fd(self.connections[n].stream.as_raw_fd());
        opcode::RecvMulti::new(fd, Buffers::GROUP).build().user_data(n as u64)
    }

    fn post(
        &mut self,
        n: usize,
        submitter: &Submitter<'_>,
        queue: &mut SubmissionQueue<'_>,
    ) -> anyhow::Result<()> {
        self.number += 1;
        let connection = &mut self.connections[n];
        connection.request.number(self.number);
        connection.sent_at = self.now;
        let bytes = &connection.request.bytes;
        let length = u32::try_from(bytes.len()).context("measure the request")?;
        let send = opcode::Send::new(Fd(connection.stream.as_raw_fd()), bytes.as_ptr(), length)
            .flags(MSG_WAITALL)
            .build()
            .flags(Flags::SKIP_SUCCESS)
            .user_data(n as u64 | SEND);
        push(submitter, queue, &send)
    }

    fn on_received(
        &mut self,
        n: usize,
        completion: &cqueue::Entry,
        buffers: &mut Buffers,
        submitter: &Submitter<'_>,
        queue: &mut SubmissionQueue<'_>,
    ) -> anyhow::Result<()> {
        if !cqueue::more(completion.flags()) {
            push(submitter, queue, &self.receive(n))?;
        }
        let count = match completion.result() {
            0 => bail!("the target closed connection {n}"),
            error if error == -ENOBUFS => return Ok(()),
            result => usize::try_from(result)
                .map_err(|_| io::Error::from_raw_os_error(-result))
                .context("receive")?,
        };
        let id = cqueue::buffer_select(completion.flags()).context("find the buffer of a receive")?;
        let connection = &mut self.connections[n];
        let bytes = buffers.bytes(id, count);
        let is_whole = if connection.partial.is_empty() {
            let is_whole = is_whole_answer(bytes)?;
            if !is_whole {
                connection.partial.extend_from_slice(bytes);
            }
            is_whole
        } else {
            connection.partial.extend_from_slice(bytes);
            is_whole_answer(&connection.partial)?
        };
        buffers.give_back(id);
        if !is_whole {
            return Ok(());
        }
        connection.partial.clear();
        let took = self.now.duration_since(connection.sent_at);
        self.latency_us.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        self.deliveries += 1;
        self.post(n, submitter, queue)
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for people: 53 bits are plenty")]
    fn figures(&self, elapsed: Duration, cpu: Duration) -> Value {
        let deliveries = self.deliveries.max(1) as f64;
        json!({
            "what": "yardstick",
            "connections": self.connections.len(),
            "seconds": elapsed.as_secs_f64(),
            "deliveries": self.deliveries,
            "deliveries_per_s": self.deliveries as f64 / elapsed.as_secs_f64(),
            "cpu_us_per_delivery": cpu.as_secs_f64() * 1e6 / deliveries,
            "cpu_share": cpu.as_secs_f64() / elapsed.as_secs_f64(),
            "p50_us": self.latency_us.value_at_quantile(0.5),
            "p99_us": self.latency_us.value_at_quantile(0.99),
            "p999_us": self.latency_us.value_at_quantile(0.999),
            "rss_mb": rss_mb(),
        })
    }
}

/// Queues an entry; a full queue is submitted first.
fn push(
    submitter: &Submitter<'_>,
    queue: &mut SubmissionQueue<'_>,
    entry: &squeue::Entry,
) -> anyhow::Result<()> {
    // SAFETY: a receive points at nothing of ours; a send points at its connection's request, which is
    // never freed and not written before the answer came (Y1).
    while unsafe { queue.push(entry) }.is_err() {
        queue.sync();
        submitter.submit().context("submit")?;
        queue.sync();
    }
    Ok(())
}

/// Is a whole answer there? Anything but one 2xx answer with a length ends the run.
fn is_whole_answer(bytes: &[u8]) -> anyhow::Result<bool> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head_bytes) = head.parse(bytes).context("read an answer")? else {
        return Ok(false);
    };
    let code = head.code.unwrap_or_default();
    if !(200..300).contains(&code) {
        bail!("the target answered {code}");
    }
    let length = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|header| std::str::from_utf8(header.value).ok());
    let body_bytes: usize =
        length.and_then(|text| text.parse().ok()).context("find the length of an answer")?;
    Ok(bytes.len() >= head_bytes + body_bytes)
}

/// CPU time of this process, user and system, the kernel's worker threads for its ring included.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Resident memory now, in MB; zero where /proc is missing.
fn rss_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().unwrap_or_default();
    kib / 1024.0
}
