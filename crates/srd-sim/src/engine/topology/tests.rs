//! Tests of routes, names, round trips and files, with literal values.

use proptest::prelude::*;

use super::clos::{ClosSpec, Links};
use super::dumbbell::DumbbellSpec;
use super::topo_file;
use super::*;

const FT128: &str = "
# a fat tree of 8-port switches
Nodes 128
Tiers 3
Podsize 16

Tier 0
Downlink_speed_Gbps 100
Radix_Down 4
Radix_Up 4
Downlink_Latency_ns 1000
Switch_Latency_ns 0

TIER 1
downlink_SPEED_gbps 100
Radix_Down 4
Radix_Up 4
Downlink_Latency_ns 1000
Switch_Latency_ns 0
Bundle 1

Tier 2
Downlink_speed_Gbps 100
Radix_Down 8
Downlink_Latency_ns 1000
Switch_Latency_ns 0
Bundle 1
";

const LEAF_SPINE: &str = "
Nodes 64
Tiers 2
Podsize 64
Tier 0
Downlink_speed_Gbps 100
Radix_Down 16
Radix_Up 16
Oversubscribed 1
Tier 1
Downlink_speed_Gbps 100
Radix_Down 4
";

fn links() -> Links {
    Links {
        host_bps: 100_000_000_000,
        up_bps: 100_000_000_000,
        latency_ps: 1_000_000,
        switch_latency_ps: 0,
        bundle: 1,
    }
}

fn every_pair_is_reached(topology: &Topology) {
    for (p, port) in (0_u32..).zip(&topology.ports) {
        let back = &topology.ports[port.reverse as usize];
        assert_eq!((back.reverse, back.from, back.to), (p, port.to, port.from));
        assert_eq!((back.parallel, back.rate_bps), (port.parallel, port.rate_bps));
    }
    for (index, switch) in (0_u32..).zip(&topology.switches) {
        let ((down, n), (up, m)) = (switch.ports_down(), switch.ports_up());
        for port in (down..down + n).chain(up..up + m) {
            assert_eq!(topology.ports[port as usize].from, End::Switch(index));
        }
    }
    for src in 0..topology.hosts {
        for dst in 0..topology.hosts {
            for hash in [0, 0x9e37_79b9, 0xffff_ffff] {
                if src != dst {
                    topology.path(src, dst, hash);
                }
            }
        }
    }
}

#[test]
fn fat_tree_of_the_file_has_the_reference_round_trip() {
    let topology = topo_file::parse(FT128).unwrap().build().unwrap();
    assert_eq!((topology.hosts, topology.switches.len()), (128, 32 + 32 + 16));
    assert_eq!(topology.path(0, 127, 7).len(), 6);
    assert_eq!(topology.path(0, 15, 7).len(), 4);
    assert_eq!(topology.path(0, 3, 7).len(), 2);
    // The round trip has 12 us of propagation, six times 332 ns and six times 5.12 ns.
    assert_eq!(topology.diameter_rtt_ps(4150, 64), 14_022_720);
    every_pair_is_reached(&topology);
}

#[test]
fn leaf_spine_of_the_file_has_the_reference_round_trip() {
    let topology = topo_file::parse(LEAF_SPINE).unwrap().build().unwrap();
    assert_eq!(topology.tiers[1], Tier { name: "spine", first: 4, count: 16 });
    // The round trip has 8 us of propagation, four times 332 ns and four times 5.12 ns.
    assert_eq!(topology.diameter_rtt_ps(4150, 64), 9_348_480);
    every_pair_is_reached(&topology);
}

#[test]
fn constructors_agree_with_the_files() {
    let from_file = topo_file::parse(FT128).unwrap();
    assert_eq!(ClosSpec::fat_tree(8, [1, 1], &links()), from_file);
    let from_file = topo_file::parse(LEAF_SPINE).unwrap();
    assert_eq!(ClosSpec::leaf_spine(4, 16, 16, &links()), from_file);
}

