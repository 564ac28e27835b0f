//! The SQLite queue: order, leases, delays, several consumers, crashes.

use std::num::NonZeroUsize;
use std::time::Duration;

use corelane::broker::sqlite::{Consume, Durability, NewMessage, Placed, PutBack, SqliteQueue, SqliteWriter};
use corelane::ingress::{Answer, Scope, Source};
use shards::desk::{Receipt, Tell};
use shards::model::{IdHasher, NackReason, SourceId, Ticket};

use crate::support::temp::TempFile;
use crate::support::wait::until;

const LONG: Duration = Duration::from_secs(20);

/// A consumer, driven by hand.
struct Hand {
    queue: SqliteQueue,
    runtime: tokio::runtime::Runtime,
}

/// A message that was received: number, id, group, deliveries.
type Got = (u64, String, String, u16);

impl Hand {
    fn new(writer: &SqliteWriter, lease: Duration) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { queue: writer.consume(Consume { lease, ..Consume::default() }), runtime }
    }

    fn receive(&self, max: usize) -> Vec<Got> {
        let scope = Scope::new(IdHasher::new((1, 2)), SourceId(0));
        let max = NonZeroUsize::new(max).expect("some");
        let batch = self.runtime.block_on(self.queue.receive(scope, max)).expect("the file can be read");
        assert!(batch.unreadable.is_empty(), "{:?}", batch.unreadable);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let got = |arrival: &shards::desk::Arrival| {
            let parcel = &arrival.parcel;
            (arrival.receipt.key, text(parcel.id()), text(parcel.group()), arrival.deliveries)
        };
        batch.arrivals.iter().map(got).collect()
    }

    fn ids(&self, max: usize) -> Vec<String> {
        self.receive(max).into_iter().map(|(_, id, ..)| id).collect()
    }

    fn tell(&self, key: u64, tell: Tell) -> Vec<Answer> {
        self.runtime.block_on(self.queue.settle(vec![(Receipt { key, epoch: 0 }, tell)]))
    }

    fn ack(&self, key: u64) -> bool {
        match self.tell(key, Tell::Ack { ticket: Some(TICKET) })[..] {
            [Answer::Closed { done, .. }] => done,
            ref other => panic!("{other:?}"),
        }
    }

    fn extend(&self, key: u64) -> bool {
        match self.tell(key, Tell::Extend { ticket: TICKET })[..] {
            [Answer::Extended { done, .. }] => done,
            ref other => panic!("{other:?}"),
        }
    }

    fn nack(&self, key: u64, delay_s: u32, reason: NackReason) {
        assert!(self.tell(key, Tell::Nack { delay_s, reason }).is_empty());
    }
}

const TICKET: Ticket = Ticket { slot: 0, tenant: 0 };

