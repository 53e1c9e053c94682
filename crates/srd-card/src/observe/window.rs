//! Packets and bytes by flow, for one window of time.
//!
//! An interface has one [`Aggregator`] for each length of window that its flow logs ask for. It
//! begins a window, counts what it is told, and hands the window over when its time is over.
//! Handing over costs the same however many flows there are.
//!
//! Bound: [`FLOWS_MAX`] flows in a window. Packets of more flows are counted as skipped.

use alloc::vec::Vec;
use core::net::IpAddr;

use hashbrown::HashMap;
use srd_proto::Secret;
use srd_proto::time::{Duration, Instant};

use crate::hash::Keyed;
use crate::meta::packet::{Packet, protocol};

/// The most flows of a window; both directions of a connection are two.
pub const FLOWS_MAX: usize = 32_768;

/// Flags of TCP that records show.
const FIN_SYN_RST: u8 = 0x07;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// A flow in one direction. // F3
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct FlowKey {
    /// Whether the interface sends it.
    pub egress: bool,
    /// The transport protocol.
    pub protocol: u8,
    /// The source that packets have.
    pub source: IpAddr,
    /// The destination that packets have.
    pub destination: IpAddr,
    /// Source and destination port; zeros of a protocol without ports, and of fragments.
    pub ports: (u16, u16),
}

/// How packets leave, by EC2's numbers for Nitro.
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

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Action {
    /// It passed.
    Accept,
    /// Groups or lists refused it.
    Reject,
}

/// One packet, or a super-packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Observed {
    /// Its flow.
    pub key: FlowKey,
    /// What became of it.
    pub action: Action,
    /// How it left, if it did.
    pub path: Option<Path>,
    /// The flags of its TCP header; 0 of others.
    pub tcp_flags: u8,
    /// Packets that it stands for.
    pub packets: u32,
    /// Their bytes, from the IP headers on.
    pub bytes: u32,
}

impl Observed {
    /// A packet whose headers were read; `None` if flow logs leave it out. // F6
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

/// What was counted of a flow with one action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count {
    /// Packets; none if this is 0.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the first came.
    pub first: Instant,
    /// When the last came.
    pub last: Instant,
    /// FIN, SYN and RST of all together; ACK if one had SYN and ACK.
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

/// What was counted of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// Packets that passed.
    pub accepted: Count,
    /// Packets that groups or lists refused.
    pub rejected: Count,
    /// How the last packet left.
    pub path: Option<Path>,
}

/// A window of time that is over.
#[derive(Clone, Debug)]
pub struct Window {
    /// When it began.
    pub began: Instant,
    /// When it ended.
    pub ended: Instant,
    /// Packets of flows beyond [`FLOWS_MAX`].
    pub skipped_packets: u64,
    flows: HashMap<FlowKey, Flow, Keyed>,
}

impl Window {
    /// Flows in the order of their keys.
    pub fn flows(&self) -> Vec<(&FlowKey, &Flow)> {
        let mut flows: Vec<_> = self.flows.iter().collect();
        flows.sort_unstable_by_key(|(key, _)| **key);
        flows
    }

    /// How many flows there are.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Whether there are no flows.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Packets of the window, skipped ones as well.
    pub fn packets(&self) -> u64 {
        let flows = self.flows.values();
        flows.fold(self.skipped_packets, |sum, flow| {
            sum.saturating_add(flow.accepted.packets).saturating_add(flow.rejected.packets)
        })
    }

    /// Gives up the flows, for which there is no room: their packets are skipped ones.
    pub fn forget_flows(&mut self) {
        self.skipped_packets = self.packets();
        self.flows = HashMap::with_hasher(*self.flows.hasher());
    }

    /// Whether no packet came at all.
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

    /// The length of a window.
    pub fn length(&self) -> Duration {
        self.length
    }

    /// When the window is over.
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

    /// The window, if its time is over; another one has begun. // F2
    pub fn roll(&mut self, now: Instant) -> Option<Window> {
        let ended = self.current.ended;
        if now < ended {
            return None;
        }
        // After a pause of the program the windows that nobody looked at are left out.
        let late = now.since(ended).as_nanos() / self.length.as_nanos().max(1);
        let began = ended + Duration::from_nanos(late * self.length.as_nanos());
        let next = Self::window(began, self.length, self.keyed);
        Some(core::mem::replace(&mut self.current, next))
    }

    /// The window as it is now: the log ends.
    pub fn finish(mut self, now: Instant) -> Window {
        self.current.ended = now.min(self.current.ended);
        self.current
    }
}
