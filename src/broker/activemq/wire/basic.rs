//! Reading and writing OpenWire's basic types, loosely encoded: big-endian numbers, and a byte before whatever may be absent.

use std::ops::Range;

use thiserror::Error;

use super::text;

/// Why bytes can't be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(in super::super) enum WireError {
    /// The frame ends before its content does.
    #[error("a frame is cut short")]
    Short,
    /// A length that can't be.
    #[error("a length of {0} is impossible")]
    Length(i64),
    /// A text that is none.
    #[error("a text is not modified UTF-8")]
    Text,
    /// A structure that has no place there.
    #[error("type {0} stands where it may not")]
    Type(u8),
    /// Lists in lists without end.
    #[error("a map is too large or nested too deep")]
    Depth,
    /// The server talks of something else.
    #[error("this is not an OpenWire server")]
    Magic,
    /// A frame larger than we take.
    #[error("a frame of {0} bytes is larger than what is taken here")]
    TooLong(usize),
}

/// Where a structure of the frame begins and ends.
pub(in super::super) type Span = Range<usize>;

/// Reads from a frame, from its start.
#[derive(Clone, Debug)]
pub(in super::super) struct Reader<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(in super::super) const fn new(all: &'a [u8]) -> Self {
        Self { all, at: 0 }
    }

    /// How far it has come.
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    pub(super) const fn left(&self) -> usize {
        self.all.len() - self.at
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let end = self.at.checked_add(count).ok_or(WireError::Short)?;
        let taken = self.all.get(self.at..end).ok_or(WireError::Short)?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        self.take(N)?.try_into().map_err(|_| WireError::Short)
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(super) fn bool(&mut self) -> Result<bool, WireError> {
        Ok(self.u8()? != 0)
    }

    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(super) fn i32(&mut self) -> Result<i32, WireError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(super) fn i64(&mut self) -> Result<i64, WireError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// A length that is followed by at least so many bytes.
    pub(super) fn length(&mut self) -> Result<usize, WireError> {
        let length = self.i32()?;
        let count = usize::try_from(length).map_err(|_| WireError::Length(i64::from(length)))?;
        if count > self.left() { Err(WireError::Short) } else { Ok(count) }
    }

    /// The bytes of a short text, as they are.
    pub(super) fn short_bytes(&mut self) -> Result<&'a [u8], WireError> {
        let count = self.u16()?;
        self.take(usize::from(count))
    }

    /// A short text.
    pub(super) fn short_text(&mut self) -> Result<String, WireError> {
        text::read(self.short_bytes()?)
    }

    /// A text that may be absent.
    pub(super) fn text(&mut self) -> Result<Option<String>, WireError> {
        if self.bool()? { self.short_text().map(Some) } else { Ok(None) }
    }

    pub(super) fn skip_text(&mut self) -> Result<(), WireError> {
        if self.bool()? {
            self.short_bytes()?;
        }
        Ok(())
    }

    /// Bytes that may be absent.
    pub(super) fn blob(&mut self) -> Result<Option<&'a [u8]>, WireError> {
        if !self.bool()? {
            return Ok(None);
        }
        let count = self.length()?;
        self.take(count).map(Some)
    }
}

/// Writes frames one after another.
#[derive(Debug, Default)]
pub(in super::super) struct Writer {
    pub(super) out: Vec<u8>,
}

impl Writer {
    pub(super) fn u8(&mut self, value: u8) {
        self.out.push(value);
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.out.push(u8::from(value));
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    pub(super) fn i32(&mut self, value: i32) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    pub(super) fn i64(&mut self, value: i64) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    pub(super) fn length(&mut self, count: usize) {
        self.i32(i32::try_from(count).expect("no frame is that long"));
    }

    /// A text; one longer than the format allows is cut.
    pub(super) fn short_text(&mut self, value: &str) {
        let start = self.out.len();
        self.u16(0);
        text::write(value, usize::from(u16::MAX), &mut self.out);
        let count = u16::try_from(self.out.len() - start - 2).expect("it was cut to fit");
        self.out[start..start + 2].copy_from_slice(&count.to_be_bytes());
    }

    pub(super) fn text(&mut self, value: Option<&str>) {
        self.bool(value.is_some());
        if let Some(value) = value {
            self.short_text(value);
        }
    }

    pub(super) fn blob(&mut self, value: Option<&[u8]>) {
        self.bool(value.is_some());
        if let Some(value) = value {
            self.length(value.len());
            self.raw(value);
        }
    }
}
