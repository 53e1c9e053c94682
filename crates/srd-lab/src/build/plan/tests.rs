use super::*;

fn small() -> FabricConfig {
    FabricConfig {
        name_prefix: "t".into(),
        leaves: 2,
        hosts_per_leaf: 1,
        spines: 2,
        ..FabricConfig::default()
    }
}

fn of(name: &str) -> NamespacePlan {
    let plan = plan(&small());
    plan.namespaces.into_iter().find(|n| n.name == name).expect("planned")
}

#[test]
fn every_namespace_carries_the_fabric_prefix() {
    let text = plan(&small()).create;
    assert_eq!(text.lines().count(), 6);
    assert!(text.lines().all(|line| line.starts_with("netns add srdlab-t-")), "{text}");
}

#[test]
fn every_cable_is_one_veth_with_assigned_macs() {
    let text = plan(&small()).links;
    assert_eq!(text.lines().count(), 4 + 2);
    assert_eq!(
        text.lines().next(),
        Some(
            "link add up0 netns srdlab-t-l0 mtu 9000 txqueuelen 1000 address 02:18:02:00:00:00 \
             type veth peer name dn0 netns srdlab-t-s0 mtu 9000 txqueuelen 1000 \
             address 02:18:02:00:00:01"
        )
    );
}

#[test]
fn every_port_is_shaped_with_a_burst_of_three_packets() {
    assert_eq!(
        of("srdlab-t-l0").tc,
        "qdisc replace dev up0 root tbf rate 250mbit burst 27042 limit 200000\n\
         qdisc replace dev up1 root tbf rate 250mbit burst 27042 limit 200000\n\
         qdisc replace dev p0 root tbf rate 1000mbit burst 27042 limit 200000\n"
    );
    assert_eq!(
        of("srdlab-t-h1.0").tc,
        "qdisc replace dev eth0 root tbf rate 1000mbit burst 27042 limit 2000000\n"
    );
    assert_eq!(of("srdlab-t-s1").tc.lines().count(), 2);
}

#[test]
fn leaf_spreads_over_all_spines_in_both_families() {
    let ip = of("srdlab-t-l1").ip;
    assert!(ip.contains(
        "route add 0.0.0.0/0 nexthop via 198.19.1.1 dev up0 weight 1 \
         nexthop via 198.19.1.3 dev up1 weight 1\n"
    ));
    assert!(ip.contains(
        "route add ::/0 nexthop via fd00:19:1::2 dev up0 weight 1 \
         nexthop via fd00:19:1:1::2 dev up1 weight 1\n"
    ));
}

#[test]
fn switches_hash_the_packet_and_not_the_socket() {
    for name in ["srdlab-t-l0", "srdlab-t-s0"] {
        let sysctls = of(name).sysctls;
        for path in ["net/ipv4/fib_multipath_hash_policy", "net/ipv6/fib_multipath_hash_policy"] {
            assert!(sysctls.contains(&sysctl(path, 3)), "{name} {path}");
        }
        for path in ["net/ipv4/fib_multipath_hash_fields", "net/ipv6/fib_multipath_hash_fields"] {
            assert!(sysctls.contains(&sysctl(path, 0x37)), "{name} {path}");
        }
    }
}

#[test]
fn flow_label_is_hashed_only_on_request() {
    let config = FabricConfig { hash_flow_label: true, ..small() };
    let leaf = plan(&config).namespaces.swap_remove(0);
    assert!(leaf.sysctls.contains(&sysctl("net/ipv6/fib_multipath_hash_fields", 0x3f)));
    assert!(leaf.sysctls.contains(&sysctl("net/ipv4/fib_multipath_hash_fields", 0x37)));
}

#[test]
fn neighbours_are_permanent_and_match_the_macs_of_the_links() {
    let host = of("srdlab-t-h0.0").ip;
    assert!(
        host.contains("neigh replace 198.18.0.6 lladdr 02:18:01:00:00:01 dev eth0 nud permanent\n")
    );
    assert!(
        plan(&small())
            .links
            .contains("p0 netns srdlab-t-l0 mtu 9000 txqueuelen 1000 address 02:18:01:00:00:01")
    );
    let leaf = of("srdlab-t-l0").ip;
    for last in 1..=5 {
        assert!(leaf.contains(&format!("neigh replace 198.18.0.{last} lladdr 02:18:01:00:00:00")));
    }
}

#[test]
fn offloads_are_touched_only_when_off() {
    assert_eq!(of("srdlab-t-h0.0").offloads_off, None);
    let config = FabricConfig { offloads: false, ..small() };
    let off: Vec<_> =
        plan(&config).namespaces.into_iter().filter(|n| n.offloads_off.is_some()).collect();
    assert_eq!(off.len(), 2);
    assert!(off.iter().all(|n| n.name.starts_with("srdlab-t-h")));
}
