//! Many long flows at the same time, each measured at its receiver in short intervals.
//!
//! The flows run while the caller does something else, for example fails a spine or serves
//! requests. A connection that ends during the run is part of the result, not an error.

use super::connection::{self, Connection, Connections, Flows};
use super::failover::silence_ms;
use super::poll::{CHUNK_BYTES, Poll};
use super::single::INTERVALS_MAX;
use anyhow::{Context, Result};
use rustix::event::epoll::EventFlags;
use serde::Serialize;
use srd_lab::config::check;
use srd_lab::fabric::Fabric;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

/// Parameters of a measurement of long flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongFlows {
    /// Hosts, number and addresses of the connections.
    pub flows: Flows,
    /// Length of a measured interval, in milliseconds.
    pub interval_ms: u64,
}

/// Bytes that each flow delivered in each interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Timelines {
    /// Length of an interval, in milliseconds.
    pub interval_ms: u64,
    /// For each flow, the bytes delivered to the application in each interval. All flows have the
    /// same number of intervals; the last, incomplete interval is left out.
    pub flows: Vec<Vec<u64>>,
    /// For each flow, the reason why its connection ended early; `None` if it lasted to the end.
    pub ended: Vec<Option<String>>,
}

impl LongFlows {
    /// Runs the flows while `meanwhile` works on the calling thread; `meanwhile` gets the start
    /// time of the flows. The flows end when `meanwhile` returns.
    pub fn run<T>(
        &self,
        fabric: &Fabric,
        meanwhile: impl FnOnce(Instant) -> Result<T>,
    ) -> Result<(Timelines, T)> {
        check("interval_ms", self.interval_ms, 1..=10_000)?;
        let _subflows = self.flows.prepare(fabric)?;
        let connections = Connections::establish(fabric, &self.flows)?;
        let over = AtomicBool::new(false);
        let start = Instant::now();
        thread::scope(|scope| {
            let sender = scope.spawn(|| send_all(&connections.all, &over));
            let receiver = scope.spawn(|| self.receive_all(&connections.all, start, &over));
            // The value stops the threads even if `meanwhile` panics; otherwise the scope would
            // wait for them for ever.
            let stop = StopOnDrop(&over);
            let done = meanwhile(start);
            drop(stop);
            let joined = sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            joined.context("sender")?;
            let received = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok((received.context("receiver")?, done?))
        })
    }

