//! Who waits for which answers: every word that the server is told has a number, and its answer carries it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tokio::sync::Notify;

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
