//! The SQLite queue under kills, expiry and chance: nothing is lost, and no group comes out of order.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use corelane::broker::sqlite::{Consume, Durability, NewMessage, SqliteQueue, SqliteWriter};
use corelane::ingress::{Answer, Scope, Source};
use shards::desk::{Receipt, Tell};
use shards::model::{IdHasher, NackReason, SourceId, Ticket};

use crate::support::temp::TempFile;
use crate::support::wait::until;

const CHILD: &str = "CORELANE_TEST_QUEUE_CHILD";
const HOUR: Duration = Duration::from_secs(3_600);
const LONG: Duration = Duration::from_secs(20);
const TICKET: Ticket = Ticket { slot: 0, tenant: 0 };

fn message(number: u64, groups: u64) -> NewMessage {
    NewMessage {
        body: format!(r#"{{"id":"{number}","mediationTarget":"http://127.0.0.1:1/x"}}"#).into_bytes(),
        group: Some((number % groups).to_string()),
        ..NewMessage::default()
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn apart(path: &Path) -> SqliteWriter {
    SqliteWriter::open_apart(path, Durability::Full).expect("the file can be opened")
}

/// What is received: key, number.
fn receive(runtime: &tokio::runtime::Runtime, queue: &SqliteQueue, max: usize) -> Vec<(u64, u64)> {
    let scope = Scope::new(IdHasher::new((1, 2)), SourceId(0));
    let max = NonZeroUsize::new(max).expect("some");
    let batch = runtime.block_on(queue.receive(scope, max)).expect("the file can be read");
    let number = |id: &[u8]| std::str::from_utf8(id).ok().and_then(|id| id.parse().ok()).expect("a number");
    batch.arrivals.iter().map(|it| (it.receipt.key, number(it.parcel.id()))).collect()
}

fn ack(runtime: &tokio::runtime::Runtime, queue: &SqliteQueue, key: u64) -> bool {
    let tell = (Receipt { key, epoch: 0 }, Tell::Ack { ticket: Some(TICKET) });
    matches!(runtime.block_on(queue.settle(vec![tell]))[..], [Answer::Closed { done: true, .. }])
}

/// In the child: takes everything, says so, and does nothing more.
fn hold_everything(path: &Path) {
    let (writer, runtime) = (apart(path), runtime());
    let queue = writer.consume(Consume { lease: HOUR, ..Consume::default() });
    while !receive(&runtime, &queue, 1_000).is_empty() {}
    println!("held");
    loop {
        std::thread::park();
    }
}

fn spawn_child(test: &str, path: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("a test has its file"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(CHILD, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the test can run itself");
    let stdout = child.stdout.take().expect("piped");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stdout));
    let held = lines.any(|line| line.is_ok_and(|line| line.contains("held")));
    assert!(held, "the child took the messages");
    child
}

#[test]
fn what_a_killed_process_had_is_handed_out_again_at_once_and_in_order() {
    if let Ok(path) = std::env::var(CHILD) {
        return hold_everything(Path::new(&path));
    }
    let file = TempFile::new("kill");
    let writer = apart(&file.path);
    writer.publish_blocking((0..300).map(|number| message(number, 7)).collect()).expect("published");
    let test = "queue_faults::what_a_killed_process_had_is_handed_out_again_at_once_and_in_order";
    let mut child = spawn_child(test, &file.path);
    let (runtime, queue) = (runtime(), writer.consume(Consume { lease: HOUR, ..Consume::default() }));
    assert!(receive(&runtime, &queue, 1_000).is_empty(), "the child has all of them");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let start = Instant::now();
    let mut got = Vec::new();
    until(
        LONG,
        "the dead process's messages come back",
        || {
            got.extend(receive(&runtime, &queue, 1_000));
            got.len() == 300
        },
        || (),
    );
    assert!(start.elapsed() < Duration::from_secs(3), "not after a lease: {:?}", start.elapsed());
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    for (_, number) in &got {
        let before = last.insert(number % 7, *number);
        assert!(before.is_none_or(|before| before < *number), "{number} after {before:?}");
    }
    let name = file.path.file_name().expect("a name").to_string_lossy().into_owned();
    let locks = || {
        let folder = std::fs::read_dir(std::env::temp_dir()).expect("readable").flatten();
        folder.filter(|it| it.file_name().to_string_lossy().starts_with(&format!("{name}-owner-"))).count()
    };
    // It is removed after its messages are handed out.
    until(LONG, "the dead owner's lock is gone, ours is there", || locks() == 1, locks);
    for (key, _) in &got {
        assert!(ack(&runtime, &queue, *key));
    }
}

/// A connection past the keeper's back.
fn stranger(path: &Path) -> rusqlite::Connection {
    let conn = rusqlite::Connection::open(path).expect("it is there");
    conn.busy_timeout(LONG).expect("settable");
    conn
}

#[test]
fn a_beat_that_is_seen_after_a_long_wait_for_the_file_counts_from_then_on() {
    let lease = Duration::from_secs(2);
    let file = TempFile::new("late-beat");
    let (one, two) = (apart(&file.path), apart(&file.path));
    one.publish_blocking(vec![message(0, 1)]).expect("published");
    let runtime = runtime();
    let holder = one.consume(Consume { lease: HOUR, ..Consume::default() });
    assert_eq!(receive(&runtime, &holder, 9).len(), 1);
    let conn = stranger(&file.path);
    let lease_ms = i64::try_from(lease.as_millis()).expect("small");
    conn.execute("UPDATE claims SET lease_ms = ?1", [lease_ms]).expect("written");
    let other = two.consume(Consume::default());
    assert!(receive(&runtime, &other, 9).is_empty(), "it sees the claim");
    // The holder's beat, in a transaction during which the other keeper waits for its turn.
    conn.execute_batch("BEGIN IMMEDIATE; UPDATE claims SET beat = beat + 1").expect("written");
    let publisher = two.clone();
    let began = Instant::now();
    let waiting = std::thread::spawn(move || publisher.publish_blocking(vec![message(1, 1)]));
    until(LONG, "most of a lease passes", || began.elapsed() >= Duration::from_millis(1_700), || ());
    conn.execute_batch("COMMIT").expect("written");
    let start = Instant::now();
    waiting.join().expect("it ends").expect("published");
    while start.elapsed() < Duration::from_millis(1_200) {
        let got = receive(&runtime, &other, 9);
        assert!(got.is_empty(), "a living claim was taken {:?} after its beat: {got:?}", start.elapsed());
    }
    until(LONG, "the beat stands still", || !receive(&runtime, &other, 9).is_empty(), || ());
}

#[test]
fn what_a_consumer_had_that_left_while_the_file_could_not_be_written_is_back_soon_after() {
    let file = TempFile::new("failed-leave");
    let writer = apart(&file.path);
    writer.publish_blocking((0..2).map(|number| message(number, 2)).collect()).expect("published");
    let (runtime, conn) = (runtime(), stranger(&file.path));
    let leaver = writer.consume(Consume { lease: HOUR, ..Consume::default() });
    assert_eq!(receive(&runtime, &leaver, 9).len(), 2);
    conn.execute_batch(
        "CREATE TRIGGER no_writes BEFORE UPDATE ON queue_messages
         BEGIN SELECT raise(ABORT, 'not now'); END",
    )
    .expect("written");
    drop(leaver);
    // Asked after the leave: when this is answered, refused or not, the leave has failed.
    let _ = writer.publish_blocking(vec![message(2, 9)]);
    conn.execute_batch("DROP TRIGGER no_writes").expect("written");
    let next = writer.consume(Consume { lease: HOUR, ..Consume::default() });
    let mut got = BTreeSet::new();
    until(
        LONG,
        "what it had comes back",
        || {
            got.extend(receive(&runtime, &next, 9).into_iter().map(|(_, number)| number));
            got.contains(&0) && got.contains(&1)
        },
        || (),
    );
}

#[test]
fn a_file_that_is_deleted_or_replaced_while_open_is_refused_until_it_is_back() {
    let (file, aside) = (TempFile::new("replaced-queue"), TempFile::new("replaced-aside"));
    let writer = apart(&file.path);
    let publish =
        |number| writer.publish_blocking(vec![message(number, 1)]).map_err(|error| error.to_string());
    publish(0).expect("published");
    std::fs::rename(&file.path, &aside.path).expect("moved");
    let said = publish(1).expect_err("deleted");
    assert!(said.contains("deleted") && said.contains("replaced-queue"), "{said}");
    std::fs::write(&file.path, b"").expect("written");
    let said = publish(1).expect_err("replaced");
    assert!(said.contains("replaced by another file"), "{said}");
    let (runtime, queue) = (runtime(), writer.consume(Consume::default()));
    let scope = Scope::new(IdHasher::new((1, 2)), SourceId(0));
    runtime.block_on(queue.receive(scope, NonZeroUsize::MIN)).expect_err("nor is anything received");
    std::fs::rename(&aside.path, &file.path).expect("moved back");
    publish(1).expect("published");
    assert_eq!(receive(&runtime, &queue, 9).len(), 2);
}

/// A seeded source of chance.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

const GROUPS: u64 = 5;

/// What must be so, whatever happens.
#[derive(Default)]
struct Model {
    published: u64,
    acked: BTreeSet<u64>,
}

impl Model {
    /// A hand-over: of each group nothing may be missing before it but what was acked.
    fn on_received(&self, batch: &[(u64, u64)], seed: u64) {
        let mut done = self.acked.clone();
        for (_, number) in batch {
            assert!(!self.acked.contains(number), "SEED={seed}: {number} was acked and came again");
            let earlier = (number % GROUPS..*number).step_by(usize::try_from(GROUPS).expect("small"));
            for before in earlier {
                assert!(done.contains(&before), "SEED={seed}: {number} came before {before}");
            }
            done.insert(*number);
        }
    }
}

struct Party {
    queue: SqliteQueue,
    held: Vec<(u64, u64)>,
}

fn play(seed: u64) {
    let file = TempFile::new("chance");
    let writers = [apart(&file.path), apart(&file.path)];
    let (runtime, mut chance, mut model) = (runtime(), Chance(seed), Model::default());
    let consume = |patient: bool| Consume {
        lease: Duration::from_millis(if patient { 10_000 } else { 30 }),
        poll: Duration::from_millis(3),
        ..Consume::default()
    };
    let party =
        |which: usize, patient| Party { queue: writers[which].consume(consume(patient)), held: Vec::new() };
    let mut parties = vec![party(0, true), party(1, true), party(0, false), party(1, false)];
    for _ in 0..250 {
        let who = usize::try_from(chance.below(4)).expect("small");
        match chance.below(10) {
            0 | 1 => {
                let count = 1 + chance.below(8);
                let batch = (model.published..model.published + count).map(|number| message(number, GROUPS));
                writers[who % 2].publish_blocking(batch.collect()).expect("published");
                model.published += count;
            }
            2..=4 => {
                let max = usize::try_from(1 + chance.below(6)).expect("small");
                let got = receive(&runtime, &parties[who].queue, max);
                model.on_received(&got, seed);
                parties[who].held.extend(got);
            }
            5..=7 => {
                let held = parties[who].held.len() as u64;
                if held > 0 {
                    let at = usize::try_from(chance.below(held.min(2))).expect("small");
                    let (key, number) = parties[who].held.remove(at);
                    if ack(&runtime, &parties[who].queue, key) {
                        model.acked.insert(number);
                    }
                }
            }
            8 => {
                let delay_s = u32::from(chance.below(12) == 0);
                for (key, _) in std::mem::take(&mut parties[who].held) {
                    let tell = Tell::Nack { delay_s, reason: NackReason::Failed };
                    runtime.block_on(parties[who].queue.settle(vec![(Receipt { key, epoch: 0 }, tell)]));
                }
            }
            // It goes with all it has; another comes.
            _ => parties[who] = party(who % 2, who < 2),
        }
    }
    parties.clear();
    parties.push(party(0, true));
    until(
        LONG,
        &format!("SEED={seed}: nothing is lost"),
        || {
            let got = receive(&runtime, &parties[0].queue, 100);
            model.on_received(&got, seed);
            for (key, number) in got {
                assert!(ack(&runtime, &parties[0].queue, key), "SEED={seed}: {number} is ours");
                model.acked.insert(number);
            }
            model.acked.len() as u64 == model.published
        },
        || (),
    );
    assert_eq!(writers[1].depth_blocking().expect("readable"), 0, "SEED={seed}");
}

#[test]
fn whatever_happens_no_message_is_lost_and_no_group_is_out_of_order() {
    let only = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = only.map_or(1..=5, |seed: u64| seed..=seed);
    for seed in seeds {
        play(seed);
    }
}

/// A queue alone: published, handed out and acked, without a delivery. `--nocapture` shows the figures.
#[test]
fn the_log_and_the_file_stay_small_under_steady_traffic() {
    let total = std::env::var("MESSAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(60_000_u64);
    let file = TempFile::new("steady");
    let writer = apart(&file.path);
    let queue = writer.consume(Consume::default());
    let publisher = writer.clone();
    let start = Instant::now();
    let thread = std::thread::spawn(move || {
        for first in (0..total).step_by(1_000) {
            let batch = (first..(first + 1_000).min(total)).map(|number| message(number, 5_000));
            publisher.publish_blocking(batch.collect()).expect("published");
        }
    });
    let (runtime, mut acked, mut wal_max, mut file_max) = (runtime(), 0, 0, 0);
    let size = |end: &str| {
        let mut name = file.path.clone().into_os_string();
        name.push(end);
        std::fs::metadata(name).map_or(0, |data| data.len())
    };
    while acked < total {
        let got = receive(&runtime, &queue, 1_000);
        let tells =
            got.iter().map(|(key, _)| (Receipt { key: *key, epoch: 0 }, Tell::Ack { ticket: Some(TICKET) }));
        let answers = runtime.block_on(queue.settle(tells.collect()));
        acked += answers.iter().filter(|it| matches!(it, Answer::Closed { done: true, .. })).count() as u64;
        (wal_max, file_max) = (wal_max.max(size("-wal")), file_max.max(size("")));
    }
    let took = start.elapsed();
    thread.join().expect("the publisher ends");
    let gauges = writer.gauges();
    let per_s = u128::from(total) * 1_000 / took.as_millis().max(1);
    println!(
        "{total} messages in {took:?}: {per_s}/s; log {} KiB, file {} KiB, {} transactions, longest {:?}, longest finish {:?}",
        wal_max >> 10,
        file_max >> 10,
        gauges.turns(),
        gauges.turn_max(),
        gauges.finish_max()
    );
    assert!(wal_max < 192 << 20, "the log grew to {wal_max} bytes");
    assert_eq!(writer.depth_blocking().expect("readable"), 0);
}
