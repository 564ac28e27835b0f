//! The rules of claims, one by one.

use super::*;

const LEASE: Duration = Duration::from_secs(30);
const ME: Consumer = Consumer(1);

fn pick(seq: u64) -> Pick {
    Pick { seq, group: GroupKey(seq % 3) }
}

fn at(seconds: u64) -> Moment {
    Moment::from_nanos(seconds * 1_000_000_000)
}

#[test]
fn a_list_reads_back_and_a_torn_one_is_refused() {
    let rows: [&[u64]; 4] = [&[], &[1], &[5, 127, 128, 300_000, u64::MAX >> 1], &[7, 8, 9]];
    for row in rows {
        let picks: Vec<Pick> = row.iter().map(|seq| pick(*seq)).collect();
        let bytes = encode(&picks);
        assert_eq!(decode(&bytes), Some(picks), "{row:?}");
        assert!(bytes.is_empty() || decode(&bytes[..bytes.len() - 1]).is_none(), "{row:?}");
    }
}

#[test]
fn a_receipt_counts_only_for_the_consumer_that_has_the_message() {
    let mut claims = Claims::default();
    claims.open(ClaimId(1), ME, vec![pick(5), pick(4)], LEASE, at(0));
    assert_eq!(claims.take(4, Consumer(2), false), None);
    assert_eq!(claims.take(4, ME, false), Some((ClaimId(1), GroupKey(1))));
    assert_eq!(claims.take(4, ME, false), None, "only once");
    assert_eq!(claims.change(ClaimId(1), false), Some(Change::Write(vec![pick(5)])));
    claims.take(5, ME, false);
    assert_eq!(claims.change(ClaimId(1), false), Some(Change::Delete));
    assert_eq!((claims.out(), claims.ids().len()), (0, 0));
}

#[test]
fn an_overdue_claim_ends_on_the_second_look_and_one_that_is_extended_in_between_does_not() {
    let mut claims = Claims::default();
    claims.open(ClaimId(1), ME, vec![pick(1)], LEASE, at(0));
    claims.open(ClaimId(2), ME, vec![pick(2)], LEASE, at(0));
    claims.open(ClaimId(3), NOBODY, vec![pick(3)], Duration::ZERO, at(2));
    assert_eq!(claims.due(at(29)), [ClaimId(3)], "nobody's ends at once");
    claims.close(ClaimId(3));
    assert_eq!(claims.due(at(500)), [], "the process stood still for long");
    assert_eq!(claims.next_due(), Some(at(501)));
    claims.extend(ClaimId(2), at(500));
    assert_eq!(claims.due(at(501)), [ClaimId(1)]);
    assert_eq!(claims.due(at(531)), [ClaimId(1)], "the first look at the other");
    assert_eq!(claims.due(at(532)), [ClaimId(1), ClaimId(2)]);
}

#[test]
fn a_row_is_written_again_when_it_is_worth_it_or_must_be() {
    let rows = [
        // acked, nacked, others look, written
        (1, 0, false, false),
        (2, 0, false, true),
        (1, 0, true, true),
        (0, 1, false, true),
    ];
    for (acked, nacked, others, want) in rows {
        let mut claims = Claims::default();
        claims.open(ClaimId(1), ME, (1..=8).map(pick).collect(), LEASE, at(0));
        for seq in 1..=acked + nacked {
            claims.take(seq, ME, seq > acked);
        }
        let change = claims.change(ClaimId(1), others);
        assert_eq!(change.is_some(), want, "{acked} {nacked} {others}: {change:?}");
    }
}

#[test]
fn a_beat_that_stands_still_for_a_lease_ends_a_claim_and_one_that_moves_does_not() {
    let row = |beat| {
        let out = vec![pick(1)];
        (ClaimId(1), Foreign { owner: 9, host: "h".into(), lease: LEASE, beat, out })
    };
    let mut elsewhere = Elsewhere::default();
    elsewhere.update(vec![row(0)], at(0));
    elsewhere.update(vec![row(0)], at(20));
    assert_eq!(elsewhere.due(at(29)), []);
    assert_eq!(elsewhere.due(at(30)), [ClaimId(1)]);
    elsewhere.update(vec![row(1)], at(29));
    assert_eq!(elsewhere.due(at(58)), []);
    assert_eq!(elsewhere.close(ClaimId(1)), [pick(1)]);
    assert!(elsewhere.is_empty());
}
