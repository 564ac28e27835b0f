//! `corelane dlq`: lists, shows, retries and purges messages that could not be delivered. Works on the files alone,
//! whether a router runs on them or not; with `--bus`, on a DLQ at the broker.

mod bus;
mod parse;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use anyhow::Context;
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};

use crate::broker::sqlite::{Place, Placed, PutBack, SqliteWriter};
use crate::config::{Settings, Sources};
use crate::deadletter::{DeadLetterStore, Page, Redrive, redrive};
use crate::topology::QueueUri;
use crate::view::{DeadLetterFilter, DeadLetterView};
use bus::{BusArgs, Change};
use parse::{queue_file, reason, time};

const EXAMPLES: &str = "\
Examples:
  corelane dlq list --status 404
  corelane dlq list --queue orders --after 2026-01-31T00:00:00Z --json
  corelane dlq show 17
  corelane dlq retry 17 18
  corelane dlq retry --target http://billing --dry-run
  corelane dlq retry --config router.toml
  corelane dlq retry --queue orders --queue-file orders=orders.db
  corelane dlq purge --reason MALFORMED
  corelane dlq purge --yes                     # everything
  corelane dlq list --bus amqp://localhost/ --service wms-stock
  corelane dlq retry --bus amqp://localhost/ --service wms-stock --status 503";

/// Lists, shows, retries and purges messages that could not be delivered
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Lists them, newest first
    List(ListArgs),
    /// Shows one with its body; a token is never shown
    Show(ShowArgs),
    /// Puts them back into their queue, ahead of newer messages of their groups
    Retry(RetryArgs),
    /// Deletes them for good
    Purge(PurgeArgs),
}

#[derive(Debug, clap::Args)]
struct StoreArgs {
    /// The dead-letter store
    #[arg(long, default_value = "corelane-dead.db", env = "CORELANE_DEAD_LETTERS", value_name = "FILE")]
    store: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
struct FilterArgs {
    /// These numbers (default: all that the filters leave)
    numbers: Vec<i64>,
    /// The queue they came from
    #[arg(long)]
    queue: Option<String>,
    /// Their pool
    #[arg(long)]
    pool: Option<String>,
    /// Their group
    #[arg(long)]
    group: Option<String>,
    /// What their target's URL starts with
    #[arg(long)]
    target: Option<String>,
    /// REFUSED, EXHAUSTED or MALFORMED
    #[arg(long, value_parser = reason)]
    reason: Option<String>,
    /// The target's last status
    #[arg(long)]
    status: Option<u16>,
    /// The sender's id
    #[arg(long)]
    id: Option<String>,
    /// Set aside at or after this, such as 2026-01-31T12:00:00Z or seconds since 1970
    #[arg(long, value_parser = time)]
    after: Option<u64>,
    /// Set aside before this
    #[arg(long, value_parser = time)]
    before: Option<u64>,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    bus: BusArgs,
    /// At most so many
    #[arg(long, default_value_t = 100)]
    limit: usize,
}

#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// Its number; with --bus, its place in the DLQ
    number: i64,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    bus: BusArgs,
}

#[derive(Debug, clap::Args)]
struct RetryArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// Config file that says where each queue's file is (default: corelane.toml, if it is there)
    #[arg(long, value_name = "FILE", env = "CORELANE_CONFIG")]
    config: Option<PathBuf>,
    /// Where a queue's file is, whatever the config says; may be given several times
    #[arg(long, value_name = "NAME=FILE", value_parser = queue_file)]
    queue_file: Vec<(String, PathBuf)>,
    /// Say what would be retried, and change nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    bus: BusArgs,
    /// The oldest so many
    #[arg(long, requires = "bus", help_heading = "Event bus")]
    limit: Option<usize>,
}

#[derive(Debug, clap::Args)]
struct PurgeArgs {
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    filter: FilterArgs,
    /// Say what would be deleted, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Without a filter: yes, everything
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    bus: BusArgs,
    /// The oldest so many
    #[arg(long, requires = "bus", help_heading = "Event bus")]
    limit: Option<usize>,
}

