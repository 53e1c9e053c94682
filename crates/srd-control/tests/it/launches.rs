//! Launch templates, instance types, and launches from templates.

use crate::support::{Client, all, first};

const DATA: &str = "LaunchTemplateData";
/// A template whose instances have ENA Express.
const EXPRESS: &str = "Action=CreateLaunchTemplate&LaunchTemplateName=web&VersionDescription=first\
    &LaunchTemplateData.ImageId=ami-12c6146b&LaunchTemplateData.InstanceType=c7i.12xlarge\
    &LaunchTemplateData.UserData=IyEvYmluL3No\
    &LaunchTemplateData.Placement.AvailabilityZone=us-east-1b\
    &LaunchTemplateData.NetworkInterface.1.DeviceIndex=0\
    &LaunchTemplateData.NetworkInterface.1.EnaSrdSpecification.EnaSrdEnabled=true\
    &LaunchTemplateData.NetworkInterface.1.EnaSrdSpecification.EnaSrdUdpSpecification\
    .EnaSrdUdpEnabled=true\
    &LaunchTemplateData.TagSpecification.1.ResourceType=instance\
    &LaunchTemplateData.TagSpecification.1.Tag.1.Key=role\
    &LaunchTemplateData.TagSpecification.1.Tag.1.Value=web";
const RUN: &str = "Action=RunInstances&MinCount=1&MaxCount=1";

#[test]
fn a_template_is_created_described_and_deleted() {
    let mut client = Client::new();
    let tag = "&TagSpecification.1.ResourceType=launch-template&TagSpecification.1.Tag.1.Key=a";
    let created = client.ok(&format!("{EXPRESS}{tag}&ClientToken=t"));
    let id = first(&created, "launchTemplateId");
    assert_eq!(first(&created, "defaultVersionNumber"), "1");
    assert!(created.contains("<createdBy>arn:aws:iam::123456789012:root</createdBy>"));
    assert!(!created.contains("<warning>"));
    // The token repeats the answer, and the name is taken.
    assert_eq!(first(&client.ok(&format!("{EXPRESS}{tag}&ClientToken=t")), "launchTemplateId"), id);
    let code = "InvalidLaunchTemplateName.AlreadyExistsException";
    assert_eq!(client.code(EXPRESS), code);
    for selection in [
        format!("LaunchTemplateId.1={id}"),
        "LaunchTemplateName.1=web".to_owned(),
        "Filter.1.Name=launch-template-name&Filter.1.Value.1=w*".to_owned(),
        "Filter.1.Name=tag-key&Filter.1.Value.1=a".to_owned(),
    ] {
        let shown = client.ok(&format!("Action=DescribeLaunchTemplates&{selection}"));
        assert_eq!(all(&shown, "launchTemplateId"), std::slice::from_ref(&id), "{selection}");
    }
    let describe = "Action=DescribeLaunchTemplates&LaunchTemplate";
    let missing = "lt-0123456789abcdef0";
    for (selection, code) in [
        (format!("Id.1={missing}"), "InvalidLaunchTemplateId.NotFound"),
        ("Id.1=web".to_owned(), "InvalidLaunchTemplateId.Malformed"),
        ("Name.1=other".to_owned(), "InvalidLaunchTemplateName.NotFoundException"),
    ] {
        assert_eq!(client.code(&format!("{describe}{selection}")), code);
    }
    for name in ["ab", "a%20b%20c", &"a".repeat(129)] {
        let form = EXPRESS.replace("=web&Version", &format!("={name}&Version"));
        assert_eq!(client.code(&form), "InvalidLaunchTemplateName.MalformedException", "{name}");
    }
    let empty = "Action=CreateLaunchTemplate&LaunchTemplateName=empty";
    assert_eq!(client.code(empty), "MissingParameter");
    let deleted = client.ok("Action=DeleteLaunchTemplate&LaunchTemplateName=web");
    assert_eq!(first(&deleted, "launchTemplateId"), id);
    assert_eq!(
        client.code(&format!("Action=DeleteLaunchTemplate&LaunchTemplateId={id}")),
        "InvalidLaunchTemplateId.NotFound"
    );
    assert!(client.state().template_versions.is_empty());
}

