//! `corelane bus publish`: lines from a file or a pipe, each a message, each confirmed.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use lapin::BasicProperties;
use lapin::types::ShortString;
use shards::model::Parcel;

use super::{Vhost, on_broker, prefix_of};
use crate::broker::rabbitmq::bus::client::Client;
use crate::broker::rabbitmq::bus::names::{Prefix, Service};
use crate::broker::rabbitmq::bus::publish::{Outgoing, Publisher};

/// How long the broker may take to confirm.
const CONFIRM_MAX: Duration = Duration::from_secs(30);
/// Lines published at once: what comes slowly goes at once, what comes fast shares a wait for the broker.
const BATCH: usize = 256;
/// Bytes published at once.
const BATCH_BYTES: usize = 4 << 20;
/// Longest line: the largest message that a router delivers.
const LINE_BYTES_MAX: usize = Parcel::BODY_BYTES_MAX;
/// Longest message id that AMQP carries.
const ID_BYTES_MAX: usize = 255;
/// Lines that are named when many were not taken.
const LINES_NAMED: usize = 10;
const JSON: &str = "application/json";
const PERSISTENT: u8 = 2;

const EXAMPLES: &str = "\
Examples:
  echo '{\"order\":1}' | corelane bus publish --uri amqp://localhost/ --prefix wms
  corelane bus publish --uri amqp://localhost/ --service wms-stock --id-field orderId events.jsonl
  tail -f events.jsonl | corelane bus publish --prefix wms        # CORELANE_BUS names the URI
  corelane bus publish --uri amqp://localhost/ --prefix wms --content-type text/plain notes.txt
Ends with 0 when the broker has confirmed every line and each reached a queue, else with 1 and the line.";

/// Publishes lines to all services of a prefix: one message per line, each confirmed by the broker
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("to").required(true).args(["prefix", "service"]))]
pub(super) struct Args {
    #[command(flatten)]
    vhost: Vhost,
    /// To all services of this prefix, such as wms
    #[arg(long, value_name = "PREFIX", value_parser = Prefix::new)]
    prefix: Option<Prefix>,
    /// To all services of this one's prefix
    #[arg(long, value_name = "NAME", value_parser = Service::new)]
    service: Option<Service>,
    /// The lines; - is standard input
    #[arg(default_value = "-", value_name = "FILE")]
    file: PathBuf,
    /// What a line is. JSON is checked before it is sent
    #[arg(long, default_value = JSON, value_name = "TYPE", value_parser = content_type)]
    content_type: String,
    /// Take the message id from this field of the JSON (default: a new one for each line)
    #[arg(long, value_name = "NAME")]
    id_field: Option<String>,
}

/// A line that is a message.
#[derive(Debug)]
struct Line {
    /// From 1.
    number: u64,
    id: String,
    body: Vec<u8>,
}

/// Publishes all of it.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        args.id_field.is_none() || args.content_type == JSON,
        "--id-field reads JSON: leave it out, or --content-type"
    );
    let prefix =
        prefix_of(args.prefix.as_ref(), args.service.as_ref()).context("name --prefix or --service")?;
    on_broker(publish(args, &prefix))
}

async fn publish(args: &Args, prefix: &Prefix) -> anyhow::Result<ExitCode> {
    let client = Client::connect(&args.vhost.uri).await?;
    let publisher = client.publisher(prefix).await?;
    let lines = reader(args)?;
    let style = ProgressStyle::with_template("{spinner} {human_pos} messages {per_sec}");
    let bar = ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    let exchange = prefix.main_exchange();
    let ended = send_all(&lines, &publisher, &exchange, &args.content_type, &bar).await;
    bar.finish_and_clear();
    let count = bar.position();
    // A pipe that nobody reads any more is no failure of what was published.
    let _ = writeln!(io::stdout(), "{count} published to {exchange}");
    ended?;
    client.close().await;
    Ok(ExitCode::SUCCESS)
}