/// Does it.
///
/// # Errors
/// A file can't be used, or a flag makes no sense.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.action {
        Action::List(args) => list(args),
        Action::Show(args) => show(args),
        Action::Retry(args) => retry(args),
        Action::Purge(args) => purge(args),
    }
}

fn list(args: &ListArgs) -> anyhow::Result<()> {
    if let Some(bus) = args.bus.given() {
        return bus.list(&args.filter, args.limit, args.store.json);
    }
    let (store, filter) = (open(&args.store)?, filter(&args.filter));
    let letters = store
        .list_blocking(filter.clone(), Page { below: None, limit: args.limit })
        .context("read the dead-letter store")?;
    if args.store.json {
        println!("{}", serde_json::to_string_pretty(&letters)?);
        return Ok(());
    }
    let count = store.count_blocking(filter).context("read the dead-letter store")?;
    for letter in &letters {
        println!("{}", line(letter));
    }
    println!("{count} dead letters, {} shown", letters.len());
    Ok(())
}

fn line(letter: &DeadLetterView) -> String {
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(letter.at_unix_s);
    format!(
        "{:>6}  {}  {:<9}  {:>3}  queue={} pool={} group={} id={} target={}  {}",
        letter.number,
        humantime::format_rfc3339_seconds(at),
        letter.reason,
        letter.status,
        or_dash(&letter.queue),
        or_dash(&letter.pool),
        or_dash(&letter.group),
        or_dash(&letter.id),
        or_dash(&letter.target),
        letter.detail
    )
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.escape_debug().to_string() }
}

fn show(args: &ShowArgs) -> anyhow::Result<()> {
    if let Some(bus) = args.bus.given() {
        return bus.show(args.number, args.store.json);
    }
    let letter = open(&args.store)?.show_blocking(args.number).context("read the dead-letter store")?;
    let letter = letter.with_context(|| format!("{}: no dead letter has this number", args.number))?;
    if args.store.json {
        println!("{}", serde_json::to_string_pretty(&letter)?);
        return Ok(());
    }
    println!("{}", line(&letter));
    println!("attempts={}", letter.attempts);
    println!("{}", letter.body.unwrap_or_default());
    Ok(())
}

fn retry(args: &RetryArgs) -> anyhow::Result<()> {
    if let Some(bus) = args.bus.given() {
        let change = Change { dry_run: args.dry_run, json: args.store.json, limit: args.limit, yes: true };
        return bus.retry(&args.filter, change);
    }
    let (store, filter) = (open(&args.store)?, filter(&args.filter));
    let count = store.count_blocking(filter.clone()).context("read the dead-letter store")?;
    if args.dry_run {
        return say(args.store.json, "wouldRetry", count, "would be retried");
    }
    let files = queue_files(args)?;
    let writers: RefCell<HashMap<String, SqliteWriter>> = RefCell::default();
    let bar = bar(args.store.json, count);
    let put_back = |queue: &str, letters: Vec<Redrive>| {
        let mut writers = writers.borrow_mut();
        if !writers.contains_key(queue) {
            writers.insert(queue.to_owned(), open_queue(&files, queue)?);
        }
        let letters = letters.into_iter().map(|letter| PutBack {
            seq: letter.key,
            group: letter.group,
            body: letter.body,
            token: letter.token,
        });
        let placed = writers[queue].put_back_blocking(letters.collect())?;
        Ok(placed.into_iter().map(Placed::is_in).collect())
    };
    let done = redrive(&store, &filter, put_back, &|done| bar.set_position(done))
        .context("put dead letters back into their queue")?;
    bar.finish_and_clear();
    say(args.store.json, "retried", done.letters, "retried")?;
    if done.dead_again > 0 {
        eprintln!("{} of them came back to the store meanwhile", done.dead_again);
    }
    anyhow::ensure!(
        done.unacked == 0,
        "{} dead letters are still being acked in their queue and stay in the store: try again",
        done.unacked
    );
    Ok(())
}

