//! Consumers of one queue that come and go, and the end of the process.

use super::*;
use crate::model::{Fault, Flags, Mediation};

/// Whom each tell went to, and what it was.
fn told_to(bench: &mut Bench) -> Vec<(u16, u64)> {
    bench.out.tells.drain(..).map(|(source, receipt, _)| (source.0, receipt.key)).collect()
}

#[test]
fn a_message_that_the_new_consumer_brings_again_is_told_to_the_new_one() {
    let mut bench = Bench::new(strict(), 5);
    bench.arrive(&[(1, "g"), (2, "h")]);
    let mut envelopes = bench.runs();
    let second = bench.desk.add_source(strict(), false, bench.now);
    bench.desk.retire_source(bench.source);
    assert_eq!(bench.desk.room(bench.source, bench.now), 0, "a retired consumer is asked for nothing");
    assert!(bench.desk.room(second, bench.now) > 0);
    let again = bench.arrival(1, 1, "g");
    bench.desk.on_batch(second, [again], bench.now, &mut bench.out);
    assert_eq!(bench.runs().len(), 0, "D1: it is held already");
    assert_eq!((bench.desk.tracker().held_by(bench.source), bench.desk.tracker().held_by(second)), (1, 1));
    bench.wait(Duration::from_secs(11));
    assert_eq!(told_to(&mut bench), [(0, 2), (1, 3)], "D2: each lease is extended at its own consumer");
    bench.settle(envelopes.remove(0), Verdict::Ack);
    bench.settle(envelopes.remove(0), Verdict::Ack);
    assert_eq!(told_to(&mut bench), [(1, 3), (0, 2)]);
}

#[test]
fn what_comes_again_after_all_went_back_goes_back_too() {
    let mut bench = Bench::new(strict(), 5);
    bench.arrive(&[(1, "g")]);
    let _running = bench.runs();
    bench.desk.drain(bench.now, &mut bench.out);
    bench.desk.give_back_rest(&mut bench.out);
    assert_eq!(bench.tells(), told(&[(1, "nack 0 GivenBack")]));
    // A receive that was under way brings it again: nobody would settle it.
    bench.arrive(&[(1, "g")]);
    assert_eq!(bench.tells(), told(&[(2, "nack 0 GivenBack")]));
}

#[test]
fn the_deepest_and_the_oldest_are_found() {
    let mut bench = Bench::new(strict(), 5);
    bench.arrive(&[(1, "a"), (2, "b"), (3, "b"), (4, "c"), (5, "c"), (6, "c")]);
    let depths: Vec<u32> = bench.desk.deepest(2).into_iter().map(|(_, depth)| depth).collect();
    assert_eq!(depths, [3, 2]);
    let oldest: Vec<u64> =
        bench.desk.oldest(3).into_iter().map(|slot| bench.desk.tracker().at(slot).receipt.key).collect();
    assert_eq!(oldest, [1, 2, 3]);
    let slot = bench.desk.find(b"4").expect("held");
    assert_eq!(bench.desk.tracker().at(slot).receipt.key, 4);
    assert_eq!(bench.desk.lanes_of(b"c").len(), 1);
    assert_eq!(bench.desk.lanes_of(b"nobody"), []);
}

#[test]
fn behind_a_held_message_that_comes_again_nothing_of_its_batch_runs() {
    let mut bench = Bench::new(batch(), 5);
    bench.arrive(&[(1, "g")]);
    assert_eq!(ids(&bench.runs()), ["1"]);
    // Its lease ran out: the queue hands the group out again, with a newer message behind.
    bench.arrive(&[(1, "g"), (2, "g"), (3, "h")]);
    assert_eq!(ids(&bench.runs()), ["3"], "were 1 to fail now, 2 would have overtaken it");
    assert_eq!(bench.tells(), told(&[(3, "nack 0 NoRoom")]));
}

