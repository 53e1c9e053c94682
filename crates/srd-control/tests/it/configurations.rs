//! Launch configurations, and groups that start instances from them.

use srd_control::machines::NoMachines;

use crate::scaling::{GROUP, code, desire, group, members, ok, running, send};
use crate::support::{Client, SharedStore, all, first};

const IMAGE: &str = "ImageId=ami-12c6146b&InstanceType=c7i.large";

fn create(client: &mut Client, name: &str, more: &str) {
    let form = format!("LaunchConfigurationName={name}&{IMAGE}{more}");
    ok(client, "CreateLaunchConfiguration", &form);
}

/// Creates the group with a configuration, in one zone.
fn start(client: &mut Client, name: &str, sizes: &str) {
    let form = format!(
        "{GROUP}&LaunchConfigurationName={name}&AvailabilityZones.member.1=us-east-1a&{sizes}"
    );
    ok(client, "CreateAutoScalingGroup", &form);
}

/// The configurations of the members of the group, in the order in which they joined.
fn configurations(client: &mut Client) -> Vec<String> {
    all(&ok(client, "DescribeAutoScalingInstances", ""), "LaunchConfigurationName")
}

#[test]
fn a_configuration_is_created_described_and_deleted() {
    let mut client = Client::new();
    let of = "&KeyName=key&UserData=IyEvYmluL3No&AssociatePublicIpAddress=true\
              &InstanceMonitoring.Enabled=false&PlacementTenancy=default\
              &BlockDeviceMappings.member.1.DeviceName=/dev/sda1\
              &BlockDeviceMappings.member.1.Ebs.VolumeSize=8&IamInstanceProfile=role";
    create(&mut client, "web", of);
    create(&mut client, "plain", "");
    let shown = ok(&mut client, "DescribeLaunchConfigurations", "");
    assert_eq!(all(&shown, "LaunchConfigurationName"), ["web", "plain"]);
    assert_eq!(all(&shown, "KeyName"), ["key", ""]);
    assert_eq!(all(&shown, "UserData"), ["IyEvYmluL3No", ""]);
    assert_eq!(all(&shown, "Enabled"), ["false", "true"]);
    assert_eq!(all(&shown, "AssociatePublicIpAddress"), ["true"]);
    assert_eq!(all(&shown, "VolumeSize"), ["8"]);
    assert_eq!(all(&shown, "InstanceType"), vec!["c7i.large"; 2]);
    let arn = first(&shown, "LaunchConfigurationARN");
    assert!(arn.starts_with("arn:aws:autoscaling:us-east-1:"), "{arn}");
    assert!(arn.ends_with(":launchConfigurationName/web"), "{arn}");
    let named = "LaunchConfigurationNames.member.1=plain&LaunchConfigurationNames.member.2=none";
    let shown = ok(&mut client, "DescribeLaunchConfigurations", named);
    assert_eq!(all(&shown, "LaunchConfigurationName"), ["plain"]);
    let page = ok(&mut client, "DescribeLaunchConfigurations", "MaxRecords=1");
    let next = format!("MaxRecords=1&NextToken={}", first(&page, "NextToken"));
    let next = ok(&mut client, "DescribeLaunchConfigurations", &next);
    assert_eq!(all(&next, "LaunchConfigurationName"), ["plain"]);
    ok(&mut client, "DeleteLaunchConfiguration", "LaunchConfigurationName=plain");
    let again = code(&mut client, "DeleteLaunchConfiguration", "LaunchConfigurationName=plain");
    assert_eq!(again, "ValidationError");
}

