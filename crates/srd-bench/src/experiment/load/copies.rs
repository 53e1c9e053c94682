//! The experiment `copies`: two hosts that store every byte, as the nodes of a file system with two
//! copies do. Each of them receives bytes from clients and from the other one, and sends as many.

use crate::experiment::measure::result::{Figure, Measured};
use crate::experiment::{Case, Experiment, Options, Stage, describe, hosts};
use crate::tcp::LongFlows;
use anyhow::Result;
use srd_lab::config::FabricConfig;
use srd_lab::id::HostId;
use srd_lab::{PortKind, Status};
use std::thread;
use std::time::Duration;

/// Number of hosts that store, under the first leaf, and of clients, under the second one.
const STORES: u16 = 2;
const SPINES: u16 = 4;
const RATE_MBPS: u32 = 200;
const QUEUE_BYTES: u32 = 100_000;
/// Length of an interval in which the bytes of each flow are counted.
const SAMPLE_MS: u64 = 500;
/// Time at the start that is not counted.
const OMIT_MS: u64 = 1000;

/// The experiment `copies`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "copies",
    summary: "When two hosts store every byte, what share of their links is what they store?",
    about: "Two clients send to each of two hosts that store, and each of these sends to the other \
            one what it got, as the data nodes of HDFS do with two copies: eight flows, four to \
            each host that stores, whose links are full in both directions. The bytes at the \
            receiving applications are compared with those on the links.",
    repetitions: 3,
    variants: crate::experiment::variant::USUAL,
    programs: |_| Vec::new(),
    cases,
};

fn cases(options: &Options) -> Vec<Case> {
    let fabric = FabricConfig {
        hosts_per_leaf: STORES,
        spines: options.spines.unwrap_or(SPINES),
        host_rate_mbps: RATE_MBPS,
        uplink_rate_mbps: RATE_MBPS / 2,
        queue_bytes: QUEUE_BYTES,
        ..FabricConfig::default()
    };
    let seconds = options.seconds_or(10, 3);
    vec![Case {
        name: format!("{RATE_MBPS} Mb/s"),
        setting: format!("8 flows, {seconds} s; {}", describe(&fabric)),
        fabric,
        hosts: hosts(0, STORES).chain(hosts(1, STORES)).collect(),
        only: None,
        measure: Box::new(move |stage| measure(stage, seconds)),
    }]
}

/// Returns the pairs of sender and receiver: each client and each host that stores, and twice each
/// host that stores and the other one.
fn pairs() -> Vec<(HostId, HostId)> {
    let clients = hosts(1, STORES).flat_map(|from| hosts(0, STORES).map(move |to| (from, to)));
    let others = hosts(0, STORES)
        .flat_map(|from| hosts(0, STORES).map(move |to| (from, to)))
        .filter(|(from, to)| from != to)
        .flat_map(|pair| [pair; STORES as usize]);
    clients.chain(others).collect()
}

fn measure(stage: &Stage<'_>, seconds: u64) -> Result<Measured> {
    let flows = LongFlows { flows: stage.flows(&pairs(), 1), interval_ms: SAMPLE_MS };
    let (seen, links) = flows.run(stage.fabric, |_| {
        thread::sleep(Duration::from_millis(OMIT_MS));
        let before = Links::of(&stage.fabric.status()?);
        thread::sleep(Duration::from_secs(seconds));
        Ok(Links::of(&stage.fabric.status()?).since(before))
    })?;
    let config = stage.fabric.config();
    let most = config.goodput_mbps(config.host_rate_mbps) * f64::from(STORES);
    let until_ms = OMIT_MS + seconds * 1000;
    let stored_mbps = seen.mbps_between(OMIT_MS, until_ms);
    let stored = seen.bytes_between(OMIT_MS, until_ms).max(1) as f64;
    Ok(Measured {
        figures: vec![
            Figure::new("stored", "Mb/s", stored_mbps).beside(most, "the links of two hosts"),
            Figure::new("of the links", "", stored_mbps / most),
            Figure::new("bytes to them over stored", "x", links.to_stores as f64 / stored),
            Figure::new("bytes from them over stored", "x", links.from_stores as f64 / stored),
            Figure::new("dropped before them", "packets", links.dropped as f64),
        ],
        ..Measured::default()
    })
}

/// Counters of the links of the hosts that store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Links {
    to_stores: u64,
    from_stores: u64,
    dropped: u64,
}

impl Links {
    fn of(status: &Status) -> Self {
        let mut links = Self::default();
        for port in &status.ports {
            match port.kind {
                PortKind::LeafToHost(host) if host.leaf == 0 => {
                    links.to_stores += port.sent_bytes;
                    links.dropped += port.dropped_packets;
                }
                PortKind::HostNic(host) if host.leaf == 0 => links.from_stores += port.sent_bytes,
                _ => {}
            }
        }
        links
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            to_stores: self.to_stores.saturating_sub(earlier.to_stores),
            from_stores: self.from_stores.saturating_sub(earlier.from_stores),
            dropped: self.dropped.saturating_sub(earlier.dropped),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_that_stores_receives_four_flows_and_sends_two() {
        let pairs = pairs();
        for store in hosts(0, STORES) {
            assert_eq!(pairs.iter().filter(|(_, to)| *to == store).count(), 4);
            assert_eq!(pairs.iter().filter(|(from, _)| *from == store).count(), 2);
        }
        assert_eq!(pairs.len(), 8);
    }
}
