//! Marshalled maps: a message's properties, the body of a map message, and what both sides say when they connect.

use super::basic::{Reader, WireError, Writer};
use super::text;

/// Maps in maps: far more than anyone nests, and a bound for a hostile one.
const DEPTH_MAX: u32 = 16;
/// Values in a map, inner ones included: a value takes more memory than the byte that may announce it.
const VALUES_MAX: usize = 65_536;

/// A value of a map.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) enum Value {
    Null,
    Bool(bool),
    Byte(u8),
    Char(u16),
    Short(u16),
    Int(i32),
    Long(i64),
    /// Their bits, so that what is written back is what was read.
    Double(i64),
    Float(i32),
    Text(String),
    Bytes(Vec<u8>),
    Map(Map),
    List(Vec<Value>),
    /// A text of more than 64 KiB.
    BigText(String),
}

impl Value {
    /// A whole number of any width.
    pub(in super::super) fn number(&self) -> Option<i64> {
        match *self {
            Self::Byte(value) => Some(i64::from(value.cast_signed())),
            Self::Short(value) => Some(i64::from(value.cast_signed())),
            Self::Int(value) => Some(i64::from(value)),
            Self::Long(value) => Some(value),
            _ => None,
        }
    }

    pub(in super::super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::BigText(text) => Some(text),
            _ => None,
        }
    }
}

/// Names and values, in the order in which they stand.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in super::super) struct Map(pub(super) Vec<(String, Value)>);

impl Map {
    /// Reads a whole map; no bytes at all are an empty one.
    pub(in super::super) fn read(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.is_empty() { Ok(Self::default()) } else { Reading::new(bytes).map(0) }
    }

    pub(in super::super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    /// Sets a value, in the place of an old one or last.
    pub(in super::super) fn set(&mut self, name: &str, value: Value) {
        match self.0.iter_mut().find(|(other, _)| other == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    pub(in super::super) fn remove(&mut self, name: &str) {
        self.0.retain(|(other, _)| other != name);
    }

    pub(in super::super) fn write(&self) -> Vec<u8> {
        let mut out = Writer::default();
        write_map(self, &mut out);
        out.out
    }
}

/// Finds a text in a marshalled map without keeping the rest of it.
pub(in super::super) fn find_text(bytes: &[u8], name: &str) -> Option<String> {
    let mut reading = Reading::new(bytes);
    for _ in 0..reading.from.i32().ok()? {
        let found = reading.from.short_bytes().ok()? == name.as_bytes();
        let value = reading.value(0).ok()?;
        if found {
            return value.text().map(str::to_owned);
        }
    }
    None
}

struct Reading<'a> {
    from: Reader<'a>,
    values_left: usize,
}

impl<'a> Reading<'a> {
    const fn new(bytes: &'a [u8]) -> Self {
        Self { from: Reader::new(bytes), values_left: VALUES_MAX }
    }

    /// Nothing is allocated by a count alone: each entry is read before the next.
    fn map(&mut self, depth: u32) -> Result<Map, WireError> {
        let mut entries = Vec::new();
        for _ in 0..self.from.i32()? {
            let name = self.from.short_text()?;
            entries.push((name, self.value(depth)?));
        }
        Ok(Map(entries))
    }

    fn list(&mut self, depth: u32) -> Result<Vec<Value>, WireError> {
        let mut values = Vec::new();
        for _ in 0..self.from.i32()? {
            values.push(self.value(depth)?);
        }
        Ok(values)
    }

    fn value(&mut self, depth: u32) -> Result<Value, WireError> {
        self.values_left = self.values_left.checked_sub(1).ok_or(WireError::Depth)?;
        let from = &mut self.from;
        Ok(match from.u8()? {
            0 => Value::Null,
            1 => Value::Bool(from.bool()?),
            2 => Value::Byte(from.u8()?),
            3 => Value::Char(from.u16()?),
            4 => Value::Short(from.u16()?),
            5 => Value::Int(from.i32()?),
            6 => Value::Long(from.i64()?),
            7 => Value::Double(from.i64()?),
            8 => Value::Float(from.i32()?),
            9 => Value::Text(from.short_text()?),
            10 => {
                let count = from.length()?;
                Value::Bytes(from.take(count)?.to_vec())
            }
            11 | 12 if depth >= DEPTH_MAX => return Err(WireError::Depth),
            11 => Value::Map(self.map(depth + 1)?),
            12 => Value::List(self.list(depth + 1)?),
            13 => {
                let count = from.length()?;
                Value::BigText(text::read(from.take(count)?)?)
            }
            other => return Err(WireError::Type(other)),
        })
    }
}

fn write_map(map: &Map, out: &mut Writer) {
    out.length(map.0.len());
    for (name, value) in &map.0 {
        out.short_text(name);
        write_value(value, out);
    }
}

fn write_value(value: &Value, out: &mut Writer) {
    match value {
        Value::Null => out.u8(0),
        Value::Bool(value) => {
            out.u8(1);
            out.bool(*value);
        }
        Value::Byte(value) => {
            out.u8(2);
            out.u8(*value);
        }
        Value::Char(value) => {
            out.u8(3);
            out.u16(*value);
        }
        Value::Short(value) => {
            out.u8(4);
            out.u16(*value);
        }
        Value::Int(value) => {
            out.u8(5);
            out.i32(*value);
        }
        Value::Long(value) => {
            out.u8(6);
            out.i64(*value);
        }
        Value::Double(value) => {
            out.u8(7);
            out.i64(*value);
        }
        Value::Float(value) => {
            out.u8(8);
            out.i32(*value);
        }
        Value::Text(value) => {
            out.u8(9);
            out.short_text(value);
        }
        Value::Bytes(value) => {
            out.u8(10);
            out.length(value.len());
            out.raw(value);
        }
        Value::Map(value) => {
            out.u8(11);
            write_map(value, out);
        }
        Value::List(values) => {
            out.u8(12);
            out.length(values.len());
            for value in values {
                write_value(value, out);
            }
        }
        Value::BigText(value) => {
            out.u8(13);
            let mut bytes = Vec::new();
            text::write(value, usize::MAX, &mut bytes);
            out.length(bytes.len());
            out.raw(&bytes);
        }
    }
}
