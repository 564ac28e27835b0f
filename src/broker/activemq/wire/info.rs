//! What both sides say first: the version they speak and how they encode. The lesser of both holds.

use super::basic::{Reader, WireError, Writer};
use super::ids::kind;
use super::map::{Map, Value};

const MAGIC: &[u8; 8] = b"ActiveMQ";
/// The newest version that is spoken here.
pub(in super::super) const VERSION_MAX: i32 = 12;
/// The oldest.
pub(in super::super) const VERSION_MIN: i32 = 9;

/// What a side can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct WireFormat {
    pub(in super::super) version: i32,
    /// A connection that is silent for so long is given up; 0 = never.
    pub(in super::super) silence_max_ms: i64,
    /// Largest frame that it takes.
    pub(in super::super) frame_bytes_max: i64,
}

impl WireFormat {
    pub(super) fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        if from.take(MAGIC.len())? != MAGIC {
            return Err(WireError::Magic);
        }
        let version = from.i32()?;
        let map = Map::read(from.blob()?.unwrap_or_default())?;
        let number = |name: &str, else_: i64| map.get(name).and_then(Value::number).unwrap_or(else_);
        Ok(Self {
            version,
            silence_max_ms: number("MaxInactivityDuration", 0),
            frame_bytes_max: number("MaxFrameSize", i64::MAX),
        })
    }

    /// The frame that says it: loosely encoded, no caches, no stack traces.
    pub(in super::super) fn write(&self) -> Vec<u8> {
        let mut map = Map::default();
        for (name, value) in [
            ("TcpNoDelayEnabled", true),
            ("SizePrefixDisabled", false),
            ("TightEncodingEnabled", false),
            ("CacheEnabled", false),
            ("StackTraceEnabled", false),
        ] {
            map.set(name, Value::Bool(value));
        }
        map.set("CacheSize", Value::Int(1_024));
        map.set("MaxInactivityDuration", Value::Long(self.silence_max_ms));
        map.set("MaxInactivityDurationInitalDelay", Value::Long(self.silence_max_ms));
        map.set("MaxFrameSize", Value::Long(self.frame_bytes_max));
        map.set("ProviderName", Value::Text("corelane".to_owned()));
        let mut out = Writer::default();
        out.i32(0);
        out.u8(kind::WIRE_FORMAT_INFO);
        out.raw(MAGIC);
        out.i32(self.version);
        out.blob(Some(&map.write()));
        super::close_frame(out)
    }

    /// What both can do; `None` = they have no version in common.
    pub(in super::super) fn with(&self, other: &Self) -> Option<Self> {
        let version = self.version.min(other.version);
        let agreed = Self {
            version,
            silence_max_ms: self.silence_max_ms.min(other.silence_max_ms),
            frame_bytes_max: self.frame_bytes_max.min(other.frame_bytes_max),
        };
        (version >= VERSION_MIN).then_some(agreed)
    }
}
