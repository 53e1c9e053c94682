//! `srd-cni` as runtimes call it: pods whose interfaces are those of the EC2 API, with rules that
//! apply to real connections. Needs root.

mod containerd;
mod go_cni;
mod podman;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::control::Api;
use crate::support::api::element;
use crate::support::hosts::{Hosts, carries_a_megabyte};
use crate::support::machine::*;
use crate::support::pair::{must, own_suffix};
use rustix::process::Signal;
use serde_json::{Value, json};
use srd_guest::pods::{Pod, PodInterface, withdraw};

/// Port of the servers in the pods.
const PORT: u16 = 8000;
/// Directory of announcements.
pub(crate) const PODS: &str = "/run/srd-card/pods";

/// Network namespaces of pods, which are removed at the end.
pub(crate) struct Pods(pub(crate) Vec<String>);

impl Pods {
    /// Creates namespaces with the loopback device up.
    pub(crate) fn new(tag: &str, count: usize) -> Self {
        let names = (0..count).map(|n| format!("srdcni{tag}{n}-{}", own_suffix()));
        let pods = Self(names.collect());
        for name in &pods.0 {
            must(&format!("netns add {name}"));
            must(&format!("-n {name} link set lo up"));
        }
        pods
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}

/// A network of the plugin, with a subnet and two groups: `web`, whose port is open to `client`.
struct Network {
    api: Api,
    directory: tempfile::TempDir,
    vpc: String,
    subnet: String,
    web: String,
    client: String,
}

impl Network {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("control.db").display().to_string();
        let api = Api::start_in(tempfile::tempdir().unwrap(), &["--state", &state]);
        let vpc = element(&api.call("CreateVpc", "CidrBlock=10.0.0.0/16"), "vpcId");
        let of = format!("VpcId={vpc}&CidrBlock=10.0.1.0/24");
        let subnet = element(&api.call("CreateSubnet", &of), "subnetId");
        let group = |name: &str| {
            let of = format!("VpcId={vpc}&GroupName={name}&GroupDescription={name}");
            element(&api.call("CreateSecurityGroup", &of), "groupId")
        };
        let (web, client) = (group("web"), group("client"));
        std::os::unix::fs::symlink(SRD, directory.path().join("srd-cni")).unwrap();
        let network = Self { api, directory, vpc, subnet, web, client };
        network.allow(&network.client);
        network
    }

    /// Lets pods of a group reach the port of the group `web`.
    fn allow(&self, group: &str) {
        let of = format!(
            "GroupId={}&IpPermissions.1.IpProtocol=tcp&IpPermissions.1.FromPort={PORT}&\
             IpPermissions.1.ToPort={PORT}&IpPermissions.1.Groups.1.GroupId={group}",
            self.web
        );
        self.api.call("AuthorizeSecurityGroupIngress", &of);
    }

    /// Starts the server again, with the state of the former one.
    fn restart(self) -> Self {
        let state = self.directory.path().join("control.db").display().to_string();
        let api = Api::start_in(self.api.directory, &["--state", &state]);
        Self { api, ..self }
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("records")
    }

    fn config(&self) -> Value {
        json!({
            "cniVersion": "1.1.0",
            "name": "cloud",
            "type": "srd-cni",
            "keyFile": self.api.directory.path().join("key.env"),
            "stateDir": self.state(),
            "subnet": self.subnet,
        })
    }

    /// Runs the plugin for the interface `eth0` of a container, whose namespace has the same name.
    fn run(&self, command: &str, pod: &str, args: &str, more: &[(&str, Value)]) -> Output {
        let plugin = Command::new(self.directory.path().join("srd-cni"));
        run_plugin(plugin, self.config(), (command, pod, args), more)
    }

