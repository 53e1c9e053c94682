//! Actions of the EC2 API on network interfaces.

use std::net::Ipv4Addr;

use serde_json::{Value, json};
use srd_vpc::id::EniId;

use super::interface_address::{self as addresses, Named, Target};
use super::interface_view::{derived, private_name, view};
use super::launch::kind;
use super::list::Listing;
use super::source::Source;
use super::support::{get, get_mut, ipv4, new_tags, not_found, now, success};
use super::{Actions, Handler, address, free, mirror_session};
use crate::error::{ApiError, ApiResult};
use crate::state::interface::{
    Attachment, ConnectionTracking, EnaSrdSpecification, EnaSrdUdpSpecification, GroupIdentifier,
};
use crate::state::{NetworkInterface, Region, Subnet};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateNetworkInterface", Handler::Region(create)),
    ("DescribeNetworkInterfaces", Handler::Region(describe)),
    ("DescribeNetworkInterfaceAttribute", Handler::Region(describe_attribute)),
    ("ModifyNetworkInterfaceAttribute", Handler::Region(modify)),
    ("ResetNetworkInterfaceAttribute", Handler::Region(reset)),
    ("AttachNetworkInterface", Handler::Region(attach)),
    ("DetachNetworkInterface", Handler::Region(detach)),
    ("DeleteNetworkInterface", Handler::Region(delete)),
];

/// Largest number of security groups of an interface.
pub(super) const GROUPS_MAX: usize = 16;
/// Largest number of interfaces of an instance: that of the largest instance types.
pub(super) const DEVICES_MAX: i64 = 15;

pub(super) const LISTING: Listing = Listing {
    ids: "NetworkInterfaceIds",
    id: "NetworkInterfaceId",
    not_found: |id| not_found("eni", id),
    filters: &[
        ("addresses.association.public-ip", "PrivateIpAddresses.Association.PublicIp"),
        ("addresses.primary", "PrivateIpAddresses.Primary"),
        ("addresses.private-ip-address", "PrivateIpAddresses.PrivateIpAddress"),
        ("association.allocation-id", "Association.AllocationId"),
        ("association.association-id", "Association.AssociationId"),
        ("association.ip-owner-id", "Association.IpOwnerId"),
        ("association.public-dns-name", "Association.PublicDnsName"),
        ("association.public-ip", "Association.PublicIp"),
        ("attachment.attach-time", "Attachment.AttachTime"),
        ("attachment.attachment-id", "Attachment.AttachmentId"),
        ("attachment.delete-on-termination", "Attachment.DeleteOnTermination"),
        ("attachment.device-index", "Attachment.DeviceIndex"),
        ("attachment.instance-id", "Attachment.InstanceId"),
        ("attachment.instance-owner-id", "Attachment.InstanceOwnerId"),
        ("attachment.status", "Attachment.Status"),
        ("availability-zone", "AvailabilityZone"),
        ("availability-zone-id", "AvailabilityZoneId"),
        ("description", "Description"),
        ("group-id", "Groups.GroupId"),
        ("group-name", "Groups.GroupName"),
        ("interface-type", "InterfaceType"),
        ("ipv6-addresses.ipv6-address", "Ipv6Addresses.Ipv6Address"),
        ("mac-address", "MacAddress"),
        ("network-interface-id", "NetworkInterfaceId"),
        ("owner-id", "OwnerId"),
        ("private-dns-name", "PrivateDnsName"),
        ("private-ip-address", "PrivateIpAddress"),
        ("requester-id", "RequesterId"),
        ("requester-managed", "RequesterManaged"),
        ("source-dest-check", "SourceDestCheck"),
        ("status", "Status"),
        ("subnet-id", "SubnetId"),
        ("vpc-id", "VpcId"),
    ],
    result: "NetworkInterfaces",
};

