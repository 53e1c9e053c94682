//! Writes the tables of running instances and of interfaces into the text of a `vpc.toml`.

use std::collections::BTreeSet;

use srd_card::profile::InstanceType;
use srd_enrol::pod::POD_TAG;

use super::Scope;
use super::toml_text::Text;
use crate::machines::pod_host;
use crate::state::{Instance, NetworkInterface};

/// Type of the machine of an instance whose own type is unknown to the card.
const TYPE_DEFAULT: &str = "c7i.large";

/// Attachment of an interface to a running instance.
struct Attached<'a> {
    instance: &'a str,
    device_index: u8,
    express: [bool; 2],
}

pub(super) fn write(scope: &mut Scope<'_>, text: &mut Text) {
    let region = scope.region;
    for instance in region.instances.iter() {
        if scope.instances.contains(instance.instance_id.as_str()) {
            write_instance(scope, text, instance);
        }
    }
    for interface in region.interfaces.iter() {
        let id = interface.network_interface_id.as_str();
        if scope.interfaces.contains(id) && !running_instance(scope, interface) {
            write_interface(scope, text, interface, None);
        }
    }
}

fn running_instance(scope: &Scope<'_>, interface: &NetworkInterface) -> bool {
    let instance = interface.attachment.as_ref().and_then(|at| at.instance_id.as_deref());
    instance.is_some_and(|id| scope.instances.contains(id))
}

fn write_instance(scope: &mut Scope<'_>, text: &mut Text, instance: &Instance) {
    let id = instance.instance_id.as_str();
    let kind = InstanceType::find(&instance.instance_type).or_else(|_| {
        let of = &instance.instance_type;
        scope.warn(id, format!("the type {of} is unknown: the limits of {TYPE_DEFAULT} apply"));
        InstanceType::find(TYPE_DEFAULT)
    });
    let Ok(kind) = kind else { return };
    text.table("instance", id);
    text.string("type", kind.name);
    text.string("zone", &instance.availability_zone);
    if let Some(host) = instance.host.as_deref().filter(|_| scope.is_part) {
        text.string("host", host);
    }
    if let Some(tag) = instance.tags.iter().find(|tag| tag.key == POD_TAG) {
        let has_pod = !scope.is_part || pod_host(instance) == instance.host.as_deref();
        match (is_pod(&tag.value), has_pod) {
            (true, true) => text.string("pod", &tag.value),
            (true, false) => scope.warn(id, "only its host requests the instance of a pod"),
            (false, _) => scope.warn(id, format!("`{}` is no name of a pod", tag.value)),
        }
    }
    let interfaces = scope.interfaces_of(instance).to_vec();
    let mut used = BTreeSet::new();
    for (place, interface) in interfaces.into_iter().enumerate() {
        let of = interface.network_interface_id.as_str();
        if place >= usize::from(kind.enis_max) {
            let most = kind.enis_max;
            scope.warn(of, format!("{id} cannot use it: {} has {most} interfaces", kind.name));
            write_interface(scope, text, interface, None);
            continue;
        }
        let wanted = interface.attachment.as_ref().map_or(0, |at| at.device_index);
        let wanted = u8::try_from(wanted).ok().filter(|index| !used.contains(index));
        let free = || (0..=u8::MAX).find(|index| !used.contains(index)).unwrap_or(u8::MAX);
        let device_index = wanted.unwrap_or_else(free);
        if wanted.is_none() {
            scope.warn(of, format!("it has the device index {device_index} in the machine"));
        }
        used.insert(device_index);
        let express =
            interface.attachment.as_ref().and_then(|at| at.ena_srd_specification.as_ref());
        let tcp = express.is_some_and(|express| express.ena_srd_enabled);
        let udp = express.is_some_and(|e| e.ena_srd_udp_specification.ena_srd_udp_enabled);
        if tcp && !kind.ena_srd {
            scope.warn(of, format!("{} has no ENA Express", kind.name));
        }
        let express = [tcp && kind.ena_srd, tcp && udp && kind.ena_srd];
        let attached = Attached { instance: id, device_index, express };
        write_interface(scope, text, interface, Some(&attached));
    }
}

