//! Names of things on the wire, and structures that are stepped over.

use std::fmt;

use super::basic::{Reader, Span, WireError, Writer};

/// Types of structures.
pub(super) mod kind {
    pub(in super::super) const WIRE_FORMAT_INFO: u8 = 1;
    pub(in super::super) const CONNECTION_INFO: u8 = 3;
    pub(in super::super) const SESSION_INFO: u8 = 4;
    pub(in super::super) const CONSUMER_INFO: u8 = 5;
    pub(in super::super) const PRODUCER_INFO: u8 = 6;
    pub(in super::super) const DESTINATION_INFO: u8 = 8;
    pub(in super::super) const KEEP_ALIVE: u8 = 10;
    pub(in super::super) const SHUTDOWN: u8 = 11;
    pub(in super::super) const REMOVE: u8 = 12;
    pub(in super::super) const CONNECTION_ERROR: u8 = 16;
    pub(in super::super) const CONSUMER_CONTROL: u8 = 17;
    pub(in super::super) const CONNECTION_CONTROL: u8 = 18;
    pub(in super::super) const DISPATCH: u8 = 21;
    pub(in super::super) const ACK: u8 = 22;
    pub(in super::super) const MESSAGE: u8 = 23;
    pub(in super::super) const BYTES_MESSAGE: u8 = 24;
    pub(in super::super) const MAP_MESSAGE: u8 = 25;
    pub(in super::super) const OBJECT_MESSAGE: u8 = 26;
    pub(in super::super) const STREAM_MESSAGE: u8 = 27;
    pub(in super::super) const TEXT_MESSAGE: u8 = 28;
    pub(in super::super) const BLOB_MESSAGE: u8 = 29;
    pub(in super::super) const RESPONSE: u8 = 30;
    pub(in super::super) const EXCEPTION: u8 = 31;
    /// Responses with data, which nothing here asks for.
    pub(in super::super) const RESPONSE_LAST: u8 = 34;
    pub(in super::super) const QUEUE: u8 = 100;
    pub(in super::super) const TEMP_QUEUE: u8 = 102;
    pub(in super::super) const TEMP_TOPIC: u8 = 103;
    pub(in super::super) const MESSAGE_ID: u8 = 110;
    pub(in super::super) const LOCAL_TRANSACTION: u8 = 111;
    pub(in super::super) const XA_TRANSACTION: u8 = 112;
    pub(in super::super) const CONNECTION_ID: u8 = 120;
    pub(in super::super) const SESSION_ID: u8 = 121;
    pub(in super::super) const CONSUMER_ID: u8 = 122;
    pub(in super::super) const PRODUCER_ID: u8 = 123;
    pub(in super::super) const BROKER_ID: u8 = 124;
}

/// The version from which message ids carry the text that another protocol gave them, and a few commands one field more.
pub(super) const VERSION_WITH_TEXT_IDS: i32 = 10;

/// Who sent a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct ProducerId<'a> {
    pub(in super::super) connection: &'a [u8],
    pub(in super::super) value: i64,
    pub(in super::super) session: i64,
}

/// A message's name at its broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct MessageId<'a> {
    pub(in super::super) text: Option<&'a [u8]>,
    pub(in super::super) producer: Option<ProducerId<'a>>,
    pub(in super::super) number: i64,
}

impl fmt::Display for MessageId<'_> {
    /// As JMS shows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = self.text {
            return f.write_str(&String::from_utf8_lossy(text));
        }
        if let Some(ProducerId { connection, session, value }) = self.producer {
            write!(f, "{}:{session}:{value}:", String::from_utf8_lossy(connection))?;
        }
        write!(f, "{}", self.number)
    }
}

impl<'a> Reader<'a> {
    /// The type of a structure that may be absent.
    pub(super) fn nested(&mut self) -> Result<Option<u8>, WireError> {
        if self.bool()? { self.u8().map(Some) } else { Ok(None) }
    }

