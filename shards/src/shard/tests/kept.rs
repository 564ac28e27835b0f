//! Permits that are held until an ack is kept.

use super::*;

#[test]
fn a_permit_that_is_held_for_an_ack_starts_nothing_until_the_ack_is_kept() {
    let mut bench = Bench::new(spec(2));
    for group in 1..=5 {
        bench.push(group, |it| it.flags = it.flags.with(Flags::HOLDS_PERMIT));
    }
    assert_eq!(bench.turn(), [[1], [2]]);
    assert_eq!(bench.done(1, Outcome::success(200)), Vec::<Vec<u32>>::new(), "S4: its ack is on its way");
    assert_eq!(bench.done(2, REFUSED), [[3]], "a refused message holds nothing");
    assert_eq!(bench.done(3, Outcome::success(200)), Vec::<Vec<u32>>::new());
    bench.shard.on_event(ToShard::Kept { pool: POOL, count: 1 }, bench.now, &mut bench.out);
    assert_eq!(bench.turn(), [[4]]);
    bench.shard.on_event(ToShard::Kept { pool: POOL, count: 1 }, bench.now, &mut bench.out);
    assert_eq!(bench.turn(), [[5]]);
    bench.control(Control::PoolDrain { pool: POOL });
    bench.done(4, Outcome::success(200));
    bench.done(5, REFUSED);
    let is_drained =
        |bench: &Bench| bench.out.reports.iter().any(|it| matches!(it, FromShard::PoolDrained(_)));
    assert!(!is_drained(&bench), "a pool is not gone while one of its acks is on its way");
    bench.shard.on_event(ToShard::Kept { pool: POOL, count: 1 }, bench.now, &mut bench.out);
    assert!(is_drained(&bench));
}

#[test]
fn a_call_with_several_messages_holds_one_permit() {
    let mut bench = Bench::new(PoolSpec { batch_max: NonZeroU16::new(3).expect("not zero"), ..spec(1) });
    for _ in 0..4 {
        bench.push(1, |it| it.flags = it.flags.with(Flags::HOLDS_PERMIT));
    }
    assert_eq!(bench.turn(), [[1, 2, 3]]);
    assert_eq!(bench.done(1, Outcome::success(200)), Vec::<Vec<u32>>::new());
    let holds = |report: &FromShard| match report {
        FromShard::Settled(settled) => Some(settled.envelope.flags.has(Flags::HOLDS_PERMIT)),
        _ => None,
    };
    let holding: Vec<bool> = bench.out.reports.iter().filter_map(holds).collect();
    assert_eq!(holding, [false, false, true], "the last one");
    bench.shard.on_event(ToShard::Kept { pool: POOL, count: 1 }, bench.now, &mut bench.out);
    assert_eq!(bench.turn(), [[4]]);
}
