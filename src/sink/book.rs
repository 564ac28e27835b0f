//! The scripts seen so far, by target: shared by the threads, so that "every n-th call" counts all of them.
//!
//! - B1: a thread asks the shared book only for a target it has not met lately.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::answer::Play;
use super::script::Script;

/// Targets remembered. Beyond it the book starts anew, and with it the counts.
const PLAYS_MAX: usize = 4096;
/// A larger script is laid out anew for each call, so that `/big` does not fill the memory.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// All threads' scripts.
#[derive(Debug)]
pub(super) struct Book {
    plays: Mutex<HashMap<Box<str>, Arc<Play>>>,
    delay_default: Duration,
}

impl Book {
    /// An empty book; `delay_default` is for scripts that name no delay.
    pub(super) fn new(delay_default: Duration) -> Self {
        Self { plays: Mutex::new(HashMap::new()), delay_default }
    }

    /// The script of a target, laid out on first sight.
    pub(super) fn play(&self, target: &str) -> Arc<Play> {
        let mut plays = self.plays.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(play) = plays.get(target) {
            return Arc::clone(play);
        }
        let play = Arc::new(Play::new(Script::read(target, self.delay_default)));
        if play.kept_bytes() <= KEPT_BYTES_MAX {
            if plays.len() >= PLAYS_MAX {
                plays.clear();
            }
            plays.insert(target.into(), Arc::clone(&play));
        }
        play
    }
}

/// One thread's view of the book: remembers the last target, the usual case being one target for all.
#[derive(Debug)]
pub(super) struct Bookmark {
    book: Arc<Book>,
    last: Option<(Box<str>, Arc<Play>)>,
}

impl Bookmark {
    /// A view that has seen nothing yet.
    pub(super) fn new(book: Arc<Book>) -> Self {
        Self { book, last: None }
    }

    /// The script of a target.
    pub(super) fn play(&mut self, target: &str) -> Arc<Play> {
        match &self.last {
            Some((known, play)) if **known == *target => Arc::clone(play),
            _ => {
                let play = self.book.play(target);
                self.last = (play.kept_bytes() <= KEPT_BYTES_MAX).then(|| (target.into(), Arc::clone(&play)));
                play
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_one_target_are_counted_over_all_threads() {
        let book = Arc::new(Book::new(Duration::ZERO));
        let mut views = [Bookmark::new(Arc::clone(&book)), Bookmark::new(book)];
        let statuses: Vec<u16> =
            (0..4).map(|n| views[n % 2].play("/fail?every=4&status=503").answer().status).collect();
        assert_eq!(statuses, [200, 200, 200, 503]);
    }

    #[test]
    fn targets_do_not_share_their_counts() {
        let mut view = Bookmark::new(Arc::new(Book::new(Duration::ZERO)));
        assert_eq!(view.play("/fail?every=2").answer().status, 200);
        assert_eq!(view.play("/fail?every=2&x=1").answer().status, 200);
        assert_eq!(view.play("/fail?every=2").answer().status, 500);
    }
}
