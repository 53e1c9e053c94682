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

/// TCP flags that records contain whenever a packet has them: FIN, SYN and RST.
const FIN_SYN_RST: u8 = 0x07;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// A flow in one direction. // F3
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct FlowKey {
    /// Whether the interface sends the packets.
    pub egress: bool,
    /// Number of the transport protocol.
    pub protocol: u8,
    /// Source address of the packets.
    pub source: IpAddr,
    /// Destination address of the packets.
    pub destination: IpAddr,
    /// Source and destination port; zeros for a protocol without ports, and for fragments.
    pub ports: (u16, u16),
}

/// Path by which packets leave the interface, as EC2's field `traffic-path` distinguishes them.
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

/// Action of security groups and network ACLs on a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Action {
    /// Security groups and network ACLs let the packet pass.
    Accept,
    /// Security groups or network ACLs refused the packet.
    Reject,
}

/// Data of one packet, or of a super-packet, for flow logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Observed {
    /// Flow of the packet.
    pub key: FlowKey,
    /// Action of security groups and network ACLs on the packet.
    pub action: Action,
    /// Path by which the packet left; `None` if it did not leave, or was received.
    pub path: Option<Path>,
    /// Flags of the TCP header; 0 for other protocols.
    pub tcp_flags: u8,
    /// Number of packets: more than one for a super-packet.
    pub packets: u32,
    /// Bytes from the IP header on; for a super-packet, of all packets that it represents.
    pub bytes: u32,
}

impl Observed {
    /// Returns the data of a packet, as an accepted packet without bytes and path, which the caller
    /// fills in. Returns `None` if flow logs omit the packet. // F6
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

/// Counters of the accepted packets of a flow, or of its refused packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count {
    /// Number of packets. If it is 0, the other fields have no meaning.
    pub packets: u64,
    /// Bytes of the packets.
    pub bytes: u64,
    /// Time of the first packet.
    pub first: Instant,
    /// Time of the last packet.
    pub last: Instant,
    /// FIN, SYN and RST flags that any packet had; also ACK, if a packet had both SYN and ACK.
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

/// Counters of a flow in one window, and its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Packets that security groups and network ACLs let pass.
    pub accepted: Count,
    /// Packets that security groups or network ACLs refused.
    pub rejected: Count,
    /// Path by which the last packet left; `None` if no packet left.
    pub path: Option<Path>,
}

/// A window of time, and the packets that were counted in it.
#[derive(Clone, Debug)]
pub struct Window {
    /// Time at which the window begins.
    pub began: Instant,
    /// Time at which the window ends.
    pub ended: Instant,
    /// Number of packets that belong to no flow of the window, because it has [`FLOWS_MAX`] flows
    /// already.
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

    /// Number of flows in the window.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Whether the window has no flows.
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

    /// Removes all flows, because the caller has no memory for them. Their packets count as
    /// skipped.
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

/// Counts the packets of an interface in windows of one length.
#[derive(Clone, Debug)]
pub struct Aggregator {
    length: Duration,
    keyed: Keyed,
    current: Window,
}

impl Aggregator {
    /// Creates an aggregator with windows of this length; the first window begins now.
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

    /// Counts a packet in the current window. // F4
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

    /// Returns the current window if its time is over, and begins the next window. // F2
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

    /// Ends the count, and returns the current window, which ends now.
    pub fn finish(mut self, now: Instant) -> Window {
        self.current.ended = now.min(self.current.ended);
        self.current
    }
}
