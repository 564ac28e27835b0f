//! Changing a pool: `PUT` says all of it, `PATCH` what is different.

use std::num::{NonZeroU16, NonZeroU32};

use serde_json::{Map, Value, json};

use super::ask::{Answer, Ask, json as answer_json};
use super::port::{PoolChange, RateChange, Router};
use super::refusal::Refusal;
use super::routes::Api;

/// A pool's settings are two numbers.
const BODY_BYTES_MAX: usize = 64 * 1024;

pub(super) async fn replace<R: Router>(api: &Api<R>, ask: Ask) -> Answer {
    set(api, ask, Keeps::Nothing).await
}

pub(super) async fn change<R: Router>(api: &Api<R>, ask: Ask) -> Answer {
    set(api, ask, Keeps::WhatIsAbsent).await
}

/// What happens to a setting that the body does not name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keeps {
    Nothing,
    WhatIsAbsent,
}

async fn set<R: Router>(api: &Api<R>, ask: Ask, keeps: Keeps) -> Answer {
    let code = ask.part("code").to_owned();
    let change = read(ask.json(BODY_BYTES_MAX).await?, keeps)?;
    api.router.set_pool(&code, change).await?;
    let mut said = json!({ "code": code });
    if let Some(concurrency) = change.concurrency {
        said["concurrency"] = concurrency.get().into();
    }
    match change.rate {
        RateChange::Keep => {}
        RateChange::Lift => said["rateLimitPerMinute"] = Value::Null,
        RateChange::Set(rate) => said["rateLimitPerMinute"] = rate.get().into(),
    }
    Ok(answer_json(&said))
}

fn read(body: Value, keeps: Keeps) -> Result<PoolChange, Refusal> {
    let Value::Object(mut body) = body else {
        return Err(Refusal::field(
            "body",
            "is not an object: write {\"concurrency\":10,\"rateLimitPerMinute\":600}",
        ));
    };
    let concurrency = match body.remove("concurrency") {
        Some(value) => Some(concurrency(&value)?),
        None if keeps == Keeps::Nothing => {
            return Err(Refusal::field("concurrency", "is missing: PUT sets all, PATCH what is there"));
        }
        None => None,
    };
    let rate = match body.remove("rateLimitPerMinute") {
        Some(Value::Null) => RateChange::Lift,
        Some(value) => RateChange::Set(rate(&value)?),
        None if keeps == Keeps::Nothing => RateChange::Lift,
        None => RateChange::Keep,
    };
    end(&body)?;
    if concurrency.is_none() && rate == RateChange::Keep {
        return Err(Refusal::field("body", "changes nothing: write concurrency or rateLimitPerMinute"));
    }
    Ok(PoolChange { concurrency, rate })
}

fn concurrency(value: &Value) -> Result<NonZeroU16, Refusal> {
    let number = value.as_u64().and_then(|number| u16::try_from(number).ok()).and_then(NonZeroU16::new);
    number.ok_or_else(|| {
        Refusal::field("concurrency", format!("is {value}: write a whole number from 1 to {}", u16::MAX))
    })
}

fn rate(value: &Value) -> Result<NonZeroU32, Refusal> {
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok()).and_then(NonZeroU32::new);
    number.ok_or_else(|| {
        let problem =
            format!("is {value}: write a whole number from 1 to {}, or null for no limit", u32::MAX);
        Refusal::field("rateLimitPerMinute", problem)
    })
}

fn end(body: &Map<String, Value>) -> Result<(), Refusal> {
    match body.keys().next() {
        None => Ok(()),
        Some(name) => Err(Refusal::field(
            name.as_str(),
            "can't be changed here: only concurrency and rateLimitPerMinute can",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn put_sets_all_and_patch_what_is_there() {
        let ten = NonZeroU16::new(10);
        let six = RateChange::Set(NonZeroU32::new(6).expect("not 0"));
        let rows = [
            (json!({"concurrency": 10}), Keeps::Nothing, Some((ten, RateChange::Lift))),
            (json!({"concurrency": 10}), Keeps::WhatIsAbsent, Some((ten, RateChange::Keep))),
            (json!({"rateLimitPerMinute": 6}), Keeps::WhatIsAbsent, Some((None, six))),
            (json!({"rateLimitPerMinute": null}), Keeps::WhatIsAbsent, Some((None, RateChange::Lift))),
            (json!({"rateLimitPerMinute": 6}), Keeps::Nothing, None),
            (json!({}), Keeps::WhatIsAbsent, None),
            (json!({"concurrency": 0}), Keeps::WhatIsAbsent, None),
            (json!({"concurrency": 65_536}), Keeps::WhatIsAbsent, None),
            (json!({"concurrency": "10"}), Keeps::WhatIsAbsent, None),
            (json!({"concurrency": 1.5}), Keeps::WhatIsAbsent, None),
            (json!({"rateLimitPerMinute": 0}), Keeps::WhatIsAbsent, None),
            (json!({"concurrency": 1, "code": "x"}), Keeps::Nothing, None),
            (json!([1]), Keeps::WhatIsAbsent, None),
        ];
        for (body, keeps, want) in rows {
            let got = read(body.clone(), keeps).ok().map(|change| (change.concurrency, change.rate));
            assert_eq!(got, want, "{body}");
        }
    }
}
