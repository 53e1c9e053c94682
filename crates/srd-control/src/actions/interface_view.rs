//! Descriptions of interfaces, with the public addresses that are mapped to them.

use serde_json::{Value, json};

use super::support::show;
use crate::state::{Address, NetworkInterface, Region};

/// Returns an interface as its description.
pub(super) fn view(region: &Region, interface: &NetworkInterface) -> Value {
    let mut shown = show(interface);
    shown["TagSet"] = shown["Tags"].take();
    let mapped = |address: &&Address| {
        address.network_interface_id.as_ref() == Some(&interface.network_interface_id)
    };
    let addresses: Vec<&Address> = region.addresses.iter().filter(mapped).collect();
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
