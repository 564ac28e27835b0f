//! The shard's rules, one by one. The simulator checks them together, under faults.

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::model::{
    BatchId, DeadReason, Dispatch, Fault, Flags, LaneKey, Mediation, NackReason, Ordering, Parts, PoolSpec,
    Ticket,
};

const POOL: PoolId = PoolId(0);
const DOWN: Outcome = Outcome::network();
const HTTP_500: Outcome = Outcome::failed(Mediation::ErrorProcess, Fault::Http, 500, 0);
const REFUSED: Outcome = Outcome::failed(Mediation::ErrorConfig, Fault::Http, 404, 0);
const BUSY_7S: Outcome = Outcome::failed(Mediation::ErrorProcess, Fault::RateLimited, 429, 7);

/// A shard with one pool, driven by hand.
struct Bench {
    shard: Shard,
    out: Effects,
    now: Moment,
    next: u32,
}

fn spec(concurrency: u16) -> PoolSpec {
    PoolSpec::new(NonZeroU16::new(concurrency).expect("not zero"))
}

impl Bench {
    fn new(spec: PoolSpec) -> Self {
        Self::sharing(ShardId(0), spec, Arc::new(PoolShared::new(&spec, 2, Moment::ZERO)))
    }

    fn sharing(id: ShardId, spec: PoolSpec, shared: Arc<PoolShared>) -> Self {
        let tuning = ShardTuning::default();
        let mut bench = Self {
            shard: Shard::new(id, tuning, Moment::ZERO),
            out: Effects::default(),
            now: Moment::ZERO,
            next: 0,
        };
        bench.control(Control::PoolAdd { pool: POOL, spec, shared });
        bench
    }

    fn control(&mut self, control: Control) {
        self.shard.on_event(ToShard::Control(Box::new(control)), self.now, &mut self.out);
    }

    /// Queues a message of `group`; its number is its id.
    fn push(&mut self, group: u64, change: impl FnOnce(&mut Envelope)) -> u32 {
        self.next += 1;
        let id = self.next.to_string();
        let parts = Parts { id: &id, target: "http://t/x", body: b"{}", ..Parts::default() };
        let mut envelope = Envelope {
            parcel: Parcel::new(&parts).expect("valid"),
            ticket: Ticket { slot: self.next, tenant: 0 },
            lane: LaneKey { hash: group, pool: POOL },
            batch: BatchId(0),
            attempts: 0,
            attempts_max: 0,
            ordering: Ordering::Strict,
            dispatch: Dispatch::BlockOnError,
            flags: Flags::default(),
        };
        change(&mut envelope);
        self.shard.on_event(ToShard::Run(envelope), self.now, &mut self.out);
        self.next
    }

    /// One turn: timers, then starts. Returns the ids that each started call carries.
    fn turn(&mut self) -> Vec<Vec<u32>> {
        self.shard.on_time(self.now, &mut self.out);
        self.shard.start_ready(self.now, &mut self.out);
        let calls: Vec<CallId> = self.out.calls.drain(..).collect();
        calls.iter().map(|&call| self.ids(call)).collect()
    }

    fn ids(&self, call: CallId) -> Vec<u32> {
        let view = self.shard.call(call);
        std::iter::once(view.first).chain(self.shard.riders(call)).map(id_of).collect()
    }

    fn call_of(&self, id: u32) -> CallId {
        let running = self.shard.lanes.all().into_iter().find(|&lane| {
            self.shard.lanes.get(lane).state == State::Running
                && id_of(&self.shard.lanes.head(lane).parcel) == id
        });
        CallId(running.expect("a call with this head"))
    }

    /// The call whose first message is `id` ends; then a turn.
    fn done(&mut self, id: u32, outcome: Outcome) -> Vec<Vec<u32>> {
        let call = self.call_of(id);
        self.shard.on_done(call, outcome, self.now, &mut self.out);
        self.turn()
    }

