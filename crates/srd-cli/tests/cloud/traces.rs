//! `srd card trace` and `srd card capture`, which follow packets through the card. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::hosts::Hosts;
use crate::support::machine::*;
use crate::support::pcapng::{Capture, Packet};
use rustix::process::Signal;
use serde_json::Value;

/// Maximum number of traces and captures that a card has at a time.
const TRACES_MAX: usize = 8;

/// Starts a command that follows packets, and waits until it has begun. Its output goes to the file
/// `said`.
fn follow(machine: &Machine, said: &str, words: &[&str]) -> Running {
    let output = fs::File::create(machine.path(said)).unwrap();
    follow_to(machine, output.try_clone().unwrap(), (said, output), words)
}

/// Starts a command as [`follow`] does. Its standard output goes to the file `to`, and its error
/// output to the file `said`.
fn follow_to(
    machine: &Machine,
    to: fs::File,
    (said, errors): (&str, fs::File),
    words: &[&str],
) -> Running {
    let mut command = machine.command(words);
    let command = command.stdin(Stdio::null()).stdout(to).stderr(errors);
    let running = Running(command.spawn().unwrap());
    let began = Instant::now();
    loop {
        let said = fs::read_to_string(machine.path(said)).unwrap();
        if said.contains("following packets") {
            return running;
        }
        assert!(began.elapsed() < PATIENCE, "{said}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the packets that a command has written to a file, as one JSON object on each line.
fn lines(machine: &Machine, name: &str) -> Vec<Value> {
    let file = fs::File::open(machine.path(name)).unwrap();
    let lines = BufReader::new(file).lines();
    lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
}

#[test]
fn what_each_table_says_of_a_packet_is_told_where_it_is_asked() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("tr");
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file]);
    let (web, app) = (machine.instance("web"), machine.instance("app"));
    let name = format!("{}web", machine.prefix);
    let jsonl = machine.path("packets");
    let jsonl = jsonl.to_str().unwrap();
    let capture = machine.path("web.pcapng");
    let mut all = follow(&machine, "all", &["card", "trace", "any", "tcp", "--json", jsonl]);
    let mut written = follow(
        &machine,
        "written",
        &["card", "capture", &name, "tcp and port 80", "-w", capture.to_str().unwrap()],
    );
    let stream = machine.path("stream.pcapng");
    let said = ("streamed", fs::File::create(machine.path("streamed")).unwrap());
    let words = ["card", "capture", "any", "-w", "-", "tcp"];
    let mut streamed = follow_to(&machine, fs::File::create(&stream).unwrap(), said, &words);
    let text = ["card", "trace", &name, "tcp", "dst", "port", "80", "-n", "1"];
    let mut text = follow(&machine, "text", &text);

    let https = listen(&web, 443);
    let mut client = connect(&app, WEB, 443).unwrap();
    let (mut server, _) = https.accept().unwrap();
    assert!(passes(&mut client, &mut server));
    assert!(connect_in_vain(&app, WEB, 80).is_err(), "no rule allows port 80");

    // The trace ends after its first packet, because of the option -n 1.
    assert_eq!(text.0.wait().unwrap().code(), Some(0));
    let said = fs::read_to_string(machine.path("text")).unwrap();
    for part in [
        "ens5 gets 10.0.2.10:",
        "-> 10.0.1.10:80  tcp, 60 bytes, new flow",
        "!  1  security groups of interface web",
        "no rule allows it",
        "DROPPED (security groups in): no rule of the receiver's groups allows it",
        "remedy: add an ingress rule",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains(":443"), "the filter holds: {said}");

    // Two commands end by SIGINT, as by Ctrl-C, and have recorded all packets until then.
    assert_eq!((all.end(Signal::INT), written.end(Signal::INT)), (0, 0));
    assert_eq!(streamed.end(Signal::INT), 0);
    let packets = lines(&machine, "packets");
    let first = |instance: &str, port: u64| {
        let mut found = packets.iter().filter(|packet| packet["ports"][1] == port);
        let name = format!("{}{instance}", machine.prefix);
        found.find(|packet| packet["instance"] == name.as_str()).unwrap().clone()
    };
    let steps = |packet: &Value| {
        let steps = packet["judged"]["steps"].as_array().unwrap().clone();
        let text = |step: &Value, key: &str| step[key].as_str().unwrap().to_owned();
        steps.iter().map(|s| text(s, "at") + ": " + &text(s, "says")).collect::<Vec<_>>()
    };
    // The sender's side of the card evaluates all tables except the receiver's security groups,
    // which the receiver's side evaluates.
    let sent = first("app", 443);
    let asked = steps(&sent);
    let tables = ["interface app", "security groups of interface app", "acl open", "route_table"];
    for (table, step) in tables.iter().zip(&asked) {
        assert!(step.starts_with(table), "{asked:#?}");
    }
    assert!(asked.iter().all(|step| !step.starts_with("security groups of interface web")));
    assert_eq!(sent["end"]["gone"]["kind"], "interface");
    assert_eq!(sent["flow"], Value::Null);
    let got = first("web", 443);
    let asked = steps(&got);
    assert_eq!(asked.len(), 1, "{asked:#?}");
    assert!(asked[0].contains("allowed by \"tcp 443 from 0.0.0.0/0\""), "{asked:#?}");
    assert_eq!(got["end"]["gone"]["kind"], "guest");
    // For later packets of a flow, the recorded decision is used, and the tables are not evaluated.
    let later = packets.iter().filter(|p| p["ports"][1] == 443 && p["judged"]["by_rules"] == false);
    let later: Vec<_> = later.collect();
    assert!(!later.is_empty() && later.iter().all(|packet| steps(packet).is_empty()));
    assert!(later.iter().any(|packet| packet["flow"]["state"] == "established"));
    assert_eq!(first("web", 80)["end"]["refused"]["cause"], "security groups in");

    // The capture contains the dropped packets, with the reason.
    let capture = Capture::read(&capture);
    assert!(!capture.packets.is_empty());
    let refused = capture.packets.len();
    for packet in &capture.packets {
        assert!(!packet.leaves && packet.bytes[9] == 6 && packet.bytes[22..24] == [0, 80]);
        assert!(packet.comment.starts_with("DROPPED (security groups in)"), "{}", packet.comment);
    }
    assert_eq!(capture.dropped, Some(0));
    // The capture on standard output contains the packets of all instances in both directions, and
    // nothing but the capture.
    let capture = Capture::read(&stream);
    let count = |is: fn(&Packet) -> bool| capture.packets.iter().filter(|of| is(of)).count();
    assert!(count(|of| of.leaves) > 3 && count(|of| !of.leaves) > 3);
    assert!(count(|of| of.comment.starts_with("DROPPED (security groups in)")) >= refused);
    assert!(capture.packets.iter().all(|of| of.bytes[9] == 6), "TCP only");
    let said = fs::read_to_string(machine.path("streamed")).unwrap();
    assert!(said.contains(&format!("{} packets captured", capture.packets.len())), "{said}");
    assert_eq!(card.end(Signal::TERM), 0);
}

