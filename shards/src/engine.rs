//! Starts the pinned shards and joins them. A panic in a shard ends the process: what it held is still
//! leased at the brokers, and half a process is worse than none.

use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use thiserror::Error;

use crate::clock::Clock;
use crate::courier::Courier;
use crate::drive::{Core, drive};
use crate::link::{Bell, BellError, Rx, Tx, ring};
use crate::model::{CourierTuning, FromShard, ShardId, ShardTuning, ToShard};
use crate::placement::Plan;
use crate::resolve::{Line, Lookup, Resolved, serve};
use crate::shard::Shard;
use crate::wire::probe::Io;
use crate::wire::{EpollWire, GlommioWire, UringWire};

/// Slots of a shard's ring, each way. 4,096 × 64 bytes stay in the second-level cache.
pub const RING_SLOTS: usize = 4_096;
/// Lookups a shard may have open.
const LOOKUP_SLOTS: usize = 1_024;
/// Connections a wire makes room for at the start.
const CONNECTIONS_HINT: usize = 1_024;

/// What to start.
#[derive(Clone)]
pub struct EngineSpec {
    /// Which cores.
    pub plan: Plan,
    /// Which wire; not [`Io::Auto`].
    pub io: Io,
    /// Slots of each ring.
    pub ring_slots: usize,
    /// How long a shard looks for work before it sleeps.
    pub spin: Duration,
    /// Pin threads to their cores.
    pub pin: bool,
    /// The shards' knobs.
    pub shard: ShardTuning,
    /// The couriers' knobs.
    pub courier: CourierTuning,
    /// How `https` targets are verified.
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

/// The engine could not start. The message says what to change.
#[derive(Debug, Error)]
pub enum EngineError {
    /// No descriptor left.
    #[error(transparent)]
    Bell(#[from] BellError),
    /// No thread.
    #[error("start thread {name}")]
    Thread {
        /// Which.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The wire.
    #[error("start {io} on shard {shard}")]
    Wire {
        /// Which.
        io: Io,
        /// Where.
        shard: usize,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// The desk's end of the link to one shard.
pub struct ShardLink {
    /// To the shard.
    pub tx: Tx<ToShard>,
    /// From it.
    pub rx: Rx<FromShard>,
}

/// Running shards.
pub struct Engine {
    threads: Vec<JoinHandle<()>>,
    resolver: JoinHandle<()>,
    resolver_bell: Arc<Bell>,
}

/// The engine, and what the ingress needs of it.
pub struct Started {
    /// To join.
    pub engine: Engine,
    /// One per shard.
    pub links: Vec<ShardLink>,
    /// The ingress thread's bell: shards ring it.
    pub bell: Arc<Bell>,
}

impl Engine {
    /// Starts the shards and the resolver; returns once every wire is up.
    ///
    /// # Errors
    /// What could not be started; then nothing is left running.
    pub fn start(spec: &EngineSpec) -> Result<Started, EngineError> {
        let desk_bell = Arc::new(Bell::new()?);
        let resolver_bell = Arc::new(Bell::new()?);
        let bells: Vec<Arc<Bell>> =
            spec.plan.shards.iter().map(|_| Bell::new().map(Arc::new)).collect::<Result<_, _>>()?;
        let peers: Arc<[Arc<Bell>]> = bells.into();
        let (mut links, mut resolver_lines, mut threads) = (Vec::new(), Vec::new(), Vec::new());
        let (ready, is_ready) = mpsc::channel();
        for (at, &core_number) in spec.plan.shards.iter().enumerate() {
            let bell = Arc::clone(&peers[at]);
            let (tx, events) = ring(spec.ring_slots, Arc::clone(&bell));
            let (reports, rx) = ring(spec.ring_slots, Arc::clone(&desk_bell));
            let (lookups, asked) = ring::<Lookup>(LOOKUP_SLOTS, Arc::clone(&resolver_bell));
            let (answers, resolved) = ring::<Resolved>(LOOKUP_SLOTS, Arc::clone(&bell));
            links.push(ShardLink { tx, rx });
            resolver_lines.push(Line { lookups: asked, answers });
            let id = ShardId(u8::try_from(at).expect("a plan has at most 32 shards"));
            let seed = Seed {
                id,
                core_number,
                spec: spec.clone(),
                events,
                reports,
                lookups,
                resolved,
                bell,
                peers: Arc::clone(&peers),
            };
            let ready = ready.clone();
            threads.push(spawn(format!("shard-{at}"), move || seed.run(&ready))?);
        }
        let bell = Arc::clone(&resolver_bell);
        let resolver = spawn("resolver".into(), move || serve(resolver_lines, &bell))?;
        let engine = Self { threads, resolver, resolver_bell };
        for (shard, _) in spec.plan.shards.iter().enumerate() {
            if let Ok(Err(source)) = is_ready.recv() {
                // Without their links the shards that did start end.
                drop(links);
                peers.iter().for_each(|bell| bell.ring());
                engine.join();
                return Err(EngineError::Wire { io: spec.io, shard, source });
            }
        }
        Ok(Started { engine, links, bell: desk_bell })
    }

    /// Waits for the shards' ends. Tell them to stop first, or drop their links.
    pub fn join(self) {
        for thread in self.threads {
            // A panic has ended the process before this could see it.
            let _ = thread.join();
        }
        // The shards have hung up: the resolver ends when it looks.
        self.resolver_bell.ring();
        let _ = self.resolver.join();
    }
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, EngineError> {
    let builder = std::thread::Builder::new().name(name.clone());
    let guarded = move || {
        let guard = EndProcessOnPanic;
        body();
        drop(guard);
    };
    builder.spawn(guarded).map_err(|source| EngineError::Thread { name, source })
}

struct EndProcessOnPanic;

impl Drop for EndProcessOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

/// What a shard's thread takes with it.
struct Seed {
    id: ShardId,
    core_number: usize,
    spec: EngineSpec,
    events: Rx<ToShard>,
    reports: Tx<FromShard>,
    lookups: Tx<Lookup>,
    resolved: Rx<Resolved>,
    bell: Arc<Bell>,
    peers: Arc<[Arc<Bell>]>,
}

impl Seed {
    fn run(self, ready: &mpsc::Sender<io::Result<()>>) {
        if self.spec.pin {
            pin_to(self.core_number);
        }
        let bell = Arc::clone(&self.bell);
        let io = self.spec.io;
        match io {
            Io::Uring => match UringWire::new(bell, CONNECTIONS_HINT) {
                Ok(wire) => {
                    let _ = ready.send(Ok(()));
                    run_here(drive(self.core(), wire));
                }
                Err(error) => drop(ready.send(Err(error))),
            },
            Io::Epoll | Io::Auto => match EpollWire::new(bell, CONNECTIONS_HINT) {
                Ok(wire) => {
                    let _ = ready.send(Ok(()));
                    run_here(drive(self.core(), wire));
                }
                Err(error) => drop(ready.send(Err(error))),
            },
            Io::Glommio => self.run_glommio(bell, ready),
        }
    }

    fn run_glommio(self, bell: Arc<Bell>, ready: &mpsc::Sender<io::Result<()>>) {
        let placement = glommio::Placement::Unbound; // The thread is pinned already.
        let executor = match glommio::LocalExecutorBuilder::new(placement).name("shard").make() {
            Ok(executor) => executor,
            Err(error) => return drop(ready.send(Err(io::Error::other(error.to_string())))),
        };
        executor.run(async move {
            match GlommioWire::new(bell, CONNECTIONS_HINT) {
                Ok(wire) => {
                    let _ = ready.send(Ok(()));
                    drive(self.core(), wire).await;
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        });
    }

    fn core(self) -> Core {
        let now = Clock.now();
        Core {
            shard: Shard::new(self.id, self.spec.shard, now),
            courier: Courier::new(self.spec.courier, self.spec.tls),
            events: self.events,
            reports: self.reports,
            lookups: self.lookups,
            resolved: self.resolved,
            bell: self.bell,
            peers: self.peers,
            spin: self.spec.spin,
        }
    }
}

/// Runs a future that never waits for a waker: our own wires block inside `wait`.
fn run_here(future: impl Future<Output = ()>) {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    while future.as_mut().poll(&mut context).is_pending() {}
}

/// Pins the calling thread. Where that is not allowed the thread floats; it is slower, not wrong.
pub fn pin_to(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// Cores this process may use.
#[must_use]
pub fn available_cores() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect(),
        Err(_) => vec![0],
    }
}
