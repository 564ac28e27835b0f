//! `corelane bus consume`: the router with one service of the bus and nothing else.

use std::fmt::Write;
use std::num::NonZeroU16;
use std::process::ExitCode;

use super::Vhost;
use crate::broker::rabbitmq::bus::names::Service;
use crate::cli::api::encoded;
use crate::cli::flags::RunFlags;
use crate::cli::run;

const EXAMPLES: &str = "\
Examples:
  corelane bus consume --uri amqp://localhost/ --service wms-stock --target http://localhost:3000/events
  corelane bus consume --service wms-stock --target https://stock.example/events --concurrency 50 --rate 600
Declares what is missing. Ends as `corelane run` does. A config file is not read: for several services, or a router
that has other queues too, write a [[queue]] with uri = \"amqp://…?service=…&target=…\".";

/// Posts a service's messages to a URL, with retries and a DLQ
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    vhost: Vhost,
    /// The service, such as wms-stock
    #[arg(long, value_name = "NAME", value_parser = Service::new)]
    service: Service,
    /// Where its messages are posted
    #[arg(long, value_name = "URL")]
    target: String,
    /// Calls in flight at once
    #[arg(long, value_name = "N", default_value = "20")]
    concurrency: NonZeroU16,
    /// Messages started per minute (default: no limit)
    #[arg(long, value_name = "N")]
    rate: Option<u32>,
    /// Where the admin API and dashboard listen; anything but loopback needs a token
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// From the first signal to the end of the process, such as 35s
    #[arg(long, value_name = "DURATION")]
    grace: Option<String>,
    /// What is logged: a level, or a filter such as info,corelane=debug
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// How a log line looks: auto, text or json
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Any setting (repeatable), such as breaker.scope=global; `corelane check` lists them
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Runs until it is told to end.
pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let service = args.service.to_string();
    let sign = if args.vhost.uri.contains('?') { '&' } else { '?' };
    let mut pool = format!("{service}={}", args.concurrency);
    if let Some(rate) = args.rate {
        let _ = write!(pool, ",{rate}/min");
    }
    let target = encoded(&args.target);
    let queue = format!("{service}={}{sign}service={service}&target={target}&pool={service}", args.vhost.uri);
    let flags = RunFlags::alone(queue, pool)
        .listening(args.listen)
        .within(args.grace)
        .logging(args.log, args.log_format)
        .setting(args.set);
    run::run(run::Args::new(flags))
}
