//! Exits of a cloud: gateways, elastic addresses, peering connections, endpoints. Also the check
//! that routes lead only to exits of their own cloud.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use srd_vpc::id::*;
use srd_vpc::object::*;
use toml::Spanned;

use super::build::{Build, Result};
use super::document::Document;
use super::names::Kind;

pub(crate) fn build(build: &mut Build<'_>, document: &Document) -> Result<()> {
    gateways(build, document)?;
    nat_gateways(build, document)?;
    addresses(build, document)?;
    peerings(build, document)?;
    endpoints(build, document)?;
    targets(build, document)
}

fn gateways(build: &mut Build<'_>, document: &Document) -> Result<()> {
    let mut with_gateway = BTreeSet::new();
    for (name, spanned) in &document.internet_gateway {
        let id = InternetGatewayId(build.find(Kind::InternetGateway, name)?);
        let vpc = build.vpc(&spanned.as_ref().vpc, spanned.span())?;
        if !with_gateway.insert(vpc) {
            let what = "the cloud has an internet gateway already";
            return Err(build.error(name.span(), what, "leave one of them"));
        }
        let gateway = InternetGateway { name: name.as_ref().clone(), vpc: Some(vpc) };
        build.world.internet_gateways.insert(id, gateway);
    }
    for (name, spanned) in &document.egress_only_gateway {
        let id = EgressOnlyGatewayId(build.find(Kind::EgressOnlyGateway, name)?);
        let vpc = build.vpc(&spanned.as_ref().vpc, spanned.span())?;
        let gateway = EgressOnlyGateway { name: name.as_ref().clone(), vpc };
        build.world.egress_only_gateways.insert(id, gateway);
    }
    Ok(())
}

fn ipv4(build: &Build<'_>, text: &Spanned<String>) -> Result<Ipv4Addr> {
    text.as_ref().parse().map_err(|_| {
        let what = format!("`{}` is no IPv4 address", text.as_ref());
        build.error(text.span(), what, "as in 198.51.100.10")
    })
}

fn nat_gateways(build: &mut Build<'_>, document: &Document) -> Result<()> {
    for (name, spanned) in &document.nat_gateway {
        let id = NatGatewayId(build.find(Kind::NatGateway, name)?);
        let table = spanned.as_ref();
        let subnet_id = SubnetId(build.find(Kind::Subnet, &table.subnet)?);
        let private = ipv4(build, &table.private)?;
        let inside = build.world.subnets.get(&subnet_id);
        if !inside.is_some_and(|subnet| subnet.ipv4.contains(&private)) {
            let what = format!("{private} is not in subnet `{}`", table.subnet.as_ref());
            return Err(build.error(table.private.span(), what, "take one inside its `cidr`"));
        }
        let vpc = inside.map(|subnet| subnet.vpc);
        let block = IpNet::from(IpAddr::from(private));
        if let Some(eni) = vpc.and_then(|vpc| build.addresses.owner(vpc, block)) {
            let what = format!("{private} belongs to interface `{}`", build.interface_name(eni));
            return Err(build.error(table.private.span(), what, "take another"));
        }
        let address = match &table.elastic_address {
            Some(name) => Some(AllocationId(build.find(Kind::ElasticAddress, name)?)),
            None => None,
        };
        let gateway =
            NatGateway { name: name.as_ref().clone(), subnet: subnet_id, private, address };
        build.world.nat_gateways.insert(id, gateway);
    }
    Ok(())
}

fn addresses(build: &mut Build<'_>, document: &Document) -> Result<()> {
    let (mut publics, mut privates) = (BTreeSet::new(), BTreeSet::new());
    for (name, spanned) in &document.elastic_address {
        let id = AllocationId(build.find(Kind::ElasticAddress, name)?);
        let table = spanned.as_ref();
        let public = ipv4(build, &table.public)?;
        if !publics.insert(public) {
            let what = format!("{public} is another elastic address already");
            return Err(build.error(table.public.span(), what, "take another"));
        }
        let association = match &table.interface {
            None => None,
            Some(interface) => {
                let eni_id = EniId(build.find(Kind::Interface, interface)?);
                let eni = build.world.enis.get(&eni_id);
                let private = match &table.private {
                    Some(text) => ipv4(build, text)?,
                    None => eni.map_or(Ipv4Addr::UNSPECIFIED, |eni| eni.ipv4[0]),
                };
                if !eni.is_some_and(|eni| eni.ipv4.contains(&private)) {
                    let span = table.private.as_ref().map_or(interface.span(), Spanned::span);
                    let what = format!("{private} is no address of `{}`", interface.as_ref());
                    return Err(build.error(span, what, "name one of its addresses"));
                }
                if !privates.insert((eni_id, private)) {
                    let what = format!("{private} has an elastic address already");
                    return Err(build.error(interface.span(), what, "leave one of them"));
                }
                Some((eni_id, private))
            }
        };
        let address = ElasticAddress { name: name.as_ref().clone(), public, association };
        build.world.addresses.insert(id, address);
    }
    Ok(())
}

