//! Actions on versions of launch templates.

use serde_json::{Value, json};

use super::data;
use super::stored;
use crate::actions::list::{self, Filters};
use crate::actions::support::{get_mut, show};
use crate::actions::{Actions, Handler};
use crate::error::{ApiError, ApiResult};
use crate::state::{LaunchTemplate, LaunchTemplateVersion, Region};
use crate::wire::Request;

pub(in crate::actions) const ACTIONS: Actions = &[
    ("CreateLaunchTemplateVersion", Handler::Region(create)),
    ("DescribeLaunchTemplateVersions", Handler::Region(describe)),
    ("DeleteLaunchTemplateVersions", Handler::Region(delete)),
];

/// Largest number of versions that a request names.
const NAMED_MAX: usize = 200;

/// Message of EC2 for a request that names neither a template nor versions of all templates.
const UNNAMED: &str = "To describe the launch template data for all your launch templates, for \
    ‘--versions’ specify ‘$Latest’, ‘$Default’, or both, and omit ‘--launch-template-id’, \
    ‘--launch-template-name’, and version numbers. To describe the launch template data for a \
    specific launch template, specify ‘--launch-template-id’ or ‘--launch-template-name’, and for \
    ‘--versions’ specify one or more of the following values: ‘$Latest’, ‘$Default’, or one or \
    more version numbers.";

const FILTERS: Filters = &[
    ("create-time", "CreateTime"),
    ("ebs-optimized", "LaunchTemplateData.EbsOptimized"),
    ("iam-instance-profile", "LaunchTemplateData.IamInstanceProfile.Arn"),
    ("image-id", "LaunchTemplateData.ImageId"),
    ("instance-type", "LaunchTemplateData.InstanceType"),
    ("is-default-version", "DefaultVersion"),
    ("kernel-id", "LaunchTemplateData.KernelId"),
    ("network-card-index", "LaunchTemplateData.NetworkInterfaces.NetworkCardIndex"),
    ("ram-disk-id", "LaunchTemplateData.RamDiskId"),
];

/// Returns a version as its description.
fn view(template: &LaunchTemplate, version: &LaunchTemplateVersion) -> Value {
    let mut shown = show(version);
    shown["LaunchTemplateName"] = json!(template.launch_template_name);
    shown["DefaultVersion"] = (version.version_number == template.default_version_number).into();
    shown
}

/// Adds a version. It inherits the parameters of the source version that it does not give.
fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let template = stored::chosen(region, &request.parameters)?;
    let id = template.launch_template_id.clone();
    let mut data = data::of_request(request)?;
    if let Some(source) = request.text("SourceVersion") {
        let source = stored::version(region, template, source)?;
        data::inherit(&mut data, &source.launch_template_data);
    }
    let warning = data::warning(&data);
    let number = stored::add(region, &id, data, request)?;
    let template = stored::by_id(region, &id)?;
    let version = stored::version(region, template, &number.to_string())?;
    Ok(json!({"LaunchTemplateVersion": view(template, version), "Warning": warning}))
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let named = request.texts("Versions");
    if named.len() > NAMED_MAX {
        let message = format!("A request names at most {NAMED_MAX} versions");
        return Err(ApiError::invalid(message));
    }
    let is_named = request.has("LaunchTemplateId") || request.has("LaunchTemplateName");
    let shown = match is_named {
        true => of_template(region, request, &named)?,
        false => of_all(region, request, &named)?,
    };
    let shown = list::filter(request, FILTERS, shown)?;
    list::page(request, "LaunchTemplateVersions", "Id", shown)
}

/// Returns the selected versions of one template, the newest first.
fn of_template(region: &Region, request: &Request, named: &[&str]) -> ApiResult<Vec<Value>> {
    let template = stored::chosen(region, &request.parameters)?;
    let bound = |name: &str| match request.text(name) {
        None => Ok(None),
        Some(text) => stored_number(template, text).map(Some),
    };
    let (min, max) = (bound("MinVersion")?, bound("MaxVersion")?);
    if !named.is_empty() {
        if min.is_some() || max.is_some() {
            let message = "Versions cannot be specified with MinVersion or MaxVersion";
            return Err(ApiError::combination(message));
        }
        let versions = named.iter().map(|text| stored::version(region, template, text));
        return versions.map(|version| Ok(view(template, version?))).collect();
    }
    let versions = stored::versions(region, template).into_iter();
    let selected = versions.filter(|of| {
        min.is_none_or(|min| of.version_number >= min)
            && max.is_none_or(|max| of.version_number <= max)
    });
    Ok(selected.map(|version| view(template, version)).collect())
}

