//! The budgets, each with the runs that show it.

use std::process::{Command, Stdio};

use anyhow::Context;

use crate::run::{Figures, Lab, median};

/// What the yardstick needs on a quiet machine (DESIGN 2): one that needs more than this and a tolerance was disturbed,
/// and its ratio does not count. One that needs less has a faster machine, and is its own floor.
const YARDSTICK_512_US: f64 = 8.9;
const YARDSTICK_TOLERANCE: f64 = 0.15;

/// One budget and what was measured.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) what: String,
    pub(crate) budget: String,
    pub(crate) measured: String,
    /// `None`: measured, but the run says nothing about the budget.
    pub(crate) met: Option<bool>,
    pub(crate) command: String,
    pub(crate) raw: Vec<Figures>,
}

fn all(figures: &[Figures], key: &str) -> Vec<f64> {
    figures.iter().map(|figures| figures.get(key)).collect()
}

fn commands(figures: &[&[Figures]]) -> String {
    figures.iter().filter_map(|f| f.first()).map(|f| f.command.clone()).collect::<Vec<_>>().join("; ")
}

/// CPU per delivery against the floor and against what most people write.
pub(crate) fn cpu(lab: &Lab) -> anyhow::Result<Vec<Check>> {
    let sink = lab.sink("--cores 1")?;
    let (url, s) = (format!("{}/ok", sink.url), lab.seconds);
    let (mut yardstick, mut corelane, mut baseline) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..lab.rounds {
        yardstick
            .push(lab.run("yardstick", &format!("--url {url} --connections 512 --seconds {s} --core 0"))?);
        let args =
            format!("bench --target {} --concurrency 512 --groups 10000 --seconds {s} --json", sink.url);
        corelane.push(lab.run("corelane", &args)?);
        let args = format!("--url {url} --concurrency 512 --groups 10000 --seconds {s}");
        baseline.push(lab.run("baseline", &args)?);
    }
    let cpu = |figures: &[Figures]| median(all(figures, "cpu_us_per_delivery"));
    let (floor, ours, common) = (cpu(&yardstick), cpu(&corelane), cpu(&baseline));
    // The median of the rounds' own ratios: neighbours in time share the machine's mood.
    let pairs = |other: &[Figures]| {
        let ratios = corelane
            .iter()
            .zip(other)
            .map(|(a, b)| a.get("cpu_us_per_delivery") / b.get("cpu_us_per_delivery"));
        median(ratios.collect())
    };
    let (to_floor, to_common) = (pairs(&yardstick), pairs(&baseline));
    let quiet = floor / YARDSTICK_512_US - 1.0 <= YARDSTICK_TOLERANCE;
    let note = if quiet {
        String::new()
    } else {
        " (void: the yardstick is off its own figure, the machine was not quiet)".into()
    };
    let command = commands(&[&yardstick, &corelane, &baseline]);
    let raw: Vec<Figures> = [yardstick, corelane, baseline].concat();
    Ok(vec![
        Check {
            what: "CPU per delivery, whole router, 512 connections, HTTP/1.1, against the yardstick".into(),
            budget: "≤ 1.3 ×".into(),
            measured: format!("{to_floor:.2} × ({ours:.2} µs : {floor:.2} µs){note}"),
            met: quiet.then_some(to_floor <= 1.3),
            command: command.clone(),
            raw,
        },
        Check {
            what: "the same, against tokio + reqwest".into(),
            budget: "≤ 0.33 ×".into(),
            measured: format!("{to_common:.2} × ({ours:.2} µs : {common:.2} µs){note}"),
            met: quiet.then_some(to_common <= 1.0 / 3.0),
            command,
            raw: Vec::new(),
        },
    ])
}

/// 50,000 deliveries a second to a target that takes 100 ms.
pub(crate) fn slow(lab: &Lab) -> anyhow::Result<Vec<Check>> {
    let args = format!(
        "bench --groups 10000 --concurrency 6000 --delay-ms 100 --seconds {} --warm-up 3 --json",
        lab.long
    );
    let run = lab.run("corelane", &args)?;
    let (rate, rss) = (run.get("deliveries_per_s"), run.get("rss_mb"));
    Ok(vec![Check {
        what: format!("100 ms target, 10,000 groups, 6,000 in flight, router on one core, {} s", lab.long),
        budget: "≥ 50,000/s, RSS ≤ 100 MB".into(),
        measured: format!(
            "{rate:.0}/s, {rss:.1} MB (grew {:.1} MB in the window), {:.0} % of the core",
            run.get("rss_grew_mb"),
            run.get("cpu_share") * 100.0
        ),
        met: Some(rate >= 50_000.0 && rss <= 100.0),
        command: run.command.clone(),
        raw: vec![run],
    }])
}

/// The engine without a network.
pub(crate) fn engine(lab: &Lab) -> anyhow::Result<Vec<Check>> {
    let args = format!("bench --loopback --ingress-core 0 --shard-cores 1 --seconds {} --json", lab.seconds);
    let runs: Vec<Figures> = (0..3).map(|_| lab.run("corelane", &args)).collect::<Result<_, _>>()?;
    let (rate, busy) = (median(all(&runs, "deliveries_per_s")), median(all(&runs, "shard_busy")));
    Ok(vec![Check {
        what: "engine alone: target answered inside the shard, ingress on the other core".into(),
        budget: "≥ 1,000,000/s per shard core".into(),
        measured: format!(
            "{rate:.0}/s end to end with the shard {:.0} % busy: {:.1} M/s per shard core",
            busy * 100.0,
            rate / busy / 1e6
        ),
        met: Some(rate >= 1_000_000.0),
        command: runs[0].command.clone(),
        raw: runs,
    }])
}

