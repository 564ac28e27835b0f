//! The sink as a process of its own, so that its CPU time is not the router's.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::Context;

use super::Scenario;

/// A running `corelane sink`. Ends with this value.
pub struct SinkProcess {
    child: Child,
    /// `scheme://host:port`.
    pub url: String,
    /// Its certificate, where it speaks TLS.
    pub cert_pem: Option<Vec<u8>>,
}

impl SinkProcess {
    /// Starts this program's own `sink` as the scenario asks for.
    ///
    /// # Errors
    /// It did not start, or did not say where it listens.
    pub fn start(scenario: &Scenario) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("find this program")?);
        command.arg("sink").arg("--delay-ms").arg(scenario.delay.as_millis().to_string());
        if let Some(core) = scenario.sink_core {
            command.arg("--cores").arg(core.to_string());
        }
        // Its own group: Ctrl-C is for us, the sink is ended when we are done with it.
        command.process_group(0);
        if scenario.http2 {
            command.arg("--http2");
        }
        let cert = std::env::temp_dir().join(format!("corelane-sink-{}.pem", std::process::id()));
        if scenario.tls {
            command.arg("--tls").arg("--cert-out").arg(&cert);
        }
        let mut child =
            command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().context("start the sink")?;
        let stdout = child.stdout.take().context("read from the sink")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("read from the sink")?;
        let url = line.trim().strip_prefix("listening ").context("the sink did not say where it listens")?;
        let url = url.to_owned();
        let cert_pem = if scenario.tls {
            let pem = std::fs::read(&cert).context("read the sink's certificate")?;
            let _ = std::fs::remove_file(&cert);
            Some(pem)
        } else {
            None
        };
        Ok(Self { child, url, cert_pem })
    }
}

impl Drop for SinkProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
