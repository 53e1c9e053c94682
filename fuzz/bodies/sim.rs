//! Fuzz targets of the simulator. Each one parses its input and builds the result. A parser must
//! succeed, or fail with a message that is not empty.
#![allow(dead_code, clippy::cast_possible_truncation)] // each target uses one function

use std::path::Path;

use srd_sim::scenario::{Scenario, TopologySpec};
use srd_sim::topology::clos::ClosSpec;
use srd_sim::topology::topo_file;
use srd_sim::workload::chakra::{self, Groups};
use srd_sim::workload::cm::{self, TimeUnit};
use srd_sim::workload::{Workload, goal};

/// Maximum number of hosts that a target builds. More would only be slow.
const HOSTS_MAX: u64 = 4096;

/// Reads a scenario, and builds its network if that needs no file.
pub(crate) fn scenario(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Scenario::read("fuzz.toml", text, Path::new("/nonexistent"), &[]) {
        Ok(scenario) if is_small(&scenario.topology) => {
            if let Err(error) = scenario.topology(1) {
                assert!(!error.0.is_empty());
            }
        }
        Ok(_) => {}
        Err(error) => assert!(error.0.contains("fuzz.toml")),
    }
}

fn is_small(topology: &TopologySpec) -> bool {
    match topology {
        TopologySpec::FatTree { k, .. } => *k <= 16 || *k > 128,
        TopologySpec::LeafSpine { leaves, spines, leaf_hosts, bundle, .. } => {
            let links = u128::from(*spines) * u128::from(*bundle) + u128::from(*leaf_hosts);
            u128::from(*leaves) * links <= HOSTS_MAX.into()
        }
        TopologySpec::Dumbbell { side_hosts, middle_links, .. } => {
            u64::from(*side_hosts) + u64::from(*middle_links) <= HOSTS_MAX
        }
        TopologySpec::Ring { switch_hosts, .. } => u64::from(*switch_hosts) <= HOSTS_MAX,
        TopologySpec::File { .. } => false,
    }
}

fn has_few_links(spec: &ClosSpec) -> bool {
    spec.tiers.iter().all(|tier| tier.radix_up <= 64 && tier.radix_down <= 512 && tier.bundle <= 8)
}

/// Reads a topology file of htsim.
pub(crate) fn topo(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match topo_file::parse(text) {
        Ok(spec) if u64::from(spec.hosts) <= HOSTS_MAX && has_few_links(&spec) => {
            if let Err(error) = spec.build() {
                assert!(!error.to_string().is_empty());
            }
        }
        Ok(_) => {}
        Err(error) => assert!(!error.what.is_empty()),
    }
}

/// Reads a connection matrix of htsim.
pub(crate) fn cm(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for unit in [TimeUnit::Picoseconds, TimeUnit::Microseconds] {
        match cm::parse(text, unit) {
            Ok(matrix) => {
                if let Err(error) = matrix.workload.check(matrix.nodes) {
                    assert!(!error.to_string().is_empty());
                }
            }
            Err(error) => assert!(!error.what.is_empty()),
        }
    }
}

/// Reads the files of the ranks of a Chakra trace: of one rank, of two equal ranks, and of two
/// different ranks. The first byte determines the start of the second rank's file.
pub(crate) fn chakra(bytes: &[u8]) {
    let hosts: Vec<u32> = (0..16).collect();
    let cut = bytes.first().map_or(0, |byte| usize::from(*byte) * bytes.len() / 256);
    let (one, two) = bytes.split_at(cut);
    let groups = chakra::groups("{\"a\": [1, 0]}").expect("it is right");
    for files in [vec![bytes.to_vec()], vec![bytes.to_vec(); 2], vec![one.to_vec(), two.to_vec()]] {
        for groups in [&Groups::new(), &groups] {
            match chakra::read(&files, groups, &hosts) {
                Ok(workload) => {
                    workload.check(16).expect("what is read fits the network");
                    let schedule = workload.schedule.expect("it has operations");
                    schedule.check(&workload.flows).expect("operations and flows fit each other");
                }
                Err(error) => assert!(!error.what.is_empty()),
            }
        }
    }
}

/// Reads a schedule in GOAL, in either form (`txt2bin.goal.bin` is the output of LogGOPSim's
/// `txt2bin` for the text in the reader's tests), or a Chakra trace with the same file for one
/// rank or two.
pub(crate) fn traces(bytes: &[u8]) {
    let hosts: Vec<u32> = (0..16).collect();
    let check = |workload: Workload| {
        workload.check(16).expect("what is read fits the network");
        let schedule = workload.schedule.expect("it has operations");
        schedule.check(&workload.flows).expect("operations and flows fit each other");
    };
    match goal::read(bytes, &hosts) {
        Ok(workload) => check(workload),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    for files in [vec![bytes.to_vec()], vec![bytes.to_vec(); 2]] {
        match chakra::read(&files, &Groups::new(), &hosts) {
            Ok(workload) => check(workload),
            Err(error) => assert!(!error.what.is_empty()),
        }
    }
}