#[test]
fn versions_inherit_are_selected_and_deleted() {
    let mut client = Client::new();
    client.ok(EXPRESS);
    let add = |source: &str, image: &str| {
        format!(
            "Action=CreateLaunchTemplateVersion&LaunchTemplateName=web{source}\
             &{DATA}.ImageId={image}"
        )
    };
    let second = client.ok(&add("&SourceVersion=1", "ami-22222222"));
    assert_eq!(first(&second, "versionNumber"), "2");
    assert!(second.contains("<instanceType>c7i.12xlarge</instanceType>"));
    assert!(second.contains("<imageId>ami-22222222</imageId>"));
    let third = client.ok(&add("", "ami-33333333"));
    assert!(!third.contains("instanceType"), "{third}");
    assert_eq!(
        client.code(&add("&SourceVersion=9", "ami-1")),
        "InvalidLaunchTemplateId.VersionNotFound"
    );
    let describe = "Action=DescribeLaunchTemplateVersions&LaunchTemplateName=web";
    let numbers = |client: &mut Client, selection: &str| {
        all(&client.ok(&format!("{describe}{selection}")), "versionNumber").join(" ")
    };
    assert_eq!(numbers(&mut client, ""), "3 2 1");
    assert_eq!(numbers(&mut client, "&MinVersion=2&MaxVersion=$Latest"), "3 2");
    let named = "&LaunchTemplateVersion.1=$Default&LaunchTemplateVersion.2=$Latest";
    assert_eq!(numbers(&mut client, named), "1 3");
    let image = "&Filter.1.Name=image-id&Filter.1.Value.1=ami-2*";
    assert_eq!(numbers(&mut client, image), "2");
    let express = client.ok(&format!("{describe}&LaunchTemplateVersion.1=1"));
    assert!(express.contains("<enaSrdUdpEnabled>true</enaSrdUdpEnabled>"), "{express}");
    let of_all = "Action=DescribeLaunchTemplateVersions&LaunchTemplateVersion.1=$Latest";
    assert_eq!(all(&client.ok(of_all), "versionNumber"), ["3"]);
    assert_eq!(client.code("Action=DescribeLaunchTemplateVersions"), "MissingParameter");
    let modify = "Action=ModifyLaunchTemplate&LaunchTemplateName=web&SetDefaultVersion=";
    assert_eq!(client.take(&format!("{modify}2"), "defaultVersionNumber"), "2");
    assert_eq!(client.code(&format!("{modify}7")), "InvalidLaunchTemplateId.VersionNotFound");
    assert_eq!(client.code(&format!("{modify}x")), "InvalidParameterValue");
    let delete = "Action=DeleteLaunchTemplateVersions&LaunchTemplateName=web\
                  &LaunchTemplateVersion.1=2&LaunchTemplateVersion.2=3&LaunchTemplateVersion.3=8";
    let deleted = client.ok(delete);
    let (gone, kept) =
        deleted.split_once("<unsuccessfullyDeletedLaunchTemplateVersionSet>").unwrap();
    assert_eq!(all(gone, "versionNumber"), ["3"]);
    assert_eq!(all(kept, "code"), ["unexpectedError", "launchTemplateVersionDoesNotExist"]);
    assert_eq!(numbers(&mut client, ""), "2 1");
    // Numbers are not used again.
    assert_eq!(first(&client.ok(&add("", "ami-44444444")), "versionNumber"), "4");
}

