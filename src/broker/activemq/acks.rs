//! Which acks were told, and which of them the broker has confirmed. Pure.
//!
//! A broker works off the commands of a connection in order, so its answer to one ack confirms all before it; and it syncs
//! its journal for an ack that asks for an answer, which syncs what stands before it. So acks go out as they come, one
//! answer is waited for at a time, and one ack is kept back to ask for the next.

use tokio::sync::oneshot;

use super::wire::Told;

/// The acks of one connection.
#[derive(Debug, Default)]
pub(super) struct Acks {
    waiting: Vec<Told>,
    turns: Vec<oneshot::Sender<bool>>,
    /// The ack whose answer is waited for, and who waits for it.
    asked: Option<(i32, Vec<oneshot::Sender<bool>>)>,
}

impl Acks {
    /// Acks to be told together; the receiver hears when all are confirmed, or that they are not.
    pub(super) fn push(&mut self, acks: impl IntoIterator<Item = Told>) -> oneshot::Receiver<bool> {
        let (turn, heard) = oneshot::channel();
        self.waiting.extend(acks);
        match &mut self.asked {
            _ if !self.waiting.is_empty() => self.turns.push(turn),
            Some((_, turns)) => turns.push(turn),
            None => drop(turn.send(true)),
        }
        heard
    }

    /// Writes what may go out now.
    pub(super) fn write(&mut self, out: &mut Vec<u8>) {
        let Some(last) = self.waiting.pop() else { return };
        for ack in self.waiting.drain(..) {
            out.extend_from_slice(&ack.frame);
        }
        if self.asked.is_some() {
            self.waiting.push(last);
            return;
        }
        let last = last.asking();
        out.extend_from_slice(&last.frame);
        self.asked = Some((last.number, std::mem::take(&mut self.turns)));
    }

    /// Writes all that is left: nothing more will be told. Who waits hears nothing.
    pub(super) fn write_rest(&mut self, out: &mut Vec<u8>) {
        for ack in self.waiting.drain(..) {
            out.extend_from_slice(&ack.frame);
        }
    }

    /// The broker answered a command. False if it was none of these.
    pub(super) fn on_answer(&mut self, number: i32, done: bool) -> bool {
        let Some((_, turns)) = self.asked.take_if(|(asked, _)| *asked == number) else { return false };
        for turn in turns {
            let _ = turn.send(done);
        }
        true
    }

    /// The connection is gone: what is not confirmed never will be.
    pub(super) fn give_up(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{Place, Scribe};
    use super::*;

    fn ack(scribe: &Scribe) -> Told {
        scribe.ack(1, Place::Queue("q"), &[0])
    }

    /// How many frames were written, and the number of the one that asks.
    fn written(acks: &mut Acks) -> (usize, Option<i32>) {
        let mut out = Vec::new();
        acks.write(&mut out);
        let (mut count, mut asking, mut rest) = (0, None, &out[..]);
        while let Some((prefix, after)) = rest.split_first_chunk::<4>() {
            let length = usize::try_from(i32::from_be_bytes(*prefix)).expect("a length");
            if after[5] == 1 {
                asking = Some(i32::from_be_bytes(after[1..5].try_into().expect("four bytes")));
            }
            count += 1;
            rest = &after[length..];
        }
        (count, asking)
    }

    #[test]
    fn one_answer_is_waited_for_and_confirms_all_before_it() {
        let (scribe, mut acks) = (Scribe::new("c".into(), 12), Acks::default());
        let mut first = acks.push([ack(&scribe), ack(&scribe), ack(&scribe)]);
        assert_eq!(written(&mut acks), (3, Some(3)), "the last asks");
        let mut second = acks.push([ack(&scribe), ack(&scribe)]);
        assert_eq!(written(&mut acks), (1, None), "one is kept back");
        let mut third = acks.push([ack(&scribe)]);
        assert_eq!(written(&mut acks), (1, None));
        let mut nothing = Acks::default().push([]);
        assert_eq!(nothing.try_recv(), Ok(true), "nothing to wait for");
        assert!(!acks.on_answer(4, true), "not an answer that is waited for");
        assert!(first.try_recv().is_err());
        assert!(acks.on_answer(3, true));
        assert_eq!(first.try_recv(), Ok(true));
        assert!(second.try_recv().is_err() && third.try_recv().is_err(), "told, not confirmed");
        assert_eq!(written(&mut acks), (1, Some(6)));
        assert!(acks.on_answer(6, true));
        assert_eq!((second.try_recv(), third.try_recv()), (Ok(true), Ok(true)));
        let _told = acks.push([ack(&scribe)]);
        assert_eq!(written(&mut acks), (1, Some(7)));
        let mut empty = acks.push([]);
        assert!(acks.on_answer(7, true));
        assert_eq!(empty.try_recv(), Ok(true), "confirmed with what was told before it");
    }

    #[test]
    fn what_was_not_confirmed_is_not_done() {
        let (scribe, mut acks) = (Scribe::new("c".into(), 12), Acks::default());
        let mut refused = acks.push([ack(&scribe)]);
        written(&mut acks);
        let mut late = acks.push([ack(&scribe)]);
        let mut out = Vec::new();
        acks.write_rest(&mut out);
        assert!(!out.is_empty(), "the one that was kept back goes out before a consumer is closed");
        assert!(acks.on_answer(1, false));
        assert_eq!(refused.try_recv(), Ok(false));
        acks.give_up();
        assert_eq!(late.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }
}