/// Where each queue is: what the router would read, and over it what the flags say.
fn queue_files(args: &RetryArgs) -> anyhow::Result<HashMap<String, QueueUri>> {
    let sources = Sources::gather(args.config.as_deref()).map_err(|error| vec![error]);
    let loaded = sources.and_then(|sources| Settings::load(&sources));
    let (settings, _) = loaded.map_err(|errors| {
        let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("read where the queues are from the config: {}", said.join("; "))
    })?;
    let configured = settings.topology.queues.into_iter().map(|queue| (queue.name, queue.uri));
    let named = args.queue_file.iter().map(|(name, file)| (name.clone(), QueueUri::Sqlite(file.clone())));
    Ok(configured.chain(named).collect())
}

/// Opens a queue's file. It must be there: a retry into a new or another queue's file would go nowhere.
fn open_queue(files: &HashMap<String, QueueUri>, queue: &str) -> io::Result<SqliteWriter> {
    let refused = |said: String| io::Error::new(io::ErrorKind::NotFound, said);
    let Some(uri) = files.get(queue) else {
        return Err(refused(format!(
            "queue {queue}: the config does not have it: name the config that does with --config FILE, or its \
             file with --queue-file {queue}=FILE"
        )));
    };
    let Some(Place { path, durability }) = Place::of(uri)? else {
        let broker = uri.broker();
        return Err(refused(format!(
            "queue {queue}: is a {broker} queue, and only a sqlite: or memory: queue takes letters back: leave \
             it out with --queue"
        )));
    };
    if !path.exists() {
        let said = format!(
            "queue {queue}: {} is not there: say where it is with --queue-file {queue}=FILE",
            path.display()
        );
        return Err(refused(said));
    }
    SqliteWriter::open(&path, durability)
}

fn purge(args: &PurgeArgs) -> anyhow::Result<()> {
    if let Some(bus) = args.bus.given() {
        let change =
            Change { dry_run: args.dry_run, json: args.store.json, limit: args.limit, yes: args.yes };
        return bus.purge(&args.filter, change);
    }
    let (store, filter) = (open(&args.store)?, filter(&args.filter));
    let count = store.count_blocking(filter.clone()).context("read the dead-letter store")?;
    if args.dry_run {
        return say(args.store.json, "wouldPurge", count, "would be deleted");
    }
    anyhow::ensure!(
        args.yes || filter != DeadLetterFilter::default(),
        "this deletes all {count} dead letters: give a filter, or --yes"
    );
    let bar = bar(args.store.json, count);
    let gone = store
        .purge_blocking(&filter, &|gone| bar.set_position(gone))
        .context("delete from the dead-letter store")?;
    bar.finish_and_clear();
    say(args.store.json, "purged", gone, "deleted")
}

fn say(json: bool, key: &str, count: u64, what: &str) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string(&HashMap::from([(key, count)]))?);
    } else {
        println!("{count} dead letters {what}");
    }
    Ok(())
}

/// Opens the store. It must be there, or every answer would be a confident "none".
fn open(args: &StoreArgs) -> anyhow::Result<DeadLetterStore> {
    let file = &args.store;
    anyhow::ensure!(
        file.exists(),
        "{}: no such dead-letter store: name it with --store FILE",
        file.display()
    );
    DeadLetterStore::open(file).context("open the dead-letter store")
}

fn filter(args: &FilterArgs) -> DeadLetterFilter {
    DeadLetterFilter {
        numbers: args.numbers.clone(),
        id: args.id.clone(),
        queue: args.queue.clone(),
        pool: args.pool.clone(),
        group: args.group.clone(),
        target: args.target.clone(),
        reason: args.reason.clone(),
        status: args.status,
        after: args.after,
        before: args.before,
    }
}

fn bar(hidden: bool, count: u64) -> ProgressBar {
    if hidden {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("[{bar:40}] {pos}/{len}").expect("a constant template");
    ProgressBar::new(count).with_style(style.progress_chars("=> "))
}
