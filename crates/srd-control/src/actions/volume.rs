//! Volumes and snapshots. They have no contents: an instance does not see them.

use serde_json::Value;

use super::list::Listing;
use super::support::{get, new_tags, not_found, now, show, success};
use super::{Actions, Handler};
use crate::error::{ApiError, ApiResult};
use crate::regions;
use crate::state::storage::VolumeAttachment;
use crate::state::{Region, Snapshot, Volume};
use crate::wire::Request;

pub(super) const ACTIONS: Actions = &[
    ("CreateVolume", Handler::Region(create)),
    ("DescribeVolumes", Handler::Region(describe)),
    ("AttachVolume", Handler::Region(attach)),
    ("DetachVolume", Handler::Region(detach)),
    ("DeleteVolume", Handler::Region(delete)),
    ("CreateSnapshot", Handler::Region(create_snapshot)),
    ("DescribeSnapshots", Handler::Region(describe_snapshots)),
    ("DeleteSnapshot", Handler::Region(delete_snapshot)),
];

/// Largest number of volumes of an instance.
const ATTACHED_MAX: usize = 40;

/// Smallest and largest allowed value of a number.
type Bounds = [i64; 2];

/// Types of volumes, each with the bounds of its size in GiB, and of its operations per second
/// (IOPS). A request for a type without bounds of IOPS must not contain IOPS.
const KINDS: [(&str, Bounds, Option<Bounds>); 7] = [
    ("standard", [1, 1024], None),
    ("gp2", [1, 16_384], None),
    ("gp3", [1, 65_536], Some([3000, 80_000])),
    ("io1", [4, 16_384], Some([100, 64_000])),
    ("io2", [4, 65_536], Some([100, 256_000])),
    ("st1", [125, 16_384], None),
    ("sc1", [125, 16_384], None),
];

/// Returns the zone of a request: name and identifier.
fn zone(region: &Region, request: &Request) -> ApiResult<(String, String)> {
    let given = (request.text("AvailabilityZone"), request.text("AvailabilityZoneId"));
    let zones = regions::zones(&region.name);
    let found = match given {
        (None, None) => return Err(ApiError::missing("availabilityZone")),
        (Some(_), Some(_)) => {
            let message = "Only one of AvailabilityZone and AvailabilityZoneId can be given";
            return Err(ApiError::combination(message));
        }
        (name, id) => zones
            .into_iter()
            .find(|zone| name == Some(zone.0.as_str()) || id == Some(zone.1.as_str())),
    };
    found.ok_or_else(|| {
        let message = "The specified zone does not exist.";
        ApiError::new("InvalidZone.NotFound", message)
    })
}

/// Returns the operations per second (IOPS) of a volume.
fn iops(
    request: &Request,
    kind: &str,
    bounds: Option<Bounds>,
    size: i64,
) -> ApiResult<Option<i64>> {
    let given = request.number("Iops");
    match (bounds, given) {
        (None, Some(_)) => {
            let message = format!("The parameter iops is not supported for {kind} volumes.");
            Err(ApiError::combination(message))
        }
        // Three operations per second for each GiB, between 100 and 16,000.
        (None, None) if kind == "gp2" => Ok(Some((3 * size).clamp(100, 16_000))),
        (None, None) => Ok(None),
        (Some([min, _]), None) if kind == "gp3" => Ok(Some(min)),
        (Some(_), None) => Err(ApiError::missing("iops")),
        (Some([min, max]), Some(iops)) if (min..=max).contains(&iops) => Ok(Some(iops)),
        (Some([min, max]), Some(iops)) => Err(ApiError::invalid(format!(
            "Volume iops of {iops} is invalid; it is {min} to {max} for {kind}."
        ))),
    }
}

