//! Auto Scaling groups: their sizes, zones, and the instances that follow each change.

use srd_control::http::HttpResponse;
use srd_control::machines::{Machines, NoMachines};
use srd_control::state::{Instance, Region};
use srd_control::store::MemoryStore;

use crate::support::{Client, Recorder, SharedStore, all, first, request};

pub(crate) const TEMPLATE: &str = "Action=CreateLaunchTemplate&LaunchTemplateName=web\
    &LaunchTemplateData.ImageId=ami-12c6146b&LaunchTemplateData.InstanceType=c7i.12xlarge\
    &LaunchTemplateData.NetworkInterface.1.DeviceIndex=0\
    &LaunchTemplateData.NetworkInterface.1.EnaSrdSpecification.EnaSrdEnabled=true";
pub(crate) const GROUP: &str = "AutoScalingGroupName=group";

/// Sends a request to Auto Scaling.
pub(crate) fn send(client: &mut Client, action: &str, parameters: &str) -> HttpResponse {
    let form = format!("Action={action}&Version=2011-01-01&{parameters}");
    let mut request = request(client.region, &form);
    for (_, value) in &mut request.headers {
        *value = value.replace("/ec2/", "/autoscaling/");
    }
    client.control.handle(&request, client.now)
}

/// Sends a request that succeeds, and returns the XML.
pub(crate) fn ok(client: &mut Client, action: &str, parameters: &str) -> String {
    let answer = send(client, action, parameters);
    assert_eq!(answer.status, 200, "{action} {parameters}: {}", answer.body);
    answer.body
}

/// Sends a request that fails, and returns the code.
pub(crate) fn code(client: &mut Client, action: &str, parameters: &str) -> String {
    let answer = send(client, action, parameters);
    assert_ne!(answer.status, 200, "{action} {parameters}: {}", answer.body);
    assert!(answer.body.starts_with("<ErrorResponse xmlns="), "{}", answer.body);
    first(&answer.body, "Code")
}

/// A group in three zones, with its template.
pub(crate) fn group(client: &mut Client, sizes: &str) {
    client.ok(TEMPLATE);
    let zones = "AvailabilityZones.member.1=us-east-1a&AvailabilityZones.member.2=us-east-1b\
                 &AvailabilityZones.member.3=us-east-1c";
    let form = format!("{GROUP}&LaunchTemplate.LaunchTemplateName=web&{zones}&{sizes}");
    ok(client, "CreateAutoScalingGroup", &form);
}

/// The instances of the group, each with its zone.
pub(crate) fn members(client: &mut Client) -> Vec<(String, String)> {
    let shown = ok(client, "DescribeAutoScalingInstances", "");
    let ids = all(&shown, "InstanceId").into_iter();
    ids.zip(all(&shown, "AvailabilityZone")).collect()
}

/// Number of members in each of the zones a, b and c.
fn zones(client: &mut Client) -> [usize; 3] {
    let members = members(client);
    ["a", "b", "c"].map(|zone| members.iter().filter(|(_, of)| of.ends_with(zone)).count())
}

pub(crate) fn running(client: &Client) -> usize {
    client.state().instances.iter().filter(|of| of.state.code == 16).count()
}

pub(crate) fn desire(client: &mut Client, size: u32) {
    ok(client, "SetDesiredCapacity", &format!("{GROUP}&DesiredCapacity={size}"));
}

