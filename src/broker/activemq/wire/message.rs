//! A message: what a router must know of it, where the rest of it stands, and how a copy of it is written.

use super::basic::{Reader, Span, WireError, Writer};
use super::ids::{MessageId, ProducerId, VERSION_WITH_TEXT_IDS, kind};

/// A message inside a frame. Spans are places in that frame.
#[derive(Clone, Debug)]
pub(in super::super) struct Message<'a> {
    pub(in super::super) kind: u8,
    pub(in super::super) producer: Option<ProducerId<'a>>,
    pub(in super::super) id: MessageId<'a>,
    /// Its id as a structure, for an ack.
    pub(in super::super) id_span: Span,
    /// `JMSXGroupID`.
    pub(in super::super) group: Option<String>,
    pub(in super::super) content: Option<&'a [u8]>,
    /// A marshalled map.
    pub(in super::super) properties: Option<&'a [u8]>,
    pub(in super::super) compressed: bool,
    /// Times that it was handed over before, as the broker counts.
    pub(in super::super) redeliveries: i32,
    group_sequence: i32,
    correlation: Span,
    persistent: bool,
    expiration: i64,
    priority: u8,
    reply_to: Span,
    timestamp: i64,
    type_name: Span,
    user: Span,
}

/// What is different in a copy.
#[derive(Debug)]
pub(in super::super) struct Copy<'a> {
    pub(in super::super) connection: &'a str,
    /// Its number among all that the connection's producer sends.
    pub(in super::super) number: i64,
    pub(in super::super) queue: &'a str,
    /// A marshalled map.
    pub(in super::super) properties: &'a [u8],
}

impl<'a> Message<'a> {
    pub(super) fn read(from: &mut Reader<'a>, kind: u8, version: i32) -> Result<Self, WireError> {
        if !(kind::MESSAGE..=kind::BLOB_MESSAGE).contains(&kind) {
            return Err(WireError::Type(kind));
        }
        from.i32()?; // The number that its sender gave the command.
        from.bool()?;
        let producer = from.producer_id()?;
        from.span(version)?; // Destination.
        from.span(version)?; // Transaction.
        from.span(version)?; // First destination.
        let start = from.at();
        let id = match from.nested()? {
            Some(kind::MESSAGE_ID) => from.message_id(version)?,
            other => return Err(WireError::Type(other.unwrap_or_default())),
        };
        let id_span = start..from.at();
        from.span(version)?; // First transaction.
        let group = from.text()?;
        let group_sequence = from.i32()?;
        let correlation = from.text_span()?;
        let persistent = from.bool()?;
        let expiration = from.i64()?;
        let priority = from.u8()?;
        let reply_to = from.span(version)?;
        let timestamp = from.i64()?;
        let type_name = from.text_span()?;
        let (content, properties) = (from.blob()?, from.blob()?);
        from.span(version)?; // What an advisory tells of.
        from.span(version)?; // A consumer that it is meant for.
        let compressed = from.bool()?;
        let redeliveries = from.i32()?;
        from.skip_brokers()?;
        from.i64()?; // When it arrived.
        let user = from.text_span()?;
        from.take(2)?; // Came by a bridge; may be dropped.
        from.skip_brokers()?;
        from.take(16)?; // When it came in and went out.
        if version >= VERSION_WITH_TEXT_IDS {
            from.bool()?; // The first of its group for this consumer.
        }
        Ok(Self {
            kind,
            producer,
            id,
            id_span,
            group,
            content,
            properties,
            compressed,
            redeliveries,
            group_sequence,
            correlation,
            persistent,
            expiration,
            priority,
            reply_to,
            timestamp,
            type_name,
            user,
        })
    }

    /// The rest of a command that sends a copy. `frame` is what the spans are places in.
    pub(super) fn write_copy(&self, frame: &[u8], copy: &Copy<'_>, version: i32, out: &mut Writer) {
        let Copy { connection, number, queue, properties } = *copy;
        out.producer_id(connection, super::SESSION, super::PRODUCER);
        out.destination(kind::QUEUE, queue);
        out.absent(); // Transaction.
        out.absent(); // First destination.
        write_id(connection, number, version, out);
        out.absent(); // First transaction.
        out.text(self.group.as_deref());
        out.i32(self.group_sequence);
        out.raw(&frame[self.correlation.clone()]);
        out.bool(self.persistent);
        out.i64(self.expiration);
        out.u8(self.priority);
        out.raw(&frame[self.reply_to.clone()]);
        out.i64(self.timestamp);
        out.raw(&frame[self.type_name.clone()]);
        out.blob(self.content);
        out.blob(Some(properties));
        write_end(self.compressed, &frame[self.user.clone()], version, out);
    }
}

/// A plain message of ours: no body, a question in its destination.
pub(super) fn write_question(
    (connection, number): (&str, i64),
    (queue, reply_to): (&str, &str),
    [timestamp, expiration]: [i64; 2],
    version: i32,
    out: &mut Writer,
) {
    out.producer_id(connection, super::SESSION, super::PRODUCER);
    out.destination(kind::QUEUE, queue);
    out.absent(); // Transaction.
    out.absent(); // First destination.
    write_id(connection, number, version, out);
    out.absent(); // First transaction.
    out.text(None); // Group.
    out.i32(0);
    out.text(None); // Correlation.
    out.bool(false); // Persistent.
    out.i64(expiration);
    out.u8(4); // Priority.
    out.destination(kind::TEMP_QUEUE, reply_to);
    out.i64(timestamp);
    out.text(None); // Type.
    out.blob(None); // Content.
    out.blob(None); // Properties.
    write_end(false, &[0], version, out);
}

fn write_id(connection: &str, number: i64, version: i32, out: &mut Writer) {
    out.present(kind::MESSAGE_ID);
    if version >= VERSION_WITH_TEXT_IDS {
        out.text(None);
    }
    out.producer_id(connection, super::SESSION, super::PRODUCER);
    out.i64(number);
    out.i64(0);
}

fn write_end(compressed: bool, user: &[u8], version: i32, out: &mut Writer) {
    out.absent(); // What an advisory tells of.
    out.absent(); // A consumer that it is meant for.
    out.bool(compressed);
    out.i32(0); // Redeliveries.
    out.bool(false); // Brokers on its way.
    out.i64(0); // When it arrived.
    out.raw(user);
    out.bool(false); // Came by a bridge.
    out.bool(false); // May be dropped.
    out.bool(false); // Brokers of a cluster.
    out.i64(0); // When it came in.
    out.i64(0); // And went out.
    if version >= VERSION_WITH_TEXT_IDS {
        out.bool(false); // The first of its group for a consumer.
    }
}
