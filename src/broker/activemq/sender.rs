//! Sends delayed copies, over a connection of its own: a broker that is full makes a sender wait, and acks must not wait
//! behind it.

use std::time::Duration;

use bytes::Bytes;

use super::address::Address;
use super::connect::{Connection, connect};
use super::line::Fault;
use super::wire::{Map, Message, Value};
use crate::ingress::ReceiveError;

/// What the broker's scheduler reads and leaves.
pub(super) const DELAY: &str = "AMQ_SCHEDULED_DELAY";
const OF_THE_SCHEDULER: [&str; 5] =
    [DELAY, "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT", "AMQ_SCHEDULED_CRON", "scheduledJobId"];
/// The id of the message that a copy was made of first.
pub(super) const FIRST_ID: &str = "corelaneId";
/// How often that one and its copies were handed over.
pub(super) const DELIVERIES: &str = "corelaneDeliveries";
/// When a copy is due, in milliseconds since 1970: for a broker that delays nothing.
pub(super) const DUE: &str = "corelaneDue";
/// How long the broker may take to keep a copy.
pub(super) const SEND_MAX: Duration = Duration::from_secs(10);

/// A connection that sends.
pub(super) struct Sender {
    connection: Connection,
    queue: String,
}

/// What a copy says of itself.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) first_id: String,
    pub(super) deliveries: u16,
    pub(super) delay: Duration,
    /// In milliseconds since 1970.
    pub(super) due: i64,
}

impl Sender {
    /// Connects to one of the brokers, `first` before the others.
    pub(super) async fn open(address: &Address, first: usize, name: &str) -> Result<Self, ReceiveError> {
        let (connection, _) = connect(address, first, [name, name]).await?;
        let line = &connection.line;
        line.say(&line.scribe.session());
        line.say(&line.scribe.producer());
        Ok(Self { connection, queue: address.queue.clone() })
    }

    pub(super) fn is_lost(&self) -> bool {
        self.connection.line.is_lost()
    }

    /// Sends a copy of a message, which stands in `frame`; it is on its way when this returns, and kept by the broker when
    /// the future says so.
    pub(super) fn send(
        &self,
        message: &Message<'_>,
        frame: &Bytes,
        mark: &Mark,
    ) -> Result<impl Future<Output = Result<(), String>> + use<>, String> {
        let properties = Map::read(message.properties.unwrap_or_default());
        let mut properties = properties.map_err(|error| format!("its properties can't be read: {error}"))?;
        mark.put(&mut properties);
        let line = &self.connection.line;
        let copy = line.scribe.copy(message, frame, &self.queue, &properties.write());
        if copy.frame.len() > self.connection.frame_bytes_max {
            return Err("a copy would be larger than the broker's maxFrameSize".into());
        }
        let kept = line.ask(&copy);
        Ok(async {
            kept.await.map_err(|fault| match fault {
                Fault::Refused(why) => why.text,
                Fault::Lost(why) => why,
            })
        })
    }
}

impl Mark {
    fn put(&self, properties: &mut Map) {
        // A copy that was scheduled before would be taken for done.
        for name in OF_THE_SCHEDULER {
            properties.remove(name);
        }
        let delay = i64::try_from(self.delay.as_millis()).unwrap_or(i64::MAX);
        properties.set(DELAY, Value::Long(delay));
        properties.set(FIRST_ID, Value::Text(self.first_id.clone()));
        properties.set(DELIVERIES, Value::Int(i32::from(self.deliveries)));
        properties.set(DUE, Value::Long(self.due));
    }
}
