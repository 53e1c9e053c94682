//! `srd card` and `srd run` as their users run them: instances in namespaces, a machine's namespace
//! that stands for the internet, and the sockets of Linux at every end. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

mod support;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use support::pair::{Pair, Settings, ip, must, ready};

const SRD: &str = env!("CARGO_BIN_EXE_srd");
/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// After so long without an answer there is none.
const SILENCE: Duration = Duration::from_millis(700);

const WEB: [u8; 4] = [10, 0, 1, 10];
const WEB_PUBLIC: [u8; 4] = [198, 51, 100, 10];
const NAT_PUBLIC: [u8; 4] = [198, 51, 100, 5];
/// The machine's own address on the internet's side.
const OUTSIDE: [u8; 4] = [203, 0, 113, 1];

/// A machine with a card of its own.
struct Machine {
    namespace: String,
    directory: tempfile::TempDir,
    /// Before the names of its instances, so that no other test has them.
    prefix: String,
    /// Whether the namespace goes with it.
    owned: bool,
}

impl Machine {
    fn new(tag: &str) -> Self {
        let namespace = format!("srdcard{tag}{}", std::process::id());
        must(&format!("netns add {namespace}"));
        must(&format!("-n {namespace} link set lo up"));
        let mut machine = Self::at(tag, &namespace);
        machine.owned = true;
        machine
    }

