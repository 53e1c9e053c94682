//! Barrier-synchronised incast: many flows start at once towards one host.
//!
//! Connections are established beforehand and reused. In every round all flows start to send at
//! one moment; the receiving application answers one byte when it has *all* bytes of a flow, and
//! a flow is complete when its sender has read that byte. So the completion time is what the
//! sending application can know, and it is the same for a transport that has no streams.

use super::connection::{self, Connection, Connections, Wanted};
use super::{Congestion, Subflows};
use crate::config::check;
use crate::fabric::Fabric;
use crate::id::{Family, HostId};
use crate::priority::{CpuMeter, CpuUse};
use anyhow::{Context, Result};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Most flows of one incast.
pub const FLOWS_MAX: u64 = 1024;
/// Bytes given to the kernel at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// Events taken from the kernel at a time.
const EVENTS_MAX: usize = 256;
/// Longest sleep of a worker, so that it notices the end of a round.
const NAP: Duration = Duration::from_millis(20);

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Incast {
    /// The hosts that send.
    pub senders: Vec<HostId>,
    /// Flows of each of them.
    pub flows_per_sender: usize,
    /// The host that receives.
    pub receiver: HostId,
    /// Bytes of each flow in each round.
    pub bytes: u64,
    /// How often.
    pub rounds: usize,
    /// The kernel's congestion control.
    pub congestion: Congestion,
    /// Extra MPTCP subflows per connection; zero for plain TCP.
    pub mptcp_subflows: u16,
    /// Which protocol below.
    pub family: Family,
    /// Pause between rounds.
    pub gap_ms: u64,
    /// A round ends after this long even if flows are unfinished.
    pub round_limit_s: u64,
}

impl Default for Incast {
    /// Four hosts of the first leaf with twelve flows each, towards the first host of the second.
    fn default() -> Self {
        Incast {
            senders: (0..4).map(|host| HostId { leaf: 0, host }).collect(),
            flows_per_sender: 12,
            receiver: HostId { leaf: 1, host: 0 },
            bytes: 512 << 10,
            rounds: 20,
            congestion: Congestion::Cubic,
            mptcp_subflows: 0,
            family: Family::V4,
            gap_ms: 50,
            round_limit_s: 60,
        }
    }
}

/// One round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// Completion time of each flow, sender by sender; `None` if it was unfinished at the limit.
    pub fct_us: Vec<Option<u64>>,
}

/// All rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IncastResult {
    /// What was measured.
    pub incast: Incast,
    /// Time the receiver's link needs for the payload of all flows at its full rate.
    pub ideal_us: u64,
    /// Round by round.
    pub rounds: Vec<Round>,
    /// Packets the fabric dropped meanwhile.
    pub dropped_packets: u64,
    /// CPU the machine spent meanwhile.
    pub cpu: CpuUse,
}

/// The usual figures of an incast; times over all flows of all rounds unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IncastSummary {
    /// Median of completed flows.
    pub p50_us: u64,
    /// 99th percentile of completed flows.
    pub p99_us: u64,
    /// The slowest completed flow.
    pub max_us: u64,
    /// Median over the rounds of each round's slowest flow; an unfinished one counts as the limit.
    pub round_worst_p50_us: u64,
    /// `round_worst_p50_us` over the ideal.
    pub round_worst_p50_ratio: f64,
    /// `p99_us` over the ideal.
    pub p99_ratio: f64,
    /// Flows that hit the limit.
    pub unfinished: usize,
}

impl Round {
    /// The slowest flow; `None` if one is unfinished.
    #[must_use]
    pub fn worst_us(&self) -> Option<u64> {
        self.fct_us.iter().copied().try_fold(0, |worst, fct| Some(worst.max(fct?)))
    }
}

impl IncastResult {
    /// The usual figures.
    #[must_use]
    pub fn summary(&self) -> IncastSummary {
        let flows = || self.rounds.iter().flat_map(|round| &round.fct_us);
        let mut fct: Vec<u64> = flows().flatten().copied().collect();
        let limit = self.incast.round_limit_s * 1_000_000;
        let mut worst: Vec<u64> =
            self.rounds.iter().map(|round| round.worst_us().unwrap_or(limit)).collect();
        fct.sort_unstable();
        worst.sort_unstable();
        let ratio = |us: u64| us as f64 / self.ideal_us.max(1) as f64;
        let (p99_us, round_worst_p50_us) = (percentile(&fct, 99), percentile(&worst, 50));
        IncastSummary {
            p50_us: percentile(&fct, 50),
            p99_us,
            max_us: percentile(&fct, 100),
            round_worst_p50_us,
            round_worst_p50_ratio: ratio(round_worst_p50_us),
            p99_ratio: ratio(p99_us),
            unfinished: flows().filter(|fct| fct.is_none()).count(),
        }
    }
}

