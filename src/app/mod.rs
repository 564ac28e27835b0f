//! `corelane run`: starts the parts in order, looks after them, stops them in reverse.
//!
//! Order: dead-letter store, data plane, admin API, control loop (config, queues). The end is the router
//! document's: no more scheduled work; consumers stop; what has not started goes back and calls finish;
//! what is left is given back. A second signal ends the process at once.

mod audit;
mod console;
mod consumers;
mod control;
mod marker;
mod notices;
mod signals;
mod syncing;
mod viewing;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use parking_lot::RwLock;
use shards::courier::tls;
use shards::engine::available_cores;
use shards::model::{DeskTuning, ShardTuning};
use shards::placement::{Plan, plan};
use shards::wire::probe::{Chosen, choose};
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::admin::{self, Admin};
use crate::broker::{self, Queue};
use crate::config::{Provenance, Settings};
use crate::core::{Core, CoreSpec};
use crate::deadletter::DeadLetterStore;
use crate::telemetry::warnings::{Severity, WarningCode, Warnings};
use crate::topology::Topology;
use crate::view::{ShardView, State, View};
use console::Console;
use consumers::Consumers;
use control::{Control, End, unix_ms};
use marker::Marker;
use signals::{EndSignals, Signals};

/// Of the grace period, kept for telling brokers and leaving.
pub const GRACE_KEPT: Duration = Duration::from_secs(5);
/// The router document's patience with calls under way.
pub const CALLS_WAIT_MAX: Duration = Duration::from_secs(30);
/// What an operator started may go on for so long after the end.
const LAST_JOBS: Duration = Duration::from_secs(1);
/// A call without an outcome so long after its timeout is reported.
const OUTCOME_LATE: Duration = Duration::from_secs(5);

/// Ended as asked, all given back.
pub const EXIT_OK: u8 = 0;
/// Could not start, or the first config sync failed.
pub const EXIT_FAILED: u8 = 1;
/// The configuration or the command line is wrong.
pub const EXIT_CONFIG: u8 = 2;
/// Ended as asked, but time ran out: some messages come back only when their leases end.
pub const EXIT_CUT_SHORT: u8 = 3;
/// Ended by a second signal.
pub const EXIT_SECOND_SIGNAL: u8 = 130;

/// Runs the router until it is told to end. `reload` reads the settings again, for SIGHUP.
///
/// # Errors
/// It can't run here as configured; the error says what to change.
pub fn run(
    settings: Settings,
    provenance: &Provenance,
    reload: Box<dyn Fn() -> Result<Settings, String>>,
) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the control thread")?;
    let local = tokio::task::LocalSet::new();
    let ended = local.block_on(&runtime, start(settings, provenance, reload));
    drop(local);
    // A long job of an operator must not hold up the end.
    runtime.shutdown_timeout(LAST_JOBS);
    ended
}

async fn start(
    settings: Settings,
    provenance: &Provenance,
    reload: Box<dyn Fn() -> Result<Settings, String>>,
) -> anyhow::Result<ExitCode> {
    let chosen = choose(settings.engine.io).context("choose how to do I/O")?;
    let plan = plan(&available_cores(), &settings.engine.wishes).context("place the threads on cores")?;
    std::fs::create_dir_all(&settings.data_dir)
        .with_context(|| format!("make the data directory {}", settings.data_dir.display()))?;
    let letters = DeadLetterStore::open(&settings.dead_letters)
        .with_context(|| format!("open the dead-letter store {}", settings.dead_letters.display()))?;
    let marker = Marker::place(&settings.data_dir).context("mark the data directory as in use")?;
    let spec = core_spec(&settings, &plan, &chosen)?;
    let aside = letters.clone();
    let core: Core<Queue> = Core::start(&spec, move || aside)?;

    let (orders_in, orders) = flume::unbounded();
    let console = Arc::new(Console {
        handle: core.handle().clone(),
        view: RwLock::new(Arc::new(View::default())),
        warnings: Warnings::keeping(settings.warnings_expire),
        config: RwLock::new(serde_json::to_value(provenance).context("show the configuration")?),
        writers: RwLock::new(Vec::new()),
        letters,
        orders: orders_in,
    });
    let mut signals = Signals::new().context("watch for signals")?;
    let admin = Admin::bind(admin_settings(&settings)?).await?;
    let address = admin.address();
    let (stop_admin, stopped) = tokio::sync::oneshot::channel::<()>();
    let until_stopped = async move { drop(stopped.await) };
    let serving = tokio::task::spawn_local(admin.serve(Arc::clone(&console), until_stopped));

    if let Some(note) = &chosen.note {
        console.warnings.add(WarningCode::IoFallback, Severity::Info, "engine", note, unix_ms());
        warn!("{note}");
    }
    greet(&settings, &plan, &chosen, address);
    let poll_age_max = settings.health.poll_age_max;
    let mut control = Control {
        consumers: Consumers::new(
            core.handle().clone(),
            tuning_of(&settings, marker.word()),
            marker.was_unclean(),
        ),
        frame: frame(&settings, &plan, &chosen),
        settings,
        reload,
        console,
        orders,
        is_syncing: false,
        configured: Topology::default(),
        running: Topology::default(),
        overrides: BTreeMap::new(),
        gallery: viewing::Gallery::new(poll_age_max),
        auditor: audit::Auditor::default(),
        last: crate::ingress::IngressSnapshot::default(),
        looks_failed: 0,
    };
    let end = control.run(&mut signals).await;
    let exit = stop(control, core, marker, end, &mut signals.end).await;
    let _ = stop_admin.send(());
    let _ = tokio::time::timeout(Duration::from_secs(1), serving).await;
    Ok(ExitCode::from(exit))
}

