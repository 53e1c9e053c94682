//! Instances on hosts that have enrolled. The hosts are threads that acknowledge their parts.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use srd_control::control::Control;
use srd_control::fleet::{HostMachines, Parts};
use srd_control::hosts::decide::{Enrolment, TokenOptions};
use srd_control::state::Instance;
use srd_control::store::{CommitError, KeyChange, MemoryStore, News, Store};
use srd_enrol::{Capacity, CloudTables, Host, Identity};

use crate::support::{Client, NOW, SharedStore, all, request};

/// Type of the instances, with 2 vCPUs.
const TYPE: &str = "c7i.large";

/// Hosts with sessions, which acknowledge each generation of their part or refuse it.
pub(crate) struct Nodes {
    pub(crate) parts: Parts,
    /// A host that refuses parts with more instances than this.
    pub(crate) refuses: Arc<Mutex<Option<(&'static str, usize)>>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub(crate) reports: Arc<Mutex<Vec<String>>>,
}

impl Nodes {
    pub(crate) fn start(names: &'static [&'static str]) -> Self {
        let parts = Parts::default();
        let (refuses, ends) = (Arc::<Mutex<Option<_>>>::default(), Arc::<AtomicBool>::default());
        for name in names {
            parts.enter(name, 1);
            parts.decided(name, 1, parts.of(name).0, None);
        }
        let thread = thread::spawn({
            let (parts, refuses, ends) = (parts.clone(), Arc::clone(&refuses), Arc::clone(&ends));
            move || {
                while !ends.load(Ordering::Relaxed) {
                    for name in names {
                        let (generation, tables) = parts.of(name);
                        let instances = tables.text().matches("[instance.").count();
                        let refuses = *refuses.lock().unwrap();
                        let is_refused =
                            refuses.is_some_and(|(of, most)| of == *name && instances > most);
                        let error = is_refused.then(|| "no device is left".to_owned());
                        parts.decided(name, 1, generation, error);
                    }
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let is_ready = |name: &&str| {
            let (_, generation, applied) = parts.load(name);
            generation == applied
        };
        while !names.iter().all(is_ready) {
            thread::sleep(Duration::from_millis(1));
        }
        Self { parts, refuses, ends, thread: Some(thread), reports: Arc::default() }
    }

    pub(crate) fn machines(&self) -> Box<HostMachines> {
        let reports = Arc::clone(&self.reports);
        let report = move |text: &str| reports.lock().unwrap().push(text.to_owned());
        Box::new(HostMachines::new(self.parts.clone(), Box::new(report)))
    }

    pub(crate) fn text(&self, host: &str) -> String {
        self.parts.of(host).1.text()
    }

    /// Lets the hosts acknowledge nothing from now on.
    pub(crate) fn fall_silent(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.fall_silent();
    }
}

pub(crate) fn capacity(zone: &str, vcpus: u32) -> Capacity {
    Capacity { zone: zone.to_owned(), vcpus, types: Vec::new(), pods: false }
}

/// Enrols a host.
pub(crate) fn enrol(control: &mut Control, name: &str, number: u8, capacity: Option<Capacity>) {
    use base64::Engine as _;
    control.decide(|table| table.begin(None, "10.77.0.0/16".parse().unwrap())).unwrap();
    let options = TokenOptions { lifetime_s: 60, uses: 1 };
    let token = control.decide(|table| table.create_token(options, NOW)).unwrap();
    let request = Enrolment {
        identity: Identity::draw().unwrap().fingerprint(),
        token: token.id.clone(),
        secret: token.secret.clone(),
        name: name.to_owned(),
        host: Host {
            public_key: base64::engine::general_purpose::STANDARD.encode([number; 32]),
            endpoints: vec![([192, 0, 2, number], 7471).into()],
            processors: 1,
            memory_bytes: 1,
            capacity,
        },
    };
    control.decide(|table| table.enrol(&request, NOW)).unwrap();
}

/// A client of a control plane whose instances run on the hosts `a` and `b`, with 8 vCPUs each.
pub(crate) fn start_with(nodes: &Nodes, store: Box<dyn Store>) -> Client {
    let mut client = Client::with(store, nodes.machines());
    for (number, name) in [(1, "a"), (2, "b")] {
        enrol(&mut client.control, name, number, Some(capacity("us-east-1a", 8)));
    }
    client
}

fn start(nodes: &Nodes) -> Client {
    start_with(nodes, Box::<MemoryStore>::default())
}

/// Makes a VPC with a subnet in a zone, and returns the subnet.
pub(crate) fn subnet(client: &mut Client, zone: &str) -> String {
    let vpc = client.take("Action=CreateVpc&CidrBlock=10.0.0.0/16", "vpcId");
    let form =
        format!("Action=CreateSubnet&VpcId={vpc}&CidrBlock=10.0.1.0/24&AvailabilityZone={zone}");
    client.take(&form, "subnetId")
}

pub(crate) fn run(subnet: &str, count: u32, more: &str) -> String {
    format!(
        "Action=RunInstances&ImageId=ami-12c6146b&InstanceType={TYPE}&MinCount={count}&\
         MaxCount={count}&SubnetId={subnet}{more}"
    )
}

/// The number of running instances of each host.
fn placed(client: &Client) -> BTreeMap<String, usize> {
    let mut placed = BTreeMap::new();
    for instance in client.state().instances.iter().filter(|of| of.state.code == 16) {
        *placed.entry(instance.host.clone().unwrap()).or_default() += 1;
    }
    placed
}

#[test]
fn instances_spread_over_the_hosts_of_their_zone_until_these_are_full() {
    let nodes = Nodes::start(&["a", "b", "c"]);
    let mut client = start(&nodes);
    enrol(&mut client.control, "c", 3, Some(capacity("us-east-1b", 8)));
    // This host accepts no instances, and the last one is not connected.
    enrol(&mut client.control, "d", 4, None);
    enrol(&mut client.control, "e", 5, Some(capacity("us-east-1a", 800)));
    let of = subnet(&mut client, "us-east-1a");
    client.ok(&run(&of, 4, ""));
    assert_eq!(placed(&client), [("a".to_owned(), 2), ("b".to_owned(), 2)].into());
    client.ok(&run(&of, 4, ""));
    let full = placed(&client);
    assert_eq!(full, [("a".to_owned(), 4), ("b".to_owned(), 4)].into());
    assert_eq!(client.code(&run(&of, 1, "")), "InsufficientInstanceCapacity");
    assert_eq!((placed(&client), client.state().instances.len()), (full, 8));
    let elsewhere = subnet(&mut client, "us-east-1c");
    assert_eq!(client.code(&run(&elsewhere, 1, "")), "InsufficientInstanceCapacity");

    // The instances of a host belong to one region, and an instance that stops frees its host.
    let id = client.state().instances.iter().next().unwrap().instance_id.clone();
    client.ok(&format!("Action=StopInstances&InstanceId.1={id}"));
    client.ok(&run(&of, 1, ""));
    assert_eq!(
        client.code(&format!("Action=StartInstances&InstanceId.1={id}")),
        "InsufficientInstanceCapacity"
    );
    assert!(nodes.text("d").is_empty() && nodes.text("e").is_empty());
}

#[test]
fn a_host_gets_only_types_that_it_accepts() {
    let nodes = Nodes::start(&["a"]);
    let mut client = Client::with(Box::<MemoryStore>::default(), nodes.machines());
    let types = vec!["t3.micro".to_owned(), TYPE.to_owned()];
    let only = Capacity { types, ..capacity("us-east-1a", 800) };
    enrol(&mut client.control, "a", 1, Some(only));
    let of = subnet(&mut client, "us-east-1a");
    client.ok(&run(&of, 1, ""));
    let other = run(&of, 1, "").replace(TYPE, "c7i.xlarge");
    assert_eq!(client.code(&other), "InsufficientInstanceCapacity");
}

/// Each host gets the VPCs of its instances, and those that peering joins with them.
#[test]
fn a_host_gets_what_its_instances_need() {
    let nodes = Nodes::start(&["a", "b"]);
    let mut client = start(&nodes);
    let [first, second] = [(); 2].map(|()| subnet(&mut client, "us-east-1a"));
    // The first instance fills the host `a` more than the second one fills the host `b`.
    client.ok(&run(&first, 1, ""));
    client.ok(&run(&second, 1, ""));
    client.ok("Action=AllocateAddress&Domain=vpc");
    let hosts: Vec<Option<String>> =
        client.state().instances.iter().map(|of| of.host.clone()).collect();
    assert_eq!(hosts, [Some("a".to_owned()), Some("b".to_owned())]);
    let ids: Vec<String> =
        client.state().instances.iter().map(|of| of.instance_id.clone()).collect();
    let [a, b] = ["a", "b"].map(|host| nodes.text(host));
    assert!(a.contains(&ids[0]) && !a.contains(&ids[1]), "{a}");
    assert!(b.contains(&ids[1]) && !b.contains(&ids[0]), "{b}");
    assert!(!a.contains("prefix_list") && !a.contains("elastic_address"), "{a}");

    let vpcs: Vec<String> =
        [&first, &second].map(|id| client.state().subnets.get(id).unwrap().vpc_id.clone()).to_vec();
    // The blocks of the two VPCs are equal, so a third one is joined with the first.
    let third = client.take("Action=CreateVpc&CidrBlock=10.9.0.0/16", "vpcId");
    let form = format!("Action=CreateVpcPeeringConnection&VpcId={}&PeerVpcId={third}", vpcs[0]);
    let peering = client.take(&form, "vpcPeeringConnectionId");
    assert!(!nodes.text("a").contains(&third), "the connection is not accepted yet");
    client.ok(&format!("Action=AcceptVpcPeeringConnection&VpcPeeringConnectionId={peering}"));
    assert!(nodes.text("a").contains(&third) && !nodes.text("b").contains(&third));
    let file = srd_vpc_file::parse(&nodes.text("a"), Path::new("a")).unwrap();
    let instances: Vec<_> = file.world.instances.values().map(|of| of.host.clone()).collect();
    assert_eq!(instances, [Some("a".to_owned())]);
    // Everything goes with the instances.
    client
        .ok(&format!("Action=TerminateInstances&InstanceId.1={}&InstanceId.2={}", ids[0], ids[1]));
    assert_eq!(nodes.text("a") + &nodes.text("b"), "");
}

/// Adds a rule with this port to a group of the VPC of a subnet.
pub(crate) fn authorize(client: &mut Client, subnet: &str, port: u16) {
    let vpc = client.state().subnets.get(subnet).unwrap().vpc_id.clone();
    let group = client.state().groups.find(|group| group.vpc_id == vpc).unwrap().group_id.clone();
    client.ok(&format!(
        "Action=AuthorizeSecurityGroupIngress&GroupId={group}&IpProtocol=tcp&FromPort={port}&\
         ToPort={port}&CidrIp=192.0.2.0/24"
    ));
}

#[test]
fn a_change_of_rules_concerns_the_hosts_of_its_vpc() {
    let nodes = Nodes::start(&["a", "b"]);
    let mut client = start(&nodes);
    let [first, second] = [(); 2].map(|()| subnet(&mut client, "us-east-1a"));
    client.ok(&run(&first, 1, ""));
    client.ok(&run(&second, 1, ""));
    let generations = || ["a", "b"].map(|host| nodes.parts.of(host).0);
    let before = generations();
    authorize(&mut client, &first, 7001);
    let after = generations();
    assert!(after[0] > before[0] && after[1] == before[1], "{before:?} {after:?}");
    assert!(nodes.text("a").contains("tcp 7001") && !nodes.text("b").contains("tcp 7001"));
    // A host with instances in both VPCs has the tables of both.
    client.ok(&run(&first, 2, ""));
    assert_eq!(placed(&client), [("a".to_owned(), 2), ("b".to_owned(), 2)].into());
    let both = nodes.text("b");
    assert!(both.contains("tcp 7001") && both.contains(&first) && both.contains(&second), "{both}");
    srd_vpc_file::parse(&both, Path::new("b")).unwrap();
    for (subnet, port) in [(&first, 7002), (&second, 7003)] {
        authorize(&mut client, subnet, port);
        assert!(nodes.text("b").contains(&format!("tcp {port}")));
        assert_eq!(nodes.text("a").contains(&format!("tcp {port}")), port == 7002);
    }
    // The host leaves the first VPC with its last instance there.
    let is_there =
        |of: &&Instance| of.host.as_deref() == Some("b") && of.subnet_id.as_ref() == Some(&first);
    let id = client.state().instances.iter().find(is_there).unwrap().instance_id.clone();
    client.ok(&format!("Action=TerminateInstances&InstanceId.1={id}"));
    let left = nodes.text("b");
    assert!(!left.contains(&first) && left.contains("tcp 7003") && !left.contains("tcp 7002"));
}

#[test]
fn requests_that_hosts_cannot_carry_out_are_refused() {
    let nodes = Nodes::start(&["a", "b"]);
    let mut client = start(&nodes);
    let of = subnet(&mut client, "us-east-1a");
    let launch = run(&of, 1, "&UserData=aHVzaA%3D%3D");
    assert_eq!(client.code(&launch), "UnsupportedOperation");
    let logs = format!(
        "Action=CreateFlowLogs&ResourceType=Subnet&ResourceId.1={of}&TrafficType=ALL&\
         LogGroupName=logs&DeliverLogsPermissionArn=arn:aws:iam::123456789012:role/logs"
    );
    assert_eq!(client.code(&logs), "UnsupportedOperation");
    assert!(client.state().instances.is_empty() && client.state().flow_logs.is_empty());
    client.ok(&run(&of, 1, ""));
}

#[test]
fn a_host_that_refuses_an_instance_fails_the_launch_but_delays_no_other_request() {
    let nodes = Nodes::start(&["a", "b"]);
    let mut client = start(&nodes);
    let of = subnet(&mut client, "us-east-1a");
    client.ok(&run(&of, 2, ""));
    let before = nodes.text("a");
    *nodes.refuses.lock().unwrap() = Some(("b", 0));
    // A change of rules concerns both hosts, and does not depend on the one that refuses.
    let vpc = client.state().subnets.get(&of).unwrap().vpc_id.clone();
    let form = format!("Action=CreateSecurityGroup&VpcId={vpc}&GroupName=x&GroupDescription=x");
    let group = client.take(&form, "groupId");
    assert!(nodes.text("a").contains(&group) && nodes.text("b").contains(&group));
    let told = nodes.reports.lock().unwrap().join("\n");
    assert!(told.contains("the host b has refused a change: no device is left"), "{told}");
    client.ok(&format!("Action=DeleteSecurityGroup&GroupId={group}"));
    assert_eq!(nodes.text("a"), before);
    // The host gets no further instances until it uses its part.
    client.ok(&run(&of, 2, ""));
    assert_eq!(placed(&client), [("a".to_owned(), 3), ("b".to_owned(), 1)].into());

    // A refusal by the host of a new instance fails the request, which changes nothing.
    *nodes.refuses.lock().unwrap() = Some(("b", 4));
    let is_current = || {
        let (_, generation, applied) = nodes.parts.load("b");
        generation == applied
    };
    while !is_current() {
        thread::sleep(Duration::from_millis(1));
    }
    let before = nodes.text("b");
    assert_eq!(client.code(&run(&of, 1, "")), "Unavailable");
    assert_eq!((client.state().instances.len(), nodes.text("b")), (4, before));
    // The next launch uses the other host, although this one has more vCPUs left.
    client.ok(&run(&of, 1, ""));
    assert_eq!(placed(&client), [("a".to_owned(), 4), ("b".to_owned(), 1)].into());
    // The host that has refused is the only one with vCPUs left.
    *nodes.refuses.lock().unwrap() = None;
    while !is_current() {
        thread::sleep(Duration::from_millis(1));
    }
    client.ok(&run(&of, 1, ""));
    assert_eq!(placed(&client)["b"], 2);
}

/// Controllers with one store: each sends the parts to the hosts that are connected to it.
#[test]
fn a_controller_that_starts_again_and_one_beside_it_have_the_same_parts() {
    let store = SharedStore::default();
    let nodes = Nodes::start(&["a", "b"]);
    let mut client = start_with(&nodes, Box::new(store.clone()));
    let of = subnet(&mut client, "us-east-1a");
    client.ok(&run(&of, 4, ""));
    let beside = Nodes::start(&["a", "b"]);
    let mut other = Client::with(Box::new(store), beside.machines());
    for host in ["a", "b"] {
        assert_eq!(nodes.text(host), beside.text(host));
        assert!(!nodes.text(host).is_empty());
    }
    let id = all(&client.ok("Action=DescribeInstances"), "instanceId").remove(0);
    other.ok(&format!("Action=TerminateInstances&InstanceId.1={id}"));
    client.control.follow().unwrap();
    for host in ["a", "b"] {
        assert_eq!(nodes.text(host), beside.text(host));
        assert!(!nodes.text(host).contains(&id));
    }
    // Two launches at a time never fill a host beyond its capacity.
    other.ok(&run(&of, 3, ""));
    assert_eq!(client.code(&run(&of, 3, "")), "InsufficientInstanceCapacity");
    client.ok(&run(&of, 2, ""));
    assert_eq!(placed(&client), [("a".to_owned(), 4), ("b".to_owned(), 4)].into());
}

#[test]
fn the_instances_of_a_host_that_is_removed_stop_and_start_elsewhere() {
    let nodes = Nodes::start(&["a", "b"]);
    let mut client = start(&nodes);
    let of = subnet(&mut client, "us-east-1a");
    client.ok(&run(&of, 2, ""));
    assert!(client.control.remove_host("x").is_err());
    let removed = client.control.remove_host("b").unwrap();
    assert_eq!(placed(&client), [("a".to_owned(), 1)].into());
    let is_stopped = |of: &&Instance| of.state.name == "stopped";
    let state = client.state();
    let stopped = state.instances.iter().find(is_stopped).unwrap().clone();
    assert!(stopped.state_transition_reason.contains("the host b was removed"), "{stopped:?}");
    assert_eq!(removed, std::slice::from_ref(&stopped.instance_id));
    assert!(nodes.text("b").is_empty() && !nodes.text("a").contains(&stopped.instance_id));
    client.ok(&format!("Action=StartInstances&InstanceId.1={}", stopped.instance_id));
    assert_eq!(placed(&client), [("a".to_owned(), 2)].into());
}

/// A store in which something happens before a transaction that removes the host `b`.
struct AtRemoval<F> {
    store: SharedStore,
    happens: F,
}

impl<F: FnMut() -> Result<(), CommitError> + Send> Store for AtRemoval<F> {
    fn load(&mut self) -> Result<Vec<(String, String)>, String> {
        self.store.load()
    }

    fn commit(&mut self, changes: Vec<KeyChange>) -> Result<(), CommitError> {
        if changes.contains(&("hosts/host/b".to_owned(), None)) {
            (self.happens)()?;
        }
        self.store.commit(changes)
    }

    fn refresh(&mut self) -> Result<News, String> {
        self.store.refresh()
    }
}

/// The instances had ended already when the removal failed.
#[test]
fn regression_a_removal_of_a_host_that_fails_leaves_its_instances_alone() {
    let nodes = Nodes::start(&["a", "b"]);
    let happens = || Err(CommitError::Failed("the disk is full".to_owned()));
    let mut client =
        start_with(&nodes, Box::new(AtRemoval { store: SharedStore::default(), happens }));
    let of = subnet(&mut client, "us-east-1a");
    client.ok(&run(&of, 2, ""));
    let before = nodes.text("b");
    let error = client.control.remove_host("b").unwrap_err();
    assert!(error.message.contains("nothing was changed: the disk is full"), "{error}");
    assert_eq!(placed(&client)["b"], 1);
    assert_eq!(nodes.text("b"), before);
}

/// The instance was shown as running for ever, and no group replaced it.
#[test]
fn regression_an_instance_that_starts_while_its_host_is_removed_stops() {
    let store = SharedStore::default();
    let other = Arc::<Mutex<Option<(Client, String)>>>::default();
    let happens = {
        let other = Arc::clone(&other);
        move || {
            if let Some((mut client, form)) = other.lock().unwrap().take() {
                client.ok(&form);
                assert_eq!(placed(&client)["b"], 2);
            }
            Ok(())
        }
    };
    let nodes = Nodes::start(&["a", "b"]);
    let mut client = start_with(&nodes, Box::new(AtRemoval { store: store.clone(), happens }));
    let of = subnet(&mut client, "us-east-1a");
    client.ok(&run(&of, 2, ""));
    let beside = Nodes::start(&["b"]);
    let beside = Client::with(Box::new(store), beside.machines());
    *other.lock().unwrap() = Some((beside, run(&of, 1, "")));
    client.control.remove_host("b").unwrap();
    assert!(other.lock().unwrap().is_none());
    assert_eq!(placed(&client), [("a".to_owned(), 1)].into());
    assert_eq!(client.state().instances.len(), 3);
}

#[test]
fn an_instance_whose_host_does_not_exist_is_stopped_at_the_start_of_a_controller() {
    let store = SharedStore::default();
    let nodes = Nodes::start(&["a", "b"]);
    let mut client = start_with(&nodes, Box::new(store.clone()));
    let of = subnet(&mut client, "us-east-1a");
    client.ok(&run(&of, 2, ""));
    client.control.decide(|table| table.remove("b")).unwrap();
    let again = Client::with(Box::new(store), nodes.machines());
    assert_eq!(placed(&again), [("a".to_owned(), 1)].into());
}

/// Sends a request to Auto Scaling that succeeds.
fn scale(client: &mut Client, form: &str) -> String {
    let mut request = request(client.region, &format!("Version=2011-01-01&{form}"));
    for (_, value) in &mut request.headers {
        *value = value.replace("/ec2/", "/autoscaling/");
    }
    let answer = client.control.handle(&request, client.now);
    assert_eq!(answer.status, 200, "{form}: {}", answer.body);
    answer.body
}

/// Makes a group with one instance.
fn group(client: &mut Client) {
    let of = subnet(client, "us-east-1a");
    client.ok(&format!(
        "Action=CreateLaunchTemplate&LaunchTemplateName=web&LaunchTemplateData.ImageId=ami-12c6146b\
         &LaunchTemplateData.InstanceType={TYPE}"
    ));
    let form = format!(
        "Action=CreateAutoScalingGroup&AutoScalingGroupName=g&LaunchTemplate.LaunchTemplateName=web\
         &VPCZoneIdentifier={of}&MinSize=0&MaxSize=3&DesiredCapacity=1"
    );
    scale(client, &form);
}

/// Number of activities of the group `g` that have failed.
fn failures(client: &mut Client) -> usize {
    let shown = scale(client, "Action=DescribeScalingActivities&AutoScalingGroupName=g");
    all(&shown, "StatusCode").iter().filter(|code| *code == "Failed").count()
}

/// The group waited for a minute again and again, although the other controller had a host.
#[test]
fn regression_a_controller_without_hosts_does_not_stop_the_groups_of_another_one() {
    let store = SharedStore::default();
    let nodes = Nodes::start(&["a", "b"]);
    let mut with_hosts = start_with(&nodes, Box::new(store.clone()));
    let without = HostMachines::new(Parts::default(), Box::new(|_: &str| {}));
    let mut without = Client::with(Box::new(store), Box::new(without));
    group(&mut without);
    assert!(placed(&without).is_empty());
    with_hosts.control.follow().unwrap();
    with_hosts.control.settle(NOW);
    assert_eq!(placed(&with_hosts).values().sum::<usize>(), 1);
}

#[test]
fn a_group_without_a_host_is_tried_once_in_a_minute_and_after_its_changes() {
    let machines = HostMachines::new(Parts::default(), Box::new(|_: &str| {}));
    let mut client = Client::with(Box::<MemoryStore>::default(), Box::new(machines));
    group(&mut client);
    assert_eq!(failures(&mut client), 1);
    client.now += 59;
    client.ok("Action=CreateVpc&CidrBlock=10.9.0.0/16");
    assert_eq!(failures(&mut client), 1);
    client.now += 1;
    client.ok("Action=DescribeVpcs");
    assert_eq!(failures(&mut client), 2);
    let desire = "Action=SetDesiredCapacity&AutoScalingGroupName=g&DesiredCapacity=2";
    scale(&mut client, desire);
    assert_eq!(failures(&mut client), 3);
    scale(&mut client, "Action=DeleteAutoScalingGroup&AutoScalingGroupName=g&ForceDelete=true");
    client.now += 60;
    client.ok("Action=DescribeVpcs");
}

/// An instance from before its control plane had hosts would be an instance of each host.
#[test]
fn instances_without_a_host_are_stopped_and_are_sent_to_no_host() {
    let store = SharedStore::default();
    let mut local =
        Client::with(Box::new(store.clone()), Box::new(srd_control::machines::NoMachines));
    let of = subnet(&mut local, "us-east-1a");
    let id = local.take(&run(&of, 1, ""), "instanceId");
    let nodes = Nodes::start(&["a", "b"]);
    let mut client = start_with(&nodes, Box::new(store));
    assert_eq!(client.state().instances.get(&id).unwrap().state.name, "stopped");
    client.ok(&run(&of, 1, ""));
    assert!(!nodes.text("a").contains(&id));
    assert_eq!(nodes.parts.of("x").1.as_ref(), &CloudTables::default());
}