/// Returns the throughput of a volume in MiB/s.
fn throughput(request: &Request, kind: &str) -> ApiResult<Option<i64>> {
    match (kind, request.number("Throughput")) {
        ("gp3", None) => Ok(Some(125)),
        ("gp3", Some(rate)) if (125..=2000).contains(&rate) => Ok(Some(rate)),
        ("gp3", Some(rate)) => {
            let message = format!("Throughput of {rate} is invalid; it is 125 to 2000.");
            Err(ApiError::invalid(message))
        }
        (_, None) => Ok(None),
        (_, Some(_)) => {
            let message = "The parameter throughput is supported for gp3 volumes only.";
            Err(ApiError::combination(message))
        }
    }
}

fn create(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "volume")?;
    for name in ["OutpostArn", "VolumeInitializationRate"] {
        if request.has(name) {
            let message = format!("The parameter {name} is not served by this endpoint.");
            return Err(ApiError::new("UnsupportedOperation", message));
        }
    }
    let (availability_zone, availability_zone_id) = zone(region, request)?;
    let snapshot = match request.text("SnapshotId").filter(|id| !id.is_empty()) {
        Some(id) => Some(get(&region.snapshots, id)?.clone()),
        None => None,
    };
    let origin = snapshot.as_ref().map(|of| of.volume_size);
    let size = request.number("Size").or(origin).ok_or_else(|| {
        let message = "The request must contain the parameter size or snapshotId";
        ApiError::new("MissingParameter", message)
    })?;
    let kind = request.text("VolumeType").unwrap_or("gp2");
    let Some((_, [min, max], bounds)) = KINDS.into_iter().find(|(name, ..)| *name == kind) else {
        return Err(ApiError::new(
            "UnknownVolumeType",
            format!("Unsupported volume type '{kind}'"),
        ));
    };
    if !(min..=max).contains(&size) || origin.is_some_and(|origin| size < origin) {
        let message =
            format!("Volume of {size}GiB is invalid for {kind}; it has {min} to {max} GiB.");
        return Err(ApiError::invalid(message));
    }
    let encrypted = request.flag("Encrypted") == Some(true);
    if request.has("KmsKeyId") && !encrypted {
        let message = "The parameter KmsKeyId requires the parameter Encrypted to be set.";
        return Err(ApiError::combination(message));
    }
    let multi = request.flag("MultiAttachEnabled") == Some(true);
    if multi && !["io1", "io2"].contains(&kind) {
        let message = "Multi-Attach is supported for io1 and io2 volumes only.";
        return Err(ApiError::combination(message));
    }
    let volume = Volume {
        volume_id: region.ids.id("vol"),
        availability_zone,
        availability_zone_id,
        size,
        volume_type: kind.to_owned(),
        iops: iops(request, kind, bounds, size)?,
        throughput: throughput(request, kind)?,
        encrypted: encrypted || snapshot.as_ref().is_some_and(|of| of.encrypted),
        kms_key_id: request.text("KmsKeyId").map(str::to_owned),
        snapshot_id: snapshot.map(|of| of.snapshot_id),
        multi_attach_enabled: multi,
        state: "available".to_owned(),
        create_time: now(region),
        attachments: Vec::new(),
        tags,
    };
    let mut shown = view(&volume);
    shown["State"] = "creating".into();
    region.volumes.insert(volume);
    Ok(shown)
}

/// Returns a volume or a snapshot as its description, which omits an empty list of tags.
fn view<T: crate::state::Object>(object: &T) -> Value {
    let mut shown = show(object);
    if object.tags().is_empty() {
        shown["Tags"] = Value::Null;
    }
    shown
}

