//! The experiment `flood`: a flood of handshakes from unknown hosts to a daemon that carries a
//! flow.
//!
//! The flood is sent by a host under the same leaf as the victim, and shares one link with the
//! flow. The link has enough capacity for both, so a loss of goodput is caused by the daemon's
//! work. The generator is the hidden command `srd lab flood`. It is a separate process, so that its
//! CPU time can be reported separately. During the flood the daemon of a third host is killed and
//! restarted, and the time until it has a session with the victim is measured.

use crate::experiment::measure::process::Status;
use crate::experiment::measure::result::{Figure, Measured, Timeline};
use crate::experiment::{
    Case, Experiment, Options, Stage, Variant, describe, measure::cpu, measure::programs,
};
use crate::tcp::{Flows, LongFlows};
use anyhow::{Context, Result, bail};
use rustix::net::{AddressFamily, RecvFlags, SocketType, ipproto};
use serde_json::Value;
use srd_lab::config::FabricConfig;
use srd_lab::express::{Overlay, PORT};
use srd_lab::id::{Family, HostId};
use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const FROM: HostId = HostId { leaf: 0, host: 0 };
const VICTIM: HostId = HostId { leaf: 1, host: 0 };
const STRANGER: HostId = HostId { leaf: 1, host: 1 };
/// Host whose daemon is restarted, once before the flood and once during it.
const NEWCOMER: HostId = HostId { leaf: 0, host: 1 };
/// First of the 64 source addresses of the flood. They belong to the subnet of the stranger's leaf,
/// and to no host.
const SOURCES_FROM: &str = "198.18.1.128";
/// Packets per second of the flood: about 190 Mb/s with the size of an opening.
const RATE: u64 = 100_000;
/// Rate of all uplinks together in Mb/s, which limits the flow: a quarter of the victim's own link.
const UPLINKS_MBPS: u32 = 250;
const INTERVAL_MS: u64 = 100;
/// Time at the start of each phase that is not counted. In it the generator creates its packets.
const SETTLE: Duration = Duration::from_millis(1500);
/// Name of the case in which the flood is sent to a port without a daemon, and that port (discard).
const ELSEWHERE: &str = "elsewhere";
const DISCARD_PORT: u16 = 9;
/// Time that the generator may take in addition to the requested duration.
const GRACE: Duration = Duration::from_secs(10);
/// Longest wait for the session of a peer after its restart.
const OPENING_MAX: Duration = Duration::from_secs(60);
/// Time for which the flood continues after the counted phase. In it the restarted daemon opens its
/// session.
const OPENING_PHASE: Duration = Duration::from_secs(4);
/// Interval at which the state of the session is checked.
const LOOK: Duration = Duration::from_millis(10);
/// First byte of a packet with an opening: version 2, type 4.
const HELLO: u8 = 0x24;
const UDP_HEADER_BYTES: usize = 8;
/// Names of the reasons for which a daemon drops openings, as in the specification.
const REASONS: [&str; 5] = ["cookie_demanded", "unauthentic", "replay", "stale_epoch", "malformed"];

/// The experiment `flood`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "flood",
    summary: "Does a flow notice when strangers flood its daemon with handshakes?",
    about: "A long TCP flow through two daemons, then the same while a third host sends 100,000 \
            handshake packets a second to the receiver's daemon, from 64 addresses and all ports: \
            openings by keys that nobody knows, complete and correct (strangers); the opening of \
            the session in use, recorded and played again (replay); or random bytes behind an \
            opening's header (noise). The flood has room on the victim's link, so that what the \
            flow loses is the daemon's work. A fourth host's daemon starts in it: how long until \
            it has a session, its own start included. CPU is in cores: one is a whole one.",
    repetitions: 2,
    variants: crate::experiment::variant::USUAL,
    programs: |_| Vec::new(),
    cases,
};

fn cases(options: &Options) -> Vec<Case> {
    let phase = Duration::from_secs(options.seconds_or(6, 2));
    let all = ["strangers", "replay", "noise", ELSEWHERE];
    let count = options.cases_or(1, all.len());
    all.into_iter().take(count).map(|what| case(options, what, phase)).collect()
}

