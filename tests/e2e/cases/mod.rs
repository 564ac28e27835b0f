//! The cases. Each returns what was read back, for the table (nothing that differs from run to run); anything that
//! must not be panics.

mod delivery;
mod failure;
mod identity;
mod kills;
mod lifecycle;
mod outage;

use crate::stage::Stage;

/// A case.
pub(crate) struct Case {
    /// The table's row.
    pub(crate) name: &'static str,
    pub(crate) run: fn(&mut Stage<'_>) -> String,
}

/// All of them, in the order of the table.
pub(crate) const CASES: &[Case] = &[
    Case { name: "deliver", run: delivery::deliver },
    Case { name: "ack", run: delivery::ack },
    Case { name: "nack with delay", run: failure::nack_with_delay },
    Case { name: "lease extension", run: identity::lease_extension },
    Case { name: "redelivery", run: identity::redelivery },
    Case { name: "dedupe", run: identity::dedupe },
    Case { name: "group id", run: delivery::group_id },
    Case { name: "broker message id", run: identity::broker_message_id },
    Case { name: "malformed body", run: failure::malformed_body },
    Case { name: "batch and group cascade", run: failure::cascade },
    Case { name: "order under failure", run: failure::order_under_failure },
    Case { name: "two queues at once", run: delivery::two_queues },
    Case { name: "queue depth", run: delivery::queue_depth },
    Case { name: "broker restart", run: outage::broker_restart },
    Case { name: "connection cut in mid-batch", run: outage::connection_cut },
    Case { name: "connection cut unnoticed", run: outage::unnoticed_cut },
    Case { name: "broker absent at start", run: outage::broker_absent },
    Case { name: "wrong credentials", run: outage::wrong_credentials },
    Case { name: "queue deleted under us", run: outage::queue_deleted },
    Case { name: "graceful stop", run: lifecycle::graceful_stop },
    Case { name: "stop while the broker hangs", run: lifecycle::stop_while_hung },
    Case { name: "stalled consumer", run: lifecycle::stalled_consumer },
    Case { name: "consumer replaced while it works", run: lifecycle::consumer_replaced },
    Case { name: "broker kills under load", run: kills::broker_kills },
    Case { name: "router kills under load", run: kills::router_kills },
    Case { name: "power cuts under load", run: kills::power_cuts },
];
