//! A program in C over the fabric `srd-direct`, between two network namespaces that lose packets.
//! Needs root.

#![allow(clippy::unwrap_used, reason = "a test, with helpers")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::network::{cable, run};
use crate::node::Program;

const MESSAGES: &str = "3000";

/// A lost message arrives when its packet was sent again, after messages that left later, which the
/// program gets without waiting. Some messages overtake others even if no packet is lost.
#[test]
fn each_message_of_a_direct_endpoint_arrives_once_and_does_not_wait_for_earlier_ones() {
    let Some(program) = Program::compile("direct") else { return };
    let Some(cable) = cable("direct") else { return };
    let inside = format!("ip netns exec {} nft", cable.ends[1]);
    run(&format!("{inside} add table inet loss"));
    let hook = "type filter hook input priority 0 ;";
    run(&format!("{inside} add chain inet loss in {{ {hook} }}"));
    // Acknowledgements are shorter than messages.
    let eighth = "udp length gt 900 numgen random mod 8 0 drop";
    run(&format!("{inside} add rule inet loss in {eighth}"));

    let start = |end: usize, words: &[&str]| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &cable.ends[end]]);
        let inner = program.command();
        command.arg(inner.get_program()).args(words);
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut receiver = start(1, &["receive", "198.18.77.2", MESSAGES]);
    let mut lines = BufReader::new(receiver.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let name = first.strip_prefix("name ").unwrap_or_else(|| panic!("{first}"));
    let sender = start(0, &["send", "198.18.77.1", MESSAGES, name]);
    let sent = sender.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(sent.stdout).unwrap(), format!("sent {MESSAGES}\n"));
    let received = lines.next().unwrap().unwrap();
    println!("{received}");
    let late = received.strip_prefix(&format!("received {MESSAGES} once, "));
    let late: u32 = late.unwrap().strip_suffix(" after a later one").unwrap().parse().unwrap();
    assert!(late > 100, "{received}");
    drop(receiver.stdin.take());
    assert!(receiver.wait().unwrap().success() && sent.status.success());
}