    /// A card on a machine that there is already.
    fn at(tag: &str, namespace: &str) -> Self {
        let prefix = format!("t{tag}{}-", std::process::id());
        let directory = tempfile::tempdir().unwrap();
        Self { namespace: namespace.to_owned(), directory, prefix, owned: false }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The example of the documentation, with instances of this machine's names.
    fn example(&self, name: &str, change: impl Fn(String) -> String) -> String {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/vpc/web-app.toml");
        let mut text = fs::read_to_string(example).unwrap();
        for instance in ["web", "app"] {
            let own = format!("{}{instance}", self.prefix);
            text = text.replace(&format!("[instance.{instance}]"), &format!("[instance.{own}]"));
            text = text
                .replace(&format!("instance = \"{instance}\""), &format!("instance = \"{own}\""));
        }
        let path = self.path(name);
        fs::write(&path, change(text)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn instance(&self, name: &str) -> String {
        format!("srd-i-{}{name}", self.prefix)
    }

    fn socket(&self) -> String {
        self.path("card.sock").to_str().unwrap().to_owned()
    }

    /// The command with these words, in the machine. (`ip netns exec` would hide the namespaces
    /// that it makes.)
    fn command(&self, words: &[&str]) -> Command {
        let program = words.iter().position(|word| *word == "--").unwrap_or(words.len());
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace)).arg(SRD);
        command.args(&words[..program]).args(["--socket", &self.socket()]);
        command.args(&words[program..]);
        command
    }

    fn srd(&self, words: &[&str]) -> Output {
        self.command(words).stdin(Stdio::null()).output().unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        let output = self.srd(&[words, &["--json", "-"]].concat());
        assert!(output.status.success(), "{output:#?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Starts a card, and waits until it serves.
    fn up(&self, words: &[&str]) -> Running {
        let log = File::create(self.path("up.log")).unwrap();
        let mut command = self.command(&[&["card", "up"], words].concat());
        let child = command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let running = Running(child.spawn().unwrap());
        let began = Instant::now();
        while !self.srd(&["card", "status"]).status.success() {
            let log = fs::read_to_string(self.path("up.log")).unwrap();
            assert!(began.elapsed() < PATIENCE, "{log}");
            thread::sleep(Duration::from_millis(50));
        }
        running
    }

    /// The counters of an instance.
    fn counter(&self, instance: &str, name: &str) -> u64 {
        let name_of = format!("{}{instance}", self.prefix);
        self.json(&["card", "stats", &name_of])[name].as_u64().unwrap()
    }

    /// Everything that a card changes on a machine.
    fn facts(&self) -> Vec<String> {
        let own = |words: &str| must(&format!("-n {} {words}", self.namespace));
        let inside = |program: &[&str]| {
            let mut command = Command::new("nsenter");
            command.arg(format!("--net=/run/netns/{}", self.namespace)).args(program);
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        vec![
            own("addr"),
            own("route"),
            own("-6 route"),
            own("rule"),
            inside(&["nft", "list", "ruleset"]),
            inside(&["cat", "/proc/sys/net/ipv4/ip_forward"]),
        ]
    }

    fn instances_left(&self) -> Vec<String> {
        let all = must("netns list");
        let ours = all.lines().filter(|line| line.contains(&self.prefix));
        ours.map(str::to_owned).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for line in self.instances_left() {
            let name = line.split(' ').next().unwrap_or_default();
            ip(&format!("netns del {name}"));
        }
        if self.owned {
            ip(&format!("netns del {}", self.namespace));
        }
    }
}

/// A program that is ended with the test.
struct Running(Child);

impl Running {
    fn end(&mut self, signal: Signal) -> i32 {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        self.0.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs `work` in a namespace.
fn within<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> T {
    let file = File::open(format!("/run/netns/{namespace}")).unwrap();
    thread::scope(|scope| {
        let inside = scope.spawn(move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        });
        inside.join().unwrap()
    })
}

/// A listener in a namespace.
fn listen(namespace: &str, port: u16) -> TcpListener {
    within(namespace, || TcpListener::bind(("0.0.0.0", port)).unwrap())
}

fn connect(namespace: &str, address: [u8; 4], port: u16) -> std::io::Result<TcpStream> {
    let to = SocketAddr::from((address, port));
    within(namespace, || TcpStream::connect_timeout(&to, SILENCE))
}

/// Sends a line, and waits for it at the other end.
fn passes(from: &mut TcpStream, to: &mut TcpStream) -> bool {
    to.set_read_timeout(Some(SILENCE)).unwrap();
    from.write_all(b"line").unwrap();
    let mut line = [0; 4];
    to.read_exact(&mut line).is_ok()
}

fn ready_with_nsenter() -> bool {
    let has = |program: &str| {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        found.unwrap().status.success()
    };
    let all = ["nsenter", "nft"].into_iter().all(has);
    assert!(all || std::env::var_os("CI").is_none(), "nsenter and nft belong to CI");
    if !all {
        println!("skipped: nsenter and nft are missing: apt-get install util-linux nftables");
    }
    all && ready()
}

/// The client, the internet gateway, the web server and the application server of the talk.
#[test]
fn the_example_connects_whom_its_rules_allow_and_nobody_else() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("a");
    let before = machine.facts();
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file, "--internet"]);
    let (web, app) = (machine.instance("web"), machine.instance("app"));
    let outside = machine.namespace.clone();
    let https = listen(&web, 443);
    let _http = listen(&web, 80);

    let mut client = connect(&outside, WEB_PUBLIC, 443).unwrap();
    let (mut server, peer) = https.accept().unwrap();
    assert_eq!(peer.ip(), IpAddr::from(OUTSIDE));
    assert!(passes(&mut client, &mut server) && passes(&mut server, &mut client));
    let mut inner = connect(&app, WEB, 443).unwrap();
    let (mut inner_server, _) = https.accept().unwrap();
    assert!(passes(&mut inner, &mut inner_server));
    assert!(connect(&app, WEB, 80).is_err(), "no rule allows port 80");
    assert!(connect(&outside, [10, 0, 2, 10], 443).is_err(), "a private address from outside");

    // Through the NAT gateway: the internet sees the gateway's address.
    let far = listen(&outside, 9999);
    let mut out = connect(&app, OUTSIDE, 9999).unwrap();
    let (mut far_end, peer) = far.accept().unwrap();
    assert_eq!(peer.ip(), IpAddr::from(NAT_PUBLIC));
    assert!(passes(&mut out, &mut far_end) && passes(&mut far_end, &mut out));

    // One evaluation for each direction of a flow, and none after it.
    let judged = machine.counter("web", "judged_packets");
    for _ in 0..200 {
        assert!(passes(&mut client, &mut server) && passes(&mut server, &mut client));
    }
    assert_eq!(machine.counter("web", "judged_packets"), judged);
    assert!(machine.counter("web", "tx_packets") > 200);

    // A rule that is gone: open connections to everybody are not tracked, and end at once; the
    // tracked one goes on.
    let without = machine.example("without.toml", |text| {
        text.replace("\"tcp 443 from 0.0.0.0/0\", ", "\"tcp 444 from 0.0.0.0/0\", ")
    });
    machine.json(&["card", "apply", &without]);
    assert!(!passes(&mut client, &mut server), "an untracked connection ends with its rule");
    assert!(passes(&mut out, &mut far_end), "a tracked one outlives it");
    machine.json(&["card", "apply", &file]);
    let mut rest = [0; 4];
    assert!(server.read_exact(&mut rest).is_ok(), "what was sent arrives when it may");

    // A list of the subnet ends both.
    let closed = machine.example("closed.toml", |text| {
        text.replace("100 allow all from 0.0.0.0/0", "100 allow tcp 443 from 0.0.0.0/0")
    });
    machine.json(&["card", "apply", &closed]);
    assert!(passes(&mut client, &mut server), "port 443 is on the list");
    assert!(!passes(&mut far_end, &mut out), "answers from outside are not");

    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(machine.facts(), before, "everything is given back");
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

#[test]
fn a_program_runs_as_an_instance_and_leaves_nothing() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("r");
    let before = machine.facts();
    let name = |name: &str| format!("{}{name}", machine.prefix);
    let output = machine.srd(&["run", "--name", &name("one"), "--", "sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{output:#?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("c7i.large, 172.31.0.4/20"), "{said}");
    assert!(said.contains("no limit of the type was met"), "{said}");
    assert_eq!(machine.instances_left(), Vec::<String>::new());

    let mut first = machine.command(&["run", "--name", &name("a"), "--", "sleep", "60"]);
    let first_run = Running(first.stderr(Stdio::null()).spawn().unwrap());
    let began = Instant::now();
    while !machine.srd(&["card", "status", &name("a")]).status.success() {
        assert!(began.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(50));
    }
    let listener = listen(&machine.instance("a"), 5000);
    let joined = machine.srd(&[
        "run",
        "--name",
        &name("b"),
        "--peer-of",
        &name("a"),
        "--",
        "bash",
        "-c",
        "echo hello > /dev/tcp/172.31.0.4/5000",
    ]);
    assert!(joined.status.success(), "{joined:#?}");
    let (mut stream, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip(), IpAddr::from([172, 31, 0, 5]));
    let mut line = String::new();
    stream.read_to_string(&mut line).unwrap();
    assert_eq!(line, "hello\n");

    // An instance goes with the program that asked for it, however that ends.
    let mut third = machine.command(&["run", "--name", &name("c"), "--", "sleep", "60"]);
    let mut third = Running(third.stderr(Stdio::null()).spawn().unwrap());
    let status = |name: &str| machine.srd(&["card", "status", name]).status.success();
    while !status(&name("c")) {
        assert!(began.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(50));
    }
    third.end(Signal::KILL);
    while status(&name("c")) {
        assert!(began.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(50));
    }
    // The program of the first one lives on in its namespace, and the next card leaves it alone.
    drop(first_run);
    let again = machine.srd(&["run", "--name", &name("d"), "--", "true"]);
    assert!(again.status.success(), "{again:#?}");
    assert_eq!(machine.facts(), before);
}

/// Without a word of warning: a child of the card gives everything back.
#[test]
fn a_card_that_is_killed_leaves_a_machine_as_it_was() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("k");
    let before = machine.facts();
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file, "--internet"]);
    assert_ne!(machine.facts(), before);
    card.end(Signal::KILL);
    let began = Instant::now();
    while machine.facts() != before || !machine.instances_left().is_empty() {
        assert!(began.elapsed() < PATIENCE, "{:#?}", machine.facts());
        thread::sleep(Duration::from_millis(50));
    }
    let mut again = machine.up(&[&file, "--internet"]);
    assert_eq!(again.end(Signal::INT), 0);
    assert_eq!(machine.facts(), before);
}

/// A second card, at another socket, would take the namespaces away from the first.
#[test]
fn regression_a_second_card_leaves_the_instances_of_the_first_alone() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("s");
    let before = machine.facts();
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file]);
    let inode = |name: &str| {
        use std::os::unix::fs::MetadataExt;
        let path = Path::new("/run/netns").join(machine.instance(name));
        fs::metadata(path).map(|found| found.ino()).ok()
    };
    let namespaces = ["web", "app"].map(inode);
    let mut second = Command::new(SRD);
    second.args(["card", "up", &file, "--socket", machine.path("second.sock").to_str().unwrap()]);
    let output = second.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("another card has"), "{said}");
    assert_eq!(["web", "app"].map(inode), namespaces);
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
    assert_eq!(machine.facts(), before);
}

