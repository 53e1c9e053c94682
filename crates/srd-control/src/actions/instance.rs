//! Actions of the EC2 API on instances.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde_json::{Map, Value, json};

use super::instance_view::{derived, reservation, view};
use super::launch::data::{self, Launch};
use super::launch::kind;
use super::launch::lives::state;
use super::list::{self, Listing};
use super::source::Source;
use super::support::{get, get_mut, not_found, now, region_of, success, tags_for};
use super::{Actions, Handler, address, interface};
use crate::control::OBJECTS_MAX;
use crate::error::{ApiError, ApiResult};
use crate::machines::RUNNING;
use crate::state::{Cloud, Instance, Region, Subnet, Tag};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("RunInstances", Handler::Cloud(run)),
    ("DescribeInstances", Handler::Region(describe)),
    ("DescribeInstanceStatus", Handler::Region(describe_status)),
    ("DescribeInstanceAttribute", Handler::Region(describe_attribute)),
    ("ModifyInstanceAttribute", Handler::Region(modify_attribute)),
];

/// Largest number of instances of a request.
pub(super) const COUNT_MAX: i64 = 100;
/// Resources that tags of a launch may name.
const TAGGED: [&str; 3] = ["instance", "volume", "network-interface"];

pub(super) const LISTING: Listing = Listing {
    ids: "InstanceIds",
    id: "InstanceId",
    not_found: |id| not_found("i", id),
    filters: &[
        ("availability-zone", "Placement.AvailabilityZone"),
        ("client-token", "ClientToken"),
        ("dns-name", "PublicDnsName"),
        ("image-id", "ImageId"),
        ("instance-id", "InstanceId"),
        ("instance-state-code", "State.Code"),
        ("instance-state-name", "State.Name"),
        ("instance-type", "InstanceType"),
        ("instance.group-id", "SecurityGroups.GroupId"),
        ("instance.group-name", "SecurityGroups.GroupName"),
        ("ip-address", "PublicIpAddress"),
        ("key-name", "KeyName"),
        ("launch-time", "LaunchTime"),
        (
            "network-interface.addresses.private-ip-address",
            "NetworkInterfaces.PrivateIpAddresses.PrivateIpAddress",
        ),
        ("network-interface.group-id", "NetworkInterfaces.Groups.GroupId"),
        ("network-interface.network-interface-id", "NetworkInterfaces.NetworkInterfaceId"),
        ("network-interface.subnet-id", "NetworkInterfaces.SubnetId"),
        ("network-interface.vpc-id", "NetworkInterfaces.VpcId"),
        ("owner-id", "OwnerId"),
        ("private-dns-name", "PrivateDnsName"),
        ("private-ip-address", "PrivateIpAddress"),
        ("reservation-id", "ReservationId"),
        ("subnet-id", "SubnetId"),
        ("tenancy", "Placement.Tenancy"),
        ("vpc-id", "VpcId"),
    ],
    result: "Instances",
};

/// Returns the default subnet of a zone, or of the first zone that has a default subnet.
fn default_subnet(region: &Region, zone: Option<&str>) -> ApiResult<Subnet> {
    let mut subnets: Vec<&Subnet> = region.subnets.iter().filter(|s| s.default_for_az).collect();
    subnets.sort_by(|a, b| a.availability_zone.cmp(&b.availability_zone));
    let subnet = subnets.iter().find(|s| zone.is_none_or(|zone| s.availability_zone == zone));
    subnet.map(|subnet| (*subnet).clone()).ok_or_else(|| {
        let message = match zone {
            Some(zone) => format!("No default subnet for availability zone: '{zone}'."),
            None => "No default subnet".to_owned(),
        };
        ApiError::new("MissingInput", message)
    })
}

