//! `srd control up --place-on-hosts`: instances that requests of the EC2 API start on hosts that
//! have enrolled. Needs root.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::process::Signal;
use serde_json::Value;

use crate::control::{exists, path_with_aws};
use crate::scaling;
use crate::support::api::{Endpoint, element};
use crate::support::machine::*;
use crate::support::pair::{ip, must, own_suffix};

/// The machine of the controller. The other machines are hosts.
const CONTROLLER: usize = 0;
/// Number of machines.
const MACHINES: usize = 3;
/// Port at which the controller serves hosts.
const HOSTS_PORT: u16 = 4600;
/// Port of TCP connections between instances.
const PORT: u16 = 5000;
/// Type of the instances, with 48 vCPUs and ENA Express.
const TYPE: &str = "c7i.12xlarge";
/// vCPUs of each host: space for four instances.
const VCPUS: u32 = 200;

/// A controller and two hosts, which a switch connects. Each machine is a network namespace.
/// Machine `n` has the address `198.18.0.(n + 1)`.
struct Fleet {
    switch: String,
    names: Vec<String>,
    processes: Vec<Option<Running>>,
    endpoint: Option<Endpoint>,
    directory: tempfile::TempDir,
}

/// An instance: its identifier, its address, and the machine of its host.
#[derive(Clone, Debug)]
struct Placed {
    id: String,
    address: [u8; 4],
    machine: usize,
}

impl Placed {
    fn namespace(&self) -> String {
        format!("srd-i-{}", self.id)
    }
}

