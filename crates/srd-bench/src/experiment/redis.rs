//! A key-value store under a steady load, with and without elephants on its links.

use super::distribution::Distribution;
use super::programs::{self, MPTCPIZE, Program};
use super::requests::{Answers, Load, Protocol};
use super::result::{Figure, Measured, Samples};
use super::{Case, Experiment, Options, Stage, Variant, describe, elephants};
use anyhow::{Context, Result};
use srd_lab::config::FabricConfig;
use srd_lab::id::HostId;
use srd_lab::priority;
use srd_lab::running::Running;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

const SERVER: HostId = HostId { leaf: 1, host: 0 };
const CLIENT: HostId = HostId { leaf: 0, host: 0 };
const CONNECTIONS: usize = 600;
/// Requests per second, over all connections.
const RATE: u32 = 2000;
const RATE_MBPS: u32 = 250;
const QUEUE_BYTES: u32 = 100_000;
/// Real-time priority of the generator.
const PRIORITY: u8 = 20;
/// Time for elephants to fill the queues before the first request.
const RAMP: Duration = Duration::from_secs(1);

const REDIS: Program = Program { name: "redis-server", package: "redis-server" };
const MEMCACHED: Program = Program { name: "memcached", package: "memcached" };

/// The experiment.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "redis",
    summary: "How long does a request to Redis take when large transfers use the same links?",
    about: "redis-server (or memcached) with 600 connections from one host, 2000 requests per \
            second in all, four GETs to one SET, keys of 64 and values of 512 bytes. The \
            generator is open-loop: requests are due at random moments (Poisson) whether or not \
            earlier ones are answered, and a latency counts from the moment a request was due. \
            Beside it nothing (idle), 4 long TCP flows of two other hosts into the server's host \
            (incast), or 6 between other hosts of the same racks (collisions).",
    repetitions: 3,
    variants: super::variant::USUAL,
    programs: |options| needed(options),
    cases,
};

fn needed(options: &Options) -> Vec<Program> {
    let server = if options.memcached { MEMCACHED } else { REDIS };
    let mptcp = options.compares(Variant::Mptcp);
    [Some(server), mptcp.then_some(MPTCPIZE)].into_iter().flatten().collect()
}

fn cases(options: &Options) -> Vec<Case> {
    let idle = ("idle", Vec::new());
    let incast = ("incast", elephants::incast(SERVER));
    let collisions = ("collisions", elephants::collisions());
    let chosen = options.quick_or(1, 3);
    let all = [incast, collisions, idle];
    all.into_iter().take(chosen).map(|(name, pairs)| case(options, name, pairs)).collect()
}

fn case(options: &Options, name: &str, pairs: Vec<(HostId, HostId)>) -> Case {
    let fabric = FabricConfig {
        spines: options.spines.unwrap_or(4),
        host_rate_mbps: RATE_MBPS,
        uplink_rate_mbps: RATE_MBPS,
        queue_bytes: QUEUE_BYTES,
        ..FabricConfig::default()
    };
    let seconds = options.seconds_or(20, 2);
    let protocol = if options.memcached { Protocol::Memcached } else { Protocol::Redis };
    Case {
        name: name.into(),
        setting: format!(
            "{protocol:?}, {CONNECTIONS} connections, {RATE} requests/s for {seconds} s, {} \
             elephants; {}",
            pairs.len() * elephants::FLOWS_PER_PAIR,
            describe(&fabric)
        ),
        fabric,
        hosts: elephants::with_hosts(&[CLIENT, SERVER], &pairs),
        only: None,
        measure: Box::new(move |stage| measure(stage, protocol, &pairs, seconds)),
    }
}

fn measure(
    stage: &Stage<'_>,
    protocol: Protocol,
    pairs: &[(HostId, HostId)],
    seconds: u64,
) -> Result<Measured> {
    let port = if protocol == Protocol::Redis { 6379 } else { 11_211 };
    let _server = start_server(stage, protocol, port)?;
    let load = Load {
        protocol,
        clients: vec![CLIENT],
        server: SocketAddr::new(stage.address(SERVER)?, port),
        connections: CONNECTIONS,
        rate: RATE,
        seconds,
        seed: stage.seed.into(),
        congestion: stage.variant.congestion(),
        mptcp: stage.variant.mptcp_subflows() > 0,
    };
    let _subflows = stage.subflows()?;
    load.fill(stage.fabric)?;
    let clients = load.connect(stage.fabric)?;
    let before = stage.fabric.tcp_counters(&[CLIENT, SERVER])?;
    let (answers, elephants_mbps) = elephants::beside(stage, pairs, || {
        thread::sleep(RAMP);
        let _fifo = priority::fifo(PRIORITY)?;
        load.run(&clients)
    })?;
    let tcp = stage.fabric.tcp_counters(&[CLIENT, SERVER])?.since(&before);
    let mut measured = summarise(answers);
    measured.figures.push(Figure::new("elephants", "Mb/s", elephants_mbps));
    measured.figures.push(Figure::new("TCP timeouts", "", tcp.timeouts as f64));
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

fn summarise(answers: Answers) -> Measured {
    let late = Distribution::new("", "us", answers.late_us);
    let percentile = |d: &Distribution, p| d.percentile(p).unwrap_or(0.0);
    let get = Distribution::new("", "us", answers.get_us.clone());
    Measured {
        figures: vec![
            Figure::new("GET p99", "us", percentile(&get, 99.0)).beside(0.0, "none"),
            Figure::new("answered", "requests/s", answers.per_s),
            Figure::new("unanswered", "requests", answers.unanswered as f64),
            Figure::new("wrong answers", "", answers.wrong as f64),
            Figure::new("generator late, p99", "us", percentile(&late, 99.0)),
            Figure::new("generator late, p100", "us", percentile(&late, 100.0)),
        ],
        samples: vec![
            Samples { name: "GET latency", unit: "us", values: answers.get_us },
            Samples { name: "SET latency", unit: "us", values: answers.set_us },
        ],
        ..Measured::default()
    }
}