#[test]
fn a_launch_from_a_template_has_its_parameters_and_those_of_the_request_win() {
    let mut client = Client::new();
    let template = client.take(EXPRESS, "launchTemplateId");
    let launched = client.ok(&format!("{RUN}&LaunchTemplate.LaunchTemplateName=web"));
    assert_eq!(first(&launched, "instanceType"), "c7i.12xlarge");
    assert_eq!(first(&launched, "availabilityZone"), "us-east-1b");
    assert!(launched.contains("<enaSrdEnabled>true</enaSrdEnabled>"), "{launched}");
    for (key, value) in [
        ("role", "web"),
        ("aws:ec2launchtemplate:id", template.as_str()),
        ("aws:ec2launchtemplate:version", "1"),
    ] {
        let tag = format!("<key>{key}</key><value>{value}</value>");
        assert!(launched.contains(&tag), "{tag}: {launched}");
    }
    let id = first(&launched, "instanceId");
    let data = format!("Action=DescribeInstanceAttribute&InstanceId={id}&Attribute=userData");
    assert!(client.ok(&data).contains("<value>IyEvYmluL3No</value>"));
    let own = format!(
        "{RUN}&LaunchTemplate.LaunchTemplateId={template}&LaunchTemplate.Version=$Latest\
         &InstanceType=c7i.24xlarge&Placement.AvailabilityZone=us-east-1c\
         &TagSpecification.1.ResourceType=instance&TagSpecification.1.Tag.1.Key=role\
         &TagSpecification.1.Tag.1.Value=own"
    );
    let launched = client.ok(&own);
    assert_eq!(first(&launched, "instanceType"), "c7i.24xlarge");
    assert_eq!(first(&launched, "availabilityZone"), "us-east-1c");
    assert!(launched.contains("<key>role</key><value>own</value>"));
    assert!(!launched.contains("<value>web</value>"));
    for (parameters, code) in [
        ("LaunchTemplate.LaunchTemplateName=other", "InvalidLaunchTemplateName.NotFoundException"),
        (
            "LaunchTemplate.LaunchTemplateName=web&LaunchTemplate.Version=2",
            "InvalidLaunchTemplateId.VersionNotFound",
        ),
        ("LaunchTemplate.Version=1", "MissingParameter"),
        (
            "LaunchTemplate.LaunchTemplateName=web&LaunchTemplate.LaunchTemplateId=lt-1",
            "InvalidParameterCombination",
        ),
        // A subnet cannot be given beside the interfaces of the template.
        ("LaunchTemplate.LaunchTemplateName=web&SubnetId=subnet-1", "InvalidParameterCombination"),
    ] {
        assert_eq!(client.code(&format!("{RUN}&{parameters}")), code, "{parameters}");
    }
    // Tags of the service stay.
    client.ok(&format!("Action=DeleteTags&ResourceId.1={id}"));
    let left = all(&client.ok(&format!("Action=DescribeInstances&InstanceId.1={id}")), "key");
    assert_eq!(left, ["aws:ec2launchtemplate:id", "aws:ec2launchtemplate:version"]);
    let reserved = format!("Action=DeleteTags&ResourceId.1={id}&Tag.1.Key=aws%3Ax");
    assert_eq!(client.code(&reserved), "InvalidParameterValue");
}

#[test]
fn the_parameters_of_an_instance_are_those_of_a_template() {
    let mut client = Client::new();
    client.ok(EXPRESS);
    let launched = client.ok(&format!("{RUN}&LaunchTemplate.LaunchTemplateName=web"));
    let id = first(&launched, "instanceId");
    let data = client.ok(&format!("Action=GetLaunchTemplateData&InstanceId={id}"));
    assert_eq!(first(&data, "instanceType"), "c7i.12xlarge");
    assert!(data.contains("<enaSrdUdpEnabled>true</enaSrdUdpEnabled>"), "{data}");
    assert_eq!(all(&data, "key"), ["role"]);
    let missing = "Action=GetLaunchTemplateData&InstanceId=i-0123456789abcdef0";
    assert_eq!(client.code(missing), "InvalidInstanceID.NotFound");
}

#[test]
fn a_template_for_a_type_without_express_brings_a_warning() {
    let mut client = Client::new();
    let small = EXPRESS.replace("c7i.12xlarge", "c7i.large");
    let created = client.ok(&small);
    assert!(created.contains("does not support ENA Express"), "{created}");
}

#[test]
fn types_are_described_with_their_limits() {
    let mut client = Client::new();
    let describe = "Action=DescribeInstanceTypes";
    let shown = client.ok(&format!("{describe}&InstanceType.1=c7i.12xlarge"));
    assert_eq!(first(&shown, "enaSrdSupported"), "true");
    assert_eq!(first(&shown, "maximumNetworkInterfaces"), "8");
    assert_eq!(first(&shown, "ipv4AddressesPerInterface"), "30");
    assert_eq!(first(&shown, "defaultVCpus"), "48");
    assert_eq!(first(&shown, "sizeInMiB"), "98304");
    assert_eq!(first(&shown, "peakBandwidthInGbps"), "18.75");
    let unknown = format!("{describe}&InstanceType.1=c7i.lagre");
    assert_eq!(client.code(&unknown), "InvalidInstanceType");
    let express = format!(
        "{describe}&Filter.1.Name=network-info.ena-srd-supported&Filter.1.Value.1=true\
         &Filter.2.Name=instance-type&Filter.2.Value.1=c7i.*"
    );
    let names = all(&client.ok(&express), "instanceType");
    assert!(names.contains(&"c7i.12xlarge".to_owned()) && !names.contains(&"c7i.large".to_owned()));
    let page = client.ok(describe);
    assert_eq!(all(&page, "instanceType").len(), 1000);
    let rest = client.ok(&format!("{describe}&NextToken={}", first(&page, "nextToken")));
    assert_eq!(all(&rest, "instanceType").len(), 395);
}

