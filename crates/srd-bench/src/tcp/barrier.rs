//! Rounds of flows that start at the same moment.
//!
//! Connections are established beforehand and reused. In every round all flows start to send at the
//! same moment. The receiving application answers with one byte after it has received *all* bytes
//! of a flow; the flow is complete when its sender has read that byte. The completion time is
//! therefore one that the sending application can measure, and it has the same meaning for a
//! transport without streams.

use super::connection::{self, Connection, Connections, Flows};
use super::poll::{CHUNK_BYTES, Poll};
use anyhow::{Context, Result};
use rustix::event::epoll::EventFlags;
use serde::{Deserialize, Serialize};
use srd_lab::config::check;
use srd_lab::fabric::Fabric;
use srd_lab::priority::{CpuMeter, CpuUse};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Parameters of a measurement in rounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// Hosts, number and addresses of the connections.
    pub flows: Flows,
    /// Number of bytes that each flow sends in each round.
    pub bytes: u64,
    /// Number of rounds.
    pub rounds: usize,
    /// Pause between two rounds, in milliseconds.
    pub gap_ms: u64,
    /// Longest duration of a round, in seconds; the round then ends even if flows are unfinished.
    pub round_limit_s: u64,
}

/// Results of all rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct BarrierResult {
    /// Completion times of the flows in each round.
    pub rounds: Vec<Round>,
    /// Number of packets that all ports of the fabric dropped during the measurement.
    pub dropped_packets: u64,
    /// CPU time of the machine during the measurement.
    pub cpu: CpuUse,
}

/// Results of one round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// Completion time of each flow in microseconds, in the order of the connections; `None` if the
    /// flow was unfinished when the round ended.
    pub fct_us: Vec<Option<u64>>,
}

impl Round {
    /// Returns the completion time of the slowest flow in microseconds; `None` if a flow is
    /// unfinished.
    #[must_use]
    pub fn worst_us(&self) -> Option<u64> {
        self.fct_us.iter().copied().try_fold(0, |worst, fct| Some(worst.max(fct?)))
    }
}

impl Barrier {
    /// Establishes the connections and runs all rounds.
    pub fn run(&self, fabric: &Fabric) -> Result<BarrierResult> {
        check("bytes", self.bytes, 1..=1 << 32)?;
        check("rounds", self.rounds as u64, 1..=100_000)?;
        check("round_limit_s", self.round_limit_s, 1..=3600)?;
        let _subflows = self.flows.prepare(fabric)?;
        let dropped_before = fabric.dropped_packets()?;
        let cpu = CpuMeter::start()?;
        let mut rounds = Vec::new();
        let mut connections = Connections::establish(fabric, &self.flows)?;
        for number in 0..self.rounds {
            let round = run_round(&connections.all, self)?;
            let unfinished = round.worst_us().is_none();
            rounds.push(round);
            if number + 1 == self.rounds {
                break;
            }
            if unfinished {
                // Data still in flight would count in the next round, so the connections are
                // replaced.
                drop(connections);
                connections = Connections::establish(fabric, &self.flows)?;
            }
            thread::sleep(Duration::from_millis(self.gap_ms));
        }
        let dropped_packets = fabric.dropped_packets()?.saturating_sub(dropped_before);
        Ok(BarrierResult { rounds, dropped_packets, cpu: cpu.stop()? })
    }
}

fn run_round(connections: &[Connection], barrier: &Barrier) -> Result<Round> {
    let over = AtomicBool::new(false);
    let bytes = barrier.bytes;
    thread::scope(|scope| {
        let receiver = scope.spawn(|| receive_all(connections, bytes, &over));
        let sent = send_all(connections, bytes, Duration::from_secs(barrier.round_limit_s));
        over.store(true, Ordering::Release);
        let received = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        received.context("receiver")?;
        Ok(Round { fct_us: sent.context("sender")? })
    })
}

/// Sends `bytes` on every connection, beginning at the same moment. Returns the completion time of
/// each flow in microseconds; `None` for a flow that is unfinished after `limit`.
fn send_all(connections: &[Connection], bytes: u64, limit: Duration) -> Result<Vec<Option<u64>>> {
    let both = EventFlags::IN | EventFlags::OUT;
    let mut poll = Poll::watch(connections.iter().map(|c| &c.sender), both)?;
    let chunk = vec![0u8; CHUNK_BYTES];
    let mut left = vec![bytes; connections.len()];
    let mut fct_us = vec![None; connections.len()];
    let mut pending = connections.len();
    let start = Instant::now();
    for (connection, left) in connections.iter().zip(&mut left) {
        connection::push(&connection.sender, &chunk, left)?;
    }
    while pending > 0 && start.elapsed() < limit {
        for flow in poll.wait()? {
            connection::push(&connections[flow].sender, &chunk, &mut left[flow])?;
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

/// Answers with one byte on every connection that has delivered `bytes`. Returns when all
/// connections have delivered them, or when `over` is set.
fn receive_all(connections: &[Connection], bytes: u64, over: &AtomicBool) -> Result<()> {
    let mut poll = Poll::watch(connections.iter().map(|c| &c.receiver), EventFlags::IN)?;
    let mut buffer = vec![0u8; CHUNK_BYTES];
    let mut left = vec![bytes; connections.len()];
    let mut pending = connections.len();
    while pending > 0 && !over.load(Ordering::Acquire) {
        for flow in poll.wait()? {
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
