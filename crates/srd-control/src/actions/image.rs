//! Images that the account made of its instances. They have no contents.

use serde_json::{Value, json};

use super::list::Listing;
use super::support::{get, not_found, now, show, tags_for};
use super::volume::is_owner;
use super::{Actions, Handler};
use crate::error::{ApiError, ApiResult};
use crate::state::{Image, Region};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateImage", Handler::Region(create)),
    ("DescribeImages", Handler::Region(describe)),
    ("DeregisterImage", Handler::Region(deregister)),
];

/// Checks a name: 3 to 128 letters, digits and `()[] ./-'@_`.
fn check_name(name: &str) -> ApiResult<()> {
    let accepted = |c: char| c.is_ascii_alphanumeric() || "()[] ./-'@_".contains(c);
    if (3..=128).contains(&name.len()) && name.chars().all(accepted) {
        return Ok(());
    }
    let message = "AMI names must be between 3 and 128 characters long, and may contain letters, \
                   numbers, '(', ')', '.', '-', '/' and '_'";
    Err(ApiError::new("InvalidAMIName.Malformed", message))
}

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    tags_for(request, &["image", "snapshot"], "snapshot")?;
    let tags = tags_for(request, &["image", "snapshot"], "image")?;
    let name = request.need("Name")?;
    check_name(name)?;
    if request.has("BlockDeviceMappings") || request.has("SnapshotLocation") {
        let message = "Images with volumes are not served by this endpoint.";
        return Err(ApiError::new("UnsupportedOperation", message));
    }
    let instance = get(&region.instances, request.need("InstanceId")?)?;
    if !["running", "stopped"].contains(&instance.state.name.as_str()) {
        let message = format!("Instance '{}' is not running or stopped", instance.instance_id);
        return Err(ApiError::new("IncorrectState", message));
    }
    let source_instance_id = instance.instance_id.clone();
    if let Some(old) = region.images.find(|image| image.name == name) {
        let message = format!("AMI name {name} is already in use by AMI {}", old.image_id);
        return Err(ApiError::new("InvalidAMIName.Duplicate", message));
    }
    let image_id = region.ids.id("ami");
    region.images.insert(Image {
        image_id: image_id.clone(),
        name: name.to_owned(),
        description: request.text("Description").unwrap_or_default().to_owned(),
        owner_id: region.account.clone(),
        image_location: format!("{}/{name}", region.account),
        source_instance_id,
        state: "available".to_owned(),
        creation_date: now(region),
        public: false,
        tags,
    });
    Ok(json!({"ImageId": image_id}))
}

fn view(image: &Image) -> Value {
    let mut shown = show(image);
    shown["Architecture"] = "x86_64".into();
    shown["BlockDeviceMappings"] = json!([]);
    shown["EnaSupport"] = true.into();
    shown["Hypervisor"] = "xen".into();
    shown["ImageType"] = "machine".into();
    shown["RootDeviceName"] = "/dev/xvda".into();
    shown["RootDeviceType"] = "ebs".into();
    shown["VirtualizationType"] = "hvm".into();
    if image.tags.is_empty() {
        // An empty list of tags is omitted.
        shown["Tags"] = Value::Null;
    }
    shown
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "ImageIds",
        id: "ImageId",
        not_found: |id| not_found("ami", id),
        filters: &[
            ("architecture", "Architecture"),
            ("creation-date", "CreationDate"),
            ("description", "Description"),
            ("ena-support", "EnaSupport"),
            ("hypervisor", "Hypervisor"),
            ("image-id", "ImageId"),
            ("image-type", "ImageType"),
            ("is-public", "Public"),
            ("name", "Name"),
            ("owner-id", "OwnerId"),
            ("root-device-name", "RootDeviceName"),
            ("root-device-type", "RootDeviceType"),
            ("source-instance-id", "SourceInstanceId"),
            ("state", "State"),
            ("virtualization-type", "VirtualizationType"),
        ],
        result: "Images",
    };
    let is_owner = is_owner(region, &request.texts("Owners"));
    listing.answer(request, region.images.iter().filter(|_| is_owner).map(view).collect())
}

fn deregister(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("ImageId")?;
    region.images.remove(id).ok_or_else(|| not_found("ami", id))?;
    Ok(json!({"Return": true}))
}
