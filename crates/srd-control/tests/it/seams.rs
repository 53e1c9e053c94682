//! Tests of the interfaces of the control plane to its store and to the data plane.

use srd_control::control::{Access, Control};
use srd_control::machines::NoMachines;
use srd_control::store::{CommitError, KeyChange, MemoryStore, Store};

use crate::support::{Client, FailingStore, Recorder, SharedStore, all, first};

const RUN: &str = "Action=RunInstances&ImageId=ami-12c6146b&MinCount=1&MaxCount=1&InstanceType=";

#[test]
fn a_store_that_fails_fails_the_request() {
    let mut client = Client::with(Box::new(FailingStore(1)), Box::new(NoMachines));
    client.ok("Action=DescribeVpcs");
    let vpcs = client.state().vpcs.len();
    assert_eq!(client.code("Action=CreateVpc&CidrBlock=10.0.0.0/16"), "InternalError");
    assert_eq!(client.state().vpcs.len(), vpcs);
    assert!(!client.state().is_changed());
}

#[test]
fn machines_follow_instances_and_a_machine_that_does_not_start_fails_the_launch() {
    let recorder = Recorder::default();
    let mut client = Client::with(Box::new(MemoryStore::default()), Box::new(recorder.clone()));
    let id = client.take(&format!("{RUN}c7i.large"), "instanceId");
    client.ok(&format!("Action=StopInstances&InstanceId.1={id}"));
    client.ok(&format!("Action=StartInstances&InstanceId.1={id}"));
    client.ok(&format!("Action=TerminateInstances&InstanceId.1={id}"));
    let interfaces = client.state().interfaces.len();
    assert_eq!(client.code(&format!("{RUN}t3.nano")), "Unavailable");
    assert_eq!(client.state().interfaces.len(), interfaces);
    let start = "start c7i.large".to_owned();
    let stop = "stop c7i.large".to_owned();
    assert_eq!(*recorder.0.lock().unwrap(), [start.clone(), stop.clone(), start, stop]);
}

#[test]
fn an_instance_has_an_interface_for_as_long_as_it_lives() {
    let mut client = Client::new();
    let launch = client.ok(&format!("{RUN}c7i.large"));
    assert!(launch.contains("<name>pending</name>"));
    let id = first(&launch, "instanceId");
    let shown = client.ok(&format!("Action=DescribeInstances&InstanceId.1={id}"));
    assert!(shown.contains("<name>running</name>"));
    assert!(first(&shown, "ipAddress").starts_with("198.18.") || shown.contains("198.19."));
    assert_eq!(all(&client.ok("Action=DescribeNetworkInterfaces"), "attachmentId").len(), 1);
    client.ok(&format!("Action=TerminateInstances&InstanceId.1={id}"));
    assert!(!client.ok("Action=DescribeNetworkInterfaces").contains("networkInterfaceId"));
    let start = format!("Action=StartInstances&InstanceId.1={id}");
    assert_eq!(client.code(&start), "IncorrectInstanceState");
    assert_eq!(
        client.code("Action=RunInstances&ImageId=x&MinCount=1&MaxCount=1"),
        "InvalidAMIID.Malformed"
    );
    for index in ["-5", "15", "2147483647"] {
        let devices = "NetworkInterface.1.DeviceIndex=0&NetworkInterface.2.DeviceIndex";
        let form = format!("{RUN}c7i.large&{devices}={index}");
        assert_eq!(client.code(&form), "InvalidParameterValue", "{index}");
    }
    let devices = |count: usize| {
        let one = |n| format!("&NetworkInterface.{n}.DeviceIndex={}", n - 1);
        (1..=count).map(one).collect::<String>()
    };
    for (kind, count) in [("c7i.large", 3), ("c7i.24xlarge", 15)] {
        let form = format!("{RUN}{kind}{}", devices(count + 1));
        assert_eq!(client.code(&form), "AttachmentLimitExceeded");
        client.ok(&format!("{RUN}{kind}{}", devices(count)));
    }
    assert_eq!(client.code(&format!("{RUN}c7i.lagre")), "InvalidParameterValue");
    let many = RUN.replace("MaxCount=1", "MaxCount=101");
    assert_eq!(client.code(&format!("{many}c7i.large")), "InvalidParameterValue");
}

