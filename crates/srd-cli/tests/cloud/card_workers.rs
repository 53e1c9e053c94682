//! Several workers: threads that move packets, each with some of the instances. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs;
use std::io::Write;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::process::Stdio;

use crate::support::cloud_text::{self, Instance};
use crate::support::hosts::{Hosts, NAMES, carries_a_megabyte};
use crate::support::machine::*;
use crate::support::pair::must;
use rustix::process::Signal;
use serde_json::Value;

/// Returns the time in nanoseconds for which each worker of a card has run.
fn ran(card: &Running) -> Vec<u64> {
    threads_ran(card, |name| name.starts_with("srd-worker-"))
}

/// A TCP connection with its two ends.
struct Connection(TcpStream, TcpStream);

impl Connection {
    fn open(from: &str, to: [u8; 4], at: &TcpListener) -> Self {
        let client = connect(from, to, at.local_addr().unwrap().port()).unwrap();
        Self(client, at.accept().unwrap().0)
    }

    fn passes(&mut self) {
        let Self(client, server) = self;
        assert!(passes(client, server) && passes(server, client));
    }
}

fn names(status: &Value) -> Vec<&str> {
    let instances = status["instances"].as_array().unwrap();
    instances.iter().map(|of| of["name"].as_str().unwrap()).collect()
}