    fn receive_all(
        &self,
        connections: &[Connection],
        start: Instant,
        over: &AtomicBool,
    ) -> Result<Timelines> {
        let mut poll = Poll::watch(connections.iter().map(|c| &c.receiver), EventFlags::IN)?;
        let mut buffer = vec![0u8; CHUNK_BYTES];
        let mut flows = vec![Vec::new(); connections.len()];
        let mut ended = vec![None; connections.len()];
        let interval = |at: Instant| -> Result<usize> {
            let ms = (at - start).as_millis() / u128::from(self.interval_ms);
            check("intervals", u64::try_from(ms)?, 0..=INTERVALS_MAX)?;
            Ok(usize::try_from(ms)?)
        };
        while !over.load(Ordering::Acquire) {
            for flow in poll.wait()? {
                while ended[flow].is_none() {
                    match connection::receive(&connections[flow].receiver, &mut buffer) {
                        Ok(Some(bytes)) => {
                            add(&mut flows[flow], interval(Instant::now())?, bytes as u64);
                        }
                        Ok(None) => break,
                        Err(error) => ended[flow] = Some(format!("{error:#}")),
                    }
                }
            }
        }
        let whole = interval(Instant::now())?;
        flows.iter_mut().for_each(|flow| flow.resize(whole, 0));
        Ok(Timelines { interval_ms: self.interval_ms, flows, ended })
    }
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn add(flow: &mut Vec<u64>, interval: usize, bytes: u64) {
    if flow.len() <= interval {
        flow.resize(interval + 1, 0);
    }
    flow[interval] += bytes;
}

/// Sends on every connection as fast as the socket accepts bytes, until `over` is set. A connection
/// that ended is ignored; its receiver reports the end.
fn send_all(connections: &[Connection], over: &AtomicBool) -> Result<()> {
    let mut poll = Poll::watch(connections.iter().map(|c| &c.sender), EventFlags::OUT)?;
    let chunk = vec![0u8; CHUNK_BYTES];
    while !over.load(Ordering::Acquire) {
        for flow in poll.wait()? {
            while let Ok(Some(_)) = connection::send(&connections[flow].sender, &chunk) {
                if over.load(Ordering::Acquire) {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

impl Timelines {
    /// Returns the number of bytes of all flows in the intervals that begin from `from_ms` until
    /// before `to_ms`.
    #[must_use]
    pub fn bytes_between(&self, from_ms: u64, to_ms: u64) -> u64 {
        self.flows.iter().map(|flow| self.flow_bytes(flow, from_ms, to_ms)).sum()
    }

    /// Returns the goodput in Mb/s of all flows in the intervals that begin from `from_ms` until
    /// before `to_ms`.
    #[must_use]
    pub fn mbps_between(&self, from_ms: u64, to_ms: u64) -> f64 {
        let intervals = self.range(from_ms, to_ms).len() as u64;
        let ms = (intervals * self.interval_ms).max(1);
        self.bytes_between(from_ms, to_ms) as f64 * 8.0 / 1e3 / ms as f64
    }

    /// Returns the rate of all flows together in each interval, in Mb/s.
    #[must_use]
    pub fn total_mbps(&self) -> Vec<f64> {
        let intervals = self.flows.first().map_or(0, Vec::len);
        let bytes = |at: usize| self.flows.iter().map(|flow| flow[at]).sum::<u64>();
        let per_ms = self.interval_ms.max(1) as f64;
        (0..intervals).map(|at| bytes(at) as f64 * 8.0 / 1e3 / per_ms).collect()
    }

    /// Returns for each flow the longest time in ms without a delivered byte that ends after
    /// `since_ms`.
    #[must_use]
    pub fn silences_ms(&self, since_ms: u64) -> Vec<u64> {
        let longest = |flow: &Vec<u64>| {
            let line: Vec<_> =
                (0u64..).zip(flow).map(|(at, bytes)| (at * self.interval_ms, *bytes)).collect();
            silence_ms(&line, self.interval_ms, since_ms)
        };
        self.flows.iter().map(longest).collect()
    }

    fn flow_bytes(&self, flow: &[u64], from_ms: u64, to_ms: u64) -> u64 {
        flow[self.range(from_ms, to_ms)].iter().sum()
    }

    fn range(&self, from_ms: u64, to_ms: u64) -> std::ops::Range<usize> {
        let all = self.flows.first().map_or(0, Vec::len);
        let at = |ms: u64| usize::try_from(ms.div_ceil(self.interval_ms)).unwrap_or(all).min(all);
        at(from_ms)..at(to_ms).max(at(from_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Timelines {
        Timelines {
            interval_ms: 5,
            flows: vec![vec![100, 0, 0, 100], vec![100, 100, 100, 0]],
            ended: vec![None, None],
        }
    }

    #[test]
    fn rates_count_whole_intervals_of_all_flows() {
        assert_eq!(two().bytes_between(0, 20), 500);
        assert_eq!(two().bytes_between(5, 15), 200);
        assert_eq!(two().bytes_between(15, 1000), 100);
        assert!((two().mbps_between(5, 15) - 0.16).abs() < 1e-9);
        assert_eq!(two().total_mbps(), [0.32, 0.16, 0.16, 0.16]);
    }

    #[test]
    fn each_flow_has_its_own_silence() {
        assert_eq!(two().silences_ms(0), [10, 5]);
        assert_eq!(two().silences_ms(10), [5, 5]);
    }
}
