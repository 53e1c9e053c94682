//! Long TCP flows ("elephants") between other hosts that share links with a measurement.

use crate::experiment::{Stage, hosts};
use crate::tcp::LongFlows;
use anyhow::Result;
use srd_lab::id::HostId;

/// Number of flows between each pair of hosts.
pub(in crate::experiment) const FLOWS_PER_PAIR: usize = 2;
/// Length of an interval in which the elephants' bytes are counted; only their mean is used.
const INTERVAL_MS: u64 = 100;

/// Returns the pairs of an incast: two hosts of the first leaf send to the measured host, so that
/// its own link is full.
pub(crate) fn incast(receiver: HostId) -> Vec<(HostId, HostId)> {
    hosts(0, 3).skip(1).map(|sender| (sender, receiver)).collect()
}

/// Returns pairs between the two leaves: three hosts of the first send to three of the second, so
/// that some uplinks are full.
pub(crate) fn collisions() -> Vec<(HostId, HostId)> {
    hosts(0, 4).zip(hosts(1, 4)).skip(1).collect()
}

/// Returns the measured hosts and the hosts of the pairs, each once and sorted.
pub(crate) fn with_hosts(measured: &[HostId], pairs: &[(HostId, HostId)]) -> Vec<HostId> {
    let pairs = pairs.iter().flat_map(|(from, to)| [*from, *to]);
    let mut all: Vec<HostId> = measured.iter().copied().chain(pairs).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Calls `work` while the elephants send, if there are any. Returns the result of `work`, and the
/// total goodput of the elephants in Mb/s.
pub(crate) fn beside<T>(
    stage: &Stage<'_>,
    pairs: &[(HostId, HostId)],
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, f64)> {
    if pairs.is_empty() {
        return Ok((work()?, 0.0));
    }
    let flows = LongFlows { flows: stage.flows(pairs, FLOWS_PER_PAIR), interval_ms: INTERVAL_MS };
    let (seen, done) = flows.run(stage.fabric, |_| work())?;
    Ok((done, seen.mbps_between(0, u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elephants_leave_the_first_pair_of_hosts_alone_or_share_only_the_server() {
        let (client, server) = (HostId { leaf: 0, host: 0 }, HostId { leaf: 1, host: 0 });
        assert!(collisions().iter().all(|(from, to)| *from != client && *to != server));
        assert_eq!(collisions().len() * FLOWS_PER_PAIR, 6);
        assert!(incast(server).iter().all(|(from, to)| *from != client && *to == server));
        assert_eq!(incast(server).len() * FLOWS_PER_PAIR, 4);
        assert_eq!(with_hosts(&[client, server], &incast(server)).len(), 4);
    }
}
