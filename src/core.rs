//! The data plane as one thing: pinned shards, and the ingress thread over sources and a dead-letter store.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use shards::desk::Desk;
use shards::engine::{Engine, EngineSpec, RING_SLOTS, Started, pin_to};
use shards::model::{CourierTuning, DeskTuning, ShardTuning};
use shards::placement::Plan;
use shards::wire::probe::Io;

use crate::ingress::{Command, Ended, Handle, Ingress, SetAside, Source};

/// What to start.
#[derive(Clone)]
pub struct CoreSpec {
    /// Which cores.
    pub plan: Plan,
    /// Which wire; not [`Io::Auto`].
    pub io: Io,
    /// How long threads look for work before they sleep.
    pub spin: Duration,
    /// Pin threads to their cores.
    pub pin: bool,
    /// The shards' knobs.
    pub shard: ShardTuning,
    /// The couriers' knobs.
    pub courier: CourierTuning,
    /// The desk's knobs.
    pub desk: DeskTuning,
    /// How `https` targets are verified.
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

/// A running data plane.
pub struct Core<S> {
    handle: Handle<S>,
    engine: Engine,
    ingress: JoinHandle<io::Result<Ended>>,
}

impl<S: Source + 'static> Core<S> {
    /// Starts it, with no pools and no sources. `aside` is made on the ingress thread.
    ///
    /// # Errors
    /// It can't run here as asked; the error says what to change.
    pub fn start<A: SetAside + 'static>(
        spec: &CoreSpec,
        aside: impl FnOnce() -> A + Send + 'static,
    ) -> anyhow::Result<Self> {
        let engine = EngineSpec {
            plan: spec.plan.clone(),
            io: spec.io,
            ring_slots: RING_SLOTS,
            spin: spec.spin,
            pin: spec.pin,
            shard: spec.shard,
            courier: spec.courier,
            tls: spec.tls.clone(),
        };
        let Started { engine, links, bell } = Engine::start(&engine).context("start the engine")?;
        let shards = u8::try_from(spec.plan.shards.len()).context("count the shards")?;
        let desk = Desk::new(spec.desk, shards);
        let (commands, receiver) = flume::unbounded();
        let handle = Handle::new(commands, Arc::clone(&bell));
        let (core, pin, spin) = (spec.plan.ingress, spec.pin, spec.spin);
        let run = move || {
            if pin {
                pin_to(core);
            }
            Ingress::new(desk, links, bell, receiver, aside()).with_spin(spin).run()
        };
        let ingress = std::thread::Builder::new()
            .name("ingress".into())
            .spawn(run)
            .context("start the ingress thread")?;
        Ok(Self { handle, engine, ingress })
    }

    /// How to reach the ingress.
    #[must_use]
    pub const fn handle(&self) -> &Handle<S> {
        &self.handle
    }

    /// The ingress thread has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ingress.is_finished()
    }

    /// Hands back what has not started, lets calls go on for so long, and ends all threads.
    ///
    /// # Errors
    /// The ingress failed.
    pub fn drain(self, calls_wait: Duration) -> anyhow::Result<Ended> {
        // An ingress that has ended already needs no telling.
        let _ = self.handle.send(Command::Drain { calls_wait });
        let ended = self.ingress.join().map_err(|_| anyhow::anyhow!("the ingress thread panicked"))?;
        self.engine.join();
        ended.context("run the ingress")
    }
}