/// Returns the groups with these identifiers, which must belong to the VPC. Without identifiers, it
/// is the default group of the VPC.
pub(super) fn groups(region: &Region, vpc: &str, ids: &[&str]) -> ApiResult<Vec<GroupIdentifier>> {
    let of = |group: &crate::state::SecurityGroup| GroupIdentifier {
        group_id: group.group_id.clone(),
        group_name: group.group_name.clone(),
    };
    if ids.is_empty() {
        let default = super::group::by_name(region, Some(vpc), "default");
        return Ok(default.map(of).into_iter().collect());
    }
    if ids.len() > GROUPS_MAX {
        let message = "The maximum number of security groups per interface has been reached.";
        return Err(ApiError::limit("SecurityGroupsPerInterfaceLimitExceeded", message));
    }
    let mut groups: Vec<GroupIdentifier> = Vec::new();
    for id in ids {
        let group = get(&region.groups, id)?;
        if group.vpc_id != vpc {
            let message = format!("The security group '{id}' belongs to another VPC");
            return Err(ApiError::new("InvalidGroup.NotFound", message));
        }
        if !groups.iter().any(|old| old.group_id == **id) {
            groups.push(of(group));
        }
    }
    Ok(groups)
}

/// Adds an interface to a subnet, with a primary address if the subnet has IPv4 addresses.
pub(super) fn add(
    region: &mut Region,
    subnet: &Subnet,
    groups: Vec<GroupIdentifier>,
    primary: Option<Ipv4Addr>,
) -> ApiResult<NetworkInterface> {
    let ip = match primary {
        Some(ip) => {
            addresses::check_v4(region, subnet, ip)?;
            Some(ip)
        }
        None if subnet.cidr_block.is_none() => None,
        None => free::v4(region, subnet, 1)?.first().copied(),
    };
    let entry = ip.map(|ip| addresses::entry(region, &subnet.vpc_id, ip, true));
    let id = EniId(region.ids.next_u64());
    let interface = NetworkInterface {
        network_interface_id: id.to_string(),
        owner_id: region.account.clone(),
        vpc_id: subnet.vpc_id.clone(),
        subnet_id: subnet.subnet_id.clone(),
        availability_zone: subnet.availability_zone.clone(),
        description: String::new(),
        interface_type: "interface".to_owned(),
        mac_address: id.mac().map(|byte| format!("{byte:02x}")).join(":"),
        private_ip_address: ip,
        private_dns_name: ip.map(|ip| private_name(region, ip)),
        private_ip_addresses: entry.into_iter().collect(),
        ipv6_addresses: Vec::new(),
        ipv4_prefixes: Vec::new(),
        ipv6_prefixes: Vec::new(),
        groups,
        source_dest_check: true,
        status: "available".to_owned(),
        requester_id: Some(region.account.clone()),
        requester_managed: false,
        attachment: None,
        auto_public_ip: None,
        ena_srd_specification: None,
        connection_tracking_configuration: None,
        tags: Vec::new(),
    };
    region.interfaces.insert(interface.clone());
    if subnet.assign_ipv6_address_on_creation && !subnet.ipv6_cidr_block_association_set.is_empty()
    {
        for ip in free::v6(region, subnet, 1)? {
            addresses::add_v6(region, &interface.network_interface_id, ip)?;
        }
    }
    Ok(get(&region.interfaces, &interface.network_interface_id)?.clone())
}

/// Adds the further addresses and prefixes of a request to an interface. The parameters of
/// `CreateNetworkInterface` and of an interface in `RunInstances` have the same names.
pub(super) fn add_addresses(
    region: &mut Region,
    interface: &mut NetworkInterface,
    subnet: &Subnet,
    request: &Request,
) -> ApiResult<()> {
    region.interfaces.insert(interface.clone());
    let id = interface.network_interface_id.as_str();
    let target = Target { id, subnet, request };
    let named = Named {
        addresses: members(request, "PrivateIpAddresses", "PrivateIpAddress"),
        prefixes: members(request, "Ipv4Prefixes", "Ipv4Prefix"),
    };
    addresses::add_all_v4(region, &target, &named)?;
    let named = Named {
        addresses: members(request, "Ipv6Addresses", "Ipv6Address"),
        prefixes: members(request, "Ipv6Prefixes", "Ipv6Prefix"),
    };
    addresses::add_all_v6(region, &target, &named)?;
    *interface = get(&region.interfaces, id)?.clone();
    if request.flag("EnablePrimaryIpv6") == Some(true)
        && let Some(first) = interface.ipv6_addresses.first_mut()
    {
        first.is_primary_ipv6 = true;
    }
    Ok(())
}

/// Returns the text of this name from each structure in a list. If the text is missing in a
/// structure, the result contains an empty text for it.
fn members<'a>(request: &'a Request, list: &str, name: &str) -> Vec<&'a str> {
    let list = request.list(list).iter();
    list.map(|of| of[name].as_str().unwrap_or_default()).collect()
}

