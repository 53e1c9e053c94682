//! Measures a state with 50,000 interfaces: the start of a controller on its store, the memory,
//! descriptions with filters, and requests that change the state.
//!
//! ```sh
//! cargo run --release -p srd-control --example state_scale [http://HOST:PORT]
//! ```
//!
//! Without the address of an etcd member, the store is a file in a temporary directory.

#![allow(clippy::unwrap_used)] // a measurement may fail loudly

use std::net::Ipv4Addr;
use std::time::Instant;

use serde_json::Value;
use srd_control::control::{Access, Control, OBJECTS_MAX};
use srd_control::http::HttpRequest;
use srd_control::machines::NoMachines;
use srd_control::store::embedded::EmbeddedStore;
use srd_control::store::etcd::{EtcdStore, Settings};
use srd_control::store::{MemoryStore, Store};

/// Number of keys of a transaction that fills the store.
const TRANSACTION: usize = 1000;

fn request(form: &str) -> HttpRequest {
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let credential = "Credential=x/20270115/us-east-1/ec2/aws4_request, SignedHeaders=host";
    let authorization = format!("AWS4-HMAC-SHA256 {credential}, Signature=0");
    HttpRequest {
        method: "POST".to_owned(),
        path: "/".to_owned(),
        query: String::new(),
        headers: vec![
            header("host", "localhost"),
            header("x-amz-date", "20270115T080000Z"),
            header("authorization", &authorization),
        ],
        body: form.as_bytes().to_vec(),
    }
}

/// Processor time of this thread in milliseconds. In contrast to the time of a clock, it does not
/// depend on other work of the machine.
fn processor() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e6
}

/// Sends a request, and returns the answer and its times in milliseconds: processor and clock.
fn send(control: &mut Control, form: &str) -> (String, [f64; 2]) {
    let (began, used) = (Instant::now(), processor());
    let answer = control.handle(&request(form), 1_800_000_000);
    let times = [processor() - used, began.elapsed().as_secs_f64() * 1e3];
    assert_eq!(answer.status, 200, "{form}: {}", answer.body);
    (answer.body, times)
}

fn element(xml: &str, name: &str) -> String {
    let rest = xml.split_once(&format!("<{name}>")).unwrap().1;
    rest.split('<').next().unwrap().to_owned()
}

/// A store that this value shares with a control plane.
#[derive(Clone, Default)]
struct Shared(std::sync::Arc<std::sync::Mutex<MemoryStore>>);

impl Store for Shared {
    fn load(&mut self) -> Result<Vec<(String, String)>, String> {
        self.0.lock().unwrap().load()
    }

    fn commit(
        &mut self,
        changes: Vec<srd_control::store::KeyChange>,
    ) -> Result<(), srd_control::store::CommitError> {
        self.0.lock().unwrap().commit(changes)
    }
}

/// A state with one subnet and its interfaces.
fn state() -> Vec<(String, String)> {
    let mut small = Shared::default();
    let (store, machines) = (Box::new(small.clone()), Box::new(NoMachines));
    let mut control = Control::new(Access::AnyCredentials, 1, store, machines).unwrap();
    let vpc = send(&mut control, "Action=CreateVpc&CidrBlock=10.0.0.0/16").0;
    let form =
        format!("Action=CreateSubnet&CidrBlock=10.0.0.0/16&VpcId={}", element(&vpc, "vpcId"));
    let subnet = element(&send(&mut control, &form).0, "subnetId");
    let form = format!(
        "Action=CreateNetworkInterface&SubnetId={subnet}&Description=measured&\
         TagSpecification.1.ResourceType=network-interface&TagSpecification.1.Tag.1.Key=role&\
         TagSpecification.1.Tag.1.Value=worker"
    );
    let first = element(&send(&mut control, &form).0, "networkInterfaceId");
    let mut all = small.load().unwrap();
    let (key, record) = all.iter().find(|(key, _)| key.ends_with(&first)).unwrap().clone();
    let mut parts = record.splitn(3, ' ');
    let (prefix, row) = (parts.next().unwrap(), parts.next().unwrap().parse::<u32>().unwrap());
    let object: Value = serde_json::from_str(parts.next().unwrap()).unwrap();
    for number in 1..u32::try_from(OBJECTS_MAX).unwrap() {
        let id = format!("eni-0{:016x}", 0xabcd_0000_0000_u64 + u64::from(number));
        let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 1, 0)) + number).to_string();
        let mut object = object.clone();
        object["NetworkInterfaceId"] = id.clone().into();
        object["PrivateIpAddress"] = address.clone().into();
        object["PrivateIpAddresses"][0]["PrivateIpAddress"] = address.into();
        object["MacAddress"] = format!(
            "02:00:00:{:02x}:{:02x}:{:02x}",
            number >> 16,
            (number >> 8) & 255,
            number & 255
        )
        .into();
        all.push((key.replace(&first, &id), format!("{prefix} {} {object}", row + number)));
    }
    all
}

/// Resident memory of this process in MB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1000
}

fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1000
}

/// Opens the store that the first argument names, or the one in a file.
fn open(path: &std::path::Path) -> Box<dyn Store> {
    match std::env::args().nth(1).filter(|argument| argument != "start") {
        Some(member) => {
            let (members, prefix) = (vec![member], "/scale/".to_owned());
            Box::new(
                EtcdStore::new(&Settings { members, prefix, tls: None, report: |_| {} }).unwrap(),
            )
        }
        None => Box::new(EmbeddedStore::open(path).unwrap()),
    }
}

