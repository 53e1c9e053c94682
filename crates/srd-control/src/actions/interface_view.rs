//! Descriptions of interfaces, with the public addresses that are mapped to them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::support::show;
use crate::state::{Address, NetworkInterface, Region};

/// The interfaces of each instance and the elastic addresses of each interface, found in one pass.
#[derive(Default)]
pub(super) struct Links<'a> {
    interfaces: BTreeMap<&'a str, Vec<&'a NetworkInterface>>,
    addresses: BTreeMap<&'a str, Vec<&'a Address>>,
}

impl<'a> Links<'a> {
    /// The links of a region.
    pub(super) fn new(region: &'a Region) -> Self {
        let mut links = Self::default();
        for interface in region.interfaces.iter() {
            let attachment = interface.attachment.as_ref();
            if let Some(instance) = attachment.and_then(|of| of.instance_id.as_deref()) {
                links.interfaces.entry(instance).or_default().push(interface);
            }
        }
        for interfaces in links.interfaces.values_mut() {
            interfaces.sort_by_key(|of| of.attachment.as_ref().map(|a| a.device_index));
        }
        for address in region.addresses.iter() {
            if let Some(interface) = address.network_interface_id.as_deref() {
                links.addresses.entry(interface).or_default().push(address);
            }
        }
        links
    }

    /// The interfaces of an instance, ordered by their devices.
    pub(super) fn interfaces(&self, instance: &str) -> &[&'a NetworkInterface] {
        self.interfaces.get(instance).map_or(&[], Vec::as_slice)
    }
}

/// Returns an interface as its description.
pub(super) fn view(region: &Region, interface: &NetworkInterface, links: &Links<'_>) -> Value {
    let mut shown = show(interface);
    shown["TagSet"] = shown["Tags"].take();
    let addresses = links.addresses.get(interface.network_interface_id.as_str());
    let addresses = addresses.map_or(&[][..], Vec::as_slice);
    let dns = region.vpcs.get(&interface.vpc_id).is_some_and(|vpc| vpc.enable_dns_hostnames);
    if let Some(list) = shown["PrivateIpAddresses"].as_array_mut() {
        for of in list {
            let association = addresses.iter().find(|address| {
                address.private_ip_address.is_some_and(|ip| of["PrivateIpAddress"] == json!(ip))
            });
            if let Some(address) = association {
                of["Association"] = association_of(region, address, dns);
            }
        }
    }
    let primary = addresses.iter().find(|a| a.private_ip_address == interface.private_ip_address);
    if let Some(address) = primary {
        shown["Association"] = association_of(region, address, dns);
    } else if let Some(ip) = interface.auto_public_ip {
        let mut association = json!({"IpOwnerId": "amazon", "PublicIp": ip});
        if dns {
            association["PublicDnsName"] = public_name(region, ip).into();
        }
        shown["PrivateIpAddresses"][0]["Association"] = association.clone();
        shown["Association"] = association;
    }
    if let Some(first) = interface.ipv6_addresses.first() {
        shown["Ipv6Address"] = json!(first.ipv6_address);
    }
    if let Some(subnet) = region.subnets.get(&interface.subnet_id) {
        shown["Ipv6Native"] = subnet.ipv6_native.into();
        shown["AvailabilityZoneId"] = subnet.availability_zone_id.clone().into();
    }
    shown
}

fn association_of(region: &Region, address: &Address, dns: bool) -> Value {
    let mut shown = json!({
        "AllocationId": address.allocation_id,
        "AssociationId": address.association_id,
        "IpOwnerId": region.account,
        "PublicIp": address.public_ip,
    });
    if dns {
        shown["PublicDnsName"] = public_name(region, address.public_ip).into();
    }
    shown
}

/// Name of a public address.
pub(super) fn public_name(region: &Region, address: std::net::Ipv4Addr) -> String {
    let dashed = address.to_string().replace('.', "-");
    match region.name.as_str() {
        "us-east-1" => format!("ec2-{dashed}.compute-1.amazonaws.com"),
        name => format!("ec2-{dashed}.{name}.compute.amazonaws.com"),
    }
}

/// Name of a private address.
pub(super) fn private_name(region: &Region, address: std::net::Ipv4Addr) -> String {
    let dashed = address.to_string().replace('.', "-");
    match region.name.as_str() {
        "us-east-1" => format!("ip-{dashed}.ec2.internal"),
        name => format!("ip-{dashed}.{name}.compute.internal"),
    }
}
