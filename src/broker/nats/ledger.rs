//! Who waits for which answers: every word that the server is told has a number, and its answer carries it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tokio::sync::Notify;

/// Which words of a turn are asked about: the last of each kind, which stands for those of its kind before it.
pub(super) struct Lasts {
    is_ack: Vec<bool>,
    ack: Option<usize>,
    other: Option<usize>,
}

impl Lasts {
    /// `words`: for each, whether it is an ack.
    pub(super) fn of(words: impl Iterator<Item = bool>) -> Self {
        let is_ack: Vec<bool> = words.collect();
        let last = |kind| is_ack.iter().rposition(|&it| it == kind);
        Self { ack: last(true), other: last(false), is_ack }
    }

    pub(super) fn count(&self) -> usize {
        [self.ack, self.other].iter().flatten().count()
    }

    pub(super) fn is_asked_about(&self, at: usize) -> bool {
        [self.ack, self.other].contains(&Some(at))
    }

    /// What the server has taken, by the answers in the order in which they were asked for.
    pub(super) fn taken(&self, answers: &[bool]) -> Vec<bool> {
        let acks_first = self.ack.is_some_and(|ack| self.other.is_none_or(|other| ack < other));
        let of = |is_ack| if is_ack == acks_first { answers.first() } else { answers.last() };
        self.is_ack.iter().map(|&is_ack| of(is_ack).copied().unwrap_or(false)).collect()
    }
}

/// Words told together.
#[derive(Debug)]
pub(super) struct Turn {
    first: u64,
    /// For each word: the server has taken it.
    done: RefCell<Vec<bool>>,
    waiting: Cell<usize>,
    over: Notify,
}

impl Turn {
    /// Waits until all of it is answered.
    pub(super) async fn answered(&self) {
        while self.waiting.get() > 0 {
            self.over.notified().await;
        }
    }
}

/// The turns that wait. Lives on the ingress thread.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    turns: RefCell<Vec<Rc<Turn>>>,
    next: Cell<u64>,
}

impl Ledger {
    /// Opens a turn of `count` words; their numbers begin with the one returned.
    pub(super) fn open(&self, count: usize) -> (Rc<Turn>, u64) {
        let first = self.next.get();
        self.next.set(first + count as u64);
        let turn = Rc::new(Turn {
            first,
            done: RefCell::new(vec![false; count]),
            waiting: Cell::new(count),
            over: Notify::new(),
        });
        self.turns.borrow_mut().push(Rc::clone(&turn));
        (turn, first)
    }

    /// An answer came. One that no one waits for any more is nothing.
    pub(super) fn answer(&self, number: u64, taken: bool) {
        let turns = self.turns.borrow();
        let place = |turn: &Turn| usize::try_from(number.checked_sub(turn.first)?).ok();
        let found = turns.iter().find_map(|turn| {
            let at = place(turn)?;
            (at < turn.done.borrow().len()).then_some((turn, at))
        });
        let Some((turn, at)) = found else { return };
        turn.done.borrow_mut()[at] = taken;
        turn.waiting.set(turn.waiting.get().saturating_sub(1));
        if turn.waiting.get() == 0 {
            turn.over.notify_one();
        }
    }

    /// Ends a turn, answered or not: what the server has taken.
    pub(super) fn close(&self, turn: &Rc<Turn>) -> Vec<bool> {
        self.turns.borrow_mut().retain(|other| !Rc::ptr_eq(other, turn));
        turn.done.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_each_kind_stands_for_those_before_it() {
        const ACK: bool = true;
        const NAK: bool = false;
        /// The words, those asked about, the answers, what was taken.
        type Row = (&'static [bool], &'static [usize], &'static [bool], &'static [bool]);
        let rows: [Row; 7] = [
            (&[], &[], &[], &[]),
            (&[ACK, ACK, ACK], &[2], &[true], &[true, true, true]),
            (&[ACK, ACK, ACK], &[2], &[false], &[false, false, false]),
            (&[ACK, NAK, ACK], &[1, 2], &[false, true], &[true, false, true]),
            (&[NAK, ACK, NAK], &[1, 2], &[true, false], &[false, true, false]),
            (&[NAK, NAK], &[1], &[true], &[true, true]),
            (&[ACK, NAK], &[0, 1], &[], &[false, false]),
        ];
        for (words, asked, answers, taken) in rows {
            let lasts = Lasts::of(words.iter().copied());
            let about: Vec<usize> = (0..words.len()).filter(|&at| lasts.is_asked_about(at)).collect();
            assert_eq!((about.as_slice(), lasts.count()), (asked, asked.len()), "{words:?}");
            assert_eq!(lasts.taken(answers), taken, "{words:?} answered {answers:?}");
        }
    }

    #[test]
    fn each_turn_gets_its_own_answers_in_any_order() {
        let ledger = Ledger::default();
        let ((one, first), (two, second)) = (ledger.open(2), ledger.open(3));
        assert_eq!((first, second), (0, 2));
        for (number, taken) in [(4, true), (0, true), (2, false), (9, true)] {
            ledger.answer(number, taken);
        }
        assert_eq!((one.waiting.get(), two.waiting.get()), (1, 1));
        ledger.answer(3, true);
        assert_eq!(ledger.close(&two), [false, true, true]);
        ledger.answer(4, false);
        assert_eq!(ledger.close(&one), [true, false], "what was not answered was not taken");
    }
}
