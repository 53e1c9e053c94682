//! Flows that share the tunnel interface: a flow that sends faster than the daemon reads must cause
//! no loss of other flows. Needs root.

#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::pair::{Pair, Settings, ready};

/// Number of packets of the flood. It is four times as many as the kernel puts into a queue.
/// Sending them takes less time than that after which the peer considers the stopped daemon dead.
const FLOOD: usize = 4_000;
/// Number of other flows during the flood, each with one packet.
const FLOWS: usize = 32;
/// Minimum number of other flows whose packet must arrive. Because of the hash, one flow in sixteen
/// shares the flood's queue.
const FLOWS_MIN: usize = 20;
/// Maximum number of attempts. If a daemon is stopped for long, its peer considers it dead, and
/// packets are lost with the session.
const ROUNDS: usize = 5;

/// The daemon is stopped, as a busy processor may delay it at any time. Meanwhile, the flood fills
/// the kernel's queue for the daemon. If all flows shared one queue, packets of other flows would
/// then be dropped.
#[test]
fn regression_a_flood_costs_other_flows_no_packets() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("iso");
    for end in [0, 1] {
        pair.configure(end, &Settings::OVERLAY);
        pair.start(end);
    }
    pair.wait_for_express();
    let bound = |port: u16| pair.within(1, move || UdpSocket::bind(("10.77.0.2", port)).unwrap());
    let (_flooded, quiet) = (bound(9), bound(10));
    quiet.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let sockets = || (0..=FLOWS).map(|_| UdpSocket::bind("10.77.0.1:0").unwrap()).collect();
    let sockets: Vec<UdpSocket> = pair.within(0, sockets);
    let (flood, flows) = sockets.split_first().unwrap();
    flood.connect("10.77.0.2:9").unwrap();
    let daemon = Pid::from_child(pair.daemons[0].as_ref().unwrap());
    let mut came = 0;
    for _ in 0..ROUNDS {
        kill_process(daemon, Signal::STOP).unwrap();
        for _ in 0..FLOOD {
            flood.send(&[0; 64]).unwrap();
        }
        for flow in flows {
            flow.send_to(&[1; 64], "10.77.0.2:10").unwrap();
        }
        kill_process(daemon, Signal::CONT).unwrap();
        let mut seen = BTreeSet::new();
        while seen.len() < FLOWS
            && let Ok((_, from)) = quiet.recv_from(&mut [0; 64])
        {
            seen.insert(from.port());
        }
        came = came.max(seen.len());
        if came >= FLOWS_MIN {
            return;
        }
        pair.wait_for_express();
    }
    panic!("of {FLOWS} flows beside a flood {came} had their packet delivered");
}