#[test]
fn oversubscribed_bundled_and_dumbbell_networks_reach_every_pair() {
    every_pair_is_reached(&ClosSpec::fat_tree(8, [2, 2], &links()).build().unwrap());
    let bundled = Links { bundle: 3, ..links() };
    every_pair_is_reached(&ClosSpec::leaf_spine(3, 2, 5, &bundled).build().unwrap());
    let spec = DumbbellSpec {
        side_hosts: 5,
        host_bps: 100_000_000_000,
        middle_bps: 40_000_000_000,
        middle_links: 2,
        latency_ps: 500_000,
        switch_latency_ps: 300_000,
    };
    let dumbbell = spec.build().unwrap();
    every_pair_is_reached(&dumbbell);
    assert_eq!(dumbbell.path(0, 9, 1).len(), 3);
    // The round trip crosses three links in each direction at 0.5 us, and four switches at 0.3 us.
    let serial: u64 = 2 * 332_000 + 830_000 + 2 * 5_120 + 12_800;
    assert_eq!(dumbbell.base_rtt_ps(0, 9, 4150, 64), 3_000_000 + 1_200_000 + serial);
}

#[test]
fn every_entropy_has_its_path_and_paths_fill_evenly() {
    let mut topology = ClosSpec::fat_tree(8, [1, 1], &links()).build().unwrap();
    topology.salt(1);
    let mut cores = std::collections::BTreeMap::new();
    for entropy in 0..1600_u16 {
        let hash = hash::five_tuple(0, 127, 49152 + entropy, 7471, 17);
        *cores.entry(topology.path(0, 127, hash)[2]).or_insert(0) += 1;
    }
    assert_eq!(cores.len(), 16);
    assert!(cores.values().all(|&n| (65..=140).contains(&n)), "{cores:?}");
}

#[test]
fn names_select_what_they_say() {
    let topology = ClosSpec::leaf_spine(2, 4, 3, &links()).build().unwrap();
    let names = |name: &str| -> Vec<String> {
        topology.select(name).unwrap().into_iter().map(|p| topology.port_name(p)).collect()
    };
    assert_eq!(names("leaf0->spine3"), ["leaf0->spine3"]);
    assert_eq!(names("leaf0-spine3"), ["leaf0->spine3", "spine3->leaf0"]);
    assert_eq!(names("host5"), ["host5->leaf1", "leaf1->host5"]);
    assert_eq!(names("spine2").len(), 4);
    assert_eq!(names("leaf->spine").len(), 8);
    assert_eq!(names("tor->agg:4..6"), ["leaf1->spine0", "leaf1->spine1"]);
    assert_eq!(names("host->leaf").len(), 6);
    assert_eq!(names("all").len(), topology.ports.len());
    for bad in ["spine4", "host6", "core0", "leaf0->host5", "leaf0-", "x", "leaf0->spine0#1"] {
        assert!(topology.select(bad).is_err(), "{bad}");
    }
    let bundled = ClosSpec::leaf_spine(2, 4, 3, &Links { bundle: 2, ..links() }).build().unwrap();
    assert_eq!(bundled.select("leaf0->spine3").unwrap().len(), 2);
    let one = bundled.select("leaf0->spine3#1").unwrap();
    assert_eq!(bundled.port_name(one[0]), "leaf0->spine3#1");
}

/// In an earlier version, a number of a link was ignored after the name of one end, and a range
/// beyond the last link was cut short.
#[test]
fn regression_numbers_of_links_that_do_not_exist_are_refused() {
    let bundle = Links { bundle: 2, ..links() };
    let topology = ClosSpec::leaf_spine(2, 4, 3, &bundle).build().unwrap();
    for (bad, word) in [
        ("leaf0#1", "has one end"),
        ("spine1:0..2", "has one end"),
        ("host5#0", "has one end"),
        ("leaf->spine:0..17", "there are 16 links"),
        ("leaf->spine:16", "there are 16 links"),
        ("leaf->spine:4..2", "there are 16 links"),
    ] {
        let error = topology.select(bad).unwrap_err();
        assert!(error.0.contains(word), "{bad}: {error}");
    }
    assert_eq!(topology.select("leaf->spine:0..16").unwrap().len(), 16);
    let tree = ClosSpec::fat_tree(4, [1, 1], &links()).build().unwrap();
    assert!(tree.first_core_links(17).unwrap_err().0.contains("there are 16 links"));
}

