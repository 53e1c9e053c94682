//! The experiment `single-flow`: one TCP connection over a fabric with many paths, each with a
//! fraction of the rate of the host's link.

use crate::experiment::measure::iperf::Iperf;
use crate::experiment::measure::programs::{IPERF3, MPTCPIZE};
use crate::experiment::{Case, Experiment, Options, Variant, describe};
use srd_lab::config::FabricConfig;
use srd_lab::id::HostId;

/// The experiment `single-flow`.
pub(in crate::experiment) const EXPERIMENT: Experiment = Experiment {
    name: "single-flow",
    summary: "How much of all paths does one TCP connection get?",
    about: "iperf3 with one connection for a while, the first second not counted. The host's link \
            runs at 1 Gb/s, each of the 4 (8) uplinks at a quarter (an eighth) of it; switches \
            keep a connection on one of them. \"Of one path\" is goodput over the payload rate of \
            one uplink, which is the most that plain TCP can get.",
    repetitions: 3,
    variants: crate::experiment::variant::USUAL,
    programs: |options| needed(options),
    cases: |options| cases(options, 1),
};

/// Returns the programs that are needed: iperf3, and for Multipath TCP `mptcpize`, which makes
/// iperf3 use Multipath TCP.
pub(in crate::experiment) fn needed(options: &Options) -> Vec<crate::experiment::Program> {
    let mptcp = options.compares(Variant::Mptcp);
    [Some(IPERF3), mptcp.then_some(MPTCPIZE)].into_iter().flatten().collect()
}

/// Returns one case for each number of spines, or only the case with the number that the user has
/// selected.
pub(in crate::experiment) fn cases(options: &Options, flows: u32) -> Vec<Case> {
    let spines = match options.spines {
        Some(spines) => vec![spines],
        None => options.quick_or(vec![4], vec![4, 8]),
    };
    let seconds = options.seconds_or(8, 2);
    spines.into_iter().map(|spines| case(spines, flows, seconds)).collect()
}

fn case(spines: u16, flows: u32, seconds: u64) -> Case {
    let fabric = FabricConfig { hosts_per_leaf: 1, spines, ..FabricConfig::default() };
    let uplink_rate_mbps = (fabric.host_rate_mbps / u32::from(spines)).max(1);
    let fabric = FabricConfig { uplink_rate_mbps, ..fabric };
    let [from, to] = [0, 1].map(|leaf| HostId { leaf, host: 0 });
    Case {
        name: format!("{spines} spines"),
        setting: format!("{flows} x iperf3, {seconds} s; {}", describe(&fabric)),
        fabric,
        hosts: vec![from, to],
        only: None,
        measure: Box::new(move |stage| Iperf { from, to, flows, seconds }.measure(stage)),
    }
}
