//! Values of the flags. Pure.

use std::path::PathBuf;

pub(super) fn reason(text: &str) -> Result<String, String> {
    let reason = text.to_ascii_uppercase();
    match reason.as_str() {
        "REFUSED" | "EXHAUSTED" | "MALFORMED" => Ok(reason),
        _ => Err("write REFUSED, EXHAUSTED or MALFORMED".to_owned()),
    }
}

pub(super) fn time(text: &str) -> Result<u64, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(seconds);
    }
    let time = humantime::parse_rfc3339_weak(text)
        .map_err(|_| "write 2026-01-31T12:00:00Z or seconds since 1970".to_owned())?;
    Ok(time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs())
}

pub(super) fn queue_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => {
            Ok((name.to_owned(), PathBuf::from(file)))
        }
        _ => Err("write NAME=FILE".to_owned()),
    }
}
