//! Copies for mirror sessions: packets that a filter accepts travel once more, in VXLAN (RFC 7348),
//! from the source's interface to the target's.
//!
//! ```text
//!  0      IPv4, from the source's primary address to the target's
//!  20     UDP, from a hash of the flow to 4789, without checksum
//!  28     VXLAN: flags 8, the network identifier of the session
//!  36     Ethernet, from the router to the source's interface, or the other way round
//!  50     the packet, as far as the session and the MTU go
//! ```
//!
//! A copy is judged by lists and routes as any packet of the source is, but not by the source's
//! groups; it pays from the source's bandwidth what nobody else waits for.
//!
//! Bound: a packet is copied once; a copy is never copied, since no interface is source and target.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use srd_proto::time::Instant;
use srd_vpc::compile;
use srd_vpc::id::{EniId, MirrorSessionId};
use srd_vpc::judge::mirrors;
use srd_vpc::object::{MirrorFilter, World};

use super::card::Card;
use super::flow::To;
use super::port::{Around, PortId};
use super::read::Read;
use crate::hash::Keyed;
use crate::limits::Offer;
use crate::meta::key::{Direction, FlowKey};
use crate::meta::offload::OFFLOAD_BYTES;
use crate::meta::packet::protocol;
use crate::rewrite::checksum;
use crate::rewrite::segment::Segments;

/// The port of VXLAN.
pub const VXLAN_PORT: u16 = 4789;
/// Headers of IP, UDP and VXLAN.
const OUTER_BYTES: usize = 36;
const ETHERNET_BYTES: usize = 14;
/// The largest packet in a cloud.
const MTU: usize = 9001;
/// Source ports of copies begin here, so that none is a service's.
const SOURCE_PORT_FIRST: u16 = 0xc000;
/// The address of the router that all subnets have.
const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const VNI_FLAG: u8 = 8;
const TTL: u8 = 64;

/// A mirror session, as its source's card needs it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mirror {
    /// Which packets.
    pub filter: MirrorFilter,
    /// 24 bits.
    pub vni: u32,
    /// Bytes behind the VXLAN header; as many as fit if none.
    pub packet_length: Option<u16>,
    /// The hardware address of the source.
    pub mac: [u8; 6],
    /// The primary address of the source.
    pub source: Ipv4Addr,
    /// The primary address of the target.
    pub target: Ipv4Addr,
}

impl Mirror {
    /// A session of a world, and its source; `None` if it names what is not there.
    pub fn of(world: &World, session: MirrorSessionId) -> Option<(EniId, u16, Self)> {
        let session = world.mirror_sessions.get(&session)?;
        let target = world.mirror_targets.get(&session.target)?;
        let filter = world.mirror_filters.get(&session.filter)?.clone();
        let (source, target) = (world.enis.get(&session.source)?, world.enis.get(&target.eni)?);
        let mirror = Self {
            filter,
            vni: session.vni,
            packet_length: session.packet_length,
            mac: source.mac,
            source: *source.ipv4.first()?,
            target: *target.ipv4.first()?,
        };
        Some((session.source, session.number, mirror))
    }

    /// The copy of a packet, cut to the session's length and to the MTU. // M3
    fn copy(&self, packet: &[u8], egress: bool, hash: u64) -> Vec<u8> {
        let wanted = ETHERNET_BYTES + packet.len();
        let most = self.packet_length.map_or(usize::MAX, usize::from).min(MTU - OUTER_BYTES);
        let inner_bytes = wanted.min(most);
        let total = OUTER_BYTES + inner_bytes;
        let mut out = Vec::with_capacity(OFFLOAD_BYTES + total);
        out.extend_from_slice(&[0; OFFLOAD_BYTES]);
        let length = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
        let [high, low] = length(total);
        let mut ip = [0x45, 0, high, low, 0, 0, 0x40, 0, TTL, protocol::UDP, 0, 0];
        let addresses = [self.source.octets(), self.target.octets()].concat();
        let sum = checksum::of(&[&ip[..], &addresses].concat());
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        out.extend_from_slice(&ip);
        out.extend_from_slice(&addresses);
        let [.., a, b] = hash.to_be_bytes();
        let source_port = u16::from_be_bytes([a, b]) | SOURCE_PORT_FIRST;
        out.extend_from_slice(&source_port.to_be_bytes());
        out.extend_from_slice(&VXLAN_PORT.to_be_bytes());
        out.extend_from_slice(&length(total - 20));
        out.extend_from_slice(&[0, 0, VNI_FLAG, 0, 0, 0]);
        let [_, vni @ ..] = self.vni.to_be_bytes();
        out.extend_from_slice(&vni);
        out.push(0);
        let ends = if egress { [ROUTER_MAC, self.mac] } else { [self.mac, ROUTER_MAC] };
        out.extend_from_slice(&ends.concat());
        let is_v4 = packet.first().is_some_and(|byte| byte >> 4 == 4);
        out.extend_from_slice(&if is_v4 { [0x08, 0x00] } else { [0x86, 0xdd] });
        out.extend_from_slice(packet);
        out.truncate(OFFLOAD_BYTES + total);
        out
    }
}

