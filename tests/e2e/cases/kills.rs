//! The broker, the router or both killed again and again under load, judged from the publisher's and the sink's logs.
//! `make faults` runs the full counts: `KILLS=30 MESSAGES=100000 POWER_CUTS=5`.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::stage::{SOON, Stage};
use crate::support::faults::{Chance, count, let_work};
use crate::support::router::Router;
use crate::support::wait::until;

/// Calls in flight at most.
const CONCURRENCY: u64 = 16;
const FLAGS: [&str; 6] =
    ["--pool", "DEFAULT-POOL=16", "--set", "health.interval=1s", "--set", "health.poll-age-max=20s"];
/// A call so long that a slice of messages outlasts the pause before a kill.
const SCRIPT: &str = "/slow?ms=5";
const GROUPS: u64 = 64;
/// What a kill leaves hidden comes back this soon.
const LEASE: Duration = Duration::from_secs(5);
/// Messages published before each kill in a short run.
const SLICE: u64 = 800;
/// Per message in a full run, on top of [`SOON`].
const PER_MESSAGE: Duration = Duration::from_millis(5);

/// How often something is killed, and how many messages are published before each time.
struct Plan {
    kills: u64,
    slice: u64,
    /// Nobody is left who knows of acks that the server did not write to its disk.
    forgets_acks: bool,
}

impl Plan {
    fn kills() -> Self {
        let kills = count("KILLS", 3);
        Self { kills, slice: count("MESSAGES", SLICE * kills).div_ceil(kills), forgets_acks: false }
    }

    /// Fewer: after each of them the router waits for the leases of the one before.
    fn power_cuts() -> Self {
        Self { kills: count("POWER_CUTS", 1), slice: SLICE, forgets_acks: true }
    }
}

/// Publishes in slices; after each one `kill` does its work while the router is busy. The next slice comes when half of
/// the one before is delivered: the kills are spread over all messages, and no server drowns in a backlog.
fn play(
    stage: &mut Stage<'_>,
    Plan { kills, slice, forgets_acks }: Plan,
    mut kill: impl FnMut(&mut Stage<'_>, &mut Option<Router>),
) -> Value {
    let mut chance = Chance::new();
    let queue = stage.queue_leased(LEASE);
    let mut router = Some(stage.router(&[&queue], &FLAGS));
    let start = Instant::now();
    for turn in 0..kills {
        let due = (turn * slice).saturating_sub(slice / 2);
        until(
            SOON * 2 + PER_MESSAGE * u32::try_from(slice).expect("few"),
            "the slice before",
            || stage.sink.stats().answers >= due,
            || stage.dir.logs(),
        );
        // It is at work, and in the middle of it, unless publishing takes longer than delivering.
        let before = stage.sink.stats().answers;
        let drafts = stage.drafts(turn * slice, slice, GROUPS, SCRIPT);
        stage.publish(&queue, &drafts);
        let log = || stage.dir.logs();
        until(SOON, "the router works", || stage.sink.stats().answers > before + 20, log);
        let_work(chance.millis(0, 200));
        kill(stage, &mut router);
        println!(
            "{:<10} kill {} of {kills} after {:.0} s, {} answers",
            stage.broker.name(),
            turn + 1,
            start.elapsed().as_secs_f32(),
            stage.sink.stats().answers
        );
    }
    let all = usize::try_from(kills * slice).expect("few");
    let max = SOON + PER_MESSAGE * u32::try_from(all).expect("few");
    stage.wait_delivered_within(all, max);
    stage.wait_empty_within(&queue, max);
    let in_flight = CONCURRENCY + stage.broker.acks_under_way() + stage.broker.acks_forgotten();
    let each = if forgets_acks { slice } else { in_flight };
    let verdict = stage.judge(usize::try_from(each * kills).expect("few"));
    println!("{:<10} {kills} kills: {verdict}", stage.broker.name());
    verdict
}

fn told(verdict: &Value) -> String {
    format!("{} lost, {} out of order, duplicates within bounds", verdict["lost"], verdict["out_of_order"])
}

/// The server is killed and started again.
pub(super) fn broker_kills(stage: &mut Stage<'_>) -> String {
    let verdict = play(stage, Plan::kills(), |stage, _| {
        stage.broker.kill();
        let_work(Duration::from_millis(100));
        stage.broker.start();
    });
    told(&verdict)
}

/// The router is killed and started again.
pub(super) fn router_kills(stage: &mut Stage<'_>) -> String {
    let verdict = play(stage, Plan::kills(), |stage, router| {
        router.take().expect("one runs").kill();
        *router = Some(stage.start(&FLAGS));
    });
    told(&verdict)
}

/// Both are killed at once, and the server is there again before the router is.
pub(super) fn power_cuts(stage: &mut Stage<'_>) -> String {
    let verdict = play(stage, Plan::power_cuts(), |stage, router| {
        stage.broker.kill();
        router.take().expect("one runs").kill();
        stage.broker.start();
        *router = Some(stage.start(&FLAGS));
    });
    format!("both killed: {} lost, {} out of order", verdict["lost"], verdict["out_of_order"])
}
