//! A real nats-server with JetStream: its own directory, fixed ports on loopback, killed when it is dropped.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::ports::free_address;
use super::router::{Dir, request};
use super::wait::until;

/// How long it may take to start, with what it recovers.
const START_MAX: Duration = Duration::from_secs(30);

/// The server.
pub(crate) struct NatsServer {
    pub(crate) dir: Dir,
    pub(crate) address: SocketAddr,
    pub(crate) program: PathBuf,
    pub(crate) monitor: SocketAddr,
    child: Option<Child>,
}

impl NatsServer {
    /// Installs it if need be, and starts it. `config`: what else stands in its file.
    pub(crate) fn start(config: &str) -> Self {
        let server = Self::prepare(config, Dir::new());
        server.launched()
    }

    /// The same in a directory that holds files of its config.
    pub(crate) fn start_in(dir: Dir, config: &str) -> Self {
        Self::prepare(config, dir).launched()
    }

    fn launched(mut self) -> Self {
        self.launch();
        self
    }

    fn prepare(config: &str, dir: Dir) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let script = root.join("tests/services/nats.sh");
        assert!(
            Command::new(&script).status().expect("nats: the script runs").success(),
            "nats: {}",
            script.display()
        );
        let program = root.join("target/services/nats-2.15.1/bin/nats-server");
        let [address, monitor] = [(); 2].map(|()| free_address());
        let store = dir.join("store").display().to_string();
        // Synced always: the server's own default is every two minutes, and a crash would lose what it confirmed.
        let text = format!(
            "server_name: test\nlisten: \"{address}\"\nhttp: \"{monitor}\"\n{config}\n\
             jetstream {{ store_dir: {store:?}, max_mem: 64MB, max_file: 2GB, sync_interval: always }}\n"
        );
        std::fs::write(dir.join("nats.conf"), text).expect("nats: its config");
        Self { dir, address, program, monitor, child: None }
    }

    /// Starts it, unless it runs, and waits until it serves.
    pub(crate) fn launch(&mut self) {
        if self.child.is_some() {
            return;
        }
        let log = std::fs::File::options().create(true).append(true).open(self.dir.join("nats.log"));
        let log = log.expect("nats: a log");
        let child = Command::new(&self.program)
            .arg("-c")
            .arg(self.dir.join("nats.conf"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("nats: a second handle"))
            .stderr(log)
            .spawn();
        self.child = Some(child.expect("nats: it starts"));
        let serves = || request(self.monitor, "GET", "/healthz", "").is_some_and(|(status, _)| status == 200);
        let said = || std::fs::read_to_string(self.dir.join("nats.log")).unwrap_or_default();
        until(START_MAX, "nats serves", serves, said);
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("nats: our own child");
            child.wait().expect("nats: our own child");
        }
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}