#[test]
fn a_group_follows_its_desired_capacity_and_balances_its_zones() {
    let mut client = Client::new();
    group(&mut client, "MinSize=0&MaxSize=20&DesiredCapacity=3");
    assert_eq!(zones(&mut client), [1, 1, 1]);
    let interfaces = client.ok("Action=DescribeNetworkInterfaces");
    assert_eq!(all(&interfaces, "enaSrdEnabled"), vec!["true"; 3]);
    let shown = ok(&mut client, "DescribeAutoScalingGroups", "");
    assert_eq!(first(&shown, "DesiredCapacity"), "3");
    assert_eq!(all(&shown, "LifecycleState"), vec!["InService"; 3]);
    desire(&mut client, 8);
    assert_eq!((running(&client), zones(&mut client)), (8, [3, 3, 2]));
    desire(&mut client, 4);
    let mut sizes = zones(&mut client);
    sizes.sort_unstable();
    assert_eq!((running(&client), sizes), (4, [1, 1, 2]));
    for (size, text) in [(21, "above max value 20"), (0, "")] {
        let form = format!("{GROUP}&DesiredCapacity={size}");
        let answer = send(&mut client, "SetDesiredCapacity", &form);
        assert!(answer.body.contains(text), "{}", answer.body);
    }
    assert_eq!(running(&client), 0);
    let activities = ok(&mut client, "DescribeScalingActivities", GROUP);
    assert_eq!(all(&activities, "StatusCode").len(), 16);
    assert!(all(&activities, "Description")[0].starts_with("Terminating EC2 instance: i-"));
    assert!(all(&activities, "Cause")[15].contains("created an AutoScalingGroup"));
    assert!(all(&activities, "Cause")[15].ends_with("increasing the capacity from 0 to 3."));
}

#[test]
fn new_instances_have_the_tags_of_the_group_and_the_version_of_the_template() {
    let mut client = Client::new();
    let tags = "Tags.member.1.Key=a&Tags.member.1.Value=1&Tags.member.1.PropagateAtLaunch=true\
                &Tags.member.2.Key=b&Tags.member.2.Value=2&Tags.member.2.PropagateAtLaunch=false";
    group(&mut client, &format!("MinSize=1&MaxSize=2&{tags}"));
    let shown = client.ok("Action=DescribeInstances");
    let keys = all(&shown, "key");
    assert!(keys.contains(&"a".to_owned()) && !keys.contains(&"b".to_owned()), "{keys:?}");
    assert!(shown.contains("<key>aws:autoscaling:groupName</key><value>group</value>"));
    client.ok("Action=CreateLaunchTemplateVersion&LaunchTemplateName=web&SourceVersion=1\
               &LaunchTemplateData.InstanceType=c7i.24xlarge");
    client.ok("Action=ModifyLaunchTemplate&LaunchTemplateName=web&SetDefaultVersion=2");
    desire(&mut client, 2);
    let shown = ok(&mut client, "DescribeAutoScalingInstances", "");
    assert_eq!(all(&shown, "InstanceType"), ["c7i.12xlarge", "c7i.24xlarge"]);
    assert_eq!(all(&shown, "Version"), ["1", "2"]);
    // The default policy ends the instance of the oldest version first.
    desire(&mut client, 1);
    let shown = ok(&mut client, "DescribeAutoScalingInstances", "");
    assert_eq!(all(&shown, "InstanceType"), ["c7i.24xlarge"]);
    let of_tag = "Filters.member.1.Name=tag:b&Filters.member.1.Values.member.1=2";
    let shown = ok(&mut client, "DescribeAutoScalingGroups", of_tag);
    assert_eq!(all(&shown, "PropagateAtLaunch"), ["true", "false"]);
    let other = "Filters.member.1.Name=tag:b&Filters.member.1.Values.member.1=3";
    let shown = ok(&mut client, "DescribeAutoScalingGroups", other);
    assert!(!shown.contains("AutoScalingGroupName"));
}

#[test]
fn termination_policies_select_the_instances_that_end() {
    let mut client = Client::new();
    client.ok(TEMPLATE);
    let create = format!(
        "{GROUP}&LaunchTemplate.LaunchTemplateName=web&MinSize=0&MaxSize=9&DesiredCapacity=4\
         &AvailabilityZones.member.1=us-east-1a"
    );
    ok(&mut client, "CreateAutoScalingGroup", &create);
    let all = members(&mut client);
    for (policy, size, left) in [
        ("NewestInstance", 3, &all[..3]),
        ("OldestInstance", 2, &all[1..3]),
        ("AllocationStrategy", 1, &all[2..3]),
    ] {
        let update =
            format!("{GROUP}&TerminationPolicies.member.1={policy}&DesiredCapacity={size}");
        ok(&mut client, "UpdateAutoScalingGroup", &update);
        assert_eq!(members(&mut client), left, "{policy}");
    }
}

