//! The desk's rules, one by one. The simulator checks them together, under faults.

use std::num::NonZeroU16;

use super::*;
use crate::model::{DeadReason, Dispatch, Flags, NackReason, Parcel, Parts, Settlement, Ticket, Verdict};

const S: Duration = Duration::from_secs(1);

/// A desk with one source and one pool, driven by hand.
struct Bench {
    desk: Desk,
    out: DeskEffects,
    now: Moment,
    source: SourceId,
    next_receipt: u64,
}

fn strict() -> SourceSpec {
    SourceSpec {
        ordering: Ordering::Strict,
        lease: Some(S * 30),
        unheard_max: Duration::ZERO,
        attempts_max: 0,
        deliveries_max: None,
        repeats: false,
        judges: false,
        holds_permits: false,
        batch_max: 10,
    }
}

fn batch() -> SourceSpec {
    SourceSpec { ordering: Ordering::Batch, ..strict() }
}

impl Bench {
    fn new(spec: SourceSpec, concurrency: u16) -> Self {
        Self::tuned(spec, concurrency, DeskTuning::default())
    }

    fn tuned(spec: SourceSpec, concurrency: u16, tuning: DeskTuning) -> Self {
        let mut desk = Desk::new(tuning, 1);
        let source = desk.add_source(spec, false, Moment::ZERO);
        let mut out = DeskEffects::default();
        desk.set_pool(
            b"P",
            PoolSpec::new(NonZeroU16::new(concurrency).expect("not zero")),
            Moment::ZERO,
            &mut out,
        );
        out.runs.clear();
        Self { desk, out, now: Moment::ZERO, source, next_receipt: 0 }
    }

    /// Hands over messages `(broker id, group)`; the sender's id is the broker id.
    fn arrive(&mut self, messages: &[(u32, &str)]) {
        let arrivals: Vec<Arrival> =
            messages.iter().map(|&(id, group)| self.arrival(id, id, group)).collect();
        self.desk.on_batch(self.source, arrivals, self.now, &mut self.out);
    }

    fn arrival(&mut self, broker: u32, app: u32, group: &str) -> Arrival {
        self.next_receipt += 1;
        let app = app.to_string();
        let parts = Parts { id: &app, group, pool: "P", target: "http://t/x", ..Parts::default() };
        Arrival {
            parcel: Parcel::new(&parts).expect("valid"),
            broker_id: self.desk.hasher().broker_id(self.source, &broker.to_le_bytes()),
            receipt: Receipt { key: self.next_receipt, epoch: 0 },
            deliveries: 0,
            dispatch: Dispatch::BlockOnError,
            high_priority: false,
        }
    }

    /// What was sent to the shard since the last look.
    fn runs(&mut self) -> Vec<Envelope> {
        let runs = self.out.runs.drain(..).filter_map(|(_, run)| match run {
            ToShard::Run(envelope) => Some(envelope),
            ToShard::Control(_) | ToShard::Kept { .. } => None,
        });
        runs.collect()
    }

    fn settle(&mut self, envelope: Envelope, verdict: Verdict) {
        self.desk.on_settled(Settlement { envelope, verdict }, self.now, &mut self.out);
    }

    /// What the source was told since the last look: receipt and words.
    fn tells(&mut self) -> Vec<(u64, String)> {
        let tells = self.out.tells.drain(..).map(|(_, receipt, tell)| {
            let words = match tell {
                Tell::Ack { .. } => "ack".to_owned(),
                Tell::Nack { delay_s, reason } => format!("nack {delay_s} {reason:?}"),
                Tell::Extend { .. } => "extend".to_owned(),
                Tell::Answered { outcome } => format!("answered {}", outcome.status),
                Tell::DeadLetter { .. } => "dead".to_owned(),
            };
            (receipt.key, words)
        });
        tells.collect()
    }

    fn wait(&mut self, wait: Duration) {
        self.now = self.now + wait;
        self.desk.on_time(self.now, &mut self.out);
    }
}

fn ids(envelopes: &[Envelope]) -> Vec<String> {
    envelopes.iter().map(|envelope| String::from_utf8_lossy(envelope.parcel.id()).into_owned()).collect()
}

fn told(rows: &[(u64, &str)]) -> Vec<(u64, String)> {
    rows.iter().map(|&(receipt, words)| (receipt, words.to_owned())).collect()
}

const BACK: Verdict = Verdict::Nack { delay_s: 0, reason: NackReason::GivenBack };

