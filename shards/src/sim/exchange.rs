//! Between the process and the brokers: receives, tells and answers, each with its own delay.

use std::time::Duration;

use super::broker::{Broker, Handed, Reply};
use super::faults::Fault;
use super::plan::Kind;
use super::process::{Answer, Port, parcel_of, source_id};
use super::world::{Event, World};
use crate::clock::Moment;
use crate::desk::{Arrival, Receipt, Stage, Tell};
use crate::model::Ticket;

/// Tells sent at once (SQS takes ten).
const CHUNK: usize = 10;
/// How long a receive waits for messages.
const LONG_POLL: Duration = Duration::from_secs(2);
/// Batches whose connection breaks while they are under way, per million.
const CUT_PER_MILLION: u32 = 15_000;
/// Looks at its queue that a receive without a process lets pass, per million: it takes messages late.
const LATE_PER_MILLION: u32 = 800_000;

impl World {
    fn broker_delay(&mut self) -> Duration {
        let slow = self.faults.strikes(Fault::SlowBroker, &mut self.rng);
        if slow { self.rng.micros(50_000, 900_000) } else { self.rng.latency(200, 20_000) }
    }

    pub(super) fn send_receive(&mut self, source: usize, max: usize) {
        let at = self.now + self.broker_delay();
        let until = at + LONG_POLL.max(self.plan.sources[source].spec.unheard_max);
        self.schedule(at, Event::Receive { life: self.life, source, max, until });
    }

    /// A receive is at the broker. It waits for messages (where [`crate::desk::SourceSpec::unheard_max`] says so, even if
    /// the process is gone); it is answered even if the process is gone, and then what it handed over stays hidden.
    pub(super) fn on_receive(&mut self, life: u32, source: usize, max: usize, until: Moment) {
        let known = self.process.as_ref().map(|process| process.ports[source].epoch);
        let broker = &mut self.brokers[source];
        if self.plan.sources[source].kind == Kind::Connected
            && (life != self.life || known != Some(broker.epoch))
        {
            // The connection is gone, and its consumer with it.
            let batch = Vec::new();
            self.schedule(self.now, Event::Batch { life, source, epoch: 0, batch });
            return;
        }
        let is_heard = life == self.life;
        let waits = is_heard || !self.plan.sources[source].spec.unheard_max.is_zero();
        if !is_heard && waits && self.now < until && self.rng.chance(LATE_PER_MILLION) {
            let again = self.now + self.rng.micros(500_000, 2_000_000);
            self.schedule(again, Event::Receive { life, source, max, until });
            return;
        }
        let broker = &mut self.brokers[source];
        let mut batch = broker.receive(max, self.now);
        let epoch = broker.epoch;
        self.repeat_some(source, &mut batch);
        self.look_at_broker(source);
        if batch.is_empty() && self.now < until && waits {
            let again = self.now + self.rng.micros(20_000, 200_000);
            self.schedule(again, Event::Receive { life, source, max, until });
            return;
        }
        for handed in &batch {
            self.oracle
                .step(handed.message, || format!("is handed over, number {}", handed.receipt.key & 0xffff));
            self.oracle.on_handed(handed.message);
            if !is_heard {
                self.faults.count(Fault::Unheard);
                self.oracle.on_unknown_hand_over(handed.message);
            }
        }
        if is_heard
            && !batch.is_empty()
            && self.plan.sources[source].kind != Kind::Connected
            && self.faults.strikes(Fault::AnswerLost, &mut self.rng)
        {
            for handed in &batch {
                self.oracle.on_unknown_hand_over(handed.message);
                // A repeated one voids the receipt that the process has.
                self.oracle.fates[handed.message as usize].lease_excused = true;
            }
            let at = self.now + self.rng.micros(20_000, 3_000_000);
            self.schedule(at, Event::Unheard { life, source, until: self.now });
            return;
        }
        // A connection that breaks while a batch is on its way.
        if self.plan.sources[source].kind == Kind::Connected
            && !batch.is_empty()
            && life == self.life
            && self.rng.chance(CUT_PER_MILLION)
        {
            self.schedule(self.now, Event::LoseConnection { source });
        }
        let at = self.now + self.broker_delay();
        self.schedule(at, Event::Batch { life, source, epoch, batch });
    }