#[test]
fn first_core_links_lead_into_the_first_aggregation_switches() {
    let topology = ClosSpec::fat_tree(8, [1, 1], &links()).build().unwrap();
    let names: Vec<_> =
        topology.first_core_links(6).unwrap().into_iter().map(|p| topology.port_name(p)).collect();
    let expected =
        ["core0->agg0", "core1->agg1", "core4->agg0", "core5->agg1", "core8->agg0", "core12->agg0"];
    assert_eq!(names, expected);
    assert!(ClosSpec::leaf_spine(2, 4, 3, &links()).build().unwrap().first_core_links(1).is_err());
}

#[test]
fn bad_files_are_refused_with_line_and_reason() {
    let refuse = |text: &str, line: usize, word: &str| {
        let error = match topo_file::parse(text) {
            Err(error) => error,
            Ok(spec) => {
                let error = spec.build().unwrap_err();
                topo_file::ParseError { line: 0, what: error.0 }
            }
        };
        assert_eq!(error.line, line, "{error}");
        assert!(error.to_string().contains(word), "{error}");
    };
    refuse("Nodes x", 1, "not a number");
    refuse("Nodes 4\nNodes 4", 2, "twice");
    refuse("\n\nFrobs 4", 3, "unknown key");
    for text in ["Type dragonfly\nNodes 72", "p 2\na 4\nh 2", "Topology DragonFly 2 4 2"] {
        refuse(text, 1, "a dragonfly is not simulated: describe a fat tree");
    }
    refuse("Radix_Up 4", 1, "Tier 0");
    refuse("Nodes", 1, "key value");
    refuse("Tiers 4\nNodes 4\nPodsize 4", 0, "only 2 and 3");
    refuse("Tiers 2\nNodes 4\nTier 0", 3, "Radix_Down");
    refuse(&FT128.replace("Nodes 128", "Nodes 130"), 0, "not a multiple");
    refuse(&FT128.replace("Radix_Down 8", "Radix_Down 9"), 0, "down radix");
    refuse(&LEAF_SPINE.replace("subscribed 1", "subscribed 3"), 5, "Oversubscribed");
    refuse(&LEAF_SPINE.replace("Tiers 2", "Tiers 3"), 0, "tier 2");
    refuse(&LEAF_SPINE.replace("100\nRadix_Down 16", "0\nRadix_Down 16"), 6, "between");
}

proptest! {
    #[test]
    fn garbage_never_panics(text in "[a-zA-Z_0-9 \n#.-]{0,300}") {
        let _ = topo_file::parse(&text).map(|s| s.build());
    }

    #[test]
    fn any_numbers_build_or_are_refused(
        hosts in 0_u32..3000, pod in 0_u32..300,
        radix in proptest::array::uniform5(0_u32..70),
        bundles in proptest::array::uniform2(0_u32..4),
        three in any::<bool>(),
    ) {
        let mut spec = ClosSpec::fat_tree(4, [1, 1], &links());
        spec.hosts = hosts;
        spec.pod_hosts = pod;
        for (tier, n) in spec.tiers.iter_mut().zip([0, 2, 4]) {
            tier.radix_down = radix[n];
            tier.radix_up = if n < 4 { radix[n + 1] } else { 0 };
        }
        spec.tiers[1].bundle = bundles[0];
        spec.tiers[2].bundle = bundles[1];
        if !three { spec.tiers.pop(); spec.tiers[1].radix_up = 0; }
        if let Ok(topology) = spec.build() {
            topology.path(0, topology.hosts - 1, 5);
        }
    }
}
