//! Writes the tables of route tables, gateways, elastic addresses and peering connections into the
//! text of a `vpc.toml`.

use std::collections::BTreeSet;

use ipnet::IpNet;

use super::toml_text::Text;
use super::{NAT_INTERFACE, Scope};
use crate::state::network::Route;
use crate::state::{NatGateway, PeeringConnection, RouteTable, Vpc, VpcEndpoint};

/// States of a peering connection that a file describes.
pub(super) const PEERING_LIVES: [&str; 3] = ["active", "pending-acceptance", "provisioning"];

pub(super) fn write(scope: &mut Scope<'_>, text: &mut Text) {
    write_gateways(scope, text);
    let region = scope.region;
    for address in region.addresses.iter() {
        text.table("elastic_address", &address.allocation_id);
        text.string("public", &address.public_ip.to_string());
        let interface = address.network_interface_id.as_deref();
        if let Some(id) = interface.filter(|id| scope.interfaces.contains(id)) {
            text.string("interface", id);
            if let Some(private) = address.private_ip_address {
                text.string("private", &private.to_string());
            }
        }
    }
    for interface in region.interfaces.iter() {
        let id = interface.network_interface_id.as_str();
        if let Some(public) = interface.auto_public_ip.filter(|_| scope.interfaces.contains(id)) {
            text.table("elastic_address", id);
            text.string("public", &public.to_string());
            text.string("interface", id);
        }
    }
    for peering in region.peerings.iter() {
        write_peering(scope, text, peering);
    }
    let vpcs = scope.vpcs.clone();
    for table in region.route_tables.iter().filter(|t| vpcs.contains(t.vpc_id.as_str())) {
        write_table(scope, text, table);
    }
}

fn write_gateways(scope: &mut Scope<'_>, text: &mut Text) {
    let region = scope.region;
    for gateway in region.internet_gateways.iter() {
        let vpc = gateway.attachments.first().map(|at| at.vpc_id.as_str());
        if let Some(vpc) = vpc.filter(|vpc| scope.vpcs.contains(vpc)) {
            text.table("internet_gateway", &gateway.internet_gateway_id);
            text.string("vpc", vpc);
        }
    }
    for gateway in region.egress_only_gateways.iter() {
        let vpc = gateway.attachments.first().map(|at| at.vpc_id.as_str());
        if let Some(vpc) = vpc.filter(|vpc| scope.vpcs.contains(vpc)) {
            text.table("egress_only_gateway", &gateway.egress_only_internet_gateway_id);
            text.string("vpc", vpc);
        }
    }
    for endpoint in region.endpoints.iter().filter(|of| of.state == "available") {
        write_endpoint(scope, text, endpoint);
    }
    for gateway in region.nat_gateways.iter().filter(|gateway| gateway.state == "available") {
        if scope.subnets.contains(gateway.subnet_id.as_str()) {
            write_nat(scope, text, gateway);
        }
    }
}

/// Identifier of the prefix list of a gateway endpoint, if a file can describe the endpoint.
fn list_of<'a>(scope: &Scope<'a>, endpoint: &VpcEndpoint) -> Option<&'a str> {
    let list = scope.region.prefix_lists.find(|l| l.prefix_list_name == endpoint.service_name);
    let list = list.filter(|_| scope.vpcs.contains(endpoint.vpc_id.as_str()))?;
    let is_gateway = endpoint.vpc_endpoint_type == "Gateway" && endpoint.state == "available";
    is_gateway.then_some(list.prefix_list_id.as_str())
}

fn write_endpoint(scope: &mut Scope<'_>, text: &mut Text, endpoint: &VpcEndpoint) {
    let id = &endpoint.vpc_endpoint_id;
    match list_of(scope, endpoint) {
        Some(list) => {
            text.table("endpoint", id);
            text.string("vpc", &endpoint.vpc_id);
            text.string("prefix_list", list);
        }
        None if endpoint.vpc_endpoint_type != "Gateway" => {
            scope.warn(id, "no service answers at its interfaces");
        }
        None => {}
    }
}

