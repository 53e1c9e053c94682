//! One long flow, measured at its receiver in short intervals.

use super::Congestion;
use super::connection::{self, Connection, Connections, Flows};
use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};
use srd_lab::config::check;
use srd_lab::fabric::Fabric;
use srd_lab::id::{HostId, Network};
use srd_lab::priority::{CpuMeter, CpuUse};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Largest number of intervals of one measurement.
pub const INTERVALS_MAX: u64 = 1_000_000;
/// Number of bytes in one call that sends or receives.
const CHUNK_BYTES: usize = 256 << 10;
/// Longest time of one wait, so that a worker notices the end of the measurement.
const NAP: Duration = Duration::from_millis(20);

/// Parameters of a measurement of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Flow {
    /// Host that sends.
    pub from: HostId,
    /// Host that receives.
    pub to: HostId,
    /// Duration of the flow, in seconds.
    pub seconds: u64,
    /// Congestion control of the kernel for the flow.
    pub congestion: Congestion,
    /// Number of extra MPTCP subflows of the connection; zero for plain TCP.
    pub mptcp_subflows: u16,
    /// Network of the fabric whose addresses the flow uses.
    pub network: Network,
    /// Length of a measured interval, in milliseconds.
    pub interval_ms: u64,
}

impl Default for Flow {
    fn default() -> Self {
        Flow {
            from: HostId { leaf: 0, host: 0 },
            to: HostId { leaf: 1, host: 0 },
            seconds: 5,
            congestion: Congestion::Cubic,
            mptcp_subflows: 0,
            network: Network::V4,
            interval_ms: 5,
        }
    }
}

/// Start of an interval, in ms since the start of the flow, and number of bytes delivered to the
/// application in the interval.
pub type Interval = (u64, u64);

/// Results of a measurement of one flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Parameters with which the flow was measured.
    pub flow: Flow,
    /// All intervals in order, including the intervals without a byte.
    pub intervals: Vec<Interval>,
    /// Goodput over all intervals, in Mb/s.
    pub mbps: f64,
    /// CPU time of the machine during the measurement.
    pub cpu: CpuUse,
}

/// Runs one flow as fast as possible, and returns its delivered bytes per interval.
pub fn single_flow(fabric: &Fabric, flow: &Flow) -> Result<Throughput> {
    single_flow_with(fabric, flow, |_| Ok(())).map(|(throughput, ())| throughput)
}

/// Runs one flow, and `meanwhile` on the calling thread; `meanwhile` gets the start time of the
/// flow. Returns when the flow and `meanwhile` have ended.
pub(super) fn single_flow_with<T>(
    fabric: &Fabric,
    flow: &Flow,
    meanwhile: impl FnOnce(Instant) -> Result<T>,
) -> Result<(Throughput, T)> {
    check("seconds", flow.seconds, 1..=3600)?;
    check("interval_ms", flow.interval_ms, 1..=1000)?;
    check("seconds / interval_ms", flow.seconds * 1000 / flow.interval_ms, 1..=INTERVALS_MAX)?;
    let flows = Flows {
        pairs: vec![(flow.from, flow.to)],
        flows_per_pair: 1,
        network: flow.network,
        congestion: flow.congestion,
        mptcp_subflows: flow.mptcp_subflows,
        first_port: None,
    };
    let _subflows = flows.prepare(fabric)?;
    let connections = Connections::establish(fabric, &flows)?;
    let connection = &connections.all[0];
    let cpu = CpuMeter::start()?;
    let (buckets, done) = run(connection, flow, meanwhile)?;
    let mbps = mbps(&buckets, flow.interval_ms);
    let intervals = (0u64..).zip(&buckets).map(|(i, bytes)| (i * flow.interval_ms, *bytes));
    let throughput =
        Throughput { flow: *flow, intervals: intervals.collect(), mbps, cpu: cpu.stop()? };
    Ok((throughput, done))
}

/// Returns the goodput in Mb/s over intervals of a length, with the bytes of each.
fn mbps(intervals: &[u64], interval_ms: u64) -> f64 {
    let ms = (intervals.len() as u64 * interval_ms).max(1);
    intervals.iter().sum::<u64>() as f64 * 8.0 / 1e3 / ms as f64
}

fn run<T>(
    connection: &Connection,
    flow: &Flow,
    meanwhile: impl FnOnce(Instant) -> Result<T>,
) -> Result<(Vec<u64>, T)> {
    let over = AtomicBool::new(false);
    let start = Instant::now();
    thread::scope(|scope| {
        let sender = scope.spawn(|| send_until(&connection.sender, &over));
        let receiver = scope.spawn(|| {
            let buckets = receive_into_buckets(&connection.receiver, flow, start);
            over.store(true, Ordering::Release);
            buckets
        });
        let done = meanwhile(start);
        let joined = [sender.join(), receiver.join().map(|r| r.map(Some))]
            .map(|r| r.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let [sent, received] = joined;
        sent.context("sender")?;
        let buckets = received.context("receiver")?.unwrap_or_default();
        Ok((buckets, done?))
    })
}

fn send_until(socket: &OwnedFd, over: &AtomicBool) -> Result<Option<Vec<u64>>> {
    let chunk = vec![0u8; CHUNK_BYTES];
    while !over.load(Ordering::Acquire) {
        if connection::send(socket, &chunk)?.is_none() {
            nap(socket, PollFlags::OUT, NAP)?;
        }
    }
    Ok(None)
}

fn receive_into_buckets(socket: &OwnedFd, flow: &Flow, start: Instant) -> Result<Vec<u64>> {
    let interval = Duration::from_millis(flow.interval_ms);
    let count = usize::try_from(flow.seconds * 1000 / flow.interval_ms).context("intervals")?;
    let end = start + Duration::from_secs(flow.seconds);
    let mut buckets = vec![0u64; count];
    let mut buffer = vec![0u8; CHUNK_BYTES];
    loop {
        let received = connection::receive(socket, &mut buffer)?;
        let now = Instant::now();
        if now >= end {
            return Ok(buckets);
        }
        match received {
            Some(bytes) => {
                let index = (now - start).as_nanos() / interval.as_nanos();
                // The flow may end in the middle of an interval; the incomplete interval is left
                // out.
                if let Some(bucket) = buckets.get_mut(usize::try_from(index)?) {
                    *bucket += bytes as u64;
                }
            }
            None => nap(socket, PollFlags::IN, (end - now).min(NAP))?,
        }
    }
}

fn nap(socket: &OwnedFd, flags: PollFlags, at_most: Duration) -> Result<()> {
    let limit = Timespec::try_from(at_most).context("a short nap")?;
    match rustix::event::poll(&mut [PollFd::new(socket, flags)], Some(&limit)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("poll"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In an earlier version, the bytes of whole intervals were divided by the time of the flow,
    /// which may end within an interval.
    #[test]
    fn regression_goodput_is_that_of_the_whole_intervals() {
        // Three intervals of 300 ms, of a flow of one second at 8 Mb/s.
        assert_eq!(mbps(&[300_000; 3], 300), 8.0);
        assert_eq!(mbps(&[], 300), 0.0);
    }
}
