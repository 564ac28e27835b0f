//! What a group costs: a desk and a shard that hold a million messages, in one group or in as many.

use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::Context;
use corelane::report::process;
use shards::clock::Moment;
use shards::desk::{Arrival, Desk, DeskEffects, Receipt, SourceSpec};
use shards::model::{
    Control, DeskTuning, Dispatch, FromShard, Ordering, Outcome, Parcel, Parts, PoolSpec, ShardId,
    ShardTuning, ToShard,
};
use shards::shard::{Effects, Shard};

const MESSAGES: u64 = 1_000_000;
const BATCH: u64 = 1_000;

/// Holds the messages, prints the memory in use, delivers all, prints what is left.
pub(crate) fn probe(groups: u64) -> anyhow::Result<()> {
    let now = Moment::ZERO;
    let tuning =
        DeskTuning { memory_budget: usize::MAX, group_buffer_max: Some(u32::MAX), ..DeskTuning::default() };
    let mut desk = Desk::new(tuning, 1);
    let mut shard = Shard::new(ShardId(0), ShardTuning::default(), now);
    let (mut out, mut effects) = (DeskEffects::default(), Effects::default());
    let source = desk.add_source(
        SourceSpec {
            ordering: Ordering::Strict,
            lease: None,
            unheard_max: Duration::ZERO,
            attempts_max: 0,
            deliveries_max: None,
            repeats: false,
            judges: false,
            holds_permits: false,
            batch_max: 1_000,
        },
        false,
        now,
    );
    desk.set_pool(b"P", PoolSpec::new(NonZeroU16::MAX), now, &mut out);
    let empty = process::rss_own()?.now_mb();
    for batch in 0..MESSAGES / BATCH {
        let arrivals: Vec<Arrival> =
            (0..BATCH).map(|at| arrival(&desk, source, batch * BATCH + at, groups)).collect();
        desk.on_batch(source, arrivals, now, &mut out);
        for (_, run) in out.runs.drain(..) {
            shard.on_event(run, now, &mut effects);
        }
    }
    let held_mb = process::rss_own()?.now_mb() - empty;
    let held = desk.held();
    while !shard.is_idle() {
        shard.start_ready(now, &mut effects);
        for call in std::mem::take(&mut effects.calls) {
            shard.on_done(call, Outcome::success(200), now, &mut effects);
        }
        for report in effects.reports.drain(..) {
            if let FromShard::Settled(settlement) = report {
                let ticket = settlement.envelope.ticket;
                desk.on_settled(settlement, now, &mut out);
                desk.on_closed(ticket, true, now, &mut out);
            }
        }
        out.tells.clear();
    }
    shard.on_event(ToShard::Control(Box::new(Control::Snapshot)), now, &mut effects);
    let lanes = shard.snapshot().lanes;
    let left = u64::from(lanes) + u64::try_from(desk.held()).context("count")?;
    println!(
        "{}",
        serde_json::json!({ "groups": groups, "held": held, "held_mb": held_mb, "lanes_after": left })
    );
    Ok(())
}

fn arrival(desk: &Desk, source: shards::model::SourceId, number: u64, groups: u64) -> Arrival {
    let (id, group) = (format!("{number:08}"), format!("{:08}", number % groups));
    let parts = Parts {
        id: &id,
        group: &group,
        pool: "P",
        target: "http://127.0.0.1:9/ok",
        body: b"{}",
        ..Parts::default()
    };
    Arrival {
        parcel: Parcel::new(&parts).expect("constant fields are valid"),
        broker_id: desk.hasher().broker_id(source, id.as_bytes()),
        receipt: Receipt { key: number, epoch: 0 },
        deliveries: 0,
        dispatch: Dispatch::BlockOnError,
        high_priority: false,
    }
}