    /// Steps over a structure that may be absent; says where it stands, its first byte included.
    pub(super) fn span(&mut self, version: i32) -> Result<Span, WireError> {
        let start = self.at();
        if let Some(kind) = self.nested()? {
            self.skip(kind, version)?;
        }
        Ok(start..self.at())
    }

    /// Steps over a text that may be absent; says where it stands, its first byte included.
    pub(super) fn text_span(&mut self) -> Result<Span, WireError> {
        let start = self.at();
        self.skip_text()?;
        Ok(start..self.at())
    }

    fn skip(&mut self, kind: u8, version: i32) -> Result<(), WireError> {
        match kind {
            kind::QUEUE..=kind::TEMP_TOPIC | kind::CONNECTION_ID | kind::BROKER_ID => self.skip_text()?,
            kind::SESSION_ID => {
                self.skip_text()?;
                self.take(8)?;
            }
            kind::CONSUMER_ID | kind::PRODUCER_ID => {
                self.skip_text()?;
                self.take(16)?;
            }
            kind::MESSAGE_ID => {
                self.message_id(version)?;
            }
            kind::LOCAL_TRANSACTION => {
                self.take(8)?;
                match self.nested()? {
                    None => {}
                    Some(kind::CONNECTION_ID) => self.skip_text()?,
                    Some(other) => return Err(WireError::Type(other)),
                }
            }
            kind::XA_TRANSACTION => {
                self.take(4)?;
                self.blob()?;
                self.blob()?;
            }
            other => return Err(WireError::Type(other)),
        }
        Ok(())
    }

    /// Steps over a list of brokers.
    pub(super) fn skip_brokers(&mut self) -> Result<(), WireError> {
        if self.bool()? {
            for _ in 0..self.u16()? {
                match self.nested()? {
                    None => {}
                    Some(kind::BROKER_ID) => self.skip_text()?,
                    Some(other) => return Err(WireError::Type(other)),
                }
            }
        }
        Ok(())
    }

    /// A producer's id that may be absent.
    pub(super) fn producer_id(&mut self) -> Result<Option<ProducerId<'a>>, WireError> {
        match self.nested()? {
            None => Ok(None),
            Some(kind::PRODUCER_ID) => {
                let connection = if self.bool()? { self.short_bytes()? } else { &[] };
                Ok(Some(ProducerId { connection, value: self.i64()?, session: self.i64()? }))
            }
            Some(other) => Err(WireError::Type(other)),
        }
    }

    /// A message's id, without its type.
    pub(super) fn message_id(&mut self, version: i32) -> Result<MessageId<'a>, WireError> {
        let text =
            if version >= VERSION_WITH_TEXT_IDS && self.bool()? { Some(self.short_bytes()?) } else { None };
        let producer = self.producer_id()?;
        let number = self.i64()?;
        self.i64()?; // Its place in the broker's memory.
        Ok(MessageId { text, producer, number })
    }
}

impl Writer {
    pub(super) fn absent(&mut self) {
        self.bool(false);
    }

    pub(super) fn present(&mut self, kind: u8) {
        self.bool(true);
        self.u8(kind);
    }

    pub(super) fn destination(&mut self, kind: u8, name: &str) {
        self.present(kind);
        self.text(Some(name));
    }

    pub(super) fn connection_id(&mut self, connection: &str) {
        self.present(kind::CONNECTION_ID);
        self.text(Some(connection));
    }

    pub(super) fn session_id(&mut self, connection: &str, session: i64) {
        self.present(kind::SESSION_ID);
        self.text(Some(connection));
        self.i64(session);
    }

    pub(super) fn consumer_id(&mut self, connection: &str, session: i64, consumer: i64) {
        self.present(kind::CONSUMER_ID);
        self.text(Some(connection));
        self.i64(session);
        self.i64(consumer);
    }

    pub(super) fn producer_id(&mut self, connection: &str, session: i64, producer: i64) {
        self.present(kind::PRODUCER_ID);
        self.text(Some(connection));
        self.i64(producer);
        self.i64(session);
    }
}