#[test]
fn a_delivered_message_is_acked_once_and_forgotten_when_confirmed() {
    let mut bench = Bench::new(strict(), 1);
    bench.arrive(&[(1, "g")]);
    let envelope = bench.runs().remove(0);
    let ticket = envelope.ticket;
    bench.settle(envelope, Verdict::Ack);
    assert_eq!(bench.tells(), told(&[(1, "ack")]));
    assert_eq!(bench.desk.held(), 1, "until the source confirms");
    bench.desk.on_closed(ticket, true, bench.now, &mut bench.out);
    assert_eq!((bench.desk.held(), bench.desk.bytes()), (0, 0), "D5");
}

#[test]
fn a_redelivery_gives_its_receipt_and_nothing_is_sent() {
    let mut bench = Bench::new(strict(), 1);
    bench.arrive(&[(1, "g")]);
    bench.arrive(&[(1, "g")]);
    let mut runs = bench.runs();
    assert_eq!(runs.len(), 1, "D1");
    assert_eq!(bench.tells(), [], "a nack would make it visible while it runs");
    bench.settle(runs.remove(0), Verdict::Ack);
    assert_eq!(bench.tells(), told(&[(2, "ack")]), "with the newest receipt");
    bench.arrive(&[(1, "g")]);
    assert_eq!(bench.tells(), told(&[(3, "ack")]), "delivered already: acked again, not run");
    assert!(bench.runs().is_empty());
}

#[test]
fn a_lost_ack_leads_to_a_second_ack_and_not_to_a_second_call() {
    let mut bench = Bench::new(strict(), 1);
    bench.arrive(&[(1, "g")]);
    let envelope = bench.runs().remove(0);
    let ticket = envelope.ticket;
    bench.settle(envelope, Verdict::Ack);
    bench.desk.on_closed(ticket, false, bench.now, &mut bench.out);
    bench.tells();
    bench.arrive(&[(1, "g")]);
    assert_eq!(bench.tells(), told(&[(2, "ack")]));
    bench.wait(S * 61);
    bench.arrive(&[(1, "g")]);
    assert_eq!(bench.runs().len(), 1, "remembered for two leases, not for ever");
}

#[test]
fn a_redelivery_of_a_message_that_is_being_set_aside_is_not_acked() {
    let mut bench = Bench::new(strict(), 1);
    bench.arrive(&[(1, "g")]);
    let envelope = bench.runs().remove(0);
    let ticket = envelope.ticket;
    bench.settle(envelope, Verdict::DeadLetter { reason: DeadReason::Refused, status: 400 });
    assert_eq!(bench.tells(), told(&[(1, "dead")]));
    bench.arrive(&[(1, "g")]);
    assert_eq!(bench.tells(), [], "its dead letter may yet fail");
    bench.desk.on_dead_letter_failed(ticket, 30, bench.now, &mut bench.out);
    assert_eq!(bench.tells(), told(&[(2, "nack 30 Failed")]), "back, not dropped");
}

#[test]
fn a_twin_shares_the_fate_of_the_first() {
    for (verdict, want) in [(Verdict::Ack, "ack"), (BACK, "nack 0 Twin")] {
        let mut bench = Bench::new(strict(), 1);
        bench.arrive(&[(1, "g")]);
        let twin = bench.arrival(2, 1, "g");
        bench.desk.on_batch(bench.source, [twin], bench.now, &mut bench.out);
        let mut runs = bench.runs();
        assert_eq!(runs.len(), 1, "chained");
        assert_eq!(bench.tells(), []);
        bench.settle(runs.remove(0), verdict);
        assert!(bench.tells().contains(&(2, want.to_owned())), "{verdict:?}");
    }
}

#[test]
fn twins_in_one_batch_are_found() {
    let mut bench = Bench::new(strict(), 1);
    let pair = [bench.arrival(1, 7, "g"), bench.arrival(2, 7, "g")];
    bench.desk.on_batch(bench.source, pair, bench.now, &mut bench.out);
    assert_eq!(bench.runs().len(), 1, "D1");
    bench.arrive(&[(8, "h"), (8, "h")]);
    assert_eq!(bench.runs().len(), 1, "D1: the same message twice");
    assert_eq!(bench.desk.held(), 3, "the first, its twin, and one that came twice");
}

