//! The experiment `redis`: a key-value store under a steady load. Its links are otherwise idle, are
//! shared with long flows ("elephants"), or change together with the neighbours during the run.

use crate::experiment::load::changes::{Changes, PHASES};
use crate::experiment::measure::counts::Counts;
use crate::experiment::measure::distribution::Distribution;
use crate::experiment::measure::programs::{self, MPTCPIZE, Program};
use crate::experiment::measure::requests::{Answers, Load, Protocol};
use crate::experiment::measure::result::{Counted, Figure, Measured};
use crate::experiment::{Case, Experiment, Options, Stage, Variant, describe, load::elephants};
use anyhow::{Context, Result};
use srd_lab::config::FabricConfig;
use srd_lab::id::HostId;
use srd_lab::running::Running;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

const SERVER: HostId = HostId { leaf: 1, host: 0 };
const CLIENT: HostId = HostId { leaf: 0, host: 0 };
const CONNECTIONS: usize = 600;
/// Default number of requests per second, over all connections.
const RATE: u32 = 2000;
const RATE_MBPS: u32 = 250;
const QUEUE_BYTES: u32 = 100_000;
/// Smallest share of requests that must be answered in time. With less, a note reports that the
/// load is too high.
const ANSWERED_MIN: f64 = 0.99;
/// Time between the start of the elephants and the first request, in which the queues fill.
const RAMP: Duration = Duration::from_secs(1);

const REDIS: Program = Program { name: "redis-server", package: "redis-server" };
const MEMCACHED: Program = Program { name: "memcached", package: "memcached" };

/// The experiment `redis`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "redis",
    summary: "How long does a request to Redis take when large transfers use the same links?",
    about: "redis-server (or memcached) with 600 connections from one host, 2000 requests per \
            second in all, four GETs to one SET, keys of 64 and values of 512 bytes. The \
            generator is open-loop: requests are due at random moments (Poisson) whether or not \
            earlier ones are answered, and a latency counts from the moment a request was due. \
            Beside it nothing (idle), 4 long TCP flows of two other hosts into the server's host \
            (incast), or 6 between other hosts of the same racks (collisions). In `changes` the \
            six come and go and half of the client's uplinks fall to a tenth of their rate, in \
            six parts of equal length: quiet, neighbours, quiet, slow links, both, recovered; \
            the busy share of the processors is shown for each part. \
            --rate and --threads ask for more. Latencies are counted in memory that does not \
            grow, so a run may last eight hours (--seconds 28800); a value is at most 0.1 % too \
            high, 1 % in charts over time. A percentile from p99.99 on is shown where ten \
            samples lie beyond it.",
    repetitions: 3,
    variants: crate::experiment::variant::USUAL,
    programs: |options| needed(options),
    cases,
};

fn needed(options: &Options) -> Vec<Program> {
    let server = if options.memcached { MEMCACHED } else { REDIS };
    let mptcp = options.compares(Variant::Mptcp);
    [Some(server), mptcp.then_some(MPTCPIZE)].into_iter().flatten().collect()
}

fn cases(options: &Options) -> Vec<Case> {
    let all = [
        ("incast", Beside::Always(elephants::incast(SERVER))),
        ("collisions", Beside::Always(elephants::collisions())),
        ("idle", Beside::Always(Vec::new())),
        ("changes", Beside::Changes(elephants::collisions())),
    ];
    let chosen = all.into_iter().take(options.cases_or(1, 4));
    chosen.map(|(name, beside)| case(options, name, beside)).collect()
}

/// Other load on the links during the run.
enum Beside {
    /// Elephants between these pairs of hosts, from before the first request until after the last
    /// request.
    Always(Vec<(HostId, HostId)>),
    /// Elephants between these pairs of hosts in some phases, and links that slow down and recover.
    Changes(Vec<(HostId, HostId)>),
}

impl Beside {
    fn pairs(&self) -> &[(HostId, HostId)] {
        match self {
            Beside::Always(pairs) | Beside::Changes(pairs) => pairs,
        }
    }
}

fn case(options: &Options, name: &str, beside: Beside) -> Case {
    let fabric = FabricConfig {
        spines: options.spines.unwrap_or(4),
        host_rate_mbps: RATE_MBPS,
        uplink_rate_mbps: RATE_MBPS,
        queue_bytes: QUEUE_BYTES,
        ..FabricConfig::default()
    };
    let seconds = match beside {
        Beside::Always(_) => options.seconds_or(25, 2),
        Beside::Changes(_) => options.seconds_or(60, 6),
    };
    let protocol = if options.memcached { Protocol::Memcached } else { Protocol::Redis };
    let (rate, threads) = (options.rate.unwrap_or(RATE), options.threads.unwrap_or(1));
    let of_threads = if threads == 1 { String::new() } else { format!(" of {threads} threads") };
    let asked = LoadParameters { protocol, rate, threads, seconds };
    Case {
        name: name.into(),
        setting: format!(
            "{protocol:?}, {CONNECTIONS} connections, {rate} requests/s{of_threads} for \
             {seconds} s, {} elephants{}; {}",
            beside.pairs().len() * elephants::FLOWS_PER_PAIR,
            if matches!(beside, Beside::Changes(_)) { " that come and go, slow links" } else { "" },
            describe(&fabric)
        ),
        fabric,
        hosts: elephants::with_hosts(&[CLIENT, SERVER], beside.pairs()),
        only: None,
        measure: Box::new(move |stage| measure(stage, &asked, &beside)),
    }
}

