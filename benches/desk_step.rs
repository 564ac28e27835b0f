//! A message through the desk: arrival, dedupe, room, its shard; then settled, told and confirmed.

mod bench;

use std::num::NonZeroU16;
use std::time::Duration;

use shards::clock::Moment;
use shards::desk::{Arrival, Desk, DeskEffects, Receipt, SourceSpec, Tell};
use shards::model::{
    DeskTuning, Dispatch, Ordering, Parcel, Parts, PoolSpec, Settlement, SourceId, ToShard, Verdict,
};

const BATCH: u64 = 64;

fn arrival(desk: &Desk, source: SourceId, number: u64, groups: u64) -> Arrival {
    let (id, group) = (number.to_string(), (number % groups).to_string());
    let parts = Parts {
        id: &id,
        group: &group,
        pool: "P",
        target: "http://127.0.0.1:9/hook",
        body: b"{}",
        ..Parts::default()
    };
    Arrival {
        parcel: Parcel::new(&parts).expect("valid parts"),
        broker_id: desk.hasher().broker_id(source, &number.to_le_bytes()),
        receipt: Receipt { key: number, epoch: 0 },
        deliveries: 0,
        dispatch: Dispatch::BlockOnError,
        high_priority: false,
    }
}

fn run(rounds: u64, groups: u64) -> (std::time::Duration, u64) {
    let (mut desk, mut out, mut now) =
        (Desk::new(DeskTuning::default(), 2), DeskEffects::default(), Moment::from_nanos(1));
    let spec = SourceSpec {
        ordering: Ordering::Strict,
        lease: None,
        unheard_max: Duration::ZERO,
        attempts_max: 0,
        deliveries_max: None,
        repeats: false,
        judges: false,
        holds_permits: false,
        batch_max: 1_024,
    };
    let source = desk.add_source(spec, false, now);
    desk.set_pool(b"P", PoolSpec::new(NonZeroU16::new(1_000).expect("not zero")), now, &mut out);
    out.runs.clear();
    let (mut sum, mut told) = (0, 0);
    let mut spent = std::time::Duration::ZERO;
    for first in (0..rounds).step_by(usize::try_from(BATCH).expect("small")) {
        // Made outside the clock: parsing belongs to the source.
        let batch: Vec<Arrival> =
            (first..first + BATCH).map(|number| arrival(&desk, source, number, groups)).collect();
        now = now + std::time::Duration::from_micros(100);
        let (elapsed, ()) = bench::time(|| {
            desk.on_batch(source, batch, now, &mut out);
            for (_, run) in out.runs.split_off(0) {
                if let ToShard::Run(envelope) = run {
                    desk.on_settled(Settlement { envelope, verdict: Verdict::Ack }, now, &mut out);
                }
            }
            for (_, receipt, tell) in out.tells.split_off(0) {
                sum = bench::mix(sum, receipt.key);
                told += 1;
                if let Tell::Ack { ticket: Some(ticket) } = tell {
                    desk.on_closed(ticket, true, now, &mut out);
                }
            }
        });
        spent += elapsed;
    }
    assert_eq!((desk.held(), told), (0, rounds), "D5: every message was told and none is held");
    (spent, sum)
}

fn main() {
    let rounds = bench::rounds(64 * 200, 64 * 20_000);
    for (name, groups) in [("desk_step/1_group", 1), ("desk_step/10000_groups", 10_000)] {
        let (elapsed, sum) = run(rounds, groups);
        bench::report(name, rounds, elapsed, sum);
    }
}
