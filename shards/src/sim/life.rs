//! The process's lives: start, crash, drain; and what changes around it while it lives.

use std::time::Duration;

use super::faults::Fault;
use super::plan::{Kind, draw_spec};
use super::process::{Process, source_id};
use super::world::{Event, World};

impl World {
    /// A new process starts: it knows its configuration and nothing else.
    pub(super) fn start(&mut self, unclean: bool) {
        self.oracle.follow_all(|| format!("a process starts, unclean {unclean}"));
        self.life += 1;
        let (brokers, drafts) = (&self.brokers, &self.plan.drafts);
        self.oracle.on_life(|message| brokers[usize::from(drafts[message as usize].source)].count(message));
        let mut process = Process::new(&self.plan, self.now);
        process.desk.set_traps(self.options.traps);
        for (pool, _) in self.plan.pools.iter().zip(&self.configured).filter(|(_, configured)| **configured) {
            process.desk.set_pool(pool.code.as_bytes(), pool.spec, self.now, &mut process.out);
        }
        for (at, source) in self.plan.sources.iter().enumerate() {
            let id = process.desk.add_source(source.spec, unclean, self.now);
            process.ports[at].epoch = self.brokers[at].epoch;
            process.desk.on_connected(id, self.brokers[at].epoch, source.spec);
        }
        self.wake_desk(&mut process, self.now);
        self.process = Some(process);
    }

    /// The process is gone from one moment to the next. Leases go on; connections do not.
    pub(super) fn crash(&mut self) {
        if self.process.take().is_none() || self.faults.is_calm() {
            return;
        }
        self.faults.count(Fault::Crash);
        self.restart(true);
    }

    /// The process is asked to end.
    pub(super) fn stop(&mut self) {
        if self.faults.is_calm() {
            return;
        }
        let Some(mut process) = self.process.take() else { return };
        if process.ends.is_none() {
            // Most of the stops are in a hurry, so that calls are cut short.
            let hurried = self.rng.chance(750_000);
            let wait = if hurried {
                self.rng.micros(1_000, 200_000)
            } else {
                Duration::from_secs(self.rng.range(1, 25))
            };
            process.ends = Some(self.now + wait);
            process.desk.drain(self.now, &mut process.out);
            self.wake_desk(&mut process, self.now);
        }
        self.process = Some(process);
    }

    /// The process has ended by itself.
    pub(super) fn end(&mut self, clean: bool) {
        self.faults.count(Fault::CleanRestart);
        self.restart(!clean);
    }

    fn restart(&mut self, unclean: bool) {
        self.life += 1;
        for source in 0..self.plan.sources.len() {
            if self.plan.sources[source].kind == Kind::Connected {
                self.brokers[source].lose_connection();
            }
        }
        // Longer than anything is under way to a broker.
        let at = self.now + self.rng.micros(1_000_000, 6_000_000);
        self.schedule(at, Event::Start { unclean });
    }

    pub(super) fn lose_connection(&mut self, source: usize) {
        if self.faults.is_calm() || self.process.is_none() {
            return;
        }
        self.faults.count(Fault::ConnectionLost);
        for message in self.brokers[source].lose_connection() {
            self.oracle.step(message, || "is back: its connection is lost".to_owned());
        }
        let at = self.now + self.rng.micros(500, 2_000_000);
        self.schedule(at, Event::Epoch { life: self.life, source });
    }

    /// The process has a new connection.
    pub(super) fn on_epoch(&mut self, source: usize) {
        let Some(mut process) = self.process.take() else { return };
        let epoch = self.brokers[source].epoch;
        process.ports[source].epoch = epoch;
        process.desk.on_connected(source_id(source), epoch, self.plan.sources[source].spec);
        // What was to be told to the old connection can't be.
        self.wake_desk(&mut process, self.now);
        self.process = Some(process);
    }

    /// A pool is changed, removed or added.
    pub(super) fn reconfigure(&mut self) {
        if self.faults.is_calm() {
            return;
        }
        let Some(mut process) = self.process.take() else { return };
        let at = usize::try_from(self.rng.below(self.plan.pools.len() as u64)).unwrap_or(0);
        let code = self.plan.pools[at].code.clone();
        let pool = u16::try_from(at).unwrap_or(0);
        if self.configured[at] && self.rng.chance(400_000) {
            self.faults.count(Fault::PoolRemoved);
            self.configured[at] = false;
            self.oracle.follow_all(|| format!("pool {code} is removed"));
            self.oracle.on_moved(&self.plan, pool);
            process.desk.remove_pool(code.as_bytes(), self.now, &mut process.out);
        } else {
            let spec = &mut self.plan.pools[at].spec;
            let (batch_max, parallel) = (spec.batch_max, spec.ungrouped_parallel);
            *spec = draw_spec(&mut self.rng);
            spec.batch_max = batch_max;
            spec.ungrouped_parallel = parallel;
            let spec = *spec;
            if std::mem::replace(&mut self.configured[at], true) {
                self.faults.count(Fault::ConfigChanged);
            } else {
                self.faults.count(Fault::PoolAdded);
                self.oracle.follow_all(|| format!("pool {code} is added"));
                self.oracle.on_moved(&self.plan, pool);
            }
            process.desk.set_pool(code.as_bytes(), spec, self.now, &mut process.out);
        }
        self.wake_desk(&mut process, self.now);
        self.process = Some(process);
    }
}