/// The two instances of the example belong to two workers. Connections between them, from the
/// internet, and through the NAT gateway work, and follow changes of the rules and a take-over.
#[test]
fn instances_of_several_workers_talk_and_each_change_reaches_all_workers() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("wka");
    let before = machine.facts();
    let file = machine.example("vpc.toml", |text| text);
    let refused = machine.srd(&["card", "up", &file, "--workers", "9"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:#?}");
    let words = [file.as_str(), "--internet", "--workers", "2"];
    let mut card = machine.up(&words);
    let (web, app) = (machine.instance("web"), machine.instance("app"));
    let outside = machine.namespace.clone();
    let began = ran(&card);
    assert_eq!(began.len(), 2);

    let https = listen(&web, 443);
    let far = listen(&outside, 9999);
    let mut all = vec![
        Connection::open(&app, WEB, &https),
        Connection::open(&outside, WEB_PUBLIC, &https),
        // The packets leave with the address of the NAT gateway.
        Connection::open(&app, OUTSIDE, &far),
    ];
    assert_eq!(all[2].1.peer_addr().unwrap().ip(), IpAddr::from(NAT_PUBLIC));
    for _ in 0..50 {
        all.iter_mut().for_each(Connection::passes);
    }
    assert!(connect_in_vain(&app, WEB, 80).is_err(), "no rule allows port 80");
    let now = ran(&card);
    assert!(now.iter().zip(&began).all(|(now, began)| now > began), "{now:?} {began:?}");

    let status = machine.json(&["card", "status"]);
    let [of_app, of_web] = ["app", "web"].map(|name| format!("{}{name}", machine.prefix));
    assert_eq!(names(&status), [of_app.as_str(), &of_web]);
    let [one, other] = [0, 1].map(|at| status["instances"][at]["worker"].as_u64().unwrap());
    assert_eq!((status["workers"].as_u64(), one + other, one * other), (Some(2), 1, 0), "{status}");
    let shown = machine.srd(&["card", "status"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains(", worker 0\n") && shown.contains(", worker 1\n"), "{shown}");
    assert!(status["drops"].get("lost: to another worker").is_none(), "{status}");
    for name in ["app", "web"] {
        assert!(machine.counter(name, "rx_packets") > 100, "{name}");
        assert!(machine.counter(name, "tx_packets") > 100, "{name}");
        let flows = machine.json(&["card", "flows", &format!("{}{name}", machine.prefix)]);
        assert!(!flows.as_array().unwrap().is_empty(), "{flows}");
    }
    assert!(machine.drops(&of_web, "security groups in") > 0, "{status}");

    // Another file: the worker of each instance has its rules when the command returns.
    let closed = machine.example("closed.toml", |text| {
        text.replace(
            "ingress = [\"tcp 443 from 0.0.0.0/0\"",
            "ingress = [\"tcp 8443 from 0.0.0.0/0\"",
        )
    });
    let applied = machine.srd(&["card", "apply", &closed]);
    assert!(applied.status.success(), "{applied:#?}");
    assert!(connect_in_vain(&app, WEB, 443).is_err());
    // A file that names an unknown type changes nothing at any worker.
    let wrong = machine.example("wrong.toml", |text| text.replacen("c7i.large", "c7i.lrage", 1));
    let applied = machine.srd(&["card", "apply", &wrong]);
    assert!(!applied.status.success(), "{applied:#?}");
    let applied = machine.srd(&["card", "apply", &file]);
    assert!(applied.status.success(), "{applied:#?}");
    all.push(Connection::open(&app, WEB, &https));

    // An instance that is added for a command.
    let added = format!("{}run", machine.prefix);
    let run = ["run", "--name", &added, "--peer-of", &of_web, "--"];
    let ping = ["ping", "-c", "3", "-i", "0.2", "-W", "5", "10.0.1.10"];
    let ran_program = machine.srd(&[&run[..], &ping].concat());
    assert!(ran_program.status.success(), "{ran_program:#?}");
    wait_until("the end of the instance", || {
        !names(&machine.json(&["card", "status"])).contains(&added.as_str())
    });

    // A process with another number of workers cannot take over, and one with the same can.
    let other = [&["card", "up", "--take-over"], &words[..3], &["3"]].concat();
    let said = String::from_utf8(machine.srd(&other).stderr).unwrap();
    assert!(said.contains("other values of workers than the process that runs"), "{said}");
    let sent = machine.counter("app", "tx_packets");
    let mut next = machine.take_over(&mut card, &words);
    assert_eq!(ran(&next).len(), 2);
    all.iter_mut().for_each(Connection::passes);
    assert!(machine.counter("app", "tx_packets") > sent);
    assert_eq!(names(&machine.json(&["card", "status"])).len(), 2);
    assert_eq!(next.end(Signal::TERM), 0);
    assert_eq!(machine.facts(), before, "everything is given back");
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

/// A card with several workers that is killed leaves nothing, and the next one begins anew.
#[test]
fn a_card_with_several_workers_that_is_killed_leaves_nothing() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("wkb");
    let before = machine.facts();
    let file = machine.example("vpc.toml", |text| text);
    let words = [file.as_str(), "--internet", "--workers", "3"];
    for _ in 0..2 {
        let mut card = machine.up(&words);
        let https = listen(&machine.instance("web"), 443);
        Connection::open(&machine.instance("app"), WEB, &https).passes();
        card.0.kill().unwrap();
        card.0.wait().unwrap();
        drop(https);
        wait_until("everything to be given back", || {
            machine.facts() == before && machine.instances_left().is_empty()
        });
    }
}

/// A worker had removed an instance before another worker reported that it cannot make an instance,
/// and the removed one, in whose namespace a program ran, could not be made again.
#[test]
fn regression_a_file_that_one_worker_refuses_ends_no_instance_of_another_one() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("wke");
    let before = machine.facts();
    let instance = |(name, interface, kind, last)| {
        let (host, lines) = ("", "");
        Instance { name, interface, kind, host, last, lines }
    };
    let file = |name: &str, instances: &[(&'static str, &'static str, &'static str, u8)]| {
        let instances: Vec<Instance<'_>> = instances.iter().copied().map(instance).collect();
        machine.cloud(name, &cloud_text::cloud("main", RULES, &instances))
    };
    let [a, b] = [("Pa", "a", "c7i.2xlarge", 10), ("Pb", "b", "c7i.4xlarge", 11)];
    let [c, d] = [("Pc", "c", "c7i.large", 12), ("Pd", "d", "c7i.large", 13)];
    // A new instance gets the worker with the fewest vCPUs: `c` that of `a`, and `d` that of `b`.
    let mut card = machine.up(&[&file("a.toml", &[a]), "--workers", "2"]);
    let apply = |file: &str| machine.srd(&["card", "apply", file]);
    for file in [file("ab.toml", &[a, b]), file("abc.toml", &[a, b, c])] {
        let applied = apply(&file);
        assert!(applied.status.success(), "{applied:#?}");
    }
    let running = || {
        let status = machine.json(&["card", "status"]);
        names(&status).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let all = |of: &[&str]| -> Vec<String> {
        of.iter().map(|name| format!("{}{name}", machine.prefix)).collect()
    };
    let listener = listen(&machine.instance("a"), 5001);
    let mut connection = Connection::open(&machine.instance("c"), [10, 0, 1, 10], &listener);
    let in_c = sleeper(&machine.instance("c"));

    let taken = machine.instance("d");
    must(&format!("netns add {taken}"));
    let in_d = sleeper(&taken);
    let without = file("ad.toml", &[a, d]);
    for _ in 0..2 {
        let refused = apply(&without);
        assert!(!refused.status.success(), "{refused:#?}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains(&taken), "{refused:#?}");
        assert_eq!(running(), all(&["a", "b", "c"]));
        connection.passes();
    }
    drop((in_c, in_d));
    must(&format!("netns del {taken}"));
    let applied = apply(&without);
    assert!(applied.status.success(), "{applied:#?}");
    assert_eq!(running(), all(&["a", "d"]));
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(machine.facts(), before);
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

const RULES: &str = "'all from 10.0.0.0/16'";

/// Two hosts with different numbers of workers, and three instances on each.
fn hosts(tag: &str) -> Hosts {
    let hosts = Hosts::new(tag, 1500);
    let instance = |(name, interface, host, last)| Instance {
        name,
        interface,
        kind: "c7i.large",
        host,
        last,
        lines: "",
    };
    let instances = [
        ("Pa", "a", NAMES[0], 10),
        ("Pb", "b", NAMES[0], 11),
        ("Pc", "c", NAMES[0], 12),
        ("Pd", "d", NAMES[1], 13),
        ("Pe", "e", NAMES[1], 14),
        ("Pf", "f", NAMES[1], 15),
    ];
    let text = cloud_text::cloud("main", RULES, &instances.map(instance));
    let file = hosts.machines[0].cloud("six.toml", &text);
    hosts.configure(&file, "");
    for (end, workers) in [(0, 2), (1, 3)] {
        let line = format!("mode = \"cloud\"\nworkers = {workers}\n");
        hosts.edit(end, |text| {
            let others = text.lines().filter(|line| !line.starts_with("workers"));
            let text: String = others.map(|line| format!("{line}\n")).collect();
            text.replace("mode = \"cloud\"\n", &line)
        });
    }
    hosts
}

/// Each instance reaches each other one: at the same worker, at another worker of its host, and at
/// each worker of the other host, whose sessions are with other workers.
#[test]
fn instances_of_two_hosts_with_different_numbers_of_workers_meet() {
    if !ready_with_nsenter() {
        return;
    }
    let hosts = hosts("wkc");
    let mut cards = hosts.both_up();
    assert_eq!(cards.each_ref().map(|card| ran(card).len()), [2, 3]);
    let all = ["a", "b", "c", "d", "e", "f"].map(|name| hosts.instance(name));
    let address = |last: usize| [10, 0, 1, 10 + u8::try_from(last).unwrap()];
    for (from, one) in all.iter().enumerate() {
        for (to, other) in all.iter().enumerate().filter(|(to, _)| *to != from) {
            let listener = listen(other, 5001);
            Connection::open(one, address(to), &listener).passes();
        }
    }
    carries_a_megabyte(&all[1], &all[4], address(4));
    carries_a_megabyte(&all[5], &all[0], address(0));
    carries_a_megabyte(&all[0], &all[1], address(1));
    for end in [0, 1] {
        let other = hosts.other(end);
        assert_eq!(other["name"], NAMES[1 - end]);
        assert!(other["up"] == true && other["silent"] == false, "{other}");
        for key in ["sent_frames", "received_frames"] {
            assert!(other[key].as_u64().unwrap() > 100, "{key} {other}");
        }
        let status = hosts.machines[end].json(&["card", "status"]);
        assert_eq!(names(&status).len(), 3);
        assert!(status["drops"].get("lost: to another worker").is_none(), "{status}");
    }

    // A reload without a change reaches all workers, and connections stay.
    let listener = listen(&all[4], 5002);
    let mut stays = Connection::open(&all[1], address(4), &listener);
    let reloaded = hosts.machines[0].srd(&["reload"]);
    assert!(reloaded.status.success(), "{reloaded:#?}");
    stays.passes();
    // The other host restarts after it was killed, and sessions of all workers begin anew.
    cards[1].0.kill().unwrap();
    cards[1].0.wait().unwrap();
    cards[1] = hosts.up(1);
    hosts.wait_for_session(0);
    for (from, to) in [(0, 3), (1, 4), (2, 5), (0, 5)] {
        let listener = listen(&all[to], 5003);
        Connection::open(&all[from], address(to), &listener).passes();
    }
    // A take-over keeps sessions and connections of instances at all workers.
    let listener = listen(&all[5], 5004);
    let mut between_hosts = Connection::open(&all[2], address(5), &listener);
    let listener = listen(&all[1], 5004);
    let mut between_workers = Connection::open(&all[0], address(1), &listener);
    let [first, _] = &mut cards;
    let next = hosts.take_over(0, first);
    assert_eq!(ran(&next).len(), 2);
    between_hosts.passes();
    between_workers.passes();
    cards[0] = next;
    for card in &mut cards {
        assert_eq!(card.end(Signal::TERM), 0);
    }
    assert_eq!(hosts.machines[0].instances_left(), Vec::<String>::new());
}

/// A trace of all instances has the packets of all workers. A flow log has the records of all
/// interfaces.
#[test]
fn traces_and_flow_logs_contain_the_packets_of_all_workers() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("wkd");
    let directory = machine.path("logs").to_str().unwrap().to_owned();
    let log = format!("[flow_log.all]\nvpc = \"main\"\ndirectory = {directory:?}\n");
    let file = machine.example("vpc.toml", |text| format!("{text}{log}"));
    let mut card = machine.up(&[&file, "--workers", "2"]);
    let (web, app) = (machine.instance("web"), machine.instance("app"));
    let path = machine.path("trace.json");
    let words = ["card", "trace", "any", "tcp", "dst", "port", "443", "--json"];
    let words = [&words[..], &[path.to_str().unwrap()]].concat();
    let log = fs::File::create(machine.path("trace.log")).unwrap();
    let mut command = machine.command(&words);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let mut trace = Running(command.spawn().unwrap());
    wait_until("the trace", || {
        fs::read_to_string(machine.path("trace.log")).unwrap().contains("following packets")
    });
    let https = listen(&web, 443);
    let mut connection = Connection::open(&app, WEB, &https);
    connection.passes();
    let received = || {
        let text = fs::read_to_string(&path).unwrap_or_default();
        text.matches("\"is_egress\":false").count()
    };
    wait_until("packets at their receiver", || received() >= 3);
    assert_eq!(trace.end(Signal::INT), 0);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // A packet has a line at its sender and one at its receiver, each of its own worker. The last
    // packet may not have arrived yet.
    let count = |is_egress: bool| lines.iter().filter(|of| of["is_egress"] == is_egress).count();
    assert!(count(false) >= 3 && count(true) >= count(false), "{text}");
    let of = |is_egress: bool| lines.iter().find(|line| line["is_egress"] == is_egress).unwrap();
    let next = &of(true)["end"]["gone"];
    assert!(next["kind"] == "host", "{text}");
    assert!(next["host"] == "here" || next["host"] == "here (worker 1)", "{text}");
    assert_eq!(of(false)["end"]["gone"]["kind"], "guest", "{text}");

    connection.0.write_all(b"more").unwrap();
    assert_eq!(card.end(Signal::TERM), 0);
    let records: String = fs::read_dir(&directory)
        .unwrap()
        .map(|file| fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    for interface in ["10.0.1.10 10.0.2.10", "10.0.2.10 10.0.1.10"] {
        let accepted = records.lines().filter(|line| line.contains(interface));
        // One record for each direction at each of the two interfaces.
        assert!(accepted.filter(|line| line.contains("ACCEPT")).count() >= 2, "{records}");
    }
}
