//! Pods of the plugin `srd-cni` on two hosts behind one controller.

use std::process::Output;

use serde_json::json;

use super::*;
use crate::cni::{PODS, Pods, has_device, run_plugin};

/// The plugin on a host, with records of its own.
struct Plugin {
    /// Network namespace of the host.
    host: String,
    /// The network configuration.
    config: Value,
    program: PathBuf,
    records: PathBuf,
}

impl Plugin {
    fn new(fleet: &Fleet, machine: usize, subnet: &str) -> Self {
        let (program, records) = (fleet.path("srd-cni"), fleet.path(&format!("records{machine}")));
        if !program.exists() {
            std::os::unix::fs::symlink(SRD, &program).unwrap();
        }
        let config = json!({
            "cniVersion": "1.1.0", "name": "cloud", "type": "srd-cni",
            "node": fleet.socket(machine), "stateDir": records, "subnet": subnet,
        });
        Self { host: fleet.names[machine].clone(), config, program, records }
    }

    /// Runs a command for the interface `eth0` of a pod, whose namespace has the same name.
    fn run(&self, command: &str, pod: &str, args: &str, more: &[(&str, Value)]) -> Output {
        let mut plugin = Command::new("nsenter");
        plugin.arg(format!("--net=/run/netns/{}", self.host)).arg(&self.program);
        run_plugin(plugin, self.config.clone(), (command, pod, args), more)
    }