#[test]
fn leases_of_all_that_is_held_are_extended_at_a_third() {
    let mut bench = Bench::new(strict(), 1);
    bench.arrive(&[(1, "g"), (2, "g")]);
    bench.wait(S * 9);
    assert_eq!(bench.tells(), []);
    bench.wait(S);
    assert_eq!(bench.tells(), told(&[(1, "extend"), (2, "extend")]), "D2: buffered ones too");
    bench.wait(S * 10);
    assert_eq!(bench.tells().len(), 2, "and again");
    for envelope in bench.runs() {
        bench.settle(envelope, Verdict::Ack);
    }
    bench.tells();
    bench.wait(S * 30);
    assert_eq!(bench.tells(), [], "not after the ack");
}

#[test]
fn a_lease_that_cannot_be_kept_hands_the_message_back_and_stops_polling() {
    let mut bench = Bench::new(strict(), 1);
    bench.arrive(&[(1, "g")]);
    let ticket = bench.runs()[0].ticket;
    for _ in 0..2 {
        bench.wait(S * 10);
        bench.desk.on_extended(ticket, false, bench.now, &mut bench.out);
    }
    assert_eq!(bench.desk.room(bench.source, bench.now), 0);
    bench.out.runs.clear();
    bench.wait(S * 10);
    let asked = bench.out.runs.iter().any(
        |(_, run)| matches!(run, ToShard::Control(control) if matches!(**control, Control::GiveBack { .. })),
    );
    assert!(asked, "the shard is asked for it");
}

#[test]
fn given_back_strict_messages_hold_later_ones_of_their_group() {
    let mut bench = Bench::new(strict(), 1);
    bench.arrive(&[(1, "g"), (2, "g"), (9, "other")]);
    let mut runs = bench.runs();
    let (second, first) = (runs.remove(1), runs.remove(0));
    bench.settle(second, BACK);
    bench.settle(first, BACK);
    bench.tells();
    bench.arrive(&[(3, "g"), (2, "g")]);
    assert!(bench.runs().is_empty(), "O1: the first is still out");
    assert_eq!(bench.tells().len(), 2);
    bench.arrive(&[(1, "g"), (3, "g"), (2, "g"), (3, "g")]);
    assert_eq!(
        ids(&bench.runs()),
        ["1", "2", "3"],
        "O1: in the order of arrival, each once its turn has come"
    );
}

#[test]
fn an_owed_message_that_never_returns_is_given_up_with_a_warning() {
    let mut bench = Bench::new(strict(), 1);
    bench.arrive(&[(1, "g")]);
    let envelope = bench.runs().remove(0);
    bench.settle(envelope, BACK);
    bench.wait(S * 61);
    assert_eq!(bench.out.warnings, [Warning::OwedExpired { count: 1 }]);
    bench.arrive(&[(2, "g")]);
    assert_eq!(ids(&bench.runs()), ["2"]);
}

#[test]
fn after_an_unclean_stop_nothing_is_asked_for_until_old_leases_have_run_out() {
    let late = SourceSpec { unheard_max: S * 20, ..strict() };
    let rows = [(strict(), true, 32), (strict(), false, 0), (batch(), true, 0), (late, true, 52)];
    for (spec, unclean, quiet_s) in rows {
        let mut desk = Desk::new(DeskTuning::default(), 1);
        let source = desk.add_source(spec, unclean, Moment::ZERO);
        let before = if quiet_s == 0 { 10 } else { 0 };
        assert_eq!(
            desk.room(source, Moment::ZERO + S * quiet_s.max(1) - S / 100),
            before,
            "{spec:?} {unclean}"
        );
        assert_eq!(desk.room(source, Moment::ZERO + S * quiet_s), 10, "leases, delays and polls are over");
    }
}

#[test]
fn a_consumer_that_is_replaced_after_an_unclean_stop_does_not_wait_anew() {
    let mut desk = Desk::new(DeskTuning::default(), 1);
    let first = desk.add_source(strict(), true, Moment::ZERO);
    desk.retire_source(first);
    let second = desk.add_source(strict(), true, Moment::ZERO + S * 20);
    assert_eq!(desk.room(second, Moment::ZERO + S * 31), 0);
    assert_eq!(
        desk.room(second, Moment::ZERO + S * 32),
        10,
        "hidden since the stop, not since the second came"
    );
}

