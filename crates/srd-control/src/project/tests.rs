//! For every region that requests can create, the card accepts the generated `vpc.toml`, and
//! reaches the verdicts that follow from the state of the region.

use std::net::Ipv4Addr;
use std::path::Path;

use proptest::prelude::*;
use srd_vpc::id::EniId;
use srd_vpc::judge::{Origin, Verdict, judge};
use srd_vpc::packet::{Inner, Packet};
use srd_vpc_file::{VpcFile, parse};

use super::generate::Maker;
use super::project;
use crate::state::network::Route;
use crate::state::{NetworkInterface, Region, Tag};

fn file(region: &Region) -> VpcFile {
    let projection = project(region, Some(Path::new("/run/x")));
    parse(&projection.text, Path::new("vpc.toml"))
        .unwrap_or_else(|error| panic!("{error}\n{}", projection.text))
}

/// A packet as this test evaluates it: protocol and destination port.
type Probe = (&'static str, i64);

fn packet((protocol, port): Probe, from: Ipv4Addr, to: Ipv4Addr) -> Packet {
    let port = u16::try_from(port).unwrap();
    let inner = match protocol {
        "tcp" => Inner::Tcp(50_000, port),
        "udp" => Inner::Udp(50_000, port),
        _ => Inner::Icmp(8, 0),
    };
    Packet { source: from.into(), destination: to.into(), inner }
}

/// Whether the security groups of an interface admit a packet from or to the other interface.
fn groups_admit(
    region: &Region,
    own: &NetworkInterface,
    other: &NetworkInterface,
    (protocol, port): Probe,
    egress: bool,
) -> bool {
    let far = other.private_ip_address.unwrap();
    let is_own = |group: &String| own.groups.iter().any(|of| &of.group_id == group);
    region.group_rules.iter().filter(|r| r.is_egress == egress && is_own(&r.group_id)).any(|rule| {
        let traffic = match rule.ip_protocol.as_str() {
            "-1" => true,
            "icmp" => protocol == "icmp",
            of => {
                of == protocol
                    && (rule.from_port == -1 || (rule.from_port..=rule.to_port).contains(&port))
            }
        };
        let list = rule.prefix_list_id.as_ref().is_some_and(|id| {
            let list = region.prefix_lists.get(id).unwrap();
            let mut entries = list.versions.last().unwrap().iter();
            entries.any(|e| e.cidr.parse::<ipnet::Ipv4Net>().unwrap().contains(&far))
        });
        let group = rule
            .referenced_group_info
            .as_ref()
            .is_some_and(|info| other.groups.iter().any(|of| of.group_id == info.group_id));
        traffic && (list || group || rule.cidr_ipv4.is_some_and(|block| block.contains(&far)))
    })
}

/// Whether the network ACL of a subnet admits a packet from or to an address.
fn acl_admits(region: &Region, subnet: &str, far: Ipv4Addr, probe: Probe, egress: bool) -> bool {
    let (protocol, port) = probe;
    let of =
        |acl: &&crate::state::NetworkAcl| acl.associations.iter().any(|a| a.subnet_id == subnet);
    let acl = region.acls.iter().find(of).unwrap();
    let mut entries: Vec<_> = acl.entries.iter().filter(|e| e.egress == egress).collect();
    entries.sort_by_key(|entry| entry.rule_number);
    let first = entries.into_iter().find(|entry| {
        let ports = entry.port_range.as_ref();
        let number = match protocol {
            "tcp" => "6",
            "udp" => "17",
            _ => "1",
        };
        let traffic = entry.protocol == "-1"
            || entry.protocol == number && ports.is_some_and(|p| (p.from..=p.to).contains(&port));
        traffic && entry.cidr_block.is_some_and(|block| block.contains(&far))
    });
    first.is_some_and(|entry| entry.rule_action == "allow")
}

/// Whether packets from one VPC to an address of another VPC take an active peering connection.
fn is_routed(region: &Region, from: &NetworkInterface, to: &NetworkInterface) -> bool {
    let far = to.private_ip_address.unwrap();
    let table = region.route_tables.iter().find(|table| table.vpc_id == from.vpc_id).unwrap();
    // Routes to peers have 16 bits; entries of prefix lists have more, and lead nowhere.
    let by_list = table.routes.iter().filter_map(|r| r.destination_prefix_list_id.as_ref());
    let mut by_list = by_list.filter_map(|id| region.prefix_lists.get(id)?.versions.last());
    let own = region.vpcs.get(&from.vpc_id).unwrap().cidr_block;
    // A list with a block inside the VPC has no effect, because its target is not in the file.
    let is_listed = by_list.any(|entries| {
        let blocks = entries.iter().map(|e| e.cidr.parse::<ipnet::Ipv4Net>().unwrap());
        let blocks: Vec<_> = blocks.collect();
        !blocks.iter().any(|block| own.contains(block)) && blocks.iter().any(|b| b.contains(&far))
    });
    !is_listed
        && table.routes.iter().any(|route| {
            let block = route.destination_cidr_block;
            let by = route.vpc_peering_connection_id.as_ref();
            let is_active = by
                .and_then(|id| region.peerings.get(id))
                .is_some_and(|peering| peering.status.code == "active");
            is_active && block.is_some_and(|b| b.prefix_len() == 16 && b.contains(&far))
        })
}

fn expected(region: &Region, from: &NetworkInterface, to: &NetworkInterface, probe: Probe) -> bool {
    let (a, b) = (from.private_ip_address.unwrap(), to.private_ip_address.unwrap());
    let by_groups =
        groups_admit(region, from, to, probe, true) && groups_admit(region, to, from, probe, false);
    let by_acls = from.subnet_id == to.subnet_id
        || acl_admits(region, &from.subnet_id, b, probe, true)
            && acl_admits(region, &to.subnet_id, a, probe, false);
    let by_route = from.vpc_id == to.vpc_id || is_routed(region, from, to);
    by_groups && by_acls && by_route
}

proptest! {
    #[test]
    fn a_region_is_a_file_with_the_same_verdicts(seed: u64) {
        let mut maker = Maker::new(seed).make();
        let region = maker.region.clone();
        let file = file(&region);
        let interfaces: Vec<NetworkInterface> = region
            .interfaces
            .iter()
            .filter(|i| i.interface_type != "nat_gateway")
            .cloned()
            .collect();
        for _ in 0..60 {
            let [one, other] = [(); 2].map(|()| {
                let at = maker.below(interfaces.len() as u64);
                &interfaces[usize::try_from(at).unwrap()]
            });
            if one.network_interface_id == other.network_interface_id {
                continue;
            }
            let port = i64::try_from(maker.below(8)).unwrap();
            let protocol = ["tcp", "udp", "icmp"][usize::try_from(maker.below(3)).unwrap()];
            let (a, b) = (one.private_ip_address.unwrap(), other.private_ip_address.unwrap());
            let id = |of: &NetworkInterface| of.network_interface_id.parse::<EniId>().unwrap();
            let [from, to] = [id(one), id(other)];
            let judged = judge(&file.world, Origin::Eni(from), &packet((protocol, port), a, b));
            let passes = judged.verdict == Verdict::Delivered(to);
            let wanted = expected(&region, one, other, (protocol, port));
            prop_assert_eq!(passes, wanted, "{} {} {} -> {}: {:#?}", protocol, port, a, b, judged);
        }
    }

    #[test]
    fn nothing_is_lost_or_invented(seed: u64) {
        let region = Maker::new(seed).make().region;
        let file = file(&region);
        let projection = project(&region, Some(Path::new("/run/x")));
        prop_assert_eq!(&projection, &project(&region.clone(), Some(Path::new("/run/x"))));
        let used = |vpc: &String| region.interfaces.iter().any(|i| &i.vpc_id == vpc);
        let vpcs: Vec<_> =
            region.vpcs.iter().filter(|v| !v.is_default || used(&v.vpc_id)).collect();
        let world = &file.world;
        prop_assert_eq!(world.vpcs.len(), vpcs.len());
        prop_assert_eq!(world.subnets.len(), 2 * vpcs.len());
        // The file has a default group and a default ACL of each VPC in addition.
        prop_assert_eq!(world.groups.len(), 4 * vpcs.len());
        prop_assert_eq!(world.acls.len(), 3 * vpcs.len());
        let ends = region.interfaces.iter().filter(|i| i.interface_type != "nat_gateway").count();
        prop_assert_eq!(world.enis.len(), ends);
        let running = region.instances.iter().filter(|i| i.state.code == 16).count();
        prop_assert_eq!(world.instances.len(), running);
        prop_assert_eq!(projection.instances.len(), running);
        let nats = region.nat_gateways.iter().filter(|nat| nat.state == "available").count();
        prop_assert_eq!(world.nat_gateways.len(), nats);
        let publics = region.interfaces.iter().filter(|i| i.auto_public_ip.is_some()).count();
        prop_assert_eq!(world.addresses.len(), 3 + publics);
        prop_assert_eq!(world.prefix_lists.len(), 2);
        prop_assert_eq!(world.flow_logs.len(), 3);
        let warned = |what: &str| projection.warnings.iter().any(|w| w.contains(what));
        let texts = ["udp_timeout of 7 s", "colour}` is unknown", "no address"];
        prop_assert_eq!(texts.map(warned), [true; 3]);
        let unknown = region.instances.iter();
        let mut unknown = unknown.filter(|i| i.state.code == 16 && i.instance_type == "x99.huge");
        prop_assert_eq!(unknown.next().is_some(), warned("x99.huge is unknown"));
    }
}

#[test]
fn identifiers_of_the_file_are_those_of_the_region() {
    let region = Maker::new(3).make().region;
    let file = file(&region);
    for interface in region.interfaces.iter().filter(|i| i.interface_type != "nat_gateway") {
        let id = interface.network_interface_id.parse::<EniId>().unwrap();
        let eni = &file.world.enis[&id];
        assert_eq!(eni.name, interface.network_interface_id);
    }
}

#[test]
fn default_vpcs_without_interfaces_and_stopped_instances_are_left_out() {
    let mut maker = Maker::new(11).make();
    for id in maker.region.vpcs.ids_where(|_| true) {
        maker.region.vpcs.get_mut(&id).unwrap().is_default = true;
    }
    for id in maker.region.interfaces.ids_where(|_| true) {
        maker.region.interfaces.remove(&id);
    }
    let projection = project(&maker.region, None);
    assert!(!projection.text.contains("[vpc."), "{}", projection.text);
    assert!(!projection.text.contains("[instance."), "{}", projection.text);
    assert!(projection.warnings.iter().any(|w| w.contains("does not run")));
    parse(&projection.text, Path::new("vpc.toml")).unwrap();
}

#[test]
fn an_interface_without_groups_admits_nothing() {
    let mut maker = Maker::new(5).make();
    let id = maker.region.interfaces.iter().next().unwrap().network_interface_id.clone();
    maker.region.interfaces.get_mut(&id).unwrap().groups.clear();
    let file = file(&maker.region);
    let eni = &file.world.enis[&id.parse::<EniId>().unwrap()];
    assert_eq!(eni.groups.len(), 1);
    assert!(file.world.groups[&eni.groups[0]].rules.is_empty());
}

/// A card would refuse the file, and with it all changes of the region.
#[test]
fn regression_a_route_to_services_of_the_network_is_left_out() {
    let mut maker = Maker::new(5).make();
    for id in maker.region.route_tables.ids_where(|_| true) {
        let table = maker.region.route_tables.get_mut(&id).unwrap();
        for block in ["169.254.169.0/24", "169.254.0.0/16"] {
            table.routes.push(Route {
                destination_cidr_block: Some(block.parse().unwrap()),
                state: "blackhole".into(),
                ..Route::default()
            });
        }
    }
    let projection = project(&maker.region, None);
    parse(&projection.text, Path::new("vpc.toml")).unwrap();
    let is_named = |w: &String| w.contains("169.254.169.0/24 belongs to services");
    assert!(projection.warnings.iter().any(is_named), "{:?}", projection.warnings);
    assert!(projection.text.contains("169.254.0.0/16 to blackhole"), "{}", projection.text);
}

#[test]
fn the_tag_of_a_pod_becomes_a_key_of_the_instance() {
    let instances = |maker: &Maker| project(&maker.region, None).instances;
    let mut makers = (0..100).map(|seed| Maker::new(seed).make());
    let mut maker = makers.find(|maker| !instances(maker).is_empty()).unwrap();
    let running = instances(&maker).pop_first().unwrap();
    let mut tag = |value: &str| {
        let own = maker.region.instances.get_mut(&running).unwrap();
        own.tags = vec![Tag { key: "srd:pod".into(), value: value.into() }];
        let projection = project(&maker.region, None);
        let file = parse(&projection.text, Path::new("vpc.toml")).unwrap();
        let pods = file.world.instances.values().filter_map(|of| of.pod.clone());
        (pods.collect::<Vec<_>>(), projection.warnings)
    };
    assert_eq!(tag("cni-0123").0, ["cni-0123"]);
    for wrong in ["", "../x", "a.b", "-a", &"x".repeat(41)] {
        let (pods, warnings) = tag(wrong);
        assert_eq!(pods, [""; 0]);
        assert!(warnings.iter().any(|w| w.contains("no name of a pod")), "{warnings:?}");
    }
}
