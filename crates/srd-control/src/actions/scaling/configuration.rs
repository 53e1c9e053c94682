//! Launch configurations: the parameters of the launches of groups. A configuration cannot be
//! changed.
//!
//! Bounds: a region has [`CONFIGURATIONS_MAX`] configurations. The parameters of a configuration
//! have at most [`PARAMETERS_BYTES_MAX`] bytes.

use serde_json::{Map, Value, json};

use super::check::invalid;
use super::view;
use crate::actions::launch::kind;
use crate::actions::support::{now, show};
use crate::actions::{Actions, Handler, instance, interface};
use crate::error::{ApiError, ApiResult};
use crate::machines::TERMINATED;
use crate::regions;
use crate::state::{LaunchConfiguration, Region, ScalingGroup};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateLaunchConfiguration", Handler::Region(create)),
    ("DescribeLaunchConfigurations", Handler::Region(describe)),
    ("DeleteLaunchConfiguration", Handler::Region(delete)),
];

/// Largest number of launch configurations of a region: the quota of Auto Scaling.
const CONFIGURATIONS_MAX: usize = 200;
/// Largest size of the parameters of a configuration in bytes, as JSON.
const PARAMETERS_BYTES_MAX: usize = 64 << 10;
/// Largest number of characters of a name.
const NAME_MAX: usize = 255;
/// Largest number of names in a request for descriptions, as Auto Scaling documents it.
const NAMED_MAX: usize = 50;
/// Tenancies of Auto Scaling.
const TENANCIES: [&str; 2] = ["default", "dedicated"];
/// Parameters of networks and machines that do not exist here, and of spot instances.
const NOT_SERVED: [&str; 5] =
    ["ClassicLinkVPCId", "ClassicLinkVPCSecurityGroups", "KernelId", "RamdiskId", "SpotPrice"];

/// Returns the configuration with this name.
///
/// # Errors
/// If there is no such configuration.
pub(super) fn find<'a>(region: &'a Region, name: &str) -> ApiResult<&'a LaunchConfiguration> {
    let found = region.launch_configurations.get(&LaunchConfiguration::id_of(name));
    found.ok_or_else(|| {
        invalid(format!(
            "Launch configuration name not found - A launch configuration with the name: {name} \
             does not exist"
        ))
    })
}

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let name = request.need("LaunchConfigurationName")?;
    if let Some(other) = NOT_SERVED.iter().find(|other| is_given(request, other)) {
        return Err(invalid(format!("The parameter {other} is not served by this endpoint.")));
    }
    let mut parameters = request.parameters.clone();
    parameters.remove("LaunchConfigurationName");
    if let Some(id) = request.text("InstanceId") {
        parameters.remove("InstanceId");
        for (own, value) in of_instance(region, id)? {
            parameters.entry(own).or_insert(value);
        }
    }
    add(region, name, parameters)?;
    Ok(json!({}))
}

/// Whether a request has a parameter that is no empty list.
fn is_given(request: &Request, name: &str) -> bool {
    request.parameters.get(name).is_some_and(|of| !of.as_array().is_some_and(Vec::is_empty))
}

/// Adds a configuration with the parameters of an instance, under the name of a group.
///
/// # Errors
/// The errors of `CreateLaunchConfiguration`.
pub(super) fn add_from_instance(region: &mut Region, name: &str, id: &str) -> ApiResult<()> {
    let parameters = of_instance(region, id)?;
    add(region, name, parameters)
}

/// Returns the parameters with which an instance could be launched. As in Auto Scaling, the block
/// devices are not among them.
fn of_instance(region: &Region, id: &str) -> ApiResult<Map<String, Value>> {
    let found = region.instances.get(id).filter(|of| of.state.code != TERMINATED);
    let found =
        found.ok_or_else(|| invalid(format!("Invalid Instance ID(s): [{id}] specified")))?;
    let interfaces = interface::of_instance(region, id);
    let groups = interfaces.first().map(|of| of.groups.iter().map(|group| &group.group_id));
    let groups: Vec<&String> = groups.into_iter().flatten().collect();
    let mut parameters = Map::new();
    let mut put = |name: &str, value: Value| _ = parameters.insert(name.to_owned(), value);
    put("ImageId", found.image_id.as_str().into());
    put("InstanceType", found.instance_type.as_str().into());
    put("SecurityGroups", json!(groups));
    for (name, text) in [("KeyName", &found.key_name), ("UserData", &found.user_data)] {
        if let Some(text) = text {
            put(name, text.as_str().into());
        }
    }
    if found.tenancy != TENANCIES[0] {
        put("PlacementTenancy", found.tenancy.as_str().into());
    }
    Ok(parameters)
}

fn add(region: &mut Region, name: &str, parameters: Map<String, Value>) -> ApiResult<()> {
    check_name(name)?;
    let parameters = Request { action: String::new(), parameters };
    check(region, &parameters)?;
    let id = LaunchConfiguration::id_of(name);
    if region.launch_configurations.get(&id).is_some() {
        let message = format!(
            "Launch Configuration by this name already exists - A launch configuration already \
             exists with the name {name}"
        );
        return Err(ApiError::new("AlreadyExists", message));
    }
    if region.launch_configurations.len() >= CONFIGURATIONS_MAX {
        let message = format!("A region has at most {CONFIGURATIONS_MAX} launch configurations.");
        return Err(ApiError::new("LimitExceeded", message));
    }
    let (at, account, uuid) = (region.name.clone(), region.account.clone(), region.ids.uuid());
    let resource = format!("launchConfiguration:{uuid}:launchConfigurationName/{name}");
    let partition = regions::partition(&at);
    region.launch_configurations.insert(LaunchConfiguration {
        id,
        launch_configuration_name: name.to_owned(),
        launch_configuration_arn: format!("arn:{partition}:autoscaling:{at}:{account}:{resource}"),
        created_time: now(region),
        parameters: parameters.parameters.into(),
    });
    Ok(())
}