/// What the router adds to a direct POST.
pub(crate) fn latency(lab: &Lab) -> anyhow::Result<Vec<Check>> {
    let most = lab.run("corelane", &format!("bench --seconds {} --json", lab.seconds))?;
    let pace = (most.get("deliveries_per_s") / 2.0).round();
    let base = format!("bench --pace {pace:.0} --seconds {} --json", lab.seconds);
    let parked = lab.run("corelane", &base)?;
    // Ingress, shard and sink on cores of their own need three; with two the sink shares the shard's, and a
    // low pace leaves it room.
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let sink_core = if cores > 2 { 2 } else { 1 };
    let quiet = format!("bench --pace 1000 --seconds {} --json --spin-us 2000", lab.seconds);
    let spun =
        lab.run("corelane", &format!("{quiet} --ingress-core 0 --shard-cores 1 --sink-core {sink_core}"))?;
    let added = |run: &Figures, q: &str| run.get(&format!("{q}_us")) - run.get(&format!("call_{q}_us"));
    let (p50, p99) = (added(&parked, "p50"), added(&parked, "p99"));
    let spin_p50 = added(&spun, "p50");
    Ok(vec![
        Check {
            what: format!("latency added to a direct POST at half load ({pace:.0}/s)"),
            budget: "p50 ≤ 86 µs (two idle wakes), p99 ≤ 1,000 µs".into(),
            measured: format!("p50 {p50:.0} µs, p99 {p99:.0} µs"),
            met: Some(p50 <= 86.0 && p99 <= 1_000.0),
            command: parked.command.clone(),
            raw: vec![most, parked],
        },
        Check {
            what: format!(
                "the same at 1,000/s with --spin-us 2000 ({cores} cores for ingress, shard and sink)"
            ),
            budget: "p50 ≤ 30 µs".into(),
            measured: format!("p50 {spin_p50:.0} µs"),
            // Not at half load: on two cores the sink would share a spinning core. It says nothing about the budget.
            met: None,
            command: spun.command.clone(),
            raw: vec![spun],
        },
    ])
}

/// CPU per message as groups grow.
pub(crate) fn groups(lab: &Lab) -> anyhow::Result<Vec<Check>> {
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for _ in 0..lab.rounds {
        let args = |groups: u32| {
            format!("bench --groups {groups} --concurrency 64 --seconds {} --json", lab.seconds)
        };
        few.push(lab.run("corelane", &args(100))?);
        many.push(lab.run("corelane", &args(1_000_000))?);
    }
    let ratios =
        many.iter().zip(&few).map(|(m, f)| m.get("cpu_us_per_delivery") / f.get("cpu_us_per_delivery"));
    let ratio = median(ratios.collect());
    Ok(vec![Check {
        what: "CPU per message from 100 to 1,000,000 groups".into(),
        budget: "≤ 1.3 ×".into(),
        measured: format!("{ratio:.2} ×"),
        met: Some(ratio <= 1.3),
        command: commands(&[&few, &many]),
        raw: [few, many].concat(),
    }])
}

/// Memory per active group.
pub(crate) fn memory(_lab: &Lab) -> anyhow::Result<Vec<Check>> {
    let probe = |groups: u64| -> anyhow::Result<Figures> {
        let me = std::env::current_exe().context("find this program")?;
        let output =
            Command::new(me).arg("--memory-probe").arg(groups.to_string()).stdin(Stdio::null()).output()?;
        let json = serde_json::from_slice(&output.stdout).context("read the probe's figures")?;
        Ok(Figures { command: format!("compare --memory-probe {groups}"), json })
    };
    let (one, many) = (probe(1)?, probe(1_000_000)?);
    let bytes = (many.get("held_mb") - one.get("held_mb")) * 1_048_576.0 / 1e6;
    let idle_lanes = many.get("lanes_after");
    Ok(vec![Check {
        what: "memory: 1,000,000 messages in 1,000,000 groups against the same in one".into(),
        budget: "≤ 200 B per active group; an idle one 0".into(),
        measured: format!("{bytes:.0} B per active group; {idle_lanes:.0} lanes and groups left when idle"),
        met: Some(bytes <= 200.0 && idle_lanes == 0.0),
        command: many.command.clone(),
        raw: vec![one, many],
    }])
}

/// Handing back what is queued.
pub(crate) fn drain(lab: &Lab) -> anyhow::Result<Vec<Check>> {
    let run = lab.run(
        "corelane",
        "bench --groups 10000 --concurrency 5000 --delay-ms 100 --prefetch 20 --seconds 3 --json",
    )?;
    let (held, ms) = (run.get("held"), run.get("drain_ms"));
    Ok(vec![Check {
        what: format!("drain with {held:.0} messages held, 100 ms calls in flight"),
        budget: "≤ 2 s for 100,000".into(),
        measured: format!("{ms:.0} ms"),
        met: Some(held >= 100_000.0 && ms <= 2_000.0),
        command: run.command.clone(),
        raw: vec![run],
    }])
}
