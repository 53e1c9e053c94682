//! `srd up --take-over` of a node with instances: connections of guests and of the interface
//! survive. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::node::{OVERLAY, configure, facts_with_addresses, node, up, with_overlay, without_keys};
use super::privileges::{has_no_privilege, tell};
use super::take_over::each_packet_is_counted_once;
use crate::support::cloud_text::{self, Instance};
use crate::support::hosts::{Hosts, carries_a_megabyte};
use crate::support::machine::*;
use crate::support::successor::{Successor, VERSION};

/// Longest time for which a take-over may delay packets. A busy machine may delay them for longer,
/// so one of several take-overs has to keep this limit.
const SILENCE_MAX: Duration = Duration::from_millis(1500);
/// Maximum number of take-overs, of which one has to keep [`SILENCE_MAX`] for each connection.
const TAKE_OVERS_MAX: usize = 12;
const RULES: &str = "'all from 10.0.0.0/16'";
const A: [u8; 4] = [10, 0, 1, 10];
const B: [u8; 4] = [10, 0, 1, 11];

/// Returns two machines with nodes: the instances `a` and `c` on the first machine, `b` on the
/// second, and an overlay. `lines` are added to the tables `[cloud]`.
fn nodes(tag: &str, lines: &str) -> Hosts {
    let hosts = Hosts::new(tag, 1500);
    let instance = |name, interface, host, last| {
        let (kind, lines) = ("c7i.24xlarge", "");
        Instance { name, interface, kind, host, last, lines }
    };
    let instances = [
        instance("Pa", "a", "alpha", 10),
        instance("Pb", "b", "beta", 11),
        instance("Pc", "c", "alpha", 12),
    ];
    let text = cloud_text::cloud("main", RULES, &instances);
    let file = hosts.machines[0].cloud("three.toml", &text);
    configure(&hosts, &file, lines);
    with_overlay(&hosts);
    hosts
}

fn take_over_command(hosts: &Hosts, end: usize) -> Command {
    let mut command = node(&hosts.machines[end], &hosts.config(end));
    command.arg("--take-over").stdin(Stdio::null());
    command
}

/// Makes another process take over from a node, and waits until the process has done so and the
/// node has ended.
fn take_over(hosts: &Hosts, end: usize, old: &mut Running) -> Running {
    let path = hosts.machines[end].path("next.log");
    // A node that was taken over before may still write to its log.
    let _ = fs::remove_file(&path);
    let log = File::create(&path).unwrap();
    let mut command = take_over_command(hosts, end);
    let mut next = Running(command.stderr(log).spawn().unwrap());
    let said = || fs::read_to_string(&path).unwrap();
    let began = Instant::now();
    let status = loop {
        let has_failed = next.0.try_wait().unwrap().is_some();
        assert!(!has_failed && began.elapsed() < PATIENCE, "{}", said());
        match old.0.try_wait().unwrap() {
            Some(status) if said().contains("took over") => break status,
            _ => thread::sleep(Duration::from_millis(10)),
        }
    };
    assert_eq!(status.code(), Some(0), "the node before");
    next
}

/// Runs `srd up --take-over`, which must fail, and returns its error.
fn refused(hosts: &Hosts, end: usize) -> String {
    let Output { status, stderr, .. } = take_over_command(hosts, end).output().unwrap();
    assert!(!status.success());
    String::from_utf8(stderr).unwrap()
}

/// A TCP connection whose two ends answer each other all the time.
struct RoundTrips {
    ends: Arc<AtomicBool>,
    /// Longest round trip since the last look, in milliseconds.
    longest_ms: Arc<AtomicU64>,
    answers: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl RoundTrips {
    fn start(from: &str, to: &str, address: [u8; 4], port: u16) -> Self {
        let listener = listen(to, port);
        let client = connect(from, address, port).unwrap();
        let (server, _) = listener.accept().unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let [longest_ms, answers] = [0, 0].map(|_| Arc::new(AtomicU64::new(0)));
        let (over, longest, count) = (ends.clone(), longest_ms.clone(), answers.clone());
        let threads = vec![
            thread::spawn(move || echo(server)),
            thread::spawn(move || ask(client, &over, &longest, &count)),
        ];
        Self { ends, longest_ms, answers, threads }
    }

    /// Waits until packets have passed again.
    fn passes(&self) {
        let before = self.answers.load(Ordering::Relaxed);
        wait_until("answers", || {
            let has_ended = self.threads.iter().any(JoinHandle::is_finished);
            assert!(!has_ended, "the connection has ended");
            self.answers.load(Ordering::Relaxed) > before + 3
        });
    }

    /// Returns the longest round trip since the last call.
    fn silence(&self) -> Duration {
        Duration::from_millis(self.longest_ms.swap(0, Ordering::Relaxed))
    }

    fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn echo(mut stream: TcpStream) {
    let mut bytes = [0; 8];
    while stream.read_exact(&mut bytes).is_ok() {
        stream.write_all(&bytes).unwrap();
    }
}

fn ask(mut stream: TcpStream, over: &AtomicBool, longest_ms: &AtomicU64, answers: &AtomicU64) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    while !over.load(Ordering::Relaxed) {
        let (number, began) = (answers.load(Ordering::Relaxed), Instant::now());
        stream.write_all(&number.to_ne_bytes()).expect("the connection has ended");
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).expect("the connection has ended");
        assert_eq!(u64::from_ne_bytes(answer), number);
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap();
        longest_ms.fetch_max(took_ms, Ordering::Relaxed);
        answers.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(2));
    }
}