/// Services and containers end a program with a signal to its process alone.
#[test]
fn regression_a_signal_to_srd_run_alone_ends_its_program() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("t");
    let name = format!("{}a", machine.prefix);
    let mut run = machine.command(&["run", "--name", &name, "--", "sleep", "60"]);
    let mut run = Running(run.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let began = Instant::now();
    let pids = || must(&format!("netns pids {}", machine.instance("a")));
    while machine.instances_left().is_empty() || pids().trim().is_empty() {
        assert!(began.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(50));
    }
    let asked = Instant::now();
    assert_eq!(run.end(Signal::TERM), 128 + 15);
    assert!(asked.elapsed() < PATIENCE, "long before the program's own end");
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

/// The first `srd run` holds the card, and may end first.
#[test]
fn regression_a_program_whose_card_has_ended_keeps_its_exit_code() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("x");
    let own = |name: &str| format!("{}{name}", machine.prefix);
    let mut first = machine.command(&["run", "--name", &own("a"), "--", "sleep", "60"]);
    let mut first = Running(first.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let began = Instant::now();
    let wait = |name: &str| {
        while !machine.srd(&["card", "status", &own(name)]).status.success() {
            assert!(began.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(50));
        }
    };
    wait("a");
    let mut second =
        machine.command(&["run", "--name", &own("b"), "--", "sh", "-c", "read line; exit 7"]);
    second.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut second = second.spawn().unwrap();
    wait("b");
    let pids = || must(&format!("netns pids {}", machine.instance("a")));
    while pids().trim().is_empty() {
        assert!(began.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(50));
    }
    first.end(Signal::TERM);
    second.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let output = second.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("is not known"), "{said}");
}