#[test]
fn an_instance_that_was_terminated_or_stopped_is_replaced() {
    let mut client = Client::new();
    group(&mut client, "MinSize=3&MaxSize=3");
    let before = members(&mut client);
    client.ok(&format!("Action=TerminateInstances&InstanceId.1={}", before[0].0));
    let after = members(&mut client);
    assert_eq!((after.len(), zones(&mut client)), (3, [1, 1, 1]));
    assert!(!after.contains(&before[0]) && after.contains(&before[1]));
    client.ok(&format!("Action=StopInstances&InstanceId.1={}", before[1].0));
    assert_eq!(zones(&mut client), [1, 1, 1]);
    let stopped = client.state().instances.get(&before[1].0).unwrap();
    assert_eq!(stopped.state.name, "terminated");
    let activities = ok(&mut client, "DescribeScalingActivities", "");
    assert!(activities.contains("in response to an EC2 health check"), "{activities}");
    let sick = members(&mut client)[0].0.clone();
    let health = |status: &str| format!("InstanceId={sick}&HealthStatus={status}");
    assert_eq!(code(&mut client, "SetInstanceHealth", &health("Ill")), "ValidationError");
    ok(&mut client, "SetInstanceHealth", &health("Unhealthy"));
    assert!(members(&mut client).iter().all(|(id, _)| *id != sick));
    assert_eq!((running(&client), zones(&mut client)), (3, [1, 1, 1]));
    assert_eq!(code(&mut client, "SetInstanceHealth", &health("Healthy")), "ValidationError");
}

#[test]
fn bounds_move_the_desired_capacity_and_wrong_sizes_are_refused() {
    let mut client = Client::new();
    group(&mut client, "MinSize=1&MaxSize=5&DesiredCapacity=2");
    for (sizes, expected) in
        [("MinSize=4", 4), ("MinSize=1&MaxSize=2", 2), ("DesiredCapacity=1", 1)]
    {
        ok(&mut client, "UpdateAutoScalingGroup", &format!("{GROUP}&{sizes}"));
        assert_eq!(running(&client), expected, "{sizes}");
    }
    let policy = |n: usize| format!("TerminationPolicies.member.{n}=OldestInstance");
    let many_policies = (1..=20).map(policy).collect::<Vec<_>>().join("&");
    for wrong in [
        "MinSize=3",
        "MaxSize=0",
        "MaxSize=1001",
        "MinSize=-1",
        "DesiredCapacity=3",
        "MinSize=many",
        "AvailabilityZones.member.1=us-east-1x",
        "VPCZoneIdentifier=subnet-1",
        "LaunchTemplate.LaunchTemplateName=other",
        "LaunchTemplate.LaunchTemplateName=web&LaunchTemplate.Version=9",
        "LaunchConfigurationName=old",
        "LaunchConfigurationName=old&LaunchTemplate.LaunchTemplateName=web",
        "HealthCheckType=ELB",
        "TerminationPolicies.member.1=Random",
        // A group with a thousand policies blocked the server for seconds.
        &many_policies,
        "Bogus=1",
    ] {
        let form = format!("{GROUP}&{wrong}");
        assert_eq!(
            code(&mut client, "UpdateAutoScalingGroup", &form),
            "ValidationError",
            "{wrong}"
        );
    }
    assert_eq!(running(&client), 1);
    let create = "LaunchTemplate.LaunchTemplateName=web&MinSize=0&MaxSize=1";
    let zone = "AvailabilityZones.member.1=us-east-1a";
    for (form, expected) in [
        (format!("{GROUP}&{create}&{zone}"), "AlreadyExists"),
        (format!("AutoScalingGroupName=b&{create}"), "ValidationError"),
        (format!("AutoScalingGroupName=b&MinSize=0&MaxSize=1&{zone}"), "ValidationError"),
        (format!("AutoScalingGroupName=a:b&{create}&{zone}"), "ValidationError"),
        (format!("{create}&{zone}"), "ValidationError"),
    ] {
        assert_eq!(code(&mut client, "CreateAutoScalingGroup", &form), expected, "{form}");
    }
    for action in ["SetDesiredCapacity", "UpdateAutoScalingGroup", "DeleteAutoScalingGroup"] {
        let form = "AutoScalingGroupName=other&DesiredCapacity=1";
        let form = if action.starts_with("Delete") { "AutoScalingGroupName=other" } else { form };
        assert_eq!(code(&mut client, action, form), "ValidationError");
    }
    assert_eq!(code(&mut client, "PutScalingPolicy", GROUP), "UnsupportedOperation");
    assert_eq!(code(&mut client, "MakeGroup", GROUP), "InvalidAction");
}

