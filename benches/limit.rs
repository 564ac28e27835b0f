//! The words that cores share: a token borrowed and given back, a permit taken and released, alone and
//! against another core.

mod bench;

use std::sync::Arc;

use shards::clock::Moment;
use shards::model::ShardId;
use shards::shard::{Borrow, Permits, Rate, Release, Tokens};

fn borrow(rounds: u64) -> u64 {
    let rate = Rate::new(Some(1_000_000), Moment::ZERO);
    let mut sum = 0;
    for _ in 0..rounds {
        if let Borrow::Granted(tokens) = std::hint::black_box(&rate).borrow(Moment::ZERO, 32) {
            sum += u64::from(tokens.count);
            rate.give_back(Tokens { ..tokens });
        }
    }
    sum
}

fn take(permits: &Permits, shard: ShardId, rounds: u64) -> u64 {
    let mut sum = 0;
    for _ in 0..rounds {
        if std::hint::black_box(permits).try_take(shard) || permits.take_handed(shard) > 0 {
            sum += 1;
            while permits.release(shard) == Release::Kept {}
        }
    }
    sum
}

fn main() {
    let rounds = bench::rounds(10_000, 20_000_000);
    let (elapsed, sum) = bench::time(|| borrow(rounds));
    assert_eq!(sum, rounds * 32, "R3: what is given back can be borrowed again");
    bench::report("limit/rate", rounds, elapsed, sum);

    let permits = Arc::new(Permits::new(64, 2));
    let (elapsed, sum) = bench::time(|| take(&permits, ShardId(0), rounds));
    assert_eq!((sum, permits.usage().0), (rounds, 0), "K2");
    bench::report("limit/permit", rounds, elapsed, sum);

    let other = Arc::clone(&permits);
    let other = bench::on_core(1, move || take(&other, ShardId(1), rounds));
    let mine = Arc::clone(&permits);
    let mine = bench::on_core(0, move || bench::time(|| take(&mine, ShardId(0), rounds)));
    let (elapsed, sum) = mine.join().expect("this shard ends");
    let sum = sum + other.join().expect("the other shard ends");
    assert_eq!((sum, permits.usage().0), (rounds * 2, 0), "K1: 64 permits are enough for two");
    bench::report("limit/permit_contended", rounds, elapsed, sum);
}
