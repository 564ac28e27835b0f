//! The router document's response table, row by row, through the real program and the SQLite queue: what a target
//! answers, what becomes of the message, how often it was called, what is counted and who is warned.

use std::cell::RefCell;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::support::ports::free_address;
use super::support::router::{Call, Dir, Router, SinkProgram, message};
use super::support::shelf::{self, Waiting};
use super::support::wait::until;

const DONE_MAX: Duration = Duration::from_secs(60);
/// What may pass between a message's going back and our look at the file.
const LOOK_MS: i64 = 6_000;
/// Of a call; a `/never` takes three of them.
const TIMEOUT_MS: &str = "mediator.http.timeout.ms=2000";

/// Where a row's message goes.
#[derive(Clone, Debug)]
enum To {
    /// A script of the sink that all share.
    Shared(String),
    /// A script of a sink of its own: a warning and a breaker are per origin.
    Own(&'static str),
    /// A port that nobody listens on.
    Closed,
    /// A host that no resolver knows.
    Nowhere,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Delivered,
    /// Back in the queue for so many seconds.
    Nacked(i64),
    /// In the dead-letter store, with this status and a warning of this severity.
    Aside(u16, &'static str),
}

#[derive(Clone, Debug)]
struct Row {
    name: String,
    to: To,
    ends: Ends,
    calls: usize,
    /// The pool's counter that goes up.
    counted: &'static str,
}

fn row(name: &str, to: To, ends: Ends, calls: usize) -> Row {
    let counted = match (&ends, &to) {
        (Ends::Delivered, _) => "deliveredTotal",
        (Ends::Aside(..), _) | (_, To::Closed | To::Nowhere) => "failedTotal",
        (_, To::Own(script)) if *script != "/never" => "failedTotal",
        (Ends::Nacked(_), _) => "transientTotal",
    };
    Row { name: name.to_owned(), to, ends, calls, counted }
}

fn shared(name: &str, script: &str, ends: Ends, calls: usize) -> Row {
    row(name, To::Shared(script.to_owned()), ends, calls)
}

/// An HTTP date so many seconds from now.
fn date_in(seconds: u64) -> String {
    let at = SystemTime::now() + Duration::from_secs(seconds);
    let since = at.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs().cast_signed();
    let sql = "SELECT strftime('%w %d %m %Y %H:%M:%S', ?1, 'unixepoch')";
    let memory = rusqlite::Connection::open_in_memory().expect("SQLite knows the calendar");
    let text: String = memory.query_row(sql, [since], |row| row.get(0)).expect("a date");
    let parts: Vec<&str> = text.split(' ').collect();
    let day = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"][parts[0].parse::<usize>().expect("a digit")];
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months[parts[2].parse::<usize>().expect("digits") - 1];
    format!("{day},%20{}%20{month}%20{}%20{}%20GMT", parts[1], parts[3], parts[4])
}

fn answered() -> Vec<Row> {
    use Ends::{Delivered, Nacked};
    let not_yet = |delay: &str| format!("/status/202?body={{%22ack%22:false{delay}}}");
    let mut rows = vec![
        shared("200 ack", "/ok", Delivered, 1),
        shared("200 no JSON", "/ok?body=fine", Delivered, 1),
        shared("200 other JSON", "/ok?body=[1]", Delivered, 1),
        shared("200 no body", "/ok?body=", Delivered, 1),
        shared("201", "/status/201", Delivered, 1),
        shared("204", "/status/204", Delivered, 1),
        shared("299 no JSON", "/status/299?body=x", Delivered, 1),
        shared("200 not yet", "/ok?body={%22ack%22:false}", Nacked(30), 1),
        shared("200 not yet, 45 s", "/ok?body={%22ack%22:false,%22delaySeconds%22:45}", Nacked(45), 1),
        shared("202 not yet", &not_yet(""), Nacked(30), 1),
        shared("202 not yet, 0 s", &not_yet(",%22delaySeconds%22:0"), Nacked(30), 1),
        shared("202 not yet, far", &not_yet(",%22delaySeconds%22:99999999"), Nacked(43_200), 1),
        shared("429 in 120 s", "/status/429?retry_after=120", Nacked(120), 1),
        shared("429 far", "/status/429?retry_after=99999999999999", Nacked(43_200), 1),
        shared("429 unreadable", "/status/429?retry_after=soon", Nacked(30), 1),
        shared("429 date", &format!("/status/429?retry_after={}", date_in(200)), Nacked(200), 1),
        shared("408 in 90 s", "/status/408?retry_after=90", Nacked(90), 1),
        // Only a 429 and its like say when: R gives a 5xx the default.
        shared("503 with a date", "/status/503?retry_after=300", Nacked(30), 3),
        row("no answer", To::Own("/never"), Nacked(30), 3),
    ];
    for status in ["408", "425", "429", "301", "302", "304", "307"] {
        rows.push(shared(status, &format!("/status/{status}"), Nacked(30), 1));
    }
    for status in ["500", "502", "503", "504", "599", "700"] {
        rows.push(shared(status, &format!("/status/{status}"), Nacked(30), 3));
    }
    for script in ["/rst", "/close", "/garbage", "/short"] {
        rows.push(row(script, To::Own(script), Nacked(30), 3));
    }
    rows.push(row("port closed", To::Closed, Nacked(30), 3));
    rows.push(row("host unknown", To::Nowhere, Nacked(30), 3));
    rows
}

fn refused() -> Vec<Row> {
    let script = |status: u16| match status {
        400 => "/status/400",
        401 => "/status/401",
        403 => "/status/403",
        404 => "/status/404",
        410 => "/status/410",
        499 => "/status/499",
        _ => "/status/501",
    };
    let row = |status: u16| {
        let severity = if status == 501 { "CRITICAL" } else { "ERROR" };
        row(&status.to_string(), To::Own(script(status)), Ends::Aside(status, severity), 1)
    };
    [400, 401, 403, 404, 410, 499, 501].map(row).to_vec()
}

/// A row on its way.
struct Trial {
    row: Row,
    id: String,
    origin: String,
    /// Kept while the table runs.
    _sink: Option<SinkProgram>,
    /// What the file said when it was first seen to be back.
    back: Option<Waiting>,
    /// Its pool when it was first seen to be over: a message that is back will be delivered again.
    counted: Option<Value>,
}

impl Trial {
    fn new(dir: &Dir, number: usize, row: Row, sink: &SinkProgram) -> (Self, Value) {
        let (own, target) = match &row.to {
            To::Shared(script) => (None, sink.url(script)),
            To::Own(script) => {
                let own = SinkProgram::start(dir);
                let url = own.url(script);
                (Some(own), url)
            }
            To::Closed => {
                let address = free_address();
                (None, format!("http://{address}/ok"))
            }
            To::Nowhere => (None, "http://nowhere.invalid:9/ok".into()),
        };
        let origin = target.split('/').take(3).collect::<Vec<_>>().join("/");
        let id = format!("r{number}");
        let sent = message(&id, &id, &format!("P{number}"), &target);
        (Self { row, id, origin, _sink: own, back: None, counted: None }, sent)
    }

    /// Calls of its first delivery: by the log where the sink answered, by the router's count of its origin elsewhere.
    fn calls(&self, log: &[Call], router: &Router) -> usize {
        let logged = log.iter().filter(|call| call.id == self.id && call.attempt == 1).count();
        if logged > 0 || matches!(self.row.to, To::Shared(_)) {
            return logged;
        }
        let targets = router.json("/api/targets");
        let all = targets["targets"].as_array().expect("a list").iter();
        let ours = all.filter(|target| target["origin"] == self.origin.as_str());
        ours.filter_map(|target| target["callsTotal"].as_u64())
            .map(|n| usize::try_from(n).expect("few"))
            .sum()
    }

    fn is_over(&mut self, file: &[Waiting], log: &[Call], router: &Router) -> bool {
        let found = file.iter().find(|waiting| waiting.id == self.id);
        if let Some(back) = found.filter(|found| found.delay_ms > 0 && self.back.is_none()) {
            self.back = Some(back.clone());
        }
        let left =
            if matches!(self.row.ends, Ends::Nacked(_)) { self.back.is_some() } else { found.is_none() };
        let pool = router.pool(&self.id.replace('r', "P"));
        if self.counted.is_none()
            && left
            && self.calls(log, router) == self.row.calls
            && pool[self.row.counted] == 1
        {
            self.counted = Some(pool);
        }
        self.counted.is_some()
    }
}

fn check(trials: &[Trial], sink: &SinkProgram, router: &Router) {
    let letters = router.json("/api/dead-letters?limit=100");
    let letters = letters["items"].as_array().expect("a list");
    for Trial { row, id, origin, back, counted, .. } in trials {
        println!("row {}", row.name);
        let letter = letters.iter().find(|letter| letter["id"] == id.as_str());
        let pool = counted.as_ref().expect("it is over");
        for counter in ["deliveredTotal", "failedTotal", "transientTotal"] {
            assert_eq!(pool[counter], u64::from(counter == row.counted), "{counter}: {row:?} {pool}");
        }
        let warned = router
            .warnings()
            .into_iter()
            .find(|it| it["code"] == "CONFIGURATION" && it["source"] == origin.as_str());
        match row.ends {
            Ends::Aside(status, severity) => {
                let letter = letter.unwrap_or_else(|| panic!("not set aside: {row:?}"));
                assert_eq!(
                    (&letter["reason"], &letter["status"]),
                    (&"REFUSED".into(), &status.into()),
                    "{row:?}"
                );
                let warned = warned.unwrap_or_else(|| panic!("no warning: {row:?}"));
                assert_eq!(warned["severity"], severity, "{row:?}");
                assert!(warned["message"].to_string().contains(&status.to_string()), "{row:?}: {warned}");
            }
            Ends::Delivered => assert!(letter.is_none() && warned.is_none(), "{row:?}"),
            Ends::Nacked(seconds) => {
                assert!(letter.is_none() && warned.is_none(), "{row:?}");
                let back = back.as_ref().expect("it was seen");
                let most = seconds * 1_000;
                assert!((most - LOOK_MS..=most).contains(&back.delay_ms), "{row:?}: {back:?}");
                assert_eq!(back.receives, 1, "one attempt: {row:?}");
            }
        }
        let at: Vec<Duration> =
            sink.calls().iter().filter(|it| it.id == *id && it.attempt == 1).map(|it| it.at).collect();
        if at.len() == 3 {
            let pauses = [1, 2].map(|n| at[n].saturating_sub(at[n - 1]).as_secs_f64());
            // Never sooner; on a busy machine later.
            assert!(
                (0.99..6.0).contains(&pauses[0]) && (1.99..6.0).contains(&pauses[1]),
                "{row:?}: {pauses:?}"
            );
        }
    }
}

fn try_out(rows: Vec<Row>, flags: &[&str]) {
    let dir = Dir::new();
    let sink = SinkProgram::start(&dir);
    let pools: Vec<String> = (0..rows.len()).map(|number| format!("P{number}=5")).collect();
    let mut all = vec!["--set", TIMEOUT_MS];
    all.extend(pools.iter().flat_map(|pool| ["--pool", pool.as_str()]));
    all.extend(flags);
    let router = Router::start(&dir, &all);
    let (mut trials, sent): (Vec<Trial>, Vec<Value>) =
        rows.into_iter().enumerate().map(|(number, row)| Trial::new(&dir, number, row, &sink)).unzip();
    router.publish(&sent);
    let file = dir.join("corelane.db");
    let open = RefCell::new(Vec::new());
    let is_done = || {
        let (file, log) = (shelf::waiting(&file), sink.calls());
        let is_open = |trial: &mut Trial| !trial.is_over(&file, &log, &router);
        let left = trials.iter_mut().filter_map(|trial| is_open(trial).then(|| trial.row.clone()));
        open.replace(left.collect());
        open.borrow().is_empty()
    };
    until(DONE_MAX, "every row is over", is_done, || (open.borrow().clone(), sink.calls()));
    check(&trials, &sink, &router);
}

#[test]
fn every_answer_ends_as_the_router_document_says() {
    try_out(answered(), &[]);
}

#[test]
fn every_refusal_sets_aside_and_warns() {
    try_out(refused(), &[]);
}

#[test]
fn in_strict_mode_only_an_ack_delivers() {
    let rows = vec![
        shared("200 ack", "/ok", Ends::Delivered, 1),
        shared("200 no JSON", "/ok?body=fine", Ends::Nacked(30), 1),
        shared("204", "/status/204", Ends::Nacked(30), 1),
        shared("200 not yet, 45 s", "/ok?body={%22ack%22:false,%22delaySeconds%22:45}", Ends::Nacked(45), 1),
    ];
    try_out(rows, &["--set", "mediator.ack-mode=strict"]);
}
