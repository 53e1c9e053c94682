//! Several controllers with one store, and the hosts that are connected to each of them.

use std::sync::Mutex;

use srd_control::control::shared;
use srd_control::fleet::{HostMachines, Parts};

use crate::fleet::{Nodes, authorize, run, start_with, subnet};
use crate::support::{Client, SharedStore, all, first, request};

/// A controller that took over the end of the old account's instances after the start of the new
/// account's emptied the part of their hosts.
#[test]
fn regression_hosts_that_another_account_uses_by_now_keep_their_parts() {
    let store = SharedStore::default();
    let nodes = Nodes::start(&["a", "b"]);
    let mut client = start_with(&nodes, Box::new(store.clone()));
    let of = subnet(&mut client, "us-east-1a");
    let ids = all(&client.ok(&run(&of, 2, "")), "instanceId");
    let beside = Nodes::start(&["a", "b"]);
    let mut other = Client::with(Box::new(store), beside.machines());
    client
        .ok(&format!("Action=TerminateInstances&InstanceId.1={}&InstanceId.2={}", ids[0], ids[1]));
    // Changes are taken over in the order of the accounts, and this is the first one.
    let mut ok = |form: &str| {
        let mut request = request(client.region, form);
        for (_, value) in &mut request.headers {
            *value = value.replace("Credential=x/", "Credential=000000000001/");
        }
        let answer = client.control.handle(&request, client.now);
        assert_eq!(answer.status, 200, "{form}: {}", answer.body);
        answer.body
    };
    let vpc = first(&ok("Action=CreateVpc&CidrBlock=10.0.0.0/16"), "vpcId");
    let form = format!("Action=CreateSubnet&VpcId={vpc}&CidrBlock=10.0.1.0/24");
    let of = first(&ok(&format!("{form}&AvailabilityZone=us-east-1a")), "subnetId");
    let ids = all(&ok(&run(&of, 2, "")), "instanceId");
    other.control.follow().unwrap();
    for host in ["a", "b"] {
        assert_eq!(nodes.text(host), beside.text(host));
        assert!(ids.iter().any(|id| beside.text(host).contains(id)), "{host}");
    }
}

/// A request waited for the hosts that a request to another controller concerned, and so did the
/// controller before it took over further changes.
#[test]
fn regression_no_request_waits_for_the_changes_of_another_controller() {
    let store = SharedStore::default();
    let mut nodes = Nodes::start(&["a", "b"]);
    let mut client = start_with(&nodes, Box::new(store.clone()));
    let of = subnet(&mut client, "us-east-1a");
    client.ok(&run(&of, 2, ""));
    let other = HostMachines::new(Parts::default(), Box::new(|_: &str| {}));
    let mut other = Client::with(Box::new(store), Box::new(other));
    nodes.fall_silent();
    authorize(&mut other, &of, 7001);
    client.ok("Action=DescribeVpcs");
    assert!(nodes.text("a").contains("tcp 7001"), "the change is sent");
    // The end of a wait for the hosts would report them.
    let late = || {
        let reports = nodes.reports.lock().unwrap();
        reports.iter().filter(|report| report.contains("does not use a change yet")).count()
    };
    assert_eq!(late(), 0);
    let control = Mutex::new(client.control);
    let ((), wait) = shared::run_apart(&control, false, |_| ());
    assert!(wait.is_none() && late() == 0);
    let ((), wait) = shared::run_apart(&control, true, |_| ());
    wait.unwrap().wait();
    assert_eq!(late(), 2);
    let ((), wait) = shared::run_apart(&control, true, |_| ());
    assert!(wait.is_none(), "a wait is returned once");
}
