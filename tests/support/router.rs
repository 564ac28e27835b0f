//! The real program in a directory of its own: started, asked over HTTP, signalled and killed.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use corelane::sink::Stats;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::ports::free_address;
use super::wait::until;

/// Longest that a start may take on a busy machine.
const START_MAX: Duration = Duration::from_secs(30);

/// The program under test: the one built with the tests, or `CORELANE_BIN`, such as a release build.
pub(crate) fn program() -> OsString {
    std::env::var_os("CORELANE_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_corelane").into())
}

/// A directory that goes when it is dropped.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("corelane-run-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a directory for the test");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// What all its routers printed.
    pub(crate) fn logs(&self) -> String {
        let files = std::fs::read_dir(&self.0).expect("its directory").flatten();
        let logs = files.filter(|file| file.file_name().to_string_lossy().starts_with("router-"));
        logs.filter_map(|log| std::fs::read_to_string(log.path()).ok()).collect()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// A line of the sink's log.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// When it was answered, since 1970.
    pub(crate) at: Duration,
    pub(crate) id: String,
    /// Which delivery of the message, from 1.
    pub(crate) attempt: u16,
    pub(crate) status: u16,
}

impl Call {
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split('\t');
        Some(Self {
            at: Duration::from_nanos(words.next()?.parse().ok()?),
            id: words.next()?.to_owned(),
            attempt: words.next()?.parse().ok()?,
            status: words.next()?.parse().ok()?,
        })
    }
}

/// `corelane sink` as a process that outlives routers, with its log.
pub(crate) struct SinkProgram {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) log: PathBuf,
}

impl SinkProgram {
    pub(crate) fn start(dir: &Dir) -> Self {
        Self::at(dir, &free_address().to_string())
    }

    /// At the address that it had: to be down for a while and come back.
    pub(crate) fn at(dir: &Dir, listen: &str) -> Self {
        let log = dir.join("sink.log");
        Self::launch(
            Command::new(program()).args(["sink", "--listen", listen, "--log"]).arg(&log),
            log.clone(),
        )
    }

    /// By this command; it must name an address to listen on.
    pub(crate) fn launch(command: &mut Command, log: PathBuf) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the sink starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("it says where it listens");
        let address = line.trim().rsplit('/').next().and_then(|text| text.parse().ok());
        Self { child, address: address.unwrap_or_else(|| panic!("an address in {line:?}")), log }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Ids answered with success, in order.
    pub(crate) fn delivered(&self) -> Vec<String> {
        self.answers()
            .into_iter()
            .filter(|(_, status)| (200..300).contains(status))
            .map(|(id, _)| id)
            .collect()
    }

    /// Ids and statuses, in order.
    pub(crate) fn answers(&self) -> Vec<(String, u16)> {
        self.calls().into_iter().map(|call| (call.id, call.status)).collect()
    }

    /// All answers in the log, in order. Sinks of one directory share it.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().filter_map(Call::read).collect()
    }

    /// kill -9; its log and its address stay known.
    pub(crate) fn leave(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// What it counted since its start.
    pub(crate) fn stats(&self) -> Stats {
        let (_, body) = request(self.address, "GET", "/_stats", "").expect("the sink answers");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
    }

    /// When each success was answered, since 1970 and in order.
    pub(crate) fn answered_at(&self) -> Vec<Duration> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let line = |line: &str| {
            let words: Vec<&str> = line.split('\t').collect();
            let (at, status) = (words.first()?.parse().ok()?, words.get(3)?);
            status.starts_with('2').then_some(Duration::from_nanos(at))
        };
        text.lines().filter_map(line).collect()
    }
}

impl Drop for SinkProgram {
    fn drop(&mut self) {
        self.leave();
    }
}

/// `corelane run`.
pub(crate) struct Router {
    child: Child,
    pub(crate) admin: SocketAddr,
    errors: PathBuf,
}

impl Router {
    /// Starts it in `dir` on a free port and waits until it is ready.
    pub(crate) fn start(dir: &Dir, flags: &[&str]) -> Self {
        let router = Self::spawn(dir, flags, &[]);
        router.wait_ready();
        router
    }

    /// Starts it and does not wait for readiness, only for the address.
    pub(crate) fn spawn(dir: &Dir, flags: &[&str], env: &[(&str, &str)]) -> Self {
        let mut router = Self::spawn_raw(dir, flags, env);
        let (mut address, mut over) = (None, None);
        let errors = router.errors.clone();
        let text = || std::fs::read_to_string(&errors).unwrap_or_default();
        let mut told = || {
            let text = text();
            let at = text.lines().find_map(|line| line.split("dashboard http://").nth(1));
            address = at.and_then(|rest| rest.split(['/', ' ', '"']).next()?.parse().ok());
            over = router.child.try_wait().expect("it can be waited for");
            address.is_some() || over.is_some()
        };
        until(START_MAX, "it says where its dashboard is", &mut told, text);
        router.admin = address.unwrap_or_else(|| panic!("it ended at once: {over:?}\n{}", text()));
        router
    }

