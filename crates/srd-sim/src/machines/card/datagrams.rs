//! Guests' datagrams: UDP at a constant rate, and single packets that begin flows of TCP and ICMP.
//!
//! ```text
//! +-------------+---------+---------------------------+--------+------------------------+
//! | offload, 10 | IPv4 20 | UDP 8, TCP 20 or ICMP 8   | flow 4 | zeros to the length    |
//! +-------------+---------+---------------------------+--------+------------------------+
//! ```
//!
//! In contrast to frames of the TCP model, these frames have no options in their IP header.

use srd_card::checksum;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::packet::protocol;
use srd_proto::time::{Duration, Instant};

use super::cloud::FIRST;
use crate::engine::nic::inner_address;
use crate::engine::node::{FlowSpec, HostId};

const IP_BYTES: usize = 20;
/// First byte of the IPv4 header: version 4, header length of five words.
const IP_FIRST: u8 = 0x45;
const SYN: u8 = 2;
const ECHO_REQUEST: u8 = 8;
/// Smallest payload in bytes: it contains the number of the flow.
pub const PAYLOAD_BYTES_MIN: u16 = 4;
/// First source port of datagrams.
const SOURCE_FIRST: u16 = 20_000;
/// First destination port. There are `DESTINATIONS` destination ports for each source port.
const DESTINATION_FIRST: u16 = 1024;
const DESTINATIONS: u64 = 60_000;

/// Protocol of a flow's datagrams, and choice of their ports or identifiers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ports {
    /// UDP with one pair of ports for all datagrams of a flow of the workload.
    One,
    /// UDP with a different pair of ports for each datagram, so that each datagram is a flow for
    /// the card.
    Each,
    /// TCP: packets that open connections to this port, each from a different port.
    Syn(u16),
    /// ICMP: echo requests, each with a different identifier.
    Echo,
}

/// Rate and form of the datagrams of a flow of the workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagrams {
    /// Number of payload bytes in each datagram.
    pub payload_bytes: u16,
    /// Rate in payload bits per second.
    pub rate_bps: u64,
    /// Protocol of the datagrams, and choice of their ports.
    pub ports: Ports,
}

/// A flow of the workload that sends datagrams.
#[derive(Debug)]
pub(super) struct Source {
    spec: FlowSpec,
    plan: Datagrams,
    begun: Instant,
    sent: u64,
    all: u64,
}

impl Source {
    pub(super) fn new(now: Instant, spec: FlowSpec, plan: Datagrams) -> Self {
        assert!(plan.rate_bps > 0, "a rate is not zero");
        assert!(plan.payload_bytes >= PAYLOAD_BYTES_MIN, "a payload holds its flow's number");
        let all = spec.bytes.div_ceil(plan.payload_bytes.into());
        Self { spec, plan, begun: now, sent: 0, all }
    }

    /// Returns the time when the next datagram is due; `None` if all datagrams have been sent. The
    /// time is computed from the beginning of the flow, so that the rate is exact.
    pub(super) fn next(&self) -> Option<Instant> {
        if self.sent >= self.all {
            return None;
        }
        let bits = u128::from(self.sent) * u128::from(self.plan.payload_bytes) * 8;
        let ns = bits * 1_000_000_000 / u128::from(self.plan.rate_bps);
        Some(self.begun + Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)))
    }

    /// Creates the frame of the next datagram.
    pub(super) fn frame(&mut self) -> Vec<u8> {
        let number = match self.plan.ports {
            Ports::One => u64::from(self.spec.id.0) * DESTINATIONS,
            Ports::Each | Ports::Syn(_) | Ports::Echo => self.sent,
        };
        self.sent += 1;
        let low = |number: u64| u16::try_from(number).unwrap_or(u16::MAX);
        let own = SOURCE_FIRST.wrapping_add(low(number % DESTINATIONS));
        let transport = match self.plan.ports {
            Ports::Syn(port) => tcp((own, port)),
            Ports::Echo => echo(own),
            Ports::One | Ports::Each => {
                let source = SOURCE_FIRST.wrapping_add(low(number / DESTINATIONS));
                let destination = DESTINATION_FIRST + low(number % DESTINATIONS);
                udp((source, destination), self.plan.payload_bytes)
            }
        };
        write(&self.spec, &transport, self.plan.payload_bytes)
    }

    /// Returns the flow if all its datagrams have been sent, and `None` otherwise.
    pub(super) fn done(&self) -> Option<FlowSpec> {
        (self.sent >= self.all).then_some(self.spec)
    }
}

/// Transport header of a datagram, with the number of its protocol.
struct Transport {
    protocol: u8,
    header: Vec<u8>,
}

fn udp(ports: (u16, u16), payload_bytes: u16) -> Transport {
    let length = u16::try_from(8 + usize::from(payload_bytes)).expect("below 64 KiB");
    let words = [ports.0, ports.1, length, 0];
    Transport { protocol: protocol::UDP, header: words.map(u16::to_be_bytes).concat() }
}

fn tcp(ports: (u16, u16)) -> Transport {
    let flags = u16::from_be_bytes([0x50, SYN]);
    let words = [ports.0, ports.1, 0, 1, 0, 0, flags, u16::MAX, 0, 0];
    Transport { protocol: protocol::TCP, header: words.map(u16::to_be_bytes).concat() }
}

fn echo(identifier: u16) -> Transport {
    let words = [u16::from_be_bytes([ECHO_REQUEST, 0]), 0, identifier, 1];
    Transport { protocol: protocol::ICMP, header: words.map(u16::to_be_bytes).concat() }
}

fn write(spec: &FlowSpec, transport: &Transport, payload_bytes: u16) -> Vec<u8> {
    let payload_at = IP_BYTES + transport.header.len();
    let total = payload_at + usize::from(payload_bytes);
    let mut frame = vec![0; OFFLOAD_BYTES + total];
    let packet = &mut frame[OFFLOAD_BYTES..];
    packet[0] = IP_FIRST;
    let total = u16::try_from(total).expect("below 64 KiB");
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[6] = 0x40;
    packet[8] = 64;
    packet[9] = transport.protocol;
    let address = |host: HostId| inner_address(HostId(host.0 + FIRST)).octets();
    packet[12..16].copy_from_slice(&address(spec.src));
    packet[16..20].copy_from_slice(&address(spec.dst));
    let sum = checksum::of(&packet[..IP_BYTES]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet[IP_BYTES..payload_at].copy_from_slice(&transport.header);
    packet[payload_at..payload_at + 4].copy_from_slice(&spec.id.0.to_be_bytes());
    frame
}

/// Returns the flow and the number of payload bytes of a datagram; `None` if the packet has another
/// form.
pub(super) fn read(packet: &[u8]) -> Option<(u32, u32)> {
    if packet.first() != Some(&IP_FIRST) {
        return None;
    }
    let header_bytes = match *packet.get(9)? {
        protocol::UDP | protocol::ICMP => 8,
        protocol::TCP => 20,
        _ => return None,
    };
    let payload = packet.get(IP_BYTES + header_bytes..)?;
    let flow = payload.first_chunk::<4>()?;
    Some((u32::from_be_bytes(*flow), u32::try_from(payload.len()).ok()?))
}
