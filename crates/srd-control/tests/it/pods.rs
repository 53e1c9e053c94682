//! Requests of hosts about their pods, which are instances of these hosts.

use srd_control::control::Control;
use srd_control::store::MemoryStore;
use srd_enrol::pod::{HOST_TAG, POD_TAG};
use srd_enrol::{Capacity, PodAnswer, PodLaunch, PodRequest};

use crate::fleet::{Nodes, capacity, enrol, run, subnet};
use crate::support::{Client, NOW, all};

fn launch(subnet: &str, pod: &str) -> PodLaunch {
    PodLaunch {
        token: pod.to_owned(),
        subnet: subnet.to_owned(),
        instance_type: "c7i.large".to_owned(),
        tags: vec![(POD_TAG.to_owned(), pod.to_owned()), ("Name".to_owned(), pod.to_owned())],
        ..PodLaunch::default()
    }
}

/// Sends a request of a host that starts an instance. Returns the instance.
fn started(control: &mut Control, host: &str, launch: PodLaunch) -> String {
    match control.pod(host, PodRequest::Launch(launch), NOW) {
        PodAnswer::Launched { instance, .. } => instance,
        other => panic!("{other:?}"),
    }
}

/// Sends a request of a host that fails. Returns the code of the error.
fn code(control: &mut Control, host: &str, request: PodRequest) -> String {
    match control.pod(host, request, NOW) {
        PodAnswer::Refused { code, .. } => code,
        other => panic!("{other:?}"),
    }
}

fn listed(control: &mut Control, host: &str, tags: &[(&str, &str)]) -> Vec<(String, String)> {
    let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    match control.pod(host, PodRequest::Instances { tags }, NOW) {
        PodAnswer::Instances { instances } => instances,
        other => panic!("{other:?}"),
    }
}

/// A client of a control plane with the hosts `a` and `b`, which accept pods, and `c`, which does
/// not. Of all hosts, `a` has the most vCPUs left.
fn start(nodes: &Nodes) -> Client {
    let mut client = Client::with(Box::<MemoryStore>::default(), nodes.machines());
    for (number, name, vcpus) in [(1, "a", 80), (2, "b", 4), (3, "c", 8)] {
        let capacity = Capacity { pods: name != "c", ..capacity("us-east-1a", vcpus) };
        enrol(&mut client.control, name, number, Some(capacity));
    }
    client
}

#[test]
fn a_pod_runs_on_the_host_that_requests_it() {
    let nodes = Nodes::start(&["a", "b", "c"]);
    let mut client = start(&nodes);
    let subnet = subnet(&mut client, "us-east-1a");
    let first = started(&mut client.control, "b", launch(&subnet, "cni-1"));
    let second = started(&mut client.control, "b", launch(&subnet, "cni-2"));
    let hosts = client.state().instances.iter().map(|of| of.host.clone().unwrap());
    assert_eq!(hosts.collect::<Vec<_>>(), ["b", "b"]);
    assert!(nodes.text("b").contains("pod = \"cni-1\""), "{}", nodes.text("b"));
    // The same request again starts nothing.
    assert_eq!(started(&mut client.control, "b", launch(&subnet, "cni-2")), second);
    // The host is full, and no other host gets the pod.
    let third = PodRequest::Launch(launch(&subnet, "cni-3"));
    assert_eq!(code(&mut client.control, "b", third), "InsufficientInstanceCapacity");
    // An instance without a pod does not need this host.
    client.ok(&run(&subnet, 1, ""));

    let all_of = |client: &mut Client, host| listed(&mut client.control, host, &[]);
    let pair = |id: &str, pod: &str| (id.to_owned(), pod.to_owned());
    let own = [pair(&first, "cni-1"), pair(&second, "cni-2")];
    let mut found = all_of(&mut client, "b");
    found.sort_by(|a, b| a.1.cmp(&b.1));
    assert_eq!(found, own);
    assert_eq!(listed(&mut client.control, "b", &[(POD_TAG, "cni-2")]), own[1..]);
    assert!(all_of(&mut client, "a").is_empty());
    // A stopped pod starts on its host only.
    client.ok(&format!("Action=StopInstances&InstanceId.1={first}"));
    client.ok(&format!("Action=StartInstances&InstanceId.1={first}"));
    assert_eq!(client.state().instances.get(&first).unwrap().host.as_deref(), Some("b"));
    let end = |id: &str| PodRequest::Terminate { instance: id.to_owned() };
    assert_eq!(client.control.pod("b", end(&first), NOW), PodAnswer::Terminated);
    assert_eq!(all_of(&mut client, "b"), own[1..]);
    assert!(!nodes.text("b").contains("cni-1"));
    assert_eq!(client.control.pod("b", end("i-00000000"), NOW), PodAnswer::Terminated);
}

