//! `srd card up --take-over`: another process takes over a running card, and the connections of its
//! guests survive. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::node_take_over::{begun, go};
use crate::support::hosts::Hosts;
use crate::support::machine::*;
use crate::support::pair::must;
use crate::support::successor::Successor;
use rustix::process::Signal;

#[test]
fn connections_counters_and_the_duty_to_give_back_go_to_the_next_process() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("hha");
    let before = machine.facts();
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file, "--internet"]);
    let (web, app) = (machine.instance("web"), machine.instance("app"));
    let outside = machine.namespace.clone();

    // A tracked connection, an untracked one, and one through a NAT gateway.
    let https = listen(&web, 443);
    let mut inner = connect(&app, WEB, 443).unwrap();
    let (mut inner_end, _) = https.accept().unwrap();
    let mut client = connect(&outside, WEB_PUBLIC, 443).unwrap();
    let (mut client_end, _) = https.accept().unwrap();
    let far = listen(&outside, 9999);
    let mut out = connect(&app, OUTSIDE, 9999).unwrap();
    let (mut out_end, _) = far.accept().unwrap();
    for (a, b) in
        [(&mut inner, &mut inner_end), (&mut client, &mut client_end), (&mut out, &mut out_end)]
    {
        assert!(passes(a, b) && passes(b, a));
    }
    let counters = ["tx_packets", "rx_packets", "tx_bytes", "rx_bytes"];
    let sent = counters.map(|name| machine.counter("app", name));
    let times = || {
        let status = machine.json(&["card", "status"]);
        ["uptime_s", "began_unix_s"].map(|name| status[name].as_f64().unwrap())
    };
    let [uptime, began] = times();

    let mut next = machine.take_over(&mut card, &[&file, "--internet"]);
    for (a, b) in
        [(&mut inner, &mut inner_end), (&mut client, &mut client_end), (&mut out, &mut out_end)]
    {
        assert!(passes(a, b) && passes(b, a));
    }
    let now = counters.map(|name| machine.counter("app", name));
    assert!(now.iter().zip(sent).all(|(now, before)| *now > before), "{now:?} {sent:?}");
    let [uptime_now, began_now] = times();
    assert!(uptime_now > uptime && (began_now - began).abs() < 1.0, "{began} {began_now}");

    // A third process takes over. When it ends, it also removes what the first process created.
    let mut last = machine.take_over(&mut next, &[&file, "--internet"]);
    assert!(passes(&mut inner, &mut inner_end));
    assert_eq!(last.end(Signal::TERM), 0);
    assert_eq!(machine.facts(), before, "everything is given back");
    assert_eq!(machine.instances_left(), Vec::<String>::new());
}

/// A process requests the take-over and then ends, sends nothing, or uses another version. The card
/// continues as before.
#[test]
fn a_card_whose_successor_fails_goes_on_as_before() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("hhb");
    let before = machine.facts();
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file, "--internet"]);
    let (web, app) = (machine.instance("web"), machine.instance("app"));
    let https = listen(&web, 443);
    let mut inner = connect(&app, WEB, 443).unwrap();
    let (mut inner_end, _) = https.accept().unwrap();
    assert!(passes(&mut inner, &mut inner_end));

    let refusal = Successor::requests(Path::new(&machine.socket()), 999).line();
    assert!(refusal.contains("form 999: restart the daemon"), "{refusal}");
    // The new process gets the descriptors, and ends.
    drop(begun(&machine));
    assert!(passes(&mut inner, &mut inner_end));
    // The new process gets the state of the card as well, and ends.
    let stopped = || {
        let mut next = begun(&machine);
        go(&mut next);
        next
    };
    drop(stopped());
    assert!(passes(&mut inner, &mut inner_end));
    // The new process gets the state of the card, and then sends nothing.
    let mut silent = stopped();
    inner.write_all(b"late").unwrap();
    let mut late = [0; 4];
    inner_end.set_read_timeout(Some(PATIENCE)).unwrap();
    inner_end.read_exact(&mut late).unwrap();
    assert!(silent.line().contains("continues as before"));

    // A change that a take-over cannot make is refused, and has no effect.
    let refused = |words: &[&str]| {
        let output = machine.srd(&[&["card", "up", "--take-over"], words].concat());
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let said = refused(&[&file]);
    assert!(said.contains("other values of internet than the process that runs"), "{said}");
    // Regression: the new process had the default VPC, and ended all instances.
    let said = refused(&["--internet"]);
    assert!(said.contains("web), which end if it is taken over without FILE"), "{said}");
    let said = refused(&[&file, "--internet", "--host", "other"]);
    assert!(said.contains("other values of host than"), "{said}");
    let socket = format!("{}web={}", machine.prefix, machine.path("web.sock").display());
    let said = refused(&[&file, "--internet", "--vhost-user", &socket]);
    assert!(said.contains("other values of vhost_user than"), "{said}");
    // Regression: the error named no line and no remedy, and the exit code was 1.
    let bad = machine.example("bad.toml", |text| format!("{text}\n[oops]\n"));
    let empty = machine.example("empty.toml", |_| String::new());
    let missing = machine.path("missing.toml").display().to_string();
    for (file, says) in
        [(&bad, "unknown field"), (&empty, "is empty"), (&missing, "cannot be read")]
    {
        let output = machine.srd(&["card", "up", "--take-over", "--internet", file]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(says) && said.contains("remedy: "), "{said}");
    }
    // Regression: a file that was cut off before its instances ended them.
    let cut = |text: String| text.split("[instance.").next().unwrap().to_owned();
    let said = refused(&[&machine.example("cut.toml", cut), "--internet"]);
    assert!(said.contains("the file has no instances"), "{said}");
    assert!(passes(&mut inner, &mut inner_end) && passes(&mut inner_end, &mut inner));
    let name = format!("{}run", machine.prefix);
    let peer = format!("{}web", machine.prefix);
    let run = ["run", "--name", &name, "--peer-of", &peer, "--", "sleep", LONG_S];
    let held = Running(machine.command(&run).stderr(Stdio::null()).spawn().unwrap());
    wait_until("the instance", || machine.srd(&["card", "status", &name]).status.success());
    let said = refused(&[&file, "--internet"]);
    assert!(said.contains("`srd run` holds the instance"), "{said}");
    drop(held);
    assert!(passes(&mut inner, &mut inner_end));
    assert_eq!(card.end(Signal::TERM), 0);
    assert_eq!(machine.facts(), before);
    let said = refused(&[&file]);
    assert!(said.contains("no card runs at"), "{said}");
}

