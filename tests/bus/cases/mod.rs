//! What must hold on the bus.

mod command;
mod dead;
mod fault;
mod row;

use crate::stage::Stage;
use crate::support::rabbitmq::RabbitServer;

/// A case: what it shows, and how.
type Case = (&'static str, fn(&Stage));

/// One that breaks the server.
type LastCase = (&'static str, fn(&mut Stage, &mut RabbitServer));

/// All of them; the longest come first.
pub(crate) const CASES: &[Case] = &[
    ("any (retry >= 10): DLQ with all headers, and back by hand", dead::ten_retries_and_back),
    ("2xx: acked, its own bytes were posted", row::success),
    ("429: dead-letter retry", row::too_many_requests),
    ("409: dead-letter retry", row::conflict),
    ("425: requeued after 1 to 5 s, not counted", row::too_early),
    ("425: for more messages than are handed over at once", row::many_too_early),
    ("5xx: dead-letter retry", row::server_error),
    ("other 4xx: dead-letter retry", row::client_error),
    ("exception, connection refused: dead-letter retry", row::refused),
    ("exception, no answer: dead-letter retry", row::no_answer),
    ("a retry reaches the failed service only", row::only_the_failed_one),
    ("a tripped breaker spends no retry", row::breaker),
    ("dlq: list, show, filters, dry run, purge", dead::looked_at_and_purged),
    ("dlq: what does not reach the DLQ is not acked", dead::unroutable),
    ("dlq: what can't be posted goes there without a call", dead::unfit),
    ("declare: names, arguments and bindings; twice is once", command::declared),
    ("declare: over a queue with other arguments", command::declared_over_another),
    ("publish: lines, a bad line, nobody to hear it", command::published),
    ("consume: by the command", command::consumed),
    ("kill -9 of the router in mid-flight loses nothing", fault::killed),
    ("a stop gives back what waits", fault::stopped),
    ("a cut connection: all is delivered", fault::cut),
    ("a DLQ publish whose ack is lost: once in the DLQ, no second call", fault::lost_ack),
];

/// Those that break the server, one after another.
pub(crate) const LAST: &[LastCase] = &[
    ("the server is short of memory: acks go on, the DLQ waits", fault::short_of_memory),
    ("the server crashes: all is delivered", fault::crashed),
];
