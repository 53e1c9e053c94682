//! Parameters of a launch: those of a request, of a template, and of an instance.
//!
//! A launch from a template has the parameters of the template that the request does not give.

use serde_json::{Map, Value, json};

use super::kind;
use super::stored::{self, DATA};
use crate::actions::support::get;
use crate::actions::{Actions, Handler, interface};
use crate::error::{ApiError, ApiResult};
use crate::state::scaling::TemplateChoice;
use crate::state::{NetworkInterface, Region};
use crate::wire::Request;

pub(in crate::actions) const ACTIONS: Actions =
    &[("GetLaunchTemplateData", Handler::Region(of_instance))];

/// Parameters that exclude each other in a launch: if a request gives one of them, none of them is
/// inherited.
const GROUPS: [&str; 3] = ["NetworkInterfaces", "SecurityGroupIds", "SecurityGroups"];

/// Returns the parameters of a launch in a request on launch templates.
///
/// # Errors
/// If they are missing.
pub(super) fn of_request(request: &Request) -> ApiResult<Value> {
    let data = request.part(DATA).ok_or_else(|| ApiError::missing(DATA))?;
    Ok(data.clone())
}

/// Adds the parameters of the source that the parameters do not have.
pub(super) fn inherit(data: &mut Value, source: &Value) {
    if let (Some(data), Some(source)) = (data.as_object_mut(), source.as_object()) {
        for (name, value) in source {
            data.entry(name).or_insert_with(|| value.clone());
        }
    }
}

/// Returns the warning about parameters with which a launch fails or has no effect: the errors, or
/// `null` if there is no error.
pub(super) fn warning(data: &Value) -> Value {
    let Some(name) = data["InstanceType"].as_str() else { return Value::Null };
    let interfaces = data["NetworkInterfaces"].as_array().map_or(&[][..], Vec::as_slice);
    let error = match kind::find(name) {
        Err(error) => Some(error),
        Ok(of) => {
            let uses_express =
                interfaces.iter().any(|of| of["EnaSrdSpecification"]["EnaSrdEnabled"] == true);
            let lacks_express = uses_express && !of.ena_srd;
            let message = format!("The instance type {name} does not support ENA Express.");
            let express = lacks_express.then(|| ApiError::combination(message));
            kind::check_interfaces(&of, interfaces.len()).err().or(express)
        }
    };
    match error {
        Some(error) => json!({"Errors": [{"Code": error.code, "Message": error.message}]}),
        None => Value::Null,
    }
}

/// A launch with the parameters of its template.
pub(in crate::actions) struct Launch {
    /// The request, with the parameters of the template that it does not give itself.
    pub(in crate::actions) request: Request,
    /// The template, with the number of its version.
    pub(in crate::actions) template: Option<TemplateChoice>,
}

/// Adds the parameters of the launch template that a request names, if it names one.
///
/// # Errors
/// If the template or its version does not exist, or has parameters that are not served.
pub(in crate::actions) fn expand(region: &Region, request: &Request) -> ApiResult<Launch> {
    let Some(choice) = request.part("LaunchTemplate").and_then(Value::as_object) else {
        return Ok(Launch { request: request.clone(), template: None });
    };
    let (template, data) = chosen(region, choice)?;
    if data["InstanceRequirements"].is_object() {
        let message = "InstanceRequirements of a launch template are not served by this endpoint.";
        return Err(ApiError::new("UnsupportedOperation", message));
    }
    let mut parameters = request.parameters.clone();
    parameters.remove("LaunchTemplate");
    let has_groups = GROUPS.iter().any(|name| request.has(name));
    for (name, value) in data.as_object().into_iter().flatten() {
        if name == "TagSpecifications" {
            let own = request.list(name);
            let all = value.as_array().map_or(&[][..], Vec::as_slice);
            parameters.insert(name.clone(), merge_tags(own, all).into());
        } else if !(has_groups && GROUPS.contains(&name.as_str())) {
            parameters.entry(name).or_insert_with(|| value.clone());
        }
    }
    let request = Request { action: request.action.clone(), parameters };
    Ok(Launch { request, template: Some(template) })
}

/// Returns the version that a structure names, and its parameters. Without a version, it is the
/// default version.
///
/// # Errors
/// If the template or its version does not exist.
pub(in crate::actions) fn chosen<'a>(
    region: &'a Region,
    choice: &Map<String, Value>,
) -> ApiResult<(TemplateChoice, &'a Value)> {
    let template = stored::chosen(region, choice)?;
    let text = choice.get("Version").and_then(Value::as_str).unwrap_or("$Default");
    let version = stored::version(region, template, text)?;
    let template = TemplateChoice {
        launch_template_id: template.launch_template_id.clone(),
        launch_template_name: template.launch_template_name.clone(),
        version: version.version_number.to_string(),
    };
    Ok((template, &version.launch_template_data))
}

