//! Plain data that the desk, the shards and the courier pass to each other. No behaviour beyond
//! validation and layout, no I/O, no clock.

mod envelope;
mod ids;
mod outcome;
mod parcel;
mod pool;
mod seen;
mod target;
mod tuning;

pub use envelope::{Control, Dispatch, Envelope, Flags, FromShard, Notice, Ordering, Settlement, ToShard};
pub use ids::{BatchId, CallId, IdHash, IdHasher, LaneKey, OriginId, PoolId, ShardId, SourceId, Ticket};
pub use outcome::{DeadReason, Fault, Mediation, NackReason, Outcome, Verdict};
pub use parcel::{Parcel, ParcelError, Parts};
pub use pool::PoolSpec;
pub use seen::{Seen, Wait, Wanted};
pub use target::{Scheme, Target, TargetError};
pub use tuning::{AckMode, BreakerScope, CourierTuning, DeskTuning, HttpVersion, ShardTuning};