    fn wait(&mut self, seconds: u64) -> Vec<Vec<u32>> {
        self.now = self.now + Duration::from_secs(seconds);
        self.turn()
    }

    /// What was settled since the last look: id and verdict.
    fn settled(&mut self) -> Vec<(u32, Verdict)> {
        let reports = self.out.reports.drain(..);
        let settled = reports.filter_map(|report| match report {
            FromShard::Settled(s) => Some((id_of(&s.envelope.parcel), s.verdict)),
            _ => None,
        });
        settled.collect()
    }
}

fn id_of(parcel: &Parcel) -> u32 {
    std::str::from_utf8(parcel.id()).expect("ascii").parse().expect("a number")
}

fn nack(delay_s: u32, reason: NackReason) -> Verdict {
    Verdict::Nack { delay_s, reason }
}

#[test]
fn a_group_runs_one_at_a_time_in_order_and_groups_run_side_by_side() {
    let mut bench = Bench::new(spec(10));
    for group in [1, 1, 2, 1] {
        bench.push(group, |_| ());
    }
    assert_eq!(bench.turn(), [[1], [3]], "S1");
    assert_eq!(bench.done(3, Outcome::success(200)), Vec::<Vec<u32>>::new());
    assert_eq!(bench.done(1, Outcome::success(200)), [[2]], "S3");
    assert_eq!(bench.done(2, Outcome::success(200)), [[4]], "S3");
    bench.done(4, Outcome::success(200));
    assert_eq!(bench.settled(), [(3, Verdict::Ack), (1, Verdict::Ack), (2, Verdict::Ack), (4, Verdict::Ack)]);
    assert_eq!(bench.shard.lanes.count(), 0, "an idle group costs nothing");
}

#[test]
fn a_retry_stays_at_the_head_of_its_group_and_lends_its_permit_out() {
    let mut bench = Bench::new(spec(1));
    bench.push(1, |_| ());
    bench.push(1, |_| ());
    bench.push(2, |_| ());
    assert_eq!(bench.turn(), [[1]]);
    assert_eq!(bench.done(1, HTTP_500), [[3]], "the permit is free during the pause");
    assert_eq!(bench.done(3, Outcome::success(200)), Vec::<Vec<u32>>::new(), "the lane is held");
    assert_eq!(bench.wait(1), [[1]], "again after 1 s");
    bench.done(1, HTTP_500);
    assert_eq!(bench.wait(1), Vec::<Vec<u32>>::new());
    assert_eq!(bench.wait(1), [[1]], "again after 2 s");
    assert_eq!(bench.done(1, Outcome::success(200)), [[2]]);
}

#[test]
fn a_failed_strict_head_is_held_in_place_until_it_is_delivered() {
    let mut bench = Bench::new(spec(9));
    bench.push(1, |_| ());
    bench.push(1, |_| ());
    bench.turn();
    assert_eq!(bench.done(1, BUSY_7S), Vec::<Vec<u32>>::new());
    assert_eq!(bench.wait(6), Vec::<Vec<u32>>::new());
    assert_eq!(bench.wait(1), [[1]], "the same head, after its delay");
    assert_eq!(bench.settled(), [], "nothing went back");
    assert_eq!(bench.done(1, Outcome::success(200)), [[2]]);
}

#[test]
fn a_message_without_attempts_left_is_set_aside_and_its_group_goes_on() {
    let mut bench = Bench::new(spec(9));
    bench.push(1, |envelope| {
        envelope.attempts = 1;
        envelope.attempts_max = 2;
    });
    bench.push(1, |_| ());
    bench.turn();
    assert_eq!(bench.done(1, BUSY_7S), [[2]]);
    assert_eq!(bench.settled(), [(1, Verdict::DeadLetter { reason: DeadReason::Exhausted, status: 429 })]);
}

