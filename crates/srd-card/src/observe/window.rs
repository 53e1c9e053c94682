//! Packets and bytes by flow, for one window of time.
//!
//! An interface has one [`Aggregator`] for each length of window that its flow logs use. The
//! aggregator begins a window, counts packets, and returns the window when its time is over. The
//! cost of returning a window does not depend on the number of flows.
//!
//! Bound: [`FLOWS_MAX`] flows in a window. Packets of more flows are counted as skipped.

use alloc::vec::Vec;
use core::net::IpAddr;

use hashbrown::HashMap;
use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};

use crate::hash::Keyed;
use crate::meta::packet::{Packet, protocol};

/// Largest number of flows in a window; both directions of a connection are two flows.
pub const FLOWS_MAX: usize = 32_768;

/// Flags of TCP that records contain.
const FIN_SYN_RST: u8 = 0x07;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// A flow in one direction. // F3
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct FlowKey {
    /// Whether the interface sends the packets.
    pub egress: bool,
    /// The transport protocol.
    pub protocol: u8,
    /// Source address of the packets.
    pub source: IpAddr,
    /// Destination address of the packets.
    pub destination: IpAddr,
    /// Source and destination port; zeros for a protocol without ports, and for fragments.
    pub ports: (u16, u16),
}

/// Path of packets that leave, by EC2's numbers for Nitro.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Path {
    /// To a resource of the same cloud.
    Cloud,
    /// Through a peering connection inside the Region.
    Peering,
    /// Through a gateway endpoint.
    Endpoint,
    /// Through an internet gateway.
    Internet,
}

/// Action of groups and lists on a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Action {
    /// The packet passed.
    Accept,
    /// Groups or lists refused the packet.
    Reject,
}

/// One packet, or a super-packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Observed {
    /// Flow of the packet.
    pub key: FlowKey,
    /// Action of groups and lists on the packet.
    pub action: Action,
    /// Path by which the packet left, if it did.
    pub path: Option<Path>,
    /// Flags of the TCP header; 0 for other protocols.
    pub tcp_flags: u8,
    /// Packets that this one represents.
    pub packets: u32,
    /// Bytes of the packets that this one represents, from the IP headers on.
    pub bytes: u32,
}

impl Observed {
    /// Describes a packet whose headers were read. Returns `None` if flow logs omit the packet.
    /// // F6
    pub fn of(packet: &Packet, bytes: &[u8], egress: bool) -> Option<Self> {
        let ports = packet.ports.unwrap_or_default();
        let is_dhcp = |port| matches!(port, 67 | 68 | 546 | 547);
        if packet.protocol == protocol::UDP && is_dhcp(ports.0) && is_dhcp(ports.1) {
            return None;
        }
        let is_tcp = packet.protocol == protocol::TCP && packet.ports.is_some();
        let flags = bytes.get(packet.transport_at + 13).copied().filter(|_| is_tcp);
        let (source, destination) = (packet.source, packet.destination);
        let key = FlowKey { egress, protocol: packet.protocol, source, destination, ports };
        Some(Self {
            key,
            action: Action::Accept,
            path: None,
            tcp_flags: flags.unwrap_or_default(),
            packets: 1,
            bytes: 0,
        })
    }
}

/// Counters of a flow for one action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count {
    /// Number of packets; the other fields are valid only if this is not 0.
    pub packets: u64,
    /// Bytes of the packets.
    pub bytes: u64,
    /// Arrival of the first packet.
    pub first: Instant,
    /// Arrival of the last packet.
    pub last: Instant,
    /// FIN, SYN and RST flags of all packets; ACK if one packet had both SYN and ACK.
    pub tcp_flags: u8,
}

impl Count {
    const NONE: Self =
        Self { packets: 0, bytes: 0, first: Instant::ZERO, last: Instant::ZERO, tcp_flags: 0 };

    fn add(&mut self, now: Instant, seen: &Observed) {
        if self.packets == 0 {
            self.first = now;
        }
        self.last = now;
        self.packets = self.packets.saturating_add(seen.packets.into());
        self.bytes = self.bytes.saturating_add(seen.bytes.into());
        let flags = seen.tcp_flags;
        let of_syn = if flags & SYN == 0 { 0 } else { flags & ACK };
        self.tcp_flags |= flags & FIN_SYN_RST | of_syn;
    }
}