#[test]
fn what_was_never_heard_of_is_waited_for_and_a_stop_meanwhile_is_not_clean() {
    let at = |seconds| Moment::ZERO + S * seconds;
    let lease = strict().lease.expect("a lease");
    let over = 100 + u32::try_from(lease.as_secs()).expect("small");
    for (spec, waits) in [(strict(), true), (batch(), false)] {
        let mut desk = Desk::new(DeskTuning::default(), 1);
        let source = desk.add_source(spec, false, at(0));
        desk.on_unheard(source, at(100));
        desk.on_unheard(source, at(50));
        assert_eq!((desk.room(source, at(over - 1)) == 0, desk.is_clean(at(over - 1))), (waits, !waits));
        assert_eq!((desk.room(source, at(over)), desk.is_clean(at(over))), (10, true), "it is back");
        // A consumer learns its lease when it connects.
        desk.on_connected(source, 1, SourceSpec { lease: Some(lease * 2), ..spec });
        assert_eq!(desk.room(source, at(over)) == 0, waits);
    }
    // A source without leases waits by itself; but its broker may hold what it had when the next process starts.
    let mut desk = Desk::new(DeskTuning::default(), 1);
    let source = desk.add_source(SourceSpec { lease: None, ..strict() }, false, at(0));
    desk.on_unheard(source, at(100));
    assert_eq!(
        (desk.room(source, at(100)), desk.is_clean(at(159)), desk.is_clean(at(160))),
        (10, false, true)
    );
}

#[test]
fn a_receipt_of_another_epoch_is_never_used() {
    let mut bench = Bench::new(strict(), 1);
    bench.arrive(&[(1, "g")]);
    let envelope = bench.runs().remove(0);
    bench.desk.on_connected(bench.source, 1, strict());
    bench.settle(envelope, Verdict::Ack);
    assert_eq!(bench.tells(), [], "D4");
    let mut again = bench.arrival(1, 1, "g");
    again.receipt.epoch = 1;
    bench.desk.on_batch(bench.source, [again], bench.now, &mut bench.out);
    assert_eq!(bench.tells(), told(&[(2, "ack")]), "delivered before the cut: acked, not run");
}

#[test]
fn a_full_pool_gives_its_share_back_whole_and_is_not_polled() {
    let mut bench = Bench::new(batch(), 1);
    let many: Vec<(u32, String)> = (0..50).map(|n| (n, format!("g{n}"))).collect();
    let many: Vec<(u32, &str)> = many.iter().map(|(n, group)| (*n, group.as_str())).collect();
    bench.arrive(&many);
    assert_eq!(bench.runs().len(), 50);
    assert_eq!(bench.desk.room(bench.source, bench.now), 0, "enough waits");
    bench.arrive(&[(100, "a"), (101, "b")]);
    assert!(bench.runs().is_empty(), "N1");
    assert_eq!(bench.out.warnings, [Warning::QueueFull { code: "P".into(), count: 2 }]);
    bench.arrive(&[(102, "a")]);
    assert_eq!(bench.desk.room(bench.source, bench.now), 0, "full");
}

#[test]
fn a_pool_counts_the_groups_that_are_here() {
    let mut bench = Bench::new(batch(), 1);
    let groups = |bench: &Bench| {
        let pool = bench.desk.pools.find(b"P").and_then(|id| bench.desk.pools.get(id));
        pool.map_or(0, |pool| pool.groups)
    };
    bench.arrive(&[(1, "a"), (2, "a"), (3, "b")]);
    let mut runs = bench.runs();
    assert_eq!(groups(&bench), 2);
    bench.settle(runs.remove(0), Verdict::Ack);
    assert_eq!(groups(&bench), 2, "one of a is left");
    for envelope in runs {
        bench.settle(envelope, Verdict::Ack);
    }
    assert_eq!(groups(&bench), 0);
}

#[test]
fn a_group_may_not_fill_the_pool_and_what_follows_waits_with_it() {
    let tuning = DeskTuning { group_buffer_max: Some(2), ..DeskTuning::default() };
    let mut bench = Bench::tuned(batch(), 9, tuning);
    bench.arrive(&[(1, "g"), (2, "g"), (3, "g"), (4, "h")]);
    assert_eq!(ids(&bench.runs()), ["1", "2", "4"]);
    let mut bench = Bench::tuned(batch(), 9, DeskTuning { memory_budget: 1, ..DeskTuning::default() });
    bench.arrive(&[(1, "g"), (2, "g")]);
    assert_eq!(ids(&bench.runs()), ["1"], "one message always finds room");
    assert_eq!(bench.desk.room(bench.source, bench.now), 0);
}

