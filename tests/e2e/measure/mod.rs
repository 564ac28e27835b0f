//! What a broker's adapter costs: the released router beside the plain client's own ceiling (receive and ack, no
//! delivery), in one run on one machine. `make brokers` runs every shape of every kind and keeps the figures.

mod figures;
mod shape;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::broker::{Broker, Draft};
use crate::brokers::{KINDS, Kind};
use crate::support::router::{Dir, Router, SinkProgram, program};
use crate::support::wait::until;
use figures::{Figure, machine_cpu, pin, process_cpu};
use shape::{SHAPES, Shape};

/// Longest that one shape may take.
const RUN_MAX: Duration = Duration::from_secs(600);
/// A server may forget what was acked a little after it said so.
const EMPTY_MAX: Duration = Duration::from_secs(10);
/// The core of the router, and of the plain client. The sink has the other; the server takes what it gets.
const ROUTER_CORE: usize = 0;

/// Runs every shape of the kinds that are named (all, if none is), and prints and keeps what was seen.
pub(crate) fn run(words: &[String]) {
    let rounds: usize = std::env::var("ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let mut seen = Vec::new();
    for kind in KINDS {
        for shape in SHAPES.iter().filter(|shape| shape.kinds.contains(&kind.name)) {
            if words.iter().all(|word| kind.name == word || shape.name.contains(word.as_str())) {
                seen.push(figures::middle((0..rounds).map(|round| play(kind, shape, round)).collect()));
            }
        }
    }
    let table = figures::table(&seen);
    println!("\n{table}");
    if let Some(dir) = std::env::var_os("RUN").map(PathBuf::from) {
        std::fs::create_dir_all(&dir).expect("a folder for the figures");
        std::fs::write(dir.join("brokers.md"), table).expect("the table is kept");
        let raw: Vec<Value> = seen.iter().map(Figure::json).collect();
        let raw = serde_json::to_string_pretty(&raw).expect("figures are JSON");
        std::fs::write(dir.join("brokers.json"), raw).expect("the figures are kept");
    }
}

/// One shape on a server of its own: first the plain client, then the router, on the same number of messages.
fn play(kind: &Kind, shape: &Shape, round: usize) -> Figure {
    let mut broker = (kind.measured)();
    let dir = Dir::new();
    let mut command = Command::new(program());
    command.args(["sink", "--listen", "127.0.0.1:0"]).args(shape.sink);
    let sink = SinkProgram::launch(&mut command, PathBuf::new());
    let queues: Vec<String> = (0..shape.queues).map(|queue| format!("q{queue}")).collect();
    for queue in &queues {
        broker.make_queue(queue, Duration::from_secs(30));
    }
    let plain = shape.has_ceiling.then(|| {
        publish(&mut *broker, shape, &queues, &sink);
        let _on = pin(ROUTER_CORE);
        let me = std::process::id();
        let (start, machine, own) = (Instant::now(), machine_cpu(), process_cpu(me));
        broker.plain(&queues, shape.messages);
        Plain {
            took: start.elapsed(),
            cpu: process_cpu(me).saturating_sub(own),
            machine_cpu: machine_cpu().saturating_sub(machine),
        }
    });
    publish(&mut *broker, shape, &queues, &sink);
    let routed = route(&*broker, shape, &queues, &dir, &sink);
    for queue in &queues {
        let left = std::cell::Cell::new(0);
        let mut is_empty = || {
            left.set(broker.counts(queue).left);
            left.get() == 0
        };
        until(EMPTY_MAX, &format!("{}: {queue} is empty", kind.name), &mut is_empty, || left.get());
    }
    let figure = Figure::new(kind.name, broker.version(), shape, plain, routed);
    println!("{} round {}: {}", kind.name, round + 1, figure.line());
    figure
}

fn publish(broker: &mut dyn Broker, shape: &Shape, queues: &[String], sink: &SinkProgram) {
    let target = sink.url(shape.script);
    let each = shape.messages / shape.queues;
    for (at, queue) in queues.iter().enumerate() {
        let draft = |n: u64| {
            Draft::new(&format!("{at}-{n}"), &format!("g{}", n % shape.groups), &format!("P{at}"), &target)
        };
        let drafts: Vec<Draft> = (0..each).map(draft).collect();
        broker.publish(queue, &drafts);
    }
}

/// What the plain client did with the messages.
pub(crate) struct Plain {
    took: Duration,
    cpu: Duration,
    /// The client's and the server's.
    machine_cpu: Duration,
}

/// What the router did with the messages.
pub(crate) struct Routed {
    took: Duration,
    cpu: Duration,
    /// The sink's.
    sink_cpu: Duration,
    /// Time that both cores had something to do, whoever it was for.
    machine_cpu: Duration,
    resident_mb: f64,
    /// Given back, per message.
    deferred: f64,
    /// What the server can say of the requests it got.
    server: Value,
}

fn route(broker: &dyn Broker, shape: &Shape, queues: &[String], dir: &Dir, sink: &SinkProgram) -> Routed {
    std::fs::write(dir.join("corelane.toml"), shape.config(queues, |queue| broker.uri(queue)))
        .expect("the config is written");
    let env = broker.env();
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let before = broker.requests();
    let core = ROUTER_CORE.to_string();
    let (start, machine, sink_cpu) = (Instant::now(), machine_cpu(), process_cpu(sink.child.id()));
    let router = Router::spawn(dir, &["--ingress-core", &core, "--shard-cores", &core], &env);
    let answers = || sink.stats().answers;
    until(RUN_MAX, "all are delivered", || answers() >= shape.messages, || (answers(), router.log()));
    let (took, cpu) = (start.elapsed(), process_cpu(router.pid()));
    let machine_cpu = machine_cpu().saturating_sub(machine);
    let sink_cpu = process_cpu(sink.child.id()).saturating_sub(sink_cpu);
    let resident_mb = figures::peak_mb(router.pid());
    let nacked = |router: &Router| -> u64 {
        let all = router.json("/api/queues");
        let queues = all["queues"].as_array().expect("a list of queues");
        queues.iter().filter_map(|queue| queue["nackedTotal"].as_u64()).sum()
    };
    let acked = |router: &Router| -> u64 {
        let all = router.json("/api/queues");
        let queues = all["queues"].as_array().expect("a list of queues");
        queues.iter().filter_map(|queue| queue["ackedTotal"].as_u64()).sum()
    };
    until(RUN_MAX, "all are acked", || acked(&router) >= shape.messages, || router.log());
    #[expect(clippy::cast_precision_loss, reason = "a ratio needs no more than 52 bits")]
    let deferred = nacked(&router) as f64 / shape.messages as f64;
    assert_eq!(router.stop().0.code(), Some(0));
    Routed {
        took,
        cpu,
        sink_cpu,
        machine_cpu,
        resident_mb,
        deferred,
        server: since(&before, &broker.requests()),
    }
}

/// Counters of the server, less what they were.
fn since(before: &Value, after: &Value) -> Value {
    let Some(after) = after.as_object() else { return Value::Null };
    let less = |(name, value): (&String, &Value)| {
        let was = before[name].as_u64().unwrap_or(0);
        (name.clone(), json!(value.as_u64().unwrap_or(0).saturating_sub(was)))
    };
    Value::Object(after.iter().map(less).collect())
}
