//! What the tests share: a queue in memory, the engine around it, a sink with a log, and waiting.

pub(crate) mod activemq;
pub(crate) mod fake;
pub(crate) mod faults;
pub(crate) mod http;
pub(crate) mod nats;
pub(crate) mod platform;
pub(crate) mod ports;
pub(crate) mod process;
pub(crate) mod publisher;
pub(crate) mod queue;
pub(crate) mod rabbitmq;
pub(crate) mod rig;
pub(crate) mod router;
pub(crate) mod shelf;
pub(crate) mod sink;
pub(crate) mod temp;
pub(crate) mod wait;