#[test]
fn subnets_of_a_group_determine_its_zones_and_a_change_moves_its_instances() {
    let mut client = Client::new();
    client.ok(TEMPLATE);
    let vpc = client.take("Action=CreateVpc&CidrBlock=10.0.0.0/16", "vpcId");
    let subnets: Vec<String> = [("1", "a"), ("2", "b"), ("3", "b")]
        .iter()
        .map(|(number, zone)| {
            let form = format!(
                "Action=CreateSubnet&VpcId={vpc}&CidrBlock=10.0.{number}.0/24\
                 &AvailabilityZone=us-east-1{zone}"
            );
            client.take(&form, "subnetId")
        })
        .collect();
    let create = format!(
        "{GROUP}&LaunchTemplate.LaunchTemplateName=web&MinSize=0&MaxSize=9&DesiredCapacity=6\
         &VPCZoneIdentifier={}",
        subnets.join(",")
    );
    let wrong = format!("{create}&AvailabilityZones.member.1=us-east-1c");
    assert_eq!(code(&mut client, "CreateAutoScalingGroup", &wrong), "ValidationError");
    ok(&mut client, "CreateAutoScalingGroup", &create);
    assert_eq!(zones(&mut client), [3, 3, 0]);
    let in_subnet = |client: &Client, subnet: &String| {
        let instances = client.state().instances.iter();
        instances.filter(|of| of.subnet_id.as_ref() == Some(subnet)).count()
    };
    assert_eq!([1, 2].map(|n| in_subnet(&client, &subnets[n])).iter().sum::<usize>(), 3);
    assert!([1, 2].iter().all(|n| in_subnet(&client, &subnets[*n]) > 0));
    let update = format!("{GROUP}&VPCZoneIdentifier={}", subnets[0]);
    ok(&mut client, "UpdateAutoScalingGroup", &update);
    assert_eq!((running(&client), zones(&mut client)), (6, [6, 0, 0]));
}

#[test]
fn members_are_attached_detached_and_terminated() {
    let mut client = Client::new();
    group(&mut client, "MinSize=0&MaxSize=4&DesiredCapacity=1");
    let run = "Action=RunInstances&MinCount=1&MaxCount=1&LaunchTemplate.LaunchTemplateName=web\
               &Placement.AvailabilityZone=us-east-1b";
    let own = client.take(run, "instanceId");
    let attach = format!("{GROUP}&InstanceIds.member.1={own}");
    ok(&mut client, "AttachInstances", &attach);
    assert_eq!((members(&mut client).len(), running(&client)), (2, 2));
    assert_eq!(code(&mut client, "AttachInstances", &attach), "ValidationError");
    let missing = format!("{GROUP}&InstanceIds.member.1=i-0123456789abcdef0");
    assert_eq!(code(&mut client, "AttachInstances", &missing), "ValidationError");
    // Without a decrement, the group starts another instance.
    let detach = format!("{attach}&ShouldDecrementDesiredCapacity=false");
    let activity = ok(&mut client, "DetachInstances", &detach);
    assert_eq!(first(&activity, "StatusCode"), "InProgress");
    assert_eq!((members(&mut client).len(), running(&client)), (2, 3));
    let shown = client.ok(&format!("Action=DescribeInstances&InstanceId.1={own}"));
    assert!(!shown.contains("aws:autoscaling:groupName"));
    assert_eq!(code(&mut client, "DetachInstances", &detach), "ValidationError");
    let one = members(&mut client)[0].0.clone();
    let end = format!("InstanceId={one}&ShouldDecrementDesiredCapacity");
    let activity = ok(&mut client, "TerminateInstanceInAutoScalingGroup", &format!("{end}=true"));
    assert!(activity.contains(&one));
    assert_eq!(members(&mut client).len(), 1);
    let one = members(&mut client)[0].0.clone();
    let end = format!("InstanceId={one}&ShouldDecrementDesiredCapacity");
    ok(&mut client, "TerminateInstanceInAutoScalingGroup", &format!("{end}=false"));
    let left = members(&mut client);
    assert!(left.len() == 1 && left[0].0 != one);
    ok(&mut client, "UpdateAutoScalingGroup", &format!("{GROUP}&MinSize=1"));
    let end = format!("InstanceId={}&ShouldDecrementDesiredCapacity=true", left[0].0);
    let action = "TerminateInstanceInAutoScalingGroup";
    assert_eq!(code(&mut client, action, &end), "ValidationError");
    let other = format!("InstanceId={own}&ShouldDecrementDesiredCapacity=true");
    assert_eq!(code(&mut client, action, &other), "ValidationError");
    let too_many = format!("{GROUP}&MaxSize=1");
    ok(&mut client, "UpdateAutoScalingGroup", &too_many);
    assert_eq!(code(&mut client, "AttachInstances", &attach), "ValidationError");
}