#[test]
fn a_refused_message_is_set_aside_and_its_group_goes_on() {
    let mut bench = Bench::new(spec(9));
    bench.push(1, |_| ());
    bench.push(1, |_| ());
    bench.turn();
    assert_eq!(bench.done(1, REFUSED), [[2]]);
    assert_eq!(bench.settled(), [(1, Verdict::DeadLetter { reason: DeadReason::Refused, status: 404 })]);
}

fn batched(batch: u32, last: bool) -> impl FnOnce(&mut Envelope) {
    move |envelope| {
        envelope.ordering = Ordering::Batch;
        envelope.batch = BatchId(batch);
        if last {
            envelope.flags = Flags::LAST_OF_BATCH;
        }
    }
}

#[test]
fn a_failed_message_takes_its_batchs_followers_with_it_and_no_others() {
    let mut bench = Bench::new(spec(9));
    bench.push(1, batched(1, false));
    bench.push(1, batched(1, false));
    bench.push(1, batched(1, true));
    bench.push(1, batched(2, true));
    bench.push(2, batched(1, true));
    assert_eq!(bench.turn(), [[1], [5]]);
    assert_eq!(bench.done(1, BUSY_7S), [[4]], "the next batch goes on");
    let cascade = nack(10, NackReason::Cascade);
    assert_eq!(bench.settled(), [(1, nack(7, NackReason::Failed)), (2, cascade), (3, cascade)]);
}

#[test]
fn followers_that_come_after_the_failure_go_back_too() {
    let mut bench = Bench::new(spec(9));
    bench.push(1, batched(1, false));
    bench.turn();
    bench.done(1, Outcome::failed(Mediation::ErrorProcess, Fault::RateLimited, 429, 60));
    bench.push(1, batched(1, false));
    bench.push(1, batched(1, true));
    assert_eq!(bench.turn(), Vec::<Vec<u32>>::new());
    let cascade = nack(60, NackReason::Cascade);
    assert_eq!(bench.settled(), [(1, nack(60, NackReason::Failed)), (2, cascade), (3, cascade)]);
    assert_eq!(bench.shard.lanes.count(), 0, "nothing is remembered once the batch is complete");
}

#[test]
fn next_on_error_lets_the_group_go_on() {
    let mut bench = Bench::new(spec(9));
    bench.push(1, |envelope| envelope.dispatch = Dispatch::NextOnError);
    bench.push(1, |_| ());
    bench.turn();
    assert_eq!(bench.done(1, BUSY_7S), [[2]]);
    assert_eq!(bench.settled(), [(1, nack(7, NackReason::Failed))]);
}

#[test]
fn priority_chooses_between_groups_and_never_inside_one() {
    let mut bench = Bench::new(spec(1));
    let urgent = |envelope: &mut Envelope| envelope.flags = Flags::HIGH_PRIORITY;
    bench.push(1, |_| ());
    bench.push(1, urgent);
    bench.push(2, |_| ());
    bench.push(3, urgent);
    assert_eq!(bench.turn(), [[4]]);
    assert_eq!(bench.done(4, Outcome::success(200)), [[1]]);
    assert_eq!(bench.done(1, Outcome::success(200)), [[2]], "now its head is urgent");
    assert_eq!(bench.done(2, Outcome::success(200)), [[3]]);
}

#[test]
fn messages_of_a_lane_ride_together_and_a_refused_ride_is_halved() {
    let mut pool = spec(1);
    pool.batch_max = NonZeroU16::new(4).expect("not zero");
    let mut bench = Bench::new(pool);
    for _ in 0..5 {
        bench.push(1, |_| ());
    }
    assert_eq!(bench.turn(), [[1, 2, 3, 4]]);
    assert_eq!(bench.done(1, REFUSED), [[1, 2]], "halved");
    assert_eq!(bench.done(1, REFUSED), [[1]], "halved again");
    assert_eq!(bench.done(1, REFUSED), [[2]], "the poison is out");
    assert_eq!(bench.done(2, Outcome::success(200)), [[3, 4, 5]]);
    bench.done(3, Outcome::success(200));
    let refused = Verdict::DeadLetter { reason: DeadReason::Refused, status: 404 };
    let acks = [2, 3, 4, 5].map(|id| (id, Verdict::Ack));
    assert_eq!(bench.settled(), [&[(1, refused)][..], &acks].concat());
}

