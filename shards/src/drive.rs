//! The shard's thread: joins link, shard, courier and wire. The one place where they meet.
//! Core: the shard's. One wait a turn, one bell a turn.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::clock::{Clock, Moment, thread_cpu};
use crate::courier::{Courier, Out, Request};
use crate::link::{Bell, Rx, Tx};
use crate::meter::ShardSnapshot;
use crate::model::{FromShard, ToShard};
use crate::resolve::{Lookup, Resolved};
use crate::shard::{Effects, Shard};
use crate::wire::{Patience, Wire};

/// Events taken from the link in one turn, so that replies are read in between.
const TURN_EVENTS_MAX: usize = 1_024;
/// How soon to look again while the ring to the desk is full.
const FULL_RING_LOOK: Duration = Duration::from_micros(200);
/// With this many calls in flight, reports are gathered before the desk is woken: it has better things to
/// do than to wake for each handful, and so has the core that it may share with this shard.
const LINGER_CALLS_MIN: u32 = 64;
/// Reports that wake it at once all the same.
const LINGER_REPORTS_MAX: u32 = 256;
/// The longest that a report waits for others.
const LINGER_MAX: Duration = Duration::from_micros(200);
/// The same where as many messages wait here as run: nothing the desk could send is missed so soon, and what waits in
/// line waits longer than this anyway.
const LINGER_SATED_MAX: Duration = Duration::from_millis(1);
/// Longest sleep: bounds the harm of any wake that was missed.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// How often the wall clock is read, which answers' dates are compared with.
const WALL_EVERY: Duration = Duration::from_secs(10);
/// Call latencies up to a minute with two significant digits.
const LATENCY_US_MAX: u64 = 60_000_000;

/// Everything a shard's thread owns but its wire.
pub struct Core {
    /// The state machine.
    pub shard: Shard,
    /// HTTP.
    pub courier: Courier,
    /// From the desk.
    pub events: Rx<ToShard>,
    /// To the desk.
    pub reports: Tx<FromShard>,
    /// To the resolver.
    pub lookups: Tx<Lookup>,
    /// From the resolver.
    pub resolved: Rx<Resolved>,
    /// This thread's bell.
    pub bell: Arc<Bell>,
    /// All shards' bells, to wake one that was handed a permit.
    pub peers: Arc<[Arc<Bell>]>,
    /// How long to look for work before sleeping.
    pub spin: Duration,
}

struct Turn {
    effects: Effects,
    out: Out,
    /// Reports that found the ring full; while there are any, no new events are taken.
    backlog: VecDeque<FromShard>,
    /// Reports that the desk was not woken for, and since when.
    unrung: u32,
    unrung_since: Moment,
    latency: Histogram<u64>,
    started: Moment,
    last_work: Moment,
}

/// Runs one shard until it is told to stop or the desk is gone.
pub async fn drive<W: Wire>(mut core: Core, mut wire: W) {
    let started = Clock.now();
    let mut turn = Turn {
        effects: Effects::default(),
        out: Out::default(),
        backlog: VecDeque::new(),
        unrung: 0,
        unrung_since: started,
        latency: Histogram::new_with_bounds(1, LATENCY_US_MAX, 2).expect("valid bounds"),
        started,
        last_work: started,
    };
    let mut now = started;
    let mut wall_set = started;
    core.courier.set_wall(now, Clock.unix_s());
    while !(core.shard.is_stopped() || core.events.is_closed() && core.events.is_empty()) {
        wait(&mut core, &mut wire, &turn, now).await;
        now = Clock.now();
        if take_turn(&mut core, &mut wire, &mut turn, now) {
            turn.last_work = now;
        }
        if now.since(wall_set) > WALL_EVERY {
            wall_set = now;
            core.courier.set_wall(now, Clock.unix_s());
        }
    }
}

/// Sleeps if there is nothing to do: until bytes, bell or timer.
async fn wait<W: Wire>(core: &mut Core, wire: &mut W, turn: &Turn, now: Moment) {
    let deadline = earliest(core.shard.next_deadline(), core.courier.next_deadline());
    let mut deadline = deadline.map_or(now + SLEEP_MAX, |at| at.min(now + SLEEP_MAX));
    if turn.unrung > 0 {
        deadline = deadline.min(turn.unrung_since + linger_max(&core.shard));
    }
    let ready = !turn.out.done.is_empty() || deadline <= now;
    if ready || now.since(turn.last_work) < core.spin {
        return wire.wait(Patience::None).await;
    }
    if !turn.backlog.is_empty() {
        return wire.wait(Patience::Until(deadline.min(now + FULL_RING_LOOK))).await;
    }
    let has_work = || !core.events.is_empty() || !core.resolved.is_empty() || core.shard.was_handed_permits();
    if core.bell.flag().try_sleep(has_work) {
        wire.wait(Patience::Until(deadline)).await;
        core.bell.flag().wake();
    } else {
        wire.wait(Patience::None).await;
    }
}

