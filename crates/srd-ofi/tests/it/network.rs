//! Errors that the application gets when the network fails between two hosts: real processes in
//! two network namespaces. Needs root.

#![allow(clippy::unwrap_used, reason = "a test, with helpers")]

use std::process::Command;
use std::time::{Duration, Instant};

use crate::cable::Cable;
use crate::node::{End, PATIENCE_MS, Program};
use crate::support::{is_here, lacks};

const NEVER_ANSWERED: (i32, i32) = (libc::EHOSTUNREACH, 4);
const SILENT: (i32, i32) = (libc::ETIMEDOUT, 5);
/// Timeouts of peers: short, but longer than a process of a busy machine may be delayed.
const SOON: [(&str, &str); 2] =
    [("FI_SRD_ANSWER_TIMEOUT_MS", "3000"), ("FI_SRD_PEER_TIMEOUT_MS", "3000")];

pub(crate) fn run(command: &str) {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Returns two namespaces with a cable between 198.18.77.1 and 198.18.77.2; `None` if this machine
/// lacks a requirement.
pub(crate) fn cable(name: &str) -> Option<Cable> {
    if !rustix::process::geteuid().is_root() {
        lacks("it needs root");
        return None;
    }
    let is_complete = is_here("ip", "iproute2") && is_here("nft", "nftables");
    is_complete.then(|| Cable::new(&format!("srdofi-{name}"), "198.18.77", ""))
}

impl Cable {
    /// Drops every packet that arrives at the second end.
    fn swallow(&self) {
        let inside = format!("ip netns exec {} nft", self.ends[1]);
        run(&format!("{inside} add table inet hole"));
        let what = "type filter hook input priority 0 ; policy drop ;";
        run(&format!("{inside} add chain inet hole in {{ {what} }}"));
    }

    fn heal(&self) {
        run(&format!("ip netns exec {} nft delete table inet hole", self.ends[1]));
    }
}

#[test]
fn a_network_that_swallows_packets_is_told_as_silence_and_healed_it_works_again() {
    let Some(program) = Program::compile("node") else { return };
    let Some(cable) = cable("hole") else { return };
    let settings = [("FI_SRD_PATHS", "8"), SOON[0], SOON[1]];
    let mut a = program.start_in(&cable.ends[0], &settings);
    let mut b = program.start_in(&cable.ends[1], &settings);
    a.open("198.18.77.1", 0);
    let to = a.insert(&b.open("198.18.77.2", 0));
    a.post(&format!("send {to} 8 1 1"));
    assert_eq!(a.end(), End::Ok(1, 8));
    cable.swallow();
    for command in ["send T 8 2 1", "deliver T 30000 3 1", "send T 1000000 4 1"] {
        a.post(&command.replace('T', &to.to_string()));
    }
    let ends = a.ends(3, PATIENCE_MS);
    assert_eq!(ends.len(), 3);
    for end in &ends {
        assert_eq!(end.errors(), SILENT, "{end:?}");
        assert!(end.text().contains("198.18.77.2:"), "{end:?}");
    }
    // This peer never answers.
    let stranger = a.insert_place("198.18.77.2", 7);
    a.post(&format!("send {stranger} 8 5 1"));
    let end = a.end();
    assert_eq!(end.errors(), NEVER_ANSWERED, "{end:?}");
    cable.heal();
    a.post(&format!("send {to} 1000000 6 1"));
    b.post("recv 1000000 6 1");
    assert_eq!((a.end(), b.end()), (End::Ok(6, 1_000_000), End::Ok(6, 1_000_000)));
}

#[test]
fn an_address_without_a_route_or_without_a_host_is_told_as_one_that_never_answered() {
    let Some(program) = Program::compile("node") else { return };
    let Some(cable) = cable("route") else { return };
    let mut a = program.start_in(&cable.ends[0], &[("FI_SRD_PATHS", "8"), SOON[0], SOON[1]]);
    a.open("198.18.77.1", 0);
    for place in ["203.0.113.9", "198.18.77.99"] {
        let start = Instant::now();
        let to = a.insert_place(place, 7471);
        a.post(&format!("send {to} 8 1 1"));
        a.post(&format!("read {to} 100 9"));
        for _ in 0..2 {
            let end = a.end();
            assert_eq!(end.errors(), NEVER_ANSWERED, "{place}: {end:?}");
            assert!(end.text().contains(place), "{end:?}");
        }
        assert!(start.elapsed() < Duration::from_secs(20), "FI_SRD_ANSWER_TIMEOUT_MS is 3000");
    }
    assert!(a.close() < Duration::from_secs(10));
}
