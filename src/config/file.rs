//! A TOML text → what it gives, key by key, each with its line. Pure. It knows no key: names are judged later.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Place};
use super::keys;

/// A value that someone wrote for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    /// Dotted, as written.
    pub(super) key: String,
    /// As words: lists by commas.
    pub(super) text: String,
    /// Where.
    pub(super) place: Place,
}

/// A `[[pool]]` or `[[queue]]` that someone wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GivenEntry {
    pub(super) kind: EntryKind,
    /// Its fields; the key is the field's name.
    pub(super) fields: Vec<Given>,
    /// Where it starts.
    pub(super) place: Place,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    Pool,
    Queue,
}

impl EntryKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Queue => "queue",
        }
    }
}

/// All that a text gives.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parsed {
    pub(super) values: Vec<Given>,
    pub(super) entries: Vec<GivenEntry>,
    pub(super) errors: Vec<ConfigError>,
}

/// Reads a TOML text. A text with a syntax error gives its errors and no values: half a file means nothing.
pub(super) fn parse(path: &Path, text: &str) -> Parsed {
    let (table, errors) = DeTable::parse_recoverable(text);
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let at = |offset: usize| Place::File {
        path: path.to_owned(),
        line: ends.partition_point(|end| *end < offset) + 1,
    };
    let mut parsed = Parsed::default();
    if errors.is_empty() {
        let mut reader = Reader { at: &at, parsed: &mut parsed };
        reader.table("", table.get_ref(), 0);
    } else {
        parsed.errors = errors
            .iter()
            .map(|error| {
                let place = at(error.span().map_or(0, |span| span.start));
                ConfigError::new(&place, "syntax", format!("{}; see https://toml.io", error.message()))
            })
            .collect();
    }
    // The map is sorted by name; people read by line.
    parsed.values.sort_by(|left, right| left.place.cmp(&right.place));
    parsed
}

/// Deepest nesting of sections.
const DEPTH_MAX: usize = 8;

struct Reader<'a> {
    at: &'a dyn Fn(usize) -> Place,
    parsed: &'a mut Parsed,
}

impl Reader<'_> {
    fn table(&mut self, above: &str, table: &DeTable<'_>, depth: usize) {
        for (name, value) in table {
            let key = match above {
                "" => name.get_ref().to_string(),
                above => format!("{above}.{}", name.get_ref()),
            };
            let place = (self.at)(name.span().start);
            match (key.as_str(), value.get_ref()) {
                ("pool", list) => self.entries(EntryKind::Pool, list, &place),
                ("queue", list) => self.entries(EntryKind::Queue, list, &place),
                (_, DeValue::Table(below)) if keys::find(&key).is_none() => {
                    if depth < DEPTH_MAX {
                        self.table(&key, below, depth + 1);
                    } else {
                        let problem = format!("is nested more than {DEPTH_MAX} deep");
                        self.parsed.errors.push(ConfigError::new(&place, &key, problem));
                    }
                }
                (_, value) => match words(value) {
                    Ok(text) => self.parsed.values.push(Given { key, text, place }),
                    Err(problem) => self.parsed.errors.push(ConfigError::new(&place, &key, problem)),
                },
            }
        }
    }

    fn entries(&mut self, kind: EntryKind, value: &DeValue<'_>, place: &Place) {
        let name = kind.name();
        let wrong = |place: &Place| {
            let problem = format!("is not a list of sections; write [[{name}]] with two brackets");
            ConfigError::new(place, name, problem)
        };
        let DeValue::Array(list) = value else { return self.parsed.errors.push(wrong(place)) };
        for entry in list {
            let start = (self.at)(entry.span().start);
            let DeValue::Table(table) = entry.get_ref() else {
                self.parsed.errors.push(wrong(&start));
                continue;
            };
            let mut fields = Vec::new();
            for (field, value) in table {
                let place = (self.at)(field.span().start);
                match words(value.get_ref()) {
                    Ok(text) => fields.push(Given { key: field.get_ref().to_string(), text, place }),
                    Err(problem) => {
                        let key = format!("{name}.{}", field.get_ref());
                        self.parsed.errors.push(ConfigError::new(&place, &key, problem));
                    }
                }
            }
            self.parsed.entries.push(GivenEntry { kind, fields, place: start });
        }
    }
}

/// A value as words.
fn words(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Boolean(yes) => Ok(yes.to_string()),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Ok(number.to_string()),
            Err(_) => Ok(number.as_str().to_owned()),
        },
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        DeValue::Datetime(date) => Ok(date.to_string()),
        DeValue::Array(list) => {
            let words: Result<Vec<String>, String> = list.iter().map(|item| words(item.get_ref())).collect();
            Ok(words?.join(","))
        }
        DeValue::Table(_) => Err("is a section here; write a value, key = value".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<(String, String, String)> {
        let parsed = parse(Path::new("c.toml"), text);
        assert_eq!(parsed.errors, Vec::new(), "{text}");
        parsed.values.into_iter().map(|given| (given.key, given.text, given.place.to_string())).collect()
    }

    #[test]
    fn every_way_to_write_a_dotted_key_gives_the_same() {
        for text in [
            "[mediator.http]\ntimeout.ms = 1_500",
            "\nmediator.http.timeout.ms = 1500",
            "\nmediator = { http = { timeout = { ms = 0x5dc } } }",
            "[mediator]\n\"http.timeout.ms\" = \"1500\"",
        ] {
            let want = ("mediator.http.timeout.ms".into(), "1500".into(), "c.toml:2".into());
            assert_eq!(values(text), [want], "{text}");
        }
    }

    #[test]
    fn lists_become_words_by_commas_and_entries_keep_their_lines() {
        assert_eq!(values("[admin]\nhosts = [\"a\", \"b\"]")[0].1, "a,b");
        let parsed = parse(Path::new("c.toml"), "[[pool]]\ncode = \"A\"\n\n[[queue]]\nname = \"q\"\n");
        let shown: Vec<_> =
            parsed.entries.iter().map(|entry| (entry.kind, entry.place.to_string())).collect();
        assert_eq!(shown, [(EntryKind::Pool, "c.toml:1".into()), (EntryKind::Queue, "c.toml:4".into())]);
        assert_eq!(parsed.entries[1].fields[0].place.to_string(), "c.toml:5");
    }

    #[test]
    fn what_is_no_toml_is_told_by_line() {
        let rows = [
            ("a = 1\nb = \nc = 2", "c.toml:2"),
            ("[pool]\ncode = \"A\"", "two brackets"),
            ("pool = [1]", "two brackets"),
            ("a = 1\na = 2", "c.toml:2"),
            ("[mediator.http.timeout.ms]\nx = 1", "is a section"),
            ("[[pool]]\ncode = { a = 1 }", "is a section"),
        ];
        for (text, want) in rows {
            let errors = parse(Path::new("c.toml"), text).errors;
            assert!(errors.iter().any(|error| error.to_string().contains(want)), "{text}: {errors:?}");
        }
        for deep in [format!("a = {}", "[".repeat(100_000)), format!("a{} = 1", ".a".repeat(100_000))] {
            assert!(!parse(Path::new("c.toml"), &deep).errors.is_empty(), "nesting is bounded");
        }
        let deep = format!("{} = 1", vec!["a"; 20].join("."));
        assert!(parse(Path::new("c.toml"), &deep).errors[0].problem.contains("deep"));
    }
}
