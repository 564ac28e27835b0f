//! HTTP dates (RFC 9110, 5.6.7) as Unix seconds. Pure.
//! Core: any. Owns: nothing. All three forms: IMF-fixdate, RFC 850, asctime.

/// Reads a date. `now_s` (Unix seconds) decides the century of RFC 850's two-digit years.
pub(super) fn parse(text: &[u8], now_s: u64) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let mut words = text.split(' ').filter(|word| !word.is_empty());
    let first = words.next()?;
    let date = if first.len() == 4 && first.ends_with(',') {
        imf(&mut words)?
    } else if first.ends_with(',') {
        rfc850(&mut words, now_s)?
    } else {
        asctime(&mut words)?
    };
    words.next().is_none().then_some(date)
}

fn imf<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<u64> {
    let day = digits(words.next()?, 2)?;
    let month = month(words.next()?)?;
    let year = digits(words.next()?, 4)?;
    let time = time(words.next()?)?;
    (words.next()? == "GMT").then(|| unix(year, month, day, time))?
}

fn rfc850<'a>(words: &mut impl Iterator<Item = &'a str>, now_s: u64) -> Option<u64> {
    let mut parts = words.next()?.split('-');
    let day = digits(parts.next()?, 2)?;
    let month = month(parts.next()?)?;
    let short = digits(parts.next()?, 2)?;
    let time = time(words.next()?)?;
    if parts.next().is_some() || words.next()? != "GMT" {
        return None;
    }
    let this_year = year_of(now_s);
    let year = this_year - this_year % 100 + short;
    // A year that seems more than 50 years ahead is the last such year in the past.
    unix(if year > this_year + 50 { year - 100 } else { year }, month, day, time)
}

fn asctime<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<u64> {
    let month = month(words.next()?)?;
    let day = words.next()?;
    let day = digits(day, day.len().clamp(1, 2))?;
    let time = time(words.next()?)?;
    unix(digits(words.next()?, 4)?, month, day, time)
}

fn digits(text: &str, len: usize) -> Option<u64> {
    (text.len() == len && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

fn month(name: &str) -> Option<u64> {
    const NAMES: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    NAMES.iter().zip(1..).find(|(known, _)| **known == name).map(|(_, number)| number)
}

/// Seconds of the day. 60 is allowed for leap seconds.
fn time(text: &str) -> Option<u64> {
    let mut parts = text.split(':');
    let (hour, minute, second) =
        (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    (parts.next().is_none() && hour < 24 && minute < 60 && second <= 60)
        .then_some(hour * 3600 + minute * 60 + second)
}

fn unix(year: u64, month: u64, day: u64, time: u64) -> Option<u64> {
    if year < 1970 || !(1..=31).contains(&day) {
        return None;
    }
    Some(days(year, month, day) * 86_400 + time)
}

/// Days since 1970-01-01 in the Gregorian calendar, with years that begin in March.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468
}

/// The year of a Unix time, near enough for choosing a century.
fn year_of(unix_s: u64) -> u64 {
    1970 + unix_s / 31_556_952
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_forms_are_read() {
        let now = 1_794_000_000; // 2026
        let rows: [(&str, Option<u64>); 17] = [
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(784_111_777)),
            ("Sun Nov  6 08:49:37 1994", Some(784_111_777)),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
            ("Thu, 29 Feb 2024 12:00:00 GMT", Some(1_709_208_000)),
            ("Friday, 31-Dec-99 23:59:59 GMT", Some(946_684_799)),
            ("Tuesday, 01-Jan-30 00:00:00 GMT", Some(1_893_456_000)),
            ("Sun Nov 16 08:49:37 1994", Some(784_975_777)),
            ("Sun, 06 Nov 1994 08:49:37 CET", None),
            ("Sun, 06 Nov 1994 24:49:37 GMT", None),
            ("Sun, 6 Nov 1994 08:49:37 GMT", None),
            ("Sun, 06 Nov 1969 08:49:37 GMT", None),
            ("Sun, 06 Nov 1994 08:49:37 GMT x", None),
            ("Sun, 00 Nov 1994 08:49:37 GMT", None),
            ("", None),
            ("soon", None),
            ("Sun, 06 \u{b5}", None),
        ];
        for (text, want) in rows {
            assert_eq!(parse(text.as_bytes(), now), want, "{text}");
        }
    }
}
