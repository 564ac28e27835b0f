//! A real RabbitMQ server: its own directory, cookie and ports on loopback, killed when it is dropped. It takes ten
//! seconds and more to start: one per test process, a queue or a vhost per test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::ports::free_address;
use super::router::Dir;
use super::wait::until;

/// Where the package has its programs. The ones on the path change the user and the environment.
const PROGRAMS: &str = "/usr/lib/rabbitmq/bin";
/// How long it may take to start on a busy machine, with what it recovers.
const START_MAX: Duration = Duration::from_secs(120);
/// How long a killed process may take to be gone, and a small one to start.
const GONE_MAX: Duration = Duration::from_secs(20);

/// The server.
pub(crate) struct RabbitServer {
    pub(crate) dir: Dir,
    pub(crate) address: SocketAddr,
    /// The port over which nodes reach it.
    dist: u16,
    epmd: Epmd,
    /// The Erlang machine itself: the wrapper around it would survive it.
    beam: Option<Pid>,
    probe: Option<Probe>,
}

/// Erlang's name daemon: a child of ours, because one that a node starts by itself would outlive it.
struct Epmd {
    port: u16,
    child: Child,
}

impl Epmd {
    fn start(port: u16) -> Self {
        let child = Command::new("epmd")
            .args(["-address", "127.0.0.1", "-port", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("rabbitmq: a name daemon starts");
        let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        until(GONE_MAX, "the name daemon listens", listens, || port);
        Self { port, child }
    }
}

impl Drop for Epmd {
    fn drop(&mut self) {
        self.child.kill().expect("rabbitmq: our own child");
        self.child.wait().expect("rabbitmq: our own child");
    }
}

/// A node that asks the server.
struct Probe {
    child: Child,
    words: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.child.kill().expect("rabbitmq: our own child");
        self.child.wait().expect("rabbitmq: our own child");
    }
}

/// The secret of this process's servers and probes.
fn cookie() -> String {
    format!("cookie{}", std::process::id())
}

impl RabbitServer {
    /// Installs it if need be, and starts it. `config`: what else stands in its file.
    pub(crate) fn start(config: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let script = root.join("tests/services/rabbitmq.sh");
        assert!(
            Command::new(&script).status().expect("rabbitmq: the script runs").success(),
            "rabbitmq: {}",
            script.display()
        );
        let dir = Dir::new();
        let [address, dist, epmd] = [(); 3].map(|()| free_address());
        for name in ["mnesia", "log"] {
            std::fs::create_dir_all(dir.join(name)).expect("rabbitmq: its directories");
        }
        let cookie = std::fs::File::options()
            .write(true)
            .create_new(true)
            .mode(0o400)
            .open(dir.join(".erlang.cookie"))
            .and_then(|mut file| writeln!(file, "{}", cookie()));
        cookie.expect("rabbitmq: its cookie");
        std::fs::write(dir.join("enabled_plugins"), "[].\n").expect("rabbitmq: its plugins");
        let text = format!(
            "listeners.tcp.1 = {address}\nvm_memory_high_watermark.absolute = 400MB\n\
             disk_free_limit.absolute = 50MB\nlog.console = false\nlog.file.level = info\n{config}\n"
        );
        std::fs::write(dir.join("rabbitmq.conf"), text).expect("rabbitmq: its config");
        let (dist, epmd) = (dist.port(), Epmd::start(epmd.port()));
        let mut server = Self { dir, address, dist, epmd, beam: None, probe: None };
        server.launch();
        server
    }