/// Returns the latest or the default versions of all templates.
fn of_all(region: &Region, request: &Request, named: &[&str]) -> ApiResult<Vec<Value>> {
    if named.is_empty() {
        return Err(ApiError::new("MissingParameter", UNNAMED));
    }
    if !named.iter().all(|text| ["$Latest", "$Default"].contains(text)) {
        return Err(ApiError::invalid(UNNAMED));
    }
    if request.has("MinVersion") || request.has("MaxVersion") {
        let message = "Versions cannot be specified with MinVersion or MaxVersion";
        return Err(ApiError::combination(message));
    }
    let mut shown = Vec::new();
    for template in region.launch_templates.iter() {
        let mut last = None;
        for text in named {
            let version = stored::version(region, template, text)?;
            if last != Some(version.version_number) {
                shown.push(view(template, version));
            }
            last = Some(version.version_number);
        }
    }
    Ok(shown)
}

/// Returns the number that a text stands for, also if the version does not exist.
fn stored_number(template: &LaunchTemplate, text: &str) -> ApiResult<i64> {
    match text {
        "$Latest" => Ok(template.latest_version_number),
        "$Default" => Ok(template.default_version_number),
        _ => text
            .parse()
            .map_err(|_| ApiError::invalid(format!("Invalid launch template version: {text}"))),
    }
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let template = stored::chosen(region, &request.parameters)?.clone();
    let named = request.texts("Versions");
    if named.is_empty() || named.len() > NAMED_MAX {
        let message = format!("A request names 1 to {NAMED_MAX} versions");
        return Err(ApiError::invalid(message));
    }
    let (mut deleted, mut kept) = (Vec::new(), Vec::new());
    for text in named {
        let id = &template.launch_template_id;
        let number = stored_number(&template, text)?;
        let mut item = json!({"LaunchTemplateId": id, "VersionNumber": number,
                              "LaunchTemplateName": template.launch_template_name});
        if number == template.default_version_number {
            let message = "The default version cannot be deleted.";
            item["ResponseError"] = json!({"Code": "unexpectedError", "Message": message});
            kept.push(item);
            continue;
        }
        match region.template_versions.remove(&LaunchTemplateVersion::id_of(id, number)) {
            Some(_) => deleted.push(item),
            None => {
                let message = "The specified launch template version does not exist.";
                item["ResponseError"] =
                    json!({"Code": "launchTemplateVersionDoesNotExist", "Message": message});
                kept.push(item);
            }
        }
    }
    let latest = stored::versions(region, &template).first().map(|of| of.version_number);
    if let Some(latest) = latest {
        let id = &template.launch_template_id;
        get_mut(&mut region.launch_templates, id)?.latest_version_number = latest;
    }
    Ok(json!({"SuccessfullyDeletedLaunchTemplateVersions": deleted,
              "UnsuccessfullyDeletedLaunchTemplateVersions": kept}))
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::actions::launch::stored::{DATA, DATA_BYTES_MAX, VERSIONS_MAX};
    use crate::state::IdGenerator;

    fn request(parameters: Value) -> Request {
        let parameters: Map<String, Value> = parameters.as_object().unwrap().clone();
        Request { action: "CreateLaunchTemplateVersion".to_owned(), parameters }
    }

    #[test]
    fn versions_are_bounded_in_number_and_size() {
        let mut region = Region::empty("1", "us-east-1", IdGenerator::new(1));
        region.launch_templates.insert(LaunchTemplate {
            launch_template_id: "lt-1".to_owned(),
            launch_template_name: "abc".to_owned(),
            create_time: String::new(),
            created_by: String::new(),
            default_version_number: 1,
            latest_version_number: 0,
            last_number: VERSIONS_MAX - 1,
            tags: Vec::new(),
        });
        let name = "LaunchTemplateName";
        let of = |data: Value| request(json!({name: "abc", DATA: data}));
        let large = "x".repeat(DATA_BYTES_MAX);
        let error = create(&mut region, &of(json!({"KeyName": large}))).unwrap_err();
        assert_eq!(error.code, "InvalidParameterValue");
        let long = "x".repeat(256);
        let mut described = of(json!({}));
        described.parameters.insert("VersionDescription".to_owned(), long.into());
        assert_eq!(create(&mut region, &described).unwrap_err().code, "InvalidParameterValue");
        create(&mut region, &of(json!({}))).unwrap();
        let error = create(&mut region, &of(json!({}))).unwrap_err();
        assert_eq!(error.code, "ResourceLimitExceeded");
    }
}