#[test]
fn wrong_configurations_are_refused_with_the_documented_codes() {
    let mut client = Client::new();
    create(&mut client, "web", "");
    let long = "n".repeat(256);
    let groups: String =
        (1..=17).map(|n| format!("&SecurityGroups.member.{n}=sg-{n:08x}")).collect();
    for (form, wanted) in [
        (format!("LaunchConfigurationName=web&{IMAGE}"), "AlreadyExists"),
        (format!("LaunchConfigurationName={long}&{IMAGE}"), "ValidationError"),
        (format!("LaunchConfigurationName=a%0Ab&{IMAGE}"), "ValidationError"),
        (IMAGE.to_owned(), "ValidationError"),
        ("LaunchConfigurationName=b&ImageId=ami-12c6146b".to_owned(), "ValidationError"),
        ("LaunchConfigurationName=b&InstanceType=c7i.large".to_owned(), "ValidationError"),
        ("LaunchConfigurationName=b&InstanceId=i-12345678".to_owned(), "ValidationError"),
        (format!("LaunchConfigurationName=b&{IMAGE}&SpotPrice=0.1"), "ValidationError"),
        (format!("LaunchConfigurationName=b&{IMAGE}&KernelId=aki-1"), "ValidationError"),
        (format!("LaunchConfigurationName=b&{IMAGE}&PlacementTenancy=host"), "ValidationError"),
        (format!("LaunchConfigurationName=b&{IMAGE}&UserData=no!"), "ValidationError"),
        (format!("LaunchConfigurationName=b&{IMAGE}{groups}"), "ValidationError"),
        (
            format!("LaunchConfigurationName=b&{IMAGE}&SecurityGroups.member.1=sg-12345678"),
            "ValidationError",
        ),
        (
            "LaunchConfigurationName=b&ImageId=image&InstanceType=c7i.large".to_owned(),
            "ValidationError",
        ),
        (
            "LaunchConfigurationName=b&ImageId=ami-12c6146b&InstanceType=c7i.lage".to_owned(),
            "ValidationError",
        ),
    ] {
        assert_eq!(code(&mut client, "CreateLaunchConfiguration", &form), wanted, "{form}");
    }
    let message = send(&mut client, "CreateLaunchConfiguration", "LaunchConfigurationName=b").body;
    assert!(message.contains("either the InstanceID parameter or both"), "{message}");
    let names: Vec<String> =
        (1..=51).map(|n| format!("LaunchConfigurationNames.member.{n}=n{n}")).collect();
    let many = code(&mut client, "DescribeLaunchConfigurations", &names.join("&"));
    assert_eq!(many, "ValidationError");
    let zone = "AvailabilityZones.member.1=us-east-1a&MinSize=0&MaxSize=1";
    let other = format!("{GROUP}&LaunchConfigurationName=other&{zone}");
    assert_eq!(code(&mut client, "CreateAutoScalingGroup", &other), "ValidationError");
    let both = format!("{GROUP}&LaunchConfigurationName=web&InstanceId=i-12345678&{zone}");
    assert_eq!(code(&mut client, "CreateAutoScalingGroup", &both), "ValidationError");
    for number in 1..200 {
        create(&mut client, &format!("n{number}"), "");
    }
    let more = format!("LaunchConfigurationName=more&{IMAGE}");
    assert_eq!(code(&mut client, "CreateLaunchConfiguration", &more), "LimitExceeded");
}

#[test]
fn a_group_starts_instances_from_its_configuration() {
    let mut client = Client::new();
    let vpc = first(&client.ok("Action=DescribeVpcs"), "vpcId");
    let own = format!("Action=CreateSecurityGroup&VpcId={vpc}&GroupName=a&GroupDescription=a");
    let own = client.take(&own, "groupId");
    let more = format!(
        "&SecurityGroups.member.1={own}&AssociatePublicIpAddress=false&KeyName=key\
         &UserData=IyEvYmluL3No"
    );
    create(&mut client, "web", &more);
    start(&mut client, "web", "MinSize=0&MaxSize=4&DesiredCapacity=2");
    assert_eq!(configurations(&mut client), vec!["web"; 2]);
    let shown = ok(&mut client, "DescribeAutoScalingGroups", "");
    assert!(!shown.contains("LaunchTemplate"), "{shown}");
    for instance in client.state().instances.iter() {
        assert_eq!(instance.instance_type, "c7i.large");
        assert_eq!(instance.key_name.as_deref(), Some("key"));
        assert_eq!(instance.user_data.as_deref(), Some("IyEvYmluL3No"));
    }
    for interface in client.state().interfaces.iter() {
        assert_eq!(interface.groups[0].group_id, own);
        assert_eq!(interface.auto_public_ip, None);
    }
    let end = "LaunchConfigurationName=web";
    assert_eq!(code(&mut client, "DeleteLaunchConfiguration", end), "ResourceInUse");
    ok(&mut client, "DeleteAutoScalingGroup", &format!("{GROUP}&ForceDelete=true"));
    ok(&mut client, "DeleteLaunchConfiguration", end);
}

