//! Questions about single messages and groups: the desk says which, their shards say what they wait for.

use std::collections::HashMap;
use std::time::Duration;

use shards::clock::Moment;
use shards::desk::{Desk, Entry, Stage};
use shards::model::{LaneKey, Seen, ShardId, Wait, Wanted};

use crate::view::{GroupView, MessageView};

/// Which messages or groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// The message with this sender's id.
    Message(String),
    /// The group with this name, in every pool that has messages of it.
    Group(String),
    /// The groups with the most messages.
    Deepest(usize),
    /// The groups whose heads have been here longest.
    OldestGroups(usize),
    /// The messages that have been here longest.
    Oldest(usize),
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Messages; of a group, its head.
    pub messages: Vec<MessageView>,
    /// Groups, for questions about groups.
    pub groups: Vec<GroupView>,
}

/// A question under way.
pub(super) struct Asked {
    pub(super) reply: flume::Sender<Found>,
    /// Shards that have not answered.
    pub(super) waits_for: Vec<ShardId>,
    of_groups: bool,
    /// Lanes in the order in which they are to be shown.
    order: Vec<LaneKey>,
    /// Messages that no shard has, told by the desk alone.
    known: Vec<MessageView>,
    seen: Vec<Seen>,
}

/// Names that the desk does not know.
pub(super) struct Names<'a> {
    /// The queue of a source.
    pub(super) queue: &'a dyn Fn(shards::model::SourceId) -> String,
}

/// How many lanes are looked through for the groups with the oldest heads.
const OLDEST_FACTOR: usize = 16;

impl Asked {
    /// Finds out which shards to ask for what. None at all: the answer is complete.
    pub(super) fn new(
        question: &Question,
        reply: flume::Sender<Found>,
        desk: &Desk,
        names: &Names<'_>,
        now: Moment,
    ) -> (Self, Vec<(ShardId, Vec<Wanted>)>) {
        let head = |lane| Wanted { lane, ticket: None };
        let mut known = Vec::new();
        let mut slots = Vec::new();
        let wanted: Vec<Wanted> = match question {
            Question::Message(id) => {
                slots.extend(desk.find(id.as_bytes()));
                slots.iter().filter_map(|&slot| desk.wanted(slot)).collect()
            }
            Question::Oldest(max) => {
                slots = desk.oldest(*max);
                slots.iter().filter_map(|&slot| desk.wanted(slot)).collect()
            }
            Question::Group(name) => {
                let name = if name == DEFAULT_GROUP { "" } else { name.as_str() };
                desk.lanes_of(name.as_bytes()).into_iter().map(head).collect()
            }
            Question::Deepest(max) => desk.deepest(*max).into_iter().map(|(lane, _)| head(lane)).collect(),
            Question::OldestGroups(max) => {
                let mut lanes: Vec<LaneKey> = Vec::new();
                for slot in desk.oldest(max.saturating_mul(OLDEST_FACTOR)) {
                    let lane = desk.tracker().at(slot).lane;
                    if lanes.len() < *max && !lanes.contains(&lane) {
                        lanes.push(lane);
                    }
                }
                lanes.into_iter().map(head).collect()
            }
        };
        for slot in slots {
            let entry = desk.tracker().at(slot);
            if entry.stage != Stage::Out {
                let mut view = of_entry(entry, desk, names, now);
                stage_words(entry.stage).clone_into(&mut view.waits_for);
                if let Question::Message(id) = question {
                    view.id.clone_from(id);
                }
                known.push(view);
            }
        }
        let of_groups = !matches!(question, Question::Message(_) | Question::Oldest(_));
        let order = wanted.iter().map(|wanted| wanted.lane).collect();
        let mut asks: Vec<(ShardId, Vec<Wanted>)> = Vec::new();
        for wanted in wanted {
            let shard = desk.shard_for(wanted.lane);
            match asks.iter_mut().find(|(other, _)| *other == shard) {
                Some((_, list)) => list.push(wanted),
                None => asks.push((shard, vec![wanted])),
            }
        }
        let waits_for = asks.iter().map(|(shard, _)| *shard).collect();
        (Self { reply, waits_for, of_groups, order, known, seen: Vec::new() }, asks)
    }