#[test]
fn two_shards_share_a_pools_permits_and_neither_starves() {
    let pool = spec(2);
    let shared = Arc::new(PoolShared::new(&pool, 2, Moment::ZERO));
    let mut a = Bench::sharing(ShardId(0), pool, Arc::clone(&shared));
    let mut b = Bench::sharing(ShardId(1), pool, Arc::clone(&shared));
    for group in 0..4 {
        a.push(group, |_| ());
        b.push(group, |_| ());
    }
    assert_eq!(a.turn(), [[1], [2]], "one shard can have all");
    assert_eq!(b.turn(), Vec::<Vec<u32>>::new());
    assert_eq!(a.done(1, Outcome::success(200)), Vec::<Vec<u32>>::new(), "handed over, not kept");
    assert_eq!(a.out.wake, 0b10, "B is woken");
    assert_eq!(b.turn(), [[1]]);
    assert_eq!(b.done(1, Outcome::success(200)), Vec::<Vec<u32>>::new(), "and back");
    assert_eq!(a.turn(), [[3]]);
    assert_eq!(shared.permits.usage(), (2, 2));
}

#[test]
fn a_rate_is_spent_per_message_and_a_new_window_starts_anew() {
    let mut pool = spec(9);
    pool.rate_per_minute = NonZeroU32::new(2);
    let mut bench = Bench::new(pool);
    for group in 0..5 {
        bench.push(group, |_| ());
    }
    assert_eq!(bench.turn(), [[1], [2]]);
    bench.done(1, HTTP_500);
    assert_eq!(bench.wait(1), [[1]], "a repeated call costs no token");
    bench.done(2, Outcome::success(200));
    assert_eq!(bench.wait(58), Vec::<Vec<u32>>::new());
    assert_eq!(bench.wait(1), [[3], [4]], "the next minute");
}

#[test]
fn a_rate_counts_messages_and_not_calls() {
    let mut pool = spec(9);
    pool.batch_max = NonZeroU16::new(4).expect("not zero");
    pool.rate_per_minute = NonZeroU32::new(3);
    let mut bench = Bench::new(pool);
    for _ in 0..5 {
        bench.push(1, |_| ());
    }
    assert_eq!(bench.turn(), [[1, 2, 3]], "R1: three tokens, three messages");
    assert_eq!(bench.done(1, Outcome::success(200)), Vec::<Vec<u32>>::new());
    assert_eq!(bench.wait(60), [[4, 5]], "the next minute");
}

#[test]
fn a_tripped_target_holds_strict_lanes_and_probes_with_one() {
    let mut bench = Bench::new(spec(20));
    for group in 0..12 {
        bench.push(group, |_| ());
    }
    assert_eq!(bench.turn().len(), 12);
    for id in 1..=10 {
        bench.done(id, DOWN);
    }
    bench.push(50, |_| ());
    assert_eq!(bench.turn(), Vec::<Vec<u32>>::new(), "held");
    assert_eq!(bench.wait(4), Vec::<Vec<u32>>::new(), "so are the pauses' ends");
    assert_eq!(bench.settled(), [], "no attempt is spent");
    assert_eq!(bench.wait(2).len(), 1, "one probe");
    let probe = bench.shard.lanes.all().into_iter().find(|&lane| bench.shard.lanes.get(lane).probe);
    let call = CallId(probe.expect("a probe"));
    bench.shard.on_done(call, Outcome::success(200), bench.now, &mut bench.out);
    assert_eq!(bench.turn().len(), 1, "the next probe");
}