    /// Runs a command that has to succeed, and returns its result.
    fn must(&self, command: &str, pod: &str, args: &str, more: &[(&str, Value)]) -> Value {
        let output = self.run(command, pod, args, more);
        assert!(output.status.success(), "{command}: {output:#?}");
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// Runs a command that has to fail, and returns the code of its error.
    fn code(&self, command: &str, pod: &str, args: &str, more: &[(&str, Value)]) -> u64 {
        let output = self.run(command, pod, args, more);
        assert!(!output.status.success(), "{command}: {output:#?}");
        let error: Value = serde_json::from_slice(&output.stdout).unwrap();
        println!("{command}: {error}");
        error["code"].as_u64().unwrap()
    }

    /// Attaches a pod with a security group. Returns its result and its address.
    fn add(&self, pod: &str, group: &str) -> (Value, [u8; 4]) {
        let result = self.must("ADD", pod, &format!("SRD_SECURITY_GROUPS={group}"), &[]);
        let address = result["ips"][0]["address"].as_str().unwrap();
        let address: std::net::Ipv4Addr = address.split('/').next().unwrap().parse().unwrap();
        (result, address.octets())
    }

    /// The names of the records that the plugin has left.
    fn left(&self) -> Vec<String> {
        let mut left = names(&self.records);
        left.retain(|name| !["lock", "node"].contains(&name.as_str()));
        left
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Whether a new connection between two pods carries a line.
fn reaches(from: &str, (to, address): (&str, [u8; 4])) -> bool {
    let listener = listen(to, PORT);
    let Ok(mut client) = connect_in_vain(from, address, PORT) else { return false };
    let (mut server, _) = listener.accept().unwrap();
    passes(&mut client, &mut server) && passes(&mut server, &mut client)
}

impl Fleet {
    /// Makes a group in the VPC of a subnet.
    fn group(&self, subnet: &str, name: &str) -> String {
        let shown = self.call("DescribeSubnets", &format!("SubnetId.1={subnet}"));
        let of =
            format!("VpcId={}&GroupName={name}&GroupDescription={name}", element(&shown, "vpcId"));
        element(&self.call("CreateSecurityGroup", &of), "groupId")
    }

    /// Lets members of a group reach the port of the members of another group.
    fn allow(&self, from: &str, to: &str) {
        let of = format!(
            "GroupId={to}&IpPermissions.1.IpProtocol=tcp&IpPermissions.1.FromPort={PORT}&\
             IpPermissions.1.ToPort={PORT}&IpPermissions.1.Groups.1.GroupId={from}"
        );
        self.call("AuthorizeSecurityGroupIngress", &of);
    }

    /// Number of interfaces of the API.
    fn interfaces(&self) -> usize {
        self.call("DescribeNetworkInterfaces", "").matches("<networkInterfaceId>").count()
    }
}

/// Pods of two groups on two hosts; a controller and a host that are killed; `DEL`, `CHECK` and
/// `GC`.
#[test]
fn pods_of_two_hosts_behind_one_controller_reach_each_other_as_their_groups_allow() {
    if !is_ready() {
        return;
    }
    let mut fleet = Fleet::start("c", "us-east-1a");
    let [subnet, web] = fleet.network("us-east-1a");
    let [client, other] = ["client", "other"].map(|name| fleet.group(&subnet, name));
    fleet.allow(&client, &web);
    let pods = Pods::new("f", 5);
    let [server, far, near, refused, lost] = [0, 1, 2, 3, 4].map(|n| pods.0[n].as_str());
    let [one, two] = [1, 2].map(|machine| Plugin::new(&fleet, machine, &subnet));
    one.must("STATUS", "", "", &[]);

    // The controller places each pod on the host that requests it.
    let (result, address) = one.add(server, &web);
    assert_eq!(
        (&result["interfaces"][0]["name"], result["ips"].as_array().unwrap().len()),
        (&json!("eth0"), 1)
    );
    let (of_far, _) = two.add(far, &client);
    let (of_refused, _) = two.add(refused, &other);
    one.add(near, &client);
    assert_eq!((fleet.counts(), fleet.interfaces()), (vec![2, 2], 4));
    let to = (server, address);
    wait_until("the way between the hosts", || reaches(far, to));
    wait_until("the way within the host", || reaches(near, to));
    assert!(!reaches(refused, to), "{}", fleet.log());
    fleet.allow(&other, &web);
    wait_until("the way of the other group", || reaches(refused, to));

    // What the plugin and the API refuse.
    let sends = |args: &str| two.code("ADD", lost, args, &[]);
    assert_eq!(sends("SRD_SECURITY_GROUPS=sg-00000000"), 7);
    assert_eq!(sends("SRD_SUBNET=subnet-00000000"), 7);
    assert_eq!(sends("SRD_INSTANCE_TYPE=c8i.96xlarge"), 7, "the host never has so many vCPUs");
    assert!(!has_device(lost) && two.left().len() == 2);
    assert_eq!(two.code("ADD", far, "", &[]), 100);
    let previous = |result: &Value| [("prevResult", result.clone())];
    two.must("CHECK", far, "", &previous(&of_far));
    must(&format!("-n {refused} addr flush dev eth0"));
    assert_eq!(two.code("CHECK", refused, "", &previous(&of_refused)), 103);

    // Without the controller, connections go on, and a pod that is deleted is cut off at once.
    let listener = listen(server, PORT);
    let mut from = connect(far, address, PORT).unwrap();
    let (mut at, _) = listener.accept().unwrap();
    drop(listener);
    fleet.processes[CONTROLLER].take().unwrap().end(Signal::KILL);
    assert!(passes(&mut from, &mut at) && passes(&mut at, &mut from));
    assert_eq!(one.code("STATUS", "", "", &[]), 50);
    assert_eq!(two.code("ADD", lost, "", &[]), 11);
    one.must("DEL", near, "", &[]);
    assert!(!reaches(near, to));
    fleet.start_controller();
    fleet.wait_for_hosts(2);
    assert!(passes(&mut from, &mut at), "the restart ends no connection");

    // A host that is killed gives its pods their interfaces again, with the same addresses.
    fleet.processes[2].take().unwrap().end(Signal::KILL);
    wait_until("the end of the devices", || !has_device(far) && !has_device(refused));
    assert_eq!(two.code("STATUS", "", "", &[]), 51, "pods have no network without the daemon");
    fleet.start_host(2, "us-east-1a");
    fleet.wait_for_hosts(2);
    wait_until("the devices", || {
        two.run("CHECK", far, "", &previous(&of_far)).status.success()
            && two.run("CHECK", refused, "", &previous(&of_refused)).status.success()
    });
    wait_until("a connection", || reaches(far, to) && reaches(refused, to));

    // The runtime of the second host has ended a pod without DEL. Pods of the first host stay.
    let valid = json!([{"containerID": far, "ifname": "eth0"}]);
    two.must("GC", "", "", &[("cni.dev/valid-attachments", valid)]);
    assert!(!has_device(refused) && has_device(far) && has_device(server));
    let valid = json!([{"containerID": server, "ifname": "eth0"}]);
    one.must("GC", "", "", &[("cni.dev/valid-attachments", valid)]);
    assert_eq!(
        (fleet.counts(), fleet.interfaces()),
        (vec![1, 1], 2),
        "GC has ended the pod of DEL"
    );
    wait_until("a connection of the pod that stays", || reaches(far, to));

    for (plugin, pod) in [(&one, server), (&two, far), (&two, refused), (&one, near)] {
        plugin.must("DEL", pod, "", &[]);
        assert!(!has_device(pod), "{pod}");
    }
    assert_eq!((fleet.counts(), fleet.interfaces()), (vec![0, 0], 0));
    assert_eq!((one.left(), two.left()), (Vec::new(), Vec::new()));
    let shown = fleet.call("DescribeInstances", "");
    wait_until("the end of all names", || {
        let ended = names(Path::new("/run/netns"));
        !ended.iter().any(|of| of.strip_prefix("srd-i-").is_some_and(|id| shown.contains(id)))
    });
    let announced = names(Path::new(PODS));
    assert!(!announced.iter().any(|of| shown.contains(of.as_str())), "{announced:?}");
    fleet.end_hosts();
}