/// Checks a name: 1 to 255 characters without control characters.
fn check_name(name: &str) -> ApiResult<()> {
    let is_valid = |c: char| !c.is_control();
    if (1..=NAME_MAX).contains(&name.chars().count()) && name.chars().all(is_valid) {
        return Ok(());
    }
    let message = "LaunchConfigurationName has 1 to 255 characters without control characters";
    Err(invalid(message))
}

/// Checks the parameters of a configuration.
fn check(region: &Region, parameters: &Request) -> ApiResult<()> {
    let (Some(image), Some(name)) = (parameters.text("ImageId"), parameters.text("InstanceType"))
    else {
        let message = "Valid requests must contain either the InstanceID parameter or both the \
                       ImageId and InstanceType parameters.";
        return Err(invalid(message));
    };
    instance::image(parameters)
        .map_err(|error| invalid(format!("AMI {image} is invalid: {}", error.message)))?;
    kind::find(name).map_err(|_| invalid(format!("Invalid Instance Type: {name}")))?;
    let groups = parameters.texts("SecurityGroups");
    if groups.len() > interface::GROUPS_MAX {
        let message = format!("A configuration has at most {} groups", interface::GROUPS_MAX);
        return Err(invalid(message));
    }
    if let Some(id) = groups.iter().find(|id| region.groups.get(id).is_none()) {
        return Err(invalid(format!("The security group '{id}' does not exist")));
    }
    let tenancy = parameters.text("PlacementTenancy");
    if let Some(tenancy) = tenancy.filter(|tenancy| !TENANCIES.contains(tenancy)) {
        return Err(invalid(format!("{tenancy} is not a valid tenancy: default or dedicated")));
    }
    let bytes = Value::from(parameters.parameters.clone()).to_string().len();
    if bytes > PARAMETERS_BYTES_MAX {
        let message = format!("A launch configuration has at most {PARAMETERS_BYTES_MAX} bytes");
        return Err(invalid(message));
    }
    Ok(())
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let names = request.texts("LaunchConfigurationNames");
    if names.len() > NAMED_MAX {
        let message = format!("A request names at most {NAMED_MAX} launch configurations");
        return Err(invalid(message));
    }
    let all = region.launch_configurations.iter();
    let named =
        all.filter(|of| names.is_empty() || names.contains(&of.launch_configuration_name.as_str()));
    let shown = named.map(shown).collect();
    view::page(request, "LaunchConfigurations", "LaunchConfigurationName", shown)
}

/// Returns a configuration as its description.
fn shown(configuration: &LaunchConfiguration) -> Value {
    let mut shown = show(configuration);
    for (name, value) in configuration.parameters.as_object().into_iter().flatten() {
        shown[name] = value.clone();
    }
    let defaults = [
        ("KeyName", json!("")),
        ("UserData", json!("")),
        ("KernelId", json!("")),
        ("RamdiskId", json!("")),
        ("SecurityGroups", json!([])),
        ("ClassicLinkVPCSecurityGroups", json!([])),
        ("BlockDeviceMappings", json!([])),
        ("InstanceMonitoring", json!({"Enabled": true})),
        ("EbsOptimized", json!(false)),
    ];
    for (name, value) in defaults {
        if shown[name].is_null() {
            shown[name] = value;
        }
    }
    shown
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let name = request.need("LaunchConfigurationName")?;
    let id = find(region, name)?.id.clone();
    let uses = |of: &ScalingGroup| of.launch_configuration_name.as_deref() == Some(name);
    if let Some(group) = region.scaling_groups.find(uses) {
        let message = format!(
            "Cannot delete launch configuration {name} because it is attached to AutoScalingGroup \
             {}",
            group.auto_scaling_group_name
        );
        return Err(ApiError::new("ResourceInUse", message));
    }
    region.launch_configurations.remove(&id);
    Ok(json!({}))
}

/// Returns the parameters of a launch of a configuration in a subnet.
///
/// # Errors
/// If there is no such configuration.
pub(super) fn launch(region: &Region, name: &str, subnet: &str) -> ApiResult<Map<String, Value>> {
    let configuration = &find(region, name)?.parameters;
    let mut parameters = Map::new();
    let mut put = |name: &str, value: Value| _ = parameters.insert(name.to_owned(), value);
    for name in ["ImageId", "InstanceType", "KeyName", "UserData"] {
        if !configuration[name].is_null() {
            put(name, configuration[name].clone());
        }
    }
    if !configuration["PlacementTenancy"].is_null() {
        put("Placement", json!({"Tenancy": configuration["PlacementTenancy"]}));
    }
    let mut device = Map::new();
    device.insert("DeviceIndex".to_owned(), 0.into());
    device.insert("SubnetId".to_owned(), subnet.into());
    for (own, of_device) in
        [("SecurityGroups", "Groups"), ("AssociatePublicIpAddress", "AssociatePublicIpAddress")]
    {
        if !configuration[own].is_null() {
            device.insert(of_device.to_owned(), configuration[own].clone());
        }
    }
    put("NetworkInterfaces", json!([device]));
    Ok(parameters)
}
