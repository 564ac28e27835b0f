//! `corelane bus`: the event bus on RabbitMQ. Declares a service, publishes to all services of a prefix, consumes one.

mod consume;
mod publish;

use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;

use crate::broker::rabbitmq::bus::client::Client;
use crate::broker::rabbitmq::bus::names::{Prefix, Service};

const EXAMPLES: &str = "\
Examples:
  corelane bus declare --uri amqp://localhost/ --service wms-stock
  corelane bus consume --uri amqp://localhost/ --service wms-stock --target http://localhost:3000/events
  echo '{\"order\":1}' | corelane bus publish --uri amqp://localhost/ --prefix wms
  corelane dlq list --bus amqp://localhost/ --service wms-stock";

/// Declares, publishes and consumes on a RabbitMQ event bus
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Declare(DeclareArgs),
    Publish(publish::Args),
    Consume(Box<consume::Args>),
}

/// Where the bus is.
#[derive(clap::Args)]
pub(super) struct Vhost {
    /// Server and vhost, such as `amqp://user:password@host/vhost` (amqps for TLS)
    #[arg(long, value_name = "URI", env = "CORELANE_BUS", hide_env_values = true)]
    pub(super) uri: String,
}

impl std::fmt::Debug for Vhost {
    /// Without the URI: it may hold a password.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Vhost").finish_non_exhaustive()
    }
}

/// Declares all exchanges, queues and bindings of a service; again changes nothing
#[derive(Debug, clap::Args)]
struct DeclareArgs {
    #[command(flatten)]
    vhost: Vhost,
    /// The service (repeatable), such as wms-stock: what stands before the first hyphen is its prefix
    #[arg(long, required = true, value_name = "NAME", value_parser = Service::new)]
    service: Vec<Service>,
}

/// Does it.
///
/// # Errors
/// The broker is away or refuses; the text says what to do.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Declare(args) => on_broker(declare(&args)),
        Action::Publish(args) => publish::run(&args),
        Action::Consume(args) => consume::run(*args),
    }
}

/// Runs what speaks to a broker.
pub(super) fn on_broker<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("start a thread for the broker")?.block_on(work)
}

async fn declare(args: &DeclareArgs) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&args.vhost.uri).await?;
    for service in &args.service {
        client.declare(service).await.with_context(|| format!("declare service {service}"))?;
        println!("{service}: hears {}, consumes {}", service.main_exchange(), service.queue());
        println!("  retries by {} and {} (5 s)", service.retry_exchange(), service.retry_queue());
        println!("  dead letters in {}", service.dlq());
    }
    client.close().await;
    Ok(ExitCode::SUCCESS)
}

/// A prefix, by itself or a service's.
pub(super) fn prefix_of(prefix: Option<&Prefix>, service: Option<&Service>) -> Option<Prefix> {
    prefix.or_else(|| service.map(Service::prefix)).cloned()
}