/// What was in force before is in force again, outside, too.
#[test]
fn regression_a_file_that_cannot_be_applied_changes_nothing() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("w");
    let file = machine.example("vpc.toml", |text| text);
    must(&format!("-n {} route add 198.51.100.77/32 dev lo", machine.namespace));
    let before = machine.facts();
    let mut card = machine.up(&[&file, "--internet"]);
    let during = machine.facts();
    let in_use = machine.example("in_use.toml", |text| {
        // One address goes, one comes, and one is in use.
        let text = text.replace("198.51.100.5\"", "198.51.100.6\"");
        text.replace("198.51.100.10\"", "198.51.100.77\"").replace("tcp 443", "tcp 444")
    });
    let many = machine.example("many.toml", |text| {
        let of = |n: u8| {
            let instance = format!("{}web", machine.prefix);
            format!(
                "[interface.more{n}]\nsubnet = \"web\"\naddress = [\"10.0.1.{n}\"]\n\
                 groups = [\"web\"]\ninstance = \"{instance}\"\ndevice_index = {n}\n"
            )
        };
        text + &(20..30).map(of).collect::<String>()
    });
    for (file, says) in [(in_use, "198.51.100.77 is in use"), (many, "at most")] {
        let output = machine.srd(&["card", "apply", &file]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(says), "{said}");
        assert_eq!(machine.facts(), during);
        let web = listen(&machine.instance("web"), 443);
        connect(&machine.namespace, WEB_PUBLIC, 443).unwrap();
        drop(web);
    }
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(machine.facts(), before);
}