impl Fleet {
    fn new(tag: &str) -> Self {
        let suffix = own_suffix();
        let switch = format!("srdfl{tag}s{suffix}");
        let names: Vec<String> = (0..MACHINES).map(|n| format!("srdfl{tag}{n}{suffix}")).collect();
        let processes = (0..MACHINES).map(|_| None).collect();
        let directory = tempfile::tempdir().unwrap();
        // The user `srd` enters the directory.
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(directory.path(), open).unwrap();
        let fleet = Self { switch, names, processes, endpoint: None, directory };
        let switch = &fleet.switch;
        must(&format!("netns add {switch}"));
        must(&format!("-n {switch} link add br0 type bridge"));
        must(&format!("-n {switch} link set br0 up"));
        for (n, name) in fleet.names.iter().enumerate() {
            must(&format!("netns add {name}"));
            must(&format!("-n {switch} link add p{n} type veth peer name v0 netns {name}"));
            must(&format!("-n {switch} link set p{n} master br0"));
            must(&format!("-n {switch} link set p{n} up"));
            must(&format!("-n {name} addr add 198.18.0.{}/24 dev v0", n + 1));
            must(&format!("-n {name} link set lo up"));
            must(&format!("-n {name} link set v0 up"));
        }
        fleet
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    /// Returns the command `srd` in the network namespace of a machine.
    fn srd(&self, machine: usize) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.names[machine])).arg(SRD);
        command.env("STATE_DIRECTORY", self.path(&format!("epochs{machine}")));
        command.stdin(Stdio::null());
        command
    }

    /// Starts the controller, and waits until it serves.
    fn start_controller(&mut self) {
        let mut command = self.srd(CONTROLLER);
        command.args(["control", "up", "--place-on-hosts", "--listen", "127.0.0.1:4599"]);
        command.arg("--state").arg(self.path("control.db"));
        command.arg("--key-file").arg(self.path("key.env"));
        command.arg("--admin").arg(self.path("admin.sock"));
        command.args(["--hosts", &format!("198.18.0.1:{HOSTS_PORT}")]);
        let log = fs::File::options().create(true).append(true).open(self.path("control.log"));
        command.stdout(Stdio::piped()).stderr(log.unwrap());
        let mut running = Running(command.spawn().unwrap());
        let mut lines = BufReader::new(running.0.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("admin:") {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "{}", self.log());
        }
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        self.processes[CONTROLLER] = Some(running);
        let settings = fs::read_to_string(self.path("key.env")).unwrap();
        self.endpoint = Some(Endpoint::read(&settings));
    }

    fn log(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.path(name)).unwrap_or_default();
        ["control.log", "1.log", "2.log"].map(read).join("\n---\n")
    }

    /// Runs `srd control` with the socket of the controller.
    fn control(&self, words: &[&str]) -> String {
        let mut command = Command::new(SRD);
        command.arg("control").args(words).arg("--admin").arg(self.path("admin.sock"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:#?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the hosts as the controller lists them.
    fn hosts(&self) -> Vec<Value> {
        let listing: Value = serde_json::from_str(&self.control(&["hosts", "--json"])).unwrap();
        listing["hosts"].as_array().unwrap().clone()
    }

    /// Returns the number of instances of each host, as the controller lists it.
    fn counts(&self) -> Vec<u64> {
        self.hosts().iter().map(|host| host["instances"]["count"].as_u64().unwrap()).collect()
    }

    /// Starts a host in a zone, which enrols unless it has enrolled.
    fn start_host(&mut self, machine: usize, zone: &str) {
        let text = format!(
            "[expert]\npaths = 4\n[interface]\nlisten = \"0.0.0.0:7471\"\n[enrol]\n\
             controller = \"198.18.0.1:{HOSTS_PORT}\"\ntoken_file = \"token\"\n\
             name = \"h{machine}\"\ndirectory = \"state{machine}\"\n\
             [enrol.instances]\nzone = \"{zone}\"\nvcpus = {VCPUS}\n\
             [control]\nsocket = \"{}\"\n",
            self.socket(machine)
        );
        let file = self.path(&format!("{machine}.toml"));
        fs::write(&file, text).unwrap();
        let log = self.path(&format!("{machine}.log"));
        let log = fs::File::options().create(true).append(true).open(log).unwrap();
        let mut command = self.srd(machine);
        command.arg("up").arg("-c").arg(file).stdout(log.try_clone().unwrap()).stderr(log);
        self.processes[machine] = Some(Running(command.spawn().unwrap()));
    }

    fn socket(&self, machine: usize) -> String {
        self.path(&format!("{machine}.sock")).display().to_string()
    }

    /// Waits until this number of hosts uses the peers and the part of the cloud that it needs.
    fn wait_for_hosts(&self, count: usize) {
        wait_until("the hosts", || {
            let hosts = self.hosts();
            let is_ready = |host: &Value| {
                let of = &host["instances"];
                host["connected"] == true
                    && of["applied"] == of["generation"]
                    && of["applied"].as_u64() > Some(0)
            };
            hosts.len() == count && hosts.iter().all(is_ready)
        });
    }

    /// Starts the controller and both hosts, of which the second is in this zone.
    fn start(tag: &str, second: &str) -> Self {
        let mut fleet = Self::new(tag);
        fleet.start_controller();
        let token = fleet.control(&["token", "create", "--uses", "2", "--lifetime", "10m"]);
        fs::write(fleet.path("token"), token).unwrap();
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(fleet.path("token"), private).unwrap();
        fleet.start_host(1, "us-east-1a");
        fleet.start_host(2, second);
        fleet.wait_for_hosts(2);
        fleet
    }

    /// Sends a request, and returns its status and its answer.
    fn send(&self, action: &str, parameters: &str) -> (u16, String) {
        let endpoint = self.endpoint.as_ref().unwrap();
        within(&self.names[CONTROLLER], || endpoint.send(action, parameters).unwrap())
    }

    /// Sends a request that has to succeed.
    fn call(&self, action: &str, parameters: &str) -> String {
        let (status, body) = self.send(action, parameters);
        assert_eq!(status, 200, "{action}: {body}\n{}", self.log());
        body
    }

    /// Makes a VPC with a subnet in a zone and a group. Returns the subnet and the group.
    fn network(&self, zone: &str) -> [String; 2] {
        let vpc = element(&self.call("CreateVpc", "CidrBlock=10.0.0.0/16"), "vpcId");
        let of = format!("VpcId={vpc}&CidrBlock=10.0.1.0/24&AvailabilityZone={zone}");
        let subnet = element(&self.call("CreateSubnet", &of), "subnetId");
        let of = format!("VpcId={vpc}&GroupName=members&GroupDescription=members");
        let group = element(&self.call("CreateSecurityGroup", &of), "groupId");
        [subnet, group]
    }

    /// Permits ICMP and TCP between the members of a group, or ends that.
    fn rules(&self, action: &str, group: &str) {
        let rule = |n: u8, protocol: &str, from: &str, to: &str| {
            format!(
                "&IpPermissions.{n}.IpProtocol={protocol}&IpPermissions.{n}.FromPort={from}&\
                 IpPermissions.{n}.ToPort={to}&IpPermissions.{n}.Groups.1.GroupId={group}"
            )
        };
        let port = PORT.to_string();
        let rules = [rule(1, "icmp", "-1", "-1"), rule(2, "tcp", &port, &port)].concat();
        self.call(action, &format!("GroupId={group}{rules}"));
    }

    fn launch(&self, [subnet, group]: &[String; 2], count: usize) -> (u16, String) {
        let of = format!(
            "ImageId=ami-12345678&InstanceType={TYPE}&MinCount={count}&MaxCount={count}&\
             NetworkInterface.1.DeviceIndex=0&NetworkInterface.1.SubnetId={subnet}&\
             NetworkInterface.1.SecurityGroupId.1={group}&\
             NetworkInterface.1.EnaSrdSpecification.EnaSrdEnabled=true"
        );
        self.send("RunInstances", &of)
    }

    /// Starts instances, which run when the call returns.
    fn run(&self, network: &[String; 2], count: usize) -> Vec<Placed> {
        let (status, answer) = self.launch(network, count);
        assert_eq!(status, 200, "{answer}\n{}", self.log());
        let ids = answer.split("<instanceId>").skip(1).map(|rest| rest.split('<').next().unwrap());
        let mut ids: Vec<&str> = ids.collect();
        ids.dedup();
        assert_eq!(ids.len(), count, "{answer}");
        let placed = |id: &&str| {
            // A request waits for its change for two seconds, which a busy machine may exceed.
            wait_until("the instance", || exists(&format!("srd-i-{id}")));
            let shown = self.call("DescribeInstances", &format!("InstanceId.1={id}"));
            let address: std::net::Ipv4Addr = element(&shown, "privateIpAddress").parse().unwrap();
            let machine = (1..MACHINES).find(|n| self.names_on(*n).iter().any(|name| name == id));
            let machine = machine.unwrap_or_else(|| panic!("{id} has no host\n{}", self.log()));
            Placed { id: (*id).to_owned(), address: address.octets(), machine }
        };
        ids.iter().map(placed).collect()
    }

    fn card(&self, machine: usize, words: &[&str]) -> Value {
        let mut command = Command::new(SRD);
        command.arg("card").args(words).args(["--json", "-", "--socket", &self.socket(machine)]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:#?}\n{}", self.log());
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the names of the instances of a host.
    fn names_on(&self, machine: usize) -> Vec<String> {
        let status = self.card(machine, &["status"]);
        let name = |instance: &Value| instance["name"].as_str().unwrap().to_owned();
        status["instances"].as_array().unwrap().iter().map(name).collect()
    }

    /// Returns a counter of an instance.
    fn counter(&self, of: &Placed, name: &str) -> u64 {
        self.card(of.machine, &["stats", &of.id])[name].as_u64().unwrap()
    }

    fn terminate(&self, instances: &[Placed]) {
        let ids = instances.iter().enumerate();
        let ids: Vec<String> =
            ids.map(|(n, of)| format!("InstanceId.{}={}", n + 1, of.id)).collect();
        self.call("TerminateInstances", &ids.join("&"));
        wait_until("the end of the instances", || {
            !instances.iter().any(|of| exists(&of.namespace()))
        });
    }

    /// Runs a script with the program `aws` on the machine of the controller, and returns its
    /// output.
    fn script(&self, path: &str, script: &str) -> String {
        let script = format!(
            ". ./key.env; export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_DEFAULT_REGION \
             AWS_ENDPOINT_URL; export AWS_PAGER=\n{script}"
        );
        let mut shell = Command::new("nsenter");
        shell.arg(format!("--net=/run/netns/{}", self.names[CONTROLLER])).env("PATH", path);
        shell.args(["timeout", "400", "sh", "-eu", "-c", &script]).current_dir(self.path(""));
        let output = shell.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{output:#?}\n{}", self.log());
        String::from_utf8(output.stdout).unwrap()
    }

    /// Ends both hosts in order, and checks that nothing is left of them.
    fn end_hosts(&mut self) {
        for machine in 1..MACHINES {
            let mut host = self.processes[machine].take().unwrap();
            assert_eq!(host.end(Signal::TERM), 0, "{}", self.log());
            let links = must(&format!("-n {} link show type tun", self.names[machine]));
            assert_eq!(links, "");
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.processes.clear();
        for name in self.names.iter().chain([&self.switch]) {
            ip(&format!("netns del {name}"));
        }
    }
}

/// Whether the test can run: hosts of instances need the user `srd`. In the namespaces of a test,
/// the user is created if it is missing.
fn is_ready() -> bool {
    if !ready_with_nsenter() {
        return false;
    }
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    if passwd.lines().any(|line| line.starts_with("srd:")) {
        return true;
    }
    if !Path::new("/run/test").is_dir() {
        println!("skipped: no user srd (adduser --system --group --no-create-home srd)");
        return false;
    }
    for (file, line) in
        [("passwd", "srd:x:64997:64997::/nonexistent:/bin/false"), ("group", "srd:x:64997:")]
    {
        let (of, own) = (format!("/etc/{file}"), format!("/run/test/{file}"));
        let text = fs::read_to_string(&of).unwrap();
        fs::write(&own, format!("{text}{line}\n")).unwrap();
        let mut mount = Command::new("mount");
        assert!(mount.args(["--bind", &own, &of]).status().unwrap().success());
    }
    true
}

/// Whether an instance gets an answer from another one.
fn pings(from: &Placed, to: &Placed) -> bool {
    let address = std::net::Ipv4Addr::from(to.address).to_string();
    let mut command = Command::new("ip");
    let inside = ["netns", "exec", &from.namespace(), "ping", "-q", "-c1", "-W1", &address];
    command.args(inside).output().unwrap().status.success()
}

/// Whether a new connection between two instances carries a line.
fn connects(from: &Placed, to: &Placed) -> bool {
    let listener = listen(&to.namespace(), PORT);
    let Ok(mut client) = connect_in_vain(&from.namespace(), to.address, PORT) else { return false };
    let (mut server, _) = listener.accept().unwrap();
    passes(&mut client, &mut server)
}

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

    // Groups apply between hosts. A change applies when its request is answered.
    assert!(!pings(a, b) && !connects(a, b), "no rule permits it");
    fleet.rules("AuthorizeSecurityGroupIngress", &network[1]);
    wait_until("the first ping", || pings(a, b));
    assert!(connects(a, b) && pings(b, a), "{}", fleet.log());
    let began = Instant::now();
    fleet.rules("RevokeSecurityGroupIngress", &network[1]);
    println!("a change of rules was answered after {:?}", began.elapsed());
    assert!(!connects(a, b) && !pings(b, a), "the rules are revoked");
    fleet.rules("AuthorizeSecurityGroupIngress", &network[1]);
    assert!(connects(b, a), "{}", fleet.log());

    // Packets use SRD between the hosts, as the setting of the interfaces says.
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
    fleet.call("ModifyNetworkInterfaceAttribute", &of);
    assert_eq!(fleet.counter(a, "ena_srd_mode"), 0);
    assert!(passes(&mut client, &mut server), "the connection goes on");

    // Without its controller, a host goes on with what it has.
    fleet.processes[CONTROLLER].take().unwrap().end(Signal::KILL);
    assert!(passes(&mut client, &mut server) && connects(a, b) && pings(b, a));
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
    assert!(pings(a, b));
    fleet.rules("RevokeSecurityGroupIngress", &network[1]);
    assert!(!pings(b, a), "the host that is connected uses the change");
    assert!(pings(a, b), "the other one does not know it yet");
    drop_it("del");
    wait_until("the change at the host that was away", || !pings(a, b));

    // A host that is killed starts again with the instances that it had.
    fleet.rules("AuthorizeSecurityGroupIngress", &network[1]);
    fleet.processes[2].take().unwrap().end(Signal::KILL);
    wait_until("the end of its instance", || !exists(&b.namespace()));
    fleet.processes[CONTROLLER].take().unwrap().end(Signal::KILL);
    fleet.start_host(2, "us-east-1a");
    wait_until("a ping without a controller", || exists(&b.namespace()) && pings(a, b));
    fleet.start_controller();
    fleet.wait_for_hosts(2);
    assert!(pings(a, b) && pings(b, a));

    fleet.control(&["hosts", "remove", "h2"]);
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

/// The commands of `docs/control.md` on Auto Scaling, with one host in each of the two zones.
#[test]
fn an_auto_scaling_group_spreads_over_two_hosts() {
    if !is_ready() {
        return;
    }
    let Some(path) = path_with_aws() else { return };
    let mut fleet = Fleet::start("s", "us-east-1b");
    let mut script = String::new();
    for block in scaling::blocks() {
        let list = format!("{SRD} control hosts --admin ./admin.sock | sed s/^/HOST/");
        script += &format!("{block}\necho ---; {list}; echo ---\n");
    }
    let text = fleet.script(&path, &script);
    let parts: Vec<&str> = text.split("---\n").collect();
    // After each block, the hosts are listed.
    let [_, _, _, _, three, of_three, six, of_six, _, of_replaced, _, of_none, ""] = parts[..]
    else {
        panic!("{text}")
    };
    assert_eq!(scaling::ids(three).len(), 3, "{three}");
    assert!(of_three.contains("1 instances") && of_three.contains("2 instances"), "{of_three}");
    // Each of the six reaches all six addresses, three of them on the other host.
    let reached = six.matches(" reaches ").count();
    assert_eq!((scaling::ids(six).len(), reached), (6, 36), "{six}\n{}", fleet.log());
    for of in [of_six, of_replaced] {
        assert_eq!(of.matches("3 instances, 144 of 200 vCPUs").count(), 2, "{of}");
    }
    assert_eq!(of_none.matches("0 instances").count(), 2, "{of_none}");
    fleet.end_hosts();
}