/// The parameters that describe the primary interface of a launch, as those of one interface.
fn devices(request: &Request) -> ApiResult<Vec<Request>> {
    let list = request.list("NetworkInterfaces");
    let copy = |names: &[(&str, &str)]| -> Map<String, Value> {
        let given = names.iter().filter_map(|(from, to)| {
            Some(((*to).to_owned(), request.parameters.get(*from)?.clone()))
        });
        given.collect()
    };
    let single = [
        ("SubnetId", "SubnetId"),
        ("SecurityGroupIds", "Groups"),
        ("SecurityGroups", "GroupNames"),
        ("PrivateIpAddress", "PrivateIpAddress"),
        ("Ipv6Addresses", "Ipv6Addresses"),
        ("Ipv6AddressCount", "Ipv6AddressCount"),
        ("EnablePrimaryIpv6", "EnablePrimaryIpv6"),
    ];
    let make = |parameters| Request { action: request.action.clone(), parameters };
    if list.is_empty() {
        return Ok(vec![make(copy(&single))]);
    }
    if let Some((name, _)) = single[..4].iter().find(|(name, _)| request.has(name)) {
        let message = format!(
            "Network interfaces and an instance-level {name} may not be specified on the same \
             request"
        );
        return Err(ApiError::combination(message));
    }
    if i64::try_from(list.len()).is_ok_and(|count| count > interface::DEVICES_MAX) {
        let message = format!("An instance has at most {} interfaces", interface::DEVICES_MAX);
        return Err(ApiError::limit("AttachmentLimitExceeded", message));
    }
    let mut devices: Vec<Request> =
        list.iter().filter_map(|of| Some(make(of.as_object()?.clone()))).collect();
    devices.sort_by_key(|of| of.number("DeviceIndex"));
    Ok(devices)
}

fn run(cloud: &mut Cloud, at: &(String, String), request: &Request) -> ApiResult<Value> {
    let launched = launch(cloud, at, request)?;
    let region = region_of(cloud, at)?;
    let mut instances = Vec::new();
    for id in &launched {
        let mut shown = view(region, get(&region.instances, id)?);
        shown["State"] = json!(state(0));
        instances.push(shown);
    }
    Ok(reservation(instances))
}

/// Returns the identifier of the image of a launch.
///
/// # Errors
/// If it is missing, or has not the form of an identifier.
pub(super) fn image(request: &Request) -> ApiResult<&str> {
    let image = request.need("ImageId")?;
    let hex = image.strip_prefix("ami-").unwrap_or_default();
    if !(8..=17).contains(&hex.len()) || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        let message = format!("Invalid id: \"{image}\" (expecting \"ami-...\")");
        return Err(ApiError::new("InvalidAMIID.Malformed", message));
    }
    Ok(image)
}

/// Returns the number of instances of a launch.
fn count(request: &Request) -> ApiResult<i64> {
    let bounds = (request.number("MinCount"), request.number("MaxCount"));
    let (Some(min), Some(max)) = bounds else { return Err(ApiError::missing("MinCount")) };
    if min < 1 || max < min || max > COUNT_MAX {
        let message = format!(
            "MinCount and MaxCount are 1 to {COUNT_MAX}, and MinCount is not the larger one"
        );
        return Err(ApiError::invalid(message));
    }
    Ok(max)
}

