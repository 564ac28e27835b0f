//! How a start is decided, and the cache on disk.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::secret::Secret;
use cache::CacheError;
use document::DocumentError;

const LIMITS: PoolLimits = PoolLimits { max: 100, warn_at: 100 };

fn body(pools: usize) -> String {
    let pools: Vec<String> = (0..pools).map(|n| format!(r#"{{"code":"P{n}","concurrency":1}}"#)).collect();
    let queue = r#"{"queueName":"q","queueUri":"nats://u:hunter2@h/s"}"#;
    format!(r#"{{"processingPools":[{}],"queues":[{queue}]}}"#, pools.join(","))
}

fn fetched(pools: usize) -> Fetched {
    Fetched { document: document::read(body(pools).as_bytes()).expect("a document"), fetched_unix_s: 1 }
}

fn topology(pools: usize) -> Topology {
    fetched(pools).document.over(&Topology::default(), LIMITS).0
}

fn cached(pools: usize) -> Cached {
    Cached { topology: topology(pools), fetched_unix_s: 1 }
}

const fn failed() -> Result<Fetched, FetchError> {
    Err(FetchError::Document(DocumentError::Empty))
}

/// `fresh 3`, `cache 3: why` or `stop: why`.
fn shown(begin: &Begin) -> String {
    match begin {
        Begin::Fresh(accepted) => format!("fresh {}", accepted.topology.pools.len()),
        Begin::FromCache(accepted, why) => format!("cache {}: {why}", accepted.topology.pools.len()),
        Begin::Stop(why) => format!("stop: {why}"),
    }
}

#[test]
fn a_start_takes_the_platform_else_the_cache_else_ends() {
    let sync = |start_from_cache, allow_mass_removal| SyncSettings {
        start_from_cache,
        allow_mass_removal,
        ..SyncSettings::default()
    };
    let rows = [
        (Ok(fetched(3)), None, sync(true, false), "fresh 3"),
        (Ok(fetched(3)), Some(cached(4)), sync(true, false), "fresh 3"),
        (
            Ok(fetched(1)),
            Some(cached(4)),
            sync(true, false),
            "cache 4: the config is refused: it would remove 3 of 4 pools",
        ),
        (Ok(fetched(1)), Some(cached(4)), sync(false, false), "stop: the config is refused"),
        (Ok(fetched(1)), Some(cached(4)), sync(true, true), "fresh 1"),
        (failed(), Some(cached(4)), sync(true, false), "cache 4: the document is empty"),
        (failed(), Some(cached(4)), sync(false, false), "stop: the document is empty"),
        (failed(), None, sync(true, false), "stop: the document is empty"),
    ];
    for (fetched, cached, sync, want) in rows {
        let begin = begin(fetched, cached, &sync, LIMITS);
        assert!(shown(&begin).starts_with(want), "{want}: {}", shown(&begin));
        if let Begin::Fresh(accepted) | Begin::FromCache(accepted, _) = begin {
            let count = accepted.changes.pools_set.len();
            assert_eq!(count, accepted.topology.pools.len(), "at start everything is to be made");
        }
    }
}

/// A file in a directory of its own; both go at the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("corelane-cache-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).expect("a new directory");
        Self(directory)
    }

    fn file(&self) -> PathBuf {
        self.0.join("cache.json")
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("the directory");
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn url(text: &str) -> Secret {
    Secret::new(text.to_owned())
}

#[test]
fn a_bad_entry_keeps_its_settings_over_a_restart() {
    let (place, url) = (Place::new(), url("http://h/c"));
    let sync = SyncSettings::default();
    let broken = body(4).replacen(r#""concurrency":1"#, r#""concurrency":0"#, 1);
    let broken = document::read(broken.as_bytes()).expect("a document with a bad entry");
    let accepted = accept(&broken, &topology(4), &sync, LIMITS).expect("nothing is removed");
    assert!(accepted.changes.is_empty() && accepted.problems.len() == 1, "{accepted:?}");
    cache::write(&place.file(), &url, &accepted.topology, 7).expect("it can be written");
    let back = cache::read(&place.file(), &url, 1 << 20, LIMITS).expect("readable");
    let again = begin(Ok(Fetched { document: broken, fetched_unix_s: 8 }), back, &sync, LIMITS);
    assert_eq!(shown(&again), "fresh 4");
}

#[test]
fn the_last_good_document_comes_back_from_disk() {
    use std::os::unix::fs::PermissionsExt;

    let (place, url) = (Place::new(), url("https://u:hunter3@h/c"));
    let read = || cache::read(&place.file(), &url, 1 << 20, LIMITS);
    assert!(read().expect("no file is no error").is_none());
    for pools in [2, 5] {
        cache::write(&place.file(), &url, &topology(pools), 7).expect("it can be written");
        let back = read().expect("readable").expect("there");
        assert_eq!((back.topology, back.fetched_unix_s), (topology(pools), 7));
    }
    assert_eq!(place.names(), ["cache.json"], "Y5: nothing is left beside it");
    let mode = std::fs::metadata(place.file()).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "passwords in it are for its owner");
    assert!(!std::fs::read_to_string(place.file()).expect("text").contains("hunter3"));
}

#[test]
fn y5_a_failed_write_leaves_the_old_file_whole() {
    let (place, url) = (Place::new(), url("http://h/c"));
    cache::write(&place.file(), &url, &topology(2), 7).expect("it can be written");
    // A directory where the new file would be written aside: opening it fails, for every user.
    let aside = place.0.join(format!("cache.json.{}.new", std::process::id()));
    std::fs::create_dir(&aside).expect("a directory");
    let error = cache::write(&place.file(), &url, &topology(3), 8).expect_err("it can't be written");
    assert!(matches!(error, CacheError::Io { .. }), "{error}");
    let back = cache::read(&place.file(), &url, 1 << 20, LIMITS).expect("readable").expect("there");
    assert_eq!(back.topology, topology(2));
}

#[test]
fn a_cache_that_is_not_ours_is_refused_by_name() {
    let (place, own) = (Place::new(), url("http://h/c"));
    cache::write(&place.file(), &own, &topology(2), 7).expect("it can be written");
    let good = std::fs::read_to_string(place.file()).expect("text");
    let read = |from: &str, max| {
        let outcome = cache::read(&place.file(), &url(from), max, LIMITS);
        outcome.err().map_or_else(String::new, |error| error.to_string())
    };
    assert!(read("http://other/c", 1 << 20).contains("is from http://h/c"));
    let rows = [
        (good[..good.len() / 2].to_owned(), "can't be read"),
        (String::new(), "can't be read"),
        (good.replace("\"layout\":1", "\"layout\":2"), "its layout is 2"),
        (good.replace("processingPools", "pools"), "no `processingPools`"),
        (format!("{good}{}", " ".repeat(20_000)), ""),
    ];
    for (text, want) in rows {
        std::fs::write(place.file(), &text).expect("written");
        assert!(read("http://h/c", 1 << 20).contains(want), "{text}");
    }
    std::fs::write(place.file(), good.replace("\"P0\"", &format!("\"{}\"", "P".repeat(9_000))))
        .expect("written");
    assert!(read("http://h/c", 1_024).contains("can't be read"), "a huge file is cut and refused");
}