fn write_nat(scope: &mut Scope<'_>, text: &mut Text, gateway: &NatGateway) {
    let id = &gateway.nat_gateway_id;
    let all = &gateway.nat_gateway_addresses;
    let Some(address) = all.iter().find(|a| a.is_primary).or(all.first()) else {
        scope.warn(id, "it has no address, so it does not run");
        return;
    };
    if all.len() > 1 {
        scope.warn(id, "only its primary address is used");
    }
    text.table("nat_gateway", id);
    text.string("subnet", &gateway.subnet_id);
    text.string("private", &address.private_ip.to_string());
    let allocation = address.allocation_id.as_ref();
    let allocation = allocation.filter(|id| scope.region.addresses.get(id).is_some());
    if let Some(allocation) = allocation.filter(|_| gateway.connectivity_type == "public") {
        text.string("elastic_address", allocation);
    }
}

/// Whether a file can describe a peering connection: both VPCs are in the text.
fn is_written(scope: &Scope<'_>, peering: &PeeringConnection) -> bool {
    let sides = [&peering.requester_vpc_info, &peering.accepter_vpc_info];
    PEERING_LIVES.contains(&peering.status.code.as_str())
        && sides.iter().all(|side| scope.vpcs.contains(side.vpc_id.as_str()))
        && !overlaps(scope, &sides.map(|side| side.vpc_id.as_str()))
}

fn overlaps(scope: &Scope<'_>, [a, b]: &[&str; 2]) -> bool {
    let [Some(a), Some(b)] = [a, b].map(|id| scope.region.vpcs.get(id)) else { return true };
    let meet = |x: &IpNet, y: &IpNet| x.contains(y) || y.contains(x);
    a.vpc_id == b.vpc_id || blocks(a).iter().any(|x| blocks(b).iter().any(|y| meet(x, y)))
}

fn blocks(vpc: &Vpc) -> Vec<IpNet> {
    let ipv4 = vpc.cidr_block_association_set.iter();
    let ipv4 = ipv4.filter(|own| own.cidr_block_state.state == "associated");
    let ipv6 = vpc.ipv6_cidr_block_association_set.iter();
    let ipv6 = ipv6.filter(|own| own.ipv6_cidr_block_state.state == "associated");
    let ipv4 = ipv4.map(|own| IpNet::V4(own.cidr_block));
    ipv4.chain(ipv6.map(|own| IpNet::V6(own.ipv6_cidr_block))).collect()
}

fn write_peering(scope: &mut Scope<'_>, text: &mut Text, peering: &PeeringConnection) {
    let id = &peering.vpc_peering_connection_id;
    let [one, other] =
        [&peering.requester_vpc_info, &peering.accepter_vpc_info].map(|side| &side.vpc_id);
    if is_written(scope, peering) {
        text.table("peering", id);
        text.string("requester", one);
        text.string("accepter", other);
        text.value("active", peering.status.code == "active");
    } else if PEERING_LIVES.contains(&peering.status.code.as_str()) {
        let here = |id: &String| scope.region.vpcs.get(id).is_some();
        if !here(one) || !here(other) {
            scope.warn(id, "its packets do not reach the VPC of another region or account");
        }
    }
}

fn write_table(scope: &mut Scope<'_>, text: &mut Text, table: &RouteTable) {
    let id = &table.route_table_id;
    let mut phrases = Vec::new();
    let mut known = BTreeSet::new();
    for route in &table.routes {
        let phrase = route_phrase(scope, table, route);
        phrases.extend(phrase.filter(|(key, _)| known.insert(key.clone())).map(|(_, text)| text));
    }
    text.table("route_table", id);
    text.string("vpc", &table.vpc_id);
    if table.associations.iter().any(|use_| use_.main) {
        text.value("main", true);
    }
    text.list("routes", phrases);
    for gateway in table.associations.iter().filter_map(|use_| use_.gateway_id.as_ref()) {
        scope.warn(id, format!("packets that enter by {gateway} do not use it"));
    }
}