fn case(options: &Options, what: &'static str, phase: Duration) -> Case {
    let fabric = FabricConfig { hosts_per_leaf: 2, ..FabricConfig::default() };
    let spines = options.spines.unwrap_or(fabric.spines);
    let uplink_rate_mbps = (UPLINKS_MBPS / u32::from(spines)).max(1);
    let fabric = FabricConfig { spines, uplink_rate_mbps, ..fabric };
    Case {
        name: what.into(),
        setting: format!(
            "{what}, {} s without a flood and with it; {}",
            phase.as_secs(),
            describe(&fabric)
        ),
        fabric,
        hosts: vec![FROM, VICTIM, NEWCOMER],
        only: Some(Variant::Express),
        measure: Box::new(move |stage| measure(stage, what, phase)),
    }
}

/// A counted phase: its start and end in milliseconds since the flow started, and its CPU use.
struct Phase {
    from_ms: u64,
    to_ms: u64,
    /// CPU time of the victim's daemon divided by the time of the phase.
    daemon_cpu: f64,
    /// CPU time of the generator divided by the time of the phase; 0 without a flood.
    generator_cpu: f64,
}

/// Figures of the victim, without the flood and with it.
struct Effect {
    without: Phase,
    with: Phase,
    memory_mb: [f64; 2],
    /// Milliseconds from the start of a daemon until it has a session with the victim: first
    /// without the flood, then with it.
    opening_ms: [f64; 2],
    drops: BTreeMap<String, f64>,
    sent: f64,
    sent_pps: f64,
}

fn measure(stage: &mut Stage<'_>, what: &'static str, phase: Duration) -> Result<Measured> {
    let packet = stage.directory.join("opening");
    fs::write(&packet, record_opening(stage)?).with_context(|| packet.display().to_string())?;
    let flows = LongFlows {
        flows: Flows { mptcp_subflows: 0, ..stage.flows(&[(FROM, VICTIM)], 1) },
        interval_ms: INTERVAL_MS,
    };
    let mut overlay = stage.overlay.take().context("no daemons")?;
    let done = {
        let (stage, overlay) = (&*stage, &mut overlay);
        flows.run(stage.fabric, |start| both_phases(stage, overlay, what, phase, start))
    };
    stage.overlay = Some(overlay);
    let (timelines, effect) = done?;
    let goodput = |phase: &Phase| timelines.mbps_between(phase.from_ms, phase.to_ms);
    let (before, during) = (goodput(&effect.without), goodput(&effect.with));
    let counted: f64 = effect.drops.values().sum();
    let notes = effect.drops.iter().map(|(why, count)| format!("dropped, {why}: {count}"));
    let ended = timelines.ended.iter().flatten().map(|why| format!("a connection ended: {why}"));
    Ok(Measured {
        figures: vec![
            Figure::new("kept during the flood", "of before", during / before.max(1e-9))
                .beside(1.0, "as without a flood"),
            Figure::new("before", "Mb/s", before),
            Figure::new("during", "Mb/s", during),
            Figure::new("flood", "packets/s", effect.sent_pps),
            Figure::new("a session opens, without a flood", "ms", effect.opening_ms[0]),
            Figure::new("a session opens, in the flood", "ms", effect.opening_ms[1]),
            Figure::new("flood that is counted as dropped", "%", 100.0 * counted / effect.sent),
            Figure::new("daemon's CPU before", "cores", effect.without.daemon_cpu),
            Figure::new("daemon's CPU during", "cores", effect.with.daemon_cpu),
            Figure::new("generator's CPU", "cores", effect.with.generator_cpu),
            Figure::new("daemon's memory before", "MB", effect.memory_mb[0]),
            Figure::new("daemon's memory after", "MB", effect.memory_mb[1]),
        ],
        timelines: vec![Timeline {
            name: "arrived",
            unit: "Mb/s",
            step_ms: INTERVAL_MS,
            values: timelines.total_mbps(),
            marks: vec![
                (effect.without.to_ms, "flood begins".into()),
                (effect.with.to_ms, "flood ends".into()),
            ],
        }],
        notes: notes.chain(ended).collect(),
        ..Measured::default()
    })
}

