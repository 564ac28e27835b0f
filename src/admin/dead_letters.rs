//! Dead letters over HTTP: list, show, retry, purge. What changes many needs a filter or an explicit "all".

use serde_json::{Value, json};

use super::ask::{Answer, Ask, Fields, json as answer_json};
use super::port::{Page, Router};
use super::refusal::Refusal;
use super::routes::Api;
use crate::view::DeadLetterFilter;

/// Rows of a page at most.
const ROWS_MAX: u64 = 1_000;
/// A filter is short, its list of numbers may be long.
const BODY_BYTES_MAX: usize = 1 << 20;

pub(super) async fn list<R: Router>(api: &Api<R>, ask: Ask) -> Answer {
    let mut query = ask.query()?;
    let filter = filter(&mut query)?;
    let offset = query.whole("offset", 0..=u64::MAX)?.unwrap_or_default();
    let limit = query.whole("limit", 1..=ROWS_MAX)?.unwrap_or(50);
    query.end()?;
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    Ok(answer_json(&api.router.dead_letters(filter, Page { offset, limit }).await?))
}

pub(super) async fn one<R: Router>(api: &Api<R>, ask: Ask) -> Answer {
    Ok(answer_json(&api.router.dead_letter(ask.number("number")?).await?))
}

pub(super) async fn retry<R: Router>(api: &Api<R>, ask: Ask) -> Answer {
    let (filter, all) = filter_of(ask.json(BODY_BYTES_MAX).await?)?;
    refuse_unmeant(&filter, all)?;
    Ok(answer_json(&json!({ "retried": api.router.retry_dead_letters(filter).await? })))
}

pub(super) async fn purge<R: Router>(api: &Api<R>, ask: Ask) -> Answer {
    let mut query = ask.query()?;
    let (filter, all) = (filter(&mut query)?, query.flag("all")?);
    query.end()?;
    refuse_unmeant(&filter, all)?;
    Ok(answer_json(&json!({ "purged": api.router.purge_dead_letters(filter).await? })))
}

fn refuse_unmeant(filter: &DeadLetterFilter, all: bool) -> Result<(), Refusal> {
    match (*filter == DeadLetterFilter::default(), all) {
        (true, false) => Err(Refusal::field(
            "all",
            "is missing: without a filter this means every dead letter; say all=true if you do",
        )),
        (false, true) => Err(Refusal::field("all", "contradicts the filter: write one of them")),
        _ => Ok(()),
    }
}

fn filter(query: &mut Fields) -> Result<DeadLetterFilter, Refusal> {
    let mut numbers = Vec::new();
    for text in query.text("numbers")?.iter().flat_map(|list| list.split(',')) {
        let wrong = |_| Refusal::field("numbers", format!("holds {text:?}: write whole numbers with commas"));
        numbers.push(text.trim().parse().map_err(wrong)?);
    }
    let status = query.whole("status", 0..=999)?.and_then(|status| u16::try_from(status).ok());
    Ok(DeadLetterFilter {
        numbers,
        id: query.text("id")?,
        queue: query.text("queue")?,
        pool: query.text("pool")?,
        group: query.text("group")?,
        target: query.text("target")?,
        reason: query.text("reason")?,
        status,
        after: query.whole("after", 0..=u64::MAX)?,
        before: query.whole("before", 0..=u64::MAX)?,
    })
}

/// The filter and `all` of a body.
fn filter_of(mut body: Value) -> Result<(DeadLetterFilter, bool), Refusal> {
    let Some(fields) = body.as_object_mut() else {
        return Err(Refusal::field("body", "is not an object: write {\"numbers\":[1,2]} or {\"all\":true}"));
    };
    let all = match fields.remove("all") {
        None | Some(Value::Bool(false)) => false,
        Some(Value::Bool(true)) => true,
        Some(other) => return Err(Refusal::field("all", format!("is {other}: write true or false"))),
    };
    let filter = serde_json::from_value(body)
        .map_err(|error| Refusal::field("body", format!("is no filter: {error}")))?;
    Ok((filter, all))
}