/// Nearest rank; zero of nothing.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

/// Runs an incast. Takes about `rounds * (ideal + gap)`, more if the transport does badly.
pub fn barrier_incast(fabric: &Fabric, incast: &Incast) -> Result<IncastResult> {
    let flows = incast.senders.len() * incast.flows_per_sender;
    check("senders * flows_per_sender", flows as u64, 1..=FLOWS_MAX)?;
    check("bytes", incast.bytes, 1..=1 << 32)?;
    check("rounds", incast.rounds as u64, 1..=100_000)?;
    check("round_limit_s", incast.round_limit_s, 1..=3600)?;
    let wanted = Wanted {
        senders: &incast.senders,
        flows_per_sender: incast.flows_per_sender,
        receiver: incast.receiver,
        family: incast.family,
        congestion: incast.congestion,
        mptcp: incast.mptcp_subflows > 0,
    };
    let _subflows = Subflows::set(fabric, incast.mptcp_subflows, incast.family)?;
    let dropped_before = fabric.dropped_packets()?;
    let cpu = CpuMeter::start()?;
    let mut rounds = Vec::new();
    let mut connections = Connections::establish(fabric, &wanted)?;
    for number in 0..incast.rounds {
        let round = run_round(&connections.all, incast)?;
        let unfinished = round.worst_us().is_none();
        rounds.push(round);
        if number + 1 == incast.rounds {
            break;
        }
        if unfinished {
            // What is still on its way belongs to the old round.
            drop(connections);
            connections = Connections::establish(fabric, &wanted)?;
        }
        thread::sleep(Duration::from_millis(incast.gap_ms));
    }
    Ok(IncastResult {
        incast: incast.clone(),
        ideal_us: ideal_us(fabric, incast),
        rounds,
        dropped_packets: fabric.dropped_packets()?.saturating_sub(dropped_before),
        cpu: cpu.stop()?,
    })
}

/// The receiver's link is the bottleneck of a sensible incast.
fn ideal_us(fabric: &Fabric, incast: &Incast) -> u64 {
    let goodput_mbps = fabric.config().goodput_mbps(fabric.config().host_rate_mbps);
    let flows = incast.senders.len() * incast.flows_per_sender;
    let bits = incast.bytes as f64 * flows as f64 * 8.0;
    #[allow(clippy::cast_possible_truncation)] // bounded by the checks of `barrier_incast`
    let us = (bits / goodput_mbps).round() as u64;
    us
}

fn run_round(connections: &[Connection], incast: &Incast) -> Result<Round> {
    let over = AtomicBool::new(false);
    let bytes = incast.bytes;
    thread::scope(|scope| {
        let receiver = scope.spawn(|| receive_all(connections, bytes, &over));
        let sent = send_all(connections, bytes, Duration::from_secs(incast.round_limit_s));
        over.store(true, Ordering::Release);
        let received = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        received.context("receiver")?;
        Ok(Round { fct_us: sent.context("sender")? })
    })
}

/// Sends `bytes` on every connection, from one moment on; returns each completion time.
fn send_all(connections: &[Connection], bytes: u64, limit: Duration) -> Result<Vec<Option<u64>>> {
    let poll = watch(connections.iter().map(|c| &c.sender), EventFlags::IN | EventFlags::OUT)?;
    let chunk = vec![0u8; CHUNK_BYTES];
    let mut left = vec![bytes; connections.len()];
    let mut fct_us = vec![None; connections.len()];
    let mut pending = connections.len();
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let start = Instant::now();
    for (connection, left) in connections.iter().zip(&mut left) {
        push(&connection.sender, &chunk, left)?;
    }
    while pending > 0 && start.elapsed() < limit {
        wait(&poll, &mut events)?;
        for event in &events {
            let flow = index(*event);
            push(&connections[flow].sender, &chunk, &mut left[flow])?;
            let mut answer = [0];
            if fct_us[flow].is_none()
                && connection::receive(&connections[flow].sender, &mut answer)?.is_some()
            {
                let elapsed = start.elapsed().as_micros();
                fct_us[flow] = Some(u64::try_from(elapsed).unwrap_or(u64::MAX));
                pending -= 1;
            }
        }
    }
    Ok(fct_us)
}

