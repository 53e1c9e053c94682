//! Tests of what crowds waste whose senders have never met the receiver, and of what they take from
//! a flow beside them. The example `open_incasts` prints the whole table.

use srd_sim::waste::{Case, Waste};

const KIB: u64 = 1 << 10;
/// A first window of five packets, in percent of the bandwidth-delay product.
const SHORT: u32 = 13;

fn measured(case: Case) -> Waste {
    case.measure(1).unwrap()
}

/// The queue of the receiver's port is full while the first windows arrive, and only then: no
/// datagram is dropped twice.
#[test]
fn a_crowd_that_sends_at_once_loses_packets_of_its_first_windows_only() {
    let waste = measured(Case::crowd(48, 64 * KIB, false).unwrap());
    assert!(waste.sent_again > 0.2 && waste.sent_again < 0.33, "{waste:?}");
    assert!(waste.dropped_again < 0.005 && waste.max_over_ideal < 1.1, "{waste:?}");
}

#[test]
fn short_first_windows_of_a_crowd_lose_little_and_take_no_longer() {
    for (senders, kib, again) in [(48, 64, 0.03), (120, 64, 0.15), (48, 512, 0.01)] {
        let case = Case::crowd(senders, kib * KIB, false).unwrap();
        let waste = measured(case.with_first_window(SHORT));
        assert!(waste.sent_again < again && waste.dropped_again < 0.005, "{waste:?}");
        assert!(waste.max_over_ideal < 1.04, "{senders} x {kib} KiB: {waste:?}");
    }
}

#[test]
fn a_crowd_with_short_first_windows_takes_little_from_a_flow_to_the_neighbour() {
    let time_us = |case: Case| measured(case.with_first_window(SHORT)).bystander_us.unwrap();
    let alone_us = time_us(Case::bystander_alone().unwrap());
    let beside_us = time_us(Case::crowd(48, 1024 * KIB, true).unwrap());
    assert!(beside_us < 1.05 * alone_us, "{beside_us} us, alone {alone_us}");
}
