//! Names, instance metadata and time, as programs of an instance ask for them. Needs root and curl.

#![allow(clippy::unwrap_used)] // a test may fail loudly

mod support;

use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use support::machine::*;

/// Two clouds with the same addresses.
const CLOUDS: &str = r#"
[vpc.one]
cidr = ["10.0.0.0/16"]
[vpc.two]
cidr = ["10.0.0.0/16"]
[acl.one]
vpc = "one"
[acl.two]
vpc = "two"
[subnet.one]
vpc = "one"
cidr = "10.0.1.0/24"
acl = "one"
[subnet.two]
vpc = "two"
cidr = "10.0.1.0/24"
acl = "two"
[group.one]
vpc = "one"
egress = ["tcp 1 to 192.0.2.0/24"]
[group.two]
vpc = "two"
[instance.@a]
type = "c7i.large"
[instance.@b]
type = "c7i.xlarge"
[interface.a]
subnet = "one"
address = ["10.0.1.10"]
groups = ["one"]
instance = "@a"
[interface.b]
subnet = "two"
address = ["10.0.1.10"]
groups = ["two"]
instance = "@b"
"#;

fn up(machine: &Machine) -> Running {
    let path = machine.path("clouds.toml");
    fs::write(&path, CLOUDS.replace('@', &machine.prefix)).unwrap();
    machine.up(&[path.to_str().unwrap()])
}

fn ready_with_curl() -> bool {
    let found = Command::new("sh").args(["-c", "command -v curl"]).output().unwrap();
    let all = found.status.success();
    assert!(all || std::env::var_os("CI").is_none(), "curl belongs to CI");
    if !all {
        println!("skipped: curl is missing: apt-get install curl");
    }
    all && ready_with_nsenter()
}

/// The status, and what was said.
fn curl(instance: &str, words: &[&str]) -> (String, String) {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", instance, "curl", "-s", "--noproxy", "*", "--max-time", "5"]);
    let output = command.args(["-w", "\n%{http_code}"]).args(words).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (said, status) = text.rsplit_once('\n').unwrap();
    (status.to_owned(), said.to_owned())
}

const METADATA: &str = "http://169.254.169.254/latest";

fn token(instance: &str) -> String {
    let header = "X-aws-ec2-metadata-token-ttl-seconds: 60";
    let (status, token) =
        curl(instance, &["-X", "PUT", "-H", header, &format!("{METADATA}/api/token")]);
    assert_eq!(status, "200");
    token
}

fn metadata(instance: &str, token: &str, path: &str) -> (String, String) {
    let header = format!("X-aws-ec2-metadata-token: {token}");
    curl(instance, &["-H", &header, &format!("{METADATA}/meta-data/{path}")])
}

/// Groups and lists that allow nothing do not keep an instance from its metadata, and instances
/// with the same address have their own.
#[test]
fn each_instance_has_its_own_metadata_and_needs_a_token() {
    if !ready_with_curl() {
        return;
    }
    let machine = Machine::new("m");
    let _card = up(&machine);
    let [a, b] = ["a", "b"].map(|name| machine.instance(name));
    let plain = curl(&a, &[&format!("{METADATA}/meta-data/instance-type")]);
    assert_eq!(plain.0, "401", "{plain:?}");
    let (of_a, of_b) = (token(&a), token(&b));
    let said = |text: &str| ("200".to_owned(), text.to_owned());
    assert_eq!(metadata(&a, &of_a, "instance-type"), said("c7i.large"));
    assert_eq!(metadata(&b, &of_b, "instance-type"), said("c7i.xlarge"));
    assert_eq!(metadata(&a, &of_a, "local-ipv4"), said("10.0.1.10"));
    assert_eq!(metadata(&a, &of_b, "instance-type").0, "401", "another interface's token");
    let (status, macs) = metadata(&a, &of_a, "network/interfaces/macs/");
    assert_eq!(status, "200");
    let of_mac =
        metadata(&a, &of_a, &format!("network/interfaces/macs/{macs}subnet-ipv4-cidr-block"));
    assert_eq!(of_mac, said("10.0.1.0/24"));

    // More connections than the stack has at once, one after the other and together.
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| assert_eq!(metadata(&a, &of_a, "mac").0, "200"));
        }
    });
    // A connection that says nothing keeps no other out.
    let _silent: Vec<_> = (0..4).map(|_| connect(&a, [169, 254, 169, 254], 80).unwrap()).collect();
    assert_eq!(metadata(&a, &of_a, "mac").0, "200");
    assert!(connect(&a, [169, 254, 169, 254], 81).is_err());
}

/// A question for the address of a name.
fn question(name: &str) -> Vec<u8> {
    let mut bytes = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.extend_from_slice(&[0, 0, 1, 0, 1]);
    bytes
}

/// The answer to a datagram, if there is one.
fn ask(instance: &str, server: ([u8; 4], u16), bytes: &[u8]) -> Option<Vec<u8>> {
    let socket = within(instance, || UdpSocket::bind("0.0.0.0:0").unwrap());
    socket.connect((std::net::Ipv4Addr::from(server.0), server.1)).unwrap();
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    socket.send(bytes).unwrap();
    let mut answer = vec![0; 512];
    let length = socket.recv(&mut answer).ok()?;
    answer.truncate(length);
    Some(answer)
}

#[test]
fn names_and_time_are_there_at_each_of_their_addresses() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("d");
    let _card = up(&machine);
    let a = machine.instance("a");
    for resolver in [[10, 0, 0, 2], [169, 254, 169, 253]] {
        let answer = ask(&a, (resolver, 53), &question("ip-10-0-1-10.ec2.internal")).unwrap();
        assert!(answer.ends_with(&[10, 0, 1, 10]), "{answer:?}");
        let none = ask(&a, (resolver, 53), &question("ip-10-0-1-11.ec2.internal")).unwrap();
        assert_eq!(none[3] & 15, 3, "no such name");
        let outside = ask(&a, (resolver, 53), &question("example.com")).unwrap();
        assert_eq!(outside[3] & 15, 2, "without the internet there are no other names");
    }
    let mut request = [0; 48];
    request[0] = 4 << 3 | 3;
    let answer = ask(&a, ([169, 254, 169, 123], 123), &request).unwrap();
    let seconds = u32::from_be_bytes(answer[40..44].try_into().unwrap());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!((u64::from(seconds) - 2_208_988_800).abs_diff(now) < 60);
    assert_eq!(ask(&a, ([169, 254, 169, 253], 53), &[1, 2, 3]), None);
}

/// More than 1,024 packets a second are too many, and the instance goes on after them.
#[test]
fn a_flood_of_questions_meets_its_limit() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("f");
    let _card = up(&machine);
    let a = machine.instance("a");
    let socket = within(&a, || UdpSocket::bind("0.0.0.0:0").unwrap());
    let bytes = question("ip-10-0-1-10.ec2.internal");
    let began = Instant::now();
    while machine.counter("a", "linklocal_allowance_exceeded") == 0 {
        assert!(began.elapsed() < PATIENCE);
        for _ in 0..400 {
            let _ = socket.send_to(&bytes, "169.254.169.253:53");
        }
    }
    assert_eq!(machine.counter("a", "pps_allowance_exceeded"), 0);
    thread::sleep(Duration::from_millis(300));
    assert!(ask(&a, ([169, 254, 169, 253], 53), &bytes).is_some());
}