/// Returns the tags of a launch for each type of resource: a tag of the request replaces the tag of
/// the template with the same key.
fn merge_tags(own: &[Value], template: &[Value]) -> Vec<Value> {
    let mut merged = own.to_vec();
    for specification in template {
        let kind = &specification["ResourceType"];
        // There are no spot requests that could have these tags.
        if *kind == "spot-instances-request" {
            continue;
        }
        let Some(of) = merged.iter_mut().find(|of| of["ResourceType"] == *kind) else {
            merged.push(specification.clone());
            continue;
        };
        let Some(tags) = of["Tags"].as_array_mut() else { continue };
        for tag in specification["Tags"].as_array().into_iter().flatten() {
            if !tags.iter().any(|own| own["Key"] == tag["Key"]) {
                tags.push(tag.clone());
            }
        }
    }
    merged
}

/// Answers `GetLaunchTemplateData`: the parameters with which an instance could be launched.
fn of_instance(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let instance = get(&region.instances, request.need("InstanceId")?)?;
    let interfaces = interface::of_instance(region, &instance.instance_id);
    let interfaces: Vec<Value> = interfaces.into_iter().map(of_interface).collect();
    let tags = instance.tags.iter().filter(|tag| !tag.key.starts_with("aws:"));
    let tags: Vec<Value> = tags.map(|tag| json!({"Key": tag.key, "Value": tag.value})).collect();
    let tags = match tags.is_empty() {
        true => json!([]),
        false => json!([{"ResourceType": "instance", "Tags": tags}]),
    };
    Ok(json!({DATA: {
        "ImageId": instance.image_id,
        "InstanceType": instance.instance_type,
        "KeyName": instance.key_name,
        "UserData": instance.user_data,
        "DisableApiTermination": instance.disable_api_termination,
        "InstanceInitiatedShutdownBehavior": "stop",
        "EbsOptimized": false,
        "Monitoring": {"Enabled": false},
        "Placement": {"AvailabilityZone": instance.availability_zone, "GroupName": "",
                      "Tenancy": instance.tenancy},
        "BlockDeviceMappings": [],
        "NetworkInterfaces": interfaces,
        "TagSpecifications": tags,
    }}))
}

fn of_interface(of: &NetworkInterface) -> Value {
    let attachment = of.attachment.as_ref();
    let groups: Vec<&str> = of.groups.iter().map(|group| group.group_id.as_str()).collect();
    let v4 = of.private_ip_addresses.iter().map(|address| {
        json!({"PrivateIpAddress": address.private_ip_address, "Primary": address.primary})
    });
    let v6 = of.ipv6_addresses.iter().map(|of| json!({"Ipv6Address": of.ipv6_address}));
    json!({
        "DeviceIndex": attachment.map_or(0, |at| at.device_index),
        "NetworkCardIndex": attachment.map_or(0, |at| at.network_card_index),
        "DeleteOnTermination": attachment.is_some_and(|at| at.delete_on_termination),
        "EnaSrdSpecification": attachment.and_then(|at| at.ena_srd_specification.as_ref()),
        "ConnectionTrackingSpecification": of.connection_tracking_configuration,
        "AssociatePublicIpAddress": of.auto_public_ip.is_some(),
        "Description": of.description,
        "InterfaceType": of.interface_type,
        "Groups": groups,
        "SubnetId": of.subnet_id,
        "PrivateIpAddresses": v4.collect::<Vec<_>>(),
        "Ipv6Addresses": v6.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_the_request_replace_those_of_the_template() {
        let of = |kind: &str, tags: Value| json!({"ResourceType": kind, "Tags": tags});
        let own = [of("instance", json!([{"Key": "a", "Value": "own"}]))];
        let template = [
            of("instance", json!([{"Key": "a", "Value": "t"}, {"Key": "b", "Value": "t"}])),
            of("volume", json!([{"Key": "a", "Value": "t"}])),
            of("spot-instances-request", json!([{"Key": "a", "Value": "t"}])),
        ];
        let merged = merge_tags(&own, &template);
        let tags = json!([{"Key": "a", "Value": "own"}, {"Key": "b", "Value": "t"}]);
        assert_eq!(merged, [of("instance", tags), template[1].clone()]);
        assert_eq!(merge_tags(&[], &template), template[..2]);
    }

    #[test]
    fn a_warning_names_what_a_launch_refuses() {
        let code = |data: Value| warning(&data)["Errors"][0]["Code"].clone();
        let express = json!([{"EnaSrdSpecification": {"EnaSrdEnabled": true}}]);
        let small = json!({"InstanceType": "c7i.large", "NetworkInterfaces": express});
        assert_eq!(code(small), "InvalidParameterCombination");
        let large = json!({"InstanceType": "c7i.12xlarge", "NetworkInterfaces": express});
        assert_eq!(warning(&large), Value::Null);
        assert_eq!(warning(&json!({})), Value::Null);
        assert_eq!(code(json!({"InstanceType": "x1.y"})), "InvalidParameterValue");
        let many = json!({"InstanceType": "c7i.large", "NetworkInterfaces": [{}, {}, {}, {}]});
        assert_eq!(code(many), "AttachmentLimitExceeded");
    }
}