fn both_phases(
    stage: &Stage<'_>,
    overlay: &mut Overlay<'_>,
    what: &str,
    phase: Duration,
    start: Instant,
) -> Result<Effect> {
    let opening_before = opening_ms(overlay)?;
    let daemon = overlay.pid(VICTIM).context("no daemon")?;
    thread::sleep(SETTLE);
    let without = watch(daemon, None, phase, start)?;
    let (memory_before, drops_before) = (memory_mb(daemon)?, drops(overlay)?);

    let key = overlay.public_key(VICTIM).context("no key")?;
    let mut command = Command::new(&overlay.options().program);
    let (kind, port) = if what == ELSEWHERE { ("noise", DISCARD_PORT) } else { (what, PORT) };
    command.args(["lab", "flood", kind, "--public-key", key, "--from", SOURCES_FROM]);
    command.args(["--to", &format!("{}:{port}", victim_address(stage)?)]);
    command.arg("--packet").arg(stage.directory.join("opening"));
    command.args(["--rate", &RATE.to_string()]);
    let time_ms = (SETTLE + phase + OPENING_PHASE).as_millis();
    command.args(["--time", &format!("{time_ms}ms")]);
    let flood = programs::start(stage, STRANGER, "flood", &mut command)?;
    thread::sleep(SETTLE);
    let generator = flood.pid().context("no generator")?;
    let with = watch(daemon, Some(generator), phase, start)?;
    let opening_during = opening_ms(overlay)?;
    let status = flood.wait(SETTLE + OPENING_PHASE + GRACE).context("flood")?;
    if !status.success() {
        bail!("flood: {status}: {}", programs::complaint(stage, STRANGER, "flood"));
    }
    let report: Value = serde_json::from_str(&programs::printed(stage, STRANGER, "flood")?)?;
    let number = |name: &str| report[name].as_f64().context("the generator's report");
    let (sent, seconds) = (number("sent")?, number("seconds")?);
    thread::sleep(SETTLE);
    let mut drops = drops(overlay)?;
    for (why, count) in drops_before {
        *drops.entry(why).or_default() -= count;
    }
    drops.retain(|_, count| *count > 0.0);
    let memory_mb = [memory_before, memory_mb(daemon)?];
    let opening_ms = [opening_before, opening_during];
    let sent_pps = sent / seconds.max(1e-9);
    Ok(Effect { without, with, memory_mb, opening_ms, drops, sent, sent_pps })
}

/// Waits for the length of a phase, and returns the CPU use in it.
fn watch(daemon: u32, generator: Option<u32>, phase: Duration, start: Instant) -> Result<Phase> {
    let now_ms = || u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
    let cpu_s = || -> Result<[f64; 2]> {
        let generator = generator.map_or(Ok(0.0), cpu::of_process)?;
        Ok([cpu::of_process(daemon)?, generator])
    };
    let (from_ms, before) = (now_ms(), cpu_s()?);
    // The phase ends a little earlier, so that the generator still runs when its CPU time is read.
    thread::sleep(phase.saturating_sub(Duration::from_millis(100)));
    let (to_ms, after) = (now_ms(), cpu_s()?);
    let seconds = (to_ms - from_ms).max(1) as f64 / 1e3;
    let [daemon_cpu, generator_cpu] = [0, 1].map(|at| (after[at] - before[at]) / seconds);
    Ok(Phase { from_ms, to_ms, daemon_cpu, generator_cpu })
}

fn victim_address(stage: &Stage<'_>) -> Result<IpAddr> {
    stage.fabric.host_address(VICTIM, Family::V4)
}