/// Starts a connection between two hosts, one inside of the first host, and one through the
/// overlay.
fn lines(hosts: &Hosts) -> [RoundTrips; 3] {
    let [a, b, c] = ["a", "b", "c"].map(|name| hosts.instance(name));
    let [first, second] = hosts.machines.each_ref().map(|machine| machine.namespace.as_str());
    [
        RoundTrips::start(&a, &b, B, 6001),
        RoundTrips::start(&c, &a, A, 6002),
        RoundTrips::start(first, second, OVERLAY[1], 6003),
    ]
}

fn all_pass(lines: &[RoundTrips; 3]) {
    lines.iter().for_each(RoundTrips::passes);
}

#[test]
fn connections_live_while_a_node_is_taken_over_three_times_and_nothing_is_left() {
    if !ready_with_nsenter() {
        return;
    }
    let hosts = nodes("nt", "internet = true");
    let machine = &hosts.machines[0];
    let before = facts_with_addresses(machine);
    let mut first = up(&hosts, 0);
    let mut second = up(&hosts, 1);
    (0..2).for_each(|end| hosts.wait_for_session(end));
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", first.0.id()));
    let lines = lines(&hosts);
    all_pass(&lines);
    let counters = ["tx_packets", "rx_packets", "tx_bytes", "rx_bytes"];
    let counts = || counters.map(|name| hosts.counter(0, "a", name));
    let mut silences = Vec::new();
    let are_short = |all: &[[Duration; 3]]| {
        (0..3).all(|at| all.iter().any(|silences| silences[at] < SILENCE_MAX))
    };
    while silences.len() < 3 || (!are_short(&silences) && silences.len() < TAKE_OVERS_MAX) {
        for line in &lines {
            line.silence();
        }
        let sent = counts();
        first = take_over(&hosts, 0, &mut first);
        all_pass(&lines);
        silences.push(lines.each_ref().map(RoundTrips::silence));
        let now = counts();
        assert!(now.iter().zip(sent).all(|(now, before)| *now > before), "{now:?} {sent:?}");
        has_no_privilege(first.0.id());
    }
    println!("longest round trips of the connections: {silences:?}");
    assert!(are_short(&silences), "{silences:?}");
    // The processes of the first node go on.
    for child in children.unwrap().split_whitespace() {
        assert!(fs::exists(format!("/proc/{child}/exe")).unwrap());
    }
    let mut other = take_over(&hosts, 1, &mut second);
    all_pass(&lines);
    hosts.wait_for_session(0);
    let [a, b] = ["a", "b"].map(|name| hosts.instance(name));
    carries_a_megabyte(&a, &b, B);
    lines.into_iter().for_each(RoundTrips::end);
    assert_eq!((first.end(Signal::TERM), other.end(Signal::TERM)), (0, 0));
    assert_eq!(machine.facts(), before, "everything is given back");
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

/// The helper gives back what the first process has created, when the process that has taken over
/// is killed. A process that starts afterwards waits for this.
#[test]
fn a_node_that_took_over_and_is_killed_leaves_nothing() {
    if !ready_with_nsenter() {
        return;
    }
    let hosts = nodes("nv", "internet = true");
    let machine = &hosts.machines[0];
    let before = facts_with_addresses(machine);
    let mut first = up(&hosts, 0);
    let helper = helper_of(&first);
    let mut next = take_over(&hosts, 0, &mut first);
    let line = RoundTrips::start(&hosts.instance("c"), &hosts.instance("a"), A, 6002);
    line.passes();
    line.end();
    assert!(fs::exists(format!("/proc/{helper}/exe")).unwrap(), "the helper goes on");
    // Its messages stayed in the log of the first process, which may be a closed terminal.
    let output = fs::read_link(format!("/proc/{helper}/fd/2")).unwrap();
    assert_eq!(output, machine.path("next.log"));
    next.end(Signal::KILL);
    wait_until("the end of what the node had", || {
        machine.facts() == before && machine.instances_left().is_empty()
    });
    let mut again = up(&hosts, 0);
    let last = take_over(&hosts, 0, &mut again);
    // Both processes of a hand-over are killed before it is complete: the helper has two
    // connections.
    let mut silent = begun(machine);
    go(&mut silent);
    tell(last.0.id(), Signal::KILL);
    drop(silent);
    wait_until("the end of what the node had", || {
        machine.facts() == before && machine.instances_left().is_empty()
    });
}

/// Returns the process number of the helper of a node that has not been taken over.
fn helper_of(node: &Running) -> u32 {
    let children = format!("/proc/{0}/task/{0}/children", node.0.id());
    let text = fs::read_to_string(children).unwrap();
    let is_helper = |pid: &&str| {
        let command = fs::read_to_string(format!("/proc/{pid}/cmdline"));
        command.is_ok_and(|command| command.contains("card-helper"))
    };
    text.split_whitespace().find(is_helper).unwrap().parse().unwrap()
}

/// Starts a process that requests the hand-over, and has got the state of the node.
pub(super) fn begun(machine: &Machine) -> Successor {
    let mut successor = Successor::requests(Path::new(&machine.socket()), VERSION);
    assert!(successor.line().starts_with("{\"ok\":"));
    successor
}

/// Lets the process get the state of the card. Returns the line of the node.
pub(super) fn go(successor: &mut Successor) -> String {
    successor.say("ready");
    let line = successor.line();
    assert!(line.starts_with("go "), "{line}");
    line
}

#[test]
fn a_node_whose_successor_fails_goes_on_as_before() {
    if !ready_with_nsenter() {
        return;
    }
    let hosts = nodes("nx", "");
    let machine = &hosts.machines[0];
    let mut first = up(&hosts, 0);
    let _second = up(&hosts, 1);
    (0..2).for_each(|end| hosts.wait_for_session(end));
    let lines = lines(&hosts);
    all_pass(&lines);
    let refusal = Successor::requests(Path::new(&machine.socket()), 999).line();
    assert!(refusal.contains("reads form 999: restart the daemon"), "{refusal}");
    // The process ends when it has the connection to the helper, and after the node has stopped.
    // This happens more often than the helper has places for connections.
    for _ in 0..5 {
        drop(begun(machine));
        all_pass(&lines);
        let mut dies = begun(machine);
        let go = go(&mut dies);
        let count: usize = go.strip_prefix("go ").unwrap().parse().unwrap();
        assert!(count > 2, "the state, and the devices of two instances: {go}");
        drop(dies);
        all_pass(&lines);
    }
    // The process gets the state of the card, and sends nothing. No packet moves meanwhile, and
    // none is lost. The process does not end, and the node continues.
    let mut silent = begun(machine);
    go(&mut silent);
    assert!(silent.line().contains("continues as before"));
    all_pass(&lines);
    drop(silent);
    rules_that_a_take_over_would_replace_are_refused(&hosts);
    settings_that_no_take_over_changes_are_refused(&hosts);
    all_pass(&lines);
    first = take_over(&hosts, 0, &mut first);
    all_pass(&lines);
    lines.into_iter().for_each(RoundTrips::end);
    assert_eq!(first.end(Signal::TERM), 0);
    assert!(refused(&hosts, 0).contains("no daemon serves"));
}

/// Rules that were confirmed after the other process had read the file ended with the node.
fn rules_that_a_take_over_would_replace_are_refused(hosts: &Hosts) {
    let machine = &hosts.machines[0];
    let file = machine.path("three.toml");
    let apply = || machine.srd(&["card", "apply", file.to_str().unwrap()]);
    assert!(apply().status.success());
    let taker = begun(machine);
    let Output { status, stderr, .. } = apply();
    let refusal = String::from_utf8(stderr).unwrap();
    assert!(!status.success() && refusal.contains("is being taken over"), "{refusal}");
    drop(taker);
    wait_until("rules after the hand-over has failed", || apply().status.success());
}

fn settings_that_no_take_over_changes_are_refused(hosts: &Hosts) {
    let machine = &hosts.machines[0];
    let text = fs::read_to_string(hosts.config(0)).unwrap();
    let with = |from: &str, to: &str| {
        assert!(text.contains(from), "{text}");
        fs::write(hosts.config(0), text.replace(from, to)).unwrap();
        refused(hosts, 0)
    };
    for (line, key) in [
        ("internet = true\n", "internet"),
        ("[cloud.vhost_user]\nx = \"/run/x.sock\"\n", "vhost_user"),
    ] {
        let refusal = with("[[peer]]", &format!("{line}[[peer]]"));
        assert!(refusal.contains(&format!("other values of {key} than")), "{refusal}");
    }
    let refusal = with("host = \"alpha\"", "host = \"other\"");
    assert!(refusal.contains("other values of host than"), "{refusal}");
    // An error in the file of the cloud.
    let missing = with("three.toml", "missing.toml");
    assert!(missing.contains("missing.toml"), "{missing}");
    fs::write(hosts.config(0), &text).unwrap();
    let name = format!("{}run", machine.prefix);
    let peer = format!("{}a", machine.prefix);
    let run = ["run", "--name", &name, "--peer-of", &peer, "--", "sleep", LONG_S];
    let held = Running(machine.command(&run).stderr(Stdio::null()).spawn().unwrap());
    wait_until("the instance", || machine.srd(&["card", "status", &name]).status.success());
    let refusal = refused(hosts, 0);
    assert!(refusal.contains("`srd run` holds the instance"), "{refusal}");
    drop(held);
    wait_until("its end", || !machine.srd(&["card", "status", &name]).status.success());
}

/// The process that a node of a unit starts has the user and the privileges of the node. It gets
/// the file of the cloud from the helper.
#[test]
fn a_node_of_a_unit_starts_its_successor_which_has_no_privilege() {
    if !ready_with_nsenter() {
        return;
    }
    let hosts = nodes("nw", "");
    without_keys(&hosts);
    let machine = &hosts.machines[0];
    let before = facts_with_addresses(machine);
    let file = machine.path("three.toml");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let path = machine.path("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
    systemd.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = || {
        let mut bytes = [0; 256];
        let length = systemd.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    };
    let mut command = node(machine, &hosts.config(0));
    command.env("NOTIFY_SOCKET", &path);
    let mut first = machine.up_by(command);
    let _second = up(&hosts, 1);
    assert!(told().starts_with("READY=1"));
    (0..2).for_each(|end| hosts.wait_for_session(end));
    let lines = lines(&hosts);
    let mut process = first.0.id();
    for _ in 0..2 {
        all_pass(&lines);
        let asks = take_over_command(&hosts, 0).stdout(Stdio::piped()).spawn();
        let named = told();
        let next: u32 = named.strip_prefix("MAINPID=").unwrap().parse().unwrap();
        assert_ne!(next, process);
        assert_eq!(told(), "BARRIER=1");
        let Output { status, stdout, .. } = asks.unwrap().wait_with_output().unwrap();
        let answer = String::from_utf8(stdout).unwrap();
        assert!(status.success() && answer.starts_with(&format!("process {next} of the unit")));
        assert!(told().starts_with("READY=1"));
        process = next;
        all_pass(&lines);
        has_no_privilege(process);
    }
    assert_eq!(first.0.wait().unwrap().code(), Some(0));
    // The user of the node may still not send requests about instances, and root may.
    assert!(machine.srd(&["card", "status"]).status.success());
    lines.into_iter().for_each(RoundTrips::end);
    tell(process, Signal::TERM);
    wait_until("the end of what the node had", || {
        machine.facts() == before && machine.instances_left().iter().all(|name| name.contains("-b"))
    });
}

/// Each packet is moved and counted by one of both processes. A packet that waits for a limit would
/// otherwise arrive twice.
#[test]
fn regression_each_packet_is_moved_and_counted_by_one_of_both_nodes() {
    if !ready_with_nsenter() {
        return;
    }
    let hosts = nodes("ny", "");
    let mut first = up(&hosts, 0);
    let (a, c) = (hosts.instance("a"), hosts.instance("c"));
    let counted = || hosts.counter(0, "a", "rx_packets");
    // Packets are sent before, between and after take-overs, of which some fail.
    let ends = [(c.as_str(), "10.0.1.12"), (a.as_str(), "10.0.1.10")];
    each_packet_is_counted_once(ends, counted, 6, |turn| {
        if turn % 2 == 1 {
            first = take_over(&hosts, 0, &mut first);
        } else {
            go(&mut begun(&hosts.machines[0]));
        }
    });
    assert_eq!(first.end(Signal::TERM), 0);
}
