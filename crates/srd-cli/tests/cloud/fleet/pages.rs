//! The commands of the documents, with two hosts.

use super::*;
use crate::control::path_with_aws;

/// The commands of `docs/control-hosts.md` with the program `aws`, in one script.
#[test]
fn the_commands_of_the_page_run_instances_on_two_hosts() {
    if !is_ready() {
        return;
    }
    let Some(path) = path_with_aws() else { return };
    let mut fleet = Fleet::start("p", "us-east-1a");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/control-hosts.md");
    let page = fs::read_to_string(page).unwrap();
    let of = "the_commands_of_the_page_run_instances_on_two_hosts -->\n```sh\n";
    let blocks: Vec<&str> = page.split(of).skip(1).collect();
    let [start, end] = [0, 1].map(|n| blocks[n].split("```").next().unwrap());
    let script = format!("{start}\necho ---; ip netns list\n{end}\n");
    let text = fleet.script(&path, &script);
    let (shown, after) = text.split_once("---\n").unwrap();
    let ids: Vec<&str> = shown.split_whitespace().filter(|word| word.starts_with("i-")).collect();
    assert_eq!(ids.len(), 2, "{text}");
    assert!(ids.iter().all(|id| after.contains(&format!("srd-i-{id}"))), "{text}");
    assert!(after.contains("shutting-down"), "{text}");
    assert_eq!(fleet.counts(), [0, 0]);
    fleet.end_hosts();
}

/// Launch template of the group in `docs/control.md`.
const TEMPLATE: &str = "LaunchTemplateName=workers\
    &LaunchTemplateData.ImageId=ami-12345678\
    &LaunchTemplateData.InstanceType=c7i.12xlarge\
    &LaunchTemplateData.NetworkInterface.1.DeviceIndex=0\
    &LaunchTemplateData.NetworkInterface.1.EnaSrdSpecification.EnaSrdEnabled=true\
    &LaunchTemplateData.NetworkInterface.1.EnaSrdSpecification.EnaSrdUdpSpecification\
    .EnaSrdUdpEnabled=true";
const GROUP: &str = "AutoScalingGroupName=workers";

/// Returns the instances of all groups.
fn members(fleet: &Fleet) -> Vec<Placed> {
    let shown = fleet.scale("DescribeAutoScalingInstances", "");
    let ids = shown.split("<InstanceId>").skip(1).map(|rest| rest.split('<').next().unwrap());
    ids.map(|id| fleet.placed(id)).collect()
}

/// Whether the first packet from one instance to another one is answered.
fn reaches(from: &Placed, to: &Placed) -> bool {
    let address = std::net::Ipv4Addr::from(to.address).to_string();
    let mut command = Command::new("ip");
    let inside = ["netns", "exec", &from.namespace(), "ping", "-q", "-c1", "-W60", &address];
    command.args(inside).output().unwrap().status.success()
}

/// Makes the group of `docs/control.md`, with a subnet in each of its two zones.
pub(super) fn make_group(fleet: &Fleet, size: u8, most: u8) {
    let vpc = element(&fleet.call("CreateVpc", "CidrBlock=10.0.0.0/16"), "vpcId");
    let subnets = [(1, "us-east-1a"), (2, "us-east-1b")].map(|(n, zone)| {
        let of = format!("VpcId={vpc}&CidrBlock=10.0.{n}.0/24&AvailabilityZone={zone}");
        element(&fleet.call("CreateSubnet", &of), "subnetId")
    });
    fleet.call("CreateLaunchTemplate", TEMPLATE);
    let of = format!(
        "{GROUP}&LaunchTemplate.LaunchTemplateName=workers&MinSize=0&MaxSize={most}\
         &DesiredCapacity={size}&VPCZoneIdentifier={}",
        subnets.join(",")
    );
    fleet.scale("CreateAutoScalingGroup", &of);
}

/// Changes the size of the group.
pub(super) fn desire(fleet: &Fleet, size: u8) {
    fleet.scale("SetDesiredCapacity", &format!("{GROUP}&DesiredCapacity={size}"));
}

/// The group of `docs/control.md`, with one host in each of its two zones. The requests are those
/// of the commands on that page, which `a_group_with_ena_express_grows_and_shrinks` runs.
#[test]
fn an_auto_scaling_group_spreads_over_two_hosts() {
    if !is_ready() {
        return;
    }
    let mut fleet = Fleet::start("s", "us-east-1b");
    make_group(&fleet, 3, 10);
    let mut counts = fleet.counts();
    counts.sort_unstable();
    assert_eq!((members(&fleet).len(), counts), (3, vec![1, 2]), "{}", fleet.log());
    desire(&fleet, 6);
    let six = members(&fleet);
    let are_spread = |fleet: &Fleet| {
        let hosts = fleet.control(&["hosts"]);
        assert_eq!(hosts.matches("3 instances, 144 of 200 vCPUs").count(), 2, "{hosts}");
    };
    are_spread(&fleet);
    // Each of the six reaches all six addresses, three of them on the other host.
    for from in &six {
        for to in &six {
            assert!(reaches(from, to), "{from:?} to {to:?}\n{}", fleet.log());
        }
    }
    fleet.call("TerminateInstances", &format!("InstanceId.1={}", six[0].id));
    let replaced = members(&fleet);
    let is_old = |of: &&Placed| six.iter().any(|old| old.id == of.id);
    assert_eq!((six.len(), replaced.len(), replaced.iter().filter(is_old).count()), (6, 6, 5));
    are_spread(&fleet);
    desire(&fleet, 0);
    fleet.scale("DeleteAutoScalingGroup", GROUP);
    fleet.call("DeleteLaunchTemplate", "LaunchTemplateName=workers");
    assert_eq!(fleet.counts(), [0, 0]);
    fleet.end_hosts();
}
