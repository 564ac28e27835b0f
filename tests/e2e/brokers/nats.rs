//! NATS JetStream: a work queue stream per queue, on files that are synced before a publish is confirmed.

use std::future::Future;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::stream::{Config, RetentionPolicy, StorageType};
use async_nats::jetstream::{AckKind, Context};
use async_nats::{ConnectOptions, HeaderMap};
use futures_lite::StreamExt;
use serde_json::Value;

use crate::broker::{Broker, Counts, Draft};
use crate::stage::SOON;
use crate::support::nats::NatsServer;
use crate::support::router::request;

const USER: &str = "router";
const PASSWORD: &str = "right-secret";
const CONSUMER: &str = "orders-router";
const UNCONFIRMED_MAX: usize = 1_000;

struct Nats {
    server: NatsServer,
    runtime: tokio::runtime::Runtime,
    /// It was killed, and may keep what its consumer has acked: 15,627 of 100,020 messages after 30 kills, for ever.
    killed: bool,
}

/// A server of its own.
pub(crate) fn start() -> Box<dyn Broker> {
    Box::new(Nats::on(NatsServer::start))
}

/// One that syncs its files as seldom as it does by default.
pub(crate) fn start_unsynced() -> Box<dyn Broker> {
    Box::new(Nats::on(unsynced))
}

/// With the server's own default: what it confirmed is synced every two minutes.
fn unsynced(config: &str) -> NatsServer {
    let mut server = NatsServer::start(config);
    server.kill();
    let path = server.dir.join("nats.conf");
    let text = std::fs::read_to_string(&path).expect("nats: its config");
    std::fs::write(path, text.replace(", sync_interval: always", "")).expect("nats: its config");
    server.launch();
    server
}

impl Nats {
    fn on(start: fn(&str) -> NatsServer) -> Self {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("nats: a runtime");
        let users = format!("authorization {{ user: {USER}, password: \"{PASSWORD}\" }}");
        Self { server: start(&users), runtime, killed: false }
    }

    fn with<F: Future>(&self, work: impl FnOnce(Context) -> F) -> F::Output {
        self.runtime.block_on(async {
            let options = ConnectOptions::new().user_and_password(USER.into(), PASSWORD.into());
            let client = options.connect(self.server.address.to_string()).await.expect("nats: it accepts us");
            let mut jetstream = async_nats::jetstream::new(client);
            // Each message is synced to the disk, and others use it too.
            jetstream.set_timeout(SOON);
            work(jetstream).await
        })
    }

    /// Is a router connected?
    fn has_router(&self) -> bool {
        let answer = request(self.server.monitor, "GET", "/connz", "");
        let (status, text) = answer.expect("nats: it tells of connections");
        assert_eq!(status, 200, "nats: {text}");
        let all: Value = serde_json::from_str(&text).expect("nats: JSON");
        let named = |it: &Value| it["name"] == "corelane";
        all["connections"].as_array().is_some_and(|all| all.iter().any(named))
    }
}

