//! A real ActiveMQ broker: its own directory, fixed ports on loopback, a journal that is synced, killed when it is dropped;
//! and ActiveMQ's own JMS client beside it.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use super::ports::free_address;
use super::router::Dir;
use super::wait::until;

/// How long it may take to start, with what it recovers.
const START_MAX: Duration = Duration::from_secs(60);
const HOME: &str = "/usr/share/activemq";
pub(crate) const USER: &str = "router";
pub(crate) const PASSWORD: &str = "right-secret";

/// How a broker is set up.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) scheduler: bool,
    pub(crate) statistics: bool,
    /// More plugins.
    pub(crate) plugins: String,
    /// More connectors.
    pub(crate) connectors: String,
    /// A TLS context, or whatever else stands in its file.
    pub(crate) more: String,
}

impl Default for Setup {
    fn default() -> Self {
        let [plugins, connectors, more] = [(); 3].map(|()| String::new());
        Self { scheduler: true, statistics: true, plugins, connectors, more }
    }
}

/// The broker.
pub(crate) struct ActiveMqServer {
    pub(crate) dir: Dir,
    pub(crate) address: SocketAddr,
    child: Option<Child>,
    jms: RefCell<Option<Jms>>,
}

/// A Java process that speaks JMS.
struct Jms {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Drop for Jms {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A message as a JMS client sends it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Post<'a> {
    /// `text`, `bytes`, `map` or `empty`.
    pub(crate) kind: &'a str,
    pub(crate) group: &'a str,
    pub(crate) body: &'a [u8],
    /// Such as `tenant=t1`.
    pub(crate) properties: &'a [&'a str],
}

impl ActiveMqServer {
    /// Installs it if need be, and starts it.
    pub(crate) fn start(setup: &Setup) -> Self {
        Self::start_in(Dir::new(), setup)
    }

    /// The same in a directory that holds files of its config.
    pub(crate) fn start_in(dir: Dir, setup: &Setup) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/services/activemq.sh");
        let installed = Command::new(&script).status().expect("activemq: the script runs");
        assert!(installed.success(), "activemq: {}", script.display());
        let address = free_address();
        for folder in ["conf", "data", "tmp"] {
            std::fs::create_dir_all(dir.join(folder)).expect("activemq: a folder");
        }
        std::fs::write(dir.join("conf/activemq.xml"), config(&dir, address, setup))
            .expect("activemq: its config");
        let mut server = Self { dir, address, child: None, jms: RefCell::default() };
        server.launch();
        server
    }

    /// Starts it, unless it runs, and waits until it serves.
    pub(crate) fn launch(&mut self) {
        if self.child.is_some() {
            return;
        }
        let log = std::fs::File::options().create(true).append(true).open(self.dir.join("activemq.log"));
        let log = log.expect("activemq: a log");
        let at = |name: &str, folder: &str| format!("-D{name}={}", self.dir.join(folder).display());
        let child = Command::new("java")
            .args(["-Xms96m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .args(["-Dorg.apache.activemq.UseDedicatedTaskRunner=false"])
            .arg(format!("-Dactivemq.home={HOME}"))
            .args([at("java.io.tmpdir", "tmp"), at("activemq.base", "."), at("activemq.conf", "conf")])
            .arg(at("activemq.data", "data"))
            .args(["-jar", &format!("{HOME}/bin/activemq.jar"), "start"])
            .arg(format!("xbean:file:{}", self.dir.join("conf/activemq.xml").display()))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("activemq: a second handle"))
            .stderr(log)
            .spawn();
        self.child = Some(child.expect("activemq: it starts"));
        let said = || std::fs::read_to_string(self.dir.join("activemq.log")).unwrap_or_default();
        until(START_MAX, "activemq serves", || answers(self.address), said);
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("activemq: our own child");
            child.wait().expect("activemq: our own child");
        }
    }

    pub(crate) fn uri(&self, queue: &str) -> String {
        format!("activemq://{USER}:{PASSWORD}@{}/{queue}", self.address)
    }

    /// Has the JMS client do something; its answer's words.
    pub(crate) fn jms(&self, words: &[&str], lines: &[String]) -> Vec<String> {
        let mut jms = self.jms.borrow_mut();
        let jms = jms.get_or_insert_with(|| self.start_jms());
        let text =
            std::iter::once(words.join("\t")).chain(lines.iter().cloned()).collect::<Vec<_>>().join("\n")
                + "\n";
        jms.input.write_all(text.as_bytes()).expect("activemq: the JMS client listens");
        let mut answer = String::new();
        jms.output.read_line(&mut answer).expect("activemq: the JMS client answers");
        let mut words = answer.trim_end_matches('\n').split('\t').map(str::to_owned);
        assert_eq!(words.next().as_deref(), Some("ok"), "activemq: {text:.200}: {answer}");
        words.collect()
    }

    fn start_jms(&self) -> Jms {
        let classes = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/services/activemq");
        let log = std::fs::File::create(self.dir.join("jms.log")).expect("activemq: a log");
        let mut child = Command::new("java")
            .args(["-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"])
            .arg(format!("{}:{HOME}/lib/*", classes.display()))
            .args(["Jms", &format!("tcp://{}", self.address), USER, PASSWORD])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("activemq: the JMS client starts");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Jms { child, input, output: BufReader::new(output) }
    }

    /// Publishes by JMS, in one transaction. The last one's id.
    pub(crate) fn publish(&self, queue: &str, posts: &[Post<'_>], packed: bool) -> String {
        let line = |post: &Post<'_>| {
            let body = base64(post.body);
            [&[post.kind, post.group, &body], post.properties].concat().join("\t")
        };
        let lines: Vec<String> = posts.iter().map(line).collect();
        let packed = if packed { "packed" } else { "plain" };
        self.jms(&["publish", queue, &lines.len().to_string(), packed], &lines).concat()
    }

    /// Messages kept, and those of them handed over and not acked; and consumers.
    pub(crate) fn counts(&self, queue: &str) -> [u64; 3] {
        let words = self.jms(&["counts", queue], &[]);
        let number = |at: usize| words[at].parse().unwrap_or_else(|_| panic!("activemq: {words:?}"));
        [number(0), number(1), number(2)]
    }
}