#[test]
fn where_the_source_judges_it_is_told_the_answer_and_the_message_is_gone() {
    let mut bench = Bench::new(SourceSpec { judges: true, ordering: Ordering::None, ..strict() }, 1);
    bench.arrive(&[(1, "g")]);
    let envelope = bench.runs().remove(0);
    assert!(envelope.flags.has(Flags::JUDGED_BY_SOURCE), "the shard knows too");
    let (result, fault, status) = (Mediation::ErrorProcess, Fault::Http, 503);
    bench.settle(envelope, Verdict::Answered { result, fault, status });
    assert_eq!(bench.tells(), told(&[(1, "answered 503")]));
    assert_eq!(bench.desk.held(), 0);
}

#[test]
fn on_a_bus_the_same_id_in_two_queues_is_two_messages() {
    let bus = SourceSpec { judges: true, ordering: Ordering::None, ..strict() };
    let mut bench = Bench::new(bus, 5);
    let second = bench.desk.add_source(bus, false, bench.now);
    let plain = bench.desk.add_source(strict(), false, bench.now);
    // Broker's id, sender's id: one message that two services hear, another with that id, and a router's message.
    let copies: Vec<_> = (1..=4).map(|broker| bench.arrival(broker, 7, "")).collect();
    let sources = [bench.source, second, bench.source, plain];
    for (source, copy) in sources.into_iter().zip(copies) {
        bench.desk.on_batch(source, [copy], bench.now, &mut bench.out);
    }
    assert_eq!(ids(&bench.runs()), ["7", "7", "7", "7"], "each of them must be delivered");
    assert_eq!(bench.tells(), []);
    let slot = bench.desk.find(b"7").expect("held");
    assert_eq!(bench.desk.tracker().at(slot).source, plain, "where ids count everywhere");
    // In one batch.
    let pair = [bench.arrival(5, 8, ""), bench.arrival(6, 8, "")];
    bench.desk.on_batch(second, pair, bench.now, &mut bench.out);
    assert_eq!(ids(&bench.runs()), ["8", "8"]);
    let slot = bench.desk.find(b"8").expect("a bus message is found by its id, too");
    assert_eq!(bench.desk.tracker().at(slot).source, second);
}

#[test]
fn a_permit_is_free_when_the_ack_is_answered_whatever_the_answer() {
    let mut bench = Bench::new(SourceSpec { holds_permits: true, ..strict() }, 5);
    bench.arrive(&[(1, "a"), (2, "b"), (3, "c")]);
    let tickets: Vec<Ticket> = bench
        .runs()
        .into_iter()
        .map(|envelope| {
            assert!(envelope.flags.has(Flags::HOLDS_PERMIT));
            let ticket = envelope.ticket;
            bench.settle(envelope, Verdict::Ack);
            ticket
        })
        .collect();
    assert_eq!(bench.out.runs.len(), 0, "acked, but not kept");
    bench.desk.on_closed(tickets[0], true, bench.now, &mut bench.out);
    bench.desk.on_closed(tickets[1], false, bench.now, &mut bench.out);
    let [(_, ToShard::Kept { count: 2, .. })] = bench.out.runs[..] else { panic!("{:?}", bench.out.runs) };
    bench.out.runs.clear();
    bench.desk.on_closed(tickets[2], false, bench.now, &mut bench.out);
    bench.desk.on_closed(tickets[2], false, bench.now, &mut bench.out);
    let [(_, ToShard::Kept { count: 1, .. })] = bench.out.runs[..] else {
        panic!("once: {:?}", bench.out.runs)
    };
}

#[test]
fn what_is_delivered_after_its_connection_was_lost_holds_no_permit() {
    let mut bench = Bench::new(SourceSpec { holds_permits: true, ..strict() }, 5);
    bench.arrive(&[(1, "a")]);
    let envelope = bench.runs().remove(0);
    bench.desk.on_connected(bench.source, 1, SourceSpec { holds_permits: true, ..strict() });
    bench.settle(envelope, Verdict::Ack);
    assert_eq!(bench.tells(), told(&[]), "the receipt is of no use");
    assert!(matches!(bench.out.runs[..], [(_, ToShard::Kept { count: 1, .. })]), "{:?}", bench.out.runs);
}