async fn send_all(
    lines: &flume::Receiver<anyhow::Result<Line>>,
    publisher: &Publisher,
    exchange: &str,
    content_type: &str,
    bar: &ProgressBar,
) -> anyhow::Result<()> {
    while let Ok(first) = lines.recv_async().await {
        let (mut batch, mut wrong) = (Vec::new(), None);
        let mut next = Some(first);
        let mut bytes = 0;
        while let Some(line) = next {
            match line {
                Ok(line) => {
                    bytes += line.body.len();
                    batch.push(line);
                }
                Err(error) => {
                    wrong = Some(error);
                    break;
                }
            }
            next = if batch.len() < BATCH && bytes < BATCH_BYTES { lines.try_recv().ok() } else { None };
        }
        send(batch, publisher, exchange, content_type, bar).await?;
        if let Some(error) = wrong {
            return Err(error);
        }
    }
    Ok(())
}

/// Publishes a batch. All of it was taken, or the error says which lines were not.
async fn send(
    batch: Vec<Line>,
    publisher: &Publisher,
    exchange: &str,
    content_type: &str,
    bar: &ProgressBar,
) -> anyhow::Result<()> {
    let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return Ok(()) };
    let (first, last) = (first.number, last.number);
    let numbers: Vec<u64> = batch.iter().map(|line| line.number).collect();
    let of_id: HashMap<String, u64> = batch.iter().map(|line| (line.id.clone(), line.number)).collect();
    let properties = |line: &Line| {
        BasicProperties::default()
            .with_content_type(ShortString::from(content_type))
            .with_message_id(ShortString::from(line.id.as_str()))
            .with_delivery_mode(PERSISTENT)
            .with_timestamp(unix_s())
    };
    let outgoing = |line: Line| Outgoing {
        exchange: exchange.to_owned(),
        routing_key: String::new(),
        properties: properties(&line),
        body: line.body,
    };
    let all: Vec<Outgoing> = batch.into_iter().map(outgoing).collect();
    let unknown = || format!("lines {first} to {last}: not known to be published");
    let confirmed = tokio::time::timeout(CONFIRM_MAX, publisher.publish(&all)).await;
    let confirmed = confirmed.context("the broker does not confirm: it may be short of memory or disk");
    let not_taken = confirmed.with_context(unknown)?.with_context(unknown)?;
    let returned = not_taken.returned.iter().filter_map(|properties| properties.message_id().as_ref());
    let mut unheard: Vec<u64> = returned.filter_map(|id| of_id.get(id.as_str()).copied()).collect();
    unheard.sort_unstable();
    let refused: Vec<u64> = not_taken.refused.iter().map(|&place| numbers[place]).collect();
    bar.inc((numbers.len() - unheard.len().max(refused.len())) as u64);
    anyhow::ensure!(refused.is_empty(), "{}: the broker refused to keep it", named(&refused));
    anyhow::ensure!(
        not_taken.returned.is_empty(),
        "{}: no service hears {exchange}, so nobody got it: declare one first (corelane bus declare)",
        named(&unheard)
    );
    Ok(())
}

/// `line 3`, `lines 3, 4 and 70 more`.
fn named(lines: &[u64]) -> String {
    let shown: Vec<String> = lines.iter().take(LINES_NAMED).map(ToString::to_string).collect();
    let more = lines.len().saturating_sub(LINES_NAMED);
    match (lines.len(), more) {
        (1, _) => format!("line {}", shown[0]),
        (_, 0) => format!("lines {}", shown.join(", ")),
        _ => format!("lines {} and {more} more", shown.join(", ")),
    }
}

/// Reads on a thread of its own: a slow pipe must not keep the connection from its heartbeats.
fn reader(args: &Args) -> anyhow::Result<flume::Receiver<anyhow::Result<Line>>> {
    let input: Box<dyn Read + Send> = if args.file == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(&args.file).with_context(|| format!("open {}", args.file.display()))?)
    };
    let (is_json, id_field) = (args.content_type == JSON, args.id_field.clone());
    let (tell, lines) = flume::bounded(BATCH);
    std::thread::spawn(move || {
        let mut input = BufReader::new(input);
        for number in 1.. {
            let line = match read_line(&mut input) {
                Ok(None) => return,
                Ok(Some(body)) if body.trim_ascii().is_empty() => continue,
                Ok(Some(body)) => message(number, body, is_json, id_field.as_deref()),
                Err(error) => Err(anyhow::Error::new(error)),
            };
            let line = line.map_err(|error| anyhow::anyhow!("line {number}: {error:#}"));
            let is_wrong = line.is_err();
            if tell.send(line).is_err() || is_wrong {
                return;
            }
        }
    });
    Ok(lines)
}

