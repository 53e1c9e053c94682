//! Services for instances: DNS names, instance metadata and time, as programs of an instance
//! request them. Needs root and curl.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::machine::*;

/// File of two clouds whose instances have the same address. `@` stands for the prefix of the
/// instances' names.
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
        println!("skipped: no curl (apt-get install curl)");
    }
    all && ready_with_nsenter()
}

/// Runs curl in an instance. Returns the HTTP status and the body.
fn curl(instance: &str, words: &[&str]) -> (String, String) {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", instance, "curl", "-s", "--noproxy", "*", "--max-time", "60"]);
    let output = command.args(["-w", "\n%{http_code}"]).args(words).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (said, status) = text.rsplit_once('\n').unwrap();
    (status.to_owned(), said.to_owned())
}

const METADATA: &str = "http://169.254.169.254/latest";

fn token(instance: &str) -> String {
    let header = "X-aws-ec2-metadata-token-ttl-seconds: 21600";
    let (status, token) =
        curl(instance, &["-X", "PUT", "-H", header, &format!("{METADATA}/api/token")]);
    assert_eq!(status, "200");
    token
}

fn metadata(instance: &str, token: &str, path: &str) -> (String, String) {
    let header = format!("X-aws-ec2-metadata-token: {token}");
    curl(instance, &["-H", &header, &format!("{METADATA}/meta-data/{path}")])
}

/// Security groups and network ACLs that allow nothing do not block an instance's access to its
/// metadata. Two instances with the same address get their own metadata.
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
    assert_eq!(metadata(&a, &of_b, "instance-type").0, "401", "another instance's token");
    let (status, macs) = metadata(&a, &of_a, "network/interfaces/macs/");
    assert_eq!(status, "200");
    let of_mac =
        metadata(&a, &of_a, &format!("network/interfaces/macs/{macs}subnet-ipv4-cidr-block"));
    assert_eq!(of_mac, said("10.0.1.0/24"));

    // There are more connections than the card's stack can have at a time, first one after the
    // other and then together.
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| assert_eq!(metadata(&a, &of_a, "mac").0, "200"));
        }
    });
    // Connections that send nothing do not block others.
    let _silent: Vec<_> = (0..4).map(|_| connect(&a, [169, 254, 169, 254], 80).unwrap()).collect();
    assert_eq!(metadata(&a, &of_a, "mac").0, "200");
    assert!(connect_in_vain(&a, [169, 254, 169, 254], 81).is_err());
}

/// Returns a DNS query for the IPv4 address of a name.
fn question(name: &str) -> Vec<u8> {
    let mut bytes = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.extend_from_slice(&[0, 0, 1, 0, 1]);
    bytes
}

/// Sends a datagram to a service and returns the answer; waits for it for up to [`PATIENCE`].
fn ask(instance: &str, server: ([u8; 4], u16), bytes: &[u8]) -> Option<Vec<u8>> {
    ask_for(PATIENCE, instance, server, bytes)
}

/// Sends a datagram for which no answer is expected, and waits for a short time. Returns the
/// answer, if one arrives.
fn ask_in_vain(instance: &str, server: ([u8; 4], u16), bytes: &[u8]) -> Option<Vec<u8>> {
    ask_for(SILENCE, instance, server, bytes)
}

fn ask_for(
    time: Duration,
    instance: &str,
    server: ([u8; 4], u16),
    bytes: &[u8],
) -> Option<Vec<u8>> {
    let socket = within(instance, || UdpSocket::bind("0.0.0.0:0").unwrap());
    socket.connect((std::net::Ipv4Addr::from(server.0), server.1)).unwrap();
    socket.set_read_timeout(Some(time)).unwrap();
    socket.send(bytes).unwrap();
    let mut answer = vec![0; 4096];
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
    assert_eq!(ask_in_vain(&a, ([169, 254, 169, 253], 53), &[1, 2, 3]), None);
}

/// An instance that sends more than 1,024 packets per second to services exceeds the limit, and is
/// served again afterwards.
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
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ending = Ending(&is_over);
        // As many as the machine passes, in small groups: a queue would lose the others.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for _ in 0..50 {
                    let _ = socket.send_to(&bytes, "169.254.169.253:53");
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        let exceeded = || machine.counter("a", "linklocal_allowance_exceeded");
        wait_until("too many packets", || exceeded() > 0);
    });
    assert_eq!(machine.counter("a", "pps_allowance_exceeded"), 0);
    // If a second has had too many packets, a query at its end is lost, so queries are repeated.
    wait_until("an answer after the flood", || {
        ask_in_vain(&a, ([169, 254, 169, 253], 53), &bytes).is_some()
    });
}