/// Returns the primary address that a request names.
pub(super) fn primary(request: &Request) -> ApiResult<Option<Ipv4Addr>> {
    let list = request.list("PrivateIpAddresses");
    let marked = list.iter().find(|of| of["Primary"].as_bool() == Some(true));
    let marked = marked.and_then(|of| of["PrivateIpAddress"].as_str());
    match (request.text("PrivateIpAddress"), marked) {
        (Some(ip), Some(marked)) if ip != marked => {
            let message = "Only one primary private IP address can be specified";
            Err(ApiError::combination(message))
        }
        (Some(ip), _) | (None, Some(ip)) => ipv4(ip).map(Some),
        (None, None) => Ok(None),
    }
}

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "network-interface")?;
    let subnet = get(&region.subnets, request.need("SubnetId")?)?.clone();
    let groups = groups(region, &subnet.vpc_id, &request.texts("Groups"))?;
    let tracking = tracking(request)?;
    let mut interface = add(region, &subnet, groups, primary(request)?)?;
    request.text("Description").unwrap_or_default().clone_into(&mut interface.description);
    if let Some(kind) = request.text("InterfaceType") {
        kind.clone_into(&mut interface.interface_type);
    }
    interface.connection_tracking_configuration = tracking;
    interface.tags = tags;
    add_addresses(region, &mut interface, &subnet, request)?;
    let mut shown = view(region, &interface);
    shown["Status"] = "pending".into();
    region.interfaces.insert(interface);
    Ok(json!({"NetworkInterface": shown, "ClientToken": request.text("ClientToken")}))
}

/// Returns the timeouts of connection tracking of a request.
pub(super) fn tracking(request: &Request) -> ApiResult<Option<ConnectionTracking>> {
    let Some(of) = request.part("ConnectionTrackingSpecification") else { return Ok(None) };
    let seconds = |name: &str, range: std::ops::RangeInclusive<i64>| match of[name].as_i64() {
        None => Ok(None),
        Some(seconds) if range.contains(&seconds) => Ok(Some(seconds)),
        Some(seconds) => {
            let (low, high) = (range.start(), range.end());
            let message =
                format!("Value ({seconds}) for parameter {name} is invalid. It is {low} to {high}");
            Err(ApiError::invalid(message))
        }
    };
    Ok(Some(ConnectionTracking {
        tcp_established_timeout: seconds("TcpEstablishedTimeout", 60..=432_000)?,
        udp_stream_timeout: seconds("UdpStreamTimeout", 60..=180)?,
        udp_timeout: seconds("UdpTimeout", 30..=60)?,
    }))
}

/// Returns the settings of ENA Express of a request. Members that it does not name keep their old
/// values.
pub(super) fn ena_srd(
    request: &Request,
    old: Option<&EnaSrdSpecification>,
) -> ApiResult<Option<EnaSrdSpecification>> {
    let Some(of) = request.part("EnaSrdSpecification") else { return Ok(None) };
    let old = old.cloned().unwrap_or_default();
    let enabled = of["EnaSrdEnabled"].as_bool().unwrap_or(old.ena_srd_enabled);
    let udp = of["EnaSrdUdpSpecification"]["EnaSrdUdpEnabled"].as_bool();
    if udp == Some(true) && !enabled {
        let message = "ENA Express for UDP needs ENA Express to be enabled";
        return Err(ApiError::combination(message));
    }
    let udp = udp.unwrap_or(old.ena_srd_udp_specification.ena_srd_udp_enabled) && enabled;
    Ok(Some(EnaSrdSpecification {
        ena_srd_enabled: enabled,
        ena_srd_udp_specification: EnaSrdUdpSpecification { ena_srd_udp_enabled: udp },
    }))
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    LISTING.describe(request, &source(region))
}

/// The interfaces of a region with their descriptions.
pub(super) fn source(region: &Region) -> Source<'_, NetworkInterface> {
    Source::new(&region.interfaces).shown(
        move |interface| view(region, interface),
        move |interface, path, condition| derived(region, interface, path, condition),
    )
}