/// Restarts the newcomer's daemon. Returns the milliseconds until it has a session with the victim.
fn opening_ms(overlay: &mut Overlay<'_>) -> Result<f64> {
    overlay.kill(NEWCOMER)?;
    overlay.start(NEWCOMER)?;
    let begun = Instant::now();
    while begun.elapsed() < OPENING_MAX {
        // The daemon does not answer status requests before it has started to open the session.
        let status = overlay.status(NEWCOMER).unwrap_or_default();
        let peers = status["peers"].as_array().into_iter().flatten();
        let is_up = |peer: &Value| peer["name"] == VICTIM.to_string() && peer["state"] == "up";
        if peers.into_iter().any(is_up) {
            return Ok(begun.elapsed().as_secs_f64() * 1e3);
        }
        thread::sleep(LOOK);
    }
    bail!("no session with {VICTIM} after {} s", OPENING_MAX.as_secs())
}

/// Returns the victim's numbers of dropped packets for each of [`REASONS`].
fn drops(overlay: &Overlay<'_>) -> Result<BTreeMap<String, f64>> {
    let status = overlay.status(VICTIM)?;
    let all = status["drops"].as_object().context("`srd status` shows no drops")?;
    let ours = all.iter().filter(|(why, _)| REASONS.contains(&why.as_str()));
    Ok(ours.filter_map(|(why, count)| Some((why.clone(), count.as_f64()?))).collect())
}

/// Returns the resident memory of a process in MB.
fn memory_mb(pid: u32) -> Result<f64> {
    Ok(Status::of(pid)?.number("VmRSS:")? as f64 / 1024.0)
}

/// Restarts the sender's daemon. Returns the opening of its present session, as it arrived at the
/// victim.
fn record_opening(stage: &mut Stage<'_>) -> Result<Vec<u8>> {
    let socket = stage.fabric.within(VICTIM, || {
        rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::UDP))
    })?;
    let socket = socket.context("a raw socket")?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    let overlay = stage.overlay.as_mut().context("no daemons")?;
    overlay.kill(FROM)?;
    // Packets that arrived earlier belong to the previous session.
    while receive(&socket)?.is_some() {}
    overlay.start(FROM)?;
    overlay.wait_until_up()?;
    let deadline = Instant::now() + OPENING_MAX;
    let mut opening = None;
    while Instant::now() < deadline {
        match receive(&socket)? {
            Some(packet) => opening = opening_in(&packet).or(opening),
            None if opening.is_some() => break,
            None => thread::sleep(Duration::from_millis(10)),
        }
    }
    opening.context("the peer opened no session after its restart")
}

fn receive(socket: &OwnedFd) -> Result<Option<Vec<u8>>> {
    let mut buffer = vec![0u8; 1 << 16];
    match rustix::net::recv(socket, &mut buffer[..], RecvFlags::empty()) {
        Ok((_, bytes)) => {
            buffer.truncate(bytes);
            Ok(Some(buffer))
        }
        Err(rustix::io::Errno::AGAIN) => Ok(None),
        Err(error) => Err(error).context("a raw socket"),
    }
}

/// Returns the payload of an IPv4 UDP packet if it contains an opening for a daemon; otherwise
/// `None`.
fn opening_in(packet: &[u8]) -> Option<Vec<u8>> {
    let header_bytes = usize::from(packet.first()? & 0xf) * 4;
    let port = packet.get(header_bytes + 2..header_bytes + 4)?;
    let payload = packet.get(header_bytes + UDP_HEADER_BYTES..)?;
    let is_ours = port == PORT.to_be_bytes() && payload.first() == Some(&HELLO);
    is_ours.then(|| payload.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opening_is_known_by_port_and_first_byte() {
        let packet = |port: u16, first: u8| {
            let mut packet = vec![0; 20 + UDP_HEADER_BYTES];
            packet[0] = 0x45;
            packet[22..24].copy_from_slice(&port.to_be_bytes());
            packet.extend([first, 2, 3]);
            packet
        };
        assert_eq!(opening_in(&packet(PORT, HELLO)), Some(vec![HELLO, 2, 3]));
        assert_eq!(opening_in(&packet(PORT, 0x11)), None);
        assert_eq!(opening_in(&packet(53, HELLO)), None);
        assert_eq!(opening_in(&[0x45, 0]), None);
    }
}