impl Card {
    /// Copies packets of its interfaces for the mirror sessions of a world, and for no others.
    pub fn set_mirrors(&mut self, world: &World) {
        let mut of: BTreeMap<EniId, Vec<(u16, Mirror)>> = BTreeMap::new();
        for id in world.mirror_sessions.keys() {
            if let Some((source, number, mirror)) = Mirror::of(world, *id) {
                of.entry(source).or_default().push((number, mirror));
            }
        }
        let targets: BTreeSet<EniId> = world.mirror_targets.values().map(|to| to.eni).collect();
        for port in self.ports.iter_mut().filter(|port| !port.is_gone) {
            let mut sessions = of.remove(&port.eni).unwrap_or_default();
            sessions.sort_by_key(|(number, _)| *number);
            port.is_mirror_target = targets.contains(&port.eni);
            // Copies of copies would never end. // M1
            let is_source = !port.is_mirror_target;
            port.mirrors =
                sessions.into_iter().filter(|_| is_source).map(|(_, mirror)| mirror).collect();
        }
    }

    /// A packet has passed rules and limits: it is copied if a session wants it. // M2
    #[inline]
    pub(super) fn mirror(
        &mut self,
        now: Instant,
        port: PortId,
        frame: &[u8],
        direction: Direction,
        around: &mut impl Around,
    ) {
        if !self.ports[port.0 as usize].mirrors.is_empty() {
            self.copy(now, port, frame, direction, around);
        }
    }

    #[cold]
    #[inline(never)]
    fn copy(
        &mut self,
        now: Instant,
        port: PortId,
        frame: &[u8],
        direction: Direction,
        around: &mut impl Around,
    ) {
        let Some(read) = Read::frame(frame) else { return };
        let bytes = &frame[OFFLOAD_BYTES..];
        let egress = direction == Direction::Egress;
        let packet = read.for_rules(bytes);
        let is_dhcp = crate::observe::Observed::of(&read.packet, bytes, egress).is_none();
        let mut sessions = self.ports[port.0 as usize].mirrors.iter();
        let wanted = sessions.find(|mirror| mirrors(&mirror.filter, egress, &packet));
        let Some(mirror) = wanted.filter(|_| !is_dhcp) else { return };
        // Of ports where there are some, else of addresses and protocol. // M3
        let hash = FlowKey::of(&read.packet).hash_under(&Keyed::new(self.seed));
        // A super-packet is many packets on the wire, with checksums that nothing is left to fill in.
        let mut segments = Segments::new(frame, &read.layout);
        let layout = segments.layout();
        let mut copies = Vec::new();
        for index in 0..segments.count() {
            let mut whole = segments.write(index)[OFFLOAD_BYTES..].to_vec();
            checksum::complete(&mut whole, &layout);
            copies.push(mirror.copy(&whole, egress, hash));
        }
        for copy in copies {
            self.send_copy(now, port, copy, around);
        }
    }

    fn send_copy(&mut self, now: Instant, port: PortId, frame: Vec<u8>, around: &mut impl Around) {
        let there = &self.ports[port.0 as usize];
        let (instance, index) = (there.instance, there.index);
        let bytes = u32::try_from(frame.len() - OFFLOAD_BYTES).unwrap_or(u32::MAX);
        let to = Read::frame(&frame).and_then(|read| {
            // Groups of the source are not asked. // M5
            let flow = compile::Flow::Established;
            Some(self.ask_sent(port, &read, &frame[OFFLOAD_BYTES..], flow).ok()?.0.to)
        });
        let to = to.filter(|to| matches!(to, To::Port(_) | To::Host { .. }));
        let offer = Offer {
            direction: Direction::Egress,
            bytes,
            packets: 1,
            eni: index,
            gateway: false,
            link_local: false,
            fragment: false,
        };
        let limits = &mut self.instances[instance as usize].limits;
        let to = to.filter(|_| limits.spare(now, &offer));
        let counts = &mut self.ports[port.0 as usize].counts;
        let Some(to) = to else {
            counts.mirror_dropped += 1;
            return;
        };
        counts.mirrored_packets += 1;
        counts.mirrored_bytes += u64::from(bytes);
        self.leave(now, port, to, frame, around);
    }
}