    /// A program of its package, told of this server and no other.
    fn program(&self, name: &str) -> Command {
        let at = |name: &str| self.dir.join(name);
        let mut command = Command::new(Path::new(PROGRAMS).join(name));
        command
            .current_dir(self.dir.path())
            .env("HOME", self.dir.path())
            .env("LC_ALL", "C.UTF-8")
            .env("RABBITMQ_NODENAME", "test@localhost")
            .env("RABBITMQ_NODE_IP_ADDRESS", self.address.ip().to_string())
            .env("RABBITMQ_NODE_PORT", self.address.port().to_string())
            .env("RABBITMQ_DIST_PORT", self.dist.to_string())
            .env("RABBITMQ_MNESIA_BASE", at("mnesia"))
            .env("RABBITMQ_LOG_BASE", at("log"))
            .env("RABBITMQ_LOGS", at("log/node.log"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", at("enabled_plugins"))
            .env("RABBITMQ_CONFIG_FILE", at("rabbitmq"))
            .env("RABBITMQ_ADVANCED_CONFIG_FILE", at("advanced"))
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            .env("RABBITMQ_PID_FILE", at("pid"))
            .env("RABBITMQ_GENERATED_CONFIG_DIR", at("generated"))
            .env("RABBITMQ_SCHEMA_DIR", at("schema"))
            .env("ERL_EPMD_PORT", self.epmd.port.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("ERL_CRASH_DUMP_SECONDS", "0")
            .stdin(Stdio::null());
        command
    }

    /// Starts it, unless it runs, and waits until it serves.
    pub(crate) fn launch(&mut self) {
        if self.beam.is_some() {
            return;
        }
        let pid_file = self.dir.join("pid");
        let _ = std::fs::remove_file(&pid_file);
        let log = std::fs::File::options().create(true).append(true).open(self.dir.join("out.log"));
        let log = log.expect("rabbitmq: a log");
        // Few schedulers that do not spin: two cores are shared with the router under test.
        let flags = "-kernel inet_dist_use_interface {127,0,0,1} \
                     +S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none";
        let mut wrapper = self
            .program("rabbitmq-server")
            .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", flags)
            .stdout(log.try_clone().expect("rabbitmq: a second handle"))
            .stderr(log)
            .process_group(0)
            .spawn()
            .expect("rabbitmq: it starts");
        let read_pid = || {
            let pid = std::fs::read_to_string(&pid_file).ok()?.trim().parse().ok()?;
            Pid::from_raw(pid)
        };
        let mut ended = None;
        let serves = || {
            ended = ended.or_else(|| wrapper.try_wait().expect("rabbitmq: our own child"));
            ended.is_some() || (read_pid().is_some() && self.answers())
        };
        until(START_MAX, "rabbitmq serves", serves, || self.said());
        // The wrapper goes with its machine; a thread waits for it, or it would stay as a zombie.
        std::thread::spawn(move || wrapper.wait());
        assert!(ended.is_none(), "rabbitmq ended at once: {ended:?}: {}", self.said());
        self.beam = read_pid();
    }

    /// It answers AMQP's first word, not only the port.
    fn answers(&self) -> bool {
        let talk = || {
            let mut stream = TcpStream::connect(self.address)?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            stream.write_all(b"AMQP\x00\x00\x09\x01")?;
            let mut first = [0; 7];
            stream.read_exact(&mut first)?;
            std::io::Result::Ok(first[0] == 1)
        };
        talk().unwrap_or(false)
    }

    /// What it printed and logged.
    pub(crate) fn said(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(self.dir.join(name)).unwrap_or_default();
        format!("{}{}", read("out.log"), read("log/node.log"))
    }

    /// kill -9 of the machine itself.
    pub(crate) fn kill(&mut self) {
        let Some(beam) = self.beam.take() else { return };
        kill_process(beam, Signal::KILL).expect("rabbitmq: our own process");
        until(GONE_MAX, "rabbitmq is gone", || is_gone(beam), || self.said());
    }

    /// Lets it stand still, or go on.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(beam) = self.beam {
            kill_process(beam, signal).expect("rabbitmq: our own process");
        }
    }

    /// Evaluates Erlang in the server: for what no tool tells at once. `Err` = it is down.
    pub(crate) fn eval(&mut self, expression: &str) -> Result<String, String> {
        if self.probe.is_none() {
            self.probe = Some(self.start_probe());
        }
        let probe = self.probe.as_mut().expect("it was just started");
        let asked = writeln!(probe.words, "{}", expression.replace('\n', " "));
        asked.expect("rabbitmq: the probe listens");
        let mut answer = String::new();
        probe.answers.read_line(&mut answer).expect("rabbitmq: the probe answers");
        match answer.trim_end().split_once(' ') {
            Some(("ok", value)) => Ok(value.to_owned()),
            _ => Err(answer),
        }
    }

    /// An Erlang node beside the server: a tool that is started for each question would take a second each.
    fn start_probe(&self) -> Probe {
        let evaluate = "Loop = fun(Loop) -> case io:get_line(\"\") of eof -> halt(); Line -> \
            {ok, Tokens, _} = erl_scan:string(Line), {ok, Exprs} = erl_parse:parse_exprs(Tokens), \
            case rpc:call('test@localhost', erl_eval, exprs, [Exprs, []]) of \
            {value, Value, _} -> io:format(\"ok ~w~n\", [Value]); Other -> io:format(\"no ~w~n\", [Other]) end, \
            Loop(Loop) end end, Loop(Loop).";
        let mut child = Command::new("erl")
            .args(["-sname", "probe@localhost", "-hidden", "-noshell", "-setcookie"])
            .arg(cookie())
            .args(["-kernel", "inet_dist_use_interface", "{127,0,0,1}", "-eval", evaluate])
            .env("HOME", self.dir.path())
            .env("ERL_EPMD_PORT", self.epmd.port.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("ERL_CRASH_DUMP_SECONDS", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("rabbitmq: a probe starts");
        let words = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        Probe { child, words, answers }
    }
}

impl Drop for RabbitServer {
    fn drop(&mut self) {
        self.probe = None;
        self.kill();
    }
}

/// Gone, or a zombie that waits to be reaped.
fn is_gone(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.map_or(true, |stat| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
}