#[test]
fn a_host_has_no_part_in_instances_of_others() {
    let nodes = Nodes::start(&["a", "b", "c"]);
    let mut client = start(&nodes);
    let subnet = subnet(&mut client, "us-east-1a");
    let pod = started(&mut client.control, "a", launch(&subnet, "cni-1"));
    client.ok(&run(&subnet, 1, ""));
    let mut ids = all(&client.ok("Action=DescribeInstances"), "instanceId");
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 2);
    let other = ids.into_iter().find(|id| *id != pod).unwrap();
    for (host, instance) in [("b", &pod), ("a", &other), ("x", &pod)] {
        let request = PodRequest::Terminate { instance: instance.clone() };
        assert_eq!(code(&mut client.control, host, request), "UnauthorizedOperation");
    }
    // The tag of another host has no effect.
    let mut stolen = launch(&subnet, "cni-2");
    stolen.tags.push((HOST_TAG.to_owned(), "a".to_owned()));
    let own = started(&mut client.control, "b", stolen);
    assert_eq!(client.state().instances.get(&own).unwrap().host.as_deref(), Some("b"));
    // A host that accepts no pods, and one that is not connected.
    for (host, wanted) in [("c", "Unsupported"), ("x", "InsufficientInstanceCapacity")] {
        let request = PodRequest::Launch(launch(&subnet, "cni-3"));
        assert_eq!(code(&mut client.control, host, request), wanted);
    }
}

/// The error was the same as that of a host without room, so a runtime tried again for ever.
#[test]
fn regression_a_pod_that_its_host_can_never_run_is_refused_with_the_reason() {
    let nodes = Nodes::start(&["a", "b"]);
    let mut client = Client::with(Box::<MemoryStore>::default(), nodes.machines());
    let types = vec!["c7i.large".to_owned()];
    for (number, name, vcpus, types) in [(1, "a", 3, Vec::new()), (2, "b", 80, types)] {
        let capacity = Capacity { pods: true, types, ..capacity("us-east-1a", vcpus) };
        enrol(&mut client.control, name, number, Some(capacity));
    }
    let here = subnet(&mut client, "us-east-1a");
    let there = subnet(&mut client, "us-east-1b");
    let mut refused = |host: &str, subnet: &str, kind: &str| {
        let launch = PodLaunch { instance_type: kind.to_owned(), ..launch(subnet, "cni-1") };
        match client.control.pod(host, PodRequest::Launch(launch), NOW) {
            PodAnswer::Refused { code, message } => format!("{code}: {message}"),
            other => panic!("{other:?}"),
        }
    };
    let zone = refused("a", &there, "c7i.large");
    let wanted =
        "Unsupported: The host a of the pod is in us-east-1a, and the subnet in us-east-1b";
    assert!(zone.starts_with(wanted), "{zone}");
    let vcpus = refused("a", &here, "c7i.xlarge");
    assert!(vcpus.contains("accepts 3 vCPUs, and c7i.xlarge needs 4"), "{vcpus}");
    let kind = refused("b", &here, "c7i.xlarge");
    assert!(
        kind.contains("does not accept the type c7i.xlarge: choose one of c7i.large"),
        "{kind}"
    );
    assert!(kind.starts_with("Unsupported"), "{kind}");
    // A host that has no room at present may have room later.
    started(&mut client.control, "a", launch(&here, "cni-2"));
    let full = PodRequest::Launch(launch(&here, "cni-3"));
    assert_eq!(code(&mut client.control, "a", full), "InsufficientInstanceCapacity");
}

#[test]
fn errors_of_the_api_reach_the_host() {
    let nodes = Nodes::start(&["a"]);
    let mut client = start(&nodes);
    let subnet = subnet(&mut client, "us-east-1a");
    let mut refused = |launch| code(&mut client.control, "a", PodRequest::Launch(launch));
    assert_eq!(refused(launch("subnet-00000000", "cni-1")), "InvalidSubnetID.NotFound");
    let groups = vec!["sg-00000000".to_owned()];
    let unknown = PodLaunch { groups, ..launch(&subnet, "cni-1") };
    assert_eq!(refused(unknown), "InvalidGroup.NotFound");
    let reserved = PodLaunch { address: Some([10, 0, 1, 1].into()), ..launch(&subnet, "cni-1") };
    assert_eq!(refused(reserved), "InvalidParameterValue");
    let free = |client: &mut Client, subnet: &str| {
        let request = PodRequest::FreeAddresses { subnet: subnet.to_owned() };
        client.control.pod("a", request, NOW)
    };
    assert_eq!(free(&mut client, &subnet), PodAnswer::FreeAddresses { count: 251 });
    let fixed = PodLaunch { address: Some([10, 0, 1, 9].into()), ..launch(&subnet, "cni-1") };
    started(&mut client.control, "a", fixed);
    assert_eq!(free(&mut client, &subnet), PodAnswer::FreeAddresses { count: 250 });
    let unknown = PodRequest::FreeAddresses { subnet: "subnet-1".to_owned() };
    assert_eq!(code(&mut client.control, "a", unknown), "InvalidSubnetID.NotFound");
}
