//! Which messages may be handed out next: the front of the queue in memory, a line per group. Pure; the
//! rows themselves stay in the file, and a pick is checked against its row before it is handed out.
//!
//! - Q1: nothing of a group is picked while any of its messages is out, here or elsewhere, or while an
//!   earlier one of it is not visible yet.
//! - Q2: what is picked of one group is picked in order of its sequence numbers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};

/// Messages of one group that are picked before the next group has its turn.
const RUN_MAX: usize = 16;

/// A group, by the hash of its name. Two groups with one hash share a line, which keeps both in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct GroupKey(pub(super) u64);

impl GroupKey {
    /// FNV-1a: the same in every process and version, because claims carry it in the file.
    pub(super) fn of(name: &str) -> Self {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Self(name.bytes().fold(0xcbf2_9ce4_8422_2325, step))
    }
}

/// A message that was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pick {
    pub(super) seq: u64,
    pub(super) group: GroupKey,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    seq: u64,
    /// Milliseconds since 1970; 0 = at once.
    visible_at: u64,
}

#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    /// Messages handed out from here.
    out: u32,
    /// Another consumer of the file has messages of this group.
    elsewhere: bool,
    is_ready: bool,
    /// When the entry in `later` is due; 0 = none.
    alarm: u64,
}

impl Line {
    const fn is_held(&self) -> bool {
        self.out > 0 || self.elsewhere
    }
}

/// The front of the queue.
#[derive(Debug, Default)]
pub(super) struct Window {
    lines: HashMap<GroupKey, Line>,
    ready: VecDeque<GroupKey>,
    later: BinaryHeap<Reverse<(u64, GroupKey)>>,
    elsewhere: HashSet<GroupKey>,
    len: usize,
}

impl Window {
    /// Messages that wait in it.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Something may be picked.
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Groups of which something may be picked.
    pub(super) fn ready_groups(&self) -> usize {
        self.ready.len()
    }

    /// When the next delayed message becomes visible.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.later.peek().map(|Reverse((at, _))| *at)
    }

    /// A message that waits.
    pub(super) fn add(&mut self, pick: Pick, visible_at: u64, now: u64) {
        let elsewhere = self.elsewhere.contains(&pick.group);
        let line = self.lines.entry(pick.group).or_default();
        line.elsewhere = elsewhere;
        let entry = Waiting { seq: pick.seq, visible_at };
        match line.waiting.back() {
            Some(last) if last.seq > pick.seq => {
                let at = line.waiting.partition_point(|waiting| waiting.seq < pick.seq);
                if line.waiting[at].seq == pick.seq {
                    line.waiting[at] = entry;
                    return self.look(pick.group, now);
                }
                line.waiting.insert(at, entry);
            }
            Some(last) if last.seq == pick.seq => {
                if let Some(last) = line.waiting.back_mut() {
                    *last = entry;
                }
                return self.look(pick.group, now);
            }
            _ => line.waiting.push_back(entry),
        }
        self.len += 1;
        self.look(pick.group, now);
    }

    /// A message that is out already, as found in the file at the start.
    pub(super) fn hold(&mut self, group: GroupKey) {
        let elsewhere = self.elsewhere.contains(&group);
        let line = self.lines.entry(group).or_default();
        line.elsewhere = elsewhere;
        line.out += 1;
    }

    /// A message that was out is gone.
    pub(super) fn done(&mut self, group: GroupKey, now: u64) {
        if let Some(line) = self.lines.get_mut(&group) {
            debug_assert!(line.out > 0, "Q1: only what is out can be done");
            line.out = line.out.saturating_sub(1);
            self.look(group, now);
        }
    }

    /// A message that was out waits again, at its old place.
    pub(super) fn give_back(&mut self, pick: Pick, visible_at: u64, now: u64) {
        if let Some(line) = self.lines.get_mut(&pick.group) {
            debug_assert!(line.out > 0, "Q1: only what is out can come back");
            line.out = line.out.saturating_sub(1);
        }
        self.add(pick, visible_at, now);
    }

    /// Groups of which other consumers of the file have messages.
    pub(super) fn set_elsewhere(&mut self, groups: HashSet<GroupKey>, now: u64) {
        let before = std::mem::replace(&mut self.elsewhere, groups);
        let freed: Vec<GroupKey> = before.difference(&self.elsewhere).copied().collect();
        for &group in &self.elsewhere {
            if let Some(line) = self.lines.get_mut(&group) {
                line.elsewhere = true;
            }
        }
        for group in freed {
            if let Some(line) = self.lines.get_mut(&group) {
                line.elsewhere = false;
                self.look(group, now);
            }
        }
    }

    /// Forgets what waits and what is out; remembers what is out elsewhere.
    pub(super) fn clear(&mut self) {
        *self = Self { elsewhere: std::mem::take(&mut self.elsewhere), ..Self::default() };
    }

    /// Delayed messages whose time has come may be picked.
    pub(super) fn wake(&mut self, now: u64) {
        while let Some(&Reverse((at, group))) = self.later.peek()
            && at <= now
        {
            self.later.pop();
            if let Some(line) = self.lines.get_mut(&group) {
                if line.alarm == at {
                    line.alarm = 0;
                }
                self.look(group, now);
            }
        }
    }

    /// Picks up to `max` messages: a short run of each ready group in turn, and longer runs where there is
    /// nothing else. What is picked is out.
    pub(super) fn pick(&mut self, max: usize, now: u64) -> Vec<Pick> {
        let (mut picks, mut again) = (Vec::new(), VecDeque::new());
        while picks.len() < max
            && let Some(group) = self.ready.pop_front()
        {
            let Some(line) = self.lines.get_mut(&group) else { continue };
            line.is_ready = false;
            if line.is_held() {
                continue;
            }
            let before = picks.len();
            self.len -= run(line, group, RUN_MAX.min(max - picks.len()), now, &mut picks);
            if picks.len() == before {
                self.look(group, now);
            } else {
                again.push_back(group);
            }
        }
        while picks.len() < max
            && let Some(group) = again.pop_front()
        {
            let Some(line) = self.lines.get_mut(&group) else { continue };
            let before = picks.len();
            self.len -= run(line, group, RUN_MAX.min(max - picks.len()), now, &mut picks);
            if picks.len() > before {
                again.push_back(group);
            }
        }
        picks
    }

    /// Puts a group where it belongs: ready, later, or nowhere.
    fn look(&mut self, group: GroupKey, now: u64) {
        let Some(line) = self.lines.get_mut(&group) else { return };
        if line.is_held() || line.is_ready {
            return;
        }
        match line.waiting.front() {
            None => drop(self.lines.remove(&group)),
            Some(head) if head.visible_at <= now => {
                line.is_ready = true;
                self.ready.push_back(group);
            }
            Some(head) if line.alarm != head.visible_at => {
                line.alarm = head.visible_at;
                self.later.push(Reverse((head.visible_at, group)));
            }
            Some(_) => {}
        }
    }
}

/// Takes up to `max` visible messages from the front of a line.
fn run(line: &mut Line, group: GroupKey, max: usize, now: u64, picks: &mut Vec<Pick>) -> usize {
    let mut taken = 0;
    while taken < max
        && let Some(head) = line.waiting.front()
        && head.visible_at <= now
    {
        picks.push(Pick { seq: head.seq, group });
        line.waiting.pop_front();
        line.out += 1;
        taken += 1;
    }
    taken
}

#[cfg(test)]
#[path = "window/tests.rs"]
mod tests;
