//! `srd control up --place-on-hosts`: instances that requests of the EC2 API start on hosts that
//! have enrolled. Needs root.
//!
//! | file | content |
//! |---|---|
//! | `follow` | rules of the API on all hosts, and failures of a controller or a host |
//! | `pages` | the commands of the documents |
//! | `growth` | a group that grows to 50 instances |
//! | `controllers` | two controllers, and three members of etcd |
//! | `faults` | faults of members of etcd, controllers and hosts, one at a time |
//! | `pods` | pods of the plugin `srd-cni` on two hosts |

mod controllers;
mod faults;
mod follow;
mod growth;
mod pages;
mod pods;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::control::{exists, is_mounted};
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
/// vCPUs of each host, unless a test needs more: space for four instances.
const VCPUS: u32 = 200;
/// Time for which a request waits for hosts: up to two seconds, and less for hosts that have often
/// been slow. After a request that took longer than this, hosts may use the change later.
const APPLY_WAIT: Duration = Duration::from_millis(500);

/// A controller, hosts, and possibly further machines, which a switch connects. Each machine is a
/// network namespace. Machine `n` has the address `198.18.0.(n + 1)`; machine 0 is the one of the
/// controller, and the hosts follow.
struct Fleet {
    switch: String,
    names: Vec<String>,
    /// Number of hosts.
    hosts: usize,
    /// vCPUs of each host.
    vcpus: u32,
    processes: Vec<Option<Running>>,
    endpoint: Option<Endpoint>,
    /// Site of the controller to which requests and commands are sent.
    site: &'static Site,
    /// Controllers at which hosts enrol.
    controllers: String,
    directory: tempfile::TempDir,
}

/// Addresses and files of a controller.
struct Site {
    /// Beginning of the names of its files.
    name: &'static str,
    /// Its machine.
    machine: usize,
    /// Address at which it serves hosts.
    hosts: &'static str,
    /// Address at which it serves clients.
    clients: &'static str,
}

const FIRST: Site =
    Site { name: "first", machine: CONTROLLER, hosts: "198.18.0.1", clients: "127.0.0.1:4599" };
