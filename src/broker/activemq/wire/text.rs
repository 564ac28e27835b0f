//! Java's modified UTF-8: NUL takes two bytes, and a character beyond the basic plane is two surrogates of three bytes each.

use super::basic::WireError;

/// Reads a whole text. A lone surrogate, which Java allows, becomes U+FFFD.
pub(super) fn read(bytes: &[u8]) -> Result<String, WireError> {
    if !bytes.contains(&0xED)
        && !bytes.contains(&0xC0)
        && let Ok(plain) = std::str::from_utf8(bytes)
    {
        return Ok(plain.to_owned());
    }
    let mut units = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter().copied();
    let next = |rest: &mut std::iter::Copied<std::slice::Iter<'_, u8>>| match rest.next() {
        Some(byte) if byte & 0xC0 == 0x80 => Ok(u16::from(byte & 0x3F)),
        _ => Err(WireError::Text),
    };
    while let Some(first) = rest.next() {
        units.push(match first {
            0..=0x7F => u16::from(first),
            0xC0..=0xDF => u16::from(first & 0x1F) << 6 | next(&mut rest)?,
            0xE0..=0xEF => u16::from(first & 0x0F) << 12 | next(&mut rest)? << 6 | next(&mut rest)?,
            _ => return Err(WireError::Text),
        });
    }
    Ok(String::from_utf16_lossy(&units))
}

/// Writes a text, no more than `max` bytes of it and no character in part.
pub(super) fn write(text: &str, max: usize, out: &mut Vec<u8>) {
    let start = out.len();
    let mut units = [0; 2];
    for letter in text.chars() {
        let before = out.len();
        match letter {
            '\0' => out.extend_from_slice(&[0xC0, 0x80]),
            '\u{1}'..='\u{7F}' => out.push(letter as u8),
            _ => letter.encode_utf16(&mut units).iter().for_each(|&unit| push_unit(unit, out)),
        }
        if out.len() - start > max {
            out.truncate(before);
            return;
        }
    }
}

fn push_unit(unit: u16, out: &mut Vec<u8>) {
    let [high, low] = unit.to_be_bytes();
    let middle = (high & 0x0F) << 2 | low >> 6;
    if unit < 0x800 {
        out.extend_from_slice(&[0xC0 | middle, 0x80 | low & 0x3F]);
    } else {
        out.extend_from_slice(&[0xE0 | high >> 4, 0x80 | middle, 0x80 | low & 0x3F]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_written_as_java_does() {
        let rows: [(&str, &[u8]); 6] = [
            ("", b""),
            ("plain", b"plain"),
            ("\0", b"\xC0\x80"),
            ("é", b"\xC3\xA9"),
            ("€", b"\xE2\x82\xAC"),
            ("😀", b"\xED\xA0\xBD\xED\xB8\x80"),
        ];
        for (text, bytes) in rows {
            let mut out = Vec::new();
            write(text, 100, &mut out);
            assert_eq!(out, bytes, "{text:?}");
            assert_eq!(read(bytes).as_deref(), Ok(text));
        }
        assert_eq!(read(b"\xED\xA0\xBD!").as_deref(), Ok("\u{FFFD}!"), "half a pair");
        for bad in [&b"\xC3"[..], b"\xE2\x82", b"\xFF", b"\x80", b"\xC3\x29", b"\xF0\x9F\x98"] {
            assert_eq!(read(bad), Err(WireError::Text), "{bad:?}");
        }
    }

    #[test]
    fn a_text_that_is_too_long_is_cut_between_characters() {
        let mut out = Vec::new();
        write("a€😀", 9, &mut out);
        assert_eq!(out, b"a\xE2\x82\xAC");
    }
}
