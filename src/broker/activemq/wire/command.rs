//! What a broker says.

use super::basic::{Reader, WireError};
use super::ids::kind;
use super::info::WireFormat;
use super::message::Message;

/// Why a broker refuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Refusal {
    /// A Java class.
    pub(in super::super) class: String,
    pub(in super::super) text: String,
}

/// A command that came in.
#[derive(Clone, Debug)]
pub(in super::super) enum Command<'a> {
    /// The first thing that is said.
    Hello(WireFormat),
    /// A message for one of our consumers.
    Dispatch { message: Option<Box<Message<'a>>>, redeliveries: i32 },
    /// What the command of this number asked for was done.
    Done(i32),
    /// Or not.
    Refused(i32, Refusal),
    /// Something went wrong that no one waited for.
    Broken(Refusal),
    /// Says that it is there, and asks whether we are.
    Alive { asks: bool },
    /// The broker ends the consumer.
    ConsumerEnded,
    /// The broker ends the connection.
    Closing,
    /// Nothing that matters here.
    Other,
}

impl<'a> Command<'a> {
    /// Reads a frame.
    pub(in super::super) fn read(frame: &'a [u8], version: i32) -> Result<Self, WireError> {
        let mut from = Reader::new(frame);
        let from = &mut from;
        let kind = from.u8()?;
        if kind == kind::WIRE_FORMAT_INFO {
            return WireFormat::read(from).map(Self::Hello);
        }
        from.i32()?; // Its number, which only an answer needs.
        let asks = from.bool()?;
        Ok(match kind {
            kind::DISPATCH => dispatch(from, version)?,
            kind::EXCEPTION => Self::Refused(from.i32()?, refusal(from)?),
            kind::RESPONSE..=kind::RESPONSE_LAST => Self::Done(from.i32()?),
            kind::CONNECTION_ERROR => Self::Broken(refusal(from)?),
            kind::KEEP_ALIVE => Self::Alive { asks },
            kind::CONSUMER_CONTROL => {
                from.span(version)?;
                if from.bool()? { Self::ConsumerEnded } else { Self::Other }
            }
            kind::CONNECTION_CONTROL => {
                let (close, exit) = (from.bool()?, from.bool()?);
                if close || exit { Self::Closing } else { Self::Other }
            }
            kind::SHUTDOWN => Self::Closing,
            _ => Self::Other,
        })
    }
}

/// The consumer that a frame hands a message to; `None` = it is something else. Looks no further.
pub(in super::super) fn dispatched_to(frame: &[u8]) -> Result<Option<i64>, WireError> {
    let mut from = Reader::new(frame);
    if from.u8()? != kind::DISPATCH {
        return Ok(None);
    }
    from.i32()?;
    from.bool()?;
    consumer(&mut from).map(Some)
}

fn consumer(from: &mut Reader<'_>) -> Result<i64, WireError> {
    match from.nested()? {
        Some(kind::CONSUMER_ID) => {
            from.skip_text()?;
            from.i64()?;
            from.i64()
        }
        other => Err(WireError::Type(other.unwrap_or_default())),
    }
}

fn dispatch<'a>(from: &mut Reader<'a>, version: i32) -> Result<Command<'a>, WireError> {
    consumer(from)?;
    from.span(version)?; // Destination.
    let message = match from.nested()? {
        Some(kind) => Some(Box::new(Message::read(from, kind, version)?)),
        None => None,
    };
    Ok(Command::Dispatch { message, redeliveries: from.i32()? })
}

fn refusal(from: &mut Reader<'_>) -> Result<Refusal, WireError> {
    if !from.bool()? {
        return Ok(Refusal::default());
    }
    let class = from.text()?.unwrap_or_default();
    Ok(Refusal { class, text: from.text()?.unwrap_or_default() })
}