impl Drop for ActiveMqServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// It says what it can do as soon as someone connects.
fn answers(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
    let mut head = [0; 13];
    stream.read_exact(&mut head).is_ok() && head[4..] == *b"\x01ActiveMQ"
}

fn config(dir: &Dir, address: SocketAddr, setup: &Setup) -> String {
    let Setup { scheduler, statistics, plugins, connectors, more } = setup;
    let data = dir.join("data").display().to_string();
    let statistics = if *statistics { "<statisticsBrokerPlugin/>" } else { "" };
    format!(
        r#"<beans xmlns="http://www.springframework.org/schema/beans" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans http://www.springframework.org/schema/beans/spring-beans.xsd
  http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="test" useJmx="false" dataDirectory="{data}"
          schedulerSupport="{scheduler}" persistent="true" useShutdownHook="true">
    <persistenceAdapter><kahaDB directory="{data}/kahadb"/></persistenceAdapter>
    <plugins>
      <simpleAuthenticationPlugin><users>
        <authenticationUser username="{USER}" password="{PASSWORD}" groups="users"/>
      </users></simpleAuthenticationPlugin>
      {plugins}
      {statistics}
    </plugins>
    {more}
    <systemUsage><systemUsage>
      <memoryUsage><memoryUsage limit="128 mb"/></memoryUsage>
      <storeUsage><storeUsage limit="1 gb"/></storeUsage><tempUsage><tempUsage limit="256 mb"/></tempUsage>
      <jobSchedulerUsage><jobSchedulerUsage limit="256 mb"/></jobSchedulerUsage>
    </systemUsage></systemUsage>
    <transportConnectors>
      <transportConnector name="openwire" uri="tcp://{address}"/>
      {connectors}
    </transportConnectors>
  </broker>
</beans>
"#
    )
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let all =
            chunk.iter().fold(0_u32, |all, byte| all << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let letter = LETTERS[(all >> (18 - 6 * at)) as usize & 63];
            text.push(if at <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}
