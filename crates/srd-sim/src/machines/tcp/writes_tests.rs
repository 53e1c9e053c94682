//! Tests of applications that write in pieces: Nagle's rule and delayed acknowledgements, in
//! virtual time.

use super::*;
use crate::engine::node::HostId;
use crate::engine::topology::dumbbell::DumbbellSpec;
use crate::engine::world::{Ended, US, World, WorldConfig};
use crate::workload::{FlowPlan, Workload};
use srd_proto::time::Duration;

const MS: u64 = 1000 * US;

/// Returns a configuration with headers of 40 bytes and without framing, as in the calculation of
/// RFC 896.
fn config() -> TcpConfig {
    TcpConfig {
        mtu_bytes: 1500,
        header_bytes: 40,
        frame_bytes: 0,
        jitter_max: Duration::ZERO,
        ..TcpConfig::default()
    }
}

/// Runs one flow to its end over a network with a round trip of 600 us.
fn run(bytes: u64, tcp: TcpConfig) -> World<TcpNode> {
    let spec = DumbbellSpec {
        side_hosts: 1,
        host_bps: 1_000_000_000,
        middle_bps: 1_000_000_000,
        middle_links: 1,
        latency_ps: 100 * US,
        switch_latency_ps: 0,
    };
    let flows = vec![FlowPlan::at(0, 0, 1, bytes)];
    let workload = Workload { flows, ..Workload::default() };
    let network = spec.build().expect("a network");
    let node = |host| TcpNode::new(HostId(host), tcp);
    let mut world = World::new(network, workload, WorldConfig::default(), node).expect("a world");
    assert_eq!(world.run(10_000 * MS), Ended::Finished);
    assert_eq!(world.flows()[0].delivered_bytes, bytes);
    assert_eq!(world.counters().timer_livelocks, 0);
    world
}

/// Returns the time in picoseconds at which the receiver had all bytes.
fn received_ps(world: &World<TcpNode>) -> u64 {
    world.flows()[0].received_ps.expect("received")
}

/// The application writes 1,000 bytes, one every 100 us: six writes in a round trip.
#[test]
fn one_byte_writes_are_packets_of_41_bytes_unless_nagles_rule_gathers_them() {
    let sent = |nagle| {
        let write_gap = Duration::from_micros(100);
        let world = run(1000, TcpConfig { nagle, write_bytes: 1, write_gap, ..config() });
        let segments = world.nodes()[0].stats().segments;
        (segments, world.port_reports()[0].bytes)
    };
    let (segments, bytes) = sent(Nagle::Off);
    assert_eq!((segments, bytes), (1000, 41_000));
    let overhead_percent = (bytes - 1000) * 100 / 1000;
    assert_eq!(overhead_percent, 4_000);
    for nagle in [Nagle::Linux, Nagle::Rfc896] {
        let (segments, bytes) = sent(nagle);
        // Nagle's rule allows one segment in a round trip, which takes 600 us and the packets' own
        // time.
        assert!((160..=170).contains(&segments), "{nagle:?}: {segments}");
        assert_eq!(bytes, 1000 + 40 * segments);
    }
}

/// Tail probes are off, because with two small segments in flight a probe would be due after 8 ms.
/// The kernel took 42.8 to 43.2 ms for this test (docs/perf-notes.md, "efs-proxy").
#[test]
fn the_second_small_write_waits_for_the_delayed_acknowledgement_of_the_first() {
    let two = |nagle, interactive| {
        let write_gap = Duration::from_micros(10);
        let tcp = TcpConfig { nagle, interactive, write_bytes: 100, write_gap, ..config() };
        run(200, TcpConfig { tail_probe: false, ..tcp })
    };
    for nagle in [Nagle::Linux, Nagle::Rfc896] {
        let world = two(nagle, true);
        let received_ps = received_ps(&world);
        assert!((40 * MS..46 * MS).contains(&received_ps), "{nagle:?}: {received_ps}");
        assert_eq!(world.nodes()[1].stats().acknowledgements, 2);
    }
    // Without Nagle's rule both segments arrive at once, and one acknowledgement covers both.
    let world = two(Nagle::Off, true);
    assert!(received_ps(&world) < MS);
    assert_eq!(world.nodes()[1].stats().acknowledgements, 1);
    let finished_ps = world.flows()[0].finished_ps.expect("finished");
    assert!((40 * MS..46 * MS).contains(&finished_ps), "{finished_ps}");
    // A receiver that is not interactive acknowledges the data that the application has read. The
    // second write then waits for one round trip only.
    let received_ps = received_ps(&two(Nagle::Linux, false));
    assert!((800 * US..MS).contains(&received_ps), "{received_ps}");
}

#[test]
fn a_short_end_of_a_long_flow_waits_under_rfc_896_and_not_under_linux() {
    let received = |nagle| received_ps(&run(4 * 1460 + 100, TcpConfig { nagle, ..config() }));
    let [off, linux, rfc896] = [Nagle::Off, Nagle::Linux, Nagle::Rfc896].map(received);
    assert_eq!(off, linux);
    assert!(rfc896 > off + 500 * US && rfc896 < off + 700 * US, "{off}, {rfc896}");
}

#[test]
fn writes_follow_each_other_at_their_distance_and_end_with_the_flow() {
    let gap = Duration::from_micros(100);
    let config = TcpConfig { write_bytes: 3, write_gap: gap, ..config() };
    let at = |us| srd_proto::Instant::ZERO + Duration::from_micros(us);
    let mut writes = writes::Writes::new(&config, 8, at(50));
    for (us, written, next) in
        [(50, 3, Some(150)), (149, 3, Some(150)), (150, 6, Some(250)), (900, 8, None)]
    {
        writes.advance(at(us));
        assert_eq!((writes.written(), writes.next_at()), (written, next.map(at)));
    }
    let whole = writes::Writes::new(&TcpConfig::default(), 8, at(50));
    assert_eq!((whole.written(), whole.next_at()), (8, None));
}
