//! The oracle's view of pools: their limits as the desk announced them, and what runs in them (I3, I6).

use super::oracle::Oracle;
use super::plan::{NONE, Plan};
use crate::clock::Moment;
use crate::model::{Control, Dispatch, Ordering, PoolId, PoolSpec, Ticket};
use crate::shard::WINDOW;

#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    pub(super) spec: PoolSpec,
    start: Moment,
    window: u64,
    used: u32,
    pub(super) running: u32,
}

/// A delivery whose ack is not answered yet, of a source that holds permits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unkept {
    pool: PoolId,
    /// The last message of the call.
    message: u32,
    /// Known when its shard has settled it.
    ticket: Option<Ticket>,
}

impl Oracle {
    pub(super) fn on_delivered(&mut self, plan: &Plan, pool: PoolId, messages: &[u32]) {
        let message = messages[messages.len() - 1];
        if plan.sources[usize::from(plan.drafts[message as usize].source)].spec.holds_permits {
            self.unkept.push(Unkept { pool, message, ticket: None });
        }
    }

    pub(super) fn on_ticket(&mut self, message: u32, ticket: Ticket) {
        if let Some(unkept) = self.unkept.iter_mut().find(|it| it.message == message && it.ticket.is_none()) {
            unkept.ticket = Some(ticket);
        }
    }

    /// After the desk's turn. `is_held`: it has not let go of this one.
    pub(super) fn on_desk_turn(&mut self, is_held: impl Fn(Ticket) -> bool) {
        self.unkept.retain(|unkept| unkept.ticket.is_none_or(&is_held));
    }

    pub(super) fn on_control(&mut self, control: &Control) {
        match control {
            Control::PoolAdd { pool, spec, .. } => {
                let at = usize::from(pool.0);
                if self.pools.len() <= at {
                    self.pools.resize(at + 1, None);
                }
                self.pools[at] =
                    Some(Watched { spec: *spec, start: self.now, window: 0, used: 0, running: 0 });
            }
            Control::PoolChanged { pool, spec } => {
                if let Some(Some(watched)) = self.pools.get_mut(usize::from(pool.0)) {
                    watched.spec = *spec;
                }
            }
            _ => {}
        }
    }

    pub(super) fn check_limits(&mut self, pool: PoolId, starts: bool) {
        let Some(Some(watched)) = self.pools.get_mut(usize::from(pool.0)) else { return };
        watched.running += 1;
        let window = u64::try_from(self.now.since(watched.start).as_nanos() / WINDOW.as_nanos()).unwrap_or(0);
        if watched.window != window {
            watched.window = window;
            watched.used = 0;
        }
        let limit = u32::from(watched.spec.concurrency.get());
        let rate = watched.spec.rate_per_minute.map(std::num::NonZero::get);
        watched.used += u32::from(starts && rate.is_some());
        let seen = *watched;
        let unkept = self.unkept.iter().filter(|unkept| unkept.pool == pool).count();
        self.check(6, seen.running as usize + unkept <= limit as usize, || {
            format!("{} calls of pool {} and {unkept} unkept acks, limit {limit}", seen.running, pool.0)
        });
        if starts && let Some(rate) = rate {
            self.check(6, seen.used <= rate, || {
                format!("{} starts of pool {} in window {window}, rate {rate}", seen.used, pool.0)
            });
        }
    }

    /// Is one call at a time promised to the lane of this message?
    pub(super) fn is_ordered(&self, plan: &Plan, message: u32) -> bool {
        let draft = &plan.drafts[message as usize];
        let ordering = plan.sources[usize::from(draft.source)].spec.ordering;
        let pool = self.pools.get(usize::from(self.fates[message as usize].pool.0)).copied().flatten();
        let parallel = pool.is_some_and(|pool| pool.spec.ungrouped_parallel);
        ordering != Ordering::None
            && draft.dispatch != Dispatch::Immediate
            && (draft.group != NONE || !parallel)
    }
}