fn describe(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "VolumeIds",
        id: "VolumeId",
        not_found: |id| not_found("vol", id),
        filters: &[
            ("attachment.attach-time", "Attachments.AttachTime"),
            ("attachment.delete-on-termination", "Attachments.DeleteOnTermination"),
            ("attachment.device", "Attachments.Device"),
            ("attachment.instance-id", "Attachments.InstanceId"),
            ("attachment.status", "Attachments.State"),
            ("availability-zone", "AvailabilityZone"),
            ("availability-zone-id", "AvailabilityZoneId"),
            ("create-time", "CreateTime"),
            ("encrypted", "Encrypted"),
            ("multi-attach-enabled", "MultiAttachEnabled"),
            ("size", "Size"),
            ("snapshot-id", "SnapshotId"),
            ("status", "State"),
            ("volume-id", "VolumeId"),
            ("volume-type", "VolumeType"),
        ],
        result: "Volumes",
    };
    listing.answer(request, region.volumes.iter().map(view).collect())
}

fn attach(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let mut volume = get(&region.volumes, request.need("VolumeId")?)?.clone();
    let instance = get(&region.instances, request.need("InstanceId")?)?;
    let (id, device) = (instance.instance_id.clone(), request.need("Device")?);
    if !["running", "stopped"].contains(&instance.state.name.as_str()) {
        let message = format!("Instance '{id}' is not 'running' or 'stopped'.");
        return Err(ApiError::new("IncorrectState", message));
    }
    if instance.availability_zone != volume.availability_zone {
        let message = format!(
            "The volume '{}' is not in the same availability zone as instance '{id}'",
            volume.volume_id
        );
        return Err(ApiError::new("InvalidVolume.ZoneMismatch", message));
    }
    let same = volume.attachments.iter().any(|of| of.instance_id == id);
    if same || (!volume.attachments.is_empty() && !volume.multi_attach_enabled) {
        let message = format!("{} is already attached to an instance", volume.volume_id);
        return Err(ApiError::new("VolumeInUse", message));
    }
    let all = region.volumes.iter().flat_map(|of| &of.attachments);
    let of_instance: Vec<_> = all.filter(|of| of.instance_id == id).collect();
    if of_instance.iter().any(|of| of.device == device) {
        let message =
            format!("Invalid value '{device}' for unixDevice. Attachment point is already in use");
        return Err(ApiError::invalid(message));
    }
    if of_instance.len() >= ATTACHED_MAX {
        let message = format!("An instance has at most {ATTACHED_MAX} volumes");
        return Err(ApiError::limit("AttachmentLimitExceeded", message));
    }
    let attachment = VolumeAttachment {
        volume_id: volume.volume_id.clone(),
        instance_id: id,
        device: device.to_owned(),
        state: "attached".to_owned(),
        attach_time: now(region),
        delete_on_termination: false,
    };
    let mut shown = show(&attachment);
    shown["State"] = "attaching".into();
    volume.attachments.push(attachment);
    "in-use".clone_into(&mut volume.state);
    region.volumes.insert(volume);
    Ok(shown)
}

fn detach(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let mut volume = get(&region.volumes, request.need("VolumeId")?)?.clone();
    let id = volume.volume_id.clone();
    let fits = |of: &VolumeAttachment| {
        request.text("InstanceId").is_none_or(|instance| of.instance_id == instance)
            && request.text("Device").is_none_or(|device| of.device == device)
    };
    if volume.attachments.len() > 1 && !request.has("InstanceId") {
        return Err(ApiError::missing("instanceId"));
    }
    let Some(at) = volume.attachments.iter().position(fits) else {
        let message = format!("Volume '{id}' is in the 'available' state.");
        return Err(ApiError::new("IncorrectState", message));
    };
    let mut shown = show(&volume.attachments.remove(at));
    shown["State"] = "detaching".into();
    if volume.attachments.is_empty() {
        "available".clone_into(&mut volume.state);
    }
    region.volumes.insert(volume);
    Ok(shown)
}

/// Ends the attachments of an instance that is terminated.
pub(super) fn detach_all(region: &mut Region, instance: &str) {
    let uses = |of: &VolumeAttachment| of.instance_id == instance;
    for id in region.volumes.ids_where(|volume| volume.attachments.iter().any(uses)) {
        let Some(volume) = region.volumes.get_mut(&id) else { continue };
        volume.attachments.retain(|of| !uses(of));
        if volume.attachments.is_empty() {
            "available".clone_into(&mut volume.state);
        }
    }
}