/// Launches the instances of a request, and returns their identifiers.
///
/// # Errors
/// If the request is one that `RunInstances` refuses. Then, a part of the instances may be in the
/// state, which the caller has to undo.
pub(super) fn launch(
    cloud: &mut Cloud,
    at: &(String, String),
    request: &Request,
) -> ApiResult<Vec<String>> {
    let elsewhere = &address::elsewhere(cloud, at);
    let region = region_of(cloud, at)?;
    let Launch { request, template } = &data::expand(region, request)?;
    let mut tags = tags_for(request, &TAGGED, "instance")?;
    if let Some(template) = template {
        let tag = |key: &str, value: &str| Tag { key: key.to_owned(), value: value.to_owned() };
        tags.push(tag("aws:ec2launchtemplate:id", &template.launch_template_id));
        tags.push(tag("aws:ec2launchtemplate:version", &template.version));
    }
    let interface_tags = tags_for(request, &TAGGED, "network-interface")?;
    for name in ["InstanceMarketOptions", "SecondaryInterfaces"] {
        if request.has(name) {
            let message = format!("The parameter {name} is not served by this endpoint.");
            return Err(ApiError::new("UnsupportedOperation", message));
        }
    }
    let image = image(request)?;
    let max = count(request)?;
    let placement = request.part("Placement");
    let zone = placement.and_then(|of| of["AvailabilityZone"].as_str());
    if let Some(zone) = zone
        .filter(|zone| !crate::regions::zones(&region.name).iter().any(|(name, _)| name == zone))
    {
        let message = format!("Invalid availability zone: [{zone}]");
        return Err(ApiError::invalid(message));
    }
    let kind = kind::find(request.text("InstanceType").unwrap_or(kind::TYPE_DEFAULT))?;
    let devices = devices(request)?;
    kind::check_interfaces(&kind, devices.len())?;
    if max > 1
        && devices.iter().any(|of| of.has("NetworkInterfaceId") || of.has("PrivateIpAddress"))
    {
        let message = "A network interface or an address can be given to one instance only";
        return Err(ApiError::combination(message));
    }
    let new = usize::try_from(max).unwrap_or(0) * devices.len();
    if region.interfaces.len() + new > OBJECTS_MAX {
        let message = format!("A region has at most {OBJECTS_MAX} interfaces.");
        return Err(ApiError::limit("ResourceLimitExceeded", message));
    }
    let reservation_id = region.ids.id("r");
    let settings = DeviceSettings { zone, tags: &interface_tags, elsewhere };
    let mut launched = Vec::new();
    for index in 0..max {
        let id = region.ids.id("i");
        for (at, device) in devices.iter().enumerate() {
            add_device(region, device, &id, at, &settings)?;
        }
        let primary = interface::of_instance(region, &id).first().copied().cloned();
        let Some(primary) = primary else { return Err(ApiError::internal("no interface")) };
        let instance = Instance {
            instance_id: id.clone(),
            reservation_id: reservation_id.clone(),
            owner_id: region.account.clone(),
            image_id: image.to_owned(),
            instance_type: kind.name.to_owned(),
            state: state(RUNNING),
            state_transition_reason: String::new(),
            ami_launch_index: index,
            launch_time: now(region),
            availability_zone: primary.availability_zone.clone(),
            tenancy: placement
                .and_then(|of| of["Tenancy"].as_str())
                .unwrap_or("default")
                .to_owned(),
            vpc_id: Some(primary.vpc_id.clone()),
            subnet_id: Some(primary.subnet_id.clone()),
            key_name: request.text("KeyName").map(str::to_owned),
            user_data: request.text("UserData").map(str::to_owned),
            client_token: request.text("ClientToken").map(str::to_owned),
            disable_api_termination: request.flag("DisableApiTermination") == Some(true),
            host: None,
            tags: tags.clone(),
        };
        region.instances.insert(instance);
        launched.push(id);
    }
    Ok(launched)
}

/// Settings of a launch that all its interfaces have in common.
struct DeviceSettings<'a> {
    zone: Option<&'a str>,
    tags: &'a [crate::state::Tag],
    /// Public addresses of other regions.
    elsewhere: &'a BTreeSet<Ipv4Addr>,
}

