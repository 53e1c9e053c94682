//! Recording over time: goodput of flows, length of queues, load of ports. If nothing is
//! configured, there is no cost.
//!
//! Bound: [`VALUES_MAX`] values. When this number is reached, pairs of samples are merged, and the
//! time between later samples is twice as long.

use serde::Serialize;

use super::{World, WorldError, agenda};
use crate::engine::event::Kind;
use crate::engine::node::Node;

/// Largest number of recorded values, including the overhead of each sample.
const VALUES_MAX: usize = 1 << 25;
/// Overhead of a sample in memory, in units of one value.
const SAMPLE_VALUES: usize = 16;

/// Selection of the values to record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sampling {
    /// Time between samples, in picoseconds.
    pub interval_ps: u64,
    /// Whether to record every flow's goodput.
    pub flows: bool,
    /// Names of ports whose queue is recorded.
    pub queues: Vec<String>,
    /// Names of ports whose load is recorded. The loads of a leaf's uplinks show how much each path
    /// is used.
    pub loads: Vec<String>,
}

/// Recorded values. Each inner list of a sample has one value for each flow or port.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Series {
    /// Time between samples in picoseconds: the configured time, or a multiple of it if there were
    /// too many samples.
    pub interval_ps: u64,
    /// Time of each sample, in picoseconds.
    pub at_ps: Vec<u64>,
    /// Bytes that each flow delivered since the previous sample.
    pub flow_bytes: Vec<Vec<u64>>,
    /// Names of the ports in `queue_bytes`.
    pub queues: Vec<String>,
    /// Largest number of bytes that waited at each port since the previous sample.
    pub queue_bytes: Vec<Vec<u64>>,
    /// Names of the ports in `load_bytes`.
    pub loads: Vec<String>,
    /// Bytes that each port sent since the previous sample.
    pub load_bytes: Vec<Vec<u64>>,
}

impl Series {
    /// Goodput of all flows together in each interval, in bits per second.
    pub fn goodput_bps(&self) -> Vec<f64> {
        let seconds = self.interval_ps as f64 / 1e12;
        let sum = |bytes: &Vec<u64>| bytes.iter().sum::<u64>() as f64 * 8.0 / seconds;
        self.flow_bytes.iter().map(sum).collect()
    }

    /// Merges pairs of samples. If their number is odd, the last sample stays unchanged.
    fn coarsen(&mut self) {
        self.interval_ps *= 2;
        let mut at = 0;
        let last = self.at_ps.len().saturating_sub(1);
        self.at_ps.retain(|_| {
            at += 1;
            at % 2 == 0 || at - 1 == last
        });
        merge(&mut self.flow_bytes, |one, other| one + other);
        merge(&mut self.queue_bytes, u64::max);
        merge(&mut self.load_bytes, |one, other| one + other);
    }
}

/// Returns the number of samples, each with the given number of values, at which pairs of them are
/// merged. It is even, so that every sample has a partner.
fn samples_max(values: usize) -> usize {
    ((VALUES_MAX / values) & !1).max(2)
}

fn merge(samples: &mut Vec<Vec<u64>>, both: impl Fn(u64, u64) -> u64) {
    let mut all = std::mem::take(samples).into_iter();
    while let Some(mut one) = all.next() {
        let other = all.next().unwrap_or_default();
        one.iter_mut().zip(other).for_each(|(value, more)| *value = both(*value, more));
        samples.push(one);
    }
    samples.shrink_to_fit();
}

/// The recorder of values in a world.
pub(super) struct Sampler {
    series: Series,
    flows: bool,
    flow_totals: Vec<u64>,
    queue_ports: Vec<u32>,
    /// Largest number of bytes that ever waited at each port of `queue_ports`, up to the last
    /// sample.
    queue_peaks: Vec<u64>,
    load_ports: Vec<u32>,
    load_totals: Vec<u64>,
    /// Largest number of samples. When it is reached, pairs of samples are merged.
    pub(super) samples_max: usize,
}

impl Sampler {
    pub(super) fn series(&self) -> &Series {
        &self.series
    }

    /// Returns the largest number of bytes that ever waited at a port, up to the last sample; 0 if
    /// the port's queue is not recorded.
    pub(super) fn queue_peak(&self, port: u32) -> u64 {
        let at = self.queue_ports.iter().position(|p| *p == port);
        at.map_or(0, |at| self.queue_peaks[at])
    }
}