fn peerings(build: &mut Build<'_>, document: &Document) -> Result<()> {
    for (name, spanned) in &document.peering {
        let id = PeeringId(build.find(Kind::Peering, name)?);
        let table = spanned.as_ref();
        let requester = VpcId(build.find(Kind::Vpc, &table.requester)?);
        let accepter = VpcId(build.find(Kind::Vpc, &table.accepter)?);
        let blocks = |id: VpcId| {
            build.world.vpcs.get(&id).into_iter().flat_map(|vpc| {
                let v4 = vpc.ipv4.iter().map(|block| IpNet::V4(*block));
                v4.chain(vpc.ipv6.iter().map(|block| IpNet::V6(*block)))
            })
        };
        let overlap =
            blocks(requester).any(|a| blocks(accepter).any(|b| a.contains(&b) || b.contains(&a)));
        if requester == accepter || overlap {
            let what = "clouds whose blocks overlap cannot be peered";
            return Err(build.error(name.span(), what, "give one of them other blocks"));
        }
        let active = table.active.unwrap_or(true);
        let peering = Peering { name: name.as_ref().clone(), requester, accepter, active };
        build.world.peerings.insert(id, peering);
    }
    Ok(())
}

fn endpoints(build: &mut Build<'_>, document: &Document) -> Result<()> {
    for (name, spanned) in &document.endpoint {
        let id = EndpointId(build.find(Kind::Endpoint, name)?);
        let table = spanned.as_ref();
        let vpc = build.vpc(&table.vpc, spanned.span())?;
        let list = PrefixListId(build.find(Kind::PrefixList, &table.prefix_list)?);
        let always_tracked = table.always_tracked.unwrap_or(false);
        let endpoint = Endpoint { name: name.as_ref().clone(), vpc, list, always_tracked };
        build.world.endpoints.insert(id, endpoint);
    }
    Ok(())
}

/// Checks that routes lead to objects of their own cloud.
fn targets(build: &Build<'_>, document: &Document) -> Result<()> {
    let world = &build.world;
    let of_subnet = |id: SubnetId| world.subnets.get(&id).map(|subnet| subnet.vpc);
    for (name, spanned) in &document.route_table {
        let id = RouteTableId(build.find(Kind::RouteTable, name)?);
        let Some(table) = world.route_tables.get(&id) else { continue };
        for (route, text) in table.routes.iter().zip(&spanned.as_ref().routes) {
            let here = |vpc: Option<VpcId>| vpc == Some(table.vpc);
            let own = match route.target {
                Target::Local | Target::Blackhole => true,
                Target::InternetGateway(id) => {
                    here(world.internet_gateways.get(&id).and_then(|gateway| gateway.vpc))
                }
                Target::EgressOnlyGateway(id) => {
                    here(world.egress_only_gateways.get(&id).map(|gateway| gateway.vpc))
                }
                Target::NatGateway(id) => {
                    here(world.nat_gateways.get(&id).and_then(|gateway| of_subnet(gateway.subnet)))
                }
                Target::Peering(id) => world.peerings.get(&id).is_some_and(|peering| {
                    [peering.requester, peering.accepter].contains(&table.vpc)
                }),
                Target::Endpoint(id) => here(world.endpoints.get(&id).map(|endpoint| endpoint.vpc)),
                Target::Eni(id) => here(world.enis.get(&id).and_then(|eni| of_subnet(eni.subnet))),
            };
            if !own {
                let what = "this target belongs to another cloud";
                return Err(build.error(text.span(), what, "name one of the table's own cloud"));
            }
        }
    }
    Ok(())
}