    /// Starts it and waits for nothing.
    pub(crate) fn spawn_raw(dir: &Dir, flags: &[&str], env: &[(&str, &str)]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let errors = dir.join(&format!("router-{}.log", COUNT.fetch_add(1, Ordering::Relaxed)));
        let log = File::create(&errors).expect("a log file");
        let child = Command::new(program())
            .current_dir(dir.path())
            .args(["run", "--listen", "127.0.0.1:0"])
            .args(flags)
            .env_clear()
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("the router starts");
        Self { child, admin: SocketAddr::from(([127, 0, 0, 1], 0)), errors }
    }

    pub(crate) fn wait_ready(&self) {
        until(START_MAX, "ready", || self.get("/health/ready").0 == 200, || self.log());
    }

    /// What it printed so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap_or_default()
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        request(self.admin, "GET", path, "").unwrap_or((0, String::new()))
    }

    pub(crate) fn json(&self, path: &str) -> Value {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> (u16, String) {
        request(self.admin, "POST", path, body).unwrap_or((0, String::new()))
    }

    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        request(self.admin, method, path, body).unwrap_or((0, String::new()))
    }

    /// Publishes messages and fails if they are not taken.
    pub(crate) fn publish(&self, messages: &[Value]) {
        let (status, said) = self.post("/api/messages", &Value::from(messages).to_string());
        assert!((200..300).contains(&status), "{status} {said}");
    }

    /// All warnings, the worst first.
    pub(crate) fn warnings(&self) -> Vec<Value> {
        let all = self.json("/api/warnings");
        all["warnings"].as_array().expect("a list of warnings").clone()
    }

    /// The warning with this code, if there is one.
    pub(crate) fn warning(&self, code: &str) -> Option<Value> {
        self.warnings().into_iter().find(|warning| warning["code"] == code)
    }

    /// The pool as the API shows it; null if there is none.
    pub(crate) fn pool(&self, code: &str) -> Value {
        let all = self.json("/api/pools");
        let pools = all["pools"].as_array().expect("a list of pools");
        pools.iter().find(|pool| pool["code"] == code).cloned().unwrap_or_default()
    }

    pub(crate) fn wait_warning(&self, code: &str) -> Value {
        until(START_MAX, code, || self.warning(code).is_some(), || self.get("/api/warnings"));
        self.warning(code).expect("it was there")
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).expect("a pid")).expect("not zero");
        kill_process(pid, signal).expect("our own child");
    }

    /// kill -9.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }

    /// Stops it in its tracks, as a pause of its host does.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    pub(crate) fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// SIGTERM, and how it ended.
    pub(crate) fn stop(mut self) -> (ExitStatus, Duration) {
        let start = Instant::now();
        self.terminate();
        let status = self.wait_end(Duration::from_secs(60));
        (status, start.elapsed())
    }

    /// Waits for its end.
    pub(crate) fn wait_end(&mut self, max: Duration) -> ExitStatus {
        let (mut status, errors) = (None, self.errors.clone());
        let mut ended = || {
            status = self.child.try_wait().expect("our own child");
            status.is_some()
        };
        until(max, "its end", &mut ended, || std::fs::read_to_string(&errors).unwrap_or_default());
        status.expect("it has ended")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.pid())).expect("it runs");
        let pages: u64 =
            text.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a number of pages");
        pages * rustix::param::page_size() as u64
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A message for `/api/messages`.
pub(crate) fn message(id: &str, group: &str, pool: &str, target: &str) -> Value {
    let mut message = serde_json::json!({ "id": id, "mediationTarget": target });
    if !group.is_empty() {
        message["messageGroupId"] = group.into();
    }
    if !pool.is_empty() {
        message["poolCode"] = pool.into();
    }
    message
}

/// One request on a connection of its own.
pub(crate) fn request(at: SocketAddr, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(5)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {at}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    // A server may refuse a body before it has all of it; what it said is there to be read.
    let _ = stream.write_all(body.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer);
    let (head, rest) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    Some((status, if chunked { unchunk(rest) } else { rest.to_owned() }))
}

fn unchunk(text: &str) -> String {
    let (mut rest, mut body) = (text, String::new());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size.trim(), 16) else { break };
        if size == 0 || after.len() < size {
            break;
        }
        body.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
    }
    body
}
