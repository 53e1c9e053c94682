//! Descriptions of instances in the form of EC2's answers.

use serde_json::{Value, json};

use super::field::{self, Condition};
use super::interface::of_instance;
use super::interface_view::{self, association};
use super::support::show;
use crate::state::{Instance, NetworkInterface, Region};

/// Returns an instance as its description, with its interfaces.
pub(super) fn view(region: &Region, instance: &Instance) -> Value {
    let mut shown = show(instance);
    if instance.tags.is_empty() {
        // An empty list of tags is left out.
        shown["Tags"] = Value::Null;
    }
    shown["Placement"] = placement(instance);
    shown["Monitoring"] = json!({"State": "disabled"});
    shown["Architecture"] = "x86_64".into();
    shown["Hypervisor"] = "xen".into();
    shown["VirtualizationType"] = "hvm".into();
    shown["RootDeviceType"] = "ebs".into();
    shown["RootDeviceName"] = "/dev/xvda".into();
    shown["EbsOptimized"] = false.into();
    shown["EnaSupport"] = true.into();
    shown["BlockDeviceMappings"] = json!([]);
    shown["ProductCodes"] = json!([]);
    if instance.state_transition_reason.is_empty() {
        shown["StateReason"] = Value::Null;
    } else {
        shown["StateReason"] = json!({"Code": "Client.UserInitiatedShutdown",
                                      "Message": "Client.UserInitiatedShutdown: User initiated"});
    }
    let interfaces = of_instance(region, &instance.instance_id);
    let primary = interfaces.first().copied();
    for member in OF_PRIMARY {
        shown[member] = of_primary(region, primary, member);
    }
    if let Some(primary) = primary {
        shown["SourceDestCheck"] = primary.source_dest_check.into();
        shown["Ipv6Address"] = json!(primary.ipv6_addresses.first().map(|of| of.ipv6_address));
    }
    let views = interfaces.iter().map(|of| interface_view::view(region, of));
    shown["NetworkInterfaces"] = views.collect();
    shown
}

fn placement(instance: &Instance) -> Value {
    json!({"AvailabilityZone": instance.availability_zone, "Tenancy": instance.tenancy,
           "GroupName": ""})
}

/// Members of a description that show the primary interface, and by which filters select.
const OF_PRIMARY: [&str; 5] =
    ["SecurityGroups", "PrivateIpAddress", "PrivateDnsName", "PublicIpAddress", "PublicDnsName"];

/// Returns one of these members.
fn of_primary(region: &Region, primary: Option<&NetworkInterface>, member: &str) -> Value {
    let public = |name: &str| {
        let association = primary.and_then(|primary| association(region, primary));
        association.map(|mut association| association[name].take()).unwrap_or_default()
    };
    match member {
        "SecurityGroups" => json!(primary.map_or(&[][..], |primary| primary.groups.as_slice())),
        "PrivateIpAddress" => json!(primary.map(|primary| primary.private_ip_address)),
        "PrivateDnsName" => {
            let name = primary.and_then(|primary| primary.private_dns_name.as_deref());
            name.unwrap_or_default().into()
        }
        "PublicIpAddress" => public("PublicIp"),
        _ => public("PublicDnsName").as_str().unwrap_or_default().into(),
    }
}

/// Whether a value at a path of the description meets the condition; `None` if the description
/// shows the fields of the instance there.
pub(super) fn derived(
    region: &Region,
    instance: &Instance,
    path: &[&str],
    condition: Condition<'_>,
) -> Option<bool> {
    let interfaces = || of_instance(region, &instance.instance_id);
    match path {
        ["Placement", rest @ ..] => Some(field::found(&placement(instance), rest, condition)),
        ["NetworkInterfaces", rest @ ..] => {
            let has = |of: &&NetworkInterface| interface_view::has(region, of, rest, condition);
            Some(interfaces().iter().any(has))
        }
        [member, rest @ ..] if OF_PRIMARY.contains(member) => {
            let value = of_primary(region, interfaces().first().copied(), member);
            Some(field::found(&value, rest, condition))
        }
        _ => None,
    }
}

/// Returns the reservation of instances that were launched together.
pub(super) fn reservation(instances: Vec<Value>) -> Value {
    let first = instances.first().cloned().unwrap_or_default();
    json!({"ReservationId": first["ReservationId"], "OwnerId": first["OwnerId"],
           "Groups": [], "Instances": instances})
}