    /// Runs the plugin, which has to succeed. Returns its result.
    fn must(&self, command: &str, pod: &str, args: &str, more: &[(&str, Value)]) -> Value {
        let output = self.run(command, pod, args, more);
        assert!(output.status.success(), "{command}: {output:#?}\n{}", self.api.log());
        match output.stdout.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&output.stdout).unwrap(),
        }
    }

    /// Runs the plugin, which has to fail. Returns its error.
    fn error(&self, command: &str, pod: &str, args: &str, more: &[(&str, Value)]) -> Value {
        let output = self.run(command, pod, args, more);
        assert!(!output.status.success(), "{command}: {output:#?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Attaches a pod with a security group. Returns its result and its address.
    fn add(&self, pod: &str, group: &str) -> (Value, [u8; 4]) {
        let result = self.must("ADD", pod, &format!("SRD_SECURITY_GROUPS={group}"), &[]);
        let address = result["ips"][0]["address"].as_str().unwrap();
        let address: std::net::Ipv4Addr = address.split('/').next().unwrap().parse().unwrap();
        (result, address.octets())
    }

    /// Returns the number of interfaces that the API describes.
    fn interfaces(&self) -> usize {
        let all = self.api.call("DescribeNetworkInterfaces", "");
        all.matches("<networkInterfaceId>").count()
    }

    /// Returns all that the plugin and the card have left: records, announcements of these records,
    /// and names of namespaces of instances.
    fn left(&self) -> Vec<String> {
        let names = |directory: &Path| {
            let entries = fs::read_dir(directory).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            names.collect::<Vec<_>>()
        };
        let mut left = names(&self.state());
        left.retain(|name| !["lock", "node"].contains(&name.as_str()));
        let instances = self.api.call("DescribeInstances", "");
        let own = |name: &String| {
            let of = |id: &str| name.strip_prefix("srd-i-").unwrap_or(name) == id;
            instances.split(['<', '>']).any(of)
        };
        let netns = names(Path::new("/run/netns")).into_iter();
        left.extend(netns.filter(|name| name.starts_with("srd-i-")).filter(own));
        left.extend(names(Path::new(PODS)).into_iter().filter(own));
        left
    }
}

pub(crate) fn has_device(pod: &str) -> bool {
    Command::new("ip").args(["-n", pod, "link", "show", "eth0"]).output().unwrap().status.success()
}

/// Whether a pod can open a connection to a server in another pod.
fn reaches(pod: &str, address: [u8; 4], listener: &TcpListener) -> bool {
    let connected = connect(pod, address, PORT);
    connected.is_ok() && listener.accept().is_ok()
}

#[test]
fn pods_have_interfaces_of_the_api_and_reach_each_other_as_their_groups_allow() {
    if !ready_with_nsenter() {
        return;
    }
    let network = Network::new();
    let pods = Pods::new("a", 3);
    let [web, client, other] = [0, 1, 2].map(|n| pods.0[n].as_str());
    network.must("STATUS", "", "", &[]);
    let (result, address) = network.add(web, &network.web);
    assert_eq!(result["interfaces"][0]["name"], "eth0");
    assert_eq!(result["interfaces"][0]["mtu"], 9001);
    assert_eq!(result["ips"][0]["gateway"], "10.0.1.1");
    assert_eq!(result["routes"], json!([{"dst": "0.0.0.0/0"}]));
    network.add(client, &network.client);
    let of = format!("VpcId={}&GroupName=other&GroupDescription=other", network.vpc);
    let group = element(&network.api.call("CreateSecurityGroup", &of), "groupId");
    let fixed = format!("SRD_SECURITY_GROUPS={group};SRD_ADDRESS=10.0.1.77;K8S_POD_NAME=other");
    let third = network.must("ADD", other, &fixed, &[]);
    assert_eq!(third["ips"][0]["address"], "10.0.1.77/24");
    assert_eq!(network.interfaces(), 3);
    let described = network.api.call("DescribeNetworkInterfaces", "");
    assert!(described.contains("10.0.1.77") && described.contains("<value>other</value>"));

    let listener = listen(web, PORT);
    assert!(reaches(client, address, &listener), "{}", network.api.log());
    assert!(connect_in_vain(other, address, PORT).is_err(), "no rule allows it");
    assert!(connect_in_vain(client, address, PORT + 1).is_err(), "another port");
    network.allow(&group);
    assert!(reaches(other, address, &listener), "a rule allows it");

    let previous = [("prevResult", result)];
    network.must("CHECK", web, "", &previous);
    must(&format!("-n {web} addr flush dev eth0"));
    let error = network.error("CHECK", web, "", &previous);
    assert_eq!(error["code"], 103, "{error}");
    let again = network.error("ADD", web, "", &[]);
    assert_eq!(again["code"], 100, "{again}");

    let mut program = sleeper(web);
    for pod in [web, client, other] {
        network.must("DEL", pod, "", &[]);
        assert!(!has_device(pod), "{pod}");
        network.must("DEL", pod, "", &[]);
    }
    assert!(program.0.try_wait().unwrap().is_none(), "programs of a pod are its runtime's");
    assert_eq!(network.interfaces(), 0);
    wait_until("the end of all names", || network.left().is_empty());
    assert_eq!(network.error("CHECK", web, "", &previous)["code"], 3);
}

#[test]
fn pods_get_their_interfaces_again_from_a_server_that_starts_again() {
    if !ready_with_nsenter() {
        return;
    }
    let mut network = Network::new();
    let pods = Pods::new("b", 2);
    let [web, client] = [0, 1].map(|n| pods.0[n].as_str());
    let (result, address) = network.add(web, &network.web);
    network.add(client, &network.client);
    let mut program = sleeper(web);
    network.api.server.end(Signal::KILL);
    wait_until("the end of the devices", || !has_device(web) && !has_device(client));
    assert_eq!(network.error("STATUS", "", "", &[])["code"], 50);
    let mut network = network.restart();
    wait_until("the devices", || has_device(web) && has_device(client));
    let previous = [("prevResult", result)];
    wait_until("the addresses", || network.run("CHECK", web, "", &previous).status.success());
    let listener = listen(web, PORT);
    // The other pod may not have its address and its route yet.
    wait_until("a connection", || reaches(client, address, &listener));
    assert!(program.0.try_wait().unwrap().is_none());
    for pod in [web, client] {
        network.must("DEL", pod, "", &[]);
    }
    wait_until("the end of all names", || network.left().is_empty());
    assert_eq!(network.api.server.end(Signal::TERM), 0, "{}", network.api.log());
}

/// The API is down, and then the namespace is gone. Another pod is not affected.
#[test]
fn a_delete_without_the_api_is_finished_by_gc() {
    if !ready_with_nsenter() {
        return;
    }
    let mut network = Network::new();
    let pods = Pods::new("c", 3);
    let [gone, stays, lost] = [0, 1, 2].map(|n| pods.0[n].as_str());
    for pod in [gone, stays, lost] {
        network.add(pod, &network.web);
    }
    network.api.server.end(Signal::KILL);
    wait_until("the end of the devices", || !has_device(stays));
    network.must("DEL", gone, "", &[]);
    for pod in [gone, lost] {
        must(&format!("netns del {pod}"));
    }
    let network = network.restart();
    wait_until("the device of the other pod", || has_device(stays));
    assert_eq!(network.interfaces(), 3);
    // The runtime has ended one pod without DEL.
    let valid = json!([{"containerID": stays, "ifname": "eth0"}]);
    // As libcni sends the list, under both keys.
    let keys = ["cni.dev/valid-attachments", "cni.dev/attachments"];
    network.must("GC", "", "", &keys.map(|key| (key, valid.clone())));
    assert_eq!(network.interfaces(), 1);
    assert!(has_device(stays));
    network.must("DEL", gone, "", &[]);
    network.must("DEL", lost, "", &[]);
    network.must("DEL", stays, "", &[]);
    wait_until("the end of all names", || network.left().is_empty());
}

#[test]
fn an_add_that_fails_leaves_nothing() {
    if !ready_with_nsenter() {
        return;
    }
    let mut network = Network::new();
    let pods = Pods::new("d", 1);
    let pod = pods.0[0].as_str();
    let code = |network: &Network, args: &str, more: &[(&str, Value)]| {
        let error = network.error("ADD", pod, args, more);
        assert_eq!((network.left(), has_device(pod)), (Vec::new(), false), "{error}");
        error["code"].as_u64().unwrap()
    };
    assert_eq!(code(&network, "SRD_SECURITY_GROUPS=sg-00000000", &[]), 7);
    assert_eq!(code(&network, "SRD_SUBNET=subnet-00000000", &[]), 7);
    assert_eq!(code(&network, "SRD_ADDRESS=10.0.1.1", &[]), 7, "a reserved address");
    assert_eq!(network.error("ADD", "missing", "", &[])["code"], 3);
    must(&format!("-n {pod} link add eth0 type veth peer name other"));
    let error = network.error("ADD", pod, "", &[]);
    assert!(error["msg"].as_str().unwrap().contains("has a device eth0 already"), "{error}");
    must(&format!("-n {pod} link del eth0"));
    let key = network.directory.path().join("exposed.env");
    fs::write(&key, "AWS_ACCESS_KEY_ID=a\n").unwrap();
    assert_eq!(code(&network, "", &[("keyFile", json!(key))]), 7);
    assert_eq!(network.interfaces(), 0);
    network.add(pod, &network.web);
    network.must("DEL", pod, "", &[]);
    wait_until("the end of all names", || network.left().is_empty());
    network.api.server.end(Signal::TERM);
    let error = network.error("ADD", pod, "", &[]);
    assert_eq!(error["code"], 11, "{error}");
    assert!(!has_device(pod));
}

/// After `ctr run --cni` was killed in the middle of `ADD`, the instance went on.
#[test]
fn regression_an_add_whose_runtime_has_ended_is_undone() {
    if !ready_with_nsenter() {
        return;
    }
    let network = Network::new();
    let pods = Pods::new("k", 1);
    let pod = pods.0[0].as_str();
    let plugin = Command::new(network.directory.path().join("srd-cni"));
    let mut child = start_plugin(plugin, ("ADD", pod, ""));
    // The end of the pipe from which the runtime would read. It is gone before the plugin begins.
    drop(child.stdout.take());
    configure_plugin(&mut child, &network.config());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:#?}");
    let described = network.api.call("DescribeInstances", "");
    assert!(described.contains("<instanceId>"), "it was launched: {described}");
    assert_eq!((network.interfaces(), has_device(pod)), (0, false));
    wait_until("the end of all names", || network.left().is_empty());
}

/// The path of a namespace may belong to another container later, as `/proc/PID/ns/net`, which
/// `ctr run --cni` passes. `DEL` without the API set the device of that container down.
#[test]
fn regression_a_delete_without_the_api_leaves_the_device_of_another_container() {
    if !ready_with_nsenter() {
        return;
    }
    let mut network = Network::new();
    let pods = Pods::new("r", 1);
    let pod = pods.0[0].as_str();
    network.add(pod, &network.web);
    network.api.server.end(Signal::KILL);
    wait_until("the end of the device", || !has_device(pod));
    must(&format!("netns del {pod}"));
    must(&format!("netns add {pod}"));
    must(&format!("-n {pod} link add eth0 type veth peer name other"));
    must(&format!("-n {pod} link set eth0 up"));
    network.must("DEL", pod, "", &[]);
    let shown = must(&format!("-n {pod} link show eth0"));
    assert!(shown.contains(",UP"), "{shown}");
    let network = network.restart();
    network.must("DEL", pod, "", &[]);
    assert_eq!(network.interfaces(), 0);
    wait_until("the end of all names", || network.left().is_empty());
}

/// A runtime starts and ends pods at the same time.
#[test]
fn pods_are_attached_and_detached_at_the_same_time() {
    if !ready_with_nsenter() {
        return;
    }
    let network = Network::new();
    let pods = Pods::new("g", 4);
    let at_once = |command: &str| {
        let network = &network;
        std::thread::scope(|scope| {
            let pods = pods.0.iter();
            let all = pods.map(|pod| scope.spawn(move || network.must(command, pod, "", &[])));
            let all: Vec<_> = all.collect();
            all.into_iter().map(|of| of.join().unwrap()).collect::<Vec<Value>>()
        })
    };
    let results = at_once("ADD");
    let addresses = results.iter().map(|of| of["ips"][0]["address"].to_string());
    let addresses: BTreeSet<String> = addresses.collect();
    assert_eq!((addresses.len(), network.interfaces()), (4, 4));
    assert!(pods.0.iter().all(|pod| has_device(pod)), "{}", network.api.log());
    at_once("DEL");
    assert!(!pods.0.iter().any(|pod| has_device(pod)), "{}", network.api.log());
    assert_eq!(network.interfaces(), 0);
    wait_until("the end of all names", || network.left().is_empty());
}

/// Two cards with a file, each on a machine of its own. The pods are announced as the plugin
/// announces them.
#[test]
fn pods_of_two_machines_reach_each_other_and_keep_their_devices_over_a_take_over() {
    if !ready_with_nsenter() {
        return;
    }
    let hosts = Hosts::new("p", 1500);
    let pods = Pods::new("e", 2);
    let [a, b] = [0, 1].map(|n| pods.0[n].as_str());
    let file = hosts.machines[0].two_hosts("'tcp 5000 from 10.0.0.0/16'");
    let mut text = fs::read_to_string(&file).unwrap();
    for (pod, host) in [(a, "alpha"), (b, "beta")] {
        let line = format!("host = \"{host}\"\n");
        text = text.replace(&line, &format!("{line}pod = \"{pod}\"\n"));
        let interface = PodInterface { device: "eth0".to_owned(), default_route: true };
        let announced = Pod::new(&Path::new("/run/netns").join(pod), interface).unwrap();
        announced.announce(Path::new(PODS), pod).unwrap();
    }
    assert_eq!(text.matches("pod = ").count(), 2);
    fs::write(&file, text).unwrap();
    hosts.configure(&file, "");
    let mut cards = hosts.both_up();
    carries_a_megabyte(a, b, [10, 0, 1, 11]);
    let refused = connect_in_vain(a, [10, 0, 1, 11], 80);
    assert!(refused.is_err(), "no rule allows port 80");
    let mut next = hosts.take_over(0, &mut cards[0]);
    hosts.wait_for_session(0);
    carries_a_megabyte(a, b, [10, 0, 1, 11]);
    // The pod loses its device, and gets it again.
    must(&format!("-n {b} link del eth0"));
    wait_until("the device", || has_device(b));
    wait_until("a connection", || {
        let listener = listen(b, 5000);
        let connected = connect_in_vain(a, [10, 0, 1, 11], 5000).is_ok();
        drop(listener);
        connected
    });
    let name = hosts.instance("a");
    assert!(Path::new("/run/netns").join(&name).exists());
    let mut program = sleeper(a);
    assert_eq!(next.end(Signal::TERM), 0);
    assert!(!has_device(a) && !Path::new("/run/netns").join(&name).exists());
    assert!(program.0.try_wait().unwrap().is_none());
    // Without the announcement, the other instance of the file is not affected.
    withdraw(Path::new(PODS), a).unwrap();
    let _alpha = hosts.up(0);
    assert!(!has_device(a) && has_device(b));
    withdraw(Path::new(PODS), b).unwrap();
}

/// `cnitool`, the reference client of the specification.
#[test]
#[ignore = "needs cnitool: go install github.com/containernetworking/cni/cnitool@v1.3.0"]
fn cnitool_adds_checks_and_deletes() {
    let network = Network::new();
    let pods = Pods::new("t", 1);
    let netns = format!("/run/netns/{}", pods.0[0]);
    let networks = network.directory.path().join("net.d");
    fs::create_dir(&networks).unwrap();
    let mut plugin = network.config();
    plugin.as_object_mut().unwrap().remove("cniVersion");
    plugin.as_object_mut().unwrap().remove("name");
    let list = json!({"cniVersion": "1.1.0", "name": "cloud", "plugins": [plugin]});
    fs::write(networks.join("cloud.conflist"), list.to_string()).unwrap();
    let tool = |command: &str| {
        let mut tool = Command::new("cnitool");
        tool.env("CNI_PATH", network.directory.path()).env("NETCONFPATH", &networks);
        // The program refuses a command without a namespace, also where it uses none.
        tool.args([command, "cloud", &netns]);
        let output = tool.output().unwrap();
        assert!(output.status.success(), "{command}: {output:#?}");
        output.stdout
    };
    tool("status");
    let result: Value = serde_json::from_slice(&tool("add")).unwrap();
    assert_eq!(result["interfaces"][0]["name"], "eth0");
    assert!(has_device(&pods.0[0]));
    tool("check");
    // The program lists no valid attachment, so its library deletes all.
    tool("gc");
    assert!(!has_device(&pods.0[0]));
    tool("add");
    assert_eq!(network.interfaces(), 1);
    tool("del");
    assert!(!has_device(&pods.0[0]));
    wait_until("the end of all names", || network.left().is_empty());
}

/// Returns the list of a network whose only plugin has this configuration, for runtimes with the
/// versions 1.0.0 and 1.1.0 of the specification.
fn list_of(mut plugin: Value) -> String {
    let keys = plugin.as_object_mut().unwrap();
    keys.remove("cniVersion");
    keys.remove("name");
    let versions = ["1.0.0", "1.1.0"];
    let list = json!({"cniVersion": versions[0], "cniVersions": versions, "name": "cloud",
                      "plugins": [plugin]});
    list.to_string()
}

/// Runs a command of CNI for the interface `eth0` of a pod, whose namespace has the same name, with
/// the keys of `more` in the configuration. `plugin`: the command that starts the plugin.
pub(crate) fn run_plugin(
    plugin: Command,
    mut config: Value,
    request: (&str, &str, &str),
    more: &[(&str, Value)],
) -> Output {
    for (key, value) in more {
        config[key] = value.clone();
    }
    let mut child = start_plugin(plugin, request);
    configure_plugin(&mut child, &config);
    child.wait_with_output().unwrap()
}

/// Starts a command of CNI, as [`run_plugin`] runs it. The plugin waits for its configuration.
fn start_plugin(mut plugin: Command, (command, pod, args): (&str, &str, &str)) -> Child {
    plugin.env("CNI_COMMAND", command).env("CNI_CONTAINERID", pod).env("CNI_IFNAME", "eth0");
    plugin.env("CNI_NETNS", Path::new("/run/netns").join(pod)).env("CNI_ARGS", args);
    plugin.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    plugin.spawn().unwrap()
}

/// Sends the configuration to a plugin.
fn configure_plugin(plugin: &mut Child, config: &Value) {
    plugin.stdin.take().unwrap().write_all(config.to_string().as_bytes()).unwrap();
}