#[test]
fn protected_instances_and_those_with_termination_protection() {
    let mut client = Client::new();
    group(
        &mut client,
        "MinSize=0&MaxSize=9&DesiredCapacity=2&NewInstancesProtectedFromScaleIn=true",
    );
    desire(&mut client, 0);
    assert_eq!(running(&client), 2);
    let id = members(&mut client)[0].0.clone();
    let open = format!("{GROUP}&InstanceIds.member.1={id}&ProtectedFromScaleIn=false");
    ok(&mut client, "SetInstanceProtection", &open);
    assert_eq!(running(&client), 1);
    assert_eq!(code(&mut client, "SetInstanceProtection", &open), "ValidationError");
    ok(&mut client, "DeleteAutoScalingGroup", &format!("{GROUP}&ForceDelete=true"));
    assert_eq!(running(&client), 0);
    // A group ends its instances although requests cannot.
    client.ok("Action=CreateLaunchTemplateVersion&LaunchTemplateName=web&SourceVersion=1\
               &LaunchTemplateData.DisableApiTermination=true");
    let create = format!(
        "{GROUP}&MinSize=0&MaxSize=1&DesiredCapacity=1&AvailabilityZones.member.1=us-east-1a\
         &LaunchTemplate.LaunchTemplateName=web&LaunchTemplate.Version=$Latest"
    );
    ok(&mut client, "CreateAutoScalingGroup", &create);
    let id = members(&mut client)[0].0.clone();
    let end = format!("Action=TerminateInstances&InstanceId.1={id}");
    assert_eq!(client.code(&end), "OperationNotPermitted");
    desire(&mut client, 0);
    assert_eq!(running(&client), 0);
}

#[test]
fn a_group_with_instances_is_deleted_by_force_only() {
    let mut client = Client::new();
    group(&mut client, "MinSize=2&MaxSize=2");
    assert_eq!(code(&mut client, "DeleteAutoScalingGroup", GROUP), "ResourceInUse");
    ok(&mut client, "DeleteAutoScalingGroup", &format!("{GROUP}&ForceDelete=true"));
    assert_eq!(running(&client), 0);
    assert!(members(&mut client).is_empty());
    assert_eq!(code(&mut client, "DescribeScalingActivities", GROUP), "ValidationError");
    let deleted = format!("{GROUP}&IncludeDeletedGroups=true");
    let shown = ok(&mut client, "DescribeScalingActivities", &deleted);
    assert_eq!(all(&shown, "AutoScalingGroupState"), vec!["Deleted"; 4]);
    let none = ok(&mut client, "DescribeAutoScalingGroups", "");
    assert!(none.contains("<AutoScalingGroups></AutoScalingGroups>"), "{none}");
}

