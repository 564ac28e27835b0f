//! Publishing that counts only when the broker has it: persistent, mandatory, confirmed.
//!
//! An unroutable message is returned and then confirmed all the same, and the client library hands a returned message
//! to whichever confirmation comes next. So one batch is under way at a time, and what was returned is said of the
//! batch, never of one message in it.

use lapin::message::BasicReturnMessage;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{BasicProperties, Channel, Confirmation};
use thiserror::Error;

/// A message to be published.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    /// Empty: the routing key names a queue.
    pub(crate) exchange: String,
    pub(crate) routing_key: String,
    pub(crate) properties: BasicProperties,
    pub(crate) body: Vec<u8>,
}

/// What the broker did not take of a batch.
#[derive(Debug, Default)]
pub(crate) struct NotTaken {
    /// Places in the batch of those that it refused.
    pub(crate) refused: Vec<usize>,
    /// What came back because it reaches no queue: properties only.
    pub(crate) returned: Vec<BasicProperties>,
}

impl NotTaken {
    /// All of it was taken.
    pub(crate) const fn is_empty(&self) -> bool {
        self.refused.is_empty() && self.returned.is_empty()
    }
}

/// The connection or channel is gone, and nothing is known of a batch: all of it may or may not have been taken.
#[derive(Debug, Error)]
#[error("the connection was lost: {0}")]
pub(crate) struct PublishError(#[from] lapin::Error);

/// A channel that confirms. One batch at a time.
#[derive(Debug)]
pub(crate) struct Publisher {
    channel: Channel,
    busy: tokio::sync::Mutex<()>,
}

impl Publisher {
    /// Uses this channel, and nobody else may.
    pub(crate) async fn new(channel: Channel) -> Result<Self, lapin::Error> {
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(Self { channel, busy: tokio::sync::Mutex::new(()) })
    }

    /// Publishes all of it and waits until the broker has answered for each. A broker that is short of memory or disk
    /// answers when it has room again; heartbeats tell that it is there.
    pub(crate) async fn publish(&self, batch: &[Outgoing]) -> Result<NotTaken, PublishError> {
        let _alone = self.busy.lock().await;
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let mut confirms = Vec::with_capacity(batch.len());
        for Outgoing { exchange, routing_key, properties, body } in batch {
            let [exchange, key] = [exchange, routing_key].map(|name| ShortString::from(name.as_str()));
            confirms
                .push(self.channel.basic_publish(exchange, key, options, body, properties.clone()).await?);
        }
        let mut not_taken = NotTaken::default();
        for (place, confirm) in confirms.into_iter().enumerate() {
            let (taken, returned) = match confirm.await? {
                Confirmation::Ack(returned) => (true, returned),
                Confirmation::Nack(returned) => (false, returned),
                Confirmation::NotRequested => (false, None),
            };
            if !taken {
                not_taken.refused.push(place);
            }
            not_taken
                .returned
                .extend(returned.map(|message: BasicReturnMessage| message.delivery.properties));
        }
        Ok(not_taken)
    }
}
