//! RabbitMQ.

pub mod bus;
