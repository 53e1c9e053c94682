//! Launch templates and their versions in the state.
//!
//! Bounds: a region has [`TEMPLATES_MAX`] templates, and a template [`VERSIONS_MAX`] versions. The
//! parameters of a version have at most [`DATA_BYTES_MAX`] bytes, and those of all versions
//! [`REGION_BYTES_MAX`].

use serde_json::{Map, Value};

use crate::actions::support::now;
use crate::error::{ApiError, ApiResult};
use crate::state::{LaunchTemplate, LaunchTemplateVersion, Region};
use crate::wire::Request;

/// Largest number of launch templates of a region.
pub(super) const TEMPLATES_MAX: usize = 5000;
/// Largest number of versions of a launch template.
pub(super) const VERSIONS_MAX: i64 = 10_000;
/// Largest size of the parameters of a version in bytes, as JSON.
pub(super) const DATA_BYTES_MAX: usize = 64 << 10;
/// Largest size of the parameters of all versions of a region in bytes, as JSON.
pub(super) const REGION_BYTES_MAX: usize = 8 << 20;
/// Largest number of characters of the description of a version.
const DESCRIPTION_MAX: usize = 255;

/// Name of the member with the parameters of a launch.
pub(super) const DATA: &str = "LaunchTemplateData";

/// Returns the error for a template whose identifier does not exist.
fn no_such_id(id: &str) -> ApiError {
    let hex = id.strip_prefix("lt-").unwrap_or_default();
    if !(8..=17).contains(&hex.len()) || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        let message = format!("Invalid launch template ID: \"{id}\" (expecting \"lt-...\")");
        return ApiError::new("InvalidLaunchTemplateId.Malformed", message);
    }
    let message = format!("The specified launch template, with template ID {id}, does not exist.");
    ApiError::new("InvalidLaunchTemplateId.NotFound", message)
}

/// Returns the template with this identifier.
///
/// # Errors
/// If there is no such template.
pub(in crate::actions) fn by_id<'a>(region: &'a Region, id: &str) -> ApiResult<&'a LaunchTemplate> {
    region.launch_templates.get(id).ok_or_else(|| no_such_id(id))
}

/// Returns the template with this name.
///
/// # Errors
/// If there is no such template.
pub(in crate::actions) fn by_name<'a>(
    region: &'a Region,
    name: &str,
) -> ApiResult<&'a LaunchTemplate> {
    let found = region.launch_templates.find(|of| of.launch_template_name == name);
    found.ok_or_else(|| {
        let message =
            format!("The specified launch template, with template name {name}, does not exist.");
        ApiError::new("InvalidLaunchTemplateName.NotFoundException", message)
    })
}

/// Returns the template that a request or a structure names, by its identifier or its name.
///
/// # Errors
/// If both are given, if neither is given, or if there is no such template.
pub(in crate::actions) fn chosen<'a>(
    region: &'a Region,
    of: &Map<String, Value>,
) -> ApiResult<&'a LaunchTemplate> {
    let text = |name: &str| of.get(name).and_then(Value::as_str);
    match (text("LaunchTemplateId"), text("LaunchTemplateName")) {
        (Some(id), None) => by_id(region, id),
        (None, Some(name)) => by_name(region, name),
        (Some(_), Some(_)) => {
            let message = "Only one of launchTemplateId and launchTemplateName can be specified";
            Err(ApiError::combination(message))
        }
        (None, None) => Err(ApiError::missing("launch template ID or launch template name")),
    }
}

/// Returns the version of a template that a text names: a number, `$Latest` or `$Default`.
///
/// # Errors
/// If the text names no version, or the version does not exist.
pub(in crate::actions) fn version<'a>(
    region: &'a Region,
    template: &LaunchTemplate,
    text: &str,
) -> ApiResult<&'a LaunchTemplateVersion> {
    let number = match text {
        "$Latest" => template.latest_version_number,
        "$Default" => template.default_version_number,
        _ => text.parse::<i64>().ok().filter(|number| *number > 0).ok_or_else(|| {
            let message = format!("Invalid launch template version: {text}");
            ApiError::new("InvalidParameterValue", message)
        })?,
    };
    let id = &template.launch_template_id;
    let found = region.template_versions.get(&LaunchTemplateVersion::id_of(id, number));
    found.ok_or_else(|| {
        let message = format!(
            "Could not find the specified version {text} for the launch template with ID {id}."
        );
        ApiError::new("InvalidLaunchTemplateId.VersionNotFound", message)
    })
}

/// Returns the versions of a template, the newest first.
pub(in crate::actions) fn versions<'a>(
    region: &'a Region,
    template: &LaunchTemplate,
) -> Vec<&'a LaunchTemplateVersion> {
    let id = &template.launch_template_id;
    let all = region.template_versions.iter().rev();
    all.filter(|of| of.launch_template_id == *id).collect()
}

/// Adds a version to a template, and returns its number.
///
/// # Errors
/// If the template has too many versions, or the parameters or the description are too large.
pub(super) fn add(
    region: &mut Region,
    template: &str,
    data: Value,
    request: &Request,
) -> ApiResult<i64> {
    let bytes = data.to_string().len();
    if bytes > DATA_BYTES_MAX {
        let message = format!("Launch template data has {bytes} bytes; at most {DATA_BYTES_MAX}");
        return Err(ApiError::invalid(message));
    }
    if region.template_versions.bytes() + bytes > REGION_BYTES_MAX {
        let message = format!(
            "All launch template versions of a region have at most {REGION_BYTES_MAX} bytes."
        );
        return Err(ApiError::limit("ResourceLimitExceeded", message));
    }
    let description = request.text("VersionDescription").map(str::to_owned);
    if description.as_ref().is_some_and(|text| text.chars().count() > DESCRIPTION_MAX) {
        let message = format!("VersionDescription has at most {DESCRIPTION_MAX} characters");
        return Err(ApiError::invalid(message));
    }
    let (create_time, created_by) = (now(region), creator(region));
    let Some(of) = region.launch_templates.get_mut(template) else {
        return Err(no_such_id(template));
    };
    let number = of.last_number + 1;
    if number > VERSIONS_MAX {
        let message = format!("A launch template has at most {VERSIONS_MAX} versions.");
        return Err(ApiError::limit("ResourceLimitExceeded", message));
    }
    (of.last_number, of.latest_version_number) = (number, number);
    region.template_versions.insert(LaunchTemplateVersion {
        id: LaunchTemplateVersion::id_of(template, number),
        launch_template_id: template.to_owned(),
        version_number: number,
        version_description: description,
        create_time,
        created_by,
        launch_template_data: data,
    });
    Ok(number)
}

/// Name of the creator of all objects of an account, as a resource.
pub(super) fn creator(region: &Region) -> String {
    let partition = crate::regions::partition(&region.name);
    format!("arn:{partition}:iam::{}:root", region.account)
}