#[test]
fn a_tripped_target_gives_batch_lanes_back_without_an_attempt() {
    let mut bench = Bench::new(spec(20));
    for group in 0..10 {
        bench.push(group, batched(1, true));
    }
    bench.turn();
    for id in 1..=10 {
        bench.done(id, DOWN);
    }
    bench.settled();
    bench.push(50, batched(2, false));
    bench.push(50, batched(2, true));
    bench.turn();
    assert_eq!(
        bench.settled(),
        [(11, nack(5, NackReason::BreakerTripped)), (12, nack(10, NackReason::Cascade))]
    );
}

#[test]
fn a_drained_pool_gives_back_in_order_and_lets_calls_finish() {
    let mut bench = Bench::new(spec(1));
    bench.push(1, batched(1, false));
    bench.push(1, batched(1, true));
    bench.push(2, |_| ());
    bench.turn();
    bench.control(Control::PoolDrain { pool: POOL });
    let back = nack(0, NackReason::GivenBack);
    assert_eq!(bench.settled(), [(2, back), (3, back)]);
    bench.push(1, |_| ());
    assert_eq!(bench.settled(), [(4, back)], "newcomers too");
    let call = bench.call_of(1);
    bench.shard.on_done(call, Outcome::success(200), bench.now, &mut bench.out);
    assert!(bench.out.reports.iter().any(|report| matches!(report, FromShard::PoolDrained(POOL))));
    assert_eq!(bench.settled(), [(1, Verdict::Ack)]);
}

#[test]
fn a_strict_head_that_fails_while_draining_goes_back_before_its_followers() {
    let mut bench = Bench::new(spec(1));
    bench.push(1, |_| ());
    bench.push(1, |_| ());
    bench.turn();
    bench.control(Control::Drain);
    assert_eq!(bench.settled(), [], "the follower waits for its head's fate");
    bench.push(1, |_| ());
    bench.done(1, DOWN);
    let back = nack(0, NackReason::GivenBack);
    assert_eq!(bench.settled(), [(1, nack(0, NackReason::Failed)), (2, back), (3, back)]);
    assert!(bench.shard.is_idle());
}

#[test]
fn one_message_and_what_waits_behind_it_can_be_asked_back() {
    let mut bench = Bench::new(spec(1));
    for _ in 0..4 {
        bench.push(1, |_| ());
    }
    bench.turn();
    let lane = LaneKey { hash: 1, pool: POOL };
    bench.control(Control::GiveBack { lane, ticket: Ticket { slot: 3, tenant: 0 } });
    let back = nack(0, NackReason::GivenBack);
    assert_eq!(bench.settled(), [(3, back), (4, back)]);
    bench.control(Control::GiveBack { lane, ticket: Ticket { slot: 1, tenant: 0 } });
    assert_eq!(bench.settled(), [], "a started one is left to its call");
    assert_eq!(bench.done(1, Outcome::success(200)), [[2]]);
}

#[test]
fn a_lowered_concurrency_applies_at_once_and_is_reported_if_it_does_not_hold() {
    let pool = spec(3);
    let shared = Arc::new(PoolShared::new(&pool, 1, Moment::ZERO));
    let mut bench = Bench::sharing(ShardId(0), pool, Arc::clone(&shared));
    for group in 0..9 {
        bench.push(group, |_| ());
    }
    assert_eq!(bench.turn().len(), 3);
    shared.permits.set_limit(1);
    bench.control(Control::PoolChanged { pool: POOL, spec: spec(1) });
    bench.wait(61);
    let noticed = bench.out.reports.iter().any(|report| matches!(report, FromShard::Noticed(_)));
    assert!(noticed, "still above after 60 s");
    assert_eq!(bench.done(1, Outcome::success(200)), Vec::<Vec<u32>>::new());
    assert_eq!(bench.done(2, Outcome::success(200)), Vec::<Vec<u32>>::new());
    assert_eq!(bench.done(3, Outcome::success(200)), [[4]]);
}

mod kept;
mod rate;
mod seen;