#[test]
fn types_are_offered_in_all_zones() {
    let mut client = Client::new();
    let offered = |client: &mut Client, kind: &str| {
        let form = format!(
            "Action=DescribeInstanceTypeOfferings&LocationType={kind}\
             &Filter.1.Name=instance-type&Filter.1.Value.1=c7i.large"
        );
        all(&client.ok(&form), "location")
    };
    assert_eq!(offered(&mut client, "region"), ["us-east-1"]);
    assert_eq!(offered(&mut client, "availability-zone").len(), 6);
    assert_eq!(offered(&mut client, "availability-zone-id")[0], "use1-az1");
    assert!(offered(&mut client, "outpost").is_empty());
}

#[test]
fn an_instance_has_at_most_the_interfaces_of_its_type() {
    let mut client = Client::new();
    let run = format!("{RUN}&ImageId=ami-12c6146b&InstanceType=");
    let launched = client.ok(&format!("{run}t3.micro"));
    let (id, subnet) = (first(&launched, "instanceId"), first(&launched, "subnetId"));
    let attach = |client: &mut Client, index: u32| {
        let form = format!("Action=CreateNetworkInterface&SubnetId={subnet}");
        let interface = client.take(&form, "networkInterfaceId");
        format!(
            "Action=AttachNetworkInterface&NetworkInterfaceId={interface}&InstanceId={id}\
             &DeviceIndex={index}"
        )
    };
    let form = attach(&mut client, 1);
    client.ok(&form);
    let form = attach(&mut client, 2);
    assert_eq!(client.code(&form), "AttachmentLimitExceeded");
    client.ok(&format!("Action=StopInstances&InstanceId.1={id}"));
    let modify = |kind: &str| {
        format!("Action=ModifyInstanceAttribute&InstanceId={id}&InstanceType.Value={kind}")
    };
    assert_eq!(client.code(&modify("t3.mirco")), "InvalidParameterValue");
    client.ok(&modify("c7i.large"));
    client.ok(&form);
    assert_eq!(client.code(&modify("t3.micro")), "AttachmentLimitExceeded");
}

/// An instance had the internet until it was stopped, and never again.
#[test]
fn regression_an_instance_that_starts_again_gets_another_public_address() {
    let mut client = Client::new();
    let run =
        "Action=RunInstances&ImageId=ami-12c6146b&MinCount=1&MaxCount=1&InstanceType=c7i.large";
    let id = client.take(run, "instanceId");
    let describe = format!("Action=DescribeInstances&InstanceId.1={id}");
    let addresses = |client: &mut Client| all(&client.ok(&describe), "ipAddress");
    let again = |client: &mut Client| {
        client.ok(&format!("Action=StopInstances&InstanceId.1={id}"));
        let stopped = addresses(client);
        client.ok(&format!("Action=StartInstances&InstanceId.1={id}"));
        (stopped, addresses(client))
    };
    assert_eq!(addresses(&mut client).len(), 1);
    for _ in 0..2 {
        let (stopped, started) = again(&mut client);
        assert!(stopped.is_empty(), "{stopped:?}");
        assert_eq!(started.len(), 1);
        assert!(["198.18.", "198.19."].iter().any(|block| started[0].starts_with(block)));
    }
    // An elastic address stays, and takes the place of the other one.
    let elastic = client.ok("Action=AllocateAddress");
    let (elastic, allocation) = (first(&elastic, "publicIp"), first(&elastic, "allocationId"));
    client.ok(&format!("Action=AssociateAddress&InstanceId={id}&AllocationId={allocation}"));
    assert_eq!(again(&mut client), (vec![elastic.clone()], vec![elastic.clone()]));
    client.ok(&format!("Action=DisassociateAddress&PublicIp={elastic}"));
    assert_eq!(again(&mut client).1.len(), 1);
    // An instance with two interfaces has only its elastic addresses.
    let subnet = first(&client.ok(&describe), "subnetId");
    let create = format!("Action=CreateNetworkInterface&SubnetId={subnet}");
    let second = client.take(&create, "networkInterfaceId");
    client.ok(&format!(
        "Action=AttachNetworkInterface&InstanceId={id}&NetworkInterfaceId={second}&DeviceIndex=1"
    ));
    assert!(again(&mut client).1.is_empty());
}