/// Counters of a flow, and its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Packets that passed.
    pub accepted: Count,
    /// Packets that groups or lists refused.
    pub rejected: Count,
    /// Path by which the last packet left.
    pub path: Option<Path>,
}

/// A window of time that is over.
#[derive(Clone, Debug)]
pub struct Window {
    /// Beginning of the window.
    pub began: Instant,
    /// End of the window.
    pub ended: Instant,
    /// Packets of flows beyond [`FLOWS_MAX`].
    pub skipped_packets: u64,
    flows: HashMap<FlowKey, Flow, Keyed>,
}

impl Window {
    /// Returns the flows in the order of their keys.
    pub fn flows(&self) -> Vec<(&FlowKey, &Flow)> {
        let mut flows: Vec<_> = self.flows.iter().collect();
        flows.sort_unstable_by_key(|(key, _)| **key);
        flows
    }

    /// Number of flows.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Whether there are no flows.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Returns the number of packets in the window, skipped ones included.
    pub fn packets(&self) -> u64 {
        let flows = self.flows.values();
        flows.fold(self.skipped_packets, |sum, flow| {
            sum.saturating_add(flow.accepted.packets).saturating_add(flow.rejected.packets)
        })
    }

    /// Removes the flows if there is no memory for them: their packets count as skipped.
    pub fn forget_flows(&mut self) {
        self.skipped_packets = self.packets();
        self.flows = HashMap::with_hasher(*self.flows.hasher());
    }

    /// Whether the window contains no packet at all.
    pub fn is_silent(&self) -> bool {
        self.flows.is_empty() && self.skipped_packets == 0
    }
}

mod stored;

/// Counts packets of an interface.
#[derive(Clone, Debug)]
pub struct Aggregator {
    length: Duration,
    keyed: Keyed,
    current: Window,
}

impl Aggregator {
    /// Begins the first window.
    pub fn new(now: Instant, length: Duration, secret: Secret) -> Self {
        let keyed = Keyed::new(secret);
        Self { length, keyed, current: Self::window(now, length, keyed) }
    }

    fn window(began: Instant, length: Duration, keyed: Keyed) -> Window {
        let flows = HashMap::with_hasher(keyed);
        Window { began, ended: began + length, skipped_packets: 0, flows }
    }

    /// Length of each window.
    pub fn length(&self) -> Duration {
        self.length
    }

    /// End of the current window.
    pub fn ends(&self) -> Instant {
        self.current.ended
    }

    /// Counts a packet. // F4
    pub fn count(&mut self, now: Instant, seen: &Observed) {
        let flows = &mut self.current.flows;
        if flows.len() >= FLOWS_MAX && !flows.contains_key(&seen.key) {
            let skipped = &mut self.current.skipped_packets;
            *skipped = skipped.saturating_add(seen.packets.into());
            return;
        }
        let none = Flow { accepted: Count::NONE, rejected: Count::NONE, path: None };
        let flow = flows.entry(seen.key).or_insert(none);
        match seen.action {
            Action::Accept => flow.accepted.add(now, seen),
            Action::Reject => flow.rejected.add(now, seen),
        }
        flow.path = seen.path.or(flow.path);
    }

    /// Returns the window if its time is over, and begins another one. // F2
    pub fn roll(&mut self, now: Instant) -> Option<Window> {
        let ended = self.current.ended;
        if now < ended {
            return None;
        }
        // After a pause of the program, the windows that ended in the pause are omitted.
        let late = now.since(ended).as_nanos() / self.length.as_nanos().max(1);
        let began = ended + Duration::from_nanos(late * self.length.as_nanos());
        let next = Self::window(began, self.length, self.keyed);
        Some(core::mem::replace(&mut self.current, next))
    }

    /// Ends the log, and returns the current window.
    pub fn finish(mut self, now: Instant) -> Window {
        self.current.ended = now.min(self.current.ended);
        self.current
    }
}
