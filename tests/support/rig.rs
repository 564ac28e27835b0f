//! The engine as the program runs it: shards on a real wire, the desk, and the ingress thread over a test's queue.

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use corelane::ingress::{Command, Ingress, IngressSnapshot};
use shards::desk::Desk;
use shards::engine::{Engine, EngineSpec, Started};
use shards::link::Bell;
use shards::model::{CourierTuning, DeskTuning, PoolSpec, ShardTuning};
use shards::placement::Plan;
use shards::wire::probe::Io;

use super::queue::Queue;

/// Every wire that a shard can run on.
pub(crate) const WIRES: [Io; 3] = [Io::Uring, Io::Epoll, Io::Glommio];
/// The pool of most tests.
pub(crate) const POOL: &str = "P";
/// A thread that does not answer for so long hangs.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// What to start.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) io: Io,
    pub(crate) shards: usize,
    pub(crate) shard: ShardTuning,
    pub(crate) courier: CourierTuning,
    pub(crate) desk: DeskTuning,
}

impl Parts {
    pub(crate) fn new(io: Io, shards: usize) -> Self {
        let (shard, courier) = (ShardTuning::default(), CourierTuning::default());
        Self { io, shards, shard, courier, desk: DeskTuning::default() }
    }
}

/// A running engine. Call [`Rig::drain`]; a test that panics leaves it to the process's end.
pub(crate) struct Rig {
    commands: flume::Sender<Command>,
    bell: Arc<Bell>,
    engine: Engine,
    ingress: JoinHandle<std::io::Result<()>>,
}

pub(crate) fn pool(concurrency: u16, rate: Option<u32>) -> PoolSpec {
    let mut spec = PoolSpec::new(NonZeroU16::new(concurrency).expect("not zero"));
    spec.rate_per_minute = rate.and_then(NonZeroU32::new);
    spec
}

impl Rig {
    /// Starts everything, with one pool.
    pub(crate) fn start(parts: &Parts, queue: &Queue, spec: PoolSpec) -> Self {
        let engine_spec = EngineSpec {
            plan: Plan { ingress: 0, shards: (0..parts.shards).collect() },
            io: parts.io,
            ring_slots: 1_024,
            spin: Duration::ZERO,
            pin: false,
            shard: parts.shard,
            courier: parts.courier,
            tls: None,
        };
        let Started { engine, links, bell } = Engine::start(&engine_spec).expect("the engine starts");
        let (commands, receiver) = flume::unbounded();
        let desk = Desk::new(parts.desk, u8::try_from(parts.shards).expect("few shards"));
        let (queue, ingress_bell) = (queue.clone(), Arc::clone(&bell));
        commands.send(Command::SetPool { code: POOL.into(), spec }).expect("the receiver is here");
        let body = move || Ingress::new(desk, links, ingress_bell, receiver).run(vec![queue], false);
        let ingress = std::thread::Builder::new().name("ingress".into()).spawn(body).expect("a thread");
        Self { commands, bell, engine, ingress }
    }

    pub(crate) fn send(&self, command: Command) {
        self.commands.send(command).expect("the ingress runs");
        self.bell.ring();
    }

    pub(crate) fn set_pool(&self, code: &str, spec: PoolSpec) {
        self.send(Command::SetPool { code: code.into(), spec });
    }

    pub(crate) fn snapshot(&self) -> IngressSnapshot {
        let (reply, answer) = flume::bounded(1);
        self.send(Command::Snapshot(reply));
        answer.recv_timeout(ANSWER_MAX).expect("the ingress answers")
    }

    /// Hands back what is held, lets calls go on for so long, and ends all threads.
    pub(crate) fn drain(self, calls_wait: Duration) {
        self.send(Command::Drain { calls_wait });
        self.ingress.join().expect("the ingress ends well").expect("its runtime worked");
        self.engine.join();
    }
}