    /// A shard answered. True if all have.
    pub(super) fn on_seen(&mut self, shard: ShardId, seen: Vec<Seen>) -> bool {
        self.waits_for.retain(|&other| other != shard);
        self.seen.extend(seen);
        self.waits_for.is_empty()
    }

    /// Sends the answer.
    pub(super) fn finish(self, desk: &Desk, names: &Names<'_>, now: Moment) {
        let mut found = Found { messages: self.known, groups: Vec::new() };
        let mut seen = self.seen;
        let places: HashMap<LaneKey, usize> =
            self.order.iter().enumerate().rev().map(|(at, &lane)| (lane, at)).collect();
        seen.sort_by_key(|seen| (places.get(&seen.lane).copied(), seen.place));
        for seen in seen {
            let Some(entry) = desk.entry(seen.ticket) else { continue };
            let message = of_seen(&seen, entry, desk, names, now);
            if self.of_groups {
                found.groups.push(group_of(&seen, &message));
            }
            found.messages.push(message);
        }
        let _ = self.reply.send(found);
    }
}

/// The group of messages that name none.
pub const DEFAULT_GROUP: &str = "__DEFAULT__";

fn of_entry(entry: &Entry, desk: &Desk, names: &Names<'_>, now: Moment) -> MessageView {
    let pool = desk.pool(entry.lane.pool);
    let leased = entry.lease_until > now && entry.lease_until != Moment::NEVER;
    MessageView {
        queue: (names.queue)(entry.source),
        pool: pool.map(|pool| String::from_utf8_lossy(&pool.code).into_owned()).unwrap_or_default(),
        shard: desk.shard_for(entry.lane).0,
        deliveries: entry.deliveries,
        age_s: now.since(entry.first_at).as_secs_f64(),
        lease_left_s: leased.then(|| entry.lease_until.since(now).as_secs_f64()),
        ..MessageView::default()
    }
}

fn of_seen(seen: &Seen, entry: &Entry, desk: &Desk, names: &Names<'_>, now: Moment) -> MessageView {
    let (waits_for, resumes) = wait_words(seen, now);
    MessageView {
        id: seen.id.clone(),
        group: if seen.group.is_empty() { DEFAULT_GROUP.to_owned() } else { seen.group.clone() },
        target: seen.target.clone(),
        shard: seen.shard.0,
        place: u64::from(seen.place),
        attempts: seen.attempts,
        waits_for,
        resumes_in_s: resumes.map(|wait| wait.as_secs_f64()),
        ..of_entry(entry, desk, names, now)
    }
}

fn group_of(seen: &Seen, head: &MessageView) -> GroupView {
    GroupView {
        pool: head.pool.clone(),
        group: head.group.clone(),
        shard: head.shard,
        depth: u64::from(seen.depth),
        age_s: head.age_s,
        head: head.id.clone(),
        attempts: head.attempts,
        waits_for: head.waits_for.clone(),
        resumes_in_s: head.resumes_in_s,
    }
}

const fn stage_words(stage: Stage) -> &'static str {
    match stage {
        Stage::Out => "its shard",
        Stage::Parked => "an older message of its group that went back to the queue",
        Stage::TwinOf(_) => "the message with the same id that came before it",
        Stage::Closing => "the queue to confirm the ack: it is delivered",
        Stage::SettingAside => "the dead-letter store",
        Stage::SetAside => "the queue to confirm the ack: it is in the dead-letter store",
    }
}

fn wait_words(seen: &Seen, now: Moment) -> (String, Option<Duration>) {
    match seen.wait {
        Wait::Answer { since, .. } => {
            (format!("the target's answer, for {:.1} s", now.since(since).as_secs_f64()), None)
        }
        Wait::Pause { until } => ("the next try".to_owned(), Some(until.since(now))),
        Wait::Breaker => ("its target's breaker".to_owned(), None),
        Wait::Permit => ("a free place: the pool's concurrency is in use".to_owned(), None),
        Wait::Rate => ("the pool's rate limit".to_owned(), None),
        Wait::Turn => ("its turn, now".to_owned(), Some(Duration::ZERO)),
        Wait::Others => (format!("{} before it in its group", seen.place), None),
    }
}