fn message(id: &str, group: &str) -> NewMessage {
    let body = format!(r#"{{"id":"{id}","mediationTarget":"http://127.0.0.1:1/x"}}"#);
    NewMessage { body: body.into_bytes(), group: Some(group.to_owned()), ..NewMessage::default() }
}

fn open(file: &TempFile) -> SqliteWriter {
    SqliteWriter::open(&file.path, Durability::Full).expect("the file can be opened")
}

fn publish(writer: &SqliteWriter, messages: &[(&str, &str)]) -> Vec<u64> {
    let messages = messages.iter().map(|(id, group)| message(id, group)).collect();
    writer.publish_blocking(messages).expect("published")
}

#[test]
fn a_group_comes_in_order_and_waits_for_what_is_out() {
    let file = TempFile::new("fifo");
    let writer = open(&file);
    publish(&writer, &[("a1", "a"), ("b1", "b"), ("a2", "a"), ("a3", "a")]);
    let hand = Hand::new(&writer, LONG);
    let first = hand.receive(2);
    assert_eq!(first.iter().map(|got| got.1.as_str()).collect::<Vec<_>>(), ["a1", "a2"]);
    assert_eq!(hand.ids(9), ["b1"], "a is out");
    assert!(hand.ack(first[0].0));
    assert!(hand.ids(9).is_empty(), "a2 is still out");
    assert!(hand.ack(first[1].0));
    assert_eq!(hand.ids(9), ["a3"]);
    assert!(hand.ack(first[1].0), "a repeated ack is harmless");
}

#[test]
fn a_failed_head_holds_its_group_until_its_delay_is_over() {
    let file = TempFile::new("nack");
    let writer = open(&file);
    publish(&writer, &[("a1", "a"), ("a2", "a"), ("b1", "b")]);
    let hand = Hand::new(&writer, LONG);
    let got = hand.receive(2);
    hand.nack(got[0].0, 3, NackReason::Failed);
    hand.nack(got[1].0, 0, NackReason::Cascade);
    let start = std::time::Instant::now();
    assert_eq!(hand.ids(9), ["b1"]);
    let mut back = Vec::new();
    until(
        LONG,
        "the delay ends",
        || {
            back = hand.receive(9);
            !back.is_empty()
        },
        || (),
    );
    assert!(start.elapsed() >= Duration::from_millis(2_900), "{:?}", start.elapsed());
    let seen: Vec<(&str, u16)> = back.iter().map(|got| (got.1.as_str(), got.3)).collect();
    assert_eq!(seen, [("a1", 2), ("a2", 1)], "only a try counts as a delivery");
}

#[test]
fn a_delayed_message_holds_back_later_ones_of_its_group() {
    let file = TempFile::new("delay");
    let writer = open(&file);
    let late = NewMessage { delay: Duration::from_secs(3), ..message("a1", "a") };
    writer.publish_blocking(vec![late, message("a2", "a"), message("b1", "b")]).expect("published");
    let hand = Hand::new(&writer, LONG);
    assert_eq!(hand.ids(9), ["b1"]);
    let mut got = Vec::new();
    until(
        LONG,
        "the delay ends",
        || {
            got = hand.ids(9);
            !got.is_empty()
        },
        || (),
    );
    assert_eq!(got, ["a1", "a2"]);
}

#[test]
fn messages_without_a_group_come_one_after_the_other_and_the_bodys_group_counts() {
    let file = TempFile::new("ungrouped");
    let writer = open(&file);
    let plain = |id: &str| NewMessage { group: None, ..message(id, "") };
    let inner = NewMessage {
        body: br#"{"id":"in","mediationTarget":"http://h/","messageGroupId":"inner"}"#.to_vec(),
        ..NewMessage::default()
    };
    writer.publish_blocking(vec![plain("1"), plain("2"), inner]).expect("published");
    let hand = Hand::new(&writer, LONG);
    assert_eq!(hand.ids(1), ["1"]);
    let got = hand.receive(9);
    assert_eq!((got.len(), got[0].1.as_str(), got[0].2.as_str()), (1, "in", "inner"));
}

#[test]
fn a_lease_that_ends_brings_the_message_back_and_voids_its_receipt() {
    let file = TempFile::new("lease");
    let writer = open(&file);
    publish(&writer, &[("a1", "a"), ("a2", "a")]);
    let (slow, other) = (Hand::new(&writer, Duration::from_millis(300)), Hand::new(&writer, LONG));
    let got = slow.receive(1);
    assert!(slow.extend(got[0].0), "it is still ours");
    let mut again = Vec::new();
    until(
        LONG,
        "the lease ends",
        || {
            again = other.receive(9);
            !again.is_empty()
        },
        || (),
    );
    assert_eq!((again[0].1.as_str(), again[0].3), ("a1", 2));
    assert!(!slow.ack(got[0].0), "it is someone else's now");
    assert!(!slow.extend(got[0].0));
    slow.nack(got[0].0, 0, NackReason::Failed);
    assert!(slow.ids(9).is_empty(), "a stale nack frees nothing");
    assert!(other.ack(again[0].0));
    assert!(slow.ack(got[0].0), "gone is gone");
}

#[test]
fn an_extended_lease_does_not_end() {
    let file = TempFile::new("extend");
    let writer = open(&file);
    publish(&writer, &[("a1", "a"), ("b1", "b")]);
    let (hand, other) = (Hand::new(&writer, Duration::from_millis(800)), Hand::new(&writer, LONG));
    let got = hand.receive(2);
    let start = std::time::Instant::now();
    while start.elapsed() < Duration::from_millis(1_600) {
        assert!(hand.extend(got[0].0), "after {:?}", start.elapsed());
        assert!(other.ids(9).is_empty(), "both are of one claim: {:?}", start.elapsed());
    }
}

#[test]
fn a_dropped_consumer_gives_back_what_it_has() {
    let file = TempFile::new("drop");
    let writer = open(&file);
    publish(&writer, &[("a1", "a"), ("a2", "a")]);
    let hand = Hand::new(&writer, LONG);
    assert_eq!(hand.ids(9), ["a1", "a2"]);
    assert_eq!(writer.depth_blocking().expect("readable"), 0);
    drop(hand);
    assert_eq!(Hand::new(&writer, LONG).ids(9), ["a1", "a2"]);
}

#[test]
fn what_was_published_survives_closing_and_what_was_out_is_back() {
    let file = TempFile::new("reopen");
    let writer = open(&file);
    publish(&writer, &[("a1", "a"), ("a2", "a"), ("b1", "b")]);
    let hand = Hand::new(&writer, LONG);
    let got = hand.receive(1);
    assert!(hand.ack(got[0].0));
    assert_eq!(hand.ids(1), ["b1"]);
    drop((hand, writer));
    let writer = open(&file);
    assert_eq!(writer.depth_blocking().expect("readable"), 2);
    assert_eq!(Hand::new(&writer, LONG).ids(9), ["a2", "b1"]);
}

#[test]
fn a_repeated_dedup_id_is_accepted_and_dropped() {
    let file = TempFile::new("dedup");
    let writer = open(&file);
    let with = |id: &str| NewMessage { dedup: Some("d".into()), ..message(id, "g") };
    let seqs = writer.publish_blocking(vec![with("1"), with("2"), message("3", "g")]).expect("published");
    assert_eq!(seqs[0], seqs[1]);
    let hand = Hand::new(&writer, LONG);
    let got = hand.receive(9);
    assert_eq!(got.iter().map(|got| got.1.as_str()).collect::<Vec<_>>(), ["1", "3"]);
    for got in &got {
        assert!(hand.ack(got.0));
    }
    let again = writer.publish_blocking(vec![with("4")]).expect("published");
    assert_eq!(again[0], seqs[0], "also after the first is gone");
    assert_eq!(writer.depth_blocking().expect("readable"), 0);
}

#[test]
fn what_cannot_be_read_is_handed_over_as_such() {
    let file = TempFile::new("unreadable");
    let writer = open(&file);
    let bad = NewMessage { body: b"{nonsense".to_vec(), group: Some("g".into()), ..NewMessage::default() };
    writer.publish_blocking(vec![bad, message("2", "g")]).expect("published");
    let hand = Hand::new(&writer, LONG);
    let scope = Scope::new(IdHasher::new((1, 2)), SourceId(0));
    let batch = hand.runtime.block_on(hand.queue.receive(scope, NonZeroUsize::MIN)).expect("readable");
    assert!(batch.arrivals.is_empty());
    let [bad] = &batch.unreadable[..] else { panic!("{batch:?}") };
    assert_eq!((bad.group.as_str(), bad.body.as_slice()), ("g", b"{nonsense".as_slice()));
    assert!(bad.detail.contains("not a message"), "{}", bad.detail);
    assert!(hand.tell(bad.receipt.key, Tell::Ack { ticket: None }).is_empty());
    assert_eq!(hand.ids(9), ["2"]);
}

#[test]
fn what_is_put_back_goes_before_newer_messages_and_only_once() {
    let file = TempFile::new("put-back");
    let writer = open(&file);
    let seqs = publish(&writer, &[("a1", "a"), ("a2", "a"), ("a3", "a"), ("a4", "a")]);
    let hand = Hand::new(&writer, LONG);
    for _ in 0..2 {
        let got = hand.receive(1);
        assert!(hand.ack(got[0].0));
    }
    let letter = |at: usize, token: &str| {
        let NewMessage { body, .. } = message(["a1", "a2"][at], "a");
        PutBack { seq: seqs[at], group: "a".into(), body, token: token.into() }
    };
    let placed = writer.put_back_blocking(vec![letter(1, "t2"), letter(0, "t1")]).expect("put back");
    assert_eq!(placed, [Placed::New, Placed::New]);
    let got = hand.receive(9);
    assert_eq!(got.iter().map(|got| got.1.as_str()).collect::<Vec<_>>(), ["a1", "a2", "a3", "a4"]);
    assert!(hand.ack(got[0].0));
    let again = writer.put_back_blocking(vec![letter(0, "t1")]).expect("taken");
    assert_eq!(again, [Placed::Known], "an interrupted retry that goes on delivers nothing twice");
    for got in &got[1..] {
        assert!(hand.ack(got.0));
    }
    assert!(hand.ids(9).is_empty());
}

fn put_back(writer: &SqliteWriter, id: &str, seq: u64, token: &str) -> Placed {
    let NewMessage { body, .. } = message(id, "a");
    let letter = PutBack { seq, group: "a".into(), body, token: token.into() };
    writer.put_back_blocking(vec![letter]).expect("the file can be written")[0]
}

#[test]
fn what_is_put_back_before_its_ack_is_through_is_not_said_to_be_in() {
    let file = TempFile::new("unacked");
    let writer = open(&file);
    let seqs = publish(&writer, &[("a1", "a")]);
    let hand = Hand::new(&writer, LONG);
    assert_eq!(hand.ids(9), ["a1"]);
    assert_eq!(put_back(&writer, "a1", seqs[0], "t"), Placed::Unacked);
    assert!(hand.ack(seqs[0]), "the ack that follows a setting aside");
    assert_eq!(put_back(&writer, "a1", seqs[0], "t"), Placed::New, "its token was not used up");
    assert_eq!(hand.ids(9), ["a1"]);
}

#[test]
fn what_is_put_back_where_another_message_is_goes_to_the_end() {
    let file = TempFile::new("occupied");
    let writer = open(&file);
    let seqs = publish(&writer, &[("a1", "a"), ("a2", "a")]);
    assert_eq!(put_back(&writer, "of another file", seqs[0], "t"), Placed::New);
    assert_eq!(Hand::new(&writer, LONG).ids(9), ["a1", "a2", "of another file"]);
}

#[test]
fn a_message_that_is_put_back_or_of_another_file_is_not_taken_for_the_one_before_it() {
    let broker_id = |hand: &Hand| {
        let scope = Scope::new(IdHasher::new((1, 2)), SourceId(0));
        let batch = hand.runtime.block_on(hand.queue.receive(scope, NonZeroUsize::MIN)).expect("readable");
        assert_eq!(batch.arrivals[0].receipt.key, 1, "each has the same place");
        batch.arrivals[0].broker_id
    };
    let (file, other) = (TempFile::new("identity"), TempFile::new("identity"));
    let (writer, elsewhere) = (open(&file), open(&other));
    publish(&writer, &[("a1", "a")]);
    publish(&elsewhere, &[("a1", "a")]);
    let hand = Hand::new(&writer, LONG);
    let first = broker_id(&hand);
    hand.nack(1, 0, NackReason::Failed);
    assert_eq!(broker_id(&hand), first, "a redelivery is the same message");
    assert!(hand.ack(1));
    put_back(&writer, "a1", 1, "t");
    let second = broker_id(&hand);
    assert!(hand.ack(1));
    put_back(&writer, "a1", 1, "u");
    let ids = [first, second, broker_id(&hand), broker_id(&Hand::new(&elsewhere, LONG))];
    let distinct = ids.iter().enumerate().all(|(at, id)| !ids[..at].contains(id));
    assert!(distinct, "{ids:?}");
}

#[test]
fn two_keepers_on_one_file_share_the_groups_and_see_each_others_messages() {
    let file = TempFile::new("two");
    let (one, two) = (open(&file), SqliteWriter::open_apart(&file.path, Durability::Full).expect("opened"));
    let (left, right) = (Hand::new(&one, LONG), Hand::new(&two, LONG));
    publish(&one, &[("a1", "a"), ("a2", "a"), ("b1", "b")]);
    let got = left.receive(1);
    assert_eq!(got[0].1, "a1");
    assert_eq!(right.ids(9), ["b1"], "a is out at the other");
    assert!(left.ack(got[0].0));
    publish(&two, &[("a3", "a")]);
    let got = right.receive(9);
    assert_eq!(got.iter().map(|got| got.1.as_str()).collect::<Vec<_>>(), ["a2", "a3"]);
    assert!(left.ids(9).is_empty());
    right.nack(got[0].0, 0, NackReason::GivenBack);
    assert!(left.ids(9).is_empty(), "a3 is still out at the other");
    right.nack(got[1].0, 0, NackReason::GivenBack);
    assert_eq!(left.ids(9), ["a2", "a3"]);
}

#[test]
fn a_delay_that_another_keeper_gave_is_kept_although_it_was_never_seen_being_out() {
    let file = TempFile::new("unseen");
    let (one, two) = (open(&file), SqliteWriter::open_apart(&file.path, Durability::Full).expect("opened"));
    let (left, right) = (Hand::new(&one, LONG), Hand::new(&two, LONG));
    publish(&two, &[("a1", "a"), ("a2", "a")]);
    let got = left.receive(9);
    left.nack(got[0].0, 2, NackReason::Failed);
    left.nack(got[1].0, 0, NackReason::Cascade);
    assert!(right.ids(9).is_empty(), "its memory knows nothing of the delay; the row does");
    assert!(left.ids(9).is_empty());
    until(LONG, "the delay ends", || right.ids(9) == ["a1", "a2"], || ());
}
