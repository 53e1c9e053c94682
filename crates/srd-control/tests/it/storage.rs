//! Volumes, snapshots, images and console output.

use crate::support::{Client, all, first};

const RUN: &str = "Action=RunInstances&ImageId=ami-12c6146b&MinCount=1&MaxCount=1";

#[test]
fn a_volume_is_attached_to_one_instance_of_its_zone() {
    let mut client = Client::new();
    let instance = client.take(RUN, "instanceId");
    let create = |rest: &str| format!("Action=CreateVolume&AvailabilityZone=us-east-1a&{rest}");
    let volume = client.take(&create("Size=10"), "volumeId");
    for (rest, code) in [
        ("", "MissingParameter"),
        ("Size=0", "InvalidParameterValue"),
        ("Size=1&VolumeType=io1&Iops=100", "InvalidParameterValue"),
        ("Size=10&VolumeType=io1", "MissingParameter"),
        ("Size=10&VolumeType=st1", "InvalidParameterValue"),
        ("Size=10&Iops=100", "InvalidParameterCombination"),
        ("Size=10&KmsKeyId=k", "InvalidParameterCombination"),
        ("Size=10&SnapshotId=snap-1", "InvalidSnapshot.NotFound"),
    ] {
        assert_eq!(client.code(&create(rest)), code, "{rest}");
    }
    let attach = |volume: &str, device: &str| {
        format!("Action=AttachVolume&VolumeId={volume}&InstanceId={instance}&Device={device}")
    };
    client.ok(&attach(&volume, "/dev/sdf"));
    assert_eq!(client.code(&attach(&volume, "/dev/sdg")), "VolumeInUse");
    let other = client.take(&create("Size=10&VolumeType=gp3"), "volumeId");
    assert_eq!(client.code(&attach(&other, "/dev/sdf")), "InvalidParameterValue");
    let far = "Action=CreateVolume&AvailabilityZone=us-east-1b&Size=10";
    let far = client.take(far, "volumeId");
    assert_eq!(client.code(&attach(&far, "/dev/sdg")), "InvalidVolume.ZoneMismatch");
    let delete = |volume: &str| format!("Action=DeleteVolume&VolumeId={volume}");
    assert_eq!(client.code(&delete(&volume)), "VolumeInUse");
    client.ok(&format!("Action=TerminateInstances&InstanceId.1={instance}"));
    let shown = client.ok(&format!("Action=DescribeVolumes&VolumeId.1={volume}"));
    assert_eq!(first(&shown, "status"), "available");
    client.ok(&delete(&volume));
    assert_eq!(client.code(&delete(&volume)), "InvalidVolume.NotFound");
}

#[test]
fn a_volume_of_a_snapshot_is_at_least_as_large() {
    let mut client = Client::new();
    let zone = "Action=CreateVolume&AvailabilityZone=us-east-1a";
    let volume = client.take(&format!("{zone}&Size=10&Encrypted=true"), "volumeId");
    let snapshot = client.take(&format!("Action=CreateSnapshot&VolumeId={volume}"), "snapshotId");
    client.ok(&format!("Action=DeleteVolume&VolumeId={volume}"));
    assert_eq!(
        client.code(&format!("{zone}&Size=9&SnapshotId={snapshot}")),
        "InvalidParameterValue"
    );
    let made = client.ok(&format!("{zone}&SnapshotId={snapshot}"));
    assert_eq!((first(&made, "size"), first(&made, "encrypted")), ("10".into(), "true".into()));
    let shown = client.ok("Action=DescribeSnapshots&Owner.1=self");
    assert_eq!(all(&shown, "snapshotId"), [snapshot.as_str()]);
    assert!(all(&client.ok("Action=DescribeSnapshots&Owner.1=amazon"), "snapshotId").is_empty());
    client.ok(&format!("Action=DeleteSnapshot&SnapshotId={snapshot}"));
}

#[test]
fn an_image_has_a_name_of_its_own() {
    let mut client = Client::new();
    let instance = client.take(RUN, "instanceId");
    let create = |name: &str| format!("Action=CreateImage&InstanceId={instance}&Name={name}");
    let image = client.take(&create("first"), "imageId");
    assert_eq!(client.code(&create("first")), "InvalidAMIName.Duplicate");
    assert_eq!(client.code(&create("x")), "InvalidAMIName.Malformed");
    let shown = client.ok("Action=DescribeImages&Owner.1=self");
    assert_eq!(all(&shown, "imageId"), [image.as_str()]);
    client.ok(&format!("Action=CreateTags&ResourceId.1={image}&Tag.1.Key=k&Tag.1.Value=v"));
    assert_eq!(client.take("Action=DescribeTags", "resourceType"), "image");
    client.ok(&format!("Action=DeregisterImage&ImageId={image}"));
    assert_eq!(
        client.code(&format!("Action=DeregisterImage&ImageId={image}")),
        "InvalidAMIID.NotFound"
    );
    let console = client.ok(&format!("Action=GetConsoleOutput&InstanceId={instance}"));
    assert!(all(&console, "output").is_empty());
}