fn delete(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("VolumeId")?;
    if let Some(of) = get(&region.volumes, id)?.attachments.first() {
        let message = format!("Volume {id} is currently attached to {}", of.instance_id);
        return Err(ApiError::new("VolumeInUse", message));
    }
    region.volumes.remove(id);
    success()
}

fn create_snapshot(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let tags = new_tags(request, "snapshot")?;
    if request.has("OutpostArn") || request.has("Location") {
        let message = "Snapshots outside of the region are not served by this endpoint.";
        return Err(ApiError::new("UnsupportedOperation", message));
    }
    let volume = get(&region.volumes, request.need("VolumeId")?)?.clone();
    let snapshot = Snapshot {
        snapshot_id: region.ids.id("snap"),
        volume_id: volume.volume_id,
        volume_size: volume.size,
        owner_id: region.account.clone(),
        description: request.text("Description").unwrap_or_default().to_owned(),
        state: "completed".to_owned(),
        progress: "100%".to_owned(),
        start_time: now(region),
        encrypted: volume.encrypted,
        kms_key_id: volume.kms_key_id,
        storage_tier: "standard".to_owned(),
        tags,
    };
    let mut shown = view(&snapshot);
    shown["State"] = "pending".into();
    shown["Progress"] = "".into();
    region.snapshots.insert(snapshot);
    Ok(shown)
}

/// Whether a list of owners of a request includes the account.
pub(super) fn is_owner(region: &Region, owners: &[&str]) -> bool {
    owners.is_empty() || owners.iter().any(|of| *of == "self" || *of == region.account)
}

fn describe_snapshots(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let listing = Listing {
        ids: "SnapshotIds",
        id: "SnapshotId",
        not_found: |id| not_found("snap", id),
        filters: &[
            ("description", "Description"),
            ("encrypted", "Encrypted"),
            ("owner-id", "OwnerId"),
            ("progress", "Progress"),
            ("snapshot-id", "SnapshotId"),
            ("start-time", "StartTime"),
            ("status", "State"),
            ("storage-tier", "StorageTier"),
            ("volume-id", "VolumeId"),
            ("volume-size", "VolumeSize"),
        ],
        result: "Snapshots",
    };
    let is_owner = is_owner(region, &request.texts("OwnerIds"));
    let all = region.snapshots.iter().filter(|_| is_owner).map(view).collect();
    listing.answer(request, all)
}

fn delete_snapshot(region: &mut Region, request: &Request) -> ApiResult<Value> {
    let id = request.need("SnapshotId")?;
    region.snapshots.remove(id).ok_or_else(|| not_found("snap", id))?;
    success()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_type_has_its_own_figures() {
        let request = |parameters: Value| Request {
            action: "CreateVolume".to_owned(),
            parameters: parameters.as_object().cloned().unwrap_or_default(),
        };
        let none = request(json!({}));
        assert_eq!(iops(&none, "gp2", None, 10).unwrap(), Some(100));
        assert_eq!(iops(&none, "gp2", None, 1000).unwrap(), Some(3000));
        assert_eq!(iops(&none, "st1", None, 1000).unwrap(), None);
        assert_eq!(iops(&none, "gp3", Some([3000, 80_000]), 10).unwrap(), Some(3000));
        assert_eq!(
            iops(&none, "io1", Some([100, 64_000]), 10).unwrap_err().code,
            "MissingParameter"
        );
        let many = request(json!({"Iops": 64_001}));
        assert_eq!(
            iops(&many, "io1", Some([100, 64_000]), 10).unwrap_err().code,
            "InvalidParameterValue"
        );
        assert_eq!(throughput(&none, "gp3").unwrap(), Some(125));
        let fast = request(json!({"Throughput": 200}));
        assert_eq!(throughput(&fast, "gp2").unwrap_err().code, "InvalidParameterCombination");
    }
}
