//! Text about objects other than networks, rules and interfaces: gateways, addresses, logs,
//! mirrors.

use srd_vpc::object::{Logged, Strategy};
use srd_vpc_file::words::traffic_text;
use srd_vpc_file::{Kind, VpcFile};

/// An object of a file: its kind, number and identifier, and lines of text that describe it.
pub(super) type ListedObject = (Kind, u64, String, Vec<String>);

/// Returns all objects that this module describes, in the order of their tables in docs/vpc.md.
pub(super) fn all(file: &VpcFile) -> Vec<ListedObject> {
    let mut all = placed(file);
    all.extend(gateways(file));
    all.extend(observers(file));
    all
}

fn named(file: &VpcFile, kind: Kind, number: u64) -> String {
    format!("{} {}", kind.word(), file.names.name(kind, number).unwrap_or("?"))
}

fn placed(file: &VpcFile) -> Vec<ListedObject> {
    let (world, mut all) = (&file.world, Vec::new());
    let texts = |list: &[std::net::IpAddr]| {
        list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    for (id, of) in &world.dhcp_options {
        let mut says = Vec::new();
        says.extend(of.domain_name.iter().map(|name| format!("domain {name}")));
        if !of.name_servers.is_empty() {
            says.push(format!("resolvers {}", texts(&of.name_servers)));
        }
        if !of.ntp_servers.is_empty() {
            says.push(format!("time servers {}", texts(&of.ntp_servers)));
        }
        all.push((Kind::DhcpOptions, id.0, id.to_string(), says));
    }
    for (id, of) in &world.prefix_lists {
        let entries = of.entries.iter().map(ToString::to_string);
        let count = format!("counts as {} rules", of.max_entries);
        all.push((Kind::PrefixList, id.0, id.to_string(), entries.chain([count]).collect()));
    }
    for (id, of) in &world.placements {
        let strategy = match of.strategy {
            Strategy::Cluster => "cluster".to_owned(),
            Strategy::Partition(count) => format!("{count} partitions"),
            Strategy::Spread => "spread".to_owned(),
        };
        all.push((Kind::Placement, id.0, id.to_string(), vec![strategy]));
    }
    all
}

fn gateways(file: &VpcFile) -> Vec<ListedObject> {
    let (world, mut all) = (&file.world, Vec::new());
    let vpc = |id: srd_vpc::id::VpcId| named(file, Kind::Vpc, id.0);
    for (id, of) in &world.internet_gateways {
        let says = of.vpc.map(|id| format!("of {}", vpc(id)));
        all.push((Kind::InternetGateway, id.0, id.to_string(), says.into_iter().collect()));
    }
    for (id, of) in &world.egress_only_gateways {
        let says = vec![format!("of {}", vpc(of.vpc))];
        all.push((Kind::EgressOnlyGateway, id.0, id.to_string(), says));
    }
    for (id, of) in &world.nat_gateways {
        let subnet = named(file, Kind::Subnet, of.subnet.0);
        let public = of.address.map_or_else(String::new, |address| {
            format!(", {}", named(file, Kind::ElasticAddress, address.0))
        });
        let says = vec![format!("{} in {subnet}{public}", of.private)];
        all.push((Kind::NatGateway, id.0, id.to_string(), says));
    }
    for (id, of) in &world.addresses {
        let to = of.association.map_or_else(String::new, |(eni, private)| {
            format!(" for {private} of {}", named(file, Kind::Interface, eni.0))
        });
        let says = vec![format!("{}{to}", of.public)];
        all.push((Kind::ElasticAddress, id.0, id.to_string(), says));
    }
    for (id, of) in &world.peerings {
        let state = if of.active { "" } else { ", not active" };
        let says = vec![format!("{} with {}{state}", vpc(of.requester), vpc(of.accepter))];
        all.push((Kind::Peering, id.0, id.to_string(), says));
    }
    for (id, of) in &world.endpoints {
        let list = named(file, Kind::PrefixList, of.list.0);
        let tracked = if of.always_tracked { ", always tracked" } else { "" };
        let says = vec![format!("of {} to {list}{tracked}", vpc(of.vpc))];
        all.push((Kind::Endpoint, id.0, id.to_string(), says));
    }
    all
}

fn observers(file: &VpcFile) -> Vec<ListedObject> {
    let (world, mut all) = (&file.world, Vec::new());
    for (id, of) in &world.flow_logs {
        let resource = match of.resource {
            Logged::Vpc(id) => named(file, Kind::Vpc, id.0),
            Logged::Subnet(id) => named(file, Kind::Subnet, id.0),
            Logged::Eni(id) => named(file, Kind::Interface, id.0),
        };
        let (traffic, files) = (of.traffic.name(), of.format.name());
        let says = vec![format!("{traffic} of {resource}, {files} files in {}", of.directory)];
        all.push((Kind::FlowLog, id.0, id.to_string(), says));
    }
    for (id, of) in &world.mirror_filters {
        let rules = of.rules.iter().map(|rule| {
            let way = if rule.egress { "out" } else { "in" };
            let verb = if rule.accept { "accept" } else { "reject" };
            let source = match rule.source_ports {
                Some((first, last)) => format!(" source {first}-{last}"),
                None => String::new(),
            };
            let traffic = traffic_text(rule.traffic);
            let (number, from, to) = (rule.number, rule.source, rule.destination);
            format!("{way} {number} {verb} {traffic}{source} from {from} to {to}")
        });
        all.push((Kind::MirrorFilter, id.0, id.to_string(), rules.collect()));
    }
    for (id, of) in &world.mirror_targets {
        let says = vec![named(file, Kind::Interface, of.eni.0)];
        all.push((Kind::MirrorTarget, id.0, id.to_string(), says));
    }
    for (id, of) in &world.mirror_sessions {
        let length = of.packet_length.map_or_else(String::new, |n| format!(", {n} bytes of each"));
        let says = vec![format!(
            "{} to {} by {}, number {}, network identifier {}{length}",
            named(file, Kind::Interface, of.source.0),
            named(file, Kind::MirrorTarget, of.target.0),
            named(file, Kind::MirrorFilter, of.filter.0),
            of.number,
            of.vni
        )];
        all.push((Kind::MirrorSession, id.0, id.to_string(), says));
    }
    all
}