    /// The process gives up waiting for an answer.
    pub(super) fn on_unheard(&mut self, source: usize, until: Moment) {
        let Some(mut process) = self.process.take() else { return };
        process.ports[source].receiving = false;
        process.desk.on_unheard(source_id(source), until);
        self.wake_desk(&mut process, self.now);
        self.process = Some(process);
    }

    /// A broker that repeats itself hands over what is out, or was acked, once more.
    fn repeat_some(&mut self, source: usize, batch: &mut Vec<Handed>) {
        if !self.plan.sources[source].spec.repeats {
            return;
        }
        for fault in [Fault::Duplicate, Fault::Repeat] {
            if !self.faults.strikes(fault, &mut self.rng) {
                continue;
            }
            let wanted = fault == Fault::Repeat;
            let broker = &mut self.brokers[source];
            let messages = self.plan.drafts.len() as u64;
            let start = self.rng.below(messages);
            let found =
                (0..messages).map(|step| u32::try_from((start + step) % messages).unwrap_or(0)).find(|&m| {
                    let gone = broker.place(m) == super::broker::Place::Gone;
                    gone == wanted
                        && broker.may_repeat(m, self.now)
                        && batch.iter().all(|other| other.message != m)
                });
            if let Some(message) = found {
                batch.push(broker.hand_over(message, self.now));
                self.oracle.on_unknown_hand_over(message);
            }
        }
    }

    /// Takes note of leases that ran out and of messages that the broker set aside.
    fn look_at_broker(&mut self, source: usize) {
        let expired = std::mem::take(&mut self.brokers[source].expired);
        for message in expired {
            self.faults.count(Fault::LeaseExpired);
            let held = self.process.as_ref().is_some_and(|process| {
                let id = process.desk.hasher().broker_id(source_id(source), &message.to_le_bytes());
                let slot = process.desk.tracker().by_broker_id(id);
                slot.is_some_and(|slot| {
                    let stage = process.desk.tracker().at(slot).stage;
                    !matches!(stage, Stage::Closing | Stage::SettingAside | Stage::SetAside)
                })
            });
            self.oracle.on_lease_expired(message, held);
        }
        for message in std::mem::take(&mut self.brokers[source].dropped) {
            self.oracle.on_dropped(message);
        }
    }

    /// A batch is at the process.
    pub(super) fn on_batch(&mut self, source: usize, epoch: u32, batch: &[Handed]) {
        let Some(mut process) = self.process.take() else { return };
        let hasher = process.desk.hasher();
        let port = &mut process.ports[source];
        port.receiving = false;
        let late = epoch != self.brokers[source].epoch;
        if !late || (!batch.is_empty() && self.faults.strikes(Fault::LateBatch, &mut self.rng)) {
            let arrivals = batch.iter().map(|handed| {
                self.oracle.step(handed.message, || format!("arrives, epoch {epoch}, late {late}"));
                self.oracle.on_arrived(handed.message);
                let draft = &self.plan.drafts[handed.message as usize];
                Arrival {
                    parcel: parcel_of(&self.plan, handed.message),
                    broker_id: hasher.broker_id(source_id(source), &handed.message.to_le_bytes()),
                    receipt: handed.receipt,
                    deliveries: handed.deliveries,
                    dispatch: draft.dispatch,
                    high_priority: draft.high_priority,
                }
            });
            port.inbox.push(arrivals.collect());
        }
        self.wake_desk(&mut process, self.now);
        self.process = Some(process);
    }

    /// Sends what a source is to be told, in parts that may overtake each other.
    pub(super) fn send_tells(&mut self, source: usize, port: &mut Port) {
        if port.settling > 0 || port.outbox.is_empty() {
            return;
        }
        let one_stream = self.plan.sources[source].kind == Kind::Connected;
        let mut rest = std::mem::take(&mut port.outbox);
        while !rest.is_empty() {
            let size = if one_stream { rest.len() } else { CHUNK.min(rest.len()) };
            let tells = rest.drain(..size).collect();
            port.settling += 1;
            let at = self.now + self.broker_delay();
            self.schedule(at, Event::Tells { life: self.life, source, sent: self.now, tells });
        }
    }

