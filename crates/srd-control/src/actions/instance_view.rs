//! Descriptions of instances in the form of EC2's answers.

use serde_json::{Value, json};

use super::interface_view::{self, Links};
use super::support::show;
use crate::state::{Instance, Region};

/// Returns an instance as its description, with its interfaces.
pub(super) fn view(region: &Region, instance: &Instance, links: &Links<'_>) -> Value {
    let mut shown = show(instance);
    if instance.tags.is_empty() {
        // An empty list of tags is left out.
        shown["Tags"] = Value::Null;
    }
    shown["Placement"] = json!({"AvailabilityZone": instance.availability_zone,
                                "Tenancy": instance.tenancy, "GroupName": ""});
    shown["Monitoring"] = json!({"State": "disabled"});
    shown["Architecture"] = "x86_64".into();
    shown["Hypervisor"] = "xen".into();
    shown["VirtualizationType"] = "hvm".into();
    shown["RootDeviceType"] = "ebs".into();
    shown["RootDeviceName"] = "/dev/xvda".into();
    shown["EbsOptimized"] = false.into();
    shown["EnaSupport"] = true.into();
    shown["PrivateDnsName"] = "".into();
    shown["PublicDnsName"] = "".into();
    shown["BlockDeviceMappings"] = json!([]);
    shown["ProductCodes"] = json!([]);
    if instance.state_transition_reason.is_empty() {
        shown["StateReason"] = Value::Null;
    } else {
        shown["StateReason"] = json!({"Code": "Client.UserInitiatedShutdown",
                                      "Message": "Client.UserInitiatedShutdown: User initiated"});
    }
    let interfaces = links.interfaces(&instance.instance_id);
    let views = interfaces.iter().map(|of| interface_view::view(region, of, links));
    let views: Vec<Value> = views.collect();
    shown["SecurityGroups"] = json!([]);
    if let (Some(primary), Some(view)) = (interfaces.first(), views.first()) {
        shown["SecurityGroups"] = json!(primary.groups);
        shown["SourceDestCheck"] = primary.source_dest_check.into();
        shown["PrivateIpAddress"] = json!(primary.private_ip_address);
        shown["PrivateDnsName"] = json!(primary.private_dns_name.clone().unwrap_or_default());
        shown["Ipv6Address"] = json!(primary.ipv6_addresses.first().map(|of| of.ipv6_address));
        shown["PublicIpAddress"] = view["Association"]["PublicIp"].clone();
        let name = view["Association"]["PublicDnsName"].as_str().unwrap_or_default();
        shown["PublicDnsName"] = name.into();
    }
    shown["NetworkInterfaces"] = views.into();
    shown
}

/// Returns the reservation of instances that were launched together.
pub(super) fn reservation(instances: Vec<Value>) -> Value {
    let first = instances.first().cloned().unwrap_or_default();
    json!({"ReservationId": first["ReservationId"], "OwnerId": first["OwnerId"],
           "Groups": [], "Instances": instances})
}