fn describe_attribute(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let interface = get(&region.interfaces, request.need("NetworkInterfaceId")?)?;
    let mut answer = json!({"NetworkInterfaceId": interface.network_interface_id});
    match request.need("Attribute")? {
        "description" => answer["Description"] = json!({"Value": interface.description}),
        "groupSet" => answer["Groups"] = json!(interface.groups),
        "sourceDestCheck" => {
            answer["SourceDestCheck"] = json!({"Value": interface.source_dest_check});
        }
        "attachment" => answer["Attachment"] = json!(interface.attachment),
        _ => answer["AssociatePublicIpAddress"] = interface.auto_public_ip.is_some().into(),
    }
    Ok(answer)
}

fn modify(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("NetworkInterfaceId")?;
    let mut interface = get(&region.interfaces, id)?.clone();
    for name in ["AssociatePublicIpAddress", "AssociatedSubnetIds"] {
        if request.has(name) {
            let message = format!("The attribute {name} is not served by this endpoint.");
            return Err(ApiError::new("UnsupportedOperation", message));
        }
    }
    if request.parameters.keys().all(|name| ["NetworkInterfaceId", "DryRun"].contains(&&**name)) {
        return Err(ApiError::missing("an attribute"));
    }
    if request.has("Groups") {
        let ids = request.texts("Groups");
        interface.groups = groups(region, &interface.vpc_id, &ids)?;
    }
    if let Some(of) = request.part("Description") {
        of["Value"].as_str().unwrap_or_default().clone_into(&mut interface.description);
    }
    if let Some(check) = request.flag_value("SourceDestCheck") {
        interface.source_dest_check = check;
    }
    if let Some(of) = request.part("Attachment") {
        let attachment = interface.attachment.as_mut();
        let given = of["AttachmentId"].as_str().ok_or_else(|| ApiError::missing("AttachmentId"))?;
        let Some(attachment) = attachment.filter(|a| a.attachment_id == given) else {
            return Err(not_found("eni-attach", given));
        };
        if let Some(delete) = of["DeleteOnTermination"].as_bool() {
            attachment.delete_on_termination = delete;
        }
    }
    if let Some(of) = ena_srd(request, interface.ena_srd_specification.as_ref())? {
        if let Some(attachment) = &mut interface.attachment {
            attachment.ena_srd_specification = Some(of.clone());
        }
        interface.ena_srd_specification = Some(of);
    }
    if let Some(new) = tracking(request)? {
        let old = interface.connection_tracking_configuration.take().unwrap_or_default();
        interface.connection_tracking_configuration = Some(ConnectionTracking {
            tcp_established_timeout: new.tcp_established_timeout.or(old.tcp_established_timeout),
            udp_stream_timeout: new.udp_stream_timeout.or(old.udp_stream_timeout),
            udp_timeout: new.udp_timeout.or(old.udp_timeout),
        });
    }
    if let Some(enable) = request.flag("EnablePrimaryIpv6") {
        let Some(first) = interface.ipv6_addresses.first_mut() else {
            return Err(ApiError::invalid(format!("{id} has no IPv6 address")));
        };
        first.is_primary_ipv6 |= enable;
    }
    region.interfaces.insert(interface);
    success()
}

fn reset(region: &mut Region, request: &Request) -> ApiResult<Value> {
    get_mut(&mut region.interfaces, request.need("NetworkInterfaceId")?)?.source_dest_check = true;
    success()
}

/// Attaches an interface to an instance.
pub(super) fn attach_to(
    region: &mut Region,
    interface: &mut NetworkInterface,
    instance: &str,
    device: i64,
    delete_on_termination: bool,
) {
    interface.attachment = Some(Attachment {
        attachment_id: region.ids.id("eni-attach"),
        instance_id: Some(instance.to_owned()),
        instance_owner_id: region.account.clone(),
        device_index: device,
        network_card_index: 0,
        status: "attached".to_owned(),
        attach_time: now(region),
        delete_on_termination,
        ena_srd_specification: interface.ena_srd_specification.clone(),
        public_at_start: false,
    });
    "in-use".clone_into(&mut interface.status);
}

/// The interfaces of an instance, ordered by their devices.
pub(super) fn of_instance<'a>(region: &'a Region, instance: &str) -> Vec<&'a NetworkInterface> {
    let is = |interface: &&NetworkInterface| {
        let attachment = interface.attachment.as_ref();
        attachment.is_some_and(|a| a.instance_id.as_deref() == Some(instance))
    };
    let mut all: Vec<&NetworkInterface> = region.interfaces.linked(instance).filter(is).collect();
    all.sort_by_key(|interface| interface.attachment.as_ref().map(|a| a.device_index));
    all
}