#[test]
fn a_control_plane_starts_with_the_state_of_its_store() {
    let mut store = SharedStore::default();
    let mut client = Client::with(Box::new(store.clone()), Box::new(NoMachines));
    let (vpc, subnet) = client.network();
    client.ok(&format!("Action=CreateNetworkInterface&SubnetId={subnet}"));
    client.ok(&format!("{RUN}c7i.large"));
    let describe = [
        "DescribeVpcs",
        "DescribeSubnets",
        "DescribeInstances",
        "DescribeTags",
        "DescribeSecurityGroups",
        "DescribeNetworkAcls",
        "DescribeRouteTables",
        "DescribeNetworkInterfaces",
        "DescribeManagedPrefixLists",
    ];
    let strip = |xml: String| xml.split("</requestId>").nth(1).unwrap().to_owned();
    let before: Vec<String> =
        describe.iter().map(|name| strip(client.ok(&format!("Action={name}")))).collect();
    let control =
        Control::new(Access::AnyCredentials, 8, Box::new(store.clone()), Box::new(NoMachines))
            .unwrap();
    client.control = control;
    let after: Vec<String> =
        describe.iter().map(|name| strip(client.ok(&format!("Action={name}")))).collect();
    assert_eq!(after, before);
    assert!(after[0].contains(&vpc));
    store.load().unwrap();
    store.commit(vec![("a/b/c".to_owned(), Some("[]".to_owned()))]).unwrap();
    assert!(
        Control::new(Access::AnyCredentials, 8, Box::new(store), Box::new(NoMachines)).is_err()
    );
}

/// A regression: the store could fail after instances had been started or stopped, and these
/// changes stayed.
#[test]
fn a_store_that_fails_leaves_machines_and_rules_as_they_were() {
    let recorder = Recorder::default();
    let mut client = Client::with(Box::new(FailingStore(2)), Box::new(recorder.clone()));
    let id = client.take(&format!("{RUN}c7i.large"), "instanceId");
    assert_eq!(client.code(&format!("{RUN}c7i.xlarge")), "InternalError");
    assert_eq!(client.code(&format!("Action=StopInstances&InstanceId.1={id}")), "InternalError");
    let calls = ["start c7i.large", "start c7i.xlarge", "stop c7i.xlarge"];
    assert_eq!(*recorder.0.lock().unwrap(), calls);
    assert_eq!(*recorder.1.lock().unwrap(), 1);
    assert_eq!(client.state().instances.iter().filter(|i| i.state.code == 16).count(), 1);
    let reset = crate::support::request("us-east-1", "");
    let reset = srd_control::http::HttpRequest { path: "/reset".to_owned(), ..reset };
    assert_eq!(client.control.handle(&reset, client.now).status, 500);
    assert_eq!(client.state().instances.len(), 1);
    assert_eq!(recorder.0.lock().unwrap().len(), calls.len());
}

/// A regression: the changes of a request that ended in a panic were stored by the next request.
#[test]
fn a_panic_of_a_request_is_undone_before_the_next_one() {
    let recorder = Recorder::default();
    let store = SharedStore::default();
    let mut client = Client::with(Box::new(store.clone()), Box::new(recorder));
    client.ok("Action=DescribeVpcs");
    let interfaces = client.state().interfaces.len();
    let run = std::panic::AssertUnwindSafe(|| client.send(&format!("{RUN}t3a.nano")));
    assert!(std::panic::catch_unwind(run).is_err());
    assert!(client.state().is_changed());
    client.ok("Action=CreateVpc&CidrBlock=10.0.0.0/16");
    assert_eq!(client.state().interfaces.len(), interfaces);
    assert!(client.state().instances.is_empty());
    let stored = store.all();
    assert!(!stored.iter().any(|(key, _)| key.contains("/i-")), "{stored:?}");
}

/// A store that fails once.
struct FailsOnce(bool);

impl Store for FailsOnce {
    fn load(&mut self) -> Result<Vec<(String, String)>, String> {
        Ok(Vec::new())
    }

    fn commit(&mut self, _: Vec<KeyChange>) -> Result<(), CommitError> {
        match std::mem::replace(&mut self.0, true) {
            true => Ok(()),
            false => Err(CommitError::Failed("full".to_owned())),
        }
    }
}

/// A regression: after a failure of its first commit, a region stayed without its default VPC.
#[test]
fn a_region_whose_first_commit_fails_is_made_again() {
    let mut client = Client::with(Box::new(FailsOnce(false)), Box::new(NoMachines));
    assert_eq!(client.code("Action=DescribeVpcs"), "InternalError");
    assert!(client.control.cloud().regions.is_empty());
    assert_eq!(client.code("Action=DeleteVpc&VpcId=vpc-00000000"), "InvalidVpcID.NotFound");
    assert_eq!(all(&client.ok("Action=DescribeVpcs"), "isDefault"), ["true"]);
}

/// A regression: with the seed of an earlier run, new objects had the identifiers of stored
/// objects, and replaced them.
#[test]
fn identifiers_of_the_store_are_not_made_again() {
    let store = SharedStore::default();
    let mut client = Client::with(Box::new(store.clone()), Box::new(NoMachines));
    client.network();
    for _ in 0..2 {
        let mut again = Client::with(Box::new(store.clone()), Box::new(NoMachines));
        again.network();
        let stored = store.all();
        let kinds = ["/vpc-", "/subnet-"];
        let count = stored.iter().filter(|(key, _)| kinds.iter().any(|k| key.contains(k))).count();
        client = again;
        let state = client.state();
        assert_eq!(count, state.vpcs.len() + state.subnets.len());
    }
    assert_eq!(client.state().vpcs.len(), 4);
    assert_eq!(client.state().subnets.len(), 9);
}