/// The next process has another file: one guest is removed, one is added, and one stays. When this
/// process is killed, everything that it or the first process created is removed.
#[test]
fn the_next_process_brings_its_own_file_and_takes_on_the_duty_to_give_back() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("hhc");
    let before = machine.facts();
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file, "--internet", "--metrics", "127.0.0.1:9472"]);
    let (web, app) = (machine.instance("web"), machine.instance("app"));
    let far = listen(&machine.namespace, 9999);
    let mut out = connect(&app, OUTSIDE, 9999).unwrap();
    let (mut out_end, _) = far.accept().unwrap();
    assert!(passes(&mut out, &mut out_end));

    let renamed = format!("{}new", machine.prefix);
    let next_file = machine.example("next.toml", |text| {
        text.replace(&format!("[instance.{}web]", machine.prefix), &format!("[instance.{renamed}]"))
            .replace(
                &format!("instance = \"{}web\"", machine.prefix),
                &format!("instance = \"{renamed}\""),
            )
    });
    let words = [next_file.as_str(), "--internet", "--metrics", "127.0.0.1:9472"];
    let mut next = machine.take_over(&mut card, &words);
    assert!(passes(&mut out, &mut out_end) && passes(&mut out_end, &mut out));
    let began = Instant::now();
    let name = format!("srd-i-{renamed}");
    let lists = |name: &str| machine.instances_left().iter().any(|line| line.starts_with(name));
    while lists(&web) || !lists(&name) {
        assert!(began.elapsed() < PATIENCE, "{:?}", machine.instances_left());
        thread::sleep(Duration::from_millis(20));
    }
    let mut metrics = connect(&machine.namespace, [127, 0, 0, 1], 9472).unwrap();
    metrics.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9472\r\n\r\n").unwrap();
    let mut head = [0; 15];
    metrics.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");

    next.0.kill().unwrap();
    next.0.wait().unwrap();
    let began = Instant::now();
    while machine.facts() != before || !machine.instances_left().is_empty() {
        assert!(began.elapsed() < PATIENCE, "{:?}", machine.instances_left());
        thread::sleep(Duration::from_millis(50));
    }
}

/// If two processes have counted packets of one window of a flow log, the log has the records of
/// one window only, and no packet is missing.
#[test]
fn flow_logs_count_on_in_the_next_process() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("hhe");
    let directory = machine.path("logs").to_str().unwrap().to_owned();
    let log = format!("[flow_log.all]\ninterface = \"web\"\ndirectory = {directory:?}\n");
    let file = machine.example("vpc.toml", |text| format!("{text}{log}"));
    let mut card = machine.up(&[&file]);
    let https = listen(&machine.instance("web"), 443);
    let mut inner = connect(&machine.instance("app"), WEB, 443).unwrap();
    let (mut inner_end, _) = https.accept().unwrap();
    assert!(passes(&mut inner, &mut inner_end));
    let mut next = machine.take_over(&mut card, &[&file]);
    assert!(!Path::new(&directory).exists(), "the window is not over");
    assert!(passes(&mut inner, &mut inner_end));
    drop((inner, inner_end));
    let counted = settled(|| ["rx_packets", "tx_packets"].map(|name| machine.counter("web", name)));
    assert_eq!(next.end(Signal::TERM), 0);
    let mut records = Vec::new();
    for entry in fs::read_dir(&directory).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let lines = text.lines().skip(1);
        records.extend(lines.map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>()));
    }
    let packets = |at: usize| -> u64 {
        let own = records.iter().filter(|record| record[at] == "10.0.1.10");
        own.map(|record| record[8].parse::<u64>().unwrap()).sum()
    };
    assert_eq!([packets(4), packets(3)], counted, "{records:?}");
    assert!(records.iter().all(|record| record[13] == "OK"), "{records:?}");
}