fn in_use(id: &str) -> ApiError {
    let message = format!("Network interface '{id}' is currently in use.");
    ApiError::new("InvalidNetworkInterface.InUse", message)
}

fn attach(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let mut interface = get(&region.interfaces, request.need("NetworkInterfaceId")?)?.clone();
    let instance = get(&region.instances, request.need("InstanceId")?)?.clone();
    let id = &instance.instance_id;
    if interface.attachment.is_some() {
        return Err(in_use(&interface.network_interface_id));
    }
    if instance.state.name != "running" && instance.state.name != "stopped" {
        let message = format!("Instance '{id}' is not running or stopped");
        return Err(ApiError::new("IncorrectState", message));
    }
    if interface.availability_zone != instance.availability_zone {
        let message = "You may not attach a network interface to an instance if they are not in \
                       the same availability zone";
        return Err(ApiError::invalid(message));
    }
    let device = request.number("DeviceIndex").ok_or_else(|| ApiError::missing("DeviceIndex"))?;
    if !(0..DEVICES_MAX).contains(&device) {
        return Err(ApiError::invalid(format!("Invalid value '{device}' for deviceIndex")));
    }
    let used = of_instance(region, id);
    // A state of an earlier version may have instances of unknown types.
    if let Ok(kind) = kind::find(&instance.instance_type) {
        kind::check_interfaces(&kind, used.len() + 1)?;
    }
    if used.iter().any(|of| of.attachment.as_ref().is_some_and(|a| a.device_index == device)) {
        let message = format!(
            "Instance '{id}' already has an interface attached at device index '{device}'."
        );
        return Err(ApiError::invalid(message));
    }
    if let Some(of) = ena_srd(request, interface.ena_srd_specification.as_ref())? {
        interface.ena_srd_specification = Some(of);
    }
    attach_to(region, &mut interface, id, device, false);
    let attachment = interface.attachment.as_ref().map(|a| a.attachment_id.clone());
    for address in region.addresses.linked_ids(&interface.network_interface_id) {
        get_mut(&mut region.addresses, &address)?.instance_id = Some(id.clone());
    }
    region.interfaces.insert(interface);
    Ok(json!({"AttachmentId": attachment, "NetworkCardIndex": 0}))
}

fn detach(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("AttachmentId")?;
    let of = |i: &NetworkInterface| i.attachment.as_ref().is_some_and(|a| a.attachment_id == id);
    let interface = region.interfaces.find(of).ok_or_else(|| not_found("eni-attach", id))?.clone();
    let device = interface.attachment.as_ref().map(|a| (a.device_index, a.instance_id.is_some()));
    if device.is_some_and(|(_, of_instance)| !of_instance) {
        let message = "You do not have permission to access the specified resource.";
        return Err(ApiError::new("AuthFailure", message));
    }
    if device.is_some_and(|(device, _)| device == 0) {
        let message = "The network interface at device index 0 and networkCard index 0 cannot be \
                       detached.";
        return Err(ApiError::new("OperationNotPermitted", message));
    }
    detach_from(region, &interface.network_interface_id)?;
    success()
}

/// Ends the attachment of an interface.
pub(super) fn detach_from(region: &mut Region, id: &str) -> ApiResult<()> {
    let interface = get_mut(&mut region.interfaces, id)?;
    interface.attachment = None;
    interface.auto_public_ip = None;
    "available".clone_into(&mut interface.status);
    for address in region.addresses.linked_ids(id) {
        get_mut(&mut region.addresses, &address)?.instance_id = None;
    }
    Ok(())
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("NetworkInterfaceId")?;
    let interface = get(&region.interfaces, id)?;
    if interface.attachment.is_some() || interface.requester_managed {
        return Err(in_use(id));
    }
    remove(region, id);
    success()
}

/// Removes an interface; routes to it lead nowhere.
pub(super) fn remove(region: &mut Region, id: &str) {
    address::clear_interface(region, id);
    mirror_session::remove_interface(region, id);
    region.blackhole_routes(|route| route.network_interface_id.as_deref() == Some(id));
    region.interfaces.remove(id);
}