/// Returns the destination and the phrase of a route; `None` if the file has the route without a
/// phrase, or cannot have it.
fn route_phrase(
    scope: &mut Scope<'_>,
    table: &RouteTable,
    route: &Route,
) -> Option<(String, String)> {
    let id = &table.route_table_id;
    let ipv4 = route.destination_cidr_block.map(|block| IpNet::V4(block.trunc()));
    let block = ipv4.or(route.destination_ipv6_cidr_block.map(|block| IpNet::V6(block.trunc())));
    let destination = match (block, &route.destination_prefix_list_id) {
        (Some(block), _) => block.to_string(),
        (None, Some(list)) if scope.region.prefix_lists.get(list).is_some() => {
            format!("list {list}")
        }
        _ => {
            scope.warn(id, "a route has no destination in this region");
            return None;
        }
    };
    if route.gateway_id.as_deref() == Some("local") {
        return None;
    }
    if block.is_some_and(|block| srd_vpc_file::is_reserved(&block)) {
        // `CreateRoute` refuses it, but earlier releases did not, and VPN connections propagate it.
        let what = "belongs to services of the network, and has no effect";
        scope.warn(id, format!("the destination of the route to {destination} {what}"));
        return None;
    }
    let target = target(scope, table, route);
    let list = route.destination_prefix_list_id.as_ref();
    let list = list.and_then(|id| scope.region.prefix_lists.get(id));
    let entries = list.map_or(&[][..], super::network::entries_of).iter();
    let mut leads_to = entries.filter_map(|entry| entry.cidr.parse().ok()).chain(block);
    let inside = leads_to.any(|block: IpNet| {
        let vpc = scope.region.vpcs.get(&table.vpc_id);
        vpc.is_some_and(|vpc| blocks(vpc).iter().any(|own| own.contains(&block)))
    });
    let takes_inside =
        |target: &String| target.starts_with("interface ") || target.starts_with("nat_gateway ");
    if inside && !target.as_ref().is_some_and(takes_inside) {
        scope.warn(id, format!("the route to {destination} inside the VPC has no effect"));
        return None;
    }
    let target = target.unwrap_or_else(|| {
        if route.state != "blackhole" {
            scope.warn(id, format!("packets to {destination} are dropped: no such target here"));
        }
        "blackhole".to_owned()
    });
    let is_propagated = route.origin == "EnableVgwRoutePropagation" && block.is_some();
    let end = if is_propagated { " propagated" } else { "" };
    Some((format!("{destination}{end}"), format!("{destination} to {target}{end}")))
}

/// Returns the words for the target of a route; `None` if the text does not contain it.
fn target(scope: &Scope<'_>, table: &RouteTable, route: &Route) -> Option<String> {
    let region = scope.region;
    let vpc = &table.vpc_id;
    let endpoint = route.gateway_id.as_ref().and_then(|id| region.endpoints.get(id));
    if let Some(endpoint) = endpoint {
        list_of(scope, endpoint)?;
        let id = &endpoint.vpc_endpoint_id;
        (&endpoint.vpc_id == vpc).then(|| format!("endpoint {id}"))
    } else if let Some(id) = &route.gateway_id {
        let gateway = region.internet_gateways.get(id)?;
        let at = gateway.attachments.first()?;
        (&at.vpc_id == vpc).then(|| format!("internet_gateway {id}"))
    } else if let Some(id) = &route.egress_only_internet_gateway_id {
        let gateway = region.egress_only_gateways.get(id)?;
        let at = gateway.attachments.first()?;
        (&at.vpc_id == vpc).then(|| format!("egress_only_gateway {id}"))
    } else if let Some(id) = &route.nat_gateway_id {
        let gateway = region.nat_gateways.get(id).filter(|g| g.state == "available")?;
        let is_here = &gateway.vpc_id == vpc && scope.subnets.contains(gateway.subnet_id.as_str());
        let has_address = !gateway.nat_gateway_addresses.is_empty();
        (is_here && has_address).then(|| format!("nat_gateway {id}"))
    } else if let Some(id) = &route.vpc_peering_connection_id {
        let peering = region.peerings.get(id).filter(|peering| is_written(scope, peering))?;
        let sides = [&peering.requester_vpc_info, &peering.accepter_vpc_info];
        sides.iter().any(|side| &side.vpc_id == vpc).then(|| format!("peering {id}"))
    } else {
        let primary = route.instance_id.as_ref().and_then(|instance| {
            let own = region.instances.get(instance)?;
            let first = scope.interfaces_of(own).first().copied()?;
            Some(&first.network_interface_id)
        });
        let id = route.network_interface_id.as_ref().or(primary)?;
        let interface = region.interfaces.get(id)?;
        let is_here = &interface.vpc_id == vpc
            && interface.interface_type != NAT_INTERFACE
            && scope.interfaces.contains(id.as_str());
        is_here.then(|| format!("interface {id}"))
    }
}