/// The four steps. Returns the exit code.
async fn stop(
    mut control: Control,
    core: Core<Queue>,
    marker: Marker,
    end: End,
    signals: &mut EndSignals,
) -> u8 {
    let start = Instant::now();
    let failed = match &end {
        End::Signal(name) => {
            info!("{name}: ending; once more ends at once");
            None
        }
        End::NoConfig(why) | End::EngineGone(why) => {
            error!("{why}");
            Some(EXIT_FAILED)
        }
    };
    control.frame.state = State::Draining;
    control.show_draining();
    let wait = control.settings.grace.saturating_sub(GRACE_KEPT).min(CALLS_WAIT_MAX);
    let draining = tokio::task::spawn_blocking(move || core.drain(wait));
    // The ingress keeps its own time; this is for one that is stuck.
    let too_late = wait + GRACE_KEPT + GRACE_KEPT;
    let ended = tokio::select! {
        ended = draining => ended,
        () = tokio::time::sleep(too_late) => {
            error!("the ingress does not end: ending without it; what is held comes back when its leases end");
            std::process::exit(i32::from(EXIT_CUT_SHORT));
        }
        // One that came before this line was heard too: these signals have been watched since the start.
        _ = signals.next() => {
            warn!("second signal: ending now; what is held comes back when its leases end");
            std::process::exit(i32::from(EXIT_SECOND_SIGNAL));
        }
    };
    let ended = match ended {
        Ok(Ok(ended)) => ended,
        Ok(Err(error)) => {
            error!("{error:#}");
            return EXIT_FAILED;
        }
        Err(error) => {
            error!("drain: {error}");
            return EXIT_FAILED;
        }
    };
    if ended.clean {
        marker.remove();
    }
    if ended.left > 0 {
        let text = format!(
            "{} calls were still under way when time was up: their messages went back and may be delivered twice",
            ended.left
        );
        control.console.warnings.add(
            WarningCode::ShutdownCleanupErrors,
            Severity::Warn,
            "router",
            &text,
            unix_ms(),
        );
        warn!(code = WarningCode::ShutdownCleanupErrors.name(), "{text}");
    }
    info!(took_ms = start.elapsed().as_millis(), left = ended.left, clean = ended.clean, "ended");
    failed.unwrap_or(if ended.left > 0 { EXIT_CUT_SHORT } else { EXIT_OK })
}

fn core_spec(settings: &Settings, plan: &Plan, chosen: &Chosen) -> anyhow::Result<CoreSpec> {
    let tls =
        tls::config(tls::Roots { native: true, extra_pem: &[] }).context("read the system's certificates")?;
    let call_max = settings.courier.request_timeout + OUTCOME_LATE;
    Ok(CoreSpec {
        plan: plan.clone(),
        io: chosen.io,
        spin: settings.engine.spin,
        pin: settings.engine.pin,
        shard: ShardTuning { call_max, ..settings.shard },
        courier: settings.courier,
        desk: DeskTuning { hash_key: random_key()?, ..settings.desk },
        tls: Some(Arc::new(tls)),
    })
}

/// Ids are hashed with a key that no sender knows, so that none can aim for a collision.
fn random_key() -> anyhow::Result<(u64, u64)> {
    let mut bytes = [0_u8; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .context("draw a random key")?;
    let half = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    Ok((half(0), half(8)))
}

fn admin_settings(settings: &Settings) -> anyhow::Result<admin::Settings> {
    let token = settings.admin.token.as_ref().map(|token| admin::Token::new(token.reveal()));
    Ok(admin::Settings {
        listen: settings.admin.listen,
        token: token.transpose().context("use admin.token")?,
        hosts: settings.admin.hosts.clone(),
        label_values_max: settings.label_values_max,
    })
}

fn frame(settings: &Settings, plan: &Plan, chosen: &Chosen) -> View {
    let shard = |(at, &core): (usize, &usize)| ShardView {
        shard: u8::try_from(at).unwrap_or(u8::MAX),
        core,
        ..ShardView::default()
    };
    View {
        version: env!("CARGO_PKG_VERSION").into(),
        started_unix_s: unix_ms() / 1_000,
        state: State::Starting,
        io: chosen.io.to_string(),
        memory_budget: settings.desk.memory_budget as u64,
        shards: plan.shards.iter().enumerate().map(shard).collect(),
        ..View::default()
    }
}

/// What the adapters are told of the settings.
fn tuning_of(settings: &Settings, instance: &str) -> broker::Tuning {
    let sqs = &settings.sqs;
    broker::Tuning {
        sqs: broker::sqs::SqsTuning {
            messages_per_poll: sqs.messages_per_poll,
            wait: sqs.wait,
            endpoint: sqs.endpoint.clone(),
            partial_batch_pause: sqs.partial_batch_pause,
        },
        instance: instance.to_owned(),
    }
}

/// What it runs, in a few lines.
fn greet(settings: &Settings, plan: &Plan, chosen: &Chosen, address: std::net::SocketAddr) {
    info!(
        "corelane {}: ingress on core {}, {} shard(s) on cores {:?}, io {}",
        env!("CARGO_PKG_VERSION"),
        plan.ingress,
        plan.shards.len(),
        plan.shards,
        chosen.io
    );
    if settings.sync.url.is_some() {
        info!("pools and queues come from the config URL, every {:?}", settings.sync.interval);
    } else {
        for queue in &settings.topology.queues {
            info!("queue {}: {}", queue.name, queue.uri);
        }
        info!("{} pool(s); messages of unknown pools go to DEFAULT-POOL", settings.topology.pools.len());
    }
    info!("dashboard http://{address}/");
}