    /// Tells are at the broker. They are obeyed even if the process is gone by now.
    pub(super) fn on_tells(&mut self, life: u32, source: usize, sent: Moment, tells: Vec<(Receipt, Tell)>) {
        let mut answers = Vec::new();
        for (receipt, tell) in tells {
            let answer = match tell {
                Tell::Ack { ticket } => {
                    let done = self.on_ack(source, receipt);
                    ticket.map(|ticket| Answer::Closed { ticket, done })
                }
                Tell::Answered { .. } => unreachable!("no simulated source judges"),
                Tell::Nack { delay_s, .. } => {
                    self.on_nack(life, source, receipt, delay_s);
                    None
                }
                Tell::Extend { ticket } => Some(self.on_extend(source, receipt, ticket, sent)),
                Tell::DeadLetter { ticket, .. } => Some(self.on_dead_letter(source, receipt, ticket)),
            };
            answers.extend(answer);
        }
        self.look_at_broker(source);
        if answers.len() > 1 && self.faults.strikes(Fault::AnswersReordered, &mut self.rng) {
            answers.reverse();
        }
        let at = self.now + self.broker_delay();
        self.schedule(at, Event::Answers { life, source, answers });
    }

    fn on_ack(&mut self, source: usize, receipt: Receipt) -> bool {
        // Where an ack is lost only with its connection, all else is lost too: rarer.
        let connected = self.plan.sources[source].kind == Kind::Connected;
        let may = !connected || self.rng.chance(30_000);
        let before = may && self.faults.strikes(Fault::AckLostBefore, &mut self.rng);
        let after = may && !before && self.faults.strikes(Fault::AckLostAfter, &mut self.rng);
        if !before {
            let reply = self.brokers[source].ack(receipt, self.now);
            match reply {
                Reply::Done => self.oracle.on_ack_applied(&self.plan, Broker::message_of(receipt)),
                Reply::Pretended | Reply::Refused => self.faults.count(Fault::StaleReceipt),
            }
            if !after {
                return reply != Reply::Refused;
            }
        }
        if connected {
            self.lose_connection(source);
        }
        false
    }

    fn on_nack(&mut self, life: u32, source: usize, receipt: Receipt, delay_s: u32) {
        let connected = self.plan.sources[source].kind == Kind::Connected;
        if !connected && self.faults.strikes(Fault::NackLost, &mut self.rng) {
            // A process that ends knows that it could not tell its source: the stop was not a clean one.
            if let Some(process) = self.process.as_mut()
                && life == self.life
                && process.ends.is_some()
            {
                process.untold = true;
            }
            return;
        }
        let delay = Duration::from_secs(u64::from(delay_s));
        if self.brokers[source].nack(receipt, delay, self.now) != Reply::Done {
            self.faults.count(Fault::StaleReceipt);
        }
    }

    fn on_extend(&mut self, source: usize, receipt: Receipt, ticket: Ticket, sent: Moment) -> Answer {
        let message = Broker::message_of(receipt);
        if self.faults.strikes(Fault::ExtensionFailed, &mut self.rng) {
            self.oracle.fates[message as usize].lease_excused = true;
            return Answer::Extended { ticket, done: false, sent };
        }
        let reply = self.brokers[source].extend(receipt, self.now);
        if reply != Reply::Done {
            self.faults.count(Fault::StaleReceipt);
        }
        Answer::Extended { ticket, done: reply != Reply::Refused, sent }
    }

    fn on_dead_letter(&mut self, source: usize, receipt: Receipt, ticket: Ticket) -> Answer {
        if self.faults.strikes(Fault::DeadLetterFailed, &mut self.rng) {
            return Answer::NotSetAside { ticket };
        }
        self.oracle.fates[Broker::message_of(receipt) as usize].parked = true;
        let done = self.on_ack(source, receipt);
        Answer::Closed { ticket, done }
    }

    pub(super) fn on_answers(&mut self, source: usize, answers: Vec<Answer>) {
        let Some(mut process) = self.process.take() else { return };
        let port = &mut process.ports[source];
        port.settling -= 1;
        port.answers.extend(answers);
        self.wake_desk(&mut process, self.now);
        self.process = Some(process);
    }
}
