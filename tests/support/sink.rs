//! The scripted sink in this process, with a log that tells what arrived in which order.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use corelane::sink::{Options, Sink, start};

/// A sink and its log; both end with it.
pub(crate) struct Target {
    pub(crate) sink: Sink,
    log: PathBuf,
}

/// A line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) at_ns: u128,
    pub(crate) number: u64,
    pub(crate) status: u16,
}

impl Target {
    pub(crate) fn start() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("corelane-it-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let log = std::env::temp_dir().join(name);
        let sink = start(&Options { log: Some(log.clone()), ..Options::default() }).expect("the sink starts");
        Self { sink, log }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.sink.address())
    }

    /// What was answered, in order.
    pub(crate) fn answered(&self) -> Vec<Answered> {
        let text = std::fs::read_to_string(&self.log).expect("the sink's log");
        let line = |line: &str| {
            let mut words = line.split('\t');
            let at_ns = words.next()?.parse().ok()?;
            let number = words.next()?.parse().ok()?;
            Some(Answered { at_ns, number, status: words.nth(1)?.parse().ok()? })
        };
        text.lines().map(|text| line(text).unwrap_or_else(|| panic!("a line of the log: {text}"))).collect()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.log);
    }
}

/// Fails unless every group's messages arrived once each and in the order of their numbers.
pub(crate) fn assert_in_order(answered: &[Answered], group_of: impl Fn(u64) -> u64) {
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    for line in answered {
        if let Some(before) = last.insert(group_of(line.number), line.number) {
            assert!(before < line.number, "S3: {} came after {before} in one group", line.number);
        }
    }
}
