//! The dead-letter store and `corelane dlq`.

use std::process::{Command, Output};

use corelane::broker::sqlite::{Consume, Durability, NewMessage, SqliteWriter};
use corelane::deadletter::{DeadLetterStore, Page, Redrive, redrive};
use corelane::ingress::{Letter, SetAside, Source};
use corelane::view::DeadLetterFilter;
use shards::model::{DeadReason, Dispatch};

use crate::support::temp::TempFile;

const SECRET: &str = "t0p-s3cret";

fn letter(key: u64, group: &str, status: u16) -> Letter {
    Letter {
        queue: "orders".into(),
        key,
        id: format!("m{key}"),
        group: group.into(),
        pool: "P".into(),
        target: "http://billing/x".into(),
        token: SECRET.into(),
        dispatch: Dispatch::NextOnError,
        high_priority: true,
        body: format!(r#"{{"messageId":"m{key}"}}"#).into_bytes(),
        reason: DeadReason::Refused,
        detail: format!("the target answered {status}"),
        status,
        attempts: 1,
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(future)
}

fn keep(store: &DeadLetterStore, letters: &[Letter]) {
    block_on(store.set_aside(letters.to_vec())).expect("kept");
}

fn numbers(store: &DeadLetterStore, filter: DeadLetterFilter) -> Vec<String> {
    let page = Page { below: None, limit: 100 };
    store.list_blocking(filter, page).expect("readable").into_iter().map(|letter| letter.id).collect()
}

#[test]
fn the_same_message_is_kept_once_and_a_filter_finds_it() {
    let file = TempFile::new("dead");
    let store = DeadLetterStore::open(&file.path).expect("opened");
    keep(&store, &[letter(1, "a", 404), letter(2, "b", 400)]);
    keep(&store, &[letter(1, "a", 404)]);
    let all = DeadLetterFilter::default();
    assert_eq!(numbers(&store, all.clone()), ["m2", "m1"], "newest first");
    let rows = [
        (DeadLetterFilter { status: Some(404), ..all.clone() }, vec!["m1"]),
        (DeadLetterFilter { group: Some("b".into()), ..all.clone() }, vec!["m2"]),
        (DeadLetterFilter { target: Some("http://bill".into()), ..all.clone() }, vec!["m2", "m1"]),
        (DeadLetterFilter { target: Some("http://%".into()), ..all.clone() }, vec![]),
        (DeadLetterFilter { reason: Some("malformed".into()), ..all.clone() }, vec![]),
        (DeadLetterFilter { id: Some("m2".into()), queue: Some("orders".into()), ..all.clone() }, vec!["m2"]),
        (DeadLetterFilter { before: Some(5), ..all.clone() }, vec![]),
        (DeadLetterFilter { numbers: vec![1], after: Some(5), ..all.clone() }, vec!["m1"]),
    ];
    for (filter, want) in rows {
        assert_eq!(numbers(&store, filter.clone()), want, "{filter:?}");
        assert_eq!(store.count_blocking(filter.clone()).expect("readable"), want.len() as u64, "{filter:?}");
    }
    let shown = store.show_blocking(1).expect("readable").expect("there");
    assert_eq!(shown.body.as_deref(), Some(r#"{"messageId":"m1"}"#));
    assert!(!format!("{shown:?}").contains(SECRET));
    drop(store);
    let store = DeadLetterStore::open(&file.path).expect("opened again");
    assert_eq!(store.count_blocking(all).expect("readable"), 2, "durable");
}

#[test]
fn a_retry_that_is_cut_off_and_begun_again_loses_and_doubles_nothing() {
    let file = TempFile::new("redrive");
    let store = DeadLetterStore::open(&file.path).expect("opened");
    keep(&store, &[letter(5, "a", 404), letter(3, "a", 404), letter(4, "b", 404)]);
    let all = DeadLetterFilter::default();
    let mut seen: Vec<Redrive> = Vec::new();
    let cut = redrive(
        &store,
        &all,
        |_, letters| {
            seen.extend(letters);
            Err(std::io::Error::other("cut off after it was put back"))
        },
        &|_| (),
    );
    assert!(cut.is_err());
    assert_eq!(store.count_blocking(all.clone()).expect("readable"), 3, "R1: none is lost");
    let mut again: Vec<Redrive> = Vec::new();
    let done = redrive(
        &store,
        &all,
        |queue, letters| {
            assert_eq!(queue, "orders");
            again.extend(letters);
            Ok(vec![true; 3])
        },
        &|_| (),
    );
    assert_eq!(done.expect("done").letters, 3);
    let tokens = |letters: &[Redrive]| letters.iter().map(|it| it.token.clone()).collect::<Vec<_>>();
    assert_eq!(tokens(&seen), tokens(&again), "R2: the queue knows them");
    let keys: Vec<u64> = again.iter().map(|letter| letter.key).collect();
    assert_eq!(keys, [3, 4, 5], "by their old places");
    let body = String::from_utf8(again[0].body.clone()).expect("text");
    for part in
        ["\"id\":\"m3\"", SECRET, "\"messageGroupId\":\"a\"", "NEXT_ON_ERROR", "\"highPriority\":true"]
    {
        assert!(body.contains(part), "{part}: {body}");
    }
    assert_eq!(store.count_blocking(all).expect("readable"), 0);
}

#[test]
fn what_dies_again_while_it_is_retried_stays_in_the_store() {
    let file = TempFile::new("dead-again");
    let store = DeadLetterStore::open(&file.path).expect("opened");
    keep(&store, &[letter(1, "a", 404)]);
    let mut tokens = Vec::new();
    for round in 0..2 {
        let done = redrive(
            &store,
            &DeadLetterFilter::default(),
            |_, letters| {
                tokens.extend(letters.into_iter().map(|letter| letter.token));
                if round == 0 {
                    // The router was faster than we are.
                    keep(&store, &[letter(1, "a", 410)]);
                }
                Ok(vec![true])
            },
            &|_| (),
        );
        let done = done.expect("done");
        assert_eq!((done.letters, done.dead_again), (1, u64::from(round == 0)), "R3");
    }
    assert_ne!(tokens[0], tokens[1], "the second death is put back anew");
    assert_eq!(store.count_blocking(DeadLetterFilter::default()).expect("readable"), 0);
}

#[test]
fn what_the_queue_does_not_have_stays_in_the_store_and_is_counted() {
    let file = TempFile::new("unacked-letters");
    let store = DeadLetterStore::open(&file.path).expect("opened");
    keep(&store, &[letter(1, "a", 404), letter(2, "b", 404)]);
    let all = DeadLetterFilter::default();
    let done = redrive(&store, &all, |_, _| Ok(vec![false, true]), &|_| ()).expect("done");
    assert_eq!((done.letters, done.unacked, done.dead_again), (1, 1, 0));
    assert_eq!(numbers(&store, all), ["m1"], "R1");
}

#[test]
fn what_is_set_aside_during_a_purge_stays() {
    let file = TempFile::new("purge");
    let store = DeadLetterStore::open(&file.path).expect("opened");
    keep(&store, &[letter(1, "a", 404), letter(2, "a", 404)]);
    let all = DeadLetterFilter::default();
    let arrives = |gone: u64| {
        if gone == 2 && store.count_blocking(DeadLetterFilter::default()).expect("readable") == 0 {
            keep(&store, &[letter(3, "a", 404)]);
        }
    };
    assert_eq!(store.purge_blocking(&all, &arrives).expect("purged"), 2);
    assert_eq!(numbers(&store, all), ["m3"]);
}

#[test]
fn another_message_under_the_same_key_is_another_letter() {
    let file = TempFile::new("replaced");
    let store = DeadLetterStore::open(&file.path).expect("opened");
    let other = Letter { id: "of another file".into(), ..letter(1, "a", 404) };
    let unreadable = Letter { id: String::new(), body: b"nonsense".to_vec(), ..letter(1, "a", 404) };
    keep(&store, &[letter(1, "a", 404), other, unreadable]);
    let all = DeadLetterFilter::default();
    assert_eq!(numbers(&store, all.clone()), ["", "of another file", "m1"]);
    let done = redrive(&store, &all, |_, letters| Ok(vec![true; letters.len()]), &|_| ()).expect("done");
    assert_eq!((done.letters, done.dead_again), (3, 0));
    assert_eq!(store.count_blocking(all).expect("readable"), 0);
}

fn dlq(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_corelane")).arg("dlq").args(args).output().expect("it runs")
}

fn said(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{out}{err}")
}

#[test]
fn the_command_lists_shows_retries_and_purges_while_the_files_are_open() {
    let (dead, queue) = (TempFile::new("cli-dead"), TempFile::new("cli-queue"));
    let store = DeadLetterStore::open(&dead.path).expect("opened");
    let writer = SqliteWriter::open(&queue.path, Durability::Full).expect("opened");
    let message = |id: &str| NewMessage {
        body: format!(r#"{{"id":"{id}","mediationTarget":"http://h/"}}"#).into_bytes(),
        group: Some("a".into()),
        ..NewMessage::default()
    };
    let ids = ["m1", "m2", "m3"];
    writer.publish_blocking(ids.iter().map(|id| message(id)).collect()).expect("published");
    let source = writer.consume(Consume::default());
    let scope =
        corelane::ingress::Scope::new(shards::model::IdHasher::new((1, 2)), shards::model::SourceId(0));
    let receive = || {
        let max = std::num::NonZeroUsize::new(9).expect("some");
        block_on(source.receive(scope, max)).expect("readable").arrivals
    };
    let ack = |arrivals: &[shards::desk::Arrival]| {
        let tell = |it: &shards::desk::Arrival| (it.receipt, shards::desk::Tell::Ack { ticket: None });
        block_on(source.settle(arrivals.iter().map(tell).collect()));
    };
    let out = receive();
    keep(&store, &[letter(2, "a", 404), letter(1, "a", 404)]);
    let queue_file = format!("orders={}", queue.path.display());
    let early = dlq(&["retry", "--store", dead.path.to_str().expect("text"), "--queue-file", &queue_file]);
    assert!(
        !early.status.success() && said(&early).contains("2 dead letters are still being acked"),
        "{}",
        said(&early)
    );
    ack(&out);
    let malformed = Letter {
        reason: DeadReason::Malformed,
        body: b"{\"authToken\":\"t0p-s3cret\"".to_vec(),
        ..letter(9, "z", 0)
    };
    keep(&store, &[malformed]);
    writer.publish_blocking(vec![message("m4")]).expect("published");

    let (dead_path, queue_path) = (dead.path.to_str().expect("text"), queue.path.to_str().expect("text"));
    let listed = dlq(&["list", "--store", dead_path, "--status", "404"]);
    assert!(
        listed.status.success()
            && said(&listed).contains("id=m1")
            && said(&listed).contains("2 dead letters"),
        "{}",
        said(&listed)
    );
    let json = dlq(&["list", "--store", dead_path, "--json", "--limit", "1"]);
    let json: Vec<serde_json::Value> = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!((json.len(), json[0]["reason"].as_str()), (1, Some("MALFORMED")));
    for number in ["1", "3"] {
        let shown = dlq(&["show", number, "--store", dead_path]);
        assert!(shown.status.success() && !said(&shown).contains(SECRET), "{}", said(&shown));
    }
    let dry = dlq(&["retry", "--store", dead_path, "--group", "a", "--dry-run"]);
    assert!(said(&dry).contains("2 dead letters would be retried"), "{}", said(&dry));
    let nowhere =
        dlq(&["retry", "--store", dead_path, "--group", "a", "--queue-file", "orders=/nowhere/q.db"]);
    assert!(
        !nowhere.status.success() && said(&nowhere).contains("--queue-file orders=FILE"),
        "{}",
        said(&nowhere)
    );
    let unknown = dlq(&["retry", "--store", dead_path, "--group", "a"]);
    assert!(
        !unknown.status.success()
            && said(&unknown).contains("queue orders: the config does not have it")
            && said(&unknown).contains("--queue-file orders=FILE"),
        "{}",
        said(&unknown)
    );
    let place = format!("orders={queue_path}");
    let config = TempFile::new("cli-config");
    let toml = format!("[[queue]]\nname = \"orders\"\nuri = \"sqlite:{queue_path}\"\n");
    std::fs::write(&config.path, toml).expect("written");
    let config_path = config.path.to_str().expect("text");
    let first = dlq(&["retry", "1", "--store", dead_path, "--config", config_path]);
    assert!(first.status.success() && said(&first).contains("1 dead letters retried"), "{}", said(&first));
    let retried = dlq(&["retry", "--store", dead_path, "--group", "a", "--queue-file", &place]);
    assert!(
        retried.status.success() && said(&retried).contains("1 dead letters retried"),
        "{}",
        said(&retried)
    );
    let back = receive();
    let order: Vec<_> = back.iter().map(|it| String::from_utf8_lossy(it.parcel.id()).into_owned()).collect();
    assert_eq!(order, ["m1", "m2", "m4"], "ahead of newer ones, in order");
    assert_eq!(back[0].parcel.token(), SECRET.as_bytes(), "a retry is as good as the first time");
    ack(&back);

    let all = dlq(&["purge", "--store", dead_path]);
    assert!(!all.status.success() && said(&all).contains("--yes"), "{}", said(&all));
    let purged = dlq(&["purge", "--store", dead_path, "--reason", "malformed"]);
    assert!(purged.status.success() && said(&purged).contains("1 dead letters deleted"), "{}", said(&purged));
    let none = dlq(&["list", "--store", "no-such.db"]);
    assert!(!none.status.success() && said(&none).contains("no such dead-letter store"), "{}", said(&none));
}