/// Regression: instance metadata was also reachable at the resolver's address, in spite of a
/// firewall rule for the metadata address. And names were resolved in a cloud without DNS support.
#[test]
fn regression_each_service_is_at_its_own_addresses_only() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("o");
    let _card = up(&machine);
    let a = machine.instance("a");
    let name = question("ip-10-0-1-10.ec2.internal");
    let link_local = |last| [169, 254, 169, last];
    assert!(connect(&a, link_local(254), 80).is_ok());
    for other in [[10, 0, 0, 2], link_local(253), link_local(123)] {
        let refused = connect(&a, other, 80).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "{other:?}");
    }
    for resolver in [[10, 0, 0, 2], link_local(253)] {
        assert!(ask(&a, (resolver, 53), &name).is_some());
        assert!(connect(&a, resolver, 53).is_ok(), "also by TCP");
    }
    for other in [link_local(254), link_local(123)] {
        assert_eq!(ask_in_vain(&a, (other, 53), &name), None, "{other:?}");
    }
    // The same checks in a cloud without DNS support.
    let without = CLOUDS.replace("[vpc.one]", "[vpc.one]\ndns_support = false");
    let path = machine.path("without.toml");
    fs::write(&path, without.replace('@', &machine.prefix)).unwrap();
    let applied = machine.srd(&["card", "apply", path.to_str().unwrap()]);
    assert!(applied.status.success(), "{applied:#?}");
    for other in [[10, 0, 0, 2], link_local(253), link_local(254), link_local(123)] {
        assert_eq!(ask_in_vain(&a, (other, 53), &name), None, "{other:?}");
    }
    assert!(ask(&machine.instance("b"), (link_local(253), 53), &name).is_some());
    assert!(connect(&a, link_local(254), 80).is_ok());
}

/// Regression: slow connections blocked all other connections, and the 33rd connection at a time
/// was refused.
#[test]
fn regression_connections_wait_for_a_place_and_slow_ones_give_theirs_up() {
    if !ready_with_curl() {
        return;
    }
    let machine = Machine::new("s");
    let _card = up(&machine);
    let a = machine.instance("a");
    let mut slow: Vec<_> =
        (0..32).map(|_| connect(&a, [169, 254, 169, 254], 80).unwrap()).collect();
    for _ in 0..3 {
        slow.iter_mut().for_each(|stream| drop(stream.write(b"G")));
        thread::sleep(Duration::from_millis(150));
        assert_eq!(curl(&a, &[METADATA]).0, "401");
    }
    // If a connection is not accepted at first, the kernel tries again after a second.
    let began = Instant::now();
    let burst = within(&a, || {
        let open = || std::net::TcpStream::connect("169.254.169.254:80");
        (0..64).map(|_| open()).collect::<Vec<_>>()
    });
    assert!(burst.iter().all(Result::is_ok), "{burst:?}");
    assert!(began.elapsed() < PATIENCE);
}

/// Programs of an instance use the resolver of the instance's cloud, if the cloud has one.
#[test]
fn a_namespace_has_the_resolver_of_its_cloud() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("r");
    let mut card = up(&machine);
    let a = machine.instance("a");
    let inside = |words: &[&str]| {
        let mut command = Command::new("ip");
        let output = command.args(["netns", "exec", &a]).args(words).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(inside(&["cat", "/etc/resolv.conf"]).contains("\nnameserver 10.0.0.2\n"));
    let found = inside(&["getent", "ahostsv4", "ip-10-0-1-10"]);
    assert!(found.starts_with("10.0.1.10 "), "{found}");
    let file = std::path::Path::new("/etc/netns").join(&a).join("resolv.conf");
    let without = CLOUDS.replace("[vpc.one]", "[vpc.one]\ndns_support = false");
    let path = machine.path("without.toml");
    fs::write(&path, without.replace('@', &machine.prefix)).unwrap();
    let applied = machine.srd(&["card", "apply", path.to_str().unwrap()]);
    assert!(applied.status.success(), "{applied:#?}");
    // The rules are in force at once. The helper process removes the file a moment later.
    wait_until("the resolver of a cloud without one goes", || !file.exists());
    let of_b = file.parent().unwrap().with_file_name(machine.instance("b"));
    assert!(of_b.join("resolv.conf").exists());
    // All files are removed, even after a kill.
    card.end(rustix::process::Signal::KILL);
    wait_until("the files of namespaces go", || !of_b.exists());
}

/// Starts a card on a machine whose /etc/resolv.conf is `file`.
fn up_with_resolver(machine: &Machine, file: &std::path::Path) -> Running {
    let clouds = machine.path("clouds.toml");
    fs::write(&clouds, CLOUDS.replace('@', &machine.prefix)).unwrap();
    // The directory of namespaces is shared with the machine, but /etc/resolv.conf is not.
    let script = "mount --make-private / && mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "unchanged", "sh", "-c", script]).arg(file);
    let srd = machine.command(&["card", "up", clouds.to_str().unwrap(), "--internet"]);
    command.arg(srd.get_program()).args(srd.get_args());
    machine.up_by(command)
}