/// A second controller on the machine of the first one.
const SECOND: Site =
    Site { name: "second", machine: CONTROLLER, hosts: "198.18.0.9", clients: "127.0.0.1:4598" };

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
        Self::with(tag, MACHINES - 1, MACHINES)
    }

    /// A number of hosts, and of machines in all.
    fn with(tag: &str, hosts: usize, machines: usize) -> Self {
        let suffix = own_suffix();
        let switch = format!("srdfl{tag}s{suffix}");
        let names: Vec<String> = (0..machines).map(|n| format!("srdfl{tag}{n}{suffix}")).collect();
        let processes = (0..machines).map(|_| None).collect();
        let directory = tempfile::tempdir().unwrap();
        // The user `srd` enters the directory.
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(directory.path(), open).unwrap();
        let controllers = format!("{}:{HOSTS_PORT}", FIRST.hosts);
        let (endpoint, site, vcpus) = (None, &FIRST, VCPUS);
        let fleet =
            Self { switch, names, hosts, vcpus, processes, endpoint, site, controllers, directory };
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
        let state = self.path("control.db").display().to_string();
        let running = self.start_at(&FIRST, &state);
        self.processes[CONTROLLER] = Some(running);
    }

    /// Starts a controller with a state, and sends further requests and commands to it.
    fn start_at(&mut self, site: &'static Site, state: &str) -> Running {
        let own = |name: &str| self.path(&format!("{}.{name}", site.name));
        let mut command = self.srd(site.machine);
        command.args(["control", "up", "--place-on-hosts", "--host-pods"]);
        command.args(["--listen", site.clients]);
        command.args(["--state", state, "--hosts", &format!("{}:{HOSTS_PORT}", site.hosts)]);
        command.arg("--key-file").arg(own("env")).arg("--admin").arg(own("sock"));
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
        self.turn_to(site);
        running
    }

    /// Sends further requests and commands to the controller of a site.
    fn turn_to(&mut self, site: &'static Site) {
        let settings = fs::read_to_string(self.path(&format!("{}.env", site.name))).unwrap();
        self.endpoint = Some(Endpoint::read(&settings));
        self.site = site;
    }

    fn log(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.path(name)).unwrap_or_default();
        ["control.log", "1.log", "2.log", "3.log"].map(read).join("\n---\n")
    }

    /// Runs `srd control` with the socket of the controller.
    fn control(&self, words: &[&str]) -> String {
        let mut command = Command::new(SRD);
        command.arg("control").args(words).arg("--admin");
        command.arg(self.path(&format!("{}.sock", self.site.name)));
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
             controller = \"{}\"\ntoken_file = \"token\"\n\
             name = \"h{machine}\"\ndirectory = \"lib{machine}/h\"\n\
             [enrol.instances]\nzone = \"{zone}\"\nvcpus = {}\npods = true\n\
             [control]\nsocket = \"{}\"\n",
            self.controllers,
            self.vcpus,
            self.socket(machine)
        );
        let file = self.path(&format!("{machine}.toml"));
        fs::write(&file, text).unwrap();
        // As an earlier daemon leaves the directory above.
        let above = self.path(&format!("lib{machine}"));
        if fs::DirBuilder::new().mode(0o700).create(&above).is_ok() {
            must(&format!("netns exec {} chown srd {}", self.names[machine], above.display()));
        }
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
        fleet.start_hosts(second);
        fleet
    }

    /// Starts two hosts, of which the second is in this zone, and waits until they are ready.
    fn start_hosts(&mut self, second: &str) {
        self.write_token(2);
        self.start_host(1, "us-east-1a");
        self.start_host(2, second);
        self.wait_for_hosts(2);
    }

    /// Writes the file of a token for a number of hosts.
    fn write_token(&self, uses: usize) {
        let uses = uses.to_string();
        let token = self.control(&["token", "create", "--uses", &uses, "--lifetime", "10m"]);
        fs::write(self.path("token"), token).unwrap();
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(self.path("token"), private).unwrap();
    }

    /// Sends a request, and returns its status and its answer.
    fn send(&self, action: &str, parameters: &str) -> (u16, String) {
        let endpoint = self.endpoint.as_ref().unwrap();
        within(&self.names[self.site.machine], || endpoint.send(action, parameters).unwrap())
    }

    /// Sends a request that has to succeed.
    fn call(&self, action: &str, parameters: &str) -> String {
        let (status, body) = self.send(action, parameters);
        assert_eq!(status, 200, "{action}: {body}\n{}", self.log());
        body
    }

    /// Sends a request of Auto Scaling that has to succeed.
    fn scale(&self, action: &str, parameters: &str) -> String {
        let endpoint = self.endpoint.as_ref().unwrap();
        let of = ("autoscaling", "2011-01-01");
        let send = || endpoint.send_to(of, action, parameters).unwrap();
        let (status, body) = within(&self.names[self.site.machine], send);
        assert_eq!(status, 200, "{action}: {body}\n{}", self.log());
        body
    }

    /// Sends the request of a change, which all hosts use when this function returns. They use it
    /// when the request is answered, unless they are slow.
    fn in_force(&self, change: impl FnOnce()) {
        let began = Instant::now();
        change();
        if began.elapsed() >= APPLY_WAIT {
            self.wait_for_hosts(self.hosts);
        }
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
        ids.into_iter().map(|id| self.placed(id)).collect()
    }

    /// Waits until an instance has its interface, and finds its address and its host.
    fn placed(&self, id: &str) -> Placed {
        // A request waits for its change for two seconds, which a busy machine may exceed. The
        // namespace is there before the host lists the instance.
        let mut machine = 0;
        wait_until("the instance", || {
            let is_there = |n: &usize| self.names_on(*n).iter().any(|name| name == id);
            machine = (1..=self.hosts).find(is_there).unwrap_or(0);
            machine > 0 && is_mounted(&format!("srd-i-{id}"))
        });
        let shown = self.call("DescribeInstances", &format!("InstanceId.1={id}"));
        let address: std::net::Ipv4Addr = element(&shown, "privateIpAddress").parse().unwrap();
        Placed { id: id.to_owned(), address: address.octets(), machine }
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
            ". ./first.env; export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_DEFAULT_REGION \
             AWS_ENDPOINT_URL; export AWS_PAGER=\n{script}"
        );
        let mut shell = Command::new("nsenter");
        shell.arg(format!("--net=/run/netns/{}", self.names[CONTROLLER])).env("PATH", path);
        shell.args(["timeout", "900", "sh", "-eu", "-c", &script]).current_dir(self.path(""));
        let output = shell.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{output:#?}\n{}", self.log());
        String::from_utf8(output.stdout).unwrap()
    }

    /// Ends both hosts in order, and checks that nothing is left of them.
    fn end_hosts(&mut self) {
        for machine in 1..=self.hosts {
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
