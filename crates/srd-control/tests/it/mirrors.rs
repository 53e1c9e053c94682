//! Traffic mirroring.

use std::path::Path;

use srd_control::project::project;

use crate::support::{Client, all, first};

#[test]
fn a_session_is_a_session_of_the_card() {
    let mut client = Client::new();
    let (_, subnet) = client.network();
    let interface = format!("Action=CreateNetworkInterface&SubnetId={subnet}");
    let [source, probe] = [(); 2].map(|()| client.take(&interface, "networkInterfaceId"));
    let filter = client.take("Action=CreateTrafficMirrorFilter", "trafficMirrorFilterId");
    let target = |interface: &str| {
        format!("Action=CreateTrafficMirrorTarget&NetworkInterfaceId={interface}")
    };
    let to = client.take(&target(&probe), "trafficMirrorTargetId");
    let rule = |rest: &str| {
        format!(
            "Action=CreateTrafficMirrorFilterRule&TrafficMirrorFilterId={filter}\
             &TrafficDirection=ingress&RuleAction=accept&{rest}"
        )
    };
    let blocks = "&DestinationCidrBlock=10.0.0.0/16&SourceCidrBlock=0.0.0.0/0";
    client.ok(&rule(&format!(
        "RuleNumber=100&Protocol=6&DestinationPortRange.FromPort=443\
         &DestinationPortRange.ToPort=443{blocks}"
    )));
    for (rest, code) in [
        (format!("RuleNumber=100{blocks}"), "TrafficMirrorFilterRuleAlreadyExists"),
        (format!("RuleNumber=0{blocks}"), "InvalidParameterValue"),
        (
            format!("RuleNumber=1&DestinationPortRange.FromPort=1{blocks}"),
            "InvalidParameterCombination",
        ),
        (
            "RuleNumber=1&DestinationCidrBlock=::/0&SourceCidrBlock=0.0.0.0/0".to_owned(),
            "InvalidParameterCombination",
        ),
    ] {
        assert_eq!(client.code(&rule(&rest)), code, "{rest}");
    }
    for number in 1..10 {
        client.ok(&rule(&format!("RuleNumber={number}{blocks}")));
    }
    let eleventh = rule(&format!("RuleNumber=11{blocks}"));
    assert_eq!(client.code(&eleventh), "TrafficMirrorFilterRuleLimitExceeded");
    let session = |number: u32| {
        format!(
            "Action=CreateTrafficMirrorSession&NetworkInterfaceId={source}\
             &TrafficMirrorTargetId={to}&TrafficMirrorFilterId={filter}&SessionNumber={number}"
        )
    };
    let id = client.take(&format!("{}&VirtualNetworkId=7", session(1)), "trafficMirrorSessionId");
    assert_eq!(client.code(&session(1)), "TrafficMirrorSessionNumberAlreadyExists");
    assert_eq!(client.code(&format!("{}&VirtualNetworkId=7", session(2))), "InvalidParameterValue");
    client.ok(&session(2));
    client.ok(&session(3));
    assert_eq!(client.code(&session(4)), "TrafficMirrorSessionsPerInterfaceLimitExceeded");
    let text = project(client.state(), None).text;
    assert!(text.contains("100 accept tcp 443 from 0.0.0.0/0 to 10.0.0.0/16"), "{text}");
    assert!(text.contains(&format!("[mirror_session.\"{id}\"]")), "{text}");
    srd_vpc_file::parse(&text, Path::new("test")).unwrap();
    // Parts in use are kept; a removed interface ends its sessions.
    let delete = format!("Action=DeleteTrafficMirrorFilter&TrafficMirrorFilterId={filter}");
    assert_eq!(client.code(&delete), "TrafficMirrorFilterInUse");
    let modify = format!("Action=ModifyTrafficMirrorSession&TrafficMirrorSessionId={id}");
    let shown = client.ok(&format!("{modify}&PacketLength=100&SessionNumber=9"));
    assert_eq!(first(&shown, "packetLength"), "100");
    client.ok(&format!("Action=DeleteNetworkInterface&NetworkInterfaceId={source}"));
    assert!(all(&client.ok("Action=DescribeTrafficMirrorSessions"), "sessionNumber").is_empty());
    client.ok(&delete);
    assert!(client.state().mirror_filter_rules.is_empty());
}

#[test]
fn an_interface_is_a_source_or_a_target() {
    let mut client = Client::new();
    let (_, subnet) = client.network();
    let interface = format!("Action=CreateNetworkInterface&SubnetId={subnet}");
    let [one, other] = [(); 2].map(|()| client.take(&interface, "networkInterfaceId"));
    let filter = client.take("Action=CreateTrafficMirrorFilter", "trafficMirrorFilterId");
    let [to_one, to_other] = [&one, &other].map(|interface| {
        let form = format!("Action=CreateTrafficMirrorTarget&NetworkInterfaceId={interface}");
        client.take(&form, "trafficMirrorTargetId")
    });
    let session = |source: &str, target: &str| {
        format!(
            "Action=CreateTrafficMirrorSession&NetworkInterfaceId={source}\
             &TrafficMirrorTargetId={target}&TrafficMirrorFilterId={filter}&SessionNumber=1"
        )
    };
    assert_eq!(client.code(&session(&one, &to_one)), "InvalidParameterCombination");
    client.ok(&session(&one, &to_other));
    assert_eq!(client.code(&session(&other, &to_one)), "InvalidParameterCombination");
    assert_eq!(client.code("Action=CreateTrafficMirrorTarget"), "InvalidInput");
    assert!(srd_vpc_file::parse(&project(client.state(), None).text, Path::new("t")).is_ok());
}
