//! Descriptions of interfaces, with the public addresses that are mapped to them.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::field::{self, Condition};
use super::support::show;
use crate::regions;
use crate::state::{Address, NetworkInterface, Region};

/// Returns an interface as its description.
pub(super) fn view(region: &Region, interface: &NetworkInterface) -> Value {
    let mut shown = show(interface);
    shown["TagSet"] = shown["Tags"].take();
    let primary = association(region, interface);
    if let Some(list) = shown["PrivateIpAddresses"].as_array_mut() {
        for (of, address) in list.iter_mut().zip(&interface.private_ip_addresses) {
            if let Some(elastic) = elastic(region, interface, Some(address.private_ip_address)) {
                of["Association"] = association_of(region, interface, elastic);
            }
        }
        if let (Some(first), Some(primary)) = (list.first_mut(), &primary) {
            first["Association"] = primary.clone();
        }
    }
    if let Some(primary) = primary {
        shown["Association"] = primary;
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

/// Whether a value at a path of the description meets the condition; `None` if the description
/// shows the fields of the interface there.
pub(super) fn derived(
    region: &Region,
    interface: &NetworkInterface,
    path: &[&str],
    condition: Condition<'_>,
) -> Option<bool> {
    match path {
        ["Association", rest @ ..] => Some(
            association(region, interface)
                .is_some_and(|value| field::found(&value, rest, condition)),
        ),
        ["PrivateIpAddresses", "Association", ..] => {
            let has_public = interface.auto_public_ip.is_some()
                || region.addresses.linked(&interface.network_interface_id).next().is_some();
            let found = || field::found(&view(region, interface), path, condition);
            Some(has_public && found())
        }
        ["AvailabilityZoneId"] => {
            let subnet = region.subnets.get(&interface.subnet_id);
            Some(subnet.is_some_and(|subnet| condition(&subnet.availability_zone_id)))
        }
        _ => None,
    }
}

/// Whether a value at a path of the description meets the condition.
pub(super) fn has(
    region: &Region,
    interface: &NetworkInterface,
    path: &[&str],
    condition: Condition<'_>,
) -> bool {
    let derived = derived(region, interface, path, condition);
    derived.unwrap_or_else(|| field::has(interface, path, condition))
}

/// Returns the elastic address that is mapped to a private address of the interface.
fn elastic<'a>(
    region: &'a Region,
    interface: &NetworkInterface,
    private: Option<Ipv4Addr>,
) -> Option<&'a Address> {
    let mut elastic = region.addresses.linked(&interface.network_interface_id);
    elastic.find(|address| address.private_ip_address == private)
}

/// Returns the public address of the interface's primary address, as its description.
pub(super) fn association(region: &Region, interface: &NetworkInterface) -> Option<Value> {
    if let Some(elastic) = elastic(region, interface, interface.private_ip_address) {
        return Some(association_of(region, interface, elastic));
    }
    let ip = interface.auto_public_ip?;
    let mut association = json!({"IpOwnerId": "amazon", "PublicIp": ip});
    if has_names(region, interface) {
        association["PublicDnsName"] = public_name(region, ip).into();
    }
    Some(association)
}

/// Whether public addresses of the interface have names.
fn has_names(region: &Region, interface: &NetworkInterface) -> bool {
    region.vpcs.get(&interface.vpc_id).is_some_and(|vpc| vpc.enable_dns_hostnames)
}

fn association_of(region: &Region, interface: &NetworkInterface, address: &Address) -> Value {
    let mut shown = json!({
        "AllocationId": address.allocation_id,
        "AssociationId": address.association_id,
        "IpOwnerId": region.account,
        "PublicIp": address.public_ip,
    });
    if has_names(region, interface) {
        shown["PublicDnsName"] = public_name(region, address.public_ip).into();
    }
    shown
}

/// Name of a public address.
pub(super) fn public_name(region: &Region, address: Ipv4Addr) -> String {
    let dashed = address.to_string().replace('.', "-");
    let domain = regions::domain(&region.name);
    match region.name.as_str() {
        "us-east-1" => format!("ec2-{dashed}.compute-1.{domain}"),
        name => format!("ec2-{dashed}.{name}.compute.{domain}"),
    }
}

/// Name of a private address.
pub(super) fn private_name(region: &Region, address: Ipv4Addr) -> String {
    let dashed = address.to_string().replace('.', "-");
    match region.name.as_str() {
        "us-east-1" => format!("ip-{dashed}.ec2.internal"),
        name => format!("ip-{dashed}.{name}.compute.internal"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::IdGenerator;

    /// A regression: names of public addresses in China ended with `amazonaws.com`.
    #[test]
    fn names_of_public_addresses_end_with_the_domain_of_the_region() {
        let name = |region: &str| {
            let region = Region::empty("1", region, IdGenerator::new(1));
            public_name(&region, Ipv4Addr::new(198, 18, 0, 7))
        };
        assert_eq!(name("us-east-1"), "ec2-198-18-0-7.compute-1.amazonaws.com");
        assert_eq!(name("eu-west-1"), "ec2-198-18-0-7.eu-west-1.compute.amazonaws.com");
        assert_eq!(name("cn-north-1"), "ec2-198-18-0-7.cn-north-1.compute.amazonaws.com.cn");
    }
}
