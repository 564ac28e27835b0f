//! What is asked of a keeper.

use std::io;
use std::time::Duration;

use super::claims::Consumer;

/// Where an answer goes. A channel for one, because both async code and threads wait on it.
pub(super) type Reply<T> = flume::Sender<io::Result<T>>;

/// A message to publish.
#[derive(Clone, Default)]
pub struct NewMessage {
    /// The message pointer as JSON.
    pub body: Vec<u8>,
    /// Runs in order with others of its group. `None` = what the body says.
    pub group: Option<String>,
    /// Handed out after so long, with all later ones of its group.
    pub delay: Duration,
    /// A second message with this id within five minutes is accepted and dropped.
    pub dedup: Option<String>,
}

/// A dead letter to put back.
#[derive(Clone)]
pub struct PutBack {
    /// Its old place: the key of its receipt.
    pub seq: u64,
    /// Its group.
    pub group: String,
    /// The message pointer as JSON, or what was received.
    pub body: Vec<u8>,
    /// Names this put-back: the same one again does nothing.
    pub token: String,
}

/// What became of a dead letter that was to be put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// It is in.
    New,
    /// It was put back before.
    Known,
    /// Its message is still in the queue, where the ack that follows its setting aside will delete it: not put
    /// back. Ask again when the ack is through.
    Unacked,
}

impl Placed {
    /// The queue has it, or had it: it may be removed elsewhere.
    #[must_use]
    pub fn is_in(self) -> bool {
        self != Self::Unacked
    }
}

/// What a message is told from every other one by. A number alone names two messages when one is put back at
/// its old place, or when the queue's file is replaced by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) file_id: i64,
    pub(super) seq: u64,
    /// Which put-back brought it; 0 = it was published.
    pub(super) generation: u64,
}

impl Identity {
    /// As the broker's own id of the message.
    pub(super) fn bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.file_id.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.seq.to_le_bytes());
        bytes[16..].copy_from_slice(&self.generation.to_le_bytes());
        bytes
    }
}

/// A message that was handed out.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) identity: Identity,
    pub(super) group: String,
    pub(super) receives: u16,
    pub(super) body: Vec<u8>,
}

/// What a consumer says of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Ack,
    Nack { delay_s: u32, tried: bool },
    Extend,
}

/// A receive that waits for messages.
pub(super) struct Receive {
    pub(super) consumer: Consumer,
    pub(super) max: usize,
    pub(super) lease: Duration,
    pub(super) poll: Duration,
    pub(super) reply: Reply<Vec<Taken>>,
}

/// What a consumer says of its messages.
pub(super) struct Settle {
    pub(super) consumer: Consumer,
    pub(super) tells: Vec<(u64, Told)>,
    pub(super) reply: Reply<Vec<bool>>,
}

/// Anything.
pub(super) enum Request {
    Publish(Vec<NewMessage>, Reply<Vec<u64>>),
    PutBack(Vec<PutBack>, Reply<Vec<Placed>>),
    Receive(Receive),
    Settle(Settle),
    Leave(Consumer),
    Depth(Reply<u64>),
    End,
}

/// Requests that one transaction serves.
#[derive(Default)]
pub(super) struct Work {
    pub(super) publishes: Vec<(Vec<NewMessage>, Reply<Vec<u64>>)>,
    pub(super) put_backs: Vec<(Vec<PutBack>, Reply<Vec<Placed>>)>,
    pub(super) settles: Vec<Settle>,
    pub(super) leaves: Vec<Consumer>,
    pub(super) depths: Vec<Reply<u64>>,
    /// Messages that are published or settled.
    pub(super) count: usize,
    /// The last user is gone.
    pub(super) end: bool,
}

impl Work {
    /// Sorts a request in; a receive goes to those that wait.
    pub(super) fn add(&mut self, request: Request) -> Option<Receive> {
        match request {
            Request::Publish(messages, reply) => {
                self.count += messages.len();
                self.publishes.push((messages, reply));
            }
            Request::PutBack(letters, reply) => {
                self.count += letters.len();
                self.put_backs.push((letters, reply));
            }
            Request::Settle(settle) => {
                self.count += settle.tells.len();
                self.settles.push(settle);
            }
            Request::Leave(consumer) => self.leaves.push(consumer),
            Request::Depth(reply) => self.depths.push(reply),
            Request::Receive(receive) => return Some(receive),
            Request::End => self.end = true,
        }
        None
    }

    /// The file must be written.
    pub(super) fn writes(&self) -> bool {
        !(self.publishes.is_empty()
            && self.put_backs.is_empty()
            && self.settles.is_empty()
            && self.leaves.is_empty())
    }
}
