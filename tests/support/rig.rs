//! The engine as the program runs it: shards on a real wire, the desk, and the ingress thread over a test's queue.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use corelane::core::{Core, CoreSpec};
use corelane::ingress::{Command, IngressSnapshot};
use shards::model::{CourierTuning, DeskTuning, PoolSpec, ShardTuning};
use shards::placement::Plan;
use shards::wire::probe::Io;

use super::queue::Queue;

/// Every wire that a shard can run on.
pub(crate) const WIRES: [Io; 3] = [Io::Uring, Io::Epoll, Io::Glommio];
/// The pool of most tests.
pub(crate) const POOL: &str = "P";

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
pub(crate) struct Rig(Core<Queue>);

pub(crate) fn pool(concurrency: u16, rate: Option<u32>) -> PoolSpec {
    let mut spec = PoolSpec::new(NonZeroU16::new(concurrency).expect("not zero"));
    spec.rate_per_minute = rate.and_then(NonZeroU32::new);
    spec
}

impl Rig {
    /// Starts everything, with one pool.
    pub(crate) fn start(parts: &Parts, queue: &Queue, spec: PoolSpec) -> Self {
        let spec_of = CoreSpec {
            plan: Plan { ingress: 0, shards: (0..parts.shards).collect() },
            io: parts.io,
            spin: Duration::ZERO,
            pin: false,
            shard: parts.shard,
            courier: parts.courier,
            desk: parts.desk,
            tls: None,
        };
        let (source, aside) = (queue.clone(), queue.clone());
        let core = Core::start(&spec_of, move || aside).expect("the engine starts");
        core.handle().set_pool(POOL, spec).expect("the ingress runs");
        core.handle().add_source("test", "", Box::new(move || Ok(source)), false).expect("the ingress runs");
        Self(core)
    }

    pub(crate) fn send(&self, command: Command<Queue>) {
        self.0.handle().send(command).expect("the ingress runs");
    }

    pub(crate) fn set_pool(&self, code: &str, spec: PoolSpec) {
        self.0.handle().set_pool(code, spec).expect("the ingress runs");
    }

    pub(crate) fn snapshot(&self) -> IngressSnapshot {
        self.0.handle().snapshot().expect("the ingress answers")
    }

    /// Hands back what is held, lets calls go on for so long, and ends all threads.
    pub(crate) fn drain(self, calls_wait: Duration) {
        self.0.drain(calls_wait).expect("the ingress ends well");
    }
}
