//! The repository's files as text, and what of a Rust file is code.

use std::fs;
use std::path::{Path, PathBuf};

/// A file of the repository: its path from the root, its text, and for Rust its text without comments and
/// without what stands in quotes.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) code: String,
}

impl File {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned(), code: code_of(text) }
    }

    pub(crate) fn is_under(&self, folder: &str) -> bool {
        self.path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
    }

    pub(crate) fn is_rust(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|end| end == "rs")
    }
}

/// Built, fetched or not ours.
const SKIPPED: [&str; 5] = ["target", ".git", "node_modules", "out", ".idea"];

pub(crate) fn files() -> Vec<File> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let (mut found, mut folders) = (Vec::new(), vec![root.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if !SKIPPED.contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if name != ".git"
                && let Ok(text) = fs::read_to_string(&path)
            {
                let path = path.strip_prefix(&root).expect("below the root").to_string_lossy().into_owned();
                found.push(File::new(&path, &text));
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 100, "only {} files found: is this the repository?", found.len());
    found
}

/// Blanks comments and quoted text, keeps lines and lengths.
fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match (bytes[at], bytes.get(at + 1)) {
            (b'/', Some(b'/')) => text[at..].find('\n').map_or(bytes.len(), |end| at + end),
            (b'/', Some(b'*')) => block_comment_end(bytes, at),
            (b'r', Some(b'"' | b'#')) if !is_word(bytes, at.wrapping_sub(1)) => raw_string_end(text, at),
            (b'"', _) => quoted_end(bytes, at, b'"'),
            (b'\'', _) => char_end(text, at),
            _ => at,
        };
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8_lossy(&out).into_owned()
}

pub(crate) fn is_word(bytes: &[u8], at: usize) -> bool {
    bytes.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    while at < bytes.len() {
        match bytes.get(at..at + 2) {
            Some(b"/*") => (at, depth) = (at + 2, depth + 1),
            Some(b"*/") => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn raw_string_end(text: &str, start: usize) -> usize {
    let hashes = text[start + 1..].bytes().take_while(|byte| *byte == b'#').count();
    if text.as_bytes().get(start + 1 + hashes) != Some(&b'"') {
        return start;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let body = start + 2 + hashes;
    text[body..].find(&close).map_or(text.len(), |end| body + end + close.len())
}

fn quoted_end(bytes: &[u8], start: usize, quote: u8) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

/// The end of a character; a lifetime is left alone.
fn char_end(text: &str, start: usize) -> usize {
    let mut rest = text[start + 1..].char_indices();
    match rest.next() {
        Some((_, '\\')) => quoted_end(text.as_bytes(), start, b'\''),
        Some(_) => match rest.next() {
            Some((at, '\'')) => start + 1 + at + 1,
            _ => start,
        },
        None => start,
    }
}

pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

#[test]
fn quotes_and_comments_are_no_code() {
    let rows = [
        ("a // unsafe\nb", "a          \nb"),
        ("a /* b /* c */ d */ e", "a                   e"),
        (r#"f("unsafe \" x", y)"#, "f(             , y)"),
        ("r#\"a\"b\"# c", "         c"),
        ("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)"),
        ("('\"', '\\'', 'x')", "(   ,     ,    )"),
    ];
    for (text, want) in rows {
        assert_eq!(code_of(text), want, "{text}");
    }
}
