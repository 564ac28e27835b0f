//! Answers what people ask of a shard: where a message is, and what it waits for.

use super::Shard;
use super::lane::State;
use crate::model::{Seen, Wait, Wanted};

impl Shard {
    /// What is found of `wanted` here, in that order.
    #[must_use]
    pub fn look(&self, wanted: &[Wanted]) -> Vec<Seen> {
        wanted.iter().filter_map(|wanted| self.look_for(*wanted)).collect()
    }

    fn look_for(&self, wanted: Wanted) -> Option<Seen> {
        let lane = self.lanes.find(wanted.lane)?;
        let state = self.lanes.get(lane);
        let mut places = (0..).zip(self.lanes.iter(lane));
        let (place, envelope) =
            places.find(|(_, envelope)| wanted.ticket.is_none_or(|ticket| ticket == envelope.ticket))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let riding = if state.state == State::Running { u32::from(state.span) } else { 1 };
        Some(Seen {
            shard: self.id,
            lane: wanted.lane,
            depth: state.len,
            ticket: envelope.ticket,
            place,
            id: text(envelope.parcel.id()),
            group: text(envelope.parcel.group()),
            target: envelope.parcel.target().to_owned(),
            attempts: envelope.attempts,
            wait: if place < riding { self.wait_of(lane) } else { Wait::Others },
        })
    }

    fn wait_of(&self, lane: u32) -> Wait {
        let state = self.lanes.get(lane);
        match state.state {
            State::Running => Wait::Answer { since: state.at, origin: state.origin },
            State::Paused => Wait::Pause { until: state.at },
            State::Held => Wait::Breaker,
            State::Ready | State::Empty => {
                let pool = self.pools[usize::from(state.key.pool.0)].as_ref();
                match pool {
                    Some(pool) if pool.waits_for_permit => Wait::Permit,
                    Some(pool) if pool.waits_for_rate => Wait::Rate,
                    _ => Wait::Turn,
                }
            }
        }
    }
}