/// The template of the group becomes unusable: the failure is recorded, and later starts succeed.
#[test]
fn a_start_that_fails_is_recorded_and_tried_again() {
    let recorder = Recorder::default();
    let mut client = Client::with(Box::new(MemoryStore::default()), Box::new(recorder));
    group(&mut client, "MinSize=0&MaxSize=9&DesiredCapacity=1");
    // The machine of this type does not start.
    client.ok("Action=CreateLaunchTemplateVersion&LaunchTemplateName=web&SourceVersion=1\
               &LaunchTemplateData.InstanceType=t3.nano");
    client.ok("Action=ModifyLaunchTemplate&LaunchTemplateName=web&SetDefaultVersion=2");
    desire(&mut client, 3);
    assert_eq!(running(&client), 1);
    let failures = |client: &mut Client| {
        let shown = ok(client, "DescribeScalingActivities", GROUP);
        assert!(shown.contains("no machine of this type"), "{shown}");
        all(&shown, "StatusCode").iter().filter(|code| *code == "Failed").count()
    };
    assert_eq!(failures(&mut client), 1);
    client.ok("Action=CreateVpc&CidrBlock=10.0.0.0/16");
    assert_eq!(failures(&mut client), 1);
    client.now += 60;
    assert_eq!(failures(&mut client), 1);
    assert_eq!(failures(&mut client), 2);
    client.ok("Action=ModifyLaunchTemplate&LaunchTemplateName=web&SetDefaultVersion=1");
    client.now += 60;
    client.ok("Action=DescribeVpcs");
    assert_eq!((running(&client), zones(&mut client)), (3, [1, 1, 1]));
    let cooldown = format!("{GROUP}&DesiredCapacity=4&HonorCooldown=true");
    let action = "SetDesiredCapacity";
    assert_eq!(code(&mut client, action, &cooldown), "ScalingActivityInProgress");
    client.now += 300;
    ok(&mut client, action, &cooldown);
    assert_eq!(running(&client), 4);
}

#[test]
fn a_full_subnet_is_replaced_by_another_one() {
    let mut client = Client::new();
    client.ok(TEMPLATE);
    let vpc = client.take("Action=CreateVpc&CidrBlock=10.0.0.0/16", "vpcId");
    let subnets = [("10.0.0.0/28", "a"), ("10.0.1.0/24", "b")].map(|(block, zone)| {
        let form = format!(
            "Action=CreateSubnet&VpcId={vpc}&CidrBlock={block}&AvailabilityZone=us-east-1{zone}"
        );
        client.take(&form, "subnetId")
    });
    let create = format!(
        "{GROUP}&LaunchTemplate.LaunchTemplateName=web&MinSize=0&MaxSize=40&DesiredCapacity=30\
         &VPCZoneIdentifier={}",
        subnets.join(",")
    );
    ok(&mut client, "CreateAutoScalingGroup", &create);
    // The first subnet has eleven addresses.
    assert_eq!(zones(&mut client), [11, 19, 0]);
    let again = running(&client);
    client.now += 61;
    client.ok("Action=DescribeVpcs");
    assert_eq!((running(&client), again), (30, 30));
}

#[test]
fn a_group_settles_after_a_restart() {
    let store = SharedStore::default();
    let mut client = Client::with(Box::new(store.clone()), Box::new(NoMachines));
    group(&mut client, "MinSize=0&MaxSize=9&DesiredCapacity=4");
    let before = members(&mut client);
    drop(client);
    // The machines of two instances do not start again.
    let mut client = Client::with(Box::new(store.clone()), Box::new(Forgetful(2)));
    let now = client.now + 61;
    client.control.settle(client.now);
    assert_eq!(running(&client), 2);
    client.control.settle(now);
    assert_eq!(running(&client), 4);
    let after = members(&mut client);
    assert_eq!(after.iter().filter(|member| before.contains(member)).count(), 2);
    assert_eq!(zones(&mut client).iter().max(), Some(&2));
}

/// Machines, of which the first do not start.
struct Forgetful(usize);