#[test]
fn a_limit_that_holds_packets_up_is_named_with_its_counter() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("tl");
    let file = machine.example("vpc.toml", |text| text);
    // The peak of 12.5 Gb/s becomes 125 kb/s. Full credits last for a second.
    let _card = machine.up(&[&file, "--scale", "1/100000", "--credits", "1"]);
    let (web, app) = (machine.instance("web"), machine.instance("app"));
    let name = format!("{}app", machine.prefix);
    let jsonl = machine.path("packets");
    let words = ["card", "trace", &name, "tcp", "--json", jsonl.to_str().unwrap()];
    let mut trace = follow(&machine, "trace", &words);
    let https = listen(&web, 443);
    let client = connect(&app, WEB, 443).unwrap();
    client.set_nonblocking(true).unwrap();
    let began = Instant::now();
    // A packet is printed only after it has left.
    while !fs::read_to_string(&jsonl).unwrap().contains("bw_out_allowance_exceeded") {
        let _ = std::io::Write::write(&mut (&client), &[0; 65536]);
        assert!(began.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(10));
    }
    assert!(machine.counter("app", "bw_out_allowance_exceeded") > 0);
    assert_eq!(trace.end(Signal::INT), 0);
    drop(https);
    for packet in lines(&machine, "packets") {
        let waited = packet["waited_for"].as_array().unwrap();
        let was_held = packet["took_ns"] != 0 || packet["end"] == "waits";
        assert_eq!(waited.is_empty(), !was_held, "{packet:#}");
        let is_own = |limit: &Value| limit["counter"] != "bw_in_allowance_exceeded";
        assert!(packet["is_egress"] == false || waited.iter().all(is_own), "{packet:#}");
    }
}