#[test]
fn a_message_that_its_broker_would_drop_is_held_and_not_given_back() {
    let spec = SourceSpec { deliveries_max: Some(5), ..strict() };
    let mut bench = Bench::tuned(spec, 9, DeskTuning { group_buffer_max: Some(1), ..DeskTuning::default() });
    bench.arrive(&[(1, "g")]);
    let mut near = bench.arrival(2, 2, "g");
    near.deliveries = 3;
    bench.desk.on_batch(bench.source, [near], bench.now, &mut bench.out);
    let runs = bench.runs();
    assert_eq!(ids(&runs), ["1", "2"]);
    assert!(runs[1].flags.has(Flags::NEAR_LIMIT));
    assert_eq!(bench.out.warnings, [Warning::NearLimit { source: bench.source }]);
}

#[test]
fn a_nack_for_want_of_room_is_no_attempt() {
    let spec = SourceSpec { attempts_max: 5, ..strict() };
    let mut bench = Bench::tuned(spec, 9, DeskTuning { group_buffer_max: Some(1), ..DeskTuning::default() });
    bench.arrive(&[(1, "g"), (2, "g")]);
    let first = bench.runs().remove(0);
    bench.settle(first, Verdict::Ack);
    let mut again = bench.arrival(2, 2, "g");
    again.deliveries = 2;
    bench.desk.on_batch(bench.source, [again], bench.now, &mut bench.out);
    assert_eq!(bench.runs()[0].attempts, 0, "I8");
}

#[test]
fn the_last_of_each_group_in_a_batch_is_marked() {
    let mut bench = Bench::new(batch(), 9);
    bench.arrive(&[(1, "g"), (2, "h"), (3, "g")]);
    let last: Vec<bool> =
        bench.runs().iter().map(|envelope| envelope.flags.has(Flags::LAST_OF_BATCH)).collect();
    assert_eq!(last, [false, true, true]);
}

#[test]
fn an_unknown_pool_is_the_default_pool() {
    let mut bench = Bench::new(strict(), 9);
    let parts = Parts { id: "1", pool: "NONE", target: "http://t", ..Parts::default() };
    let mut arrival = bench.arrival(1, 1, "g");
    arrival.parcel = Parcel::new(&parts).expect("valid");
    bench.desk.on_batch(bench.source, [arrival], bench.now, &mut bench.out);
    assert_eq!(bench.out.warnings, [Warning::Routing { code: "NONE".into() }]);
    assert_eq!(bench.runs().len(), 1);
    assert!(bench.desk.pools().any(|(_, pool)| *pool.code == *DEFAULT_POOL.as_bytes()));
}

#[test]
fn a_pool_that_is_added_again_while_it_drains_starts_when_that_is_done() {
    let mut bench = Bench::new(strict(), 9);
    bench.arrive(&[(1, "g")]);
    let envelope = bench.runs().remove(0);
    let pool = envelope.lane.pool;
    bench.desk.remove_pool(b"P", bench.now, &mut bench.out);
    let spec = PoolSpec::new(NonZeroU16::new(3).expect("not zero"));
    assert!(bench.desk.set_pool(b"P", spec, bench.now, &mut bench.out));
    bench.arrive(&[(2, "g")]);
    assert!(bench.runs().is_empty(), "its group may still be running there");
    bench.settle(envelope, Verdict::Ack);
    bench.desk.on_pool_drained(pool, bench.now, &mut bench.out);
    bench.arrive(&[(3, "g"), (2, "g"), (3, "g")]);
    assert_eq!(ids(&bench.runs()), ["2", "3"], "O1: what went back while it drained is still waited for");
}

#[test]
fn a_receive_that_comes_in_while_draining_goes_straight_back() {
    let mut bench = Bench::new(strict(), 9);
    bench.desk.drain(bench.now, &mut bench.out);
    assert_eq!(bench.desk.room(bench.source, bench.now), 0);
    bench.arrive(&[(1, "g"), (2, "g")]);
    assert_eq!(bench.tells(), told(&[(1, "nack 0 GivenBack"), (2, "nack 0 GivenBack")]));
}

#[test]
fn what_is_left_at_the_end_goes_back_oldest_first() {
    let mut bench = Bench::new(strict(), 9);
    bench.arrive(&[(1, "g"), (2, "g")]);
    bench.desk.give_back_rest(&mut bench.out);
    assert_eq!(bench.tells(), told(&[(1, "nack 0 GivenBack"), (2, "nack 0 GivenBack")]));
}

mod sources;