/// Returns a DNS answer to `query` with `records` records. If it is longer than `most` bytes, it
/// has no records and is marked as truncated.
fn answer_to(query: &[u8], records: usize, most: usize) -> Vec<u8> {
    let length = 17 + query[12..].iter().position(|byte| *byte == 0).unwrap();
    let mut answer = query[..length].to_vec();
    answer[2..4].copy_from_slice(&[0x81, 0x80]);
    answer[11] = 0;
    let record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 1, 2, 3, 4];
    if length + records * record.len() > most {
        answer[2] |= 2;
        return answer;
    }
    answer[6..8].copy_from_slice(&u16::try_from(records).unwrap().to_be_bytes());
    [answer, record.repeat(records)].concat()
}

/// Only plain queries are forwarded to the machine's resolver, and answers of any length arrive. A
/// resolver that starts later than the card is also used.
#[test]
fn regression_names_of_the_outside() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("u");
    let file = machine.path("resolv.conf");
    fs::write(&file, "# none yet\n").unwrap();
    let _card = up_with_resolver(&machine, &file);
    let a = machine.instance("a");
    let resolver = ([169, 254, 169, 253], 53);
    let failed = ask(&a, resolver, &question("www.example.com")).unwrap();
    assert_eq!(failed[2..4], [0x81, 0x82]);

    let server = within(&machine.namespace, || UdpSocket::bind("127.0.0.1:53").unwrap());
    let by_tcp = within(&machine.namespace, || TcpListener::bind("127.0.0.1:53").unwrap());
    let heard = std::sync::Mutex::new(Vec::new());
    server.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    by_tcp.set_nonblocking(true).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _ending = Ending(&is_over);
        scope.spawn(|| {
            let mut bytes = [0; 1024];
            while !is_over.load(Ordering::Relaxed) {
                let Ok((length, from)) = server.recv_from(&mut bytes) else { continue };
                let query = &bytes[..length];
                heard.lock().unwrap().push(query[2..].to_vec());
                // The letters of a forwarded query have random case.
                let is_big = query.windows(3).any(|part| part.eq_ignore_ascii_case(b"big"));
                let records = if is_big { 90 } else { 1 };
                server.send_to(&answer_to(query, records, 512), from).unwrap();
            }
        });
        scope.spawn(|| {
            let mut stream = loop {
                match by_tcp.accept() {
                    Ok((stream, _)) => break stream,
                    Err(_) if is_over.load(Ordering::Relaxed) => return,
                    Err(_) => thread::sleep(Duration::from_millis(5)),
                }
            };
            stream.set_nonblocking(false).unwrap();
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
            stream.read_exact(&mut query).unwrap();
            let answer = answer_to(&query, 90, 65_535);
            let length = u16::try_from(answer.len()).unwrap().to_be_bytes();
            stream.write_all(&[&length[..], &answer].concat()).unwrap();
        });
        fs::write(&file, "nameserver 127.0.0.1\n").unwrap();
        // The card reads /etc/resolv.conf once per second.
        let mut answer = Vec::new();
        wait_until("a question to the new resolver", || {
            answer = ask(&a, resolver, &question("www.example.com")).unwrap();
            answer[2..4] != [0x81, 0x82]
        });
        assert!(answer.ends_with(&[1, 2, 3, 4]) && answer[2..4] == [0x81, 0x80], "{answer:?}");
        for (at, value) in [(2, 5 << 3), (2, 4 << 3), (30, 252)] {
            let mut other = question("www.example.com");
            other[at] = value;
            assert!([4, 5].contains(&(ask(&a, resolver, &other).unwrap()[3] & 15)));
        }
        let cut = ask(&a, resolver, &question("big.example.com")).unwrap();
        assert_eq!((cut[2] & 2, cut.len()), (2, question("big.example.com").len()));
        let mut stream = connect(&a, resolver.0, 53).unwrap();
        let query = question("big.example.com");
        let length = u16::try_from(query.len()).unwrap().to_be_bytes();
        stream.write_all(&[&length[..], &query].concat()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.read_exact(&mut [0; 2]).unwrap();
        let mut answer = vec![0; query.len() + 90 * 16];
        stream.read_exact(&mut answer).unwrap();
        assert!(answer[..2] == query[..2] && answer[6..8] == [0, 90], "{answer:?}");
    });
    let heard = heard.into_inner().unwrap();
    let asked = ["www.example.com", "big.example.com", "big.example.com"];
    assert_eq!(heard.len(), asked.len());
    for (heard, asked) in heard.iter().zip(asked) {
        assert!(heard.eq_ignore_ascii_case(&question(asked)[2..]), "{asked}: {heard:?}");
    }
}
