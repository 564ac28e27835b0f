//! A real RabbitMQ server: its own directory, cookie and ports on loopback, killed when it is dropped. It takes ten
//! seconds and more to start: one per test process, a queue or a vhost per test.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use std::io::{Read, Write};

use rustix::process::{Pid, Signal, kill_process};

use super::router::Dir;
use super::wait::until;

/// Where the package has its programs. The ones on the path change the user and the environment.
const PROGRAMS: &str = "/usr/lib/rabbitmq/bin";
/// How long it may take to start on a busy machine, with what it recovers.
const START_MAX: Duration = Duration::from_secs(120);
/// How long a killed process may take to be gone.
const GONE_MAX: Duration = Duration::from_secs(20);

/// The server.
pub(crate) struct RabbitServer {
    pub(crate) dir: Dir,
    pub(crate) address: SocketAddr,
    /// The port over which the tools reach it, and that of its name daemon.
    dist: u16,
    epmd: u16,
    /// The Erlang machine itself: the wrapper around it would survive it.
    beam: Option<Pid>,
    has_epmd: bool,
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
        let [address, dist, epmd] = free_addresses();
        for name in ["mnesia", "log"] {
            std::fs::create_dir_all(dir.join(name)).expect("rabbitmq: its directories");
        }
        let cookie = std::fs::File::options()
            .write(true)
            .create_new(true)
            .mode(0o400)
            .open(dir.join(".erlang.cookie"))
            .and_then(|mut file| writeln!(file, "cookie{}", std::process::id()));
        cookie.expect("rabbitmq: its cookie");
        std::fs::write(dir.join("enabled_plugins"), "[].\n").expect("rabbitmq: its plugins");
        let text = format!(
            "listeners.tcp.1 = {address}\nvm_memory_high_watermark.absolute = 400MB\n\
             disk_free_limit.absolute = 50MB\nlog.console = false\nlog.file.level = info\n{config}\n"
        );
        std::fs::write(dir.join("rabbitmq.conf"), text).expect("rabbitmq: its config");
        let mut server =
            Self { dir, address, dist: dist.port(), epmd: epmd.port(), beam: None, has_epmd: false };
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
            .env("ERL_EPMD_PORT", self.epmd.to_string())
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
        self.has_epmd = true;
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

    /// Runs `rabbitmqctl`.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } =
            self.program("rabbitmqctl").args(arguments).output().expect("rabbitmq: its tool runs");
        let (said, complained) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        assert!(status.success(), "rabbitmqctl {arguments:?}: {said}{complained}");
        said.into_owned()
    }

    /// Evaluates Erlang in the server: for what no tool tells.
    pub(crate) fn eval(&self, expression: &str) -> String {
        self.ctl(&["--quiet", "eval", expression]).trim().to_owned()
    }
}

impl Drop for RabbitServer {
    fn drop(&mut self) {
        self.kill();
        if self.has_epmd {
            // The name daemon is ours alone: it has a port of its own.
            let epmd = Command::new("epmd")
                .arg("-kill")
                .env("ERL_EPMD_PORT", self.epmd.to_string())
                .env("ERL_EPMD_ADDRESS", "127.0.0.1")
                .output();
            drop(epmd);
        }
    }
}

/// Gone, or a zombie that waits to be reaped.
fn is_gone(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.map_or(true, |stat| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')))
}

/// Three at once, so that they differ.
fn free_addresses() -> [SocketAddr; 3] {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("rabbitmq: a free port"));
    listeners.map(|listener| listener.local_addr().expect("rabbitmq: it is bound"))
}
