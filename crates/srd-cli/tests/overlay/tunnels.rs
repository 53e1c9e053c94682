//! Tunnels without ports over `srd up` (X6 of the specification of Express). Raw sockets send GRE
//! and ESP packets. If both ends have the setting, the packets are sent over SRD and arrive in
//! order, even if the setting changes while they are sent. Needs root.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // a test may fail loudly

use crate::support::pair::{PATIENCE, Pair, Settings, ready};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketType};
use std::net::SocketAddr;

const GRE: u32 = 47;
const ESP: u32 = 50;
/// Number of packets that are sent in a round.
const PACKETS: u64 = 200;
/// Number of packets in flight at once: fewer than the buffer of the receiving socket holds.
const BATCH: usize = 20;
const PACKET_BYTES: usize = 1000;
const IP_BYTES: usize = 20;
/// Name of the counter of packets that were sent over SRD. [`PLAINLY`] is the name of the counter
/// of packets without SRD.
const BY_SRD: &str = "ena_srd_tx_pkts";
const PLAINLY: &str = "plain_tx_pkts";

#[test]
fn packets_of_tunnels_ride_srd_in_order_where_both_ends_say_so() {
    if !ready() {
        return;
    }
    let mut pair = Pair::new("t");
    for end in [0, 1] {
        let (interface, expert) = ("express_tunnels = true", "udp_ordering = \"bypass\"");
        pair.configure(end, &Settings { interface, expert, ..Settings::OVERLAY });
        pair.start(end);
    }
    pair.wait_for_express();
    let carries = |pair: &Pair, wanted: bool| {
        pair.wait("an agreement about tunnels", |pair| {
            [0, 1].iter().all(|end| {
                let status = pair.ask(*end, &["status"]);
                status.is_some_and(|status| status["peers"][0]["express_tunnels"] == wanted)
            })
        });
    };
    carries(&pair, true);
    for protocol in [GRE, ESP] {
        let before = pair.counter(0, BY_SRD);
        send(&pair, protocol);
        pair.wait("all packets over SRD", |pair| pair.counter(0, BY_SRD) >= before + PACKETS);
    }
    // One end switches the setting off. From then on, packets are sent without SRD.
    let file = pair.path("1.sock".to_owned());
    let mut command = pair.command(1);
    let output = command.args(["set", "all", "tunnels", "off", "--socket"]).arg(file).output();
    assert!(output.unwrap().status.success());
    carries(&pair, false);
    let [by_srd, plainly] = [BY_SRD, PLAINLY].map(|counter| pair.counter(0, counter));
    send(&pair, GRE);
    pair.wait("packets without SRD", |pair| pair.counter(0, PLAINLY) > plainly + PACKETS / 2);
    let by_srd = pair.counter(0, BY_SRD) - by_srd;
    assert!(by_srd < PACKETS / 2, "{by_srd} packets rode SRD");
}

/// Sends a round of packets of `protocol`, which must arrive in order.
fn send(pair: &Pair, protocol: u32) {
    let raw = |end: usize| -> OwnedFd {
        let protocol = Protocol::from_raw(protocol.try_into().unwrap());
        pair.within(end, || {
            rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(protocol)).unwrap()
        })
    };
    let (from, to) = (raw(0), raw(1));
    let wait = Some(PATIENCE);
    let timeout = rustix::net::sockopt::Timeout::Recv;
    rustix::net::sockopt::set_socket_timeout(&to, timeout, wait).unwrap();
    let address = SocketAddr::from(([10, 77, 0, 2], 0));
    let mut packet = [7; PACKET_BYTES];
    let mut buffer = [0; 2 * PACKET_BYTES];
    for first in (0..PACKETS).step_by(BATCH) {
        let batch = first..first + BATCH as u64;
        for number in batch.clone() {
            packet[..8].copy_from_slice(&number.to_be_bytes());
            rustix::net::sendto(&from, &packet, SendFlags::empty(), &address).unwrap();
        }
        for number in batch {
            let (bytes, _) = rustix::net::recv(&to, &mut buffer[..], RecvFlags::empty())
                .expect("each packet arrives");
            assert_eq!(bytes, IP_BYTES + PACKET_BYTES);
            let arrived = u64::from_be_bytes(buffer[IP_BYTES..IP_BYTES + 8].try_into().unwrap());
            assert_eq!(arrived, number, "protocol {protocol}: in the order of their sending");
        }
    }
}