impl<N: Node> World<N> {
    pub(super) fn schedule_samples(&mut self, wanted: Option<Sampling>) -> Result<(), WorldError> {
        let Some(wanted) = wanted else { return Ok(()) };
        if wanted.interval_ps == 0 {
            return Err(WorldError("the sampling interval must not be zero".to_owned()));
        }
        let select = |names: &[String]| -> Result<Vec<u32>, WorldError> {
            let mut ports = Vec::new();
            for name in names {
                ports.extend(self.topology.select(name).map_err(|e| WorldError(e.0))?);
            }
            Ok(ports)
        };
        let (queue_ports, load_ports) = (select(&wanted.queues)?, select(&wanted.loads)?);
        let name = |ports: &[u32]| ports.iter().map(|&p| self.topology.port_name(p)).collect();
        let series = Series {
            interval_ps: wanted.interval_ps,
            queues: name(&queue_ports),
            loads: name(&load_ports),
            ..Series::default()
        };
        let flows = if wanted.flows { self.flows.states().len() } else { 0 };
        let values = flows + queue_ports.len() + load_ports.len() + SAMPLE_VALUES;
        self.sampler = Some(Sampler {
            series,
            flows: wanted.flows,
            flow_totals: vec![0; flows],
            load_totals: vec![0; load_ports.len()],
            queue_peaks: vec![0; queue_ports.len()],
            queue_ports,
            load_ports,
            samples_max: samples_max(values),
        });
        self.schedule(wanted.interval_ps, Kind::Agenda, agenda::SAMPLE);
        Ok(())
    }

    pub(super) fn sample(&mut self) {
        let Some(sampler) = &mut self.sampler else { return };
        let series = &mut sampler.series;
        series.at_ps.push(self.now_ps);
        if sampler.flows {
            let since = |(state, total): (&super::FlowState, &mut u64)| {
                let before = std::mem::replace(total, state.delivered_bytes);
                state.delivered_bytes - before
            };
            let states = self.flows.states().iter();
            series.flow_bytes.push(states.zip(&mut sampler.flow_totals).map(since).collect());
        }
        if !sampler.queue_ports.is_empty() {
            let depth = |(&port, peak): (&u32, &mut u64)| {
                let most = self.ports[port as usize].take_backlog_bytes_max(self.now_ps);
                let most = most.max(self.lossless.take_bytes_max(port));
                *peak = (*peak).max(most);
                most
            };
            let ports = sampler.queue_ports.iter().zip(&mut sampler.queue_peaks);
            series.queue_bytes.push(ports.map(depth).collect());
        }
        if !sampler.load_ports.is_empty() {
            let since = |(&port, total): (&u32, &mut u64)| {
                // Bytes that the port has accepted and that no longer wait have been sent.
                let egress = &self.ports[port as usize];
                let waits = egress.backlog_bytes(self.now_ps);
                let bytes = egress.bytes().saturating_sub(waits).max(*total);
                bytes - std::mem::replace(total, bytes)
            };
            let ports = sampler.load_ports.iter();
            series.load_bytes.push(ports.zip(&mut sampler.load_totals).map(since).collect());
        }
        // The next sample covers a whole interval of the merged ones.
        if series.at_ps.len() >= sampler.samples_max {
            series.coarsen();
        }
        let next_ps = self.now_ps + series.interval_ps;
        self.schedule(next_ps, Kind::Agenda, agenda::SAMPLE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_samples_become_one_with_all_that_they_counted() {
        for count in [4_u64, 5] {
            let of = |n: u64| vec![n, 10 * n];
            let mut series = Series {
                interval_ps: 10,
                at_ps: (1..=count).map(|n| 10 * n).collect(),
                flow_bytes: (1..=count).map(of).collect(),
                queue_bytes: (1..=count).map(of).collect(),
                ..Series::default()
            };
            series.coarsen();
            assert_eq!((series.interval_ps, &series.at_ps[..2]), (20, &[20, 40][..]));
            assert_eq!(series.flow_bytes[..2], [[3, 30], [7, 70]]);
            assert_eq!(series.queue_bytes[..2], [[2, 20], [4, 40]]);
            let rest = usize::from(count == 5);
            assert_eq!((series.at_ps.len(), series.flow_bytes.len()), (2 + rest, 2 + rest));
            assert_eq!(series.at_ps.last(), Some(&(10 * count)));
            assert!(series.load_bytes.is_empty());
        }
    }
}
