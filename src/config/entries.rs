//! `[[pool]]`, `[[queue]]`, `--pool` and `--queue` → the local topology. Pure.

use std::collections::BTreeMap;

use shards::model::Ordering;

use super::error::{ConfigError, Place, meant};
use super::file::{EntryKind, Given, GivenEntry};
use super::read;
use crate::topology::draft::{FieldProblem, PoolDraft, QUEUES_MAX, QueueDraft};
use crate::topology::{PoolEntry, QueueEntry, Topology};

/// Fields of a pool, each with the platform's name for it.
const POOL_FIELDS: [(&str, &str); 5] = [
    ("code", "code"),
    ("concurrency", "concurrency"),
    ("rate-per-minute", "rate-limit-per-minute"),
    ("batch-max", "batch-max"),
    ("ungrouped", "ungrouped"),
];

/// Fields of a queue, each with the platform's name for it.
const QUEUE_FIELDS: [(&str, &str); 6] = [
    ("name", "queue-name"),
    ("uri", "queue-uri"),
    ("connections", "connections"),
    ("visibility", "visibility-timeout"),
    ("ordering", "ordering"),
    ("attempts-max", "attempts-max"),
];

/// A topology, and where each entry was written.
#[derive(Debug, Default)]
pub(super) struct Local {
    pub(super) topology: Topology,
    pub(super) places: BTreeMap<(&'static str, String), Place>,
}

/// Checks entries and adds them up. Within the file a name may stand once; a flag replaces what the file says.
pub(super) fn read_all(entries: &[GivenEntry], pools_max: usize, errors: &mut Vec<ConfigError>) -> Local {
    let mut local = Local::default();
    for entry in entries {
        match entry.kind {
            EntryKind::Pool => {
                let Some(pool) = pool(entry, errors) else { continue };
                match local.claim(entry, &pool.code, "code", errors) {
                    Claim::New => local.topology.pools.push(pool),
                    Claim::Replaces => replace(&mut local.topology.pools, pool, |pool| &pool.code),
                    Claim::Refused => {}
                }
            }
            EntryKind::Queue => {
                let Some(queue) = queue(entry, errors) else { continue };
                match local.claim(entry, &queue.name, "name", errors) {
                    Claim::New => local.topology.queues.push(queue),
                    Claim::Replaces => replace(&mut local.topology.queues, queue, |queue| &queue.name),
                    Claim::Refused => {}
                }
            }
        }
    }
    for (kind, count, max) in [
        (EntryKind::Pool, local.topology.pools.len(), pools_max),
        (EntryKind::Queue, local.topology.queues.len(), QUEUES_MAX),
    ] {
        if let Some(last) = entries.iter().rfind(|entry| entry.kind == kind && count > max) {
            let name = kind.name();
            let problem = format!("{count} of them are written and {max} are allowed; take some away");
            errors.push(ConfigError::new(&last.place, name, problem));
        }
    }
    local
}

/// Whether an entry may have its name.
enum Claim {
    New,
    Replaces,
    Refused,
}

fn replace<T>(list: &mut [T], entry: T, name: impl Fn(&T) -> &String) {
    if let Some(at) = list.iter().position(|own| name(own) == name(&entry)) {
        list[at] = entry;
    }
}

impl Local {
    /// Takes the name, unless the same place has given it before.
    fn claim(&mut self, entry: &GivenEntry, name: &str, field: &str, errors: &mut Vec<ConfigError>) -> Claim {
        let kind = entry.kind.name();
        let before = self.places.insert((kind, name.to_owned()), entry.place.clone());
        match (before, &entry.place) {
            (None, _) => Claim::New,
            (Some(Place::File { .. }), Place::Flag(_)) => Claim::Replaces,
            (Some(before), _) => {
                let problem = format!("{name:?} stands at {before} already; take one of the two away");
                errors.push(ConfigError::new(&entry.place, &format!("{kind}.{field}"), problem));
                Claim::Refused
            }
        }
    }
}

/// The entry's fields under our own names. Unknown and repeated ones are errors.
fn fields<'a>(
    entry: &'a GivenEntry,
    known: &[(&'static str, &str)],
    errors: &mut Vec<ConfigError>,
) -> BTreeMap<&'static str, &'a Given> {
    let mut found: BTreeMap<&'static str, &Given> = BTreeMap::new();
    let kind = entry.kind.name();
    for given in &entry.fields {
        let written = kebab(&given.key);
        let key = format!("{kind}.{}", given.key);
        match known.iter().find(|(own, platform)| *own == written || *platform == written) {
            None => {
                let hint = meant(&written, known.iter().map(|(own, _)| *own));
                errors.push(ConfigError::new(&given.place, &key, format!("is no field of a {kind}{hint}")));
            }
            Some((own, _)) => {
                if found.insert(own, given).is_some() {
                    let problem = format!("says {own} a second time; take one away");
                    errors.push(ConfigError::new(&given.place, &key, problem));
                }
            }
        }
    }
    found
}

/// `rateLimitPerMinute`, `rate_limit_per_minute` → `rate-limit-per-minute`.
fn kebab(written: &str) -> String {
    let mut out = String::with_capacity(written.len() + 4);
    for letter in written.chars() {
        match letter {
            '_' => out.push('-'),
            capital if capital.is_ascii_uppercase() => {
                out.push('-');
                out.push(capital.to_ascii_lowercase());
            }
            other => out.push(other),
        }
    }
    out
}

/// Reads one field, if it is there.
fn field<T>(
    fields: &BTreeMap<&'static str, &Given>,
    kind: EntryKind,
    name: &'static str,
    errors: &mut Vec<ConfigError>,
    read: impl Fn(&str) -> Result<T, String>,
) -> Option<T> {
    let given = fields.get(name)?;
    match read(&given.text) {
        Ok(value) => Some(value),
        Err(problem) => {
            errors.push(ConfigError::new(&given.place, &format!("{}.{name}", kind.name()), problem));
            None
        }
    }
}

fn whole(text: &str) -> Result<i64, String> {
    read::parse(text, "a whole number")
}

fn pool(entry: &GivenEntry, errors: &mut Vec<ConfigError>) -> Option<PoolEntry> {
    let (kind, count) = (entry.kind, errors.len());
    let fields = fields(entry, &POOL_FIELDS, errors);
    let modes = [("one-at-a-time", false), ("parallel", true)];
    let draft = PoolDraft {
        code: fields.get("code").map(|given| given.text.clone()),
        concurrency: field(&fields, kind, "concurrency", errors, whole),
        rate_per_minute: field(&fields, kind, "rate-per-minute", errors, whole),
        batch_max: field(&fields, kind, "batch-max", errors, whole),
        ungrouped_parallel: field(&fields, kind, "ungrouped", errors, |text| read::word(text, &modes))
            .unwrap_or(false),
    };
    if errors.len() > count {
        return None;
    }
    draft.check().map_err(|problems| tell(entry, &fields, problems, errors)).ok()
}

fn queue(entry: &GivenEntry, errors: &mut Vec<ConfigError>) -> Option<QueueEntry> {
    let (kind, count) = (entry.kind, errors.len());
    let fields = fields(entry, &QUEUE_FIELDS, errors);
    let orderings = [
        ("auto", None),
        ("batch", Some(Ordering::Batch)),
        ("strict", Some(Ordering::Strict)),
        ("none", Some(Ordering::None)),
    ];
    let draft = QueueDraft {
        name: fields.get("name").map(|given| given.text.clone()),
        uri: fields.get("uri").map(|given| given.text.clone()),
        connections: field(&fields, kind, "connections", errors, whole),
        visibility: field(&fields, kind, "visibility", errors, read::duration),
        ordering: field(&fields, kind, "ordering", errors, |text| read::word(text, &orderings)).flatten(),
        attempts_max: field(&fields, kind, "attempts-max", errors, whole),
    };
    if errors.len() > count {
        return None;
    }
    draft.check().map_err(|problems| tell(entry, &fields, problems, errors)).ok()
}

fn tell(
    entry: &GivenEntry,
    fields: &BTreeMap<&'static str, &Given>,
    problems: Vec<FieldProblem>,
    errors: &mut Vec<ConfigError>,
) {
    for FieldProblem { field, problem } in problems {
        let place = fields.get(field).map_or(&entry.place, |given| &given.place);
        errors.push(ConfigError::new(place, &format!("{}.{field}", entry.kind.name()), problem));
    }
}

/// The queue that is served when no one says otherwise.
pub(super) fn default_queue() -> QueueEntry {
    let draft = QueueDraft { name: Some("default".into()), ..QueueDraft::default() };
    let draft = QueueDraft { uri: Some("sqlite:corelane.db".into()), ..draft };
    draft.check().expect("the words above are a queue")
}

/// `--queue NAME=URI` as an entry.
pub(super) fn queue_flag(text: &str) -> Result<GivenEntry, ConfigError> {
    let place = Place::Flag("--queue".into());
    let Some((name, uri)) = text.split_once('=') else {
        return Err(ConfigError::new(&place, "queue", "has no `=`; write NAME=URI, orders=sqlite:orders.db"));
    };
    Ok(flag_entry(EntryKind::Queue, &place, [("name", name), ("uri", uri)]))
}

/// `--pool CODE=CONCURRENCY[,RATE/min]` as an entry.
pub(super) fn pool_flag(text: &str) -> Result<GivenEntry, ConfigError> {
    let place = Place::Flag("--pool".into());
    let wrong = || {
        let problem =
            format!("{text:?} is not CODE=CONCURRENCY[,RATE/min]; write ORDERS=20 or ORDERS=20,600/min");
        ConfigError::new(&place, "pool", problem)
    };
    let (code, rest) = text.split_once('=').ok_or_else(wrong)?;
    let Some((concurrency, rate)) = rest.split_once(',') else {
        return Ok(flag_entry(EntryKind::Pool, &place, [("code", code), ("concurrency", rest)]));
    };
    let rate = rate.trim().strip_suffix("/min").ok_or_else(wrong)?;
    let fields = [("code", code), ("concurrency", concurrency), ("rate-per-minute", rate)];
    Ok(flag_entry(EntryKind::Pool, &place, fields))
}

fn flag_entry<const N: usize>(kind: EntryKind, place: &Place, fields: [(&str, &str); N]) -> GivenEntry {
    let given = |(key, text): (&str, &str)| Given {
        key: key.to_owned(),
        text: text.trim().to_owned(),
        place: place.clone(),
    };
    GivenEntry { kind, fields: fields.into_iter().map(given).collect(), place: place.clone() }
}
