//! Tunnels without ports over `srd up` (X6 of the specification of Express). Raw sockets send GRE
//! and ESP packets. If both ends have the setting, the packets are sent over SRD and arrive in
//! order, even if the setting changes while they are sent. Needs root.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // a test may fail loudly

use crate::support::pair::{Pair, Settings, ready};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketType};
use std::net::SocketAddr;
use std::time::Duration;

const GRE: u32 = 47;
const ESP: u32 = 50;
/// Number of packets that are sent in a round.
const PACKETS: u64 = 200;
/// Number of packets in flight at once: fewer than the buffer of the receiving socket holds.
const BATCH: usize = 20;
const PACKET_BYTES: usize = 1000;
const IP_BYTES: usize = 20;
/// Longest wait for a packet.
const ARRIVAL_MAX: Duration = Duration::from_secs(60);
/// Maximum number of attempts at a round. If a daemon waits for a processor for so long that
/// packets are lost, as [`LOSSES`] count, the round does not count.
const TRIES: usize = 5;
/// Counters of packets that are lost because a process waited for a processor.
const LOSSES: [&str; 4] = ["peer_downs", "queue_drops", "reassembly_drops", "order_late_pkts"];
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
        undisturbed(&pair, |losses_before| {
            carries(&pair, true);
            let before = pair.counter(0, BY_SRD);
            send(&pair, protocol)?;
            pair.wait("all packets over SRD", |pair| {
                pair.counter(0, BY_SRD) >= before + PACKETS || losses(pair) > losses_before
            });
            Ok(())
        });
    }
    // One end switches the setting off. From then on, packets are sent without SRD.
    let file = pair.path("1.sock".to_owned());
    let mut command = pair.command(1);
    let output = command.args(["set", "all", "tunnels", "off", "--socket"]).arg(file).output();
    assert!(output.unwrap().status.success());
    carries(&pair, false);
    undisturbed(&pair, |_| {
        let [by_srd, plainly] = pair.counters(0, [BY_SRD, PLAINLY]);
        send(&pair, GRE)?;
        pair.wait("packets without SRD", |pair| pair.counter(0, PLAINLY) > plainly + PACKETS / 2);
        let by_srd = pair.counter(0, BY_SRD) - by_srd;
        assert!(by_srd < PACKETS / 2, "{by_srd} packets rode SRD");
        Ok(())
    });
}

/// Returns the sum of the counters of [`LOSSES`] of both ends.
fn losses(pair: &Pair) -> u64 {
    [0, 1].iter().flat_map(|end| pair.counters(*end, LOSSES)).sum()
}

/// Makes a round of packets, again if packets were lost meanwhile. `round` gets the number of
/// [`losses`] before it.
fn undisturbed(pair: &Pair, mut round: impl FnMut(u64) -> Result<(), String>) {
    for _ in 0..TRIES {
        let before = losses(pair);
        let result = round(before);
        if losses(pair) == before {
            return result.unwrap_or_else(|error| panic!("{error}"));
        }
        pair.wait_for_express();
    }
    panic!("the machine was too busy in each of {TRIES} tries");
}

/// Sends a round of packets of `protocol`. Returns an error if they do not arrive in order.
fn send(pair: &Pair, protocol: u32) -> Result<(), String> {
    let raw = |end: usize| -> OwnedFd {
        let protocol = Protocol::from_raw(protocol.try_into().unwrap());
        pair.within(end, || {
            rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(protocol)).unwrap()
        })
    };
    let (from, to) = (raw(0), raw(1));
    let wait = Some(ARRIVAL_MAX);
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
            let came = rustix::net::recv(&to, &mut buffer[..], RecvFlags::empty());
            let (bytes, _) = came.map_err(|error| format!("packet {number}: {error}"))?;
            assert_eq!(bytes, IP_BYTES + PACKET_BYTES);
            let arrived = u64::from_be_bytes(buffer[IP_BYTES..IP_BYTES + 8].try_into().unwrap());
            if arrived != number {
                return Err(format!("protocol {protocol}: packet {arrived} instead of {number}"));
            }
        }
    }
    Ok(())
}
