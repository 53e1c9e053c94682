//! Two controllers of one etcd cluster.

use super::*;
use crate::etcd::Cluster;

/// Two controllers and three members of etcd. A member and a controller are killed: the hosts
/// connect to the other controller, which has all changes.
#[test]
fn hosts_of_two_controllers_follow_both_and_outlive_one() {
    if !is_ready() {
        return;
    }
    if !Path::new("/run/test").is_dir() {
        println!("skipped: a name of two controllers needs an /etc/hosts of its own");
        return;
    }
    let mut fleet = Fleet::new("e");
    must(&format!("-n {} addr add {}/24 dev v0", fleet.names[CONTROLLER], SECOND.hosts));
    let names = [&FIRST, &SECOND].map(|site| format!("{} control.test\n", site.hosts));
    fs::write("/run/test/names", names.concat() + "127.0.0.1 localhost\n").unwrap();
    let mount = ["--bind", "/run/test/names", "/etc/hosts"];
    assert!(Command::new("mount").args(mount).status().unwrap().success());
    fleet.controllers = format!("control.test:{HOSTS_PORT}");
    let at = fleet.names[CONTROLLER].clone();
    let Some(mut cluster) = within(&at, || Cluster::start(3)) else { return };
    let etcd = cluster.urls().join(",");
    let copy = fleet.path("copy.db");
    wait_until("the cluster", || {
        let mut command = fleet.srd(CONTROLLER);
        command.args(["control", "store", "copy", &etcd]).arg(&copy);
        command.output().unwrap().status.success()
    });
    let _second = fleet.start_at(&SECOND, &etcd);
    let mut first = fleet.start_at(&FIRST, &etcd);
    fleet.start_hosts("us-east-1a");
    let network = fleet.network("us-east-1a");
    let four = fleet.run(&network, 4);
    let a = four.iter().find(|of| of.machine == 1).unwrap();
    let b = four.iter().find(|of| of.machine == 2).unwrap();
    assert!(!pings(a, b));

    // The hosts are connected to the first controller, and get the changes of the second one.
    fleet.turn_to(&SECOND);
    fleet.rules("AuthorizeSecurityGroupIngress", &network[1]);
    wait_until("the rule of the other controller", || pings(a, b));
    fleet.terminate(&four[3..]);
    cluster.kill(0);
    fleet.rules("RevokeSecurityGroupIngress", &network[1]);
    wait_until("a change without a member", || !pings(a, b) && !pings(b, a));

    // The first controller is killed after it has answered a request.
    fleet.turn_to(&FIRST);
    fleet.rules("AuthorizeSecurityGroupIngress", &network[1]);
    let fifth = fleet.run(&network, 1);
    first.end(Signal::KILL);
    wait_until("a ping without the first controller", || pings(a, b));
    fleet.turn_to(&SECOND);
    fleet.wait_for_hosts(2);
    assert_eq!(fleet.counts().iter().sum::<u64>(), 4);
    assert!(exists(&fifth[0].namespace()));
    wait_until("pings with the second controller", || pings(a, b) && pings(a, &fifth[0]));
    within(&at, || {
        cluster.revive(0);
        cluster.wait_until_healthy(0);
    });
    cluster.kill(1);
    let sixth = fleet.run(&network, 1);
    wait_until("the new instance", || pings(b, &sixth[0]));
    fleet.terminate(&[&four[..3], &fifth, &sixth].concat());
    assert_eq!(fleet.counts(), [0, 0]);
    fleet.end_hosts();
}