/// A line without its end; `None` after the last.
fn read_line(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let count = input.take(LINE_BYTES_MAX as u64 + 2).read_until(b'\n', &mut line)?;
    if count == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
    }
    if line.len() > LINE_BYTES_MAX {
        let what = format!("longer than {} MiB: no router would deliver it", LINE_BYTES_MAX >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(Some(line))
}

fn message(number: u64, body: Vec<u8>, is_json: bool, id_field: Option<&str>) -> anyhow::Result<Line> {
    if !is_json {
        return Ok(Line { number, id: new_id()?, body });
    }
    let json: serde_json::Value = serde_json::from_slice(&body)
        .map_err(|error| anyhow::anyhow!("no JSON: {error}; other text needs --content-type"))?;
    let id = match id_field {
        None => new_id()?,
        Some(field) => match json.get(field) {
            Some(serde_json::Value::String(id)) => id.clone(),
            Some(serde_json::Value::Number(id)) => id.to_string(),
            _ => anyhow::bail!("no {field:?} that is text or a number"),
        },
    };
    anyhow::ensure!(
        (1..=ID_BYTES_MAX).contains(&id.len()),
        "its id is {} bytes long: 1 to {ID_BYTES_MAX} can be sent",
        id.len()
    );
    Ok(Line { number, id, body })
}

/// 128 random bits.
fn new_id() -> anyhow::Result<String> {
    let mut bits = [0; 16];
    rustix::rand::getrandom(&mut bits, rustix::rand::GetRandomFlags::empty()).context("make an id")?;
    Ok(format!("{:032x}", u128::from_be_bytes(bits)))
}

fn unix_s() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn content_type(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > 255 || !text.bytes().all(|byte| (0x20..=0x7e).contains(&byte)) {
        return Err("write a type such as application/json".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_message_and_its_end_is_not() {
        let mut input: &[u8] = b"{\"a\":1}\r\n\n{\"a\":2}";
        let mut read = || read_line(&mut input).expect("it reads");
        assert_eq!(read().as_deref(), Some(&b"{\"a\":1}"[..]));
        assert_eq!(read().as_deref(), Some(&b""[..]), "the reader leaves blank lines out");
        assert_eq!(read().as_deref(), Some(&b"{\"a\":2}"[..]), "the last needs no end");
        assert_eq!(read(), None);
        let long = vec![b'x'; LINE_BYTES_MAX + 1];
        assert!(read_line(&mut long.as_slice()).is_err());
        assert!(read_line(&mut &long[1..]).expect("just short enough").is_some());
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said() {
        let read = |text: &str, json, field| message(1, text.into(), json, field);
        assert_eq!(read(r#"{"n":"a-1"}"#, true, Some("n")).expect("a message").id, "a-1");
        assert_eq!(read(r#"{"n":17}"#, true, Some("n")).expect("a message").id, "17");
        assert_eq!(read("plain", false, None).expect("a message").id.len(), 32);
        let long = format!(r#"{{"n":"{}"}}"#, "x".repeat(256));
        let rows = [
            ("{", None, "no JSON"),
            ("{}", Some("n"), "no \"n\""),
            (r#"{"n":null}"#, Some("n"), "no \"n\""),
            (r#"{"n":""}"#, Some("n"), "0 bytes"),
            (long.as_str(), Some("n"), "256 bytes"),
        ];
        for (text, field, said) in rows {
            let error = format!("{:#}", read(text, true, field).expect_err(text));
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn lines_are_named_and_many_are_counted() {
        assert_eq!(named(&[3]), "line 3");
        assert_eq!(named(&[3, 4]), "lines 3, 4");
        let many: Vec<u64> = (1..=12).collect();
        assert_eq!(named(&many), "lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more");
    }
}