fn is_pod(name: &str) -> bool {
    let good = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    (1..=40).contains(&name.len()) && !name.starts_with('-') && name.bytes().all(good)
}

fn write_interface(
    scope: &mut Scope<'_>,
    text: &mut Text,
    interface: &NetworkInterface,
    attached: Option<&Attached<'_>>,
) {
    let id = interface.network_interface_id.as_str();
    let subnet = scope.region.subnets.get(&interface.subnet_id);
    let ipv6 = subnet.and_then(|subnet| {
        let mut own = subnet.ipv6_cidr_block_association_set.iter();
        own.find(|own| own.ipv6_cidr_block_state.state == "associated")
    });
    let ipv6 = ipv6.map(|own| own.ipv6_cidr_block);
    let mut addresses: Vec<String> = Vec::new();
    let (first, others): (Vec<_>, Vec<_>) =
        interface.private_ip_addresses.iter().partition(|address| address.primary);
    addresses.extend(first.into_iter().chain(others).map(|a| a.private_ip_address.to_string()));
    for address in interface.ipv6_addresses.iter().map(|address| address.ipv6_address) {
        if ipv6.is_some_and(|block| block.contains(&address)) {
            addresses.push(address.to_string());
        } else {
            scope.warn(id, format!("the address {address} is not used"));
        }
    }
    let mut prefixes: Vec<String> =
        interface.ipv4_prefixes.iter().map(|prefix| prefix.ipv4_prefix.to_string()).collect();
    for prefix in interface.ipv6_prefixes.iter().map(|prefix| prefix.ipv6_prefix) {
        if ipv6.is_some_and(|block| block.contains(&prefix)) {
            prefixes.push(prefix.to_string());
        } else {
            scope.warn(id, format!("the prefix {prefix} is not used"));
        }
    }
    let groups: Vec<&str> = interface.groups.iter().map(|group| group.group_id.as_str()).collect();
    if groups.is_empty() {
        // A file gives an interface without groups the default group of its VPC.
        text.table("group", &format!("{id}-closed"));
        text.string("vpc", &interface.vpc_id);
        text.list("egress", Vec::<String>::new());
    }
    text.table("interface", id);
    text.string("subnet", &interface.subnet_id);
    text.list("address", addresses);
    if !prefixes.is_empty() {
        text.list("prefixes", prefixes);
    }
    match groups.is_empty() {
        true => text.list("groups", [format!("{id}-closed")]),
        false => text.list("groups", groups),
    }
    text.value("source_dest_check", interface.source_dest_check);
    if let Some(Attached { instance, device_index, express: [tcp, udp] }) = attached {
        text.string("instance", instance);
        text.value("device_index", device_index);
        if *tcp {
            text.value("express", true);
            text.value("express_udp", udp);
        }
    }
    write_timeouts(scope, text, interface);
}

fn write_timeouts(scope: &mut Scope<'_>, text: &mut Text, interface: &NetworkInterface) {
    let Some(tracking) = &interface.connection_tracking_configuration else { return };
    let timeouts = [
        ("tcp_established_timeout", tracking.tcp_established_timeout, 60..=432_000),
        ("udp_stream_timeout", tracking.udp_stream_timeout, 60..=180),
        ("udp_timeout", tracking.udp_timeout, 30..=60),
    ];
    for (key, seconds, range) in timeouts {
        match seconds {
            Some(seconds) if range.contains(&seconds) => text.value(key, seconds),
            Some(seconds) => {
                let what = format!("{key} of {seconds} s has no effect");
                scope.warn(&interface.network_interface_id, what);
            }
            None => {}
        }
    }
}
