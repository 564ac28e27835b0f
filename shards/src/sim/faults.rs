//! What can go wrong, how often, and how often it did.

use super::rng::Rng;

macro_rules! faults {
    ($($name:ident => $text:literal),+ $(,)?) => {
        /// Something that went wrong on purpose.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault { $(#[doc = $text] $name),+ }

        impl Fault {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// In words.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }
        }
    };
}

faults! {
    Crash => "process crash",
    CleanRestart => "clean drain and restart",
    DrainTimeout => "drain that ran out of time",
    Duplicate => "message handed over twice",
    Repeat => "acked message handed over again",
    SlowHop => "slow hop between cores",
    SlowBroker => "slow broker",
    AnswersReordered => "answers out of order",
    AckLostBefore => "ack lost before the broker",
    AckLostAfter => "answer to an ack lost",
    NackLost => "nack lost",
    StaleReceipt => "stale receipt used",
    ExtensionFailed => "lease extension failed",
    LeaseExpired => "lease expired",
    SlowTarget => "target slower than the lease",
    DeadTarget => "call to a dead target",
    Refused => "4xx",
    Throttled => "429 with Retry-After",
    ServerError => "5xx",
    NotYet => "ack:false with delay",
    Timeout => "timeout",
    StaleConnection => "stale connection",
    ConfigChanged => "pool limits changed",
    PoolRemoved => "pool removed",
    PoolAdded => "pool added",
    RingFull => "ring full",
    Twin => "twin message",
    ConnectionLost => "connection lost",
    Unheard => "message handed to a process that is gone",
    LateBatch => "batch of a lost connection",
    AnswerLost => "batch whose answer was lost",
    DeadLetterFailed => "dead-letter store failed",
}

/// Kinds of fault.
pub const FAULTS: usize = Fault::ALL.len();

/// How often each fault fired.
pub type FaultCounts = [u64; FAULTS];

/// Decides what goes wrong, and counts it.
#[derive(Debug)]
pub(super) struct Faults {
    pub(super) counts: FaultCounts,
    rates: [u32; FAULTS],
    calm: bool,
}

impl Faults {
    /// Draws how often each fault fires in this run, per million chances. A third of the runs are rough,
    /// and in any run some kinds do not fire at all.
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let scale = rng.pick(&[200_u64, 1_000, 3_000]);
        let mut rates = [0; FAULTS];
        for (rate, &fault) in rates.iter_mut().zip(Fault::ALL) {
            let per_thousand = match fault {
                Fault::AckLostBefore | Fault::AckLostAfter | Fault::ExtensionFailed => 10,
                Fault::AnswerLost => 3,
                Fault::Duplicate | Fault::Repeat | Fault::NackLost | Fault::SlowBroker => 20,
                Fault::DeadLetterFailed | Fault::AnswersReordered => 100,
                Fault::LateBatch => 700,
                Fault::SlowHop => 5,
                Fault::SlowTarget | Fault::Timeout | Fault::StaleConnection => 2,
                Fault::Refused | Fault::Throttled | Fault::NotYet => 4,
                Fault::ServerError => 8,
                _ => 0,
            };
            if !rng.chance(250_000) {
                *rate = u32::try_from((per_thousand * scale).min(700_000)).unwrap_or(0);
            }
        }
        Self { counts: [0; FAULTS], rates, calm: false }
    }

    /// Does it go wrong now?
    pub(super) fn strikes(&mut self, fault: Fault, rng: &mut Rng) -> bool {
        let rate = self.rates[fault as usize];
        if self.calm || rate == 0 || !rng.chance(rate) {
            return false;
        }
        self.count(fault);
        true
    }

    /// It went wrong for a reason of its own.
    pub(super) const fn count(&mut self, fault: Fault) {
        self.counts[fault as usize] += 1;
    }

    /// Nothing goes wrong from now on.
    pub(super) const fn calm(&mut self) {
        self.calm = true;
    }

    pub(super) const fn is_calm(&self) -> bool {
        self.calm
    }
}
