//! The parameters of the launches of a group: those of a launch template or of a launch
//! configuration.

use serde_json::{Map, Value};

use super::check::{Launches, invalid};
use super::configuration;
use crate::actions::launch::data;
use crate::actions::launch::kind;
use crate::error::{ApiError, ApiResult};
use crate::state::scaling::TemplateChoice;
use crate::state::{Region, ScalingGroup};
use crate::wire::Request;

/// Message for a request that does not name one source of launches.
pub(super) const SOURCES: &str = "Valid requests must contain either LaunchTemplate, \
    LaunchConfigurationName, InstanceId or MixedInstancesPolicy parameter.";

/// The parameters of the launches of a group.
#[derive(Clone)]
pub(super) enum Source {
    /// A launch template.
    Template(TemplateChoice),
    /// The launch configuration with this name.
    Configuration(String),
}

impl Source {
    /// Returns the source of a group.
    ///
    /// # Errors
    /// If the group has no source. No request leads to such a group.
    pub(super) fn of(group: &ScalingGroup) -> ApiResult<Self> {
        match (&group.launch_template, &group.launch_configuration_name) {
            (Some(template), _) => Ok(Self::Template(template.clone())),
            (None, Some(name)) => Ok(Self::Configuration(name.clone())),
            (None, None) => Err(ApiError::internal("a group without launch parameters")),
        }
    }

    /// Returns the members of a group or of an instance that describe the source.
    pub(super) fn split(self) -> Launches {
        match self {
            Self::Template(template) => (Some(template), None),
            Self::Configuration(name) => (None, Some(name)),
        }
    }
}

/// Returns the source of the launches of a group that a request names; `None` if it names none. For
/// an instance, adds a launch configuration with the name of the group.
///
/// # Errors
/// If the request names several sources, or one that does not exist or cannot be used.
pub(super) fn of_request(region: &mut Region, request: &Request) -> ApiResult<Option<Source>> {
    let names = ["LaunchTemplate", "LaunchConfigurationName", "InstanceId"];
    if names.iter().filter(|name| request.has(name)).count() > 1 {
        return Err(invalid(SOURCES));
    }
    if let Some(name) = request.text("LaunchConfigurationName") {
        configuration::find(region, name)?;
        return Ok(Some(Source::Configuration(name.to_owned())));
    }
    if let Some(id) = request.text("InstanceId") {
        let name = request.need("AutoScalingGroupName")?;
        configuration::add_from_instance(region, name, id)?;
        return Ok(Some(Source::Configuration(name.to_owned())));
    }
    Ok(template(region, request)?.map(Source::Template))
}

/// Returns the launch template of a request, with the version as the request names it.
///
/// # Errors
/// If the template or the version does not exist, or no instance can be launched from it.
fn template(region: &Region, request: &Request) -> ApiResult<Option<TemplateChoice>> {
    let Some(choice) = request.part("LaunchTemplate").and_then(Value::as_object) else {
        return Ok(None);
    };
    let text = |name: &str| choice.get(name).and_then(Value::as_str);
    if text("LaunchTemplateId").is_some() == text("LaunchTemplateName").is_some() {
        let message = "Valid requests must contain either launchTemplateId or LaunchTemplateName";
        return Err(invalid(message));
    }
    let unusable =
        |why: String| invalid(format!("You must use a valid fully-formed launch template. {why}"));
    let (mut template, data) =
        data::chosen(region, choice).map_err(|error| unusable(error.message))?;
    if data["ImageId"].is_null() {
        return Err(unusable("The request must contain the parameter ImageId".to_owned()));
    }
    if let Some(name) = data["InstanceType"].as_str() {
        kind::find(name).map_err(|error| unusable(error.message))?;
    }
    text("Version").unwrap_or_default().clone_into(&mut template.version);
    Ok(Some(template))
}

/// The choice of a template, as the parameter of a launch.
pub(super) fn parameter(template: &TemplateChoice) -> Map<String, Value> {
    let mut choice = Map::new();
    choice.insert("LaunchTemplateId".to_owned(), template.launch_template_id.clone().into());
    if !template.version.is_empty() {
        choice.insert("Version".to_owned(), template.version.clone().into());
    }
    choice
}
