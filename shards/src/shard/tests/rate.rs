//! A rate over two shards and several windows of virtual time.

use super::*;

const RATE: u32 = 120;
const GROUPS: u32 = 40;
const WINDOWS: usize = 3;
const STEP: Duration = Duration::from_millis(250);

/// One turn of a shard that never lacks messages and whose calls end at once: how many it started.
fn busy_turn(bench: &mut Bench, now: Moment) -> u32 {
    bench.now = now;
    for group in 0..GROUPS {
        bench.push(group.into(), |_| ());
    }
    let (mut started, mut calls) = (0, bench.turn());
    while !calls.is_empty() {
        let mut next = Vec::new();
        for ids in calls {
            started += u32::try_from(ids.len()).expect("few");
            next.extend(bench.done(ids[0], Outcome::success(200)));
        }
        calls = next;
    }
    started
}

#[test]
fn each_of_three_minutes_has_exactly_the_rate_over_two_shards() {
    let mut pool = spec(7);
    pool.rate_per_minute = NonZeroU32::new(RATE);
    let shared = Arc::new(PoolShared::new(&pool, 2, Moment::ZERO));
    let [mut a, mut b] = [0, 1].map(|id| Bench::sharing(ShardId(id), pool, Arc::clone(&shared)));
    let (mut now, mut starts) = (Moment::ZERO, [0_u32; WINDOWS]);
    let (mut of_a, mut of_b) = (0, 0);
    for turn in 0.. {
        let window = usize::try_from(now.since(Moment::ZERO).as_secs() / 60).expect("few");
        if window == WINDOWS {
            break;
        }
        // They take turns in being first, as cores do.
        let (first, second) = if turn % 2 == 0 { (&mut a, &mut b) } else { (&mut b, &mut a) };
        let (one, two) = (busy_turn(first, now), busy_turn(second, now));
        starts[window] += one + two;
        let (one, two) = if turn % 2 == 0 { (one, two) } else { (two, one) };
        (of_a, of_b) = (of_a + one, of_b + two);
        now = now + STEP;
    }
    assert_eq!(starts, [RATE; WINDOWS], "R1, and nothing is wasted; A {of_a}, B {of_b}");
}

#[test]
fn a_window_that_was_not_used_up_leaves_nothing_to_the_next() {
    let mut pool = spec(200);
    pool.rate_per_minute = NonZeroU32::new(RATE);
    let mut bench = Bench::new(pool);
    assert_eq!(busy_turn(&mut bench, Moment::ZERO + Duration::from_secs(59)), GROUPS);
    let second = Moment::ZERO + Duration::from_secs(60);
    let started: u32 = (0..8).map(|step| busy_turn(&mut bench, second + STEP * step)).sum();
    assert_eq!(started, RATE);
}
