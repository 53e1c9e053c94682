//! Tests of kernel TCP in the fabric. They need root and iproute2.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use crate::ready::ready;
use srd_bench::tcp::{Failover, Flow, Incast, barrier_incast, failover, single_flow};
use srd_lab::{Fabric, FabricConfig, HostId};

#[test]
fn tcp_fills_one_path_and_dies_with_it() {
    if !ready(None) {
        return;
    }
    let config = FabricConfig {
        // The name contains the process id, so that two checkouts can run their tests at the same
        // time.
        name_prefix: format!("tcp{}", std::process::id()),
        hosts_per_leaf: 2,
        ..FabricConfig::default()
    };
    let fabric = Fabric::up_guarded(config).unwrap();
    let one = single_flow(&fabric, &Flow { seconds: 2, ..Flow::default() }).unwrap();
    assert_eq!(one.intervals.len(), 400);
    // The rate of one path is 250 Mb/s; the host's link has 1000. The lower bound is low, because
    // the machine may be busy.
    assert!((10.0..255.0).contains(&one.mbps), "{} Mb/s", one.mbps);

    let incast = Incast {
        senders: vec![HostId { leaf: 0, host: 0 }, HostId { leaf: 0, host: 1 }],
        flows_per_sender: 4,
        bytes: 64 << 10,
        rounds: 3,
        ..Incast::default()
    };
    let result = barrier_incast(&fabric, &incast).unwrap();
    assert_eq!(result.rounds.len(), 3);
    assert!(result.rounds.iter().all(|r| r.fct_us.len() == 8 && r.worst_us().is_some()));

    let flow = Flow { seconds: 4, ..Flow::default() };
    // TCP retransmits 0.2, 0.6 and 1.4 s after the failure, and only the last retransmission gets
    // through. Bytes that the receiver had not read yet at the failure do not matter.
    let plan = Failover { flow, fail_at_ms: 1000, heal_at_ms: 1700 };
    let result = failover(&fabric, &plan).unwrap();
    // No packet passes before the repair begins, and the repair takes a while.
    let outage_ms = plan.heal_at_ms.saturating_sub(result.failed_ms);
    assert!(result.silence_ms + 50 >= outage_ms, "{} of {outage_ms} ms", result.silence_ms);
    assert!(fabric.faults().unwrap().is_empty(), "healed");
}
