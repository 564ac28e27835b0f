//! Knobs, with the defaults of the router document.

use std::time::Duration;

/// When a 2xx counts as delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AckMode {
    /// Unless it says `ack: false`.
    #[default]
    Lenient,
    /// Only if it says `ack: true`.
    Strict,
}

/// Which HTTP is spoken to targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2 where TLS negotiates it, else HTTP/1.1.
    #[default]
    Negotiate,
    /// HTTP/2 on clear text too, without asking.
    Http2PriorKnowledge,
}

/// What one breaker guards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BreakerScope {
    /// One target origin.
    #[default]
    Origin,
    /// All targets.
    Global,
}

/// A shard's knobs.
#[derive(Clone, Copy, Debug)]
pub struct ShardTuning {
    /// Calls per delivery.
    pub calls_max: u8,
    /// Pause after the n-th call: n × this.
    pub retry_pause: Duration,
    /// What a breaker guards.
    pub breaker_scope: BreakerScope,
    /// Calls a breaker looks back on.
    pub breaker_window: u8,
    /// Failures among them that trip it.
    pub breaker_failures: u8,
    /// How long it stays tripped.
    pub breaker_wait: Duration,
    /// Probes that must succeed before it admits all again.
    pub breaker_probes: u8,
    /// Delay of a failed message's followers, at least.
    pub cascade_delay_s: u32,
    /// Messages started in one turn at most, so that replies are read in between.
    pub starts_per_turn: u32,
    /// A call without an outcome after this long is reported: the courier's timeout and 5 s.
    pub call_max: Duration,
}

impl Default for ShardTuning {
    fn default() -> Self {
        Self {
            calls_max: 3,
            retry_pause: Duration::from_secs(1),
            breaker_scope: BreakerScope::Origin,
            breaker_window: 10,
            breaker_failures: 5,
            breaker_wait: Duration::from_secs(5),
            breaker_probes: 3,
            cascade_delay_s: 10,
            starts_per_turn: 1_024,
            call_max: Duration::from_secs(905),
        }
    }
}

/// A courier's knobs.
#[derive(Clone, Copy, Debug)]
pub struct CourierTuning {
    /// Time to open a connection, TLS included.
    pub connect_timeout: Duration,
    /// Time from the start of a call to its answer's last byte, connecting included.
    pub request_timeout: Duration,
    /// An unused connection is closed after this.
    pub idle_timeout: Duration,
    /// Connections to one origin from one shard at most; further calls wait for one.
    pub connections_max: u32,
    /// HTTP/2 streams on one connection at most (the peer may ask for fewer).
    pub streams_max: u32,
    /// Longest response head read.
    pub head_bytes_max: usize,
    /// Longest response body read.
    pub body_bytes_max: usize,
    /// When a 2xx counts as delivered.
    pub ack_mode: AckMode,
    /// Which HTTP.
    pub http: HttpVersion,
    /// Answer every call with success inside the shard and send nothing: for measuring the engine alone.
    pub loopback: bool,
}

impl Default for CourierTuning {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(900),
            idle_timeout: Duration::from_secs(30),
            connections_max: 16_384,
            streams_max: 256,
            head_bytes_max: 16 << 10,
            body_bytes_max: 64 << 10,
            ack_mode: AckMode::Lenient,
            http: HttpVersion::Negotiate,
            loopback: false,
        }
    }
}

/// The desk's knobs.
#[derive(Clone, Copy, Debug)]
pub struct DeskTuning {
    /// Bytes of messages held at most, over all pools.
    pub memory_budget: usize,
    /// Waiting messages per permit that are asked for while every permit of a pool is in use; 20 = all
    /// that the pool may hold.
    pub prefetch: u32,
    /// Messages of one group held at most; `None` = half the pool's capacity.
    pub group_buffer_max: Option<u32>,
    /// Delivered ids remembered at most.
    pub completed_max: usize,
    /// Given-back messages that later ones of their group must wait for, at most.
    pub owed_max: usize,
    /// Key of the id hashes.
    pub hash_key: (u64, u64),
    /// A twin is acked at once, as the router document says, instead of when the first one succeeds.
    pub ack_requeued: bool,
    /// A message is handed back after it was held for this long (SQS ends a lease at 12 h).
    pub hold_max: Duration,
}

impl Default for DeskTuning {
    fn default() -> Self {
        Self {
            memory_budget: 256 << 20,
            prefetch: 2,
            group_buffer_max: None,
            completed_max: 1 << 20,
            owed_max: 1 << 16,
            hash_key: (0x636f_7265_6c61_6e65, 0x2026_1116),
            ack_requeued: false,
            hold_max: Duration::from_secs(11 * 3600 + 1800),
        }
    }
}