/// A cloud on two hosts.
fn two_hosts(machine: &Machine) -> String {
    let text = "
        [vpc.main]
        cidr = ['10.0.0.0/16']
        [acl.open]
        ingress = ['100 allow all from 0.0.0.0/0']
        egress = ['100 allow all to 0.0.0.0/0']
        [subnet.s]
        cidr = '10.0.1.0/24'
        acl = 'open'
        [group.g]
        ingress = ['tcp 5000 from 10.0.0.0/16', 'icmp from 10.0.0.0/16']
        egress = ['all to 0.0.0.0/0']
        [instance.Pa]
        type = 'c7i.large'
        host = 'alpha'
        [instance.Pb]
        type = 'c7i.large'
        host = 'beta'
        [interface.a]
        subnet = 's'
        address = ['10.0.1.10']
        groups = ['g']
        instance = 'Pa'
        [interface.b]
        subnet = 's'
        address = ['10.0.1.11']
        groups = ['g']
        instance = 'Pb'";
    let text = text.replace('\'', "\"").replace(".P", &format!(".{}", machine.prefix));
    let text = text.replace("\"P", &format!("\"{}", machine.prefix));
    let path = machine.path("two.toml");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A megabyte of a pattern from one instance to another arrives byte for byte.
fn carries_a_megabyte(from: &str, to: &str, address: [u8; 4]) {
    let listener = listen(to, 5000);
    let mut client = connect(from, address, 5000).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let sent: Vec<u8> =
        (0..1_000_000_u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
    let copy = sent.clone();
    let writer = thread::spawn(move || client.write_all(&copy));
    let mut received = Vec::new();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    server.read_to_end(&mut received).unwrap();
    writer.join().unwrap().unwrap();
    assert!(received == sent, "{} bytes of {}", received.len(), sent.len());
}

#[test]
fn instances_of_two_hosts_meet_over_a_plain_network_if_it_is_asked_for() {
    if !ready_with_nsenter() {
        return;
    }
    let [alpha, beta] = [Machine::new("h"), Machine::new("i")];
    let file = two_hosts(&alpha);
    let of_beta = two_hosts(&beta);
    let text = fs::read_to_string(&file).unwrap();
    let prefix = |m: &Machine, n: &str| format!("{}{n}", m.prefix);
    // Both files name the instances alike.
    fs::write(&of_beta, &text).unwrap();
    let (a, b) = (&alpha.namespace, &beta.namespace);
    must(&format!("link add v0 netns {a} mtu 1500 type veth peer name v0 netns {b} mtu 1500"));
    for (machine, address) in [(a, "198.18.0.1/24"), (b, "198.18.0.2/24")] {
        must(&format!("-n {machine} addr add {address} dev v0"));
        must(&format!("-n {machine} link set v0 up"));
    }
    let words =
        |host, own, other: &'static str| ["--host", host, "--underlay", own, "--peer", other];
    let of_alpha = words("alpha", "198.18.0.1", "beta=198.18.0.2");
    let refused = alpha.srd(&[&["card", "up", &file][..], &of_alpha].concat());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no overlay"), "{refused:#?}");
    let _alpha = alpha.up(&[&[&*file, "--plain"][..], &of_alpha].concat());
    let of_beta_words = words("beta", "198.18.0.2", "alpha=198.18.0.1");
    let _beta = beta.up(&[&[&*of_beta, "--plain"][..], &of_beta_words].concat());
    let instance = |name| format!("srd-i-{}", prefix(&alpha, name));
    carries_a_megabyte(&instance("a"), &instance("b"), [10, 0, 1, 11]);
    carries_a_megabyte(&instance("b"), &instance("a"), [10, 0, 1, 10]);
    let refused = connect(&instance("a"), [10, 0, 1, 11], 80);
    assert!(refused.is_err(), "no rule allows port 80");
    let drops = beta.json(&["card", "status", &prefix(&alpha, "b")]);
    let dropped = &drops["instances"][0]["interfaces"][0]["drops"]["GroupsIn"];
    assert!(dropped.as_u64().unwrap() > 0, "the receiver's host refuses: {drops}");
    // Somebody else on the same wire speaks for the instance on alpha.
    must(&format!("-n {a} addr add 198.18.0.77/24 dev v0"));
    let forged = within(a, || std::net::UdpSocket::bind(("198.18.0.77", 6081)).unwrap());
    forged.send_to(&[0; 100], ("198.18.0.2", 6081)).unwrap();
    let began = Instant::now();
    while beta.json(&["card", "status"])["drops"]["lost: a stranger's"] != 1 {
        assert!(began.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(50));
    }
}

/// The overlay of `srd up` between two machines carries the cloud: encrypted, by SRD, over all
/// paths.
#[test]
fn instances_of_two_hosts_meet_over_srd() {
    if !ready_with_nsenter() {
        return;
    }
    let mut pair = Pair::new("vpc");
    for end in [0, 1] {
        pair.configure(end, &Settings::OVERLAY);
        pair.start(end);
    }
    pair.wait_for_express();
    let [alpha, beta] = [0, 1].map(|end| Machine::at("o", &pair.names[end]));
    let file = two_hosts(&alpha);
    let _alpha = alpha.up(&[
        &file,
        "--host",
        "alpha",
        "--underlay",
        "10.77.0.1",
        "--peer",
        "beta=10.77.0.2",
    ]);
    let _beta =
        beta.up(&[&file, "--host", "beta", "--underlay", "10.77.0.2", "--peer", "alpha=10.77.0.1"]);
    let before = pair.counter(0, "ena_srd_tx_pkts");
    carries_a_megabyte(&alpha.instance("a"), &alpha.instance("b"), [10, 0, 1, 11]);
    let by_srd = pair.counter(0, "ena_srd_tx_pkts") - before;
    assert!(by_srd > 100, "{by_srd} packets rode SRD");
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_made() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("e");
    let before = machine.facts();
    let name = format!("{}x", machine.prefix);
    for (words, says) in [
        (&["--type", "c7i.lrage"][..], "did you mean c7i.large"),
        (&["--subnet", "nowhere"], "no subnet `nowhere`"),
        (&["--group", "nobody"], "no group `nobody`"),
        (&["--peer-of", "ghost"], "no instance `ghost`"),
        (&["--vpc", "/nonexistent.toml"], "cannot be read"),
        (&["--scale", "1/0"], "1/N"),
    ] {
        let all = [&["run", "--name", &name], words, &["--", "true"]].concat();
        let output = machine.srd(&all);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(says), "{words:?}: {said}");
    }
    assert_eq!(machine.facts(), before);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}
