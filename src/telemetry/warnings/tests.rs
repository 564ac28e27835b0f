//! Warnings: the table, counting, expiry, room.

use super::*;

/// Where the tests' time starts.
const START: u64 = 1_700_000_000_000;

/// Code and severity as the router document's table has them.
const DOCUMENT: [(&str, Severity); 17] = [
    ("CONFIG_SYNC_FAILED", Severity::Critical),
    ("CONFIG_SYNC_FAILED", Severity::Warn),
    ("ROUTING", Severity::Warn),
    ("QUEUE_FULL", Severity::Warn),
    ("POOL_LIMIT", Severity::Critical),
    ("POOL_LIMIT", Severity::Warn),
    ("PIPELINE_MAP_LEAK", Severity::Warn),
    ("CONSUMER_RESTART", Severity::Warn),
    ("CONSUMER_RESTART_FAILED", Severity::Critical),
    ("SHUTDOWN_CLEANUP_ERRORS", Severity::Warn),
    ("GROUP_THREAD_RESTART", Severity::Warn),
    ("GROUP_THREAD_EXIT_WITH_MESSAGES", Severity::Warn),
    ("SEMAPHORE_RELEASE_FAILED", Severity::Critical),
    ("MEDIATOR_NULL_RESULT", Severity::Critical),
    ("PROCESSING", Severity::Warn),
    ("CONFIGURATION", Severity::Critical),
    ("CONFIGURATION", Severity::Error),
];

fn add(warnings: &Warnings, code: WarningCode, source: &str, now: u64) {
    warnings.add(code, code.severity(), source, "what happened", now);
}

#[test]
fn every_row_of_the_router_document_is_in_the_table() {
    for (name, severity) in DOCUMENT {
        assert!(TABLE.iter().any(|row| row.0.name() == name && row.1 == severity), "{name} {severity:?}");
    }
    for row in TABLE {
        let json = serde_json::to_value(row.0).expect("a name");
        assert_eq!(json, row.0.name(), "JSON and name agree");
        assert!(row.2.ends_with('.'), "{}: a sentence", row.0.name());
    }
}

#[test]
fn the_same_warning_again_is_counted_and_another_is_listed() {
    let warnings = Warnings::new();
    add(&warnings, WarningCode::QueueFull, "A", START);
    add(&warnings, WarningCode::QueueFull, "A", START + 5);
    add(&warnings, WarningCode::QueueFull, "B", START + 6);
    warnings.add(WarningCode::ConfigSyncFailed, Severity::Warn, "A", "what happened", START);
    warnings.add(WarningCode::ConfigSyncFailed, Severity::Critical, "A", "what happened", START);
    let list = warnings.list(START + 10);
    assert_eq!(list.len(), 4, "{list:?}");
    assert_eq!(list[0].severity, Severity::Critical, "the worst is first");
    let first = list.iter().find(|one| one.source == "A" && one.code == WarningCode::QueueFull);
    let first = first.expect("listed");
    assert_eq!((first.count, first.first_unix_ms, first.last_unix_ms), (2, START, START + 5));
}

#[test]
fn a_warning_goes_eight_hours_after_it_was_last_seen() {
    let warnings = Warnings::new();
    add(&warnings, WarningCode::Routing, "A", START);
    add(&warnings, WarningCode::Routing, "B", START);
    add(&warnings, WarningCode::Routing, "B", START + 1);
    assert_eq!(warnings.list(START + KEPT_MS - 1).len(), 2);
    let left = warnings.list(START + KEPT_MS);
    assert_eq!(left.iter().map(|one| one.source.as_str()).collect::<Vec<_>>(), ["B"]);
    assert_eq!(warnings.unacknowledged(START + KEPT_MS + 1), 0);
    add(&warnings, WarningCode::Routing, "A", START + KEPT_MS + 2);
    assert_eq!(warnings.list(START + KEPT_MS + 2)[0].count, 1, "an expired one starts anew");
}

#[test]
fn acknowledged_ones_stay_so_and_one_or_all_can_be_cleared() {
    let warnings = Warnings::new();
    for source in ["A", "B", "C"] {
        add(&warnings, WarningCode::StalledPool, source, START);
    }
    assert!(warnings.acknowledge(1) && !warnings.acknowledge(99));
    add(&warnings, WarningCode::StalledPool, "A", START + 1);
    assert_eq!(warnings.unacknowledged(START + 1), 2, "seen again is still acknowledged");
    assert_eq!(warnings.list(START + 1).last().map(|one| one.id), Some(1), "and stands last");
    assert!(warnings.clear(2) && !warnings.clear(2));
    add(&warnings, WarningCode::StalledPool, "B", START + 2);
    assert_eq!(warnings.list(START + 2).len(), 3, "a cleared one may come again");
    assert_eq!(warnings.clear_all(), 3);
    assert!(warnings.list(START + 2).is_empty());
}

#[test]
fn a_flood_keeps_its_bound_and_the_severe_ones() {
    let warnings = Warnings::new();
    add(&warnings, WarningCode::DeadLetterFailed, "keep", START);
    for number in 0..2 * WARNINGS_MAX {
        add(&warnings, WarningCode::Routing, &format!("pool {number}"), START + 1);
    }
    let list = warnings.list(START + 2);
    assert_eq!(list.len(), WARNINGS_MAX);
    assert_eq!(list[0].source, "keep");
    let state = warnings.state.lock();
    assert_eq!(state.ids.len(), state.list.len(), "nothing is left behind");
}

#[test]
fn a_long_text_is_cut_between_characters() {
    let warnings = Warnings::new();
    warnings.add(WarningCode::Processing, Severity::Warn, "s", &"é".repeat(TEXT_BYTES_MAX), START);
    let text = &warnings.list(START)[0].message;
    assert_eq!(text.len(), TEXT_BYTES_MAX);
}