fn main() {
    // The measurement runs in a process of its own, so that the memory is the one of the start.
    let path = std::env::var_os("STATE_SCALE_FILE").map(std::path::PathBuf::from);
    let Some(path) = path else {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.db");
        let mut store = open(&path);
        let all = store.load().unwrap();
        if all.is_empty() {
            let state = state();
            let bytes: usize = state.iter().map(|(key, value)| key.len() + value.len()).sum();
            println!("{} keys, {} MB", state.len(), bytes / 1_000_000);
            let began = Instant::now();
            for group in state.chunks(TRANSACTION) {
                let changes = group.iter().map(|(key, value)| (key.clone(), Some(value.clone())));
                store.commit(changes.collect()).unwrap();
            }
            println!("written in {:.2} s", began.elapsed().as_secs_f64());
        }
        drop(store);
        let program = std::env::current_exe().unwrap();
        let mut command = std::process::Command::new(program);
        command.args(std::env::args().skip(1)).env("STATE_SCALE_FILE", &path);
        assert!(command.status().unwrap().success());
        return;
    };
    let (began, used) = (Instant::now(), processor());
    let (store, machines) = (open(&path), Box::new(NoMachines));
    let mut control = Control::new(Access::AnyCredentials, 2, store, machines).unwrap();
    println!(
        "start: {:.2} s of processor, {:.2} s, {} MB, at most {} MB",
        (processor() - used) / 1e3,
        began.elapsed().as_secs_f64(),
        memory(),
        peak()
    );
    describe(&mut control);
    change(&mut control);
    println!("memory: {} MB, at most {} MB", memory(), peak());
}

/// Prints the median times of a request that is sent several times.
fn show(name: &str, times: &[[f64; 2]]) {
    let median = |at: usize| {
        let mut of: Vec<f64> = times.iter().map(|times| times[at]).collect();
        of.sort_by(f64::total_cmp);
        of[of.len() / 2]
    };
    let count = times.len();
    println!("{:8.2} ms of processor, {:8.2} ms, {count} times  {name}", median(0), median(1));
}

fn describe(control: &mut Control) {
    let list = "Action=DescribeNetworkInterfaces&MaxResults=100";
    let filter =
        |name: &str, value: &str| format!("{list}&Filter.1.Name={name}&Filter.1.Value.1={value}");
    for form in [
        list.to_owned(),
        filter("private-ip-address", "10.0.100.7"),
        filter("addresses.private-ip-address", "10.0.100.*"),
        filter("tag%3Arole", "worker"),
        filter("description", "measured"),
        filter("mac-address", "02:00:00:00:00:07"),
        format!("{}&Filter.2.Name=status&Filter.2.Value.1=available", filter("tag-key", "role")),
        filter("association.public-ip", "*"),
        filter("addresses.association.public-ip", "198.18.0.1"),
        filter("availability-zone-id", "use1-az1"),
        filter("group-name", "default"),
        filter("private-dns-name", "*7*7*"),
        "Action=DescribeNetworkInterfaces&NetworkInterfaceId.1=eni-00000abcd00000007".to_owned(),
        "Action=DescribeNetworkInterfaces".to_owned(),
        "Action=DescribeSubnets".to_owned(),
        "Action=DescribeInstances".to_owned(),
        "Action=DescribeTags&Filter.1.Name=value&Filter.1.Value.1=worker&MaxResults=100".to_owned(),
    ] {
        show(&form, &[(); 5].map(|()| send(control, &form).1));
    }
}

/// Measures requests that change the state. The table of interfaces is full, so an interface is
/// deleted before another one is created.
fn change(control: &mut Control) {
    let answer = send(control, "Action=DescribeNetworkInterfaces&MaxResults=100").0;
    let subnet = element(&answer, "subnetId");
    let ids = answer.split("<networkInterfaceId>").skip(1);
    let ids: Vec<String> = ids.map(|id| id.split('<').next().unwrap().to_owned()).collect();
    let (mut created, mut deleted) = (Vec::new(), Vec::new());
    let create = format!("Action=CreateNetworkInterface&SubnetId={subnet}");
    for id in ids {
        let delete = format!("Action=DeleteNetworkInterface&NetworkInterfaceId={id}");
        deleted.push(send(control, &delete).1);
        created.push(send(control, &create).1);
    }
    show("DeleteNetworkInterface", &deleted);
    show("CreateNetworkInterface", &created);
    show(
        "CreateVpc",
        &[(); 50].map(|()| send(control, "Action=CreateVpc&CidrBlock=10.1.0.0/16").1),
    );
    let group = "Action=CreateSecurityGroup&GroupName=measured&GroupDescription=measured";
    let group = element(&send(control, group).0, "groupId");
    let rule = |action: &str, port: u32| {
        format!(
            "Action={action}SecurityGroupIngress&GroupId={group}&IpPermissions.1.IpProtocol=tcp&\
             IpPermissions.1.FromPort={port}&IpPermissions.1.ToPort={port}&\
             IpPermissions.1.IpRanges.1.CidrIp=10.0.0.0/8"
        )
    };
    let began = Instant::now();
    let (mut added, mut removed) = (Vec::new(), Vec::new());
    for port in 1..=500 {
        added.push(send(control, &rule("Authorize", port)).1);
        removed.push(send(control, &rule("Revoke", port)).1);
    }
    let rate = 1000.0 / began.elapsed().as_secs_f64();
    show("AuthorizeSecurityGroupIngress", &added);
    show("RevokeSecurityGroupIngress", &removed);
    println!("{rate:.0} changes of rules in a second");
}
