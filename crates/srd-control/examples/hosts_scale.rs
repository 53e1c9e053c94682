//! Measures a controller with simulated hosts: the time from a change of rules to its use at all
//! hosts that it concerns, and the growth of an Auto Scaling group.
//!
//! ```sh
//! cargo run --release -p srd-control --example hosts_scale [HOSTS [RATE [SECONDS [VPCS]]]]
//! ```
//!
//! By default, 100 hosts in 10 VPCs get 200 changes per second for 10 seconds, by 16 clients. With
//! one VPC, each change concerns all hosts. Each host has a session over TLS, one instance of each
//! launch, and acknowledges its part as soon as it has read it. The times begin when a call is due,
//! also if earlier calls delay it.

#![allow(clippy::unwrap_used)] // a measurement may fail loudly

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustls::{ClientConnection, StreamOwned};
use srd_control::control::{Access, Control, shared};
use srd_control::fleet::{HostMachines, Parts};
use srd_control::hosts::decide::TokenOptions;
use srd_control::hosts::hub::Hub;
use srd_control::hosts::serve;
use srd_control::http::HttpRequest;
use srd_control::store::embedded::EmbeddedStore;
use srd_enrol::frame::{CONTROLLER_BYTES_MAX, HOST_BYTES_MAX, Inbox, encode};
use srd_enrol::message::VERSION;
use srd_enrol::{
    Capacity, CloudTables, Fingerprint, FromController, FromHost, Host, Identity, Token, tls,
};

/// Zone of all hosts and subnets.
const ZONE: &str = "us-east-1a";
/// Time of all requests.
const NOW: u64 = 1_800_000_000;
/// Sizes of the Auto Scaling group.
const GROUP: [usize; 2] = [2, 50];
/// Clients that change rules at the same time.
const CLIENTS: u32 = 16;

/// The part of a simulated host that the measurement reads.
#[derive(Default)]
struct Observation {
    /// Generations of the part, with the times at which the host had read them.
    read: Mutex<Vec<(u64, Instant)>>,
    newest: AtomicU64,
}

/// Sends and reads messages of a host.
struct Link {
    stream: StreamOwned<ClientConnection, TcpStream>,
    inbox: Inbox,
}

impl Link {
    fn open(at: SocketAddr, own: &Identity, controller: Fingerprint) -> Self {
        let socket = TcpStream::connect(at).unwrap();
        socket.set_nodelay(true).unwrap();
        let settings = tls::of_host(own, &[controller]).unwrap();
        let connection = ClientConnection::new(settings, tls::controller_name()).unwrap();
        let stream = StreamOwned::new(connection, socket);
        Self { stream, inbox: Inbox::new(CONTROLLER_BYTES_MAX) }
    }

    fn send(&mut self, message: &FromHost) {
        self.stream.write_all(&encode(message, HOST_BYTES_MAX).unwrap()).unwrap();
        self.stream.flush().unwrap();
    }

    fn receive(&mut self) -> FromController {
        loop {
            if let Some(message) = self.inbox.take().unwrap() {
                return message;
            }
            let mut bytes = [0; 16 << 10];
            let count = self.stream.read(&mut bytes).unwrap();
            assert!(count > 0, "the controller has closed the connection");
            self.inbox.push(&bytes[..count]);
        }
    }
}

