//! Words → values: numbers in a range, durations with a unit, sizes, yes and no. Pure. Every refusal says what to
//! write instead and repeats the word, except where a key is secret.

use std::str::FromStr;
use std::time::Duration;

use http::Uri;

/// Longest duration accepted: far more than anyone waits, and far from any overflow.
const DURATION_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// `true` or `false`, and what people write for them.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err(format!("{text:?} is neither true nor false")),
    }
}

/// A whole number in a range; `_` may group digits.
pub(super) fn number<N: TryFrom<u64>>(text: &str, min: u64, max: u64) -> Result<N, String> {
    let wrong = || format!("{text:?} is not a number from {min} to {max}");
    let number: u64 = text.replace('_', "").parse().map_err(|_| wrong())?;
    if !(min..=max).contains(&number) {
        return Err(wrong());
    }
    N::try_from(number).map_err(|_| wrong())
}

/// A duration with its unit: `100ms`, `30s`, `5m`, `11h 30m`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    if text.parse::<f64>().is_ok_and(|number| number != 0.0) {
        return Err(format!("{text:?} has no unit; write {text}ms, {text}s, {text}m or {text}h"));
    }
    let duration = match text {
        "0" => Duration::ZERO,
        _ => humantime::parse_duration(text)
            .map_err(|_| format!("{text:?} is not a duration; write one such as 100ms, 30s or 5m"))?,
    };
    if duration > DURATION_MAX {
        return Err(format!("{text:?} is longer than 30 days"));
    }
    Ok(duration)
}

/// A duration of at least `min`.
pub(super) fn duration_from(text: &str, min: Duration) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration < min {
        return Err(format!("{text:?} is too short; write at least {}", humantime::format_duration(min)));
    }
    Ok(duration)
}

/// Bytes: `4096`, `64KiB`, `256MiB`, `2GiB`, or thousands as `64kB`, `256MB`, `2GB`.
pub(super) fn size(text: &str, min: u64, max: u64) -> Result<usize, String> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '_').unwrap_or(text.len());
    let (count, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return Err(format!("{text:?} is not a size; write one such as 64KiB or 256MiB")),
    };
    let bytes = count.replace('_', "").parse::<u64>().ok().and_then(|count| count.checked_mul(factor));
    let bytes = bytes.ok_or_else(|| format!("{text:?} is not a size; write one such as 64KiB or 256MiB"))?;
    if !(min..=max).contains(&bytes) {
        return Err(format!("{text:?} is not between {} and {}", show_size(min), show_size(max)));
    }
    usize::try_from(bytes).map_err(|_| format!("{text:?} is more than this machine can address"))
}

fn show_size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 30 => format!("{}GiB", bytes >> 30),
        _ if bytes >= 1 << 20 => format!("{}MiB", bytes >> 20),
        _ if bytes >= 1 << 10 => format!("{}KiB", bytes >> 10),
        _ => format!("{bytes}B"),
    }
}

/// One of a few words; capital letters do not matter.
pub(super) fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
    found.map(|(_, value)| *value).ok_or_else(|| {
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("{text:?} is not one of: {}", all.join(", "))
    })
}

/// Anything that reads itself, with the hint of what it looks like.
pub(super) fn parse<T: FromStr>(text: &str, looks: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is not {looks}"))
}

/// An `http` or `https` URL. The refusal never repeats it: a password may stand in it.
pub(super) fn url(text: &str) -> Result<(), String> {
    let uri: Uri = text.parse().map_err(|_| "is not a URL; write http://… or https://…".to_owned())?;
    match uri.scheme_str() {
        Some("http" | "https") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(()),
        _ => Err("is not an http or https URL with a host; write http://… or https://…".into()),
    }
}

/// A secret that can stand in a header. The refusal never repeats it.
pub(super) fn secret(text: &str) -> Result<String, String> {
    if text.len() > 4096 {
        return Err("is longer than 4096 bytes".into());
    }
    if text.bytes().all(|byte| (0x21..0x7f).contains(&byte)) {
        return Ok(text.to_owned());
    }
    Err("holds a space or a character that no HTTP header can carry; write visible ASCII".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_carry_a_unit() {
        let rows = [
            ("5m", Some(300_000)),
            ("30s", Some(30_000)),
            ("100ms", Some(100)),
            ("11h 30m", Some(41_400_000)),
            ("11h30m", Some(41_400_000)),
            ("0", Some(0)),
            ("0s", Some(0)),
            ("30", None),
            ("-1s", None),
            ("soon", None),
            ("", None),
            ("400d", None),
            ("99999999999999999999s", None),
        ];
        for (text, want) in rows {
            assert_eq!(duration(text).ok(), want.map(Duration::from_millis), "{text}");
        }
        assert!(duration("30").is_err_and(|error| error.contains("30s")), "it says what to write");
    }

    #[test]
    fn sizes_carry_a_unit_or_mean_bytes() {
        let rows = [
            ("4096", Some(4096)),
            ("64KiB", Some(65_536)),
            ("64 kib", Some(65_536)),
            ("1kB", Some(1_000)),
            ("2GiB", Some(2 << 30)),
            ("1_024", Some(1_024)),
            ("1TiB", None),
            ("MiB", None),
            ("-1", None),
            ("1.5MiB", None),
            ("99999999999GiB", None),
        ];
        for (text, want) in rows {
            assert_eq!(size(text, 0, 1 << 40).ok(), want, "{text}");
        }
        assert!(size("1", 10, 20).is_err() && size("21", 10, 20).is_err());
    }

    #[test]
    fn refusals_name_what_would_be_right_and_never_a_secret() {
        assert!(number::<u8>("0", 1, 32).is_err_and(|error| error.contains("1 to 32")));
        assert_eq!(number::<u32>("10_000", 1, 20_000), Ok(10_000));
        assert!(switch("maybe").is_err() && switch("On") == Ok(true) && switch("0") == Ok(false));
        assert!(word("x", &[("auto", 1), ("text", 2)]).is_err_and(|error| error.contains("auto, text")));
        for bad in ["ftp://u:hunter2@h/x", "hunter2", "http://", "http:// hunter2", ""] {
            assert!(url(bad).is_err_and(|error| !error.contains("hunter2")), "{bad}");
        }
        assert!(secret("hunter2 ").is_err_and(|error| !error.contains("hunter2")));
    }
}
