//! A message through a shard: envelope in, call out, call done, settled. In one lane, and over ten thousand.

mod bench;

use std::num::NonZeroU16;
use std::sync::Arc;

use shards::clock::Moment;
use shards::model::{
    BatchId, Control, Dispatch, Envelope, Flags, FromShard, LaneKey, Ordering, Outcome, Parcel, Parts,
    PoolId, PoolSpec, ShardId, ShardTuning, Ticket, ToShard,
};
use shards::shard::{Effects, PoolShared, Shard};

const POOL: PoolId = PoolId(0);
/// Messages that come in per turn.
const TURN: u64 = 64;

fn envelope(number: u64, lanes: u64) -> Envelope {
    let parts =
        Parts { id: "m-1", group: "g", target: "http://127.0.0.1:9/hook", body: b"{}", ..Parts::default() };
    Envelope {
        parcel: Parcel::new(&parts).expect("valid parts"),
        ticket: Ticket { slot: u32::try_from(number % u64::from(u32::MAX)).expect("in range"), tenant: 0 },
        lane: LaneKey { hash: number % lanes, pool: POOL },
        batch: BatchId(0),
        attempts: 0,
        attempts_max: 0,
        ordering: Ordering::Strict,
        dispatch: Dispatch::BlockOnError,
        flags: Flags::default(),
    }
}

fn shard() -> Shard {
    let now = Moment::ZERO;
    let spec = PoolSpec::new(NonZeroU16::new(10_000).expect("not zero"));
    let shared = Arc::new(PoolShared::new(&spec, 1, now));
    let mut core = Shard::new(ShardId(0), ShardTuning::default(), now);
    let add = Control::PoolAdd { pool: POOL, spec, shared };
    core.on_event(ToShard::Control(Box::new(add)), now, &mut Effects::default());
    core
}

/// Steps `rounds` messages through, a turn at a time, and sums the tickets of those that were settled.
fn run(envelopes: Vec<Envelope>) -> u64 {
    let (mut shard, mut effects, mut now) = (shard(), Effects::default(), Moment::ZERO);
    let (mut sum, mut settled, wanted) = (0, 0, envelopes.len());
    let mut arriving = envelopes.into_iter();
    while settled < wanted {
        now = now + std::time::Duration::from_micros(10);
        for envelope in arriving.by_ref().take(usize::try_from(TURN).expect("small")) {
            shard.on_event(ToShard::Run(envelope), now, &mut effects);
        }
        shard.on_time(now, &mut effects);
        shard.start_ready(now, &mut effects);
        for call in std::mem::take(&mut effects.calls) {
            shard.on_done(call, Outcome::success(200), now, &mut effects);
        }
        for report in effects.reports.drain(..) {
            if let FromShard::Settled(settlement) = report {
                sum = bench::mix(sum, u64::from(settlement.envelope.ticket.slot));
                settled += 1;
            }
        }
    }
    assert!(shard.is_idle(), "S2: nothing is left");
    sum
}

fn main() {
    let rounds = bench::rounds(20_000, 2_000_000);
    for (name, lanes) in [("shard_step/1_lane", 1), ("shard_step/10000_lanes", 10_000)] {
        let envelopes: Vec<Envelope> = (0..rounds).map(|number| envelope(number, lanes)).collect();
        let (elapsed, sum) = bench::time(|| run(envelopes));
        bench::report(name, rounds, elapsed, sum);
    }
}
