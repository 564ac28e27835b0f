//! The window's rules, one by one.

use super::*;

const A: GroupKey = GroupKey(1);
const B: GroupKey = GroupKey(2);

fn window(rows: &[(u64, GroupKey, u64)]) -> Window {
    let mut window = Window::default();
    for &(seq, group, visible_at) in rows {
        window.add(Pick { seq, group }, visible_at, 0);
    }
    window
}

fn seqs(picks: &[Pick]) -> Vec<u64> {
    picks.iter().map(|pick| pick.seq).collect()
}

#[test]
fn a_group_with_a_message_out_gives_out_no_more() {
    let mut window = window(&[(1, A, 0), (2, A, 0), (3, B, 0)]);
    assert_eq!(seqs(&window.pick(1, 0)), [1]);
    assert_eq!(seqs(&window.pick(9, 0)), [3], "Q1: A is out");
    window.done(A, 0);
    assert_eq!(seqs(&window.pick(9, 0)), [2]);
}

#[test]
fn a_delayed_head_holds_its_group_and_no_other() {
    let mut window = window(&[(1, A, 50), (2, A, 0), (3, B, 0)]);
    assert_eq!(seqs(&window.pick(9, 10)), [3], "Q1");
    assert_eq!(window.next_at(), Some(50));
    window.wake(49);
    assert!(window.pick(9, 49).is_empty());
    window.wake(50);
    assert_eq!(seqs(&window.pick(9, 50)), [1, 2], "Q2");
}

#[test]
fn a_delayed_message_in_the_middle_ends_the_run() {
    let mut window = window(&[(1, A, 0), (2, A, 50), (3, A, 0)]);
    assert_eq!(seqs(&window.pick(9, 10)), [1], "Q1");
    window.done(A, 10);
    assert!(window.pick(9, 10).is_empty());
    window.wake(50);
    assert_eq!(seqs(&window.pick(9, 50)), [2, 3]);
}

#[test]
fn what_comes_back_takes_its_old_place() {
    let mut window = window(&[(1, A, 0), (2, A, 0), (3, A, 0)]);
    assert_eq!(seqs(&window.pick(2, 0)), [1, 2]);
    window.give_back(Pick { seq: 2, group: A }, 0, 0);
    assert!(window.pick(9, 0).is_empty(), "Q1: 1 is still out");
    window.give_back(Pick { seq: 1, group: A }, 0, 0);
    assert_eq!(seqs(&window.pick(9, 0)), [1, 2, 3], "Q2");
    assert_eq!(window.len(), 0);
}

#[test]
fn a_failed_head_comes_back_delayed_and_holds_its_followers() {
    let mut window = window(&[(1, A, 0), (2, A, 0)]);
    assert_eq!(seqs(&window.pick(2, 0)), [1, 2]);
    window.give_back(Pick { seq: 1, group: A }, 30, 0);
    window.give_back(Pick { seq: 2, group: A }, 0, 0);
    window.wake(29);
    assert!(window.pick(9, 29).is_empty(), "Q1");
    window.wake(30);
    assert_eq!(seqs(&window.pick(9, 30)), [1, 2]);
}

#[test]
fn a_group_that_is_out_elsewhere_waits_until_it_is_not() {
    let mut window = window(&[(1, A, 0), (2, B, 0)]);
    window.set_elsewhere(HashSet::from([A]), 0);
    assert_eq!(seqs(&window.pick(9, 0)), [2], "Q1");
    window.add(Pick { seq: 3, group: A }, 0, 0);
    assert!(!window.is_ready());
    window.set_elsewhere(HashSet::new(), 0);
    assert_eq!(seqs(&window.pick(9, 0)), [1, 3]);
}

#[test]
fn a_hot_group_leaves_room_for_others() {
    let mut window = Window::default();
    for seq in 0..1_000 {
        window.add(Pick { seq, group: A }, 0, 0);
    }
    window.add(Pick { seq: 1_000, group: B }, 0, 0);
    let picks = window.pick(100, 0);
    assert!(picks.iter().any(|pick| pick.group == B));
    assert_eq!(picks.len(), 100, "longer runs where there is nothing else");
    assert!(picks.iter().filter(|pick| pick.group == A).is_sorted_by_key(|pick| pick.seq), "Q2");
}

#[test]
fn a_message_that_is_added_twice_waits_once() {
    let mut window = window(&[(1, A, 0), (2, A, 0), (1, A, 0), (2, A, 0)]);
    assert_eq!(window.len(), 2);
    assert_eq!(seqs(&window.pick(9, 0)), [1, 2]);
}

#[test]
fn an_idle_group_costs_nothing() {
    let mut window = window(&[(1, A, 0)]);
    window.pick(1, 0);
    window.done(A, 0);
    assert!(window.lines.is_empty() && window.later.is_empty());
}