#[test]
fn traces_are_few_and_end_with_those_that_ask() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("tb");
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file]);
    let name = format!("{}web", machine.prefix);
    let refused = |words: &[&str], code: i32, text: &str| {
        let output = machine.srd(&[&["card", "trace"], words].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(text), "{said}");
    };
    refused(&["none", "-n", "1"], 2, "there is no instance `none` on this host");
    refused(&[&name, "or"], 2, "`or` is no condition of a filter");
    refused(&[&name, "port", "99999"], 2, "99999 is not a port");
    // Without packets, the trace ends after the time that the user gave.
    refused(&[&name, "--seconds", "100ms"], 0, "0 packets followed");

    let mut all: Vec<Running> = (0..TRACES_MAX)
        .map(|n| follow(&machine, &n.to_string(), &["card", "trace", &name]))
        .collect();
    refused(&[&name, "-n", "1"], 2, "8 traces and captures run already: end one of them");
    // A command that is killed cannot end its trace, so the card must notice its end.
    let kill = |child: &mut Child| child.kill().and_then(|()| child.wait()).unwrap();
    all.iter_mut().for_each(|running| {
        kill(&mut running.0);
    });
    let began = Instant::now();
    while !machine.srd(&["card", "trace", &name, "--seconds", "1ms"]).status.success() {
        assert!(began.elapsed() < PATIENCE);
    }
    assert_eq!(card.end(Signal::TERM), 0);
}

/// A NAT gateway passes no fragments of ICMP. A trace of the instance that sends them must end with
/// the drop, its cause and a remedy, and not with the route to the internet.
#[test]
fn regression_a_trace_shows_what_a_nat_gateway_drops() {
    if !ready_with_nsenter() {
        return;
    }
    let machine = Machine::new("tn");
    let file = machine.example("vpc.toml", |text| text);
    let mut card = machine.up(&[&file, "--internet"]);
    let (app, name) = (machine.instance("app"), format!("{}app", machine.prefix));
    let mut text = follow(&machine, "text", &["card", "trace", &name, "icmp", "-n", "1"]);
    // The packet is larger than the instance's MTU of 9001, so the instance sends it in fragments.
    let ping = ["netns", "exec", &app, "ping", "-c", "1", "-W", "1", "-s", "12000", "203.0.113.1"];
    let pinged = Command::new("ip").args(ping).output().unwrap();
    assert_eq!(pinged.status.code(), Some(1), "{pinged:?}");
    assert_eq!(text.0.wait().unwrap().code(), Some(0));
    let said = fs::read_to_string(machine.path("text")).unwrap();
    for part in ["a fragment", "DROPPED (nat of a fragment): the NAT gateway", "remedy: send"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(machine.drops(&name, "nat of a fragment") >= 2);
    assert_eq!(card.end(Signal::TERM), 0);
}

/// A packet for a host that does not answer has not been sent. The trace shows that it waits; once
/// there is a session with the host, the trace shows that packets are sent.
#[test]
fn regression_a_packet_that_waits_for_a_session_is_not_shown_as_sent() {
    if !ready_with_nsenter() {
        return;
    }
    let hosts = Hosts::new("ws", 1500);
    let alpha = &hosts.machines[0];
    hosts.configure(&alpha.two_hosts("'icmp from 10.0.0.0/16'"), "");
    let mut card = hosts.up(0);
    let (a, name) = (hosts.instance("a"), format!("{}a", alpha.prefix));
    let ping = |output: &str, wait_s: &str, code: i32| {
        let arguments = ["card", "trace", &name, "icmp", "dst", "host", "10.0.1.11", "-n", "1"];
        let mut trace = follow(alpha, output, &arguments);
        let ping = ["netns", "exec", &a, "ping", "-c", "1", "-W", wait_s, "10.0.1.11"];
        let pinged = Command::new("ip").args(ping).output().unwrap();
        assert_eq!(pinged.status.code(), Some(code), "{pinged:?}");
        assert_eq!(trace.0.wait().unwrap().code(), Some(0));
        fs::read_to_string(alpha.path(output)).unwrap()
    };
    let waiting = ping("waiting", "5", 1);
    assert!(waiting.contains("on the host beta"), "{waiting}");
    assert!(waiting.contains("WAITS here: there is no session with that host"), "{waiting}");
    let mut other = hosts.up(1);
    hosts.wait_for_session(0);
    let sent = ping("sent", "60", 0);
    assert!(sent.contains("on the host beta") && !sent.contains("WAITS"), "{sent}");
    assert_eq!((card.end(Signal::TERM), other.end(Signal::TERM)), (0, 0));
}
