//! Actions on launch templates.

use serde_json::{Value, json};

use super::data;
use super::stored::{self, TEMPLATES_MAX};
use crate::actions::list::Listing;
use crate::actions::support::{get_mut, new_tags, now, show};
use crate::actions::{Actions, Handler};
use crate::error::{ApiError, ApiResult};
use crate::state::{LaunchTemplate, LaunchTemplateVersion, Region};
use crate::wire::Request;

pub(in crate::actions) const ACTIONS: Actions = &[
    ("CreateLaunchTemplate", Handler::Region(create)),
    ("DescribeLaunchTemplates", Handler::Region(describe)),
    ("ModifyLaunchTemplate", Handler::Region(modify)),
    ("DeleteLaunchTemplate", Handler::Region(delete)),
];

const LISTING: Listing = Listing {
    ids: "",
    id: "LaunchTemplateId",
    not_found: |id| crate::actions::support::not_found("lt", id),
    filters: &[("create-time", "CreateTime"), ("launch-template-name", "LaunchTemplateName")],
    result: "LaunchTemplates",
};

/// Checks a name: 3 to 128 characters, which are letters, digits and `-().,/_`.
fn check_name(name: &str) -> ApiResult<()> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "-().,/_".contains(c);
    if (3..=128).contains(&name.len()) && name.chars().all(is_valid) {
        return Ok(());
    }
    let message = "A launch template name must be between 3 and 128 characters, and may contain \
                   letters, numbers, and the following characters: - ( ) . / _";
    Err(ApiError::new("InvalidLaunchTemplateName.MalformedException", message))
}

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let name = request.need("LaunchTemplateName")?;
    check_name(name)?;
    let tags = new_tags(request, "launch-template")?;
    if region.launch_templates.find(|of| of.launch_template_name == name).is_some() {
        let message = "Launch template name already in use.";
        return Err(ApiError::new("InvalidLaunchTemplateName.AlreadyExistsException", message));
    }
    if region.launch_templates.len() >= TEMPLATES_MAX {
        let message = format!("A region has at most {TEMPLATES_MAX} launch templates.");
        return Err(ApiError::limit("ResourceLimitExceeded", message));
    }
    let data = data::of_request(request)?;
    let id = region.ids.id("lt");
    let warning = data::warning(&data);
    region.launch_templates.insert(LaunchTemplate {
        launch_template_id: id.clone(),
        launch_template_name: name.to_owned(),
        create_time: now(region),
        created_by: stored::creator(region),
        default_version_number: 1,
        latest_version_number: 0,
        last_number: 0,
        tags,
    });
    stored::add(region, &id, data, request)?;
    Ok(json!({"LaunchTemplate": show(stored::by_id(region, &id)?), "Warning": warning}))
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let (ids, names) = (request.texts("LaunchTemplateIds"), request.texts("LaunchTemplateNames"));
    let mut selected: Vec<&LaunchTemplate> = Vec::new();
    for id in &ids {
        selected.push(stored::by_id(region, id)?);
    }
    for name in &names {
        let found = stored::by_name(region, name);
        selected.push(found.map_err(|error| {
            let message =
                "At least one of the launch templates specified in the request does not exist.";
            ApiError::new(error.code, message)
        })?);
    }
    if ids.is_empty() && names.is_empty() {
        selected = region.launch_templates.iter().collect();
    }
    LISTING.answer(request, selected.into_iter().map(show).collect())
}

fn modify(region: &mut Region, request: &Request) -> ApiResult<Value> {
    if request.has("LaunchTemplateId") && request.has("LaunchTemplateName") {
        let message = "Either provide launch template ID or launch template name to modify the \
                       template.";
        return Err(ApiError::combination(message));
    }
    let template = stored::chosen(region, &request.parameters)?;
    let id = template.launch_template_id.clone();
    if let Some(text) = request.text("DefaultVersion") {
        let version = stored::version(region, template, text).map_err(|error| {
            let message = format!(
                "The launch template version {text} is not found for the specified launch template."
            );
            match error.code.ends_with(".VersionNotFound") {
                true => ApiError::new(error.code, message),
                false => error,
            }
        });
        let number = version?.version_number;
        get_mut(&mut region.launch_templates, &id)?.default_version_number = number;
    }
    Ok(json!({"LaunchTemplate": show(stored::by_id(region, &id)?)}))
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let template = stored::chosen(region, &request.parameters)?.clone();
    let id = &template.launch_template_id;
    let versions: Vec<i64> =
        stored::versions(region, &template).iter().map(|of| of.version_number).collect();
    for number in versions {
        region.template_versions.remove(&LaunchTemplateVersion::id_of(id, number));
    }
    region.launch_templates.remove(id);
    Ok(json!({"LaunchTemplate": show(&template)}))
}
