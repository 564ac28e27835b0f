//! `corelane explain`: where a message, a group or a target is, and what it waits for.

use std::fmt::Write;

use super::api::{Api, Reach, encoded};
use super::table::{Table, plain};
use crate::admin::Explanation;

const EXAMPLES: &str = "\
Examples:
  corelane explain 0HZXEQ5Y8JY5Z              # a message's id
  corelane explain customer-42                # a group
  corelane explain https://hooks.example:443  # a target";

/// Says where a message, a group or a target is, and what it waits for
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A message's id, a group or a target
    what: String,
    #[command(flatten)]
    reach: Reach,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

/// Asks and prints.
///
/// # Errors
/// Nothing answers, or nothing is known of it.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let said: Explanation =
        Api::new(&args.reach)?.get(&format!("/api/explain?what={}", encoded(&args.what)))?;
    if args.json {
        println!("{:#}", serde_json::to_value(&said)?);
        return Ok(());
    }
    print!("{}", shown(&said));
    Ok(())
}

fn shown(said: &Explanation) -> String {
    let mut out = format!("{}\n", plain(&said.summary));
    let width = said.facts.iter().map(|fact| fact.name.chars().count()).max().unwrap_or_default();
    for fact in &said.facts {
        let _ = writeln!(out, "  {:<width$}  {}", plain(&fact.name), plain(&fact.value));
    }
    let mut groups = Table::new(&["GROUP", "POOL", ">SHARD", ">DEPTH", ">OLDEST", "WAITS FOR"]);
    for group in &said.groups {
        let age = format!("{:.1} s", group.age_s);
        let (shard, depth) = (group.shard.to_string(), group.depth.to_string());
        groups.row(&[group.group.clone(), group.pool.clone(), shard, depth, age, group.waits_for.clone()]);
    }
    let mut messages = Table::new(&["MESSAGE", "GROUP", ">PLACE", ">TRIES", ">AGE", "WAITS FOR"]);
    for message in &said.messages {
        let age = format!("{:.1} s", message.age_s);
        let (place, tries) = (message.place.to_string(), message.attempts.to_string());
        messages.row(&[
            message.id.clone(),
            message.group.clone(),
            place,
            tries,
            age,
            message.waits_for.clone(),
        ]);
    }
    let mut letters = Table::new(&[">NUMBER", "MESSAGE", "REASON", "DETAIL"]);
    for letter in &said.dead_letters {
        let number = letter.number.to_string();
        letters.row(&[number, letter.id.clone(), letter.reason.clone(), letter.detail.clone()]);
    }
    let tables =
        [(said.groups.len(), groups), (said.messages.len(), messages), (said.dead_letters.len(), letters)];
    for (_, table) in tables.iter().filter(|(count, _)| *count > 0) {
        out.push('\n');
        out.push_str(&table.text());
    }
    out
}
