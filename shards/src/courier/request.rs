//! Writes a request's bytes. Pure; allocates nothing once the buffer has grown, formats nothing.
//! Core: its shard's. Owns: nothing.
//!
//! - R1: what goes into the head was checked when the parcel was made (P1), so that no field can end
//!   its line.
//! - R2: the same message gives the same trace id on every attempt and a new span id on each.

use crate::model::{Parcel, Target};

/// Width of a length that is filled in once a batch's bodies are written; 16 MiB × 1,024 has 11 digits.
const LENGTH_DIGITS: usize = 12;
/// What multiplication alone does to short ids is too regular: odd constants from the golden ratio and π.
const MIX: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0x2437_54d1_c8f3_a3a5];

/// The header lines that are the same for every request to an origin.
#[must_use]
pub(super) fn constant_lines(target: &Target<'_>) -> Vec<u8> {
    let authority = target.origin.split_once("://").map_or("", |(_, authority)| authority);
    [b" HTTP/1.1\r\nhost: ", authority.as_bytes(), b"\r\naccept: application/json\r\ncontent-type: "].concat()
}

/// Appends the request for `first` and, if there are any, `rest`: then the body is a JSON array of all bodies.
pub(super) fn write(
    out: &mut Vec<u8>,
    constant_lines: &[u8],
    first: &Parcel,
    rest: &mut dyn Iterator<Item = &'_ Parcel>,
    attempt: u16,
) {
    write_head(out, constant_lines, first, attempt);
    match rest.next() {
        None => write_single(out, first.body()),
        Some(second) => write_batch(out, first, second, rest),
    }
}

fn write_head(out: &mut Vec<u8>, constant_lines: &[u8], parcel: &Parcel, attempt: u16) {
    out.extend_from_slice(b"POST ");
    out.extend_from_slice(if parcel.path().is_empty() { b"/" } else { parcel.path() });
    debug_assert!(parcel.path().iter().all(|byte| (0x21..=0x7e).contains(byte)), "R1: the path is one word");
    out.extend_from_slice(constant_lines);
    write_value(
        out,
        if parcel.content_type().is_empty() { b"application/json" } else { parcel.content_type() },
    );
    if !parcel.token().is_empty() {
        out.extend_from_slice(b"\r\nauthorization: Bearer ");
        write_value(out, parcel.token());
    }
    out.extend_from_slice(b"\r\nidempotency-key: ");
    write_value(out, parcel.id());
    out.extend_from_slice(b"\r\ncorelane-attempt: ");
    write_number(out, u64::from(attempt));
    out.extend_from_slice(b"\r\ntraceparent: 00-");
    let (trace, span) = trace(parcel.id(), attempt);
    write_hex(out, trace[0]);
    write_hex(out, trace[1]);
    out.push(b'-');
    write_hex(out, span);
    out.extend_from_slice(b"-01\r\ncontent-length: ");
}

fn write_single(out: &mut Vec<u8>, body: &[u8]) {
    write_number(out, body.len() as u64);
    out.extend_from_slice(b"\r\n\r\n");
    out.extend_from_slice(body);
}

/// The iterator can be walked only once, so the length is filled in afterwards, behind spaces that
/// HTTP allows before a value.
fn write_batch(
    out: &mut Vec<u8>,
    first: &Parcel,
    second: &Parcel,
    rest: &mut dyn Iterator<Item = &'_ Parcel>,
) {
    let length_at = out.len();
    out.extend_from_slice(&[b' '; LENGTH_DIGITS]);
    out.extend_from_slice(b"\r\n\r\n[");
    out.extend_from_slice(first.body());
    out.push(b',');
    out.extend_from_slice(second.body());
    for parcel in rest {
        out.push(b',');
        out.extend_from_slice(parcel.body());
    }
    out.push(b']');
    let mut length = out.len() - length_at - LENGTH_DIGITS - 4;
    for at in (length_at..length_at + LENGTH_DIGITS).rev() {
        out[at] = digit(length % 10);
        length /= 10;
        if length == 0 {
            break;
        }
    }
    debug_assert_eq!(length, 0, "R1: the length fits its place");
}

fn write_value(out: &mut Vec<u8>, value: &[u8]) {
    debug_assert!(value.iter().all(|byte| (0x20..=0x7e).contains(byte)), "R1: a value stays on its line");
    out.extend_from_slice(value);
}

fn write_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = digit((number % 10) as usize);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

fn digit(value: usize) -> u8 {
    b"0123456789"[value]
}

fn write_hex(out: &mut Vec<u8>, number: u64) {
    let mut hex = [0; 16];
    for (place, byte) in hex.chunks_exact_mut(2).zip(number.to_be_bytes()) {
        place[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
        place[1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
    out.extend_from_slice(&hex);
}

/// A trace id from the message id and a span id from id and attempt; neither is ever zero, which
/// would mean "none".
fn trace(id: &[u8], attempt: u16) -> ([u64; 2], u64) {
    let (mut high, mut low) = (MIX[0], MIX[1] ^ id.len() as u64);
    for chunk in id.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let word = u64::from_le_bytes(word);
        high = fold(high ^ word, MIX[1]);
        low = fold(low.rotate_left(23) ^ word, MIX[0]);
    }
    let span = fold(high ^ low.rotate_left(32) ^ u64::from(attempt), MIX[0] ^ u64::from(attempt));
    ([high, low | 1], span | 1)
}

/// Both halves of the product, so that every input bit reaches every output bit.
#[expect(clippy::cast_possible_truncation, reason = "the two halves of a 128-bit product")]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64 ^ a.rotate_left(17)
}

#[cfg(test)]
mod tests;