/// Enrols a host, and follows the controller until the process ends.
fn host(number: usize, at: SocketAddr, token: Token, seen: &Observation) {
    use base64::Engine as _;
    let identity = Identity::draw().unwrap();
    let mut key = [7; 32];
    key[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
    let mut link = Link::open(at, &identity, token.controller);
    let octets = u16::try_from(number).unwrap().to_be_bytes();
    link.send(&FromHost::Enrol {
        version: VERSION,
        token: token.id,
        secret: token.secret,
        name: format!("host-{number}"),
        host: Host {
            public_key: base64::engine::general_purpose::STANDARD.encode(key),
            endpoints: vec![([198, 18, octets[0], octets[1]], 7471).into()],
            processors: 8,
            memory_bytes: 1 << 34,
            capacity: Some(Capacity {
                zone: ZONE.to_owned(),
                vcpus: 400,
                types: Vec::new(),
                pods: false,
            }),
        },
    });
    let mut tables = CloudTables::default();
    loop {
        let FromController::Cloud(section) = link.receive() else { continue };
        let (generation, is_last) = (section.generation, section.is_last);
        tables.take(section).unwrap();
        if is_last {
            seen.read.lock().unwrap().push((generation, Instant::now()));
            link.send(&FromHost::CloudApplied { generation, error: None });
            seen.newest.store(generation, Ordering::Release);
        }
    }
}

/// A controller with its hosts.
struct Bed {
    control: Arc<Mutex<Control>>,
    parts: Parts,
    hosts: Vec<Arc<Observation>>,
}

impl Bed {
    fn start(count: usize, directory: &std::path::Path) -> Self {
        let parts = Parts::default();
        let report = Box::new(|text: &str| println!("report: {text}"));
        let machines = Box::new(HostMachines::new(parts.clone(), report));
        let store = Box::new(EmbeddedStore::open(&directory.join("control.db")).unwrap());
        let control = Control::new(Access::AnyCredentials, 1, store, machines).unwrap();
        let control = Arc::new(Mutex::new(control));
        let hub = Arc::new(Hub::new(Arc::clone(&control), Some(parts.clone())));
        hub.decide(|table| table.begin(None, "10.77.0.0/16".parse().unwrap())).unwrap();
        let options = TokenOptions { lifetime_s: 3600, uses: u32::try_from(count).unwrap() };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let token = hub.decide(|table| table.create_token(options, now.as_secs())).unwrap();
        let listener = serve::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let at = listener.local_addr().unwrap();
        serve::start(listener, hub).unwrap();
        let began = Instant::now();
        let start = |number: usize| {
            let (seen, token) = (Arc::<Observation>::default(), token.clone());
            let shared = Arc::clone(&seen);
            thread::spawn(move || host(number, at, token, &shared));
            while seen.newest.load(Ordering::Acquire) == 0 {
                assert!(began.elapsed() < Duration::from_secs(600), "host {number} is not ready");
                thread::sleep(Duration::from_millis(1));
            }
            seen
        };
        let hosts = (0..count).map(start).collect();
        println!("{count} hosts have enrolled in {:.2} s", began.elapsed().as_secs_f64());
        Self { control, parts, hosts }
    }

    fn call(&self, service: &str, form: &str) -> String {
        self.call_with_generations(service, form).0
    }

    /// Sends a request. Returns the answer, and the generations before and after its change.
    fn call_with_generations(&self, service: &str, form: &str) -> (String, [Vec<u64>; 2]) {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let scope = format!("Credential=x/20270115/us-east-1/{service}/aws4_request");
        let authorization = format!("AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0");
        let request = HttpRequest {
            method: "POST".to_owned(),
            path: "/".to_owned(),
            query: String::new(),
            headers: vec![
                header("host", "localhost"),
                header("x-amz-date", "20270115T080000Z"),
                header("authorization", &authorization),
            ],
            body: form.as_bytes().to_vec(),
        };
        let (answer, generations) = shared::run(&self.control, |control| {
            let before = self.generations();
            (control.begin(&request, NOW), [before, self.generations()])
        });
        assert_eq!(answer.status, 200, "{form}: {}", answer.body);
        (answer.body, generations)
    }

    /// The newest generation of the part of each host.
    fn generations(&self) -> Vec<u64> {
        let of = |number: usize| self.parts.load(&format!("host-{number}")).1;
        (0..self.hosts.len()).map(of).collect()
    }

    /// Waits until each host has the newest generation of its part.
    fn wait(&self) {
        let generations = self.generations();
        for (seen, generation) in self.hosts.iter().zip(generations) {
            while seen.newest.load(Ordering::Acquire) < generation {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

fn element(xml: &str, name: &str) -> String {
    let rest = xml.split_once(&format!("<{name}>")).unwrap().1;
    rest.split('<').next().unwrap().to_owned()
}

/// Makes a VPC with a subnet, a group, and a number of instances. Returns the subnet and the group.
fn network(bed: &Bed, instances: usize) -> [String; 2] {
    let vpc = element(&bed.call("ec2", "Action=CreateVpc&CidrBlock=10.0.0.0/16"), "vpcId");
    let of =
        format!("Action=CreateSubnet&VpcId={vpc}&CidrBlock=10.0.0.0/20&AvailabilityZone={ZONE}");
    let subnet = element(&bed.call("ec2", &of), "subnetId");
    let of =
        format!("Action=CreateSecurityGroup&VpcId={vpc}&GroupName=m&GroupDescription=measured");
    let group = element(&bed.call("ec2", &of), "groupId");
    let mut left = instances;
    while left > 0 {
        let count = left.min(100);
        let of = format!(
            "Action=RunInstances&ImageId=ami-12345678&InstanceType=c7i.large&MinCount={count}&\
             MaxCount={count}&SubnetId={subnet}&SecurityGroupId.1={group}"
        );
        bed.call("ec2", &of);
        left -= count;
    }
    [subnet, group]
}

/// Prints the median, the 99th percentile and the largest of times.
fn show(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |part: usize| times[(times.len() * part / 100).min(times.len() - 1)];
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{what}: median {:.2} ms, 99 % {:.2} ms, at most {:.2} ms ({} times)",
        milliseconds(at(50)),
        milliseconds(at(99)),
        milliseconds(times[times.len() - 1]),
        times.len()
    );
}

/// A change of a rule.
struct Change {
    /// The time at which the call was due.
    due: Instant,
    answered: Duration,
    /// Hosts that the change concerns, each with the generation of its part that contains it.
    hosts: Vec<(usize, u64)>,
}

/// Calls of all clients together.
#[derive(Clone, Copy)]
struct Calls {
    begin: Instant,
    rate: u32,
    count: u32,
}

/// Makes the changes of one client, which adds rules of the groups and removes them again.
fn client(bed: &Bed, groups: &[String], calls: Calls, client: u32) -> Vec<Change> {
    let mut changes = Vec::new();
    let numbers = (client..calls.count).step_by(CLIENTS as usize);
    for (number, turn) in numbers.zip(0..) {
        let due = calls.begin + Duration::from_secs(1) * number / calls.rate;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let rule = turn / 2;
        let action = if turn % 2 == 0 { "Authorize" } else { "Revoke" };
        let group = &groups[(client + rule) as usize % groups.len()];
        let port = 1 + client * 4000 + rule % 4000;
        let of = format!(
            "Action={action}SecurityGroupIngress&GroupId={group}&IpPermissions.1.IpProtocol=tcp&\
             IpPermissions.1.FromPort={port}&IpPermissions.1.ToPort={port}&\
             IpPermissions.1.IpRanges.1.CidrIp=10.0.0.0/8"
        );
        let (_, [before, after]) = bed.call_with_generations("ec2", &of);
        let answered = due.elapsed();
        let hosts = before.iter().zip(after).enumerate().filter(|(_, (old, new))| *old < new);
        let hosts = hosts.map(|(host, (_, new))| (host, new)).collect();
        changes.push(Change { due, answered, hosts });
    }
    changes
}

/// Changes rules of the groups at this rate per second.
fn rules(bed: &Bed, groups: &[String], rate: u32, seconds: u32) {
    bed.wait();
    bed.hosts.iter().for_each(|seen| seen.read.lock().unwrap().clear());
    let begin = Instant::now() + Duration::from_millis(100);
    let calls = Calls { begin, rate, count: rate * seconds };
    let changes: Vec<Change> = thread::scope(|scope| {
        let start = |number| scope.spawn(move || client(bed, groups, calls, number));
        let clients: Vec<_> = (0..CLIENTS).map(start).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let took = begin.elapsed();
    bed.wait();
    let (mut used, mut by_all) = (Vec::new(), Vec::new());
    for Change { due, hosts, .. } in &changes {
        let times = hosts.iter().map(|(host, generation)| {
            let read = bed.hosts[*host].read.lock().unwrap();
            let first = read.partition_point(|(of, _)| of < generation);
            read[first].1.saturating_duration_since(*due)
        });
        let times: Vec<Duration> = times.collect();
        by_all.push(times.iter().copied().max().unwrap_or_default());
        used.extend(times);
    }
    println!("{} calls in {:.2} s", changes.len(), took.as_secs_f64());
    show("from a call to its answer", changes.iter().map(|change| change.answered).collect());
    show("from a call to the use at a host", used);
    show("from a call to the use at all its hosts", by_all);
}

/// Lets an Auto Scaling group grow.
fn group(bed: &Bed, subnet: &str) {
    bed.call(
        "ec2",
        "Action=CreateLaunchTemplate&LaunchTemplateName=measured&\
         LaunchTemplateData.ImageId=ami-12345678&LaunchTemplateData.InstanceType=c7i.large",
    );
    let [small, large] = GROUP;
    let began = Instant::now();
    let of = format!(
        "Action=CreateAutoScalingGroup&Version=2011-01-01&AutoScalingGroupName=m&MinSize=0&\
         MaxSize={large}&DesiredCapacity={small}&VPCZoneIdentifier={subnet}&\
         LaunchTemplate.LaunchTemplateName=measured"
    );
    bed.call("autoscaling", &of);
    bed.wait();
    println!("a group of {small}: {:.3} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    let of = format!(
        "Action=SetDesiredCapacity&Version=2011-01-01&AutoScalingGroupName=m&\
         DesiredCapacity={large}"
    );
    bed.call("autoscaling", &of);
    let answered = began.elapsed().as_secs_f64();
    bed.wait();
    println!(
        "from {small} to {large} instances: answered after {answered:.3} s, used by all hosts \
         after {:.3} s",
        began.elapsed().as_secs_f64()
    );
    let shown = bed.call(
        "autoscaling",
        "Action=DescribeAutoScalingInstances&Version=2011-01-01&MaxRecords=50",
    );
    assert_eq!(shown.matches("<InstanceId>").count(), large, "{shown}");
}

fn main() {
    let argument = |at: usize, default: u32| {
        std::env::args().nth(at).map_or(default, |text| text.parse().unwrap())
    };
    let (hosts, rate) = (argument(1, 100) as usize, argument(2, 200));
    let (seconds, vpcs) = (argument(3, 10), argument(4, 10) as usize);
    let directory = tempfile::tempdir().unwrap();
    let bed = Bed::start(hosts, directory.path());
    let began = Instant::now();
    let networks: Vec<[String; 2]> =
        (0..vpcs).map(|_| network(&bed, hosts.div_ceil(vpcs))).collect();
    bed.wait();
    println!("{vpcs} VPCs with instances on all hosts in {:.2} s", began.elapsed().as_secs_f64());
    let groups: Vec<String> = networks.iter().map(|[_, group]| group.clone()).collect();
    rules(&bed, &groups, rate, seconds);
    group(&bed, &networks[0][0]);
}