/// After a take-over of its card, a host gets a new session with the other host. No connection
/// ends: sockets stay open.
#[test]
fn a_connection_to_an_instance_of_another_host_lives() {
    if !ready_with_nsenter() {
        return;
    }
    let hosts = Hosts::new("hf", 9200);
    let file = hosts.machines[0].two_hosts("'all from 10.0.0.0/16'");
    hosts.configure(&file, "");
    let [mut card, mut other] = hosts.both_up();
    let https = listen(&hosts.instance("a"), 443);
    let mut client = connect(&hosts.instance("b"), [10, 0, 1, 10], 443).unwrap();
    let (mut server, _) = https.accept().unwrap();
    let mut both = || passes(&mut client, &mut server) && passes(&mut server, &mut client);
    assert!(both());
    let sent = hosts.other(0)["sent_frames"].as_u64().unwrap();
    let mut next = hosts.take_over(0, &mut card);
    assert!(both());
    assert!(hosts.other(0)["sent_frames"].as_u64().unwrap() > sent, "counters go on");
    let mut next_other = hosts.take_over(1, &mut other);
    assert!(both());
    // The new process continues with the sockets of the former one. So a take-over cannot change
    // their address.
    hosts.edit(0, |text| text.replace(":7535\"\nprivate", ":7600\"\nprivate"));
    let words = ["card", "up", "--take-over", "-c", &hosts.config(0)];
    let refused = hosts.machines[0].srd(&words);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("other values of listen than"), "{said}");
    assert!(both());
    assert_eq!((next.end(Signal::TERM), next_other.end(Signal::TERM)), (0, 0));
    assert!(hosts.machines.iter().all(|machine| machine.instances_left().is_empty()));
}

/// Returns the number of packets that the IP layer of a namespace has received.
fn received(namespace: &str) -> u64 {
    let text = must(&format!("netns exec {namespace} cat /proc/net/snmp"));
    let mut lines = text.lines().filter(|line| line.starts_with("Ip:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|name| name == "InReceives").unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

/// After a take-over, the former process moves no packets. A packet that it moved would be in no
/// counter, and a packet that waits for a limit would arrive twice.
#[test]
fn regression_each_packet_is_moved_and_counted_by_one_of_both() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("hhj");
    let change = |text: String| text.replace("icmp from 10.0.0.0/16", "all from 10.0.0.0/16");
    let file = machine.example("vpc.toml", change);
    let mut card = machine.up(&[&file]);
    let (web, app) = (machine.instance("web"), machine.instance("app"));
    let counted = || machine.counter("web", "rx_packets");
    // Packets are sent before, between and after three take-overs.
    let ends = [(app.as_str(), "10.0.2.10"), (web.as_str(), "10.0.1.10")];
    each_packet_is_counted_once(ends, counted, 4, |turn| {
        if turn > 0 {
            card = machine.take_over(&mut card, &[&file]);
        }
    });
    assert_eq!(card.end(Signal::TERM), 0);
}

/// Sends packets without a pause from one instance to another one (namespaces and addresses), while
/// `hand_over` is called `turns` times. Some packets arrive after each call. In the end, as many
/// packets have arrived as `counted` returns, which reads the counter of the card.
pub(super) fn each_packet_is_counted_once(
    [(from, own), (to, at)]: [(&str, &str); 2],
    counted: impl Fn() -> u64,
    turns: usize,
    mut hand_over: impl FnMut(usize),
) {
    let at = format!("{at}:9000");
    let facts = || (received(to), counted());
    let _silent = within(to, || UdpSocket::bind(&at).unwrap());
    let before = facts();
    let sender = within(from, || UdpSocket::bind((own, 9000)).unwrap());
    let ends = AtomicBool::new(false);
    let sent = thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut sent = 0_u64;
            while !ends.load(Ordering::Relaxed) {
                sent += u64::from(sender.send_to(b"datagram", &at).is_ok());
                thread::sleep(Duration::from_micros(20));
            }
            sent
        });
        let ending = Ending(&ends);
        for turn in 0..turns {
            hand_over(turn);
            let had = received(to);
            wait_until("packets", || received(to) > had + 300);
        }
        drop(ending);
        load.join().unwrap()
    });
    let after = settled(facts);
    assert_eq!(after.0 - before.0, after.1 - before.1, "of {sent} sent");
    assert!(after.0 - before.0 > 1000, "{sent}");
}
