//! RabbitMQ: queues over AMQP 0-9-1. Core: the ingress.

#[allow(dead_code, reason = "its adapter comes with the next commits")]
pub(crate) mod address;
#[allow(dead_code, reason = "its source comes with the next commits")]
pub(crate) mod bus;
#[allow(dead_code, reason = "its adapter comes with the next commits")]
pub(crate) mod connect;
#[allow(dead_code, reason = "its adapter comes with the next commits")]
mod group;