/// Parameters of the load of requests.
#[derive(Clone, Copy)]
struct LoadParameters {
    protocol: Protocol,
    rate: u32,
    threads: u32,
    seconds: u64,
}

fn measure(stage: &Stage<'_>, asked: &LoadParameters, beside: &Beside) -> Result<Measured> {
    let LoadParameters { protocol, rate, threads, seconds } = *asked;
    let port = if protocol == Protocol::Redis { 6379 } else { 11_211 };
    let _server = start_server(stage, protocol, port)?;
    let load = Load {
        protocol,
        clients: vec![CLIENT],
        server: SocketAddr::new(stage.address(SERVER)?, port),
        connections: CONNECTIONS,
        rate,
        threads,
        seconds,
        seed: stage.seed.into(),
        congestion: stage.variant.congestion(),
        mptcp: stage.variant.mptcp_subflows() > 0,
    };
    let _subflows = stage.subflows()?;
    load.fill(stage.fabric)?;
    let clients = load.connect(stage.fabric)?;
    let before = stage.fabric.tcp_counters(&[CLIENT, SERVER])?;
    let (mut measured, elephants_mbps) = match beside {
        Beside::Always(pairs) => {
            let (answers, mbps) = elephants::beside(stage, pairs, || {
                thread::sleep(RAMP);
                Ok(load.run(&clients, |_| Ok(()))?.0)
            })?;
            (summarise(&answers, Vec::new()), mbps)
        }
        Beside::Changes(pairs) => {
            let changes = Changes::new(CLIENT.leaf, pairs, Duration::from_secs(seconds));
            let (answers, seen) = load.run(&clients, |clock| changes.make(stage, clock))?;
            let (busy, notes) = seen.processors();
            let mut measured = summarise(&answers, seen.marks);
            measured.figures.extend(phases(&answers, &changes));
            measured.figures.extend(busy);
            measured.notes.extend(notes);
            (measured, seen.elephants_mbps)
        }
    };
    let tcp = stage.fabric.tcp_counters(&[CLIENT, SERVER])?.since(&before);
    measured.figures.push(Figure::new("elephants", "Mb/s", elephants_mbps));
    measured.figures.push(Figure::new("TCP timeouts", "", tcp.timeouts as f64));
    let answered = measured.figures.iter().find(|figure| figure.name == "answered");
    if let Some(answered) = answered.map(|figure| figure.value)
        && answered < f64::from(rate) * ANSWERED_MIN
    {
        measured.notes.push(format!(
            "answered were {answered:.0} of {rate} requests per second: more than this carries"
        ));
    }
    Ok(measured)
}

fn start_server(stage: &Stage<'_>, protocol: Protocol, port: u16) -> Result<Running> {
    let program = if protocol == Protocol::Redis { REDIS } else { MEMCACHED };
    let mut command = programs::command(stage, program)?;
    let port_text = port.to_string();
    match protocol {
        Protocol::Redis => {
            command.args(["--port", &port_text, "--bind", "0.0.0.0", "--protected-mode", "no"]);
            command.args(["--save", "", "--appendonly", "no", "--maxclients", "2000"]);
            command.arg("--dir").arg(stage.directory);
        }
        Protocol::Memcached => {
            command
                .args(["-p", &port_text, "-l", "0.0.0.0", "-u", "root", "-c", "2000", "-t", "1"]);
        }
    }
    let mut server = programs::start(stage, SERVER, program.name, &mut command)?;
    programs::wait_for_listener(stage, SERVER, port, &mut server, program.name)
        .with_context(|| program.name)?;
    Ok(server)
}

fn summarise(answers: &Answers, marks: Vec<(u64, String)>) -> Measured {
    let times = |counts: &Counts| Distribution::counted("", "us", counts.clone());
    let p = |of: &Distribution, percent| of.percentile(percent).unwrap_or(0.0);
    let Answers { get, set, late, .. } = answers;
    let late = times(late);
    let counted = |name, counts: &Counts| Counted { name, unit: "us", counts: counts.clone() };
    Measured {
        figures: vec![
            Figure::new("GET p99", "us", p(&times(&get.all), 99.0)).beside(0.0, "none"),
            Figure::new("SET p99", "us", p(&times(&set.all), 99.0)).beside(0.0, "none"),
            Figure::new("answered", "requests/s", answers.per_s()),
            Figure::new("unanswered", "requests", answers.unanswered as f64),
            Figure::new("wrong answers", "", answers.wrong as f64),
            Figure::new("generator late, p99", "us", p(&late, 99.0)),
            Figure::new("generator late, p100", "us", p(&late, 100.0)),
        ],
        counted: vec![counted("GET latency", &get.all), counted("SET latency", &set.all)],
        spreads: vec![
            get.over_time("GET latency", marks.clone()),
            set.over_time("SET latency", marks),
        ],
        ..Measured::default()
    }
}

/// Returns figures for each phase, separately for GET and SET: the 99th percentile of the latency,
/// and the longest.
fn phases(answers: &Answers, changes: &Changes) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (kind, seen) in [("GET", &answers.get), ("SET", &answers.set)] {
        let parts = PHASES.into_iter().zip(0u32..);
        let parts: Vec<_> =
            parts.map(|(name, number)| (name, seen.part(changes.phase(number)))).collect();
        for (phase, part) in &parts {
            figures.push(Figure::new(format!("{kind} p99, {phase}"), "us", part.p99_us));
        }
        for (phase, part) in &parts {
            figures.push(Figure::new(format!("{kind} worst, {phase}"), "us", part.worst_us));
        }
    }
    figures
}