#[test]
fn instances_of_the_oldest_configuration_end_first() {
    let mut client = Client::new();
    for name in ["first", "second", "third"] {
        create(&mut client, name, "");
    }
    start(&mut client, "second", "MinSize=0&MaxSize=9&DesiredCapacity=1");
    let update = |client: &mut Client, form: &str| {
        ok(client, "UpdateAutoScalingGroup", &format!("{GROUP}&{form}"));
    };
    update(&mut client, "LaunchConfigurationName=first&DesiredCapacity=2");
    update(&mut client, "LaunchConfigurationName=third&DesiredCapacity=4");
    assert_eq!(configurations(&mut client), ["second", "first", "third", "third"]);
    desire(&mut client, 3);
    assert_eq!(configurations(&mut client), ["second", "third", "third"]);
    // Those of a configuration that was deleted end before all others.
    ok(&mut client, "DeleteLaunchConfiguration", "LaunchConfigurationName=second");
    update(&mut client, "TerminationPolicies.member.1=OldestLaunchConfiguration");
    update(&mut client, "LaunchConfigurationName=first&DesiredCapacity=4");
    desire(&mut client, 3);
    assert_eq!(configurations(&mut client), ["third", "third", "first"]);
    desire(&mut client, 2);
    assert_eq!(configurations(&mut client), vec!["third"; 2]);
    // In a group with a template, those of configurations end first.
    client.ok(crate::scaling::TEMPLATE);
    update(&mut client, "LaunchTemplate.LaunchTemplateName=web&DesiredCapacity=3");
    update(&mut client, "TerminationPolicies.member.1=Default&DesiredCapacity=1");
    assert_eq!((configurations(&mut client).len(), running(&client)), (0, 1));
}

#[test]
fn a_group_and_a_configuration_are_made_of_an_instance() {
    let mut client = Client::new();
    let run = format!("Action=RunInstances&MinCount=1&MaxCount=1&KeyName=key&{IMAGE}");
    let id = client.take(&run, "instanceId");
    let form = format!("LaunchConfigurationName=copy&InstanceId={id}&InstanceType=c7i.xlarge");
    ok(&mut client, "CreateLaunchConfiguration", &form);
    let shown = ok(&mut client, "DescribeLaunchConfigurations", "");
    assert_eq!(first(&shown, "InstanceType"), "c7i.xlarge");
    assert_eq!([first(&shown, "KeyName"), first(&shown, "ImageId")], ["key", "ami-12c6146b"]);
    let form = format!(
        "{GROUP}&InstanceId={id}&AvailabilityZones.member.1=us-east-1a&MinSize=1&MaxSize=1"
    );
    ok(&mut client, "CreateAutoScalingGroup", &form);
    assert_eq!(configurations(&mut client), ["group"]);
    // A request that fails leaves no configuration.
    let wrong = form.replace("=group&", "=other&").replace("MinSize=1", "MinSize=2");
    assert_eq!(code(&mut client, "CreateAutoScalingGroup", &wrong), "ValidationError");
    let shown = ok(&mut client, "DescribeLaunchConfigurations", "");
    assert_eq!(all(&shown, "LaunchConfigurationName"), ["copy", "group"]);
}

#[test]
fn configurations_and_their_groups_survive_a_restart() {
    let store = SharedStore::default();
    let mut client = Client::with(Box::new(store.clone()), Box::new(NoMachines));
    create(&mut client, "name%20with%20/,%20%C3%A4", "");
    start(&mut client, "name%20with%20/,%20%C3%A4", "MinSize=1&MaxSize=2");
    let before = members(&mut client);
    drop(client);
    let mut client = Client::with(Box::new(store), Box::new(NoMachines));
    assert_eq!(members(&mut client), before);
    desire(&mut client, 2);
    assert_eq!(configurations(&mut client), vec!["name with /, ä"; 2]);
}

/// A group of the time before launch configurations has no such member.
#[test]
fn a_group_with_a_template_has_no_configuration() {
    let mut client = Client::new();
    group(&mut client, "MinSize=1&MaxSize=1");
    assert!(configurations(&mut client).is_empty());
    let state = client.state();
    let mut record = serde_json::to_value(state.scaling_groups.iter().next().unwrap()).unwrap();
    let read = |record: &serde_json::Value| {
        serde_json::from_value::<srd_control::state::ScalingGroup>(record.clone()).unwrap()
    };
    let now = read(&record);
    record.as_object_mut().unwrap().remove("LaunchConfigurationName").unwrap();
    record["Instances"][0].as_object_mut().unwrap().remove("LaunchConfigurationName").unwrap();
    assert_eq!(read(&record), now);
}