impl Machines for Forgetful {
    fn start(&mut self, _: &Region, _: &Instance) -> Result<(), String> {
        let left = self.0.checked_sub(1);
        self.0 = left.unwrap_or(0);
        left.map_or(Ok(()), |_| Err("no memory".to_owned()))
    }

    fn stop(&mut self, _: &Region, _: &Instance) {}

    fn run_programs(&self) -> bool {
        false
    }
}

#[test]
fn tags_of_groups_are_changed_described_and_removed() {
    let mut client = Client::new();
    group(&mut client, "MinSize=0&MaxSize=1&Tags.member.1.Key=a&Tags.member.1.Value=1");
    let tag = |key: &str, value: &str| {
        format!(
            "Tags.member.1.ResourceId=group&Tags.member.1.ResourceType=auto-scaling-group\
             &Tags.member.1.Key={key}&Tags.member.1.Value={value}\
             &Tags.member.1.PropagateAtLaunch=true"
        )
    };
    ok(&mut client, "CreateOrUpdateTags", &tag("a", "2"));
    ok(&mut client, "CreateOrUpdateTags", &tag("b", "3"));
    let shown = ok(&mut client, "DescribeTags", "");
    assert_eq!(all(&shown, "Value"), ["2", "3"]);
    desire(&mut client, 1);
    assert!(client.ok("Action=DescribeInstances").contains("<key>b</key><value>3</value>"));
    ok(&mut client, "DeleteTags", &tag("a", ""));
    let of_key = "Filters.member.1.Name=key&Filters.member.1.Values.member.1=";
    for (key, count) in [("a", 0), ("b", 1)] {
        let shown = ok(&mut client, "DescribeTags", &format!("{of_key}{key}"));
        assert_eq!(all(&shown, "Key").len(), count, "{key}");
    }
    let other = tag("a", "2").replace("=group", "=other");
    assert_eq!(code(&mut client, "CreateOrUpdateTags", &other), "ValidationError");
    assert_eq!(code(&mut client, "CreateOrUpdateTags", &tag("aws:x", "2")), "ValidationError");
    for number in 1..50 {
        ok(&mut client, "CreateOrUpdateTags", &tag(&format!("k{number}"), ""));
    }
    assert_eq!(code(&mut client, "CreateOrUpdateTags", &tag("k50", "")), "ValidationError");
}

#[test]
fn pages_and_tables_are_bounded() {
    let mut client = Client::new();
    group(&mut client, "MinSize=0&MaxSize=1000");
    let create = |name: u32| {
        format!(
            "AutoScalingGroupName=g{name}&LaunchTemplate.LaunchTemplateName=web&MinSize=0\
             &MaxSize=0&AvailabilityZones.member.1=us-east-1a"
        )
    };
    for name in 1..500 {
        ok(&mut client, "CreateAutoScalingGroup", &create(name));
    }
    assert_eq!(code(&mut client, "CreateAutoScalingGroup", &create(500)), "LimitExceeded");
    let page = ok(&mut client, "DescribeAutoScalingGroups", "MaxRecords=100");
    assert_eq!(all(&page, "CreatedTime").len(), 100);
    let next = format!("MaxRecords=1&NextToken={}", first(&page, "NextToken"));
    let next = ok(&mut client, "DescribeAutoScalingGroups", &next);
    assert_eq!(all(&next, "AutoScalingGroupName"), ["g100"]);
    let action = "DescribeAutoScalingGroups";
    assert_eq!(code(&mut client, action, "MaxRecords=101"), "ValidationError");
    assert_eq!(code(&mut client, action, "NextToken=x"), "InvalidNextToken");
    for _ in 0..6 {
        desire(&mut client, 100);
        desire(&mut client, 0);
    }
    assert_eq!(client.state().scaling_activities.len(), 1000);
    let ids: String = (1..=21).map(|n| format!("&InstanceIds.member.{n}=i-{n}")).collect();
    let attach = format!("{GROUP}{ids}");
    assert_eq!(code(&mut client, "AttachInstances", &attach), "ValidationError");
}