/// Adds one interface to a new instance.
fn add_device(
    region: &mut Region,
    device: &Request,
    instance: &str,
    at: usize,
    settings: &DeviceSettings<'_>,
) -> ApiResult<()> {
    let DeviceSettings { zone, tags, elsewhere } = *settings;
    let index = device.number("DeviceIndex").unwrap_or(i64::try_from(at).unwrap_or(0));
    if !(0..interface::DEVICES_MAX).contains(&index) {
        return Err(ApiError::invalid(format!("Invalid value '{index}' for deviceIndex")));
    }
    let taken = interface::of_instance(region, instance);
    let same = |of: &&crate::state::NetworkInterface| {
        of.attachment.as_ref().is_some_and(|a| a.device_index == index)
    };
    if taken.iter().any(same) || (at == 0 && index != 0) {
        let message = "The interfaces of an instance have different device indexes from 0";
        return Err(ApiError::invalid(message));
    }
    if let Some(id) = device.text("NetworkInterfaceId") {
        let mut own = get(&region.interfaces, id)?.clone();
        if own.attachment.is_some() {
            let message = format!("Network interface '{id}' is currently in use.");
            return Err(ApiError::new("InvalidNetworkInterface.InUse", message));
        }
        let delete = device.flag("DeleteOnTermination").unwrap_or(false);
        interface::attach_to(region, &mut own, instance, index, delete);
        for id in region.addresses.linked_ids(id) {
            get_mut(&mut region.addresses, &id)?.instance_id = Some(instance.to_owned());
        }
        region.interfaces.insert(own);
        return Ok(());
    }
    let subnet = match device.text("SubnetId") {
        Some(id) => get(&region.subnets, id)?.clone(),
        None => default_subnet(region, zone)?,
    };
    if zone.is_some_and(|zone| zone != subnet.availability_zone) {
        let message = format!("The subnet {} is in another availability zone", subnet.subnet_id);
        return Err(ApiError::invalid(message));
    }
    let mut ids: Vec<String> = device.texts("Groups").into_iter().map(str::to_owned).collect();
    for name in device.texts("GroupNames") {
        let group = super::group::by_name(region, Some(&subnet.vpc_id), name);
        let group = group.ok_or_else(|| not_found("sg", name))?;
        ids.push(group.group_id.clone());
    }
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let groups = interface::groups(region, &subnet.vpc_id, &ids)?;
    let tracking = interface::tracking(device)?;
    let mut own = interface::add(region, &subnet, groups, interface::primary(device)?)?;
    device.text("Description").unwrap_or_default().clone_into(&mut own.description);
    own.connection_tracking_configuration = tracking;
    own.ena_srd_specification = interface::ena_srd(device, None)?;
    own.tags = tags.to_vec();
    let public = device.flag("AssociatePublicIpAddress").unwrap_or(subnet.map_public_ip_on_launch);
    if public && index == 0 && subnet.cidr_block.is_some() {
        own.auto_public_ip = Some(address::free(region, elsewhere)?);
    }
    interface::add_addresses(region, &mut own, &subnet, device)?;
    let delete = device.flag("DeleteOnTermination").unwrap_or(true);
    interface::attach_to(region, &mut own, instance, index, delete);
    region.interfaces.insert(own);
    Ok(())
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let mut page = LISTING.describe(request, &source(region))?;
    let mut reservations: Vec<Vec<Value>> = Vec::new();
    if let Value::Array(instances) = page["Instances"].take() {
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for instance in instances {
            let id = instance["ReservationId"].as_str().unwrap_or_default().to_owned();
            let place = *places.entry(id).or_insert(reservations.len());
            match reservations.get_mut(place) {
                Some(reservation) => reservation.push(instance),
                None => reservations.push(vec![instance]),
            }
        }
    }
    page["Reservations"] = reservations.into_iter().map(reservation).collect();
    Ok(page)
}

/// The instances of a region with their descriptions.
pub(super) fn source(region: &Region) -> Source<'_, Instance> {
    Source::new(&region.instances).shown(
        move |instance| view(region, instance),
        move |instance, path, condition| derived(region, instance, path, condition),
    )
}

