//! UDP at a constant rate, and its packets.
//!
//! ```text
//! +-------------+---------+-------+--------+-----------------------+
//! | offload, 10 | IPv4 20 | UDP 8 | flow 4 | zeros to the length   |
//! +-------------+---------+-------+--------+-----------------------+
//! ```

use srd_card::checksum;
use srd_card::offload::OFFLOAD_BYTES;
use srd_card::packet::protocol;
use srd_proto::time::{Duration, Instant};

use super::cloud::FIRST;
use crate::nic::inner_address;
use crate::node::{FlowSpec, HostId};

/// Bytes before the payload, from the IP header on.
pub const HEADER_BYTES: usize = 28;
/// The least payload: the flow's number.
pub const PAYLOAD_BYTES_MIN: u16 = 4;
/// The first source port.
const SOURCE_FIRST: u16 = 20_000;
/// The first destination port, and how many there are of a source port.
const DESTINATION_FIRST: u16 = 1024;
const DESTINATIONS: u64 = 60_000;

/// Which ports the datagrams of a plan have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ports {
    /// One pair: they are one flow.
    One,
    /// Each its own pair: each is a flow.
    Each,
}

/// What a flow of the workload sends as datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagrams {
    /// Payload of each.
    pub payload_bytes: u16,
    /// Payload bits a second.
    pub rate_bps: u64,
    /// Their ports.
    pub ports: Ports,
}

/// A flow that sends them.
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

    /// When the next datagram is due, if there is one. Computed from the beginning, so that the
    /// rate is exact.
    pub(super) fn next(&self) -> Option<Instant> {
        if self.sent >= self.all {
            return None;
        }
        let bits = u128::from(self.sent) * u128::from(self.plan.payload_bytes) * 8;
        let ns = bits * 1_000_000_000 / u128::from(self.plan.rate_bps);
        Some(self.begun + Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)))
    }

    /// The frame of the next datagram.
    pub(super) fn frame(&mut self) -> Vec<u8> {
        let number = match self.plan.ports {
            Ports::One => u64::from(self.spec.id.0) * DESTINATIONS,
            Ports::Each => self.sent,
        };
        self.sent += 1;
        let source = u16::try_from(number / DESTINATIONS).unwrap_or(u16::MAX);
        let destination = u16::try_from(number % DESTINATIONS).unwrap_or(u16::MAX);
        let ports = (SOURCE_FIRST.wrapping_add(source), DESTINATION_FIRST + destination);
        write(&self.spec, ports, self.plan.payload_bytes)
    }

    /// The flow, if all its datagrams are sent.
    pub(super) fn done(&self) -> Option<FlowSpec> {
        (self.sent >= self.all).then_some(self.spec)
    }
}

fn write(spec: &FlowSpec, ports: (u16, u16), payload_bytes: u16) -> Vec<u8> {
    let total = HEADER_BYTES + usize::from(payload_bytes);
    let length = |bytes: usize| u16::try_from(bytes).expect("below 64 KiB").to_be_bytes();
    let mut frame = vec![0; OFFLOAD_BYTES + total];
    let packet = &mut frame[OFFLOAD_BYTES..];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&length(total));
    packet[6] = 0x40;
    packet[8] = 64;
    packet[9] = protocol::UDP;
    let address = |host: HostId| inner_address(HostId(host.0 + FIRST)).octets();
    packet[12..16].copy_from_slice(&address(spec.src));
    packet[16..20].copy_from_slice(&address(spec.dst));
    let sum = checksum::of(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet[20..22].copy_from_slice(&ports.0.to_be_bytes());
    packet[22..24].copy_from_slice(&ports.1.to_be_bytes());
    packet[24..26].copy_from_slice(&length(total - 20));
    packet[28..32].copy_from_slice(&spec.id.0.to_be_bytes());
    frame
}

/// The flow of an arrived datagram, and its payload bytes; `None` if it is none.
pub(super) fn read(packet: &[u8]) -> Option<(u32, u32)> {
    if packet.get(9) != Some(&protocol::UDP) {
        return None;
    }
    let flow = packet.get(HEADER_BYTES..)?.first_chunk::<4>()?;
    let payload = u32::try_from(packet.len() - HEADER_BYTES).ok()?;
    Some((u32::from_be_bytes(*flow), payload))
}