/// Until the socket is full (then it will say when it is not) or all is sent.
fn push(socket: &OwnedFd, chunk: &[u8], left: &mut u64) -> Result<()> {
    while *left > 0 {
        let size = usize::try_from(*left).unwrap_or(usize::MAX).min(chunk.len());
        let Some(sent) = connection::send(socket, &chunk[..size])? else { break };
        *left -= sent as u64;
    }
    Ok(())
}

/// Answers one byte on every connection that has delivered `bytes`; until all have, or `over`.
fn receive_all(connections: &[Connection], bytes: u64, over: &AtomicBool) -> Result<()> {
    let poll = watch(connections.iter().map(|c| &c.receiver), EventFlags::IN)?;
    let mut buffer = vec![0u8; CHUNK_BYTES];
    let mut left = vec![bytes; connections.len()];
    let mut pending = connections.len();
    let mut events = Vec::with_capacity(EVENTS_MAX);
    while pending > 0 && !over.load(Ordering::Acquire) {
        wait(&poll, &mut events)?;
        for event in &events {
            let flow = index(*event);
            let socket = &connections[flow].receiver;
            while let Some(count) = connection::receive(socket, &mut buffer)? {
                left[flow] -= count as u64;
                if left[flow] == 0 {
                    pending -= 1;
                    connection::send(socket, &[1])?.context("no room for one byte")?;
                    connection::stay_one_way(socket)?;
                }
            }
        }
    }
    Ok(())
}

/// Edge-triggered: an event per change, so a reader must read to the end.
fn watch<'a>(sockets: impl Iterator<Item = &'a OwnedFd>, flags: EventFlags) -> Result<OwnedFd> {
    let poll = epoll::create(CreateFlags::CLOEXEC).context("epoll")?;
    for (number, socket) in (0u64..).zip(sockets) {
        epoll::add(&poll, socket, EventData::new_u64(number), flags | EventFlags::ET)
            .context("epoll")?;
    }
    Ok(poll)
}

fn wait(poll: &OwnedFd, events: &mut Vec<Event>) -> Result<()> {
    let nap = Timespec::try_from(NAP).context("a short nap")?;
    events.clear();
    match epoll::wait(poll, rustix::buffer::spare_capacity(events), Some(&nap)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("epoll"),
    }
}

fn index(event: Event) -> usize {
    let data = event.data;
    usize::try_from(data.u64()).expect("an index of the connections")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(rounds: Vec<Round>) -> IncastResult {
        IncastResult {
            incast: Incast { round_limit_s: 1, ..Incast::default() },
            ideal_us: 100,
            rounds,
            dropped_packets: 0,
            cpu: CpuUse::default(),
        }
    }

    #[test]
    fn worst_flow_of_the_median_round_is_the_headline() {
        let round = |worst| Round { fct_us: vec![Some(50), Some(worst)] };
        let summary = result(vec![round(900), round(430), round(100)]).summary();
        assert_eq!(summary.round_worst_p50_us, 430);
        assert!((summary.round_worst_p50_ratio - 4.3).abs() < 1e-9);
        assert_eq!((summary.p50_us, summary.max_us, summary.unfinished), (50, 900, 0));
    }

    #[test]
    fn unfinished_flow_counts_as_the_limit_and_is_reported() {
        let round = Round { fct_us: vec![Some(50), None] };
        assert_eq!(round.worst_us(), None);
        let summary = result(vec![round]).summary();
        assert_eq!((summary.round_worst_p50_us, summary.unfinished), (1_000_000, 1));
    }

    #[test]
    fn percentile_is_the_nearest_rank() {
        let sorted: Vec<u64> = (1..=100).collect();
        assert_eq!(percentile(&sorted, 50), 50);
        assert_eq!(percentile(&sorted, 99), 99);
        assert_eq!(percentile(&sorted, 100), 100);
        assert_eq!(percentile(&[], 99), 0);
        assert_eq!(percentile(&[7], 1), 7);
    }
}
