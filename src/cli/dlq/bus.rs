//! The same for the dead letters of a service on a RabbitMQ event bus: they are in its DLQ, at the broker.

use std::fmt;
use std::io;

use anyhow::Context;

use super::{FilterArgs, bar, or_dash, say};
use crate::broker::rabbitmq::bus::client::Client;
use crate::broker::rabbitmq::bus::dlq::{BusLetter, Dlq, Which};
use crate::broker::rabbitmq::bus::names::Service;
use crate::cli::bus::on_broker;

/// Which bus, and whose DLQ.
#[derive(clap::Args)]
pub(super) struct BusArgs {
    /// Work on a service's DLQ on the bus in this vhost, such as `amqp://user:password@host/vhost`
    #[arg(long, value_name = "URI", requires = "service", help_heading = "Event bus")]
    bus: Option<String>,
    /// The service, such as wms-stock
    #[arg(long, value_name = "NAME", requires = "bus", value_parser = Service::new, help_heading = "Event bus")]
    service: Option<Service>,
}

impl fmt::Debug for BusArgs {
    /// Without the URI: it may hold a password.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("BusArgs").field("service", &self.service).finish_non_exhaustive()
    }
}

/// A change to be made, or only counted.
#[derive(Clone, Copy)]
pub(super) struct Change {
    pub(super) dry_run: bool,
    pub(super) json: bool,
    pub(super) limit: Option<usize>,
    /// Everything, if nothing is said of which.
    pub(super) yes: bool,
}

/// A bus that was asked for.
pub(super) struct Bus<'a> {
    uri: &'a str,
    service: &'a Service,
}

impl BusArgs {
    /// `None`: the store is meant.
    pub(super) fn given(&self) -> Option<Bus<'_>> {
        Some(Bus { uri: self.bus.as_deref()?, service: self.service.as_ref()? })
    }
}

impl Bus<'_> {
    /// Connects, works on the DLQ, and says goodbye: when this returns, what was only looked at is back at its place.
    fn work<T>(&self, work: impl AsyncFnOnce(&Dlq) -> io::Result<T>) -> anyhow::Result<T> {
        on_broker(async {
            let client = Client::connect(self.uri).await?;
            let dlq = client.dlq(self.service).await?;
            let done = work(&dlq).await;
            let closed = dlq.close().await;
            client.close().await;
            done.and_then(|done| closed.map(|()| done))
                .with_context(|| format!("the DLQ of {}", self.service))
        })
    }

    pub(super) fn list(&self, filter: &FilterArgs, limit: usize, json: bool) -> anyhow::Result<()> {
        let which = which(filter, Some(limit))?;
        let (letters, count) = self.work(async |dlq| Ok((dlq.list(&which).await?, dlq.count())))?;
        if json {
            println!("{}", serde_json::to_string_pretty(&letters)?);
            return Ok(());
        }
        for letter in &letters {
            println!("{}", line(letter));
        }
        println!("{count} dead letters, {} shown", letters.len());
        Ok(())
    }

    pub(super) fn show(&self, place: i64, json: bool) -> anyhow::Result<()> {
        let missing = || format!("{place}: no dead letter has this place");
        let wanted = usize::try_from(place).ok().filter(|&place| place > 0).with_context(missing)?;
        let letter = self.work(async |dlq| dlq.show(wanted).await)?.with_context(missing)?;
        if json {
            println!("{}", serde_json::to_string_pretty(&letter)?);
        } else {
            println!("{}\n{}", line(&letter), letter.body.as_deref().unwrap_or_default());
        }
        Ok(())
    }

    pub(super) fn retry(&self, filter: &FilterArgs, change: Change) -> anyhow::Result<()> {
        let which = which(filter, change.limit)?;
        if change.dry_run {
            let count = self.work(async |dlq| dlq.list(&which).await)?.len();
            return say(change.json, "wouldRetry", count as u64, "would be retried");
        }
        let bar = bar(change.json, 0);
        let moved = self.work(async |dlq| {
            bar.set_length(dlq.count() as u64);
            dlq.retry(&which, |moved| bar.set_position(moved as u64)).await
        });
        bar.finish_and_clear();
        let moved = moved.with_context(|| format!("{} were put back before this", bar.position()))?;
        say(change.json, "retried", moved as u64, "retried")
    }

    pub(super) fn purge(&self, filter: &FilterArgs, change: Change) -> anyhow::Result<()> {
        let which = which(filter, change.limit)?;
        if change.dry_run {
            let count = self.work(async |dlq| dlq.list(&which).await)?.len();
            return say(change.json, "wouldPurge", count as u64, "would be deleted");
        }
        if !change.yes && which == Which::default() {
            let count = self.work(async |dlq| Ok(dlq.count()))?;
            anyhow::bail!(
                "this deletes all {count} dead letters of {}: give a filter, or --yes",
                self.service
            );
        }
        let bar = bar(change.json, 0);
        let gone = self.work(async |dlq| {
            bar.set_length(dlq.count() as u64);
            dlq.purge(&which, |gone| bar.set_position(gone as u64)).await
        });
        bar.finish_and_clear();
        let gone = gone.with_context(|| format!("{} were deleted before this", bar.position()))?;
        say(change.json, "purged", gone as u64, "deleted")
    }
}

/// The filters that a message at the broker can answer.
fn which(filter: &FilterArgs, limit: Option<usize>) -> anyhow::Result<Which> {
    let others = FilterArgs { id: None, status: None, ..filter.clone() };
    anyhow::ensure!(
        others == FilterArgs::default(),
        "with --bus only --id, --status and --limit choose: places and times are not kept at the broker"
    );
    Ok(Which { id: filter.id.clone(), status: filter.status, limit })
}

fn line(letter: &BusLetter) -> String {
    let count = |count: Option<u32>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    format!(
        "{:>6}  {:>3}  retries={} id={} queue={} bytes={}  {}",
        letter.place,
        count(letter.final_status_code),
        count(letter.final_retry_count),
        or_dash(&letter.id),
        or_dash(&letter.original_queue),
        letter.body_bytes,
        letter.final_error.as_deref().map(or_dash).unwrap_or_default()
    )
}