impl Broker for Nats {
    fn name(&self) -> &'static str {
        "nats"
    }

    fn version(&self) -> String {
        let output = Command::new(&self.server.program).arg("--version").output().expect("nats: it runs");
        String::from_utf8_lossy(&output.stdout).trim().replace(": v", " ")
    }

    fn lease_min(&self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }

    fn make_queue(&mut self, queue: &str, _lease: Duration) {
        self.with(|jetstream| async move {
            let config = Config {
                name: queue.to_owned(),
                subjects: vec![queue.to_owned()],
                retention: RetentionPolicy::WorkQueue,
                storage: StorageType::File,
                ..Config::default()
            };
            jetstream.create_stream(config).await.expect("nats: a stream");
        });
    }

    fn delete_queue(&mut self, queue: &str) {
        self.with(|jetstream| async move {
            jetstream.delete_stream(queue).await.expect("nats: it goes");
        });
    }

    fn uri(&self, queue: &str) -> String {
        self.uri_at(queue, self.server.address)
    }

    fn uri_at(&self, queue: &str, at: SocketAddr) -> String {
        format!("nats://{USER}:{PASSWORD}@{at}/{queue}/{CONSUMER}")
    }

    fn uri_refused(&self, queue: &str) -> String {
        format!("nats://{USER}:wrong-secret@{}/{queue}/{CONSUMER}", self.server.address)
    }

    fn address(&self) -> SocketAddr {
        self.server.address
    }

    fn publish(&mut self, queue: &str, drafts: &[Draft]) {
        self.with(|jetstream| async move {
            // The client lets only so many be unconfirmed.
            for some in drafts.chunks(UNCONFIRMED_MAX) {
                let mut confirmations = Vec::with_capacity(some.len());
                for draft in some {
                    let mut headers = HeaderMap::new();
                    if !draft.group.is_empty() {
                        headers.insert("Corelane-Group", draft.group.as_str());
                    }
                    let sent =
                        jetstream.publish_with_headers(queue.to_owned(), headers, draft.body.clone().into());
                    confirmations.push(sent.await.expect("nats: it is sent"));
                }
                for confirmation in confirmations {
                    confirmation.await.expect("nats: it is kept");
                }
            }
        });
    }

    /// The server counts what was given back among what is held until it hands it over again. So where no router is
    /// there to be disturbed, what can be had is taken and given back: the rest is held.
    fn counts(&mut self, queue: &str) -> Counts {
        let (alone, killed) = (!self.has_router(), self.killed);
        self.with(|jetstream| async move {
            let mut stream = jetstream.get_stream(queue).await.expect("nats: the stream");
            let mut left = stream.info().await.expect("nats: it tells").state.messages;
            let Ok(mut consumer) = stream.get_consumer::<pull::Config>(CONSUMER).await else {
                return Counts { left, held: 0 };
            };
            let info = consumer.info().await.expect("nats: the consumer tells");
            assert_eq!(info.config.ack_policy, AckPolicy::Explicit);
            let mut held = info.num_ack_pending as u64;
            if killed && left > 0 && held == 0 && info.num_pending == 0 {
                println!("nats: {left} messages that its consumer has acked are still in stream {queue} after a kill");
                left = 0;
            }
            if held > 0 && alone {
                // All that can be had before any goes back: what came in two parts would go back in another order.
                let (most, mut back) = (usize::try_from(left).expect("few"), Vec::new());
                loop {
                    let before = back.len();
                    let asked = consumer.fetch().max_messages((most - before).max(1)).messages().await;
                    let mut had = asked.expect("nats: what is there");
                    while let Some(message) = had.next().await {
                        back.push(message.expect("nats: a message"));
                    }
                    if back.len() == before || back.len() >= most {
                        break;
                    }
                }
                for (at, message) in back.iter().enumerate() {
                    held -= u64::from(message.info().expect("nats: it tells").delivered > 1);
                    // The server takes them in order: the last is back, so all are.
                    let is_last = at + 1 == back.len();
                    let given = if is_last {
                        message.double_ack_with(AckKind::Nak(None)).await
                    } else {
                        message.ack_with(AckKind::Nak(None)).await
                    };
                    given.expect("nats: it goes back");
                }
            }
            Counts { left, held }
        })
    }

    fn plain(&mut self, queues: &[String], messages: u64) {
        self.with(|jetstream| async move {
            let each = usize::try_from(messages).expect("few") / queues.len();
            let take = |queue: String| {
                let jetstream = jetstream.clone();
                async move {
                    let stream = jetstream.get_stream(&queue).await.expect("nats: the stream");
                    let config =
                        pull::Config { durable_name: Some("plain".into()), ..pull::Config::default() };
                    let consumer = stream.create_consumer(config).await.expect("nats: a consumer");
                    let all = consumer.stream().max_messages_per_batch(1_000).messages().await;
                    let mut all = all.expect("nats: messages");
                    for left in (0..each).rev() {
                        let message = all.next().await.expect("nats: more").expect("nats: a message");
                        // The server takes acks in order: the last is taken, so all are.
                        let acked = if left == 0 { message.double_ack().await } else { message.ack().await };
                        acked.expect("nats: it takes the ack");
                    }
                    drop(all);
                    stream.delete_consumer("plain").await.expect("nats: the consumer goes");
                }
            };
            let tasks: Vec<_> = queues.iter().cloned().map(|queue| tokio::spawn(take(queue))).collect();
            for task in tasks {
                task.await.expect("nats: all are taken");
            }
        });
    }

    fn kill(&mut self) {
        self.server.kill();
        self.killed = true;
    }

    fn start(&mut self) {
        self.server.launch();
    }
}
