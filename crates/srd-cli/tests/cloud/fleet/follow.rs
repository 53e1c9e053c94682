//! Instances of two hosts follow the API, and outlive failures of the controller and of hosts.

use super::*;

#[test]
fn instances_of_two_hosts_follow_the_api_and_outlive_the_controller() {
    if !is_ready() {
        return;
    }
    let mut fleet = Fleet::start("m", "us-east-1a");
    let network = fleet.network("us-east-1a");
    let four = fleet.run(&network, 4);
    assert_eq!(fleet.counts(), [2, 2], "{four:?}");
    let a = four.iter().find(|of| of.machine == 1).unwrap();
    let b = four.iter().find(|of| of.machine == 2).unwrap();

    // Groups apply between hosts. A change applies when its request is answered. A busy machine may
    // delay a permitted packet for longer than one attempt waits.
    assert!(!pings(a, b) && !connects(a, b), "no rule permits it");
    fleet.rules("AuthorizeSecurityGroupIngress", &network[1]);
    wait_until("the first ping", || pings(a, b));
    wait_until("other packets", || connects(a, b) && pings(b, a));
    let began = Instant::now();
    fleet.in_force(|| fleet.rules("RevokeSecurityGroupIngress", &network[1]));
    println!("a change of rules was in force after {:?}", began.elapsed());
    assert!(!connects(a, b) && !pings(b, a), "the rules are revoked");
    fleet.rules("AuthorizeSecurityGroupIngress", &network[1]);
    wait_until("a connection", || connects(b, a));

    // Packets use SRD between the hosts, if the interfaces have this setting.
    let listener = listen(&b.namespace(), PORT);
    let mut client = connect(&a.namespace(), b.address, PORT).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    drop(listener);
    assert!(passes(&mut client, &mut server) && passes(&mut server, &mut client));
    assert_eq!(fleet.counter(a, "ena_srd_mode"), 1);
    assert!(fleet.counter(a, "ena_srd_tx_pkts") > 0 && fleet.counter(b, "ena_srd_rx_pkts") > 0);
    let of = format!("Filter.1.Name=attachment.instance-id&Filter.1.Value.1={}", a.id);
    let interface = element(&fleet.call("DescribeNetworkInterfaces", &of), "networkInterfaceId");
    let of = format!("NetworkInterfaceId={interface}&EnaSrdSpecification.EnaSrdEnabled=false");
    fleet.in_force(|| drop(fleet.call("ModifyNetworkInterfaceAttribute", &of)));
    assert_eq!(fleet.counter(a, "ena_srd_mode"), 0);
    assert!(passes(&mut client, &mut server), "the connection goes on");

    // Regression: a file of the host ended the instances of the controller.
    let own = fleet.path("own.toml");
    fs::write(&own, "[vpc.main]\ncidr = [\"10.0.0.0/16\"]\n").unwrap();
    let mut apply = Command::new(SRD);
    apply.args(["card", "apply", "--socket", &fleet.socket(a.machine)]).arg(&own);
    let refused = apply.output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("the controller 198.18.0.1:4600 sends the instances"), "{said}");
    assert!(passes(&mut client, &mut server), "the connection goes on");

    // Without its controller, a host goes on with what it has.
    fleet.processes[CONTROLLER].take().unwrap().end(Signal::KILL);
    assert!(passes(&mut client, &mut server));
    wait_until("packets without a controller", || connects(a, b) && pings(b, a));
    fleet.start_controller();
    fleet.wait_for_hosts(2);
    assert!(passes(&mut client, &mut server), "the restart ends no connection");
    assert_eq!(fleet.counts(), [2, 2]);
    let fifth = fleet.run(&network, 1);
    wait_until("a ping of the new instance", || four.iter().all(|of| pings(of, &fifth[0])));
    fleet.terminate(&four[..1]);
    assert!(four[1..].iter().all(|of| exists(&of.namespace())));

    // There is no space for five more instances of this type, and none at all in another zone.
    let (status, answer) = fleet.launch(&network, 5);
    assert!(status == 500 && answer.contains("InsufficientInstanceCapacity"), "{answer}");
    let elsewhere = fleet.network("us-east-1b");
    let (status, answer) = fleet.launch(&elsewhere, 1);
    assert!(status == 500 && answer.contains("us-east-1b"), "{answer}");
    assert_eq!(fleet.counts().iter().sum::<u64>(), 4);

    fleet.terminate(&[&four[1..], &fifth].concat());
    assert_eq!(fleet.counts(), [0, 0]);
    assert!((1..MACHINES).all(|machine| fleet.names_on(machine).is_empty()));
    fleet.end_hosts();
}

/// A host that was away gets the changes; a host that starts again starts its instances again; the
/// instances of a host that is removed end.
#[test]
fn hosts_catch_up_start_again_and_are_removed() {
    if !is_ready() {
        return;
    }
    let mut fleet = Fleet::start("r", "us-east-1a");
    let network = fleet.network("us-east-1a");
    fleet.rules("AuthorizeSecurityGroupIngress", &network[1]);
    let pair = fleet.run(&network, 2);
    let a = pair.iter().find(|of| of.machine == 1).unwrap();
    let b = pair.iter().find(|of| of.machine == 2).unwrap();
    wait_until("a ping", || pings(a, b));

    // The connection of a host to its controller is cut. The host forwards packets.
    let drop_it = |action: &str| {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", fleet.names[CONTROLLER]));
        let rules = ["ip", "route", action, "blackhole", "198.18.0.3"];
        assert!(command.args(rules).status().unwrap().success());
    };
    drop_it("add");
    wait_until("a ping without the controller", || pings(a, b));
    fleet.rules("RevokeSecurityGroupIngress", &network[1]);
    wait_until("the change at the host that is connected", || !pings(b, a));
    wait_until("a ping by the other one, which does not know the change", || pings(a, b));
    drop_it("del");
    wait_until("the change at the host that was away", || !pings(a, b));

    // A host that is killed starts again with the instances that it had, and the rules.
    fleet.rules("AuthorizeSecurityGroupIngress", &network[1]);
    fleet.wait_for_hosts(2);
    fleet.processes[2].take().unwrap().end(Signal::KILL);
    wait_until("the end of its instance", || !exists(&b.namespace()));
    fleet.processes[CONTROLLER].take().unwrap().end(Signal::KILL);
    fleet.start_host(2, "us-east-1a");
    wait_until("a ping without a controller", || is_mounted(&b.namespace()) && pings(a, b));
    fleet.start_controller();
    fleet.wait_for_hosts(2);
    wait_until("pings with the controller", || pings(a, b) && pings(b, a));

    let said = fleet.control(&["hosts", "remove", "h2"]);
    assert!(said.contains(&b.id) && !said.contains(&a.id), "{said}");
    wait_until("the end of its instance", || !exists(&b.namespace()));
    let shown = fleet.call("DescribeInstances", &format!("InstanceId.1={}", b.id));
    assert!(shown.contains("<name>stopped</name>"), "{shown}");
    assert!(exists(&a.namespace()));
    // The instance starts again on another host.
    fleet.call("StartInstances", &format!("InstanceId.1={}", b.id));
    wait_until("the instance", || fleet.names_on(1).contains(&b.id));
    fleet.terminate(&pair);
    fleet.end_hosts();
}
