//! Tables, and random topologies.

use std::num::NonZeroU16;

use proptest::prelude::*;
use shards::model::PoolSpec;

use super::*;
use crate::topology::draft::QueueDraft;

fn pool(code: &str, concurrency: u16) -> PoolEntry {
    let concurrency = NonZeroU16::new(concurrency).expect("tests write no zero");
    PoolEntry { code: code.to_owned(), spec: PoolSpec::new(concurrency) }
}

fn queue(name: &str, file: &str, connections: i64) -> QueueEntry {
    let draft = QueueDraft {
        name: Some(name.to_owned()),
        uri: Some(format!("sqlite:{file}")),
        connections: Some(connections),
        ..QueueDraft::default()
    };
    draft.check().expect("tests write good queues")
}

fn topology(pools: &[(&str, u16)], queues: &[(&str, &str, i64)]) -> Topology {
    Topology {
        pools: pools.iter().map(|(code, concurrency)| pool(code, *concurrency)).collect(),
        queues: queues.iter().map(|(name, file, connections)| queue(name, file, *connections)).collect(),
    }
}

/// New topology, lines, why.
type Row<'a> = (Topology, &'a [&'a str], &'a str);

#[test]
fn each_difference_is_the_change_it_asks_for() {
    let old = topology(&[("A", 1), ("B", 1)], &[("q", "q.db", 1), ("r", "r.db", 1)]);
    let rows: [Row<'_>; 7] = [
        (old.clone(), &[], "the same"),
        (topology(&[("B", 1), ("A", 1)], &[("r", "r.db", 1), ("q", "q.db", 1)]), &[], "another order"),
        (
            topology(&[("A", 2), ("B", 1)], &[("q", "q.db", 1), ("r", "r.db", 1)]),
            &["set pool A: concurrency 2"],
            "changed",
        ),
        (
            topology(&[("A", 1), ("B", 1), ("C", 3)], &[("q", "q.db", 1), ("r", "r.db", 1)]),
            &["set pool C: concurrency 3"],
            "new",
        ),
        (topology(&[("A", 1)], &[("q", "q.db", 1), ("r", "r.db", 1)]), &["remove pool B"], "gone"),
        (
            topology(&[("A", 1), ("B", 1)], &[("q", "x.db", 1), ("r", "r.db", 2)]),
            &["rebuild queue q: sqlite sqlite:x.db", "rebuild queue r: sqlite sqlite:r.db, connections 2"],
            "elsewhere",
        ),
        (
            topology(&[("A", 1), ("B", 1)], &[("q", "q.db", 1), ("s", "r.db", 1)]),
            &["add queue s: sqlite sqlite:r.db", "remove queue r"],
            "renamed",
        ),
    ];
    for (new, want, why) in rows {
        let changes = diff(&old, &new);
        assert_eq!(changes.lines(), want, "{why}");
        assert_eq!(changes.is_empty(), want.is_empty(), "{why}");
    }
}

#[test]
fn y4_removing_more_than_thirty_percent_is_refused() {
    let codes: Vec<String> = (0..10).map(|n| format!("P{n}")).collect();
    let of = |pools: usize, queues: usize| Topology {
        pools: codes[..pools].iter().map(|code| pool(code, 1)).collect(),
        queues: codes[..queues].iter().map(|name| queue(name, "f", 1)).collect(),
    };
    let rows = [
        (of(10, 10), of(7, 7), None, "30 % is the limit"),
        (of(10, 10), of(6, 10), Some(("pools", 4, 10)), "40 % of the pools"),
        (of(10, 10), of(10, 6), Some(("queues", 4, 10)), "40 % of the queues"),
        (of(3, 0), of(2, 0), Some(("pools", 1, 3)), "33 %"),
        (of(1, 0), of(0, 0), Some(("pools", 1, 1)), "the only one"),
        (of(0, 0), of(10, 10), None, "the first config"),
        (of(0, 0), of(0, 0), None, "nothing at all"),
    ];
    for (old, new, want, why) in rows {
        let changes = diff(&old, &new);
        let want = want.map(|(what, removed, of)| MassRemoval { what, removed, of });
        assert_eq!(changes.guard(&old, false).err(), want, "{why}");
        assert_eq!(changes.guard(&old, true), Ok(()), "{why}, allowed");
    }
}

/// What the app does with changes, on plain data.
fn apply(old: &Topology, changes: &Changes) -> Topology {
    let mut pools: BTreeMap<String, PoolEntry> =
        old.pools.iter().map(|pool| (pool.code.clone(), pool.clone())).collect();
    let mut queues: BTreeMap<String, QueueEntry> =
        old.queues.iter().map(|queue| (queue.name.clone(), queue.clone())).collect();
    for pool in &changes.pools_set {
        pools.insert(pool.code.clone(), pool.clone());
    }
    for queue in &changes.queues_added {
        assert!(queues.insert(queue.name.clone(), queue.clone()).is_none(), "{} was there", queue.name);
    }
    for queue in &changes.queues_rebuilt {
        let before = queues.insert(queue.name.clone(), queue.clone());
        assert!(before.is_some_and(|before| before != *queue), "{} was not there, or the same", queue.name);
    }
    for name in &changes.queues_removed {
        assert!(queues.remove(name).is_some(), "{name} was not there");
    }
    for code in &changes.pools_removed {
        assert!(pools.remove(code).is_some(), "{code} was not there");
    }
    Topology { pools: pools.into_values().collect(), queues: queues.into_values().collect() }
}

prop_compose! {
    /// Few names and values, so that two topologies share some.
    fn any_topology()(
        pools in prop::collection::btree_map("[a-f]", 1..4_u16, 0..6),
        queues in prop::collection::btree_map("[a-f]", ("[xy]", 1..3_i64), 0..6),
    ) -> Topology {
        Topology {
            pools: pools.iter().map(|(code, concurrency)| pool(code, *concurrency)).collect(),
            queues: queues.iter().map(|(name, (file, connections))| queue(name, file, *connections)).collect(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn y3_applying_the_changes_to_the_old_gives_the_new(old in any_topology(), new in any_topology()) {
        let changes = diff(&old, &new);
        prop_assert_eq!(apply(&old, &changes), new.clone());
        prop_assert_eq!(changes.is_empty(), old == new);
        prop_assert!(diff(&new, &new).is_empty());
    }
}