fn earliest(a: Option<Moment>, b: Option<Moment>) -> Option<Moment> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// One bounded turn. True if anything happened.
fn take_turn<W: Wire>(core: &mut Core, wire: &mut W, turn: &mut Turn, now: Moment) -> bool {
    let Turn { effects, out, backlog, .. } = turn;
    let mut worked = !out.done.is_empty();
    wire.take(&mut |event| {
        worked = true;
        core.courier.on_event(now, event, out);
    });
    while let Some(Resolved { origin, addresses }) = core.resolved.pop() {
        core.courier.on_resolved(now, origin, addresses, out);
    }
    if core.courier.next_deadline().is_some_and(|at| at <= now) {
        core.courier.on_time(now, out);
    }
    for done in out.done.drain(..) {
        worked = true;
        let us = u64::try_from(now.since(done.started).as_micros()).unwrap_or(LATENCY_US_MAX);
        turn.latency.saturating_record(us);
        if done.unreadable {
            core.shard.count_unreadable();
        }
        core.shard.count_latency(done.call, us, done.outcome);
        core.shard.on_done(done.call, done.outcome, now, effects);
    }
    if backlog.is_empty() {
        for _ in 0..TURN_EVENTS_MAX {
            let Some(event) = core.events.pop() else { break };
            worked = true;
            core.shard.on_event(event, now, effects);
        }
    }
    core.shard.on_time(now, effects);
    core.shard.start_ready(now, effects);
    start_calls(core, effects, out, now);
    for command in out.commands.drain(..) {
        wire.submit(command);
    }
    ask_resolver(core, out, now);
    report(core, turn, wire.open(), now);
    worked
}

fn start_calls(core: &mut Core, effects: &mut Effects, out: &mut Out, now: Moment) {
    for call in effects.calls.drain(..) {
        let view = core.shard.call(call);
        let mut rest = core.shard.riders(call);
        let request = Request { first: view.first, rest: &mut rest, attempt: view.attempt };
        core.courier.start(now, call, view.origin, request, out);
    }
    for origin in effects.idle_origins.drain(..) {
        if core.courier.forget(origin, out) {
            core.shard.forget_origin(origin);
        }
    }
}

fn ask_resolver(core: &mut Core, out: &mut Out, now: Moment) {
    for (origin, host, port) in out.lookups.split_off(0) {
        if core.lookups.push(Lookup { origin, host, port }).is_err() {
            // More names at once than the ring holds: this one is tried again like any failed lookup.
            core.courier.on_resolved(now, origin, Err(()), out);
        }
    }
    core.lookups.ring_if_dirty();
}

/// Sends what the desk must know, and wakes shards that were handed a permit.
fn report(core: &mut Core, turn: &mut Turn, connections: usize, now: Moment) {
    let count = turn.effects.reports.len() + turn.backlog.len();
    if turn.unrung == 0 && count > 0 {
        turn.unrung_since = now;
    }
    turn.unrung = turn.unrung.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
    for mut report in turn.effects.reports.drain(..) {
        if let FromShard::Snapshot(snapshot) = &mut report {
            complete(snapshot, &turn.latency, connections, now.since(turn.started));
            let open = core.courier.connections_by_origin();
            for target in &mut snapshot.targets {
                target.connections = open.get(target.id.0 as usize).copied().unwrap_or(0);
            }
        }
        if !turn.backlog.is_empty() {
            turn.backlog.push_back(report);
        } else if let Err(report) = core.reports.push(report) {
            turn.backlog.push_back(report);
        }
    }
    while let Some(report) = turn.backlog.pop_front() {
        if let Err(report) = core.reports.push(report) {
            turn.backlog.push_front(report);
            break;
        }
    }
    ring_desk(core, turn, now);
    let mut wake = std::mem::take(&mut turn.effects.wake);
    while wake != 0 {
        let shard = wake.trailing_zeros();
        wake &= wake - 1;
        core.peers[shard as usize].ring_if_asleep();
    }
}

fn linger_max(shard: &Shard) -> Duration {
    if shard.queued() >= shard.running() * 2 { LINGER_SATED_MAX } else { LINGER_MAX }
}

/// Wakes the desk for what was reported: at once, or after gathering some more where many calls are in flight.
fn ring_desk(core: &mut Core, turn: &mut Turn, now: Moment) {
    if turn.unrung == 0 {
        return;
    }
    let gathers = core.shard.running() >= LINGER_CALLS_MIN
        && turn.unrung < LINGER_REPORTS_MAX
        && now.since(turn.unrung_since) < linger_max(&core.shard);
    if !gathers {
        turn.unrung = 0;
        core.reports.ring_if_dirty();
    }
}

/// Adds what the shard itself does not know. Busy is CPU time: it counts the kernel's share of sending and
/// receiving, which happens inside the wire's wait.
fn complete(snapshot: &mut ShardSnapshot, latency: &Histogram<u64>, connections: usize, age: Duration) {
    snapshot.call_us = Some(latency.clone());
    snapshot.connections = u32::try_from(connections).unwrap_or(u32::MAX);
    snapshot.busy_ns = u64::try_from(thread_cpu().as_nanos()).unwrap_or(u64::MAX);
    snapshot.age_ns = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
}