fn describe_status(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let ids = request.texts("InstanceIds");
    for id in &ids {
        get(&region.instances, id)?;
    }
    let all = request.flag("IncludeAllInstances") == Some(true);
    let statuses = region
        .instances
        .iter()
        .filter(|i| ids.is_empty() || ids.contains(&i.instance_id.as_str()))
        .filter(|i| all || i.state.code == 16)
        .map(|i| {
            let status = if i.state.code == 16 { "ok" } else { "not-applicable" };
            let summary = json!({"Status": status, "Details": []});
            json!({"InstanceId": i.instance_id, "AvailabilityZone": i.availability_zone,
                   "InstanceState": i.state, "InstanceStatus": summary, "SystemStatus": summary})
        });
    let filters: list::Filters = &[
        ("availability-zone", "AvailabilityZone"),
        ("instance-state-code", "InstanceState.Code"),
        ("instance-state-name", "InstanceState.Name"),
        ("instance-status.status", "InstanceStatus.Status"),
        ("system-status.status", "SystemStatus.Status"),
    ];
    let statuses = list::filter(request, filters, statuses.collect())?;
    list::page(request, "InstanceStatuses", "InstanceId", statuses)
}

fn describe_attribute(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let instance = get(&region.instances, request.need("InstanceId")?)?;
    let primary = interface::of_instance(region, &instance.instance_id).first().copied();
    let mut answer = json!({"InstanceId": instance.instance_id});
    match request.need("Attribute")? {
        "instanceType" => answer["InstanceType"] = json!({"Value": instance.instance_type}),
        "disableApiTermination" => {
            answer["DisableApiTermination"] = json!({"Value": instance.disable_api_termination});
        }
        "userData" => answer["UserData"] = json!({"Value": instance.user_data}),
        "sourceDestCheck" => {
            let check = primary.is_none_or(|interface| interface.source_dest_check);
            answer["SourceDestCheck"] = json!({"Value": check});
        }
        "groupSet" => answer["Groups"] = json!(primary.map(|i| &i.groups)),
        "instanceInitiatedShutdownBehavior" => {
            answer["InstanceInitiatedShutdownBehavior"] = json!({"Value": "stop"});
        }
        "enaSupport" => answer["EnaSupport"] = json!({"Value": true}),
        name => {
            let message = format!("The attribute {name} is not served by this endpoint.");
            return Err(ApiError::new("UnsupportedOperation", message));
        }
    }
    Ok(answer)
}

fn modify_attribute(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("InstanceId")?;
    let mut instance = get(&region.instances, id)?.clone();
    let primary =
        interface::of_instance(region, id).first().map(|i| i.network_interface_id.clone());
    let mut known = 0;
    if request.has("Groups") || request.has("SourceDestCheck") {
        let Some(primary) = primary else { return Err(not_found("eni", id)) };
        let mut own = get(&region.interfaces, &primary)?.clone();
        if request.has("Groups") {
            own.groups = interface::groups(region, &own.vpc_id, &request.texts("Groups"))?;
        }
        own.source_dest_check =
            request.flag_value("SourceDestCheck").unwrap_or(own.source_dest_check);
        region.interfaces.insert(own);
        known += 1;
    }
    if let Some(value) = request.flag_value("DisableApiTermination") {
        instance.disable_api_termination = value;
        known += 1;
    }
    if let Some(value) = request.part("InstanceType").and_then(|of| of["Value"].as_str()) {
        if instance.state.name != "stopped" {
            let message = format!("The instance '{id}' is not in the 'stopped' state.");
            return Err(ApiError::new("IncorrectInstanceState", message));
        }
        let kind = kind::find(value)?;
        kind::check_interfaces(&kind, interface::of_instance(region, id).len())?;
        kind.name.clone_into(&mut instance.instance_type);
        known += 1;
    }
    if known == 0 {
        let message = "This attribute is not served by this endpoint.";
        return Err(ApiError::new("UnsupportedOperation", message));
    }
    region.instances.insert(instance);
    success()
}
