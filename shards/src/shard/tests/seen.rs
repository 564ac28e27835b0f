//! What people are told: where a message is, what it waits for, and what the watchdog mends.

use super::*;
use crate::model::{Notice, Wait, Wanted};

fn wait_of(bench: &Bench, group: u64, ticket: Option<u32>) -> Option<(u32, Wait)> {
    let ticket = ticket.map(|slot| Ticket { slot, tenant: 0 });
    let wanted = Wanted { lane: LaneKey { hash: group, pool: POOL }, ticket };
    bench.shard.look(&[wanted]).first().map(|seen| (seen.place, seen.wait))
}

fn notices(bench: &mut Bench) -> Vec<Notice> {
    let reports = bench.out.reports.drain(..);
    reports
        .filter_map(|report| if let FromShard::Noticed(notice) = report { Some(*notice) } else { None })
        .collect()
}

#[test]
fn a_message_says_what_it_waits_for() {
    let mut bench = Bench::new(spec(1));
    for group in [1, 1, 2] {
        bench.push(group, |_| ());
    }
    bench.turn();
    assert!(matches!(wait_of(&bench, 1, None), Some((0, Wait::Answer { .. }))));
    assert_eq!(wait_of(&bench, 1, Some(2)), Some((1, Wait::Others)));
    assert_eq!(wait_of(&bench, 2, None), Some((0, Wait::Permit)));
    assert_eq!(wait_of(&bench, 3, None), None);
    bench.done(1, HTTP_500);
    let Some((0, Wait::Pause { until })) = wait_of(&bench, 1, Some(1)) else { panic!("paused") };
    assert_eq!(until, Moment::ZERO + Duration::from_secs(1));
}

#[test]
fn a_breaker_and_a_rate_are_named_too() {
    let mut pool = spec(20);
    pool.rate_per_minute = NonZeroU32::new(10);
    let mut bench = Bench::new(pool);
    for group in 0..11 {
        bench.push(group, |_| ());
    }
    assert_eq!(bench.turn().len(), 10);
    assert_eq!(wait_of(&bench, 10, None), Some((0, Wait::Rate)));
    for id in 1..=10 {
        bench.done(id, DOWN);
    }
    bench.wait(1);
    assert_eq!(wait_of(&bench, 0, None), Some((0, Wait::Breaker)));
    let look = bench.shard.snapshot();
    assert!(matches!(look.targets[0].breaker, crate::meter::BreakerLook::Tripped(_)));
}

#[test]
fn a_lane_that_nothing_would_wake_is_found_and_goes_on() {
    let mut bench = Bench::new(spec(5));
    bench.push(1, |_| ());
    // Break the shard: the pool is in no list and waits for nothing.
    bench.shard.active.clear();
    bench.shard.pool_mut(POOL).active = false;
    assert!(bench.turn().is_empty(), "stuck");
    assert_eq!(bench.wait(5), [[1]]);
    let (pool, count) = (POOL, 1);
    assert_eq!(
        notices(&mut bench),
        [Notice::LanesStuck { pool, count }, Notice::LanesRestarted { pool, count }]
    );
}

#[test]
fn a_pause_whose_timer_is_lost_ends_all_the_same() {
    let mut bench = Bench::new(spec(5));
    bench.push(1, |_| ());
    bench.turn();
    bench.done(1, HTTP_500);
    // Break the shard: the timer is of another era.
    let lane = bench.shard.lanes.all()[0];
    bench.shard.lanes.get_mut(lane).era += 1;
    assert!(bench.wait(4).is_empty());
    assert!(bench.wait(1).is_empty(), "late, but not for long");
    assert_eq!(bench.wait(5), [[1]]);
    assert_eq!(notices(&mut bench).len(), 2);
}

#[test]
fn a_call_without_an_outcome_is_reported_once_per_timeout() {
    let mut bench = Bench::new(spec(5));
    bench.push(1, |_| ());
    bench.turn();
    for _ in 0..200 {
        bench.wait(5);
    }
    let origin = "http://t".to_owned();
    assert_eq!(notices(&mut bench), [Notice::NoOutcome { pool: POOL, origin }]);
}

#[test]
fn a_process_that_was_stopped_for_long_has_late_timers_and_nothing_stuck() {
    let mut bench = Bench::new(spec(5));
    bench.push(1, |_| ());
    bench.turn();
    bench.done(1, HTTP_500);
    assert_eq!(bench.wait(600), [[1]]);
    assert_eq!(notices(&mut bench), []);
}
